/* Any bytes as a TFRecord file, as a message inside one, and as an index file: refused with a sentence, or what is read
 * lies inside the bytes, is the same from memory as from a file, and is what protobuf-c reads. */
#include <example.pb-c.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/detection/object_record.h"
#include "data/sample/image_record.h"
#include "formats/container/tfrecord_index.h"
#include "support_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool same(const struct cvy_image_record *x, const struct cvy_image_record *y)
{
    return x->image_from == y->image_from && x->image_size == y->image_size && x->label == y->label &&
           strcmp(x->synset, y->synset) == 0 && strcmp(x->text, y->text) == 0 &&
           strcmp(x->filename, y->filename) == 0 && x->box_count == y->box_count &&
           (x->box_count == 0 || memcmp(x->boxes, y->boxes, x->box_count * sizeof *x->boxes) == 0);
}

/* The last feature of that name, as protobuf says. */
static const Cvy__Feature *find(const Cvy__Example *example, const char *key)
{
    const Cvy__Feature *found = NULL;
    for (size_t i = 0; example->features && i < example->features->n_feature; i++)
        if (strcmp(example->features->feature[i]->key, key) == 0)
            found = example->features->feature[i]->value;
    return found;
}

static void compare_with_protobuf_c(const uint8_t *data, size_t size, const struct cvy_image_record *record)
{
    Cvy__Example *example = cvy__example__unpack(NULL, size, data);
    if (!example)
        return; /* damage in a list that nobody looks at */
    const Cvy__Feature *image = find(example, "image/encoded"), *label = find(example, "image/class/label");
    const Cvy__Feature *xmin = find(example, "image/object/bbox/xmin");
    must(image && image->kind_case == CVY__FEATURE__KIND_BYTES_LIST && image->bytes_list->n_value > 0 &&
         image->bytes_list->value[0].len == record->image_size &&
         memcmp(image->bytes_list->value[0].data, data + record->image_from, record->image_size) == 0);
    if (label && label->kind_case == CVY__FEATURE__KIND_INT64_LIST && label->int64_list->n_value > 0)
        must(label->int64_list->value[0] == record->label);
    else
        must(record->label == -1);
    if (xmin && xmin->kind_case == CVY__FEATURE__KIND_FLOAT_LIST) {
        must(xmin->float_list->n_value == record->box_count);
        for (size_t i = 0; i < record->box_count; i++)
            must(memcmp(&xmin->float_list->value[i], &record->boxes[i].xmin, sizeof(float)) == 0);
    } else {
        must(record->box_count == 0);
    }
    cvy__example__free_unpacked(example, NULL);
}

static bool same_list(const void *x, const void *y, size_t size)
{
    return !x == !y && (!x || memcmp(x, y, size) == 0);
}

/* The same bytes as an image with objects. */
static void read_objects(const uint8_t *data, size_t size, int descriptor)
{
    struct cvy_object_record memory, file;
    struct cvy_example example;

    cvy_example_open_memory(&example, "input", 0, data, size);
    const cvy_status status = cvy_object_record_read(&example, &memory);
    cvy_example_open_file(&example, "input", 0, descriptor, 0, size);
    must(status == cvy_object_record_read(&example, &file));
    if (status == CVY_OK) {
        const size_t count = memory.count;
        must(memory.width > 0 && memory.height > 0 && memory.id >= -1 && count == file.count &&
             (count == 0 || memory.texts || memory.labels));
        must(same_list(memory.boxes, file.boxes, count * sizeof *memory.boxes) &&
             same_list(memory.areas, file.areas, count * sizeof *memory.areas) &&
             same_list(memory.crowds, file.crowds, count * sizeof *memory.crowds) &&
             same_list(memory.labels, file.labels, count * sizeof *memory.labels) &&
             same_list(memory.texts, file.texts, count * sizeof *memory.texts));
    } else {
        expect_sentence(status);
    }
    cvy_object_record_release(&memory);
    cvy_object_record_release(&file);
}

static void read_message(const uint8_t *data, size_t size)
{
    struct cvy_image_record memory, file;
    struct cvy_example example;
    const int descriptor = file_of(data, size);

    cvy_example_open_memory(&example, "input", 0, data, size);
    const cvy_status status = cvy_image_record_read(&example, true, &memory);
    cvy_example_open_file(&example, "input", 0, descriptor, 0, size);
    const cvy_status other = cvy_image_record_read(&example, true, &file);
    must(status == other);
    if (status == CVY_OK) {
        must(memory.image_from <= size && memory.image_size <= size - memory.image_from && same(&memory, &file));
        compare_with_protobuf_c(data, size, &memory);
    } else {
        expect_sentence(status);
    }
    cvy_image_record_release(&memory);
    cvy_image_record_release(&file);
    read_objects(data, size, descriptor);
    close(descriptor);
}

/* Records one after another; walking the file finds the same places. */
static void read_records(const uint8_t *data, size_t size)
{
    struct cvy_tfrecord_index index = {0};
    const int descriptor = file_of(data, size);
    const cvy_status walked = cvy_tfrecord_scan("input", descriptor, &index);
    const uint8_t *payload;
    size_t at = 0, used, length;

    if (walked != CVY_OK)
        expect_sentence(walked);
    for (size_t i = 0; at < size; i++, at += used) {
        const cvy_status status = cvy_tfrecord_parse("input", at, data + at, size - at, &payload, &length, &used);
        if (status != CVY_OK) {
            expect_sentence(status);
            break;
        }
        must(i < index.count && index.places[i].offset == at && index.places[i].size == used);
        must(payload == data + at + CVY_TFRECORD_HEADER && length + CVY_TFRECORD_FRAME == used && used <= size - at);
        read_message(payload, length);
        (void)read_sample(CVY_SHARD_TFRECORD, descriptor, at, used);
    }
    cvy_tfrecord_index_release(&index);
    close(descriptor);
}

static void read_index(const uint8_t *data, size_t size)
{
    struct cvy_tfrecord_index index = {0};
    const int descriptor = file_of(data, size);
    char path[64];

    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    const cvy_status status = cvy_tfrecord_index_read(path, &index);
    must(status == CVY_OK || status == CVY_BAD_DATA);
    for (size_t i = 1; i < index.count; i++)
        must(index.places[i].offset >= index.places[i - 1].offset + index.places[i - 1].size);
    cvy_tfrecord_index_release(&index);
    close(descriptor);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_records(data, size);
    read_message(data, size);
    read_index(data, size);
    return 0;
}
