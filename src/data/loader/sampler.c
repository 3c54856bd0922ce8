/* Orders of an epoch. */
#include "data/loader/sampler.h"

#include <string.h>

#include "base/error.h"
#include "base/rng.h"
#include "data/loader/order_pytorch.h"

/* ---- opening ---- */

/* Samples grouped by class: the set need not be sorted by it. `starts` (class_count + 1) is scratch. */
static void group(struct cvy_sampler *sampler, const struct cvy_dataset *dataset, uint32_t *starts)
{
    uint32_t used = 0;

    for (uint32_t i = 0; i < dataset->sample_count; i++)
        starts[dataset->samples[i].label + 1]++;
    for (int32_t c = 0; c < dataset->class_count; c++)
        starts[c + 1] += starts[c];
    for (int32_t c = 0; c < dataset->class_count; c++) {
        if (starts[c + 1] == starts[c])
            continue;
        sampler->labels[used] = (uint32_t)c;
        sampler->first[used++] = starts[c];
    }
    sampler->class_count = used;
    sampler->first[used] = dataset->sample_count;
    for (uint32_t i = 0; i < dataset->sample_count; i++)
        sampler->grouped[starts[dataset->samples[i].label]++] = i;
}

static cvy_status open_balanced(struct cvy_sampler *sampler, const struct cvy_dataset *dataset)
{
    const size_t classes = (size_t)dataset->class_count, count = dataset->sample_count;
    uint32_t *starts = cvy_calloc(classes + 1, sizeof *starts);

    sampler->grouped = cvy_calloc(count, sizeof *sampler->grouped);
    sampler->first = cvy_calloc(classes + 1, sizeof *sampler->first);
    sampler->labels = cvy_calloc(classes, sizeof *sampler->labels);
    sampler->gets_extra = cvy_calloc(classes, sizeof *sampler->gets_extra);
    sampler->assigned = cvy_calloc(count, sizeof *sampler->assigned);
    if (starts && sampler->grouped && sampler->first && sampler->labels && sampler->gets_extra && sampler->assigned)
        group(sampler, dataset, starts);
    const bool done = sampler->class_count > 0;
    cvy_free(starts);
    return done ? CVY_OK : cvy_fail_memory(count * sizeof *sampler->assigned, "the order of the images");
}

cvy_status cvy_sampler_open(struct cvy_sampler *sampler, const struct cvy_dataset *dataset, enum cvy_sampler_kind kind,
                            uint64_t seed)
{
    cvy_status status = CVY_OK;

    *sampler = (struct cvy_sampler){.kind = kind, .seed = seed, .count = dataset->sample_count};
    if (kind == CVY_SAMPLE_IN_ORDER)
        return CVY_OK;
    sampler->permutation = cvy_calloc(sampler->count, sizeof *sampler->permutation);
    if (!sampler->permutation)
        return cvy_fail_memory(sampler->count * sizeof *sampler->permutation, "the order of the images");
    if (kind == CVY_SAMPLE_BALANCED)
        status = open_balanced(sampler, dataset);
    if (status != CVY_OK)
        cvy_sampler_close(sampler);
    return status;
}

void cvy_sampler_close(struct cvy_sampler *sampler)
{
    cvy_free(sampler->permutation);
    cvy_free(sampler->grouped);
    cvy_free(sampler->first);
    cvy_free(sampler->labels);
    cvy_free(sampler->gets_extra);
    cvy_free(sampler->assigned);
    *sampler = (struct cvy_sampler){0};
}

size_t cvy_sampler_sample_bytes(enum cvy_sampler_kind kind)
{
    return kind == CVY_SAMPLE_IN_ORDER   ? 0
           : kind == CVY_SAMPLE_BALANCED ? 2 * sizeof(uint32_t) + sizeof(struct cvy_epoch_slot)
                                         : sizeof(uint32_t);
}

/* ---- an epoch ---- */

/* `places` places for class `c`: all of its samples as often as they go in whole, then as many different ones as are
 * missing, drawn by (seed, epoch, class). */
static struct cvy_epoch_slot *assign_class_slots(struct cvy_sampler *sampler, uint32_t epoch, uint32_t c,
                                                 uint32_t places, struct cvy_epoch_slot *out)
{
    const uint32_t *samples = sampler->grouped + sampler->first[c];
    const uint32_t count = sampler->first[c + 1] - sampler->first[c], rounds = places / count, rest = places % count;
    struct cvy_rng rng = cvy_rng_new(sampler->seed, CVY_RNG_BALANCE, epoch, sampler->labels[c] + 1);

    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t i = 0; i < count; i++)
            *out++ = (struct cvy_epoch_slot){samples[i], round};
    }
    cvy_rng_permutation(&rng, sampler->permutation, count);
    for (uint32_t i = 0; i < rest; i++)
        *out++ = (struct cvy_epoch_slot){samples[sampler->permutation[i]], rounds};
    return out;
}

/* Every class gets count / class_count places; those that are left over go to as many classes, others in each epoch. */
static void assign_slots(struct cvy_sampler *sampler, uint32_t epoch)
{
    const uint32_t classes = sampler->class_count, share = sampler->count / classes, left = sampler->count % classes;
    struct cvy_rng rng = cvy_rng_new(sampler->seed, CVY_RNG_BALANCE, epoch, 0);
    struct cvy_epoch_slot *out = sampler->assigned;

    cvy_rng_permutation(&rng, sampler->gets_extra, classes);
    for (uint32_t i = 0; i < classes; i++)
        out = assign_class_slots(sampler, epoch, sampler->gets_extra[i], share + (i < left), out);
}

void cvy_sampler_skip(struct cvy_sampler *sampler, uint32_t epoch, uint32_t skip)
{
    sampler->skip_epoch = epoch;
    sampler->skip = skip;
}

void cvy_sampler_slots(struct cvy_sampler *sampler, uint32_t epoch, int32_t rank, int32_t world,
                       struct cvy_epoch_slot *places)
{
    const bool balanced = sampler->kind == CVY_SAMPLE_BALANCED;

    if (balanced)
        assign_slots(sampler, epoch);
    if (sampler->kind == CVY_SAMPLE_PYTORCH) {
        cvy_pytorch_permutation(sampler->seed + epoch, sampler->permutation, sampler->count);
    } else if (sampler->kind != CVY_SAMPLE_IN_ORDER) {
        struct cvy_rng rng = cvy_rng_new(sampler->seed, CVY_RNG_SHUFFLE, epoch, 0);
        cvy_rng_permutation(&rng, sampler->permutation, sampler->count);
    }
    const int64_t skip = epoch == sampler->skip_epoch ? sampler->skip : 0;
    for (int64_t i = rank; i < sampler->count; i += world) {
        const uint32_t place = (uint32_t)((i + skip) % sampler->count);
        const uint32_t at = sampler->permutation ? sampler->permutation[place] : place;
        *places++ = balanced ? sampler->assigned[at] : (struct cvy_epoch_slot){at, 0};
    }
}
