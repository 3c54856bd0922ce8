#include "data/set/sample_set.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"

static int compare_samples(const void *a, const void *b)
{
    const struct cvy_sample *x = a, *y = b;
    if (x->label != y->label)
        return x->label < y->label ? -1 : 1;
    const int order = strcmp(x->path, y->path);
    return order ? order : (x->record_offset > y->record_offset) - (x->record_offset < y->record_offset);
}

void cvy_dataset_sort(struct cvy_dataset *dataset)
{
    qsort(dataset->samples, dataset->sample_count, sizeof *dataset->samples, compare_samples);
}

void cvy_dataset_objects(const struct cvy_dataset *dataset, uint32_t sample, const struct cvy_coco_object **objects,
                         size_t *count)
{
    const struct cvy_coco_image *image = &dataset->images[sample];

    *objects = dataset->objects + image->first_object;
    *count = image->object_count;
}

void cvy_dataset_all_objects(const struct cvy_dataset *dataset, uint32_t sample, const struct cvy_coco_object **objects,
                             size_t *count)
{
    cvy_dataset_objects(dataset, sample, objects, count);
    *count += dataset->images[sample].excluded_count;
}

cvy_status cvy_dataset_set_class(struct cvy_dataset *dataset, int32_t index, const char *name)
{
    if (!cvy_utf8_is_valid(name))
        return cvy_fail(CVY_BAD_DATA, "the name of class %s is not UTF-8: rename it (convmv does it for whole folders)",
                        cvy_quote(name));
    dataset->classes[index] = cvy_arena_strdup(&dataset->arena, name);
    return dataset->classes[index] ? CVY_OK : cvy_fail_memory(strlen(name) + 1, "class names");
}

void cvy_dataset_close(struct cvy_dataset *dataset)
{
    cvy_shards_close(dataset->shards);
    cvy_arena_release(&dataset->arena);
    *dataset = (struct cvy_dataset){0};
}
