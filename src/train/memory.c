/* The memory of a run, summed up from the plans that would run it. */
#include "train/memory.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/limits.h"

/* The share of the available memory that a chosen batch may take: the rest is for the files that the system caches and
 * for what else happens on the machine while the run lasts. */
static const double CHOSEN_SHARE = 0.8;

/* Pages of code and libraries that the first step touches after everything is prepared, and the stacks of a thread. */
static const size_t LATE_PROGRAM = (size_t)4 << 20, LATE_THREAD = (size_t)256 << 10;

/* ---- the estimate ---- */

/* `timing`: kernels that have rivals are timed, as for a plan that will run. */
static cvy_status look_at_plan(const struct cvy_memory_case *run, enum cvy_model_mode mode, int64_t batch, bool timing,
                               size_t *bytes, struct cvy_memory_estimate *estimate)
{
    const size_t copies = run->loaded ? 0 : run->training ? 3 : 1; /* weights, and in training gradients and momentum */
    struct cvy_graph graph;
    struct cvy_plan plan;
    struct cvy_store absent;

    CVY_TRY(cvy_network_graph(run->architecture, run->model, run->dtype, mode, &graph));
    absent = (struct cvy_store){
        .device = run->device, .trainable_elements = graph.trainable_elements, .state_elements = graph.state_elements};
    CVY_TRY(cvy_plan_prepare(&plan, run->device, timing ? &absent : NULL, &graph, batch));
    *bytes = cvy_plan_bytes(&plan);
    estimate->parameters =
        (copies * (size_t)plan.graph.trainable_elements + (copies > 0) * (size_t)plan.graph.state_elements) *
        sizeof(float);
    cvy_plan_close(&plan);
    return CVY_OK;
}

static cvy_status estimate_run(const struct cvy_memory_case *run, bool timing, struct cvy_memory_estimate *estimate)
{
    const enum cvy_model_mode mode = run->training ? CVY_MODEL_TRAIN : CVY_MODEL_INFER;
    const int64_t evaluated = run->training ? run->evaluation_batch : run->batch;
    size_t images, results;

    memset(estimate, 0, sizeof *estimate);
    if (run->evaluation_batch > 0)
        CVY_TRY(look_at_plan(run, CVY_MODEL_INFER, run->evaluation_batch, timing, &estimate->evaluation, estimate));
    CVY_TRY(look_at_plan(run, mode, run->batch, timing, &estimate->plan, estimate));
    estimate->workspace = estimate->plan > estimate->evaluation ? estimate->plan : estimate->evaluation;
    if (!cvy_size_mul((size_t)run->batch, run->image_data, &images) ||
        !cvy_size_mul((size_t)evaluated, 2 * (size_t)run->model->num_classes * sizeof(float), &results) ||
        !cvy_size_add(images, results, &estimate->data) ||
        !cvy_size_add(estimate->data, run->other_data, &estimate->data))
        return cvy_fail(CVY_NO_MEMORY, "a batch of %lld images is too large", (long long)run->batch);
    /* Last, so that the code generated for the kernels is part of it; later plans use it again. */
    estimate->program = cvy_resident_memory() + LATE_PROGRAM + LATE_THREAD * (size_t)run->device->threads;
    estimate->total = estimate->program + estimate->parameters + estimate->workspace + estimate->data;
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

/* Whether what is still to come takes at most `share` of what there is. */
static bool is_room(const struct cvy_memory_estimate *estimate, size_t available, double share)
{
    return available == SIZE_MAX || (double)(estimate->total - estimate->program) <= share * (double)available;
}

/* Whether a batch fits; one too small for a training, or too large to be counted, does not. */
static cvy_status try_batch(const struct cvy_memory_case *run, size_t available, double share, int64_t batch,
                            bool *good, struct cvy_memory_estimate *estimate)
{
    struct cvy_memory_case one = *run;
    cvy_status status;

    one.batch = batch;
    status = cvy_memory_estimate(&one, estimate);
    *good = status == CVY_OK && is_room(estimate, available, share);
    return status == CVY_USAGE || status == CVY_NO_MEMORY ? CVY_OK : status;
}

/* The next smaller candidate. */
static int64_t below(int64_t batch)
{
    return batch > 8 ? (batch - 1) / 8 * 8 : batch / 2;
}

/* What a plan takes grows almost evenly with the batch: a line through two small batches says where to look, and plans
 * of that size have the last word. */
cvy_status cvy_memory_largest_batch(const struct cvy_memory_case *run, size_t available, double share, int64_t most,
                                    int64_t *batch)
{
    struct cvy_memory_estimate small, large;
    double slope, guess;
    bool good;

    *batch = most >= 8 ? most / 8 * 8 : most >= 4 ? 4 : most;
    CVY_TRY(try_batch(run, available, share, *batch, &good, &large));
    if (good)
        return CVY_OK;
    if (*batch > 16) {
        CVY_TRY(try_batch(run, available, share, 16, &good, &large));
        CVY_TRY(try_batch(run, available, share, 8, &good, &small));
        slope = ((double)large.total - (double)small.total) / 8;
        guess = slope > 0 ? 8 + (share * (double)available - (double)(small.total - small.program)) / slope : 0;
        guess += 16; /* two candidates more than the line says: it is not exact */
        if (guess < (double)*batch)
            *batch = guess < 16 ? 16 : (int64_t)guess / 8 * 8;
    }
    for (; *batch > 0; *batch = below(*batch)) {
        CVY_TRY(try_batch(run, available, share, *batch, &good, &large));
        if (good)
            break;
    }
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
                    "%s %s on %d x %d pixels in batches of %lld needs %s of memory, and %s can be had: %s",
                    run->training ? "training" : "running", run->architecture->name, (int)run->model->image_size,
                    (int)run->model->image_size, (long long)run->batch, cvy_memory_text(estimate->total, needed),
                    cvy_memory_text(estimate->program + (size_t)(share * (double)available), there), advice);
}

cvy_status cvy_memory_check(const struct cvy_memory_case *run, size_t available, struct cvy_memory_estimate *estimate)
{
    CVY_TRY(cvy_memory_estimate(run, estimate));
    if (!run->only_look && is_room(estimate, available, 1)) /* with other kernels it may become more */
        CVY_TRY(estimate_run(run, true, estimate));
    return is_room(estimate, available, 1) ? CVY_OK : refuse(run, available, 1, estimate);
}

cvy_status cvy_memory_choose_batch(const struct cvy_memory_case *run, int64_t most, int64_t *batch)
{
    const size_t available = cvy_available_memory();
    struct cvy_memory_case one = *run;
    struct cvy_memory_estimate estimate;

    CVY_TRY(cvy_memory_largest_batch(run, available, CHOSEN_SHARE, most, batch));
    if (*batch > 0)
        return CVY_OK;
    one.batch = run->training ? 2 : 1;
    CVY_TRY(cvy_memory_estimate(&one, &estimate));
    return refuse(&one, available, CHOSEN_SHARE, &estimate);
}
