/* Training: options (by name, with their sources), the run, its events. */
#ifndef CONVOY_TRAIN_H
#define CONVOY_TRAIN_H

#include <stdbool.h>

#include "convoy/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CVY_PATH_MAX 4096

/* Where an option's value comes from; a later source never loses to an earlier one. */
enum cvy_option_source {
    CVY_FROM_DEFAULT,
    CVY_FROM_AUTO,    /* the automatic recipe */
    CVY_FROM_RECIPE,  /* --recipe */
    CVY_FROM_WEIGHTS, /* the file of --pretrained-weights */
    CVY_FROM_RESUME,  /* the checkpoint of --resume */
    CVY_FROM_FLAG
};

/* All options of a training run. Fill with cvy_train_options_init(), change with cvy_train_options_set(). Field names
 * are the option names with underscores. */
struct cvy_train_options {
    char data[CVY_PATH_MAX];
    char arch[64], recipe[CVY_PATH_MAX], device[64], precision[16], data_backend[16], model_config[16];
    char lr_schedule[16], optimizer[16], interpolation[16], sampler[16], augmentation[16], padding[16],
        squeeze_width[16];
    char pretrained_weights[CVY_PATH_MAX], freeze[CVY_PATH_MAX], train_list[CVY_PATH_MAX], val_list[CVY_PATH_MAX];
    char data_idx_dir[CVY_PATH_MAX];
    char workspace[CVY_PATH_MAX], resume[CVY_PATH_MAX], raport_file[CVY_PATH_MAX], log_every_step[CVY_PATH_MAX];
    int64_t workers, prefetch, threads, epochs, run_epochs, batch_size, image_size, train_crop_size /* 0: image_size */,
        eval_resize, num_classes;
    int64_t warmup, print_freq, checkpoint_every, prof, topk;
    uint64_t seed;
    double bn_momentum; /* 0: the architecture's */
    double lr, head_lr /* 0: lr */, end_lr, label_smoothing, momentum, weight_decay, val_split, min_crop_area;
    bool nesterov, bn_weight_decay, training_only, no_checkpoints, last_bn_0_init, strict, exif_orientation, reset_head;
    bool amp, dynamic_loss_scale, quantize, symmetric, per_channel, use_qdq;
    int64_t quant_delay;
    char lr_unit[16], weight_decay_rule[16], best_of[16];
    int64_t optimizer_batch_size /* -1: one batch */, lr_decay_epochs;
    int64_t early_stopping /* -1: off */, gather_checkpoints /* -1: all */;
    double lr_per_256 /* 0: lr counts */, lr_decay /* 0: chosen */, rmsprop_alpha, rmsprop_eps, use_ema /* 0: off */;
    double early_stopping_min_delta;
    bool evaluate;
    bool ram_cache;
    int64_t steps /* 0: epochs count */, warmup_steps, eval_count /* 0: after every epoch */;
    double warmup_lr;
    double brightness, contrast, saturation, hue; /* detection only: how far colours are changed */
    char area_rule[16], backbone_strides[16], decode[16];
    bool coco_slots;
    bool rounded_scale;
    double static_loss_scale;
    char loss_scale_rule[16];
    double mixup;            /* alpha; 0: off */
    char val_split_rule[16]; /* "seed" or "path" */
    char ema_rule[16];       /* batch or step */
    char mixup_rule[16], val_loss[16], class_weights[CVY_PATH_MAX] /* none, balanced, NAME=W,... or a file */;
    bool sync_bn;
    char gradient_compression[8], running_statistics[8];
    double lars_eta;
    int64_t precise_bn /* 0: running statistics are those of the steps */;
    int64_t rewinds /* 0: a training that diverges does not go back */;
    int64_t comm_timeout;          /* seconds */
    int64_t schedule_steps;        /* 0: steps */
    char checkpoint_filename[128]; /* "": none */
    bool eval_training_data;       /* with evaluate: of the training images */
    char quantize_rule[16];        /* "convoy" or "tensorflow" */
    int64_t freeze_bn_delay;       /* 0: never */
    unsigned char source[160];     /* enum cvy_option_source by index of the option table */
};

