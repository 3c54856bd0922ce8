/* One training run: opened (run/setup), agreed on by its ranks (run/ranks), carried out (run/training), and written
 * down (run/output, with what run/records has). */
#ifndef CVY_RUN_RUN_H
#define CVY_RUN_RUN_H

#include <stdatomic.h>

#include "data/image/resize.h"
#include "eval/evaluate.h"
#include "network/memory.h"
#include "network/snapshot.h"
#include "network/statistics.h"
#include "options/train_options.h"
#include "run/records/log.h"
#include "trainer/schedule.h"

/* The checkpoint a run continues from. */
struct cvy_resume {
    char folder[CVY_PATH_MAX], file[CVY_PATH_MAX];
    bool averaged;          /* the checkpoint brought a moving average */
    bool requested, found;  /* found: there is a checkpoint; else the run starts from the beginning */
    bool data_saved;        /* where the data lie is what the run has saved, not what was asked for */
    bool replaces;          /* it is a kept one, and the run's own, which is damaged or missing, is written again */
    struct cvy_run_end end; /* where the run that is continued was to end by its own --run-epochs or --run-steps */
    struct cvy_tensor_file tensors;
    struct cvy_checkpoint_info info;
};

/* The file of --pretrained-weights: open from the choice of the network until its weights are loaded. */
struct cvy_pretrained {
    bool used;
    bool backbone;   /* it is the backbone of this network, which is a detector; */
    bool classifier; /* and has the names and the images of a classifier */
    /* --resume of a checkpoint of PyTorch's program: its optimizer and its place in the training count too. */
    bool continues;
    int64_t epoch; /* the next one */
    double best_score;
    struct cvy_tensor_file tensors;
    struct cvy_checkpoint_info info;
    int32_t classes;      /* of its classifier; 0: it has none */
    char other_name[256]; /* class 0 is "cat" there and "car" here: the first one of a classifier that is kept */
};

/* What a run is to do: from options, recipes, data and the file that it starts from, resolved while it is opened
 * (run/setup), then constant. */
struct cvy_run_config {
    struct cvy_train_options options; /* complete: every value resolved */
    bool automatic;                   /* the automatic recipe was applied */
    bool batch_chosen;                /* the batch size is what --batch-size auto came to */
    bool best_is_average;             /* --best-of ema */
    struct cvy_preprocessing preprocessing;
    struct cvy_schedule schedule;
    int64_t accumulate;      /* batches of one optimizer step */
    int64_t steps_per_epoch; /* optimizer steps; the batches that are left over are left out */
    int64_t last_batch; /* images of a rank in the last of them with --last-batch partial; 0: as many as in others */
    struct cvy_run_end end; /* of this run; its epoch is options.epochs, or fewer by --run-epochs and --run-steps */
    float *class_weights;   /* (num_classes), NULL without --class-weights */
    int64_t largest_pixels; /* of a sample of the images */
    size_t memory_share; /* bytes for this process of several on the machine; 0: alone, or memory of the device's own */
    struct cvy_memory_estimate memory;
    struct cvy_run_paths paths;
};

/* What it learns from: open from cvy_run_open to cvy_run_close. */
struct cvy_run_data {
    struct cvy_dataset train, val;
    struct cvy_sample_cache *train_cache, *val_cache; /* --ram-cache; else NULL */
    size_t cache_bytes;                               /* that both may take */
    struct cvy_source train_source, val_source;
};

/* Who takes part in it. */
struct cvy_run_ranks {
    struct cvy_comm comm;
    int on_cores;                 /* ranks on the cores of this one, itself among them; 0: alone */
    int *threads;                 /* (comm.world) of the ranks' devices; NULL: alone, or not known yet */
    struct cvy_rank_times *times; /* (world) of the last epoch; NULL of a single process */
    char device_name[32];         /* "cuda:1": under which this rank's was opened */
    char *table;                  /* on rank 0 with GPUs: a line for each rank; else NULL */
};

