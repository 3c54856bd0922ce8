#include "data/set/record_set.h"

#include "base/error.h"
#include "data/set/pack_set.h"
#include "data/set/tar_set.h"
#include "data/set/tfrecord_set.h"

static bool holds_tfrecords(const char *folder, bool val)
{
    return cvy_holds_tfrecords(folder, val ? CVY_TFRECORD_VALIDATION : CVY_TFRECORD_TRAIN);
}

static cvy_status open_tfrecords(struct cvy_dataset *dataset, const char *folder, bool val, const char *const *classes,
                                 int32_t class_count)
{
    return cvy_dataset_open_tfrecords(dataset, folder, val ? CVY_TFRECORD_VALIDATION : CVY_TFRECORD_TRAIN, NULL,
                                      classes, class_count);
}

/* The names of TFRecords are the least particular: they come last. */
static const struct kind {
    bool (*holds)(const char *folder, bool val);
    cvy_status (*open)(struct cvy_dataset *dataset, const char *folder, bool val, const char *const *classes,
                       int32_t class_count);
    const char *patterns[2]; /* training, validation */
} kinds[] = {
    {cvy_holds_pack, cvy_dataset_open_pack, {"train-*" CVY_PACK_ENDING, "val-*" CVY_PACK_ENDING}},
    {cvy_holds_tars, cvy_dataset_open_tars, {"train-*.tar", "val-*.tar"}},
    {holds_tfrecords, open_tfrecords, {"train-*", "validation-*"}},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static const struct kind *kind_of(const char *folder, bool val)
{
    for (int k = 0; k < KINDS; k++)
        if (kinds[k].holds(folder, val))
            return &kinds[k];
    return NULL;
}

bool cvy_holds_records(const char *folder, bool val)
{
    return kind_of(folder, val) != NULL;
}

const char *cvy_records_pattern(const char *folder, bool val)
{
    const struct kind *kind = kind_of(folder, val);

    if (!kind)
        kind = kind_of(folder, !val);
    return (kind ? kind : &kinds[KINDS - 1])->patterns[val];
}

cvy_status cvy_dataset_open_records(struct cvy_dataset *dataset, const char *folder, bool val,
                                    const char *const *classes, int32_t class_count)
{
    const struct kind *kind = kind_of(folder, val);

    *dataset = (struct cvy_dataset){0};
    if (!kind)
        return cvy_fail(CVY_NO_INPUT, "%s has no files %s", cvy_quote(folder), cvy_records_pattern(folder, val));
    return kind->open(dataset, folder, val, classes, class_count);
}

cvy_status cvy_dataset_open_record_pair(const char *folder, struct cvy_dataset *train, struct cvy_dataset *val)
{
    *train = *val = (struct cvy_dataset){0};
    if (!cvy_holds_records(folder, true))
        return cvy_fail(CVY_NO_INPUT,
                        "%s has no files %s (--val-split 0.2 sets a part of the training images aside for validation)",
                        cvy_quote(folder), cvy_records_pattern(folder, true));
    CVY_TRY(cvy_dataset_open_records(train, folder, false, NULL, 0));
    cvy_status status = cvy_dataset_open_records(val, folder, true, train->classes, train->class_count);
    if (status != CVY_OK)
        cvy_dataset_close(train);
    return status;
}
