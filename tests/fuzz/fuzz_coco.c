/* Any bytes as a COCO file: refused with a sentence, or a whole data set whose objects are those of its images and lie
 * where objects may lie. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "data/detection/coco_set.h"
#include "data/transform/detection.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_object(const struct cvy_dataset *set, const struct cvy_coco_image *image,
                         const struct cvy_coco_object *object)
{
    float box[4];

    cvy_object_shares(image, object, box);
    for (int i = 0; i < 4; i++)
        if (!isfinite(box[i]) || box[i] > 1)
            abort();
    if (object->slot < 1 || object->slot > set->class_count || !(object->bbox[2] > 0 && object->bbox[3] > 0) ||
        !(object->area >= 0))
        abort();
}

static void check_set(const struct cvy_dataset *set)
{
    uint32_t objects = 0;

    if (!set->detection || set->sample_count < 1 || set->class_count < 1)
        abort();
    for (int32_t c = 0; c < set->class_count; c++)
        if (!set->classes[c] || strlen(set->classes[c]) > 255)
            abort();
    for (uint32_t i = 0; i < set->sample_count; i++) {
        const struct cvy_coco_object *list;
        size_t count;
        cvy_dataset_objects(set, i, &list, &count);
        if (set->samples[i].label != 0 || set->images[i].width < 1 || set->images[i].height < 1 ||
            (i > 0 && strcmp(set->samples[i].path, set->samples[i - 1].path) < 0))
            abort();
        for (size_t o = 0; o < count; o++)
            check_object(set, &set->images[i], &list[o]);
        objects += (uint32_t)count;
    }
    if (objects != set->object_count)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"dog", "cat", "0"};
    const struct cvy_category_rule rules[] = {{0}, {.coco = true}, {.names = names, .count = 3}};
    struct cvy_coco_file file;

    const cvy_status read = cvy_coco_file_parse("some.json", (const char *)data, size, &file);
    if (read != CVY_OK && (read != CVY_BAD_DATA || !cvy_error()[0] || strchr(cvy_error(), '\n') || file.images))
        abort();
    for (size_t r = 0; read == CVY_OK && r < sizeof rules / sizeof *rules; r++) {
        struct cvy_dataset set;
        const cvy_status status = cvy_dataset_from_coco(&set, "some.json", &file, "pictures", &rules[r]);
        if (status == CVY_OK)
            check_set(&set);
        else if (status != CVY_BAD_DATA || !cvy_error()[0] || strchr(cvy_error(), '\n') || set.samples)
            abort();
        cvy_dataset_close(&set);
    }
    cvy_coco_file_release(&file);
    return 0;
}
