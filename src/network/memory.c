/* Estimates the memory of a run from the plans that it would use. */
#include "network/memory.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/resources.h"
#include "network/streams.h"

/* The share of the available memory that a chosen batch may take: the rest is for the files that the system caches and
 * for what else happens on the machine while the run lasts. */
static const double CHOSEN_SHARE = 0.8;

/* Pages of code and libraries that the first step touches after everything is prepared, and the stacks of a thread. */
static const size_t LATE_PROGRAM = (size_t)4 << 20, LATE_THREAD = (size_t)256 << 10;
/* What a stream has beside its activations, for each step of its plan: graphs, steps, kernels, a device. ResNet-50:
 * 220 steps, 3.3 MB. */
static const size_t STREAM_STEP = (size_t)15 << 10;

/* ---- the estimate ---- */

/* `timing`: kernels that have candidates are timed, as for a plan that will run. */
static cvy_status inspect_plan(const struct cvy_memory_case *run, enum cvy_model_mode mode, int64_t batch, bool timing,
                               size_t *bytes, struct cvy_memory_estimate *estimate)
{
    /* Weights, and in training gradients, momentum and what it needs more. */
    const size_t extras =
        (run->extras & CVY_EXTRA_SQUARE_AVERAGE ? 1 : 0) + (run->extras & CVY_EXTRA_GRADIENT_SUM ? 1 : 0);
    const size_t averages = run->average ? 1 : 0, stores = run->snapshot ? 2 : 1,
                 states = run->loaded ? 0 : stores * (1 + averages);
    /* A snapshot has neither gradients nor their sum. */
    const size_t kept = run->snapshot ? 2 + (run->extras & CVY_EXTRA_SQUARE_AVERAGE ? 1 : 0) + averages : 0;
    const size_t copies = run->loaded ? 0 : (run->training ? 3 + extras : 1) + averages + kept;
    struct cvy_graph graph;
    struct cvy_split split;
    struct cvy_plan plan = {0};
    struct cvy_store absent;
    cvy_device *device = run->device, *one = NULL;
    cvy_status status;

    CVY_TRY(cvy_network_graph(run->architecture, run->model, device, run->dtype, mode,
                              mode == CVY_MODEL_INFER ? run->int8_state : NULL, &graph));
    split = cvy_split_batch(&graph, device, run->constant, batch);
    if (split.streams > 1) {
        CVY_GOTO(cvy_stream_device_open(device, &one));
        device = one;
    }
    absent = (struct cvy_store){
        .device = device, .trainable_elements = graph.trainable_elements, .state_elements = graph.state_elements};
    CVY_GOTO(cvy_plan_prepare(&plan, device, timing ? &absent : NULL, &graph, split.images));
    *bytes = cvy_streams_bytes(&plan, split.streams) - (run->beside ? plan.constant_bytes : 0);
    estimate->streams = (size_t)(split.streams - 1) * (size_t)plan.step_count * STREAM_STEP;
    estimate->parameters =
        (copies * (size_t)plan.graph.trainable_elements + states * (size_t)plan.graph.state_elements) * sizeof(float);
fail:
    cvy_plan_close(&plan);
    cvy_graph_release(&graph);
    cvy_stream_device_close(one);
    return status;
}

static cvy_status estimate_run(const struct cvy_memory_case *run, bool timing, struct cvy_memory_estimate *estimate)
{
    const enum cvy_model_mode mode = run->training ? CVY_MODEL_TRAIN : CVY_MODEL_INFER;
    const int64_t evaluated = run->training ? run->evaluation_batch : run->batch;
    size_t images, results, statistics = 0, last = 0;

    memset(estimate, 0, sizeof *estimate);
    if (run->evaluation_batch > 0)
        CVY_TRY(inspect_plan(run, CVY_MODEL_INFER, run->evaluation_batch, timing, &estimate->evaluation, estimate));
    if (run->statistics)
        CVY_TRY(inspect_plan(run, CVY_MODEL_STATISTICS, run->batch, timing, &statistics, estimate));
    if (run->training && run->images % run->batch > 0) {
        const int64_t rest = run->images % run->batch;
        const cvy_status status = inspect_plan(run, mode, rest, timing, &last, estimate);
        if (status != CVY_OK)
            return cvy_fail_context(status, "the last batch of an epoch, of %s", cvy_counted(rest, "image"));
    }
    CVY_TRY(inspect_plan(run, mode, run->batch, timing, &estimate->plan, estimate));
    estimate->workspace = estimate->plan > estimate->evaluation ? estimate->plan : estimate->evaluation;
    if (statistics > estimate->workspace)
        estimate->workspace = statistics;
    if (last > estimate->workspace)
        estimate->workspace = last;
    if (!cvy_size_mul((size_t)run->batch, run->image_data, &images) ||
        !cvy_size_mul((size_t)evaluated, 2 * (size_t)run->model->num_classes * sizeof(float), &results) ||
        !cvy_size_add(images, results, &estimate->data) ||
        !cvy_size_add(estimate->data, run->other_data, &estimate->data) ||
        !cvy_size_add(estimate->data, cvy_image_lane_bytes(&run->lanes, run->batch), &estimate->data))
        return cvy_fail(CVY_NO_MEMORY, "a batch of %lld images is too large", (long long)run->batch);
    /* Last, so that the code generated for the kernels is part of it; later plans use it again. */
    if (run->device->backend->host_memory)
        estimate->program = cvy_resident_memory() + LATE_PROGRAM + LATE_THREAD * (size_t)run->device->threads;
    estimate->total =
        estimate->program + estimate->parameters + estimate->workspace + estimate->streams + estimate->data;
    return CVY_OK;
}