enum cvy_option_type { CVY_OPTION_TEXT, CVY_OPTION_INT, CVY_OPTION_UINT, CVY_OPTION_REAL, CVY_OPTION_FLAG };
struct cvy_option_info {
    const char *name;  /* "weight-decay" */
    const char *alias; /* "wd" or NULL */
    char letter;       /* 'b' or 0 */
    enum cvy_option_type type;
    const char *argument; /* "N", "DIR"; NULL for flags */
    const char *help;     /* one line */
};
/* The option table, for help texts and parsers; NULL past the end. */
CVY_API const struct cvy_option_info *cvy_train_option_at(size_t index);
/* The values that a text option of the table may have, ended by NULL; NULL: any, or no such option. */
CVY_API const char *const *cvy_train_option_choices(size_t index);
/* The reference program's defaults (doc/training.md), every source CVY_FROM_DEFAULT. */
CVY_API void cvy_train_options_init(struct cvy_train_options *options);
/* Options on the heap, for programs that do not depend on what the struct holds; NULL: no memory. Free accepts NULL. */
CVY_API struct cvy_train_options *cvy_train_options_new(void);
CVY_API void cvy_train_options_free(struct cvy_train_options *options);
/* The folder or file of the data. CVY_USAGE: it is empty or too long. */
CVY_API CVY_CHECKED cvy_status cvy_train_options_set_data(struct cvy_train_options *options, const char *path);
/* Set an option by name (hyphens or underscores, aliases, unique prefixes). value NULL means "true" for a flag. Keeps
 * the old value when `source` is earlier than the one that set it. CVY_USAGE names the option and says what is allowed.
 */
CVY_API CVY_CHECKED cvy_status cvy_train_options_set(struct cvy_train_options *options, const char *name,
                                                     const char *value, enum cvy_option_source source);
/* The index of an option in the table by the same rules, -1 (with a sentence recorded) if unknown or ambiguous. */
CVY_API int cvy_train_option_find(const char *name);
/* The value as text ("0.1", "true"). Returns buffer. */
CVY_API const char *cvy_train_option_text(const struct cvy_train_options *options, size_t index, char *buffer,
                                          size_t size);

/* What a validation came to, by name and in the order of the log's columns: "loss", "top1", "top5" (percent). */
struct cvy_measure {
    char name[24];
    double value;
};
enum { CVY_MEASURES_MAX = 16 };
struct cvy_measures {
    struct cvy_measure list[CVY_MEASURES_MAX];
    int count;
};
/* The value of that name; NaN where there is none. */
CVY_API double cvy_measures_get(const struct cvy_measures *measures, const char *name);

/* What is going on; values since the start of the epoch unless said otherwise. Valid during the call. */
struct cvy_train_progress {
    bool validating;
    int64_t epoch, epochs, step, steps;   /* step counted from 1 within the epoch */
    double loss, learning_rate;           /* loss: mean over the epoch so far */
    double images_per_second, data_share; /* data_share: fraction of the time spent waiting for data */
    double eta_seconds;                   /* until the end of the run (of its run_epochs) */
};
struct cvy_train_epoch {
    int64_t epoch, epochs, classes;
    double train_loss, learning_rate, images_per_second, data_share, seconds;
    bool validated, best;
    bool averaged; /* the moving average of the weights (EMA) was validated too */
    struct cvy_measures val, val_ema;
    struct cvy_measures parts; /* of a detector: those of train_loss; of a classifier "l2_loss", what weight decay is as
                                * a term of the loss, and "total_loss", its sum with train_loss */
    int64_t bad_images;        /* replaced so far in this run */
    char ranks[320];           /* with several processes: where their time went and which is the slowest; else "" */
};
struct cvy_train_events {
    void *context;
    void (*plan)(void *context, const char *text); /* the plan of the run, several lines, before it starts */
    void (*progress)(void *context, const struct cvy_train_progress *progress);
    void (*epoch)(void *context, const struct cvy_train_epoch *epoch);
    /* Everything is ready, before the plan is shown: where the run writes, and this process among those of the run. */
    void (*begin)(void *context, const char *run_directory, int rank, int ranks);
};
struct cvy_train_result {
    char run_directory[CVY_PATH_MAX];
    char weights[CVY_PATH_MAX]; /* the file to classify with: model_best.safetensors, else the checkpoint; "" if none */
    char sample_image[CVY_PATH_MAX]; /* a validation image for the closing command, "" if none */
    bool detector;                   /* the network says where objects are */
    int64_t classes;
    double best_score;           /* of the best epoch: top-1 or AP in percent */
    bool evaluated, averaged;    /* --evaluate: what one pass over the validation set said */
    struct cvy_measures val;     /* of the weights */
    struct cvy_measures val_ema; /* of their moving average, where `averaged` */
    int64_t val_images, val_skipped;
    int64_t best_epoch, epochs_done, steps_done, bad_images;
    double seconds;
    size_t planned_memory, peak_memory; /* bytes */
};
/* Run. CVY_STOPPED after cvy_train_stop(): the step was finished and, unless no_checkpoints is set, a checkpoint saved.
 */
