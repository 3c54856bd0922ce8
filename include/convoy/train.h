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

/* All options of a training run, set and read by the names that the command line has (doc/training.md). What it holds
 * is the library's affair and changes from version to version. */
struct cvy_train_options;

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
/* The reference program's defaults (doc/training.md), every source CVY_FROM_DEFAULT. NULL: no memory. */
CVY_API struct cvy_train_options *cvy_train_options_new(void);
/* The same options once more, with their sources. NULL: no memory, or no options. */
CVY_API struct cvy_train_options *cvy_train_options_copy(const struct cvy_train_options *options);
CVY_API void cvy_train_options_free(struct cvy_train_options *options); /* accepts NULL */
/* The folder or file of the data. CVY_USAGE: it is empty or too long. */
CVY_API CVY_CHECKED cvy_status cvy_train_options_set_data(struct cvy_train_options *options, const char *path);
/* "": none was set. Valid until it is set again or the options are freed. */
CVY_API const char *cvy_train_options_data(const struct cvy_train_options *options);
/* Set an option by name (hyphens or underscores, aliases, unique prefixes). value NULL means "true" for a flag. Keeps
 * the old value when `source` is earlier than the one that set it. CVY_USAGE names the option and says what is allowed.
 */
CVY_API CVY_CHECKED cvy_status cvy_train_options_set(struct cvy_train_options *options, const char *name,
                                                     const char *value, enum cvy_option_source source);
/* The value as text, as cvy_train_options_set takes it ("0.1", "true"; "": none). CVY_USAGE: there is no such option,
 * or the text and its final zero need more than `size` bytes. */
CVY_API CVY_CHECKED cvy_status cvy_train_options_get(const struct cvy_train_options *options, const char *name,
                                                     char *text, size_t size);
/* Who set it last; CVY_FROM_DEFAULT where there is no such option. */
CVY_API enum cvy_option_source cvy_train_options_source(const struct cvy_train_options *options, const char *name);
/* Back to the default, whoever set it, and as if `source` had: with CVY_FROM_DEFAULT recipes and data decide again,
 * with CVY_FROM_FLAG none of them does. CVY_USAGE: there is no such option. */
CVY_API CVY_CHECKED cvy_status cvy_train_options_reset(struct cvy_train_options *options, const char *name,
                                                       enum cvy_option_source source);
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
    bool validating;                      /* steps are then the batches of the validation */
    int64_t epoch, epochs, step, steps;   /* epoch from 0; step: those of the epoch that are done */
    double loss, learning_rate;           /* loss: mean over the epoch so far */
    double images_per_second, data_share; /* data_share: fraction of the time spent waiting for data */
    double eta_seconds;                   /* until the end of the run (of its run_epochs) */
};
struct cvy_train_epoch {
    int64_t epoch, epochs, classes; /* epoch from 0 */
    /* learning_rate: of the last step */
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
    size_t size; /* sizeof(struct cvy_train_events) */
    void *context;
    void (*plan)(void *context, const char *text); /* the plan of the run, several lines, before it starts */
    void (*progress)(void *context, const struct cvy_train_progress *progress);
    void (*epoch)(void *context, const struct cvy_train_epoch *epoch);
    /* Everything is ready, before the plan is shown: where the run writes, and this process among those of the run. */
    void (*begin)(void *context, const char *run_directory, int rank, int ranks);
};
#define CVY_TRAIN_EVENTS_DEFAULTS CVY_SIZED(cvy_train_events)
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
    int64_t best_epoch, epochs_done, steps_done, bad_images; /* best_epoch: from 0; -1: there is none */
    double seconds;
    size_t planned_memory, peak_memory; /* bytes */
};
/* A training run in one call. events and result may be NULL. What is to be stopped takes the functions below. */
CVY_API CVY_CHECKED cvy_status cvy_train(const struct cvy_train_options *options, const struct cvy_train_events *events,
                                         struct cvy_train_result *result);

/* The same in pieces: new, open, step until there is no more, finish, free. Several runs may be there at once, each
 * used by one thread at a time: a call while another one is in progress, from an event's handler too, is refused
 * (CVY_USAGE; it is not freed either). The ranks of a run of several processes make the same calls in the same order.
 */
