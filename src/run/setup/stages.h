/* The steps of opening a run, in the order in which setup.c takes them. Only for this folder. */
#ifndef CVY_RUN_SETUP_STAGES_H
#define CVY_RUN_SETUP_STAGES_H

#include "run/run.h"

/* ---- options ---- */

/* --train-list is another way to say DIR. */
CVY_CHECKED cvy_status cvy_setup_name_data(struct cvy_train_options *options);
/* Find the checkpoint of --resume and restore the options saved with it (resume.c). */
CVY_CHECKED cvy_status cvy_resume_open(struct cvy_run *run);
/* --recipe, before anything is opened: it may say where the data are and how they are divided. A resumed run has its
 * values. */
CVY_CHECKED cvy_status cvy_setup_apply_recipe(struct cvy_run *run);

/* ---- inputs ---- */

/* Chooses a detector if no network was chosen and the data have boxes (detection.c). */
CVY_CHECKED cvy_status cvy_run_choose_task(struct cvy_run *run);
/* Start from a file (pretrained.c): open it and let it choose the network. Nothing without --pretrained-weights and
 * when a run resumes from a checkpoint; the same holds for the other functions of its name. */
CVY_CHECKED cvy_status cvy_pretrained_open(struct cvy_run *run);
CVY_CHECKED cvy_status cvy_setup_open_data(struct cvy_run *run);
CVY_CHECKED cvy_status cvy_run_open_detection(struct cvy_run *run);
/* --ram-cache: reserves memory for the images of the open sets, or CVY_NO_MEMORY (memory.c). */
CVY_CHECKED cvy_status cvy_run_open_caches(struct cvy_run *run);

/* ---- configuration ---- */

/* The automatic recipe; a resumed run has its values. */
CVY_CHECKED cvy_status cvy_setup_choose_recipe(struct cvy_run *run);
/* For the automatic recipe: bf16 for a long training on a processor that computes much faster in it, unless a precision
 * was asked for (precision.c). Opens the device. */
CVY_CHECKED cvy_status cvy_setup_choose_precision(struct cvy_run *run);
/* For the automatic recipe: lower *batch to what memory allows (memory.c); context is the run. */
CVY_CHECKED cvy_status cvy_run_fit_batch(void *context, const struct cvy_train_options *options, int64_t *batch);
/* Open run->state.device unless it is open (network.c). */
CVY_CHECKED cvy_status cvy_run_open_device(struct cvy_run *run);
/* All values, and combinations that are impossible; */
CVY_CHECKED cvy_status cvy_setup_resolve_options(struct cvy_run *run);
/* of them those that follow from others, as far as they do not need the batch size; */
CVY_CHECKED cvy_status cvy_run_resolve_values(const struct cvy_run *run, struct cvy_train_options *options);
/* options that only classifiers or only detectors have, and what follows for a detector (detection.c); */
CVY_CHECKED cvy_status cvy_run_resolve_detection(struct cvy_train_options *options);
/* run->config->accumulate, the learning rate; the batch size is known (rules.c). */
CVY_CHECKED cvy_status cvy_run_resolve_rules(struct cvy_run *run);
/* Once the device and the data are there, before any plan is made: what must not change, and the checkpoint's kernels.
 * Nothing without a checkpoint. */
CVY_CHECKED cvy_status cvy_resume_prepare(struct cvy_run *run);
/* Fill run->config->class_weights, once the data are there and before a checkpoint is loaded (loss.c). */
CVY_CHECKED cvy_status cvy_run_class_weights(struct cvy_run *run);
/* Estimate run->config->memory; CVY_NO_MEMORY when it is not there (memory.c). */
CVY_CHECKED cvy_status cvy_run_check_memory(struct cvy_run *run);

/* ---- network ---- */

/* How the training images are loaded, and how those of the validation are (inputs.c). */
struct cvy_loader_options cvy_run_loader_options(const struct cvy_run *run, const struct cvy_train_options *options);
struct cvy_loader_options cvy_run_val_loader_options(const struct cvy_run *run,
                                                     const struct cvy_train_options *options);
CVY_CHECKED cvy_status cvy_setup_open_sources(struct cvy_run *run);
/* run->config->steps_per_epoch. Batches that do not fill a whole step are left out, as are images that do not fill a
 * whole batch. */
CVY_CHECKED cvy_status cvy_setup_count_steps(struct cvy_run *run);
/* The network with the weights and the state that the run begins with, what trains it and what validates it
 * (network.c). */
CVY_CHECKED cvy_status cvy_setup_open_network(struct cvy_run *run);
/* What the options say about the optimizer and the loss scale (rules.c). */
CVY_CHECKED cvy_status cvy_run_optimizer(const struct cvy_run *run, enum cvy_dtype dtype,
                                         struct cvy_optimizer_options *optimizer);
/* The rule and the first value of the loss scale, by their names, where the loss is scaled in this type. */
CVY_CHECKED cvy_status cvy_run_resolve_loss_scale(struct cvy_train_options *options, enum cvy_dtype dtype);
/* The mean and standard deviation that the start values were trained with. */
void cvy_pretrained_normalization(const struct cvy_run *run, struct cvy_model_options *model);
/* --reset-head, --freeze, --head-lr: there is something to start from, every prefix names parameters, and some are left
 * to train. */
CVY_CHECKED cvy_status cvy_pretrained_check(const struct cvy_run *run);
/* Load the file over the random start values. */
CVY_CHECKED cvy_status cvy_pretrained_load(struct cvy_run *run);
void cvy_pretrained_close(struct cvy_pretrained *start);
/* Load weights, momentum and state once the network and the data are there. */
CVY_CHECKED cvy_status cvy_resume_load(struct cvy_run *run);
/* The threads of this rank in the checkpoint; 0: it does not say, or was made with another number of ranks. */
int cvy_resume_threads(const struct cvy_run *run);
/* How many ranks the checkpoint was made by. */
int cvy_resume_ranks(const struct cvy_run *run);
void cvy_resume_close(struct cvy_resume *resume);
/* Tell the trainer: mixup and class weights (loss.c). */
CVY_CHECKED cvy_status cvy_run_set_loss(struct cvy_run *run);
/* A length in steps as epochs, the last of which may be a shorter one. Epochs that --prof cuts count as whole ones. */
CVY_CHECKED cvy_status cvy_setup_choose_epochs(struct cvy_run *run);
/* What else the configuration has: the preprocessing, the schedule (rules.c), where the run ends. */
void cvy_setup_describe(struct cvy_run *run);
struct cvy_schedule cvy_run_schedule(const struct cvy_run_config *config);

/* ---- records ---- */

/* Whether the directory that is named may become the run's: asked before anything takes long. */
CVY_CHECKED cvy_status cvy_setup_check_directory(const struct cvy_run *run);
/* Creates the run directory and opens its logs; with --evaluate the report alone, where one is asked for. */
CVY_CHECKED cvy_status cvy_setup_open_directory(struct cvy_run *run);

#endif
