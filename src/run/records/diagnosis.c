#include "run/records/diagnosis.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "run/records/divergence.h"

/* The limits. Each is far from what healthy trainings do (tests/unit/run/test_diagnosis.c holds some of them). */
enum {
    BLOCK = 20,       /* steps whose mean loss is examined: single steps jump */
    MIN_STEPS = 50,   /* before that the running statistics of batch norm are mostly their start values, and
                       * validation may well see one class only */
    MIN_FLAT = 200,   /* steps, and two epochs, after which the loss of a healthy run has moved */
    MIN_IMAGES = 50,  /* of a validation: fewer say little */
    MIN_LOADED = 500, /* images of an epoch, and seconds: the first batches are always waited for */
    MIN_SECONDS = 2,
    LOW_READINGS = 2, /* in a row: a single overflow is how a dynamic scale finds its place */
};
static const double FLAT = 0.985; /* share of the guessing loss that counts as not moved */
static const double LEARNT = 0.7; /* share of it that shows learning */
static const double ONE_CLASS_SHARE = 0.99;
static const double WAITING = 0.1; /* share of an epoch */

static const char *const names[] = {"none",      "not_finite", "loss_scale", "learning_rate", "flat",
                                    "one_class", "chance",     "data",       "rewind"};

const char *cvy_finding_name(enum cvy_finding finding)
{
    return names[finding];
}

void cvy_diagnosis_init(struct cvy_diagnosis *d, const double *counts, int32_t classes, double smoothing)
{
    double total = 0;

    *d = (struct cvy_diagnosis){0};
    for (int32_t i = 0; counts && i < classes; i++)
        total += counts[i];
    /* The entropy of the mean target is the least cross-entropy of an answer that is the same for every image. */
    for (int32_t i = 0; i < classes; i++) {
        const double share = total > 0 ? counts[i] / total : 1.0 / classes;
        const double target = (1 - smoothing) * share + smoothing / classes;
        d->guess_loss -= target > 0 ? target * log(target) : 0;
    }
}

static enum cvy_finding report_once(struct cvy_diagnosis *d, enum cvy_finding finding)
{
    d->reported[finding] = true;
    return finding;
}

/* A block that begins in the first steps of random weights, whose loss may rise far and come back by itself: only one
 * that follows another and is no lower says something. */
static bool may_come_back(const struct cvy_diagnosis *d, int64_t step, double mean)
{
    return d->fresh && step - BLOCK < CVY_FIRST_STEPS && (d->block_last <= 0 || mean < d->block_last);
}

enum cvy_finding cvy_diagnose_loss(struct cvy_diagnosis *d, int64_t epoch, int64_t step, double loss, char *text)
{
    /* Healthy starts overshoot a little, and more so, in proportion, with few classes. */
    const double limit = 1.3 * fmax(d->guess_loss, d->start_loss) + 1.5;
    double mean;
    bool early;

    if (!isfinite(loss)) {
        d->block_sum = d->block_last = d->block_count = 0;
        if (d->reported[CVY_FINDING_NOT_FINITE])
            return CVY_FINDING_NONE;
        snprintf(text, CVY_FINDING_TEXT, "the loss of step %lld (epoch %lld) is not a finite number", (long long)step,
                 (long long)epoch);
        return report_once(d, CVY_FINDING_NOT_FINITE);
    }
    if (!d->fresh && d->start_loss <= 0) /* the weights may be worse than guessing */
        d->start_loss = loss;
    d->block_sum += loss;
    if (++d->block_count < BLOCK)
        return CVY_FINDING_NONE;
    mean = d->block_sum / d->block_count;
    early = may_come_back(d, step, mean);
    d->start_loss = fmin(d->start_loss, mean);
    d->block_last = mean;
    d->block_sum = d->block_count = 0;
    if (d->guess_loss <= 0 || mean <= limit || early || d->reported[CVY_FINDING_RATE])
        return CVY_FINDING_NONE;
    snprintf(text, CVY_FINDING_TEXT,
             "the loss has risen to %.3g (mean of %d steps up to step %lld), far above the %.3g of guessing: the "
             "learning rate is too high; try a tenth of --lr, or a longer --warmup",
             mean, BLOCK, (long long)step, d->guess_loss);
    return report_once(d, CVY_FINDING_RATE);
}

