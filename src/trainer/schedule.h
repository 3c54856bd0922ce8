/* Learning-rate schedules: constant over each epoch, as the PyTorch program has them; one value for each step, as the
 * TensorFlow program has them; or counted in steps altogether, as the detector's program has them. */
#ifndef CVY_TRAINER_SCHEDULE_H
#define CVY_TRAINER_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

enum cvy_schedule_kind { CVY_SCHEDULE_STEP, CVY_SCHEDULE_LINEAR, CVY_SCHEDULE_COSINE, CVY_SCHEDULE_EXPONENTIAL };
struct cvy_schedule {
    enum cvy_schedule_kind kind;
    double learning_rate, end_learning_rate; /* end: cosine only */
    int64_t warmup, epochs;
    bool by_step;            /* else by epoch */
    int64_t steps_per_epoch; /* by_step only */
    /* Cosine and linear: length of the training and of its warm-up in steps. The rate rises from warmup_rate and falls
     * over the steps after the warm-up; beyond the end it is the end's. steps 0: by epochs, as above. */
    int64_t steps, warmup_steps;
    double warmup_rate;
    /* Exponential: the rate is multiplied by the factor every decay_epochs (0: 1) epochs after the warm-up. Factor 0:
     * the one that leaves a thousandth in the end. */
    double decay_factor;
    int64_t decay_epochs;
};
/* "step", "linear", "cosine" or "exponential" -> kind; -1 if unknown. */
int cvy_schedule_kind_of(const char *name);
/* The learning rate of the step after `step` steps since the start of the training, in an epoch (both from 0). */
double cvy_schedule_rate(const struct cvy_schedule *schedule, int64_t epoch, int64_t step);

#endif