/* What changes from step to step, and what is written down about it. */
struct cvy_run_state {
    cvy_device *device;
    struct cvy_network network;
    struct cvy_trainer trainer;
    struct cvy_train_state progress;
    struct cvy_statistics statistics; /* with --precise-bn */
    struct cvy_snapshot snapshot;     /* with --rewinds: the last good state of the network, */
    struct cvy_train_state last_good; /* and where that was */
    struct cvy_evaluator evaluator;   /* unless training_only */
    struct cvy_collector collector;   /* during validation */
    struct cvy_coco_evaluation coco;  /* of the validation of a detector */
    struct cvy_coco_result coco_result;
    struct cvy_detection_loss detection_loss; /* of its images; with boxes to compare with */
    struct cvy_picture_collector pictures;
    double *latency;         /* of its batches */
    double *latency_average; /* those of the moving average; after them */
    struct cvy_diagnosis diagnosis;
    struct cvy_run_log log;
    struct cvy_run_lock lock;
    int64_t bad_images;       /* of all ranks, at the end of the last epoch */
    double images_per_second; /* of the whole run's training, set by the loop */
};

struct cvy_run {
    const struct cvy_train_events *events; /* borrowed */
    struct cvy_train_result *result;       /* borrowed */
    const atomic_int *stop;                /* borrowed: not 0 when the run is to stop; NULL: it never is */
    const struct cvy_run_config *config;   /* &owned_config: for reading */
    struct cvy_run_config *resolving;      /* the same for writing, as long as the run is being opened; else NULL */
    struct cvy_run_config owned_config;    /* only through these two */
    struct cvy_resume resume;              /* what it continues from, until it is loaded */
    struct cvy_pretrained pretrained;      /* what it starts from, likewise */
    struct cvy_run_data data;
    struct cvy_run_ranks ranks;
    struct cvy_run_state state;
};

bool cvy_run_is_synthetic(const struct cvy_run_config *config);
/* Whether the run trains a detector. */
bool cvy_run_is_detection(const struct cvy_train_options *options);
/* Images that a validation computes together: those of --batch-size where it is the only thing that the run does, and
 * in a training as many as a step of a classifier has, but never fewer than is usual. */
int32_t cvy_run_evaluation_batch(const struct cvy_train_options *options);
/* Side of the training images. */
int32_t cvy_run_train_size(const struct cvy_train_options *options);
/* Whose rules crop and resize the images of classification: DALI's or Pillow's. */
bool cvy_run_has_dali_rules(const struct cvy_train_options *options);
enum cvy_filter cvy_run_filter(const struct cvy_train_options *options);
/* The label smoothing in the loss that validation reports: 0 is plain cross-entropy. */
double cvy_run_val_smoothing(const struct cvy_train_options *options);
/* Whether a validation follows this epoch, from 0 (--eval-count). */
bool cvy_run_validates(const struct cvy_train_options *options, int64_t epoch);

/* The optimizer steps of the batches that --prof leaves of an epoch, at least one of them; not above 0: of all. */
int64_t cvy_run_prof_steps(const struct cvy_run_config *config);
/* The step of the training after which this run ends, by --steps or --run-steps; 0: an epoch's end ends it. */
int64_t cvy_run_end_step(const struct cvy_run_config *config);
/* Images of a rank in an epoch, with --last-batch partial, where none are left out; else 0. */
int64_t cvy_run_short_epoch(const struct cvy_run *run, const struct cvy_train_options *options);
/* Images of the steps of the present epoch up to `position`, of all ranks, from `steps` before it on. */
int64_t cvy_run_step_images(const struct cvy_run *run, int64_t position, int64_t steps);
/* Steps of the epoch that the state stands in: those of an epoch, or what the images of one that began with steps of
 * another size come to; and fewer where --steps or --run-steps ends the run in it. */
int64_t cvy_run_full_epoch_steps(const struct cvy_run *run);
int64_t cvy_run_epoch_steps(const struct cvy_run *run);

/* This process was asked to stop the run. */
bool cvy_run_stopping(const struct cvy_run *run);

#endif
