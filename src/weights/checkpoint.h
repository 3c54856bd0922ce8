/* Checkpoints: one safetensors file with the model's tensors under their bare names, the optimizer's, the moving
 * average, and metadata strings of JSON: convoy.format, .arch, .classes, .category_ids, .preprocessing, .state,
 * .options, .plan, .model. Nothing in them depends on time or place: a run that was stopped and resumed writes the same
 * bytes as one that was not. */
#ifndef CVY_WEIGHTS_CHECKPOINT_H
#define CVY_WEIGHTS_CHECKPOINT_H

#include "base/file.h"
#include "base/json_out.h"
#include "convoy/train.h"
#include "data/image/resize.h"
#include "formats/json_in.h"
#include "trainer/trainer.h"
#include "weights/weights.h"

#define CVY_CHECKPOINT_FORMAT 1

enum { CVY_RECENT_STEPS = 10 };

/* Where a run is. A mean in progress is kept as its sum: exact. */
struct cvy_train_state {
    int64_t epoch;       /* from 0; equals options.epochs when the training is done */
    int64_t position;    /* steps done in this epoch */
    int64_t step_images; /* images of a step, of all ranks; 0: not known */
    int64_t skipped;     /* the images of this epoch that are done, less position * step_images: not 0 where some of its
                          * steps were of another size, below 0 where they were smaller */
    int64_t step;        /* optimizer steps since the start of the training */
    int64_t best_epoch;  /* -1: none yet */
    double best_score;   /* its top-1 in percent */
    double loss_sum;     /* over the steps of this epoch */
    int64_t loss_count;
    double part_sums[CVY_LOSS_PARTS]; /* of the parts of the loss, where it has some */
    double window_loss_sum;           /* since the last record of the report */
    int64_t window_count;
    int64_t nonfinite;        /* steps in a row whose loss was not finite */
    int64_t train_images;     /* size of the training set */
    struct cvy_scaler scaler; /* all zero: the loss is not scaled */
    int64_t stale_epochs;     /* in a row that were not better by --early-stopping-min-delta */
    double patience_score;    /* than this */
    /* For going back after a divergence; zeros in a training that does not. */
    int64_t rewinds;                        /* so far: the rate is that of the schedule, halved as many times */
    double recent_losses[CVY_RECENT_STEPS]; /* of the last steps since the last rewind, the oldest first */
    int64_t recent_count;                   /* of them */
    double start_loss;                      /* with trained weights: of the first step, or lower; 0: not known */
    int64_t diverged_step;                  /* the step with which the training was seen to diverge; 0: it was not */
    double diverged_loss;                   /* what was seen */
};

/* How images are preprocessed into the network's input. */
struct cvy_preprocessing {
    int32_t image_size, resize;
    float mean[3], std[3];
    bool exif_orientation;
    bool tensorflow;    /* by the rules of TensorFlow's program */
    bool dali;          /* by DALI's */
    bool triangular;    /* of these: as TensorFlow's program takes DALI */
    bool rounded_scale; /* of these: the longer side is stretched to whole pixels */
    enum cvy_filter filter;
};
/* As the JSON text of convoy.preprocessing. */
void cvy_preprocessing_write(struct cvy_json *json, const struct cvy_preprocessing *preprocessing);

/* As the JSON text of convoy.model: what neither the architecture's name nor the shapes of the tensors say. */
void cvy_model_write(struct cvy_json *json, const struct cvy_model_options *model);

/* A file's metadata. Absent parts: NULL, 0, or the value named. Texts live in the arena. */
struct cvy_checkpoint_info {
    struct cvy_arena arena;
    const char *arch;
    const char **classes;
    int32_t class_count;
    int64_t *category_ids; /* (class_count) of a detection set; NULL: none */
    bool has_preprocessing, has_state;
    bool resumable; /* the state of a training is there, not only that of its weights */
    struct cvy_preprocessing preprocessing;
    struct cvy_train_state state, last_good; /* last_good: where a training that diverges goes back to */
    bool has_last_good;
    const char *padding; /* NULL: not said, which means torch */
    bool same_padding;
    bool torchvision_backbone; /* detectors only */
    enum cvy_quantize quantize;
    int64_t quant_delay;
    float *class_weights; /* (class_weight_count) of the loss; NULL: none */
    int32_t class_weight_count;
    const struct cvy_json_value *options; /* NULL: none */
    const struct cvy_json_value *plan;    /* NULL: none */
    /* What post-training quantisation says about itself: "calibration", "images", "bias_correction", and "floats", the
     * layers left in floats; for people alone. NULL: none. */
    const struct cvy_json_value *quantization;
};
/* Read and check the metadata of an open file. A bare safetensors file gives an empty description. */
CVY_CHECKED cvy_status cvy_checkpoint_read(const struct cvy_tensor_file *file, const char *what,
                                           struct cvy_checkpoint_info *info);
void cvy_checkpoint_info_release(struct cvy_checkpoint_info *info);

/* "checkpoint_0007.safetensors", which --gather-checkpoints keeps -> 7; -1 for other names. */
int64_t cvy_checkpoint_epoch(const char *name);
/* Whether a file opens as a checkpoint; CVY_NO_INPUT: it is not there. */
CVY_CHECKED cvy_status cvy_checkpoint_probe(const char *path);
/* The newest kept one of a folder that opens; "": there is none. */
CVY_CHECKED cvy_status cvy_checkpoint_newest_kept(const char *folder, char path[CVY_PATH_MAX]);

/* What goes into a file. */
struct cvy_checkpoint {
    struct cvy_network *network;
    const char *const *classes;
    int32_t class_count;
    const int64_t *category_ids; /* (class_count) of a detection set; NULL: none */
    const struct cvy_preprocessing *preprocessing;
    const struct cvy_train_state *state;
    const struct cvy_snapshot *snapshot;     /* of a training that may go back behind its state; else NULL */
    const struct cvy_train_state *last_good; /* where the snapshot was taken; NULL without */
    const struct cvy_train_options *options;
    const float *class_weights; /* (model.num_classes), NULL: none */
    const int *rank_threads;    /* (ranks) threads of each rank; NULL: there is one */
    int ranks;
    enum cvy_weights_part part; /* CVY_PART_TRAINING: a checkpoint to resume from, rather than weights to use */
};
CVY_CHECKED cvy_status cvy_checkpoint_write(const struct cvy_checkpoint *checkpoint, const char *path);

#endif