cvy_status cvy_memory_estimate(const struct cvy_memory_case *run, struct cvy_memory_estimate *estimate)
{
    return estimate_run(run, false, estimate);
}

const char *cvy_memory_text(size_t bytes, char buffer[32])
{
    const double mebibytes = (double)bytes / (1024.0 * 1024.0);

    if (mebibytes < 1024)
        snprintf(buffer, 32, "%.0f MiB", mebibytes);
    else
        snprintf(buffer, 32, "%.1f GiB", mebibytes / 1024);
    return buffer;
}

/* ---- the largest batch ---- */

/* What a run takes beyond what the process has already. */
static size_t to_come(const struct cvy_memory_estimate *estimate)
{
    return estimate->total - estimate->program;
}

/* Whether what is still to come takes at most `share` of what there is. */
static bool fits_in_memory(const struct cvy_memory_estimate *estimate, size_t available, double share)
{
    return available == SIZE_MAX || (double)to_come(estimate) <= share * (double)available;
}

/* Whether a batch fits; one too small for a training, or too large to be counted, does not. */
static cvy_status try_batch(const struct cvy_memory_case *run, size_t available, double share, int64_t batch,
                            bool *good, struct cvy_memory_estimate *estimate)
{
    struct cvy_memory_case one = *run;
    cvy_status status;

    one.batch = batch;
    status = cvy_memory_estimate(&one, estimate);
    *good = status == CVY_OK && fits_in_memory(estimate, available, share);
    return status == CVY_USAGE || status == CVY_NO_MEMORY ? CVY_OK : status;
}

/* The candidates in order: 1, 2, 4, 8 and the multiples of 8. */
static int64_t below(int64_t batch)
{
    return batch > 8 ? (batch - 1) / 8 * 8 : batch / 2;
}

static int64_t above(int64_t batch)
{
    return batch < 1 ? 1 : batch < 8 ? 2 * batch : batch / 8 * 8 + 8;
}

/* The largest candidate that is not above `max`. */
static int64_t candidate(int64_t max)
{
    return max >= 8 ? max / 8 * 8 : max >= 4 ? 4 : max > 0 ? max : 0;
}

/* What a plan takes grows almost evenly with the batch: a line through two batches says where to look next, halving
 * takes over where the line is wrong, and the answer is always one that was tried beside one above it that failed. */
cvy_status cvy_memory_largest_batch(const struct cvy_memory_case *run, size_t available, double share, int64_t max,
                                    int64_t *batch)
{
    struct cvy_memory_estimate estimate;
    int64_t low = 0, high = candidate(max);
    size_t low_bytes = 0, high_bytes;
    bool good, halve = false;

    *batch = high;
    CVY_TRY(try_batch(run, available, share, high, &good, &estimate));
    if (good)
        return CVY_OK;
    high_bytes = to_come(&estimate);
    while (above(low) < high) {
        const double slope = ((double)high_bytes - (double)low_bytes) / (double)(high - low);
        const int64_t width = high - low;
        double guess = (double)low + (double)width / 2;
        int64_t next;
        if (low > 0 && !halve && slope > 0)
            guess = (double)low + (share * (double)available - (double)low_bytes) / slope;
        else if (low == 0)
            guess = 8; /* cheap to look at, and the line's first point */
        next = guess >= (double)below(high) ? below(high) : candidate((int64_t)guess);
        if (next <= low)
            next = above(low);
        CVY_TRY(try_batch(run, available, share, next, &good, &estimate));
        if (good) {
            low = next;
            low_bytes = to_come(&estimate);
        } else {
            high = next;
            high_bytes = to_come(&estimate);
        }
        halve = !halve && 2 * (high - low) > width;
    }
    *batch = low;
    return CVY_OK;
}

/* ---- the verdicts ---- */

static cvy_status refuse(const struct cvy_memory_case *run, size_t available, double share,
                         const struct cvy_memory_estimate *estimate)
{
    char needed[32], there[32], advice[96] = "no batch fits";
    int64_t largest = 0;

    if (run->batch > 1)
        CVY_TRY(cvy_memory_largest_batch(run, available, share, run->batch - 1, &largest));
    if (largest > 0)
        snprintf(advice, sizeof advice, "the largest batch that fits is %lld", (long long)largest);
    return cvy_fail(CVY_NO_MEMORY,
                    "%s %s on images of %d x %d pixels in batches of %lld needs %s of memory, and %s can be had: %s",
                    run->training ? "training" : "running", run->architecture->name, (int)run->model->image_size,
                    (int)run->model->image_size, (long long)run->batch, cvy_memory_text(estimate->total, needed),
                    cvy_memory_text(estimate->program + (size_t)(share * (double)available), there), advice);
}

cvy_status cvy_memory_check(const struct cvy_memory_case *run, size_t available, struct cvy_memory_estimate *estimate)
{
    CVY_TRY(cvy_memory_estimate(run, estimate));
    if (!run->dry_run && fits_in_memory(estimate, available, 1)) /* with other kernels it may become more */
        CVY_TRY(estimate_run(run, true, estimate));
    return fits_in_memory(estimate, available, 1) ? CVY_OK : refuse(run, available, 1, estimate);
}

cvy_status cvy_memory_choose_batch(const struct cvy_memory_case *run, int64_t max, int64_t *batch)
{
    const size_t available = run->share ? run->share : cvy_device_available_memory(run->device);
    struct cvy_memory_case one = *run;
    struct cvy_memory_estimate estimate;

    CVY_TRY(cvy_memory_largest_batch(run, available, CHOSEN_SHARE, max, batch));
    if (*batch > 0)
        return CVY_OK;
    one.batch = run->training ? 2 : 1;
    CVY_TRY(cvy_memory_estimate(&one, &estimate));
    return refuse(&one, available, CHOSEN_SHARE, &estimate);
}
