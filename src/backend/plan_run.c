/* Passes through a plan: step by step, or captured by the device and launched. */
#include <string.h>

#include "backend/plan_internal.h"
#include "base/error.h"
#include "base/log.h"
#include "base/system.h"

static cvy_status run_step(struct cvy_plan *plan, struct cvy_plan_step *step)
{
    const struct cvy_kernel_plan *kernel = &step->kernel;
    double start = 0;
    cvy_status status;

    if (plan->profile) {
        CVY_TRY(plan->device->backend->synchronize(plan->device));
        start = cvy_clock();
    }
    status = kernel->kernel->run(plan->device, kernel, step->in_ptr, step->out_ptr, step->scratch_ptr);
    if (status != CVY_OK)
        return cvy_fail_context(status, "%s%s%s", step->scope, step->scope[0] ? " " : "", kernel->kernel->name);
    if (plan->profile) {
        CVY_TRY(plan->device->backend->synchronize(plan->device));
        step->seconds += cvy_clock() - start;
    }
    return CVY_OK;
}

/* The gradients that are final after step `end` - 1, from number *ready on. */
static cvy_status notify_ready(const struct cvy_plan *plan, int32_t end, int32_t *ready,
                               const struct cvy_plan_pass *pass)
{
    for (; *ready < plan->ready_count && plan->ready[*ready].step < end; ++*ready) {
        if (pass->ready)
            CVY_TRY(pass->ready(pass->context, plan->ready[*ready].param));
    }
    return CVY_OK;
}

/* The steps of the setup. */
static cvy_status run_setup(struct cvy_plan *plan)
{
    for (int32_t s = 0; s < plan->step_count; s++) {
        if (plan->steps[s].setup && !plan->steps[s].left_out)
            CVY_TRY(run_step(plan, &plan->steps[s]));
    }
    return CVY_OK;
}

cvy_status cvy_plan_make_constants(struct cvy_plan *plan)
{
    CVY_TRY(cvy_device_enter(plan->device));
    if (plan->store_version != plan->store->version)
        CVY_TRY(run_setup(plan));
    plan->store_version = plan->store->version;
    return CVY_OK;
}

int32_t cvy_plan_at_once(const struct cvy_plan *plan, int32_t from, int32_t end)
{
    const struct cvy_plan_step *first = &plan->steps[from];
    int32_t s = from + 1;

    if (!first->gathered || plan->profile)
        return 1;
    while (s < end && s - from < CVY_MANY_CALLS && plan->steps[s].gathered &&
           plan->steps[s].kernel.kernel->run_many == first->kernel.kernel->run_many)
        s++;
    return s - from;
}

static cvy_status run_at_once(struct cvy_plan *plan, int32_t from, int32_t count)
{
    struct cvy_kernel_call calls[CVY_MANY_CALLS];
    const struct cvy_kernel *kernel = plan->steps[from].kernel.kernel;
    cvy_status status;

    for (int32_t i = 0; i < count; i++) {
        const struct cvy_plan_step *step = &plan->steps[from + i];

        calls[i] = (struct cvy_kernel_call){&step->kernel, step->in_ptr, step->out_ptr};
    }
    status = kernel->run_many(plan->device, calls, count);
    return status == CVY_OK ? CVY_OK : cvy_fail_context(status, "%d times %s", (int)count, kernel->name);
}

static cvy_status run_chain(struct cvy_plan *plan, const struct cvy_plan_chain *chain)
{
    struct cvy_chain now = chain->chain;

    for (int32_t c = 0; plan->profile && c < now.count; c++)
        now.calls[c].seconds = &plan->steps[chain->from + c].seconds;
    const cvy_status status = plan->device->backend->run_chain(plan->device, &now);
    return status == CVY_OK ? CVY_OK
                            : cvy_fail_context(status, "%s and the %d steps after it", plan->steps[chain->from].scope,
                                               (int)now.count - 1);
}

