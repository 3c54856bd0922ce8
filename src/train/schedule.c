/* Learning-rate schedules of the reference program (doc/training.md). */
#include "train/schedule.h"

#include <math.h>
#include <string.h>

int cvy_schedule_kind_of(const char *name)
{
    static const char *const names[] = {"step", "linear", "cosine"};

    for (int i = 0; i < 3; i++) {
        if (strcmp(name, names[i]) == 0)
            return i;
    }
    return -1;
}

/* The rate falls to a tenth at epochs 30, 60 and 80, whatever the warm-up. */
static double step_rate(double rate, int64_t epoch)
{
    static const int64_t falls[] = {30, 60, 80};

    for (size_t i = 0; i < sizeof falls / sizeof falls[0]; i++)
        rate *= epoch >= falls[i] ? 0.1 : 1.0;
    return rate;
}

double cvy_schedule_rate(const struct cvy_schedule *schedule, int64_t epoch)
{
    const double pi = 3.14159265358979323846;
    const double base = schedule->learning_rate, end = schedule->end_learning_rate;
    double progress;

    if (epoch < schedule->warmup)
        return base * (double)(epoch + 1) / (double)schedule->warmup;
    if (schedule->kind == CVY_SCHEDULE_STEP)
        return step_rate(base, epoch);
    if (schedule->epochs <= schedule->warmup)
        return base;
    progress = (double)(epoch - schedule->warmup) / (double)(schedule->epochs - schedule->warmup);
    if (schedule->kind == CVY_SCHEDULE_LINEAR)
        return base * (1.0 - progress);
    return end + 0.5 * (1.0 + cos(pi * progress)) * (base - end);
}
