/* Learning-rate schedules: piecewise constant, one value for each epoch. */
#ifndef CVY_TRAIN_SCHEDULE_H
#define CVY_TRAIN_SCHEDULE_H

#include <stdint.h>

enum cvy_schedule_kind { CVY_SCHEDULE_STEP, CVY_SCHEDULE_LINEAR, CVY_SCHEDULE_COSINE };
struct cvy_schedule {
    enum cvy_schedule_kind kind;
    double learning_rate, end_learning_rate; /* end: cosine only */
    int64_t warmup, epochs;
};
/* "step", "linear" or "cosine" -> kind; -1 if unknown. */
int cvy_schedule_kind_of(const char *name);
/* The learning rate of an epoch (from 0). */
double cvy_schedule_rate(const struct cvy_schedule *schedule, int64_t epoch);

#endif
