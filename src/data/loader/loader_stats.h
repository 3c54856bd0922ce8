/* How the loader's threads spend their time, and what follows from that. */
#ifndef CVY_DATA_LOADER_LOADER_STATS_H
#define CVY_DATA_LOADER_LOADER_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cvy_loader_stats {
    int64_t images;                 /* made, bad ones too */
    int64_t left;                   /* of these, left to a device that decodes */
    uint64_t bytes;                 /* encoded */
    double sides;                   /* sum of the shorter sides of images, pixels */
    double read, decode, transform; /* seconds, of all threads together */
    double device;                  /* seconds that lanes were at batches that a device decodes, of all together */
    double elapsed;                 /* since the start of the epoch */
    double wait;                    /* the part of it that cvy_loader_next waited for a batch */
    int32_t workers, lanes;         /* threads that make images, and that wait for the device */
};
void cvy_loader_stats_add(struct cvy_loader_stats *sum, const struct cvy_loader_stats *part);
/* The fraction of their time that threads spent on images, 0 to 1. */
double cvy_loader_stats_busy(const struct cvy_loader_stats *stats);

enum cvy_bottleneck {
    CVY_BOUND_BY_NETWORK,
    CVY_BOUND_BY_READING,
    CVY_BOUND_BY_DECODING,
    CVY_BOUND_BY_TRANSFORM,
    CVY_BOUND_BY_DEVICE /* its decoder */
};
/* What causes most of the waiting; CVY_BOUND_BY_NETWORK where there is nearly none (`wait` below a twentieth). */
enum cvy_bottleneck cvy_loader_bottleneck(const struct cvy_loader_stats *stats);
const char *
cvy_bottleneck_name(enum cvy_bottleneck bottleneck); /* "network", "reading", "decoding", "transform", "device" */

/* What is known about the set and the machine, for the advice. */
struct cvy_loader_context {
    bool records;   /* images lie in large files */
    bool boxes;     /* a set for detection, which is not packed */
    bool cached;    /* --ram-cache is on */
    int32_t resize; /* shorter side that would do */
    int32_t scaled; /* shorter side from which on --decode fast would do something; 0: it is on, or not for this run */
    int32_t cores;
};
enum { CVY_ADVICE_TEXT = 320 };
/* One sentence: the bottleneck and what to do about it. */
void cvy_loader_advice(const struct cvy_loader_stats *stats, const struct cvy_loader_context *place,
                       char text[CVY_ADVICE_TEXT]);

#endif
