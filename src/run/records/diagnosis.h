/* Diagnoses of what goes wrong early in a training. Pure rules over losses, scales and hits: a healthy run has none,
 * and each finding is reported once. */
#ifndef CVY_RUN_DIAGNOSIS_H
#define CVY_RUN_DIAGNOSIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/scaler.h"
#include "data/loader/loader_stats.h"
#include "report/validation/validation.h"

enum cvy_finding {
    CVY_FINDING_NONE,
    CVY_FINDING_NOT_FINITE,
    CVY_FINDING_LOSS_SCALE, /* at its floor, and steps are left out all the same */
    CVY_FINDING_RATE,       /* the loss is far above that of guessing: the learning rate is too high */
    CVY_FINDING_FLAT,       /* the loss does not leave that of guessing */
    CVY_FINDING_ONE_CLASS,  /* every image is taken for the same class */
    CVY_FINDING_CHANCE,     /* training gets better, validation does not leave chance */
    CVY_FINDING_DATA,       /* much of the time goes into waiting for images */
    CVY_FINDING_REWIND,     /* the training has diverged, and has gone back */
    CVY_FINDING_COUNT
};
/* "not_finite", "loss_scale", ...: the name in the log. */
const char *cvy_finding_name(enum cvy_finding finding);

enum { CVY_FINDING_TEXT = 512 }; /* room for a sentence */

struct cvy_diagnosis {
    double guess_loss; /* of the best answer that ignores the image; 0: not known */
    bool reported[CVY_FINDING_COUNT];
    bool fresh;        /* the training began with random weights: set by the caller */
    double block_sum;  /* of the losses of this block */
    double block_last; /* mean of the block before it; 0: there is none */
    double start_loss; /* of the first step of trained weights, or a block's mean that was lower; 0: not known */
    int32_t block_count;
    int32_t skipped; /* steps left out at the last reading of the scale */
    int32_t low_readings;
    double best_share; /* of right answers in the best validation so far, an earlier run's too: above chance, labels are
                        * not shuffled */
    bool scale_read;
};
/* counts: how much each of `classes` classes counts in the loss: its training images, times its weight where classes
 * have weights (NULL: equally much). smoothing: of the labels. */
void cvy_diagnosis_init(struct cvy_diagnosis *diagnosis, const double *counts, int32_t classes, double smoothing);

/* Each returns what it found, with its sentence in `text` (CVY_FINDING_TEXT bytes), or CVY_FINDING_NONE. */
/* After each step. epoch from 0, step from 1. */
enum cvy_finding cvy_diagnose_loss(struct cvy_diagnosis *diagnosis, int64_t epoch, int64_t step, double loss,
                                   char *text);
/* Every `steps` steps of a training whose loss is scaled. */
enum cvy_finding cvy_diagnose_scale(struct cvy_diagnosis *diagnosis, const struct cvy_scaler *scaler,
                                    const struct cvy_scaler_rule *rule, int32_t steps, char *text);
/* At the end of an epoch, with the mean of its losses; step: of the whole training so far. */
enum cvy_finding cvy_diagnose_epoch(struct cvy_diagnosis *diagnosis, int64_t epoch, int64_t step, double loss,
                                    char *text);
/* At the end of an epoch: what the loader did in it, and its own sentence about that. */
enum cvy_finding cvy_diagnose_data(struct cvy_diagnosis *diagnosis, const struct cvy_loader_stats *stats,
                                   const char *advice, char *text);
/* After a validation. loss: of the training's epoch. */
enum cvy_finding cvy_diagnose_validation(struct cvy_diagnosis *diagnosis, const struct cvy_validation *validation,
                                         int64_t step, double loss, char *text);

#endif