/* All others of a stretch. */
static cvy_status run_steps(struct cvy_plan *plan, int32_t from, int32_t end, const struct cvy_plan_pass *pass)
{
    int32_t ready = 0;

    for (int32_t s = from, count; s < end; s += count) {
        count = 1;
        if (plan->steps[s].setup)
            continue;
        if (plan->steps[s].chain >= 0) {
            const struct cvy_plan_chain *chain = &plan->chains[plan->steps[s].chain];
            CVY_TRY(run_chain(plan, chain));
            count = chain->end - s;
            CVY_TRY(notify_ready(plan, s + count, &ready, pass));
            continue;
        }
        count = cvy_plan_at_once(plan, s, end);
        if (count > 1)
            CVY_TRY(run_at_once(plan, s, count));
        else
            CVY_TRY(run_step(plan, &plan->steps[s]));
        CVY_TRY(notify_ready(plan, s + count, &ready, pass));
    }
    return CVY_OK;
}

/* A whole pass, step by step. */
static cvy_status run_pass(struct cvy_plan *plan, const struct cvy_plan_pass *pass)
{
    CVY_TRY(run_steps(plan, 0, plan->step_count, pass));
    if (pass->fence)
        CVY_TRY(pass->fence(pass->context));
    return pass->tail ? pass->tail(pass->context) : CVY_OK;
}

/* ---- captures ---- */

/* The parts of a captured pass. */
static int32_t count_parts(const struct cvy_plan *plan)
{
    int32_t count = 1;

    for (int32_t i = 0; i < plan->ready_count; i++)
        count += plan->ready[i].ends_part;
    return count;
}

static void destroy_capture(struct cvy_plan *plan, struct cvy_plan_capture *capture)
{
    for (int32_t i = 0; capture->parts && i <= count_parts(plan); i++) {
        if (capture->parts[i])
            plan->device->backend->destroy_capture(plan->device, capture->parts[i]);
    }
    cvy_free(capture->parts);
    capture->parts = NULL;
}

void cvy_plan_destroy_captures(struct cvy_plan *plan)
{
    for (int32_t i = 0; i < CVY_PLAN_CAPTURES; i++)
        destroy_capture(plan, &plan->captures[i]);
}

/* The end of a part, the step after it: that of the first gradient from number *next on that ends one. *next: the one
 * after it. */
static int32_t end_of_part(const struct cvy_plan *plan, int32_t *next)
{
    while (*next < plan->ready_count && !plan->ready[*next].ends_part)
        ++*next;
    return *next < plan->ready_count ? plan->ready[(*next)++].step + 1 : plan->step_count;
}

/* The capture for the currently bound inputs and this kind of pass, or an empty slot for one. */
static struct cvy_plan_capture *find_capture(struct cvy_plan *plan, const struct cvy_plan_pass *pass)
{
    struct cvy_plan_capture *capture;

    for (int32_t i = 0; i < CVY_PLAN_CAPTURES; i++) {
        capture = &plan->captures[i];
        if (capture->parts && memcmp(capture->inputs, plan->bound, sizeof plan->bound) == 0 &&
            capture->fence == pass->fence && capture->tail == pass->tail && capture->kind == pass->kind)
            return capture;
    }
    capture = &plan->captures[plan->next_capture];
    plan->next_capture = (plan->next_capture + 1) % CVY_PLAN_CAPTURES;
    destroy_capture(plan, capture);
    memcpy(capture->inputs, plan->bound, sizeof plan->bound);
    capture->fence = pass->fence;
    capture->tail = pass->tail;
    capture->kind = pass->kind;
    return capture;
}

/* Some steps, and after them the tail of a pass (NULL: none). *part is NULL on failure: a part of a part is none. */
static cvy_status capture_part(struct cvy_plan *plan, int32_t from, int32_t end, const struct cvy_plan_pass *tail,
                               void **part)
{
    static const struct cvy_plan_pass quiet = {0};
    const struct cvy_backend *backend = plan->device->backend;
    cvy_status status, ended;
    char reason[512];

    CVY_TRY(backend->capture_begin(plan->device));
    status = run_steps(plan, from, end, &quiet);
    if (status == CVY_OK && tail)
        status = tail->tail(tail->context);
    cvy_error_get(reason, sizeof reason);
    ended = backend->capture_end(plan->device, part);
    if (status == CVY_OK)
        return ended;
    if (*part)
        backend->destroy_capture(plan->device, *part);
    *part = NULL;
    cvy_error_put(reason); /* what failed first is the reason */
    return status;
}

