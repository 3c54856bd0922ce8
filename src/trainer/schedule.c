/* Learning-rate schedules of the reference programs (doc/training.md). */
#include "trainer/schedule.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

int cvy_schedule_kind_of(const char *name)
{
    static const char *const names[] = {"step", "linear", "cosine", "exponential"};

    for (int i = 0; i < 4; i++) {
        if (strcmp(name, names[i]) == 0)
            return i;
    }
    return -1;
}

static double cosine(const struct cvy_schedule *schedule, double progress)
{
    const double end = schedule->end_learning_rate;

    return end + 0.5 * (1.0 + cos(pi * progress)) * (schedule->learning_rate - end);
}

/* `epochs` after the warm-up. The factor's default takes the reference's constant: 0.001 at the end. */
static double exponential(const struct cvy_schedule *schedule, double epochs)
{
    const double length = (double)(schedule->epochs - schedule->warmup);
    const double period = schedule->decay_epochs > 0 ? (double)schedule->decay_epochs : 1;
    const double periods = floor(length / period);
    double factor = schedule->decay_factor;

    if (factor <= 0)
        factor = periods >= 1 ? exp2(log2(0.001) / periods) : 1;
    return schedule->learning_rate * pow(factor, floor(epochs / period));
}

/* The rate falls to a tenth at epochs 30, 60 and 80, whatever the warm-up. */
static double epoch_rate(const struct cvy_schedule *schedule, int64_t epoch)
{
    static const int64_t falls[] = {30, 60, 80};
    const int64_t length = schedule->epochs - schedule->warmup, after = epoch - schedule->warmup;
    double rate = schedule->learning_rate;

    if (epoch < schedule->warmup)
        return rate * (double)(epoch + 1) / (double)schedule->warmup;
    if (schedule->kind == CVY_SCHEDULE_STEP) {
        for (size_t i = 0; i < sizeof falls / sizeof falls[0]; i++)
            rate *= epoch >= falls[i] ? 0.1 : 1.0;
        return rate;
    }
    if (length <= 0)
        return rate;
    if (schedule->kind == CVY_SCHEDULE_LINEAR)
        return rate * (1.0 - (double)after / (double)length);
    if (schedule->kind == CVY_SCHEDULE_EXPONENTIAL)
        return exponential(schedule, (double)after);
    return cosine(schedule, (double)after / (double)length);
}

/* The warm-up begins at 0. Cosine and linear run over all steps, those of the warm-up included, so the rate falls
 * where it ends. Steps are at epochs 30, 60, 80 and 90, and the step that begins such an epoch has the old rate. */
static double step_rate(const struct cvy_schedule *schedule, int64_t step)
{
    static const int64_t falls[] = {30, 60, 80, 90};
    const int64_t each = schedule->steps_per_epoch, warmup = schedule->warmup * each, total = schedule->epochs * each;
    double rate = schedule->learning_rate;

    if (step < warmup)
        return rate * (double)step / (double)warmup;
    switch (schedule->kind) {
    case CVY_SCHEDULE_STEP:
        for (size_t i = 0; i < sizeof falls / sizeof falls[0]; i++)
            rate *= step > falls[i] * each ? 0.1 : 1.0;
        return rate;
    case CVY_SCHEDULE_LINEAR:
        return rate * (1.0 - (double)step / (double)total);
    case CVY_SCHEDULE_EXPONENTIAL:
        return exponential(schedule, (double)(step - warmup) / (double)each);
    case CVY_SCHEDULE_COSINE:
        break;
    }
    return cosine(schedule, (double)step / (double)total);
}

/* The detector's: warm-up, then the fall over the rest of the steps. */
static double total_rate(const struct cvy_schedule *schedule, int64_t step)
{
    const double warmup = (double)schedule->warmup_steps, rest = (double)schedule->steps - warmup;
    const double after = (double)step - warmup, progress = rest > 0 && after < rest ? after / rest : 1;
    const double rate = schedule->learning_rate;

    if (after < 0)
        return schedule->warmup_rate + (double)step * (rate - schedule->warmup_rate) / warmup;
    return schedule->kind == CVY_SCHEDULE_LINEAR ? rate * (1.0 - progress) : cosine(schedule, progress);
}

double cvy_schedule_rate(const struct cvy_schedule *schedule, int64_t epoch, int64_t step)
{
    if (schedule->steps > 0)
        return total_rate(schedule, step);
    return schedule->by_step ? step_rate(schedule, step) : epoch_rate(schedule, epoch);
}
