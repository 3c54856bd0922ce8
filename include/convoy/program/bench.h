/* Benchmarks that run the code path of training, classification and data loading. */
#ifndef CONVOY_PROGRAM_BENCH_H
#define CONVOY_PROGRAM_BENCH_H

#include <stdbool.h>

#include "convoy/infer.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cvy_bench_options {
    const char *arch;                     /* "resnet50" */
    const char *device, *precision;       /* NULL: "auto" */
    int batch_size;                       /* 0: 32, or CVY_BATCH_AUTO */
    int image_size, num_classes, threads; /* 0: the architecture's, 1000, all */
    const char *padding;                  /* "torch" or "same"; NULL: "torch" */
    const char *squeeze_width;            /* "16", "c/16"; NULL: the architecture's */
    int warmup, iterations;               /* 0: chosen so that a run takes a few seconds */
    const char *weights;                  /* of cvy_bench_weights, which takes `arch` from it where that is NULL */
    const char *data;                     /* images of this folder or list; NULL: random ones in memory */
    int workers;                          /* threads that read them; 0: one per core */
    bool gpu_decodes;                     /* --decode gpu: JPEGs of `data` are decoded by the GPU */
    const char *deterministic;            /* of a GPU: "yes", "sums" or "no", as train's option; NULL: "yes" */
};
#ifdef __cplusplus
#define CVY_BENCH_DEFAULTS                                                                                             \
    ([] {                                                                                                              \
        struct cvy_bench_options cvy_options_ = cvy_bench_options();                                                   \
        cvy_options_.arch = "resnet50";                                                                                \
        return cvy_options_;                                                                                           \
    }())
#else
#define CVY_BENCH_DEFAULTS ((struct cvy_bench_options){.arch = "resnet50"})
#endif
struct cvy_bench_result {
    int batch_size, iterations;
    double images_per_second, compute_images_per_second; /* with and without waiting for images */
    double data_seconds, compute_seconds;                /* means of an iteration: waiting for images, the rest */
    double latency_average, latency_p50, latency_p90, latency_p95, latency_p99; /* ms per batch */
    double peak_memory_mib;      /* of this measurement; of the process so far where it cannot be reset */
    double estimated_memory_mib; /* the same before it started */
    char precision[16], device[128];
    /* cvy_bench_weights only */
    bool evaluated; /* with data */
    char arch[64];
    int classes;
    struct cvy_evaluation accuracy; /* of the images that were measured, where it was evaluated */
};
/* Input conversion, step, optimizer, loss read-back, over changing data. Iterations of the warm-up count nowhere. */
CVY_API CVY_CHECKED cvy_status cvy_bench_train(const struct cvy_bench_options *options,
                                               struct cvy_bench_result *result);
CVY_API CVY_CHECKED cvy_status cvy_bench_infer(const struct cvy_bench_options *options,
                                               struct cvy_bench_result *result);

/* Classification by the network of options->weights, over the images for validation of options->data as cvy_evaluate
 * takes them: all of them once, or the first `iterations` batches, after a warm-up over the first ones. Latencies are
 * those of batches whose images have been read and decoded; the last batch may be smaller. Without data, over random
 * images: nothing is decoded meanwhile, and detectors can be measured too. */
CVY_API CVY_CHECKED cvy_status cvy_bench_weights(const struct cvy_bench_options *options,
                                                 struct cvy_bench_result *result);

struct cvy_bench_data_options {
    const char *folder;
    bool val;       /* the validation transform instead of the training one */
    int image_size; /* 0: 224 */
    int workers;    /* < 0: one per core */
    bool fast;      /* --decode fast: large JPEGs at a lower resolution; training transform only */
    double seconds; /* 0: 5 */
    int batch_size; /* 0: 32, or 256 with a device */
    /* "cuda", "cuda:1": a GPU decodes what it can; NULL or "cpu": the processor */
    const char *device;
    int lanes;         /* batches that it decodes side by side; 0: 2 */
    double host_share; /* of each batch, that the processor decodes nevertheless */
    int compare;       /* batches to be made by the processor too, and compared */
};
#ifdef __cplusplus
#define CVY_BENCH_DATA_DEFAULTS                                                                                        \
    ([] {                                                                                                              \
        struct cvy_bench_data_options cvy_options_ = cvy_bench_data_options();                                         \
        cvy_options_.workers = -1;                                                                                     \
        return cvy_options_;                                                                                           \
    }())
#else
#define CVY_BENCH_DATA_DEFAULTS ((struct cvy_bench_data_options){.workers = -1})
#endif
struct cvy_bench_data_result {
    double images_per_second;
    double cpu_seconds; /* of processor time, by all threads of the process */
    int threads;
    int64_t images;
    double read_ms, decode_ms, transform_ms; /* of a thread, for each image */
    double image_bytes;                      /* encoded, in the mean */
    double busy;                             /* share of their time that the threads are at an image */
    char bottleneck[16];                     /* "reading", "decoding", "transform", "device" */
    char advice[320];                        /* one sentence about it */
    /* with a device */
    char decoder[128];                 /* what decoded, "nvJPEG 13.0.1, in hardware"; "": the processor */
    double device_share;               /* of the images, that it decoded */
    double device_busy;                /* of its lanes' time */
    int64_t compared;                  /* images */
    int largest_difference;            /* of a pixel's byte from that of the processor's batch */
    double mean_difference, differing; /* of all bytes; share of those that differ by more than 1 */
};
CVY_API CVY_CHECKED cvy_status cvy_bench_data(const struct cvy_bench_data_options *options,
                                              struct cvy_bench_data_result *result);

#ifdef __cplusplus
}
#endif
#endif