enum cvy_finding cvy_diagnose_scale(struct cvy_diagnosis *d, const struct cvy_scaler *scaler,
                                    const struct cvy_scaler_rule *rule, int32_t steps, char *text)
{
    const int32_t skipped = scaler->skipped - d->skipped;
    /* Below 1 scaling no longer helps small gradients. */
    const bool low = scaler->scale <= fmaxf(1, rule->smallest) && rule->skips;
    const bool first = !d->scale_read;

    d->scale_read = true;
    d->skipped = scaler->skipped;
    d->low_readings = !first && low && skipped * 2 >= steps ? d->low_readings + 1 : 0;
    if (d->low_readings < LOW_READINGS || d->reported[CVY_FINDING_LOSS_SCALE])
        return CVY_FINDING_NONE;
    snprintf(text, CVY_FINDING_TEXT,
             "the loss scale is down to %g and gradients overflow all the same: %d of the last %d steps were left out; "
             "the weights or the learning rate are too large for fp16; try a lower --lr, or --precision bf16 or fp32",
             (double)scaler->scale, (int)skipped, (int)steps);
    return report_once(d, CVY_FINDING_LOSS_SCALE);
}

enum cvy_finding cvy_diagnose_epoch(struct cvy_diagnosis *d, int64_t epoch, int64_t step, double loss, char *text)
{
    if (d->reported[CVY_FINDING_FLAT] || epoch < 1 || step < MIN_FLAT || !(loss >= FLAT * d->guess_loss) ||
        d->guess_loss <= 0 || d->reported[CVY_FINDING_RATE])
        return CVY_FINDING_NONE;
    snprintf(text, CVY_FINDING_TEXT,
             "after %s the training loss of %.4g is still that of guessing (%.4g): the labels may be shuffled, "
             "or the learning rate is far too low or too high; convoy check shows the classes and their images",
             cvy_counted(epoch + 1, "epoch"), loss, d->guess_loss);
    return report_once(d, CVY_FINDING_FLAT);
}

enum cvy_finding cvy_diagnose_data(struct cvy_diagnosis *d, const struct cvy_loader_stats *stats, const char *advice,
                                   char *text)
{
    if (d->reported[CVY_FINDING_DATA] || stats->images < MIN_LOADED || stats->elapsed < MIN_SECONDS ||
        stats->wait < WAITING * stats->elapsed)
        return CVY_FINDING_NONE;
    snprintf(text, CVY_FINDING_TEXT, "%.0f %% of the epoch's time went into waiting for images: %s",
             100 * stats->wait / stats->elapsed, advice);
    return report_once(d, CVY_FINDING_DATA);
}

/* The classes with the most images and with the most predictions. */
static void find_largest(const struct cvy_validation *v, int32_t *common, int32_t *predicted)
{
    *common = *predicted = 0;
    for (int32_t i = 1; i < v->class_count; i++) {
        if (v->class_images[i] > v->class_images[*common])
            *common = i;
        if (v->class_predicted[i] > v->class_predicted[*predicted])
            *predicted = i;
    }
}

enum cvy_finding cvy_diagnose_validation(struct cvy_diagnosis *d, const struct cvy_validation *v, int64_t step,
                                         double loss, char *text)
{
    const double images = (double)v->images;
    double chance, hits = 0;
    int32_t common, predicted;
    char buffer[32];

    if (step < MIN_STEPS || v->images < MIN_IMAGES || v->class_count < 2)
        return CVY_FINDING_NONE;
    find_largest(v, &common, &predicted);
    chance = (double)v->class_images[common] / images;
    if ((double)v->class_predicted[predicted] >= ONE_CLASS_SHARE * images) {
        /* Where nearly all images are of one class, that is the right answer. */
        if (d->reported[CVY_FINDING_ONE_CLASS] || (double)v->class_images[predicted] >= 0.9 * images)
            return CVY_FINDING_NONE;
        snprintf(text, CVY_FINDING_TEXT,
                 "%lld of the %lld validation images are taken for %s: the network has collapsed to one class; try a "
                 "lower --lr or a longer --warmup, and look at the labels with convoy check",
                 (long long)v->class_predicted[predicted], (long long)v->images,
                 cvy_quote(cvy_validation_class(v, predicted, buffer)));
        return report_once(d, CVY_FINDING_ONE_CLASS);
    }
    for (int32_t i = 0; i < v->class_count; i++)
        hits += (double)v->class_hits[i];
    d->best_share = fmax(d->best_share, hits / images);
    /* Three standard deviations of the hits of one who always says the most common class. */
    if (d->reported[CVY_FINDING_CHANCE] || step < MIN_FLAT || !(loss <= LEARNT * d->guess_loss) ||
        d->best_share * images > images * chance + 3 * sqrt(images * chance * (1 - chance)))
        return CVY_FINDING_NONE;
    snprintf(text, CVY_FINDING_TEXT,
             "the training loss has fallen to %.4g, but the validation accuracy of %.2f %% is what guessing gives: the "
             "labels of the training or the validation images look shuffled, or the two sets do not belong together; "
             "convoy check shows the classes and their images",
             loss, 100 * hits / images);
    return report_once(d, CVY_FINDING_CHANCE);
}