CVY_API CVY_CHECKED cvy_status cvy_train(const struct cvy_train_options *options, const struct cvy_train_events *events,
                                         struct cvy_train_result *result);
/* What a run would do, without doing it. Values that only the data can say are not known where these cannot be opened.
 */
struct cvy_train_plan {
    struct cvy_train_options options;
    unsigned char origin[160];              /* by index of the option table; cvy_train_plan_origin() */
    int64_t ranks, accumulate, step_images; /* batches and images of an optimizer step; 0: not known */
};
/* Resolve all options as cvy_train() would with so many processes. Reads recipes, the checkpoint of --resume and the
 * file of --pretrained-weights, and the data if they are there; a device is opened only where its memory decides on the
 * batch. Fails as cvy_train() would. */
CVY_API CVY_CHECKED cvy_status cvy_train_dry_run(const struct cvy_train_options *options, int ranks,
                                                 struct cvy_train_plan *plan);
/* "default", "automatic", "recipe", "weights", "checkpoint", "flag", "derived" (follows from other values, the data or
 * the machine) or "unknown" (the data decide). */
CVY_API const char *cvy_train_plan_origin(const struct cvy_train_plan *plan, size_t index);
/* The rank of this process as its launcher tells it in the environment, 0 when alone (or where what it tells makes no
 * sense). *ranks: how many there are; 0: an MPI will tell. */
CVY_API int cvy_train_rank(int *ranks);
/* Ask the running training to finish its step, save and return. Async-signal-safe. */
CVY_API void cvy_train_stop(void);

/* The newest checkpoint of a folder, a run's or one of TensorFlow's checkpoints (model.ckpt-STEP). */
struct cvy_checkpoint_found {
    char file[CVY_PATH_MAX]; /* "": there is none yet */
    int64_t step;            /* optimizer steps it has seen */
    bool is_final;           /* its training is at its end; not known of TensorFlow's */
};
/* CVY_NO_INPUT: there is no such folder; CVY_BAD_DATA: the checkpoint cannot be read. */
CVY_API CVY_CHECKED cvy_status cvy_checkpoint_latest(const char *path, struct cvy_checkpoint_found *found);

/* The networks that there are; NULL past the end. */
CVY_API const char *cvy_network_name(size_t index);

/* Recipes: files of "name = value" lines with # comments, embedded in the library; doc/training.md. Those of one file
 * follow one another. */
CVY_API const char *cvy_recipe_name(size_t index); /* NULL past the end */
CVY_API const char *cvy_recipe_file(size_t index); /* the file in recipes/ without its ending; NULL past the end */
/* The text of an embedded recipe, NULL if unknown. */
CVY_API const char *cvy_recipe_text(const char *name);

#ifdef __cplusplus
}
#endif
#endif
