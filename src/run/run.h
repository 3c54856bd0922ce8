/* One training run: set up (run/setup.c, run/rules.c, run/resume.c), announced (run/text.c), carried out (train.c,
 * loop.c, run/save.c). */
#ifndef CVY_RUN_RUN_H
#define CVY_RUN_RUN_H

#include "data/image/resize.h"
#include "eval/evaluate.h"
#include "network/memory.h"
#include "run/log.h"
#include "trainer/schedule.h"

/* The checkpoint a run continues from. */
struct cvy_resume {
    char folder[CVY_PATH_MAX], file[CVY_PATH_MAX];
    bool averaged;         /* the checkpoint brought a moving average */
    bool requested, found; /* found: there is a checkpoint; else the run starts from the beginning */
    int64_t end_epoch;     /* where the run that is continued was to end by its --run-epochs; 0: at the very end */
    struct cvy_tensor_file tensors;
    struct cvy_checkpoint_info info;
};

/* The file of --pretrained-weights: open from the choice of the network until its weights are loaded. */
struct cvy_pretrained {
    bool used;
    bool backbone;   /* it is the backbone of this network, which is a detector; */
    bool classifier; /* and has the names and the images of a classifier */
    struct cvy_tensor_file tensors;
    struct cvy_checkpoint_info info;
    int32_t classes;      /* of its classifier; 0: it has none */
    char other_name[256]; /* class 0 is "cat" there and "car" here: the first one of a classifier that is kept */
};

/* What a run is to do: from options, recipes, data and the file that it starts from, resolved while it is opened
 * (run/setup.c), then constant. */
struct cvy_run_config {
    struct cvy_train_options options; /* complete: every value resolved */
    bool automatic;                   /* the automatic recipe was applied */
    bool batch_chosen;                /* the batch size is what --batch-size auto came to */
    bool best_is_average;             /* --best-of ema */
    struct cvy_preprocessing preprocessing;
    struct cvy_schedule schedule;
    int64_t accumulate;      /* batches of one optimizer step */
    int64_t steps_per_epoch; /* optimizer steps; the batches that are left over are left out */
    int64_t end_epoch;       /* this run does the epochs before it: options.epochs, or fewer by --run-epochs */
    float *class_weights;    /* (num_classes), NULL without --class-weights */
    int64_t largest_pixels;  /* of a sample of the images */
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
    struct cvy_evaluator evaluator;  /* unless training_only */
    struct cvy_collector collector;  /* during validation */
    struct cvy_coco_evaluation coco; /* of the validation of a detector */
    struct cvy_coco_result coco_result;
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
    const struct cvy_run_config *config;   /* &owned_config: for reading */
    struct cvy_run_config *resolving;      /* the same for writing, as long as the run is being opened; else NULL */
    struct cvy_run_config owned_config;    /* only through these two */
    struct cvy_resume resume;              /* what it continues from, until it is loaded */
    struct cvy_pretrained pretrained;      /* what it starts from, likewise */
    struct cvy_run_data data;
    struct cvy_run_ranks ranks;
    struct cvy_run_state state;
};

/* Everything up to the first step. On failure the run is closed. */
CVY_CHECKED cvy_status cvy_run_open(struct cvy_run *run, const struct cvy_train_options *options,
                                    const struct cvy_train_events *events, struct cvy_train_result *result);
void cvy_run_close(struct cvy_run *run);

/* Find the checkpoint of --resume and restore the options saved with it (run/resume.c). */
CVY_CHECKED cvy_status cvy_resume_open(struct cvy_run *run);
/* Once the device and the data are there, before any plan is made: what must not change, and the checkpoint's kernels.
 * Nothing without a checkpoint. */
CVY_CHECKED cvy_status cvy_resume_prepare(struct cvy_run *run);
/* Load weights, momentum and state once the network and the data are there. */
CVY_CHECKED cvy_status cvy_resume_load(struct cvy_run *run);
/* The threads of this rank in the checkpoint; 0: it does not say, or was made with another number of ranks. */
int cvy_resume_threads(const struct cvy_run *run);
void cvy_resume_close(struct cvy_resume *resume);

