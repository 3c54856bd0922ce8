/* Memory estimation before a run: how much it will need, whether that is available, and the largest batch that fits.
 * Nothing here knows a network: every number comes from the plans that would run. */
#ifndef CVY_NETWORK_MEMORY_H
#define CVY_NETWORK_MEMORY_H

#include "network/network.h"

/* The largest batches that --batch-size auto means: beyond some dozens of images a CPU computes an image no faster. A
 * training of larger batches is another one, so that it may go further than inference. */
enum { CVY_AUTO_TRAINING_MAX = 256, CVY_AUTO_INFERENCE_MAX = 64 };

/* The run to estimate. */
struct cvy_memory_case {
    cvy_device *device; /* borrowed, like all pointers here */
    const struct cvy_architecture *architecture;
    const struct cvy_model_options *model;
    enum cvy_dtype dtype;
    const float *int8_state; /* inference in integers: of the state parameters (cvy_network_graph); NULL: in floats */
    struct cvy_image_lanes lanes; /* that decode the batches' images on the device */
    bool training;
    int extras;               /* CVY_EXTRA_...: arenas of the training beyond weights, gradients and momentum */
    bool average;             /* a moving average of weights and running statistics */
    bool statistics;          /* running statistics are computed anew before a validation */
    bool snapshot;            /* a copy of what changes, to go back to */
    bool constant;            /* inference of a network whose parameters stay (cvy_network.constant) */
    bool loaded;              /* the parameters are in memory already */
    bool beside;              /* so are the constants of its plan: those of another one of the network's */
    bool dry_run;             /* cvy_memory_check times no kernels */
    int64_t batch;            /* images in a step */
    int64_t images;           /* training: of an epoch, whose rest is a smaller batch; 0: there is none */
    int64_t evaluation_batch; /* of the validation in a training; 0: none */
    size_t image_data;        /* bytes that the data take for each image of a batch (rings of batches) */
    size_t other_data;        /* bytes that they take whatever the batch is */
    size_t share;             /* bytes that this process may take of what several share; 0: what the device has */
};

struct cvy_memory_estimate {
    size_t program;    /* what is resident before anything below: program, libraries, generated code, lists of files */
    size_t parameters; /* weights and running statistics; in training gradients, the optimizer's state, averages */
    size_t plan;       /* of training, or of inference: activations and constants */
    size_t evaluation; /* the plan of the validation */
    size_t workspace;  /* what the plans share: the larger one */
    size_t streams;    /* what streams (streams.h) have beside their plans' memory */
    size_t data;       /* batches, decoders, results */
    size_t total;      /* the peak */
};
/* Uses known timings of candidate kernels: none are timed. */
CVY_CHECKED cvy_status cvy_memory_estimate(const struct cvy_memory_case *run, struct cvy_memory_estimate *estimate);

/* The estimate of a run that begins now. Candidate kernels are timed for it, where that was not done before, as long as
 * the memory for that is free: the run's plans then use the result. CVY_NO_MEMORY when the run would take more than
 * `available` beyond what the process has: the sentence says how much it needs, how much there is, and the largest
 * batch that would fit. SIZE_MAX: unknown, everything fits. */
CVY_CHECKED cvy_status cvy_memory_check(const struct cvy_memory_case *run, size_t available,
                                        struct cvy_memory_estimate *estimate);
/* The largest batch up to `max` (multiples of 8, or 4, 2, 1 where 8 are too many) with which the run takes no more
 * than `share` of `available`; 0 when none does. run->batch is not examined. */
CVY_CHECKED cvy_status cvy_memory_largest_batch(const struct cvy_memory_case *run, size_t available, double share,
                                                int64_t max, int64_t *batch);
/* --batch-size auto: the largest batch up to `max` within 80 % of what is available; CVY_NO_MEMORY when none fits. */
CVY_CHECKED cvy_status cvy_memory_choose_batch(const struct cvy_memory_case *run, int64_t max, int64_t *batch);

/* "1.3 GiB", "812 MiB". Returns buffer. */
const char *cvy_memory_text(size_t bytes, char buffer[32]);

#endif