typedef struct cvy_training cvy_training;
/* Copies options and events (which may be NULL; what `context` points to stays the caller's); nothing is opened yet.
 * CVY_NO_MEMORY. */
CVY_API CVY_CHECKED cvy_status cvy_training_new(const struct cvy_train_options *options,
                                                const struct cvy_train_events *events, cvy_training **training);
/* Opens the data, the device, the network and the run directory; the events `begin` and `plan`. Fails as cvy_train does
 * before its first step; then only cvy_training_finish and cvy_training_free may follow. */
CVY_API CVY_CHECKED cvy_status cvy_training_open(cvy_training *training);
/* One optimizer step; the last one of an epoch is followed by what ends it: validation, records, the checkpoint. With
 * the option `evaluate` it is the evaluation. *more (may be NULL): there are steps left. After a failure, and after
 * CVY_STOPPED, only cvy_training_finish and cvy_training_free may follow. */
CVY_API CVY_CHECKED cvy_status cvy_training_step(cvy_training *training, bool *more);
/* A validation between two steps, of the weights as they are. The training is not changed by it, but for the running
 * statistics with the option precise-bn, which are computed anew for each validation. CVY_USAGE with the options
 * evaluate and training-only. */
CVY_API CVY_CHECKED cvy_status cvy_training_validate(cvy_training *training, struct cvy_measures *measures);
/* Saves a checkpoint between two steps; nothing with the option no-checkpoints. The training changes by it no more than
 * by checkpoint-every. */
CVY_API CVY_CHECKED cvy_status cvy_training_save(cvy_training *training);
/* Ends the run, with its report: after the last step, or before it, and then what was done since the last checkpoint is
 * lost. Returns again why the run is over: CVY_STOPPED, or how it failed. result may be NULL. */
CVY_API CVY_CHECKED cvy_status cvy_training_finish(cvy_training *training, struct cvy_train_result *result);
/* cvy_training_open, all steps, cvy_training_finish. */
CVY_API CVY_CHECKED cvy_status cvy_training_run(cvy_training *training, struct cvy_train_result *result);
/* Asks this run to finish its step and, unless no-checkpoints is set, to save: the step or validation in
 * progress, or a following one, returns CVY_STOPPED. From any thread, from an event's handler or a signal handler, as
 * long as the run is not freed. NULL is accepted. */
CVY_API void cvy_training_stop(cvy_training *training);
/* The options, and after cvy_training_open every one of them as it was resolved. Owned by the training until it is
 * freed; NULL for NULL. */
CVY_API const struct cvy_train_options *cvy_training_options(const cvy_training *training);
CVY_API void cvy_training_free(cvy_training *training); /* accepts NULL, and runs that are not finished */
/* What a run would do, without doing it. Values that only the data can say are not known where these cannot be opened.
 */
struct cvy_train_plan;
/* Resolve all options as cvy_train() would with so many processes. Reads recipes, the checkpoint of --resume and the
 * file of --pretrained-weights, and the data if they are there; a device is opened only where its memory decides on the
 * batch. Fails as cvy_train() would. *plan is freed with cvy_train_plan_free; NULL after a failure. */
CVY_API CVY_CHECKED cvy_status cvy_train_dry_run(const struct cvy_train_options *options, int ranks,
                                                 struct cvy_train_plan **plan);
CVY_API void cvy_train_plan_free(struct cvy_train_plan *plan); /* accepts NULL */
/* Every option as it would be; owned by the plan. */
CVY_API const struct cvy_train_options *cvy_train_plan_options(const struct cvy_train_plan *plan);
/* By index of the option table: "default", "automatic", "recipe", "weights", "checkpoint", "flag", "derived" (follows
 * from other values, the data or the machine) or "unknown" (the data decide). */
CVY_API const char *cvy_train_plan_origin(const struct cvy_train_plan *plan, size_t index);
/* Processes; batches and images of an optimizer step, of all processes together: 0 where they are not known. */
CVY_API int64_t cvy_train_plan_ranks(const struct cvy_train_plan *plan);
CVY_API int64_t cvy_train_plan_accumulate(const struct cvy_train_plan *plan);
CVY_API int64_t cvy_train_plan_step_images(const struct cvy_train_plan *plan);
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
