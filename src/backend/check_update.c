/* The check of the optimizer's step and of sums over arenas: chunk by chunk, on the checked device and here. */
#include <float.h>
#include <math.h>

#include "backend/check_internal.h"
#include "base/error.h"

enum { CHUNK = 65536 }; /* elements that are compared at a time */

/* The buffers of a step, before and after, and its gradients. */
enum { WEIGHT, MOMENTUM, SQUARE, BUFFERS };
enum { SLOT_BEFORE = SLOT_IN, SLOT_GRADIENT = SLOT_BEFORE + BUFFERS, SLOT_AFTER, SLOT_END = SLOT_AFTER + BUFFERS };

cvy_status check_update_reserve(struct check_device *check)
{
    for (int i = SLOT_BEFORE; i < SLOT_END; i++)
        CVY_TRY(check_reserve(check, i, CHUNK * sizeof(float)));
    return CVY_OK;
}

/* What one element should become, and the size of what was added up for it. */
struct expected {
    double value[BUFFERS], size[BUFFERS];
};

static struct expected expect(const struct cvy_update *step, const struct cvy_update_segment *part,
                              const double before[BUFFERS], double gradient, float learning_rate)
{
    const double w = before[WEIGHT], rate = (double)learning_rate * (double)part->rate,
                 momentum = (double)step->momentum;
    const double scaled = gradient * (double)step->gradient_scale, decay = (double)part->weight_decay * w;
    const double d = scaled + decay, d_size = fabs(scaled) + fabs(decay), kept = momentum * before[MOMENTUM];
    const bool nesterov = step->nesterov && step->kind == CVY_UPDATE_SGD;
    struct expected e = {{0}, {0}};
    double divisor;

    if (step->kind == CVY_UPDATE_RMSPROP) {
        e.value[SQUARE] = step->alpha * before[SQUARE] + (1 - step->alpha) * d * d;
        e.size[SQUARE] = step->alpha * before[SQUARE] + (1 - step->alpha) * d_size * d_size;
        divisor = sqrt(e.value[SQUARE]) + step->epsilon;
        e.value[MOMENTUM] = kept + d / divisor;
        e.size[MOMENTUM] = fabs(kept) + d_size / divisor;
    } else {
        e.value[MOMENTUM] = kept + (1 - (double)step->dampening) * d;
        e.size[MOMENTUM] = fabs(kept) + d_size;
    }
    e.value[WEIGHT] = w - rate * (nesterov ? d + momentum * e.value[MOMENTUM] : e.value[MOMENTUM]);
    e.size[WEIGHT] = fabs(w) + rate * (e.size[MOMENTUM] + (nesterov ? d_size : 0));
    return e;
}

static cvy_status disagree(const struct check_device *check, const struct cvy_update *step,
                           const struct cvy_update_segment *part, int buffer, double error, double limit)
{
    static const char *const names[BUFFERS] = {"weights", "momentum", "squares"};

    return cvy_fail(CVY_FAILED,
                    "the %s step of %s disagrees with ref: %s %lld to %lld, relative rms error %.3g, limit %.3g",
                    step->kind == CVY_UPDATE_RMSPROP ? "rmsprop" : "sgd", check->inner->backend->name, names[buffer],
                    (long long)part->first, (long long)(part->first + part->count - 1), error, limit);
}

/* One chunk of one segment: the step on the checked device, then here from what was there before. */
static cvy_status check_step(struct check_device *check, const struct cvy_update *step,
                             const struct cvy_update_segment *part, void *context)
{
    cvy_device *inner = check->inner;
    const struct cvy_backend *backend = inner->backend;
    const size_t bytes = (size_t)part->count * sizeof(float);
    const int buffers = step->kind == CVY_UPDATE_RMSPROP ? BUFFERS : SQUARE;
    float *const arenas[BUFFERS] = {step->weights, step->momentum_buffer, step->square_average};
    float *gradients = check_slot(check, SLOT_GRADIENT), *before[BUFFERS], *after[BUFFERS];
    struct cvy_update one = *step;
    double difference[BUFFERS] = {0}, size[BUFFERS] = {0};
    float learning_rate;
    /* Roundings on the way to a weight: six, and five more for the squares, the root and the quotient. */
    const double limit = (step->kind == CVY_UPDATE_RMSPROP ? 11 : 6) * check_unit(CVY_F32);

    (void)context;
    one.segments = part;
    one.segment_count = 1;
    for (int k = 0; k < buffers; k++) {
        before[k] = check_slot(check, SLOT_BEFORE + k);
        after[k] = check_slot(check, SLOT_AFTER + k);
        CVY_TRY(backend->download(inner, before[k], arenas[k] + part->first, bytes));
    }
    CVY_TRY(backend->download(inner, gradients, step->gradients + part->first, bytes));
    CVY_TRY(backend->download(inner, &learning_rate, step->learning_rate, sizeof learning_rate));
    CVY_TRY(backend->update(inner, &one));
    for (int k = 0; k < buffers; k++)
        CVY_TRY(backend->download(inner, after[k], arenas[k] + part->first, bytes));
    for (int64_t i = 0; i < part->count; i++) {
        double now[BUFFERS] = {0};
        struct expected e;
        for (int k = 0; k < buffers; k++)
            now[k] = (double)before[k][i];
        e = expect(step, part, now, (double)gradients[i], learning_rate);
        for (int k = 0; k < buffers; k++) {
            /* Where a right step leaves no finite float, in a run that diverged, there is nothing to compare. */
            if (!(fabs(e.value[k]) <= (double)FLT_MAX))
                continue;
            difference[k] += pow((double)after[k][i] - e.value[k], 2);
            size[k] += e.size[k] * e.size[k];
        }
    }
    for (int k = 0; k < buffers; k++) {
        if (!(difference[k] <= limit * limit * size[k])) /* NaN where a finite number was expected is a fault */
            return disagree(check, step, part, k, sqrt(difference[k] / size[k]), limit);
    }
    return CVY_OK;
}