/* Start from a file (run/pretrained.c): open it and let it choose the network; then, once the network is there, load it
 * over the random start values. Both do nothing without --pretrained-weights and when a run resumes from a checkpoint.
 */
CVY_CHECKED cvy_status cvy_pretrained_open(struct cvy_run *run);
CVY_CHECKED cvy_status cvy_pretrained_load(struct cvy_run *run);
void cvy_pretrained_close(struct cvy_pretrained *pretrained);
/* The mean and standard deviation that the start values were trained with. */
void cvy_pretrained_normalization(const struct cvy_run *run, struct cvy_model_options *model);
/* --reset-head, --freeze, --head-lr: there is something to start from, every prefix names parameters, and some are left
 * to train. */
CVY_CHECKED cvy_status cvy_pretrained_check(const struct cvy_run *run);

/* Values that follow from others, as far as they do not need the batch size (run/setup.c). */
CVY_CHECKED cvy_status cvy_run_resolve_values(const struct cvy_run *run, struct cvy_train_options *options);
/* Open run->state.device unless it is open. */
CVY_CHECKED cvy_status cvy_run_open_device(struct cvy_run *run);
bool cvy_run_is_synthetic(const struct cvy_run_config *config);

/* What the options say about the optimizer, the loss scale and the schedule (run/rules.c). */
CVY_CHECKED cvy_status cvy_run_optimizer(const struct cvy_run *run, enum cvy_dtype dtype,
                                         struct cvy_optimizer_options *optimizer);
struct cvy_schedule cvy_run_schedule(const struct cvy_run_config *config);
/* run->config->accumulate, the learning rate, and combinations that are impossible; the batch size is known. */
CVY_CHECKED cvy_status cvy_run_resolve_rules(struct cvy_run *run);
/* Whether a validation follows this epoch, from 0 (--eval-count). */
bool cvy_run_validates(const struct cvy_train_options *options, int64_t epoch);
/* At the end of an epoch: whether it is the best so far, which the state remembers. */
bool cvy_run_update_best(struct cvy_run *run, const struct cvy_train_epoch *epoch);
/* --early-stopping: too many epochs have passed without a better one. */
bool cvy_run_early_stop(const struct cvy_run *run);

/* Whether the run trains a detector (run/detection.c). */
bool cvy_run_is_detection(const struct cvy_train_options *options);
/* Chooses a detector if no network was chosen and the data have boxes. */
CVY_CHECKED cvy_status cvy_run_choose_task(struct cvy_run *run);
CVY_CHECKED cvy_status cvy_run_open_detection(struct cvy_run *run);
/* Options that only classifiers or only detectors have; what follows for a detector. */
CVY_CHECKED cvy_status cvy_run_resolve_detection(struct cvy_train_options *options);
/* COCO's numbers of what a pass has found, kept in run->state.coco_result. */
CVY_CHECKED cvy_status cvy_run_finish_detection(struct cvy_run_state *state, const struct cvy_pass *pass,
                                                struct cvy_measures *measures);
/* Images that a validation computes together. */
int32_t cvy_run_evaluation_batch(const struct cvy_train_options *options);
/* Side of the training images. */
int32_t cvy_run_train_size(const struct cvy_train_options *options);
/* Whose rules crop and resize the images of classification: DALI's or Pillow's. */
bool cvy_run_has_dali_rules(const struct cvy_train_options *options);
enum cvy_filter cvy_run_filter(const struct cvy_train_options *options);
/* How the training images are loaded, and how those of the validation are. */
struct cvy_loader_options cvy_run_loader_options(const struct cvy_run *run, const struct cvy_train_options *options);
struct cvy_loader_options cvy_run_val_loader_options(const struct cvy_run *run,
                                                     const struct cvy_train_options *options);