static cvy_status capture_pass(struct cvy_plan *plan, const struct cvy_plan_pass *pass,
                               struct cvy_plan_capture *capture)
{
    const int32_t count = count_parts(plan), end_of_all = plan->step_count;
    const bool separate = pass->tail && pass->fence;
    cvy_status status;

    capture->parts = cvy_calloc((size_t)count + 1, sizeof *capture->parts);
    if (!capture->parts)
        return cvy_fail_memory((size_t)count * sizeof *capture->parts, "a recorded pass");
    for (int32_t i = 0, next = 0, from = 0; i < count; i++) {
        const int32_t end = end_of_part(plan, &next);
        const struct cvy_plan_pass *tail = i + 1 == count && pass->tail && !separate ? pass : NULL;

        if (from < end || tail) /* two gradients may become final with one step */
            CVY_GOTO(capture_part(plan, from, end, tail, &capture->parts[i]));
        from = end;
    }
    if (separate)
        CVY_GOTO(capture_part(plan, end_of_all, end_of_all, pass, &capture->parts[count]));
    return CVY_OK;
fail:
    destroy_capture(plan, capture);
    return status;
}

static cvy_status launch_part(const struct cvy_plan *plan, void *part)
{
    return part ? plan->device->backend->launch(plan->device, part) : CVY_OK;
}

static cvy_status launch_capture(struct cvy_plan *plan, const struct cvy_plan_pass *pass)
{
    struct cvy_plan_capture *capture = find_capture(plan, pass);
    const int32_t count = count_parts(plan);
    int32_t ready = 0;
    cvy_status status;

    if (!capture->parts) {
        /* Capturing may wait for the device, outside the control of its owner. */
        CVY_TRY(plan->device->backend->synchronize(plan->device));
        status = capture_pass(plan, pass, capture);
        if (status == CVY_FAILED) { /* nothing has run yet */
            cvy_log(CVY_LOG_WARNING, "passes are not recorded, and each kernel is started by itself: %s", cvy_error());
            plan->capture = false;
            return run_pass(plan, pass);
        }
        CVY_TRY(status);
    }
    for (int32_t i = 0, next = 0; i < count; i++) {
        CVY_TRY(launch_part(plan, capture->parts[i]));
        CVY_TRY(notify_ready(plan, end_of_part(plan, &next), &ready, pass));
    }
    if (pass->fence)
        CVY_TRY(pass->fence(pass->context));
    return launch_part(plan, capture->parts[count]);
}

/* The first pass of a kind is never captured: libraries initialise themselves in it. */
static bool can_capture(const struct cvy_plan *plan, int32_t kind)
{
    return plan->capture && !plan->profile && plan->seen >> kind & 1 && plan->device->backend->capture_begin &&
           plan->graph.input_count <= CVY_PLAN_INPUTS;
}

cvy_status cvy_plan_run(struct cvy_plan *plan, const struct cvy_plan_pass *pass)
{
    static const struct cvy_plan_pass alone = {0};
    bool setup;

    pass = pass ? pass : &alone;
    if (!plan->placed)
        return cvy_fail(CVY_FAILED, "this plan is a dry run: it has no memory to run in");
    CVY_TRY(cvy_device_enter(plan->device));
    if (plan->workspace && plan->workspace->user != plan) {
        plan->workspace->user = plan;
        plan->store_version = 0; /* of no store: the constants are to be made again */
    }
    setup = plan->store_version != plan->store->version;
    if (setup)
        CVY_TRY(run_setup(plan));
    if (can_capture(plan, pass->kind)) {
        CVY_TRY(launch_capture(plan, pass));
    } else {
        CVY_TRY(run_pass(plan, pass));
        plan->seen |= 1U << pass->kind;
    }
    plan->store_version = plan->store->version;
    return CVY_OK;
}
