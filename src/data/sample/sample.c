#include "data/sample/sample.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "formats/container/pack.h"
#include "formats/container/tar.h"
#include "formats/container/tfrecord.h"

/* No encoded image is longer. */
static const size_t max_file_bytes = (size_t)1 << 30;

static cvy_status read_file(const struct cvy_sample *sample, struct cvy_encoded *encoded)
{
    encoded->name = sample->path;
    CVY_TRY(cvy_file_read(sample->path, max_file_bytes, &encoded->block, &encoded->size));
    encoded->data = encoded->block;
    return CVY_OK;
}

/* A record's names, after the record: its own, then for messages its file, where it begins, and its own. */
static void name_record(const struct cvy_sample *sample, struct cvy_encoded *encoded, size_t size, const char *filename,
                        size_t length)
{
    char *own = (char *)encoded->block + sample->record_bytes, *name = own + length + 1;

    memcpy(own, filename, length);
    own[length] = 0;
    encoded->own = own;
    encoded->name = name;
    name += snprintf(name, size - length - 1, "%s@%llu", sample->path, (unsigned long long)sample->record_offset);
    if (!own[0])
        return;
    memcpy(name, " (", 2);
    memcpy(name + 2, own, length);
    memcpy(name + 2 + length, ")", 2);
}

static cvy_status take_tfrecord(const struct cvy_sample *sample, size_t name_size, struct cvy_encoded *encoded)
{
    struct cvy_image_record record = {0};
    struct cvy_example example;
    const uint8_t *message;
    size_t message_size;

    CVY_TRY(cvy_tfrecord_parse(sample->path, sample->record_offset, encoded->block, sample->record_bytes, &message,
                               &message_size, NULL));
    cvy_example_open_memory(&example, sample->path, sample->record_offset, message, message_size);
    const cvy_status status = cvy_image_record_read(&example, true, &record);
    if (status != CVY_OK) {
        cvy_image_record_release(&record);
        return status;
    }
    encoded->data = message + record.image_from;
    encoded->size = record.image_size;
    encoded->boxes = record.boxes;
    encoded->box_count = record.box_count;
    name_record(sample, encoded, name_size, record.filename, strlen(record.filename));
    return CVY_OK;
}

static cvy_status take_packed(const struct cvy_sample *sample, size_t name_size, struct cvy_encoded *encoded)
{
    struct cvy_pack_record record;

    CVY_TRY(cvy_pack_record_parse(sample->path, sample->record_offset, encoded->block, sample->record_bytes, &record));
    encoded->data = record.image;
    encoded->size = record.size;
    name_record(sample, encoded, name_size, record.name, record.name_size);
    return CVY_OK;
}

/* The header's block and the bytes after it. */
static cvy_status take_member(const struct cvy_sample *sample, size_t name_size, struct cvy_encoded *encoded)
{
    char name[257];

    cvy_tar_block_name(encoded->block, name);
    encoded->data = (const uint8_t *)encoded->block + CVY_TAR_BLOCK;
    encoded->size = sample->record_bytes - CVY_TAR_BLOCK;
    name_record(sample, encoded, name_size, name, strlen(name));
    return CVY_OK;
}

static cvy_status read_record(const struct cvy_sample *sample, struct cvy_encoded *encoded)
{
    static const struct {
        cvy_status (*take)(const struct cvy_sample *sample, size_t name_size, struct cvy_encoded *encoded);
        size_t name_limit;
    } kinds[] = {
        [CVY_SHARD_TFRECORD] = {take_tfrecord, sizeof(((struct cvy_image_record *)0)->filename)},
        [CVY_SHARD_PACK] = {take_packed, CVY_PACK_NAME_LIMIT},
        [CVY_SHARD_TAR] = {take_member, 257},
    };
    const enum cvy_shard_kind kind = sample->shard->kind;
    const size_t name_size = strlen(sample->path) + 2 * (kinds[kind].name_limit + 1) + 32;

    encoded->block = cvy_realloc(NULL, sample->record_bytes + name_size, 1);
    if (!encoded->block)
        return cvy_fail_memory(sample->record_bytes + name_size, cvy_quote(sample->path));
    cvy_status status = cvy_shard_read(sample->shard, sample->record_offset, encoded->block, sample->record_bytes);
    if (status == CVY_OK)
        status = kinds[kind].take(sample, name_size, encoded);
    if (status != CVY_OK)
        cvy_encoded_release(encoded);
    return status;
}

cvy_status cvy_sample_read(const struct cvy_sample *sample, struct cvy_encoded *encoded)
{
    *encoded = (struct cvy_encoded){0};
    return sample->shard ? read_record(sample, encoded) : read_file(sample, encoded);
}

void cvy_encoded_release(struct cvy_encoded *encoded)
{
    if (!encoded->borrowed) {
        cvy_free(encoded->boxes);
        cvy_free(encoded->block);
    }
    *encoded = (struct cvy_encoded){0};
}
