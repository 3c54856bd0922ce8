/* The order in which an epoch visits the samples of a data set: unchanged, shuffled, or balanced by class. A function
 * of seed and epoch alone; every order has as many slots as the set has samples. */
#ifndef CVY_DATA_LOADER_SAMPLER_H
#define CVY_DATA_LOADER_SAMPLER_H

#include "data/set/dataset.h"

enum cvy_sampler_kind {
    CVY_SAMPLE_IN_ORDER, /* data-set order */
    CVY_SAMPLE_SHUFFLED, /* each sample once: Fisher-Yates of (seed, epoch) */
    CVY_SAMPLE_BALANCED, /* each class equally often, whatever its number of samples (doc/data.md) */
    CVY_SAMPLE_PYTORCH   /* each sample once: PyTorch's order for seed + epoch */
};
/* A slot of the epoch. `repeat` counts the earlier slots of the same sample: 0 for the first. Random transforms of a
 * sample depend on it. */
struct cvy_epoch_slot {
    uint32_t sample, repeat;
};

struct cvy_sampler {
    enum cvy_sampler_kind kind;
    uint64_t seed;
    uint32_t count; /* samples, places */
    uint32_t *permutation;
    /* In this epoch the order begins at its place `skip`; what lies before it comes last (cvy_sampler_skip). */
    uint32_t skip_epoch, skip;
    /* balanced */
    uint32_t class_count; /* classes that have samples */
    uint32_t *grouped;    /* (count) samples by class */
    uint32_t *first;      /* (class_count + 1) where each class begins in `grouped` */
    uint32_t *labels;     /* (class_count) */
    uint32_t *gets_extra; /* (class_count) in random order: the first ones get one extra slot */
    struct cvy_epoch_slot *assigned;
};
CVY_CHECKED cvy_status cvy_sampler_open(struct cvy_sampler *sampler, const struct cvy_dataset *dataset,
                                        enum cvy_sampler_kind kind, uint64_t seed);
void cvy_sampler_close(struct cvy_sampler *sampler); /* accepts a zeroed one */
/* The slots of rank `rank` of `world` in an epoch: those at rank, rank + world, ... of the whole order. */
void cvy_sampler_slots(struct cvy_sampler *sampler, uint32_t epoch, int32_t rank, int32_t world,
                       struct cvy_epoch_slot *places);
/* For a run that resumes in the middle of an epoch with another batch size. */
void cvy_sampler_skip(struct cvy_sampler *sampler, uint32_t epoch, uint32_t skip);
/* Bytes that a sampler takes for each sample. */
size_t cvy_sampler_sample_bytes(enum cvy_sampler_kind kind);

#endif