/* Fill run->config->class_weights, once the data are there and before a checkpoint is loaded (run/loss.c). */
CVY_CHECKED cvy_status cvy_run_class_weights(struct cvy_run *run);
/* Tell the trainer: mixup and class weights. */
CVY_CHECKED cvy_status cvy_run_set_loss(struct cvy_run *run);
/* The label smoothing in the loss that validation reports: 0 is plain cross-entropy. */
double cvy_run_val_smoothing(const struct cvy_train_options *options);

/* For the automatic recipe: lower *batch to what memory allows (run/memory.c); context is the run. */
CVY_CHECKED cvy_status cvy_run_fit_batch(void *context, const struct cvy_train_options *options, int64_t *batch);
/* Estimate run->config->memory; CVY_NO_MEMORY when it is not there. */
CVY_CHECKED cvy_status cvy_run_check_memory(struct cvy_run *run);
/* --ram-cache: reserves memory for the images of the open sets, or CVY_NO_MEMORY. */
CVY_CHECKED cvy_status cvy_run_open_caches(struct cvy_run *run);
/* Logs how much they hold. */
void cvy_run_describe_caches(const struct cvy_run_data *data);

/* The plan of the run as text, for events->plan. */
void cvy_run_text(const struct cvy_run *run, struct cvy_text *text);
/* Multiply-adds of the convolutions and linear layers for one image. */
double cvy_network_macs(const struct cvy_graph *graph);

/* Write checkpoint.safetensors (the logs up to here are on the disk before it), model_best.safetensors; nothing with
 * --no-checkpoints and on ranks other than 0 (run/save.c). The end of an epoch keeps what --gather-checkpoints
 * wants. */
/* Parts of checkpoints that a killed run left; and where a run continues from an epoch's own file, what was written
 * later: its future is another one. */
void cvy_run_clean_up(const struct cvy_run *run);
CVY_CHECKED cvy_status cvy_run_save(struct cvy_run *run);
CVY_CHECKED cvy_status cvy_run_save_epoch(struct cvy_run *run);
CVY_CHECKED cvy_status cvy_run_save_best(struct cvy_run *run);

/* One validation with its records (run/validate.c), of the weights or of their moving average; its numbers are put into
 * *validation. After each batch `progress` is called; CVY_STOPPED when it says so. What the collector keeps is of the
 * weights. */
CVY_CHECKED cvy_status cvy_run_validate(struct cvy_run *run, bool average, cvy_evaluate_progress progress,
                                        void *context, struct cvy_run_validation *validation);

/* What a run reports besides its metrics (run/report.c). Opened before the first step: */
CVY_CHECKED cvy_status cvy_run_report_open(struct cvy_run *run);
/* The PARAMETER records of the report: options, model, data and environment; in a resumed run the last two. */
CVY_CHECKED cvy_status cvy_run_report_parameters(struct cvy_run *run);
/* After each step: reports a diagnosis, if there is one. */
CVY_CHECKED cvy_status cvy_run_report_step(struct cvy_run *run, int64_t position, int64_t step, double loss,
                                           const struct cvy_scaler *scaler);
/* After an epoch is logged: validation.json, the plot, and diagnoses. Files that cannot be written are logged as
 * warnings. */
CVY_CHECKED cvy_status cvy_run_report_epoch(struct cvy_run *run, const struct cvy_run_epoch *epoch);
/* report.html, likewise. */
void cvy_run_report_page(const struct cvy_run *run);

/* Steps of the epoch that the state stands in: those of an epoch, or what the images of one that began with steps of
 * another size come to; and fewer where --steps ends the training in it. */
int64_t cvy_run_full_epoch_steps(const struct cvy_run *run);
int64_t cvy_run_epoch_steps(const struct cvy_run *run);
/* cvy_train_stop() was called. */
bool cvy_run_stopping(void);
/* Train until the end, a stop or a failure. */
CVY_CHECKED cvy_status cvy_run_loop(struct cvy_run *run);
/* --evaluate: one validation and its record; nothing else changes (run/evaluate.c). */
CVY_CHECKED cvy_status cvy_run_evaluate(struct cvy_run *run);

#endif