/* The chunks of all segments, in turn. */
static cvy_status for_chunks(struct check_device *check, const struct cvy_update *step,
                             cvy_status (*function)(struct check_device *check, const struct cvy_update *step,
                                                    const struct cvy_update_segment *part, void *context),
                             void *context)
{
    for (int32_t s = 0; s < step->segment_count; s++) {
        struct cvy_update_segment part = step->segments[s];
        const int64_t end = part.first + part.count;
        for (; part.first < end; part.first += CHUNK) {
            part.count = end - part.first < CHUNK ? end - part.first : CHUNK;
            CVY_TRY(function(check, step, &part, context));
        }
    }
    return CVY_OK;
}

static cvy_status find_overflow(struct check_device *check, const struct cvy_update *step,
                                const struct cvy_update_segment *part, void *context)
{
    float *gradients = check_slot(check, SLOT_GRADIENT);
    bool *overflow = context;

    CVY_TRY(check->inner->backend->download(check->inner, gradients, step->gradients + part->first,
                                            (size_t)part->count * sizeof *gradients));
    for (int64_t i = 0; i < part->count; i++)
        *overflow = *overflow || !isfinite(gradients[i]);
    return CVY_OK;
}

/* With a loss scale: its rule is followed here, and the chunks are checked as steps without one. */
static cvy_status check_scaled(struct check_device *check, const struct cvy_update *step)
{
    const struct cvy_backend *backend = check->inner->backend;
    struct cvy_update plain = *step;
    struct cvy_scaler scaler;
    bool overflow = false;

    CVY_TRY(cvy_update_check(step));
    if (!step->scaler)
        return for_chunks(check, step, check_step, NULL);
    CVY_TRY(backend->download(check->inner, &scaler, step->scaler, sizeof scaler));
    if (step->rule.skips)
        CVY_TRY(for_chunks(check, step, find_overflow, &overflow));
    scaler.overflow = overflow;
    plain.scaler = NULL;
    plain.gradient_scale = step->gradient_scale / scaler.scale;
    if (!overflow)
        CVY_TRY(for_chunks(check, &plain, check_step, NULL));
    cvy_scaler_update(&scaler, &step->rule);
    return backend->upload(check->inner, step->scaler, &scaler, sizeof scaler);
}

cvy_status check_update(cvy_device *device, const struct cvy_update *step)
{
    struct check_device *check = check_of(device);
    cvy_status status;

    pthread_mutex_lock(&check->lock);
    status = check_scaled(check, step);
    pthread_mutex_unlock(&check->lock);
    return status;
}

/* ---- sums over arenas ---- */

static cvy_status check_part(struct check_device *check, enum cvy_combine how, float *y, const float *x, int64_t count,
                             const float *share)
{
    cvy_device *inner = check->inner;
    const struct cvy_backend *backend = inner->backend;
    const size_t bytes = (size_t)count * sizeof(float);
    float *before = check_slot(check, SLOT_BEFORE), *other = check_slot(check, SLOT_GRADIENT);
    float *after = check_slot(check, SLOT_AFTER), part = 0;
    const double limit = 4 * check_unit(CVY_F32); /* a difference, the share, a product, a sum */

    if (how == CVY_COMBINE_TOWARDS)
        CVY_TRY(backend->download(inner, &part, share, sizeof part));
    CVY_TRY(backend->download(inner, before, y, bytes));
    CVY_TRY(backend->download(inner, other, x, bytes));
    CVY_TRY(backend->combine(inner, how, y, x, count, share));
    CVY_TRY(backend->download(inner, after, y, bytes));
    for (int64_t i = 0; i < count; i++) {
        const double a = (double)before[i], b = (double)other[i];
        const double expected = how == CVY_COMBINE_COPY  ? b
                                : how == CVY_COMBINE_ADD ? a + b
                                                         : a + (double)part * (b - a);
        if (isfinite(expected) && fabs(expected) <= (double)FLT_MAX &&
            !(fabs((double)after[i] - expected) <= limit * (fabs(a) + fabs(b))))
            return cvy_fail(CVY_FAILED, "a sum of arenas on %s disagrees with ref: %g and %g became %g instead of %g",
                            backend->name, a, b, (double)after[i], expected);
    }
    return CVY_OK;
}

cvy_status check_combine(cvy_device *device, enum cvy_combine how, float *y, const float *x, int64_t count,
                         const float *share)
{
    struct check_device *check = check_of(device);
    cvy_status status = CVY_OK;

    pthread_mutex_lock(&check->lock);
    for (int64_t first = 0; first < count && status == CVY_OK; first += CHUNK)
        status = check_part(check, how, y + first, x + first, count - first < CHUNK ? count - first : CHUNK, share);
    pthread_mutex_unlock(&check->lock);
    return status;
}
