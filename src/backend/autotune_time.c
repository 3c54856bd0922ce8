/* Times the candidates. All of them work in the same memory and run in turns, so that a busy moment of the machine
 * affects them all; the shortest of their times counts. A kernel that wants another layout than the given one is
 * charged for the reorder, and so is one whose output the neighbours want otherwise. */
#include <string.h>

#include "backend/autotune_internal.h"
#include "base/error.h"
#include "base/rng.h"
#include "base/system.h"

/* Rounds after one to warm up: as many as it takes for a few undisturbed runs of a short operation, few of a long one.
 */
enum { ROUNDS = 6, MAX_ROUNDS = 60, MIN_ROUNDS = 2 };
static const double short_enough = 0.03, long_enough = 0.3; /* seconds for all rounds of one operation */
/* Where a candidate has had no run without another program on its cores, it gets as many rounds again, this often. */
enum { MORE_ROUNDS = 2 };
/* In a long operation a candidate that takes this many times the best's time is not run again. */
static const double patience = 0.1, hopeless_ratio = 1.5;

enum { PATTERN_WORDS = 1 << 16 };

/* Numbers that are tame whether they are read as f32 or as pairs of bf16: both halves of a word are the upper half of
 * a float of 0.5 to 2, of either sign. */
static void make_pattern(uint32_t *words)
{
    struct cvy_rng rng = cvy_rng_new(0, CVY_RNG_BENCH, 0, 0);

    for (int i = 0; i < PATTERN_WORDS; i++)
        words[i] = (cvy_rng_u32(&rng) & 0x80FF80FFu) + 0x3F003F00u;
}

static cvy_status fill(cvy_device *device, void *memory, size_t bytes)
{
    uint32_t *words = cvy_calloc(PATTERN_WORDS, sizeof *words);
    cvy_status status = CVY_OK;

    if (!words)
        return cvy_fail_memory(PATTERN_WORDS * sizeof *words, "random numbers");
    make_pattern(words);
    for (size_t done = 0; done < bytes && status == CVY_OK; done += PATTERN_WORDS * sizeof *words) {
        const size_t left = bytes - done, piece = PATTERN_WORDS * sizeof *words;
        status = device->backend->upload(device, (char *)memory + done, words, left < piece ? left : piece);
    }
    cvy_free(words);
    return status;
}

/* Let a buffer have at least this many bytes, filled with numbers. */
static cvy_status reserve(struct cvy_selection *selection, int index, size_t bytes)
{
    struct cvy_autotune_buffer *buffer = &selection->buffers[index];
    cvy_device *device = selection->device;

    if (bytes <= buffer->bytes)
        return CVY_OK;
    device->backend->release(device, buffer->memory);
    *buffer = (struct cvy_autotune_buffer){NULL, 0};
    CVY_TRY(device->backend->allocate(device, bytes, &buffer->memory));
    buffer->bytes = bytes;
    return fill(device, buffer->memory, bytes);
}

static cvy_status reserve_tensor(struct cvy_selection *selection, int index, const struct cvy_tensor *tensor)
{
    const size_t bytes = selection->device->backend->tensor_bytes(selection->device, tensor);

    if (bytes == 0)
        return cvy_fail(CVY_UNAVAILABLE, "a tensor is too large");
    return reserve(selection, index, bytes);
}

static cvy_status reserve_candidate(struct cvy_selection *selection, struct autotune_candidate *c)
{
    cvy_device *device = selection->device;

    for (int i = 0; i < c->desc.inputs; i++) {
        if (cvy_tensor_present(&c->desc.in[i]))
            CVY_TRY(reserve_tensor(selection, CVY_AUTOTUNE_IN + i, &c->desc.in[i]));
    }
    for (int i = 0; i < c->desc.outputs; i++) {
        if (!cvy_tensor_present(&c->desc.out[i]))
            continue;
        CVY_TRY(reserve_tensor(selection, CVY_AUTOTUNE_OUT + i, &c->desc.out[i]));
        c->plan.out_bytes[i] = device->backend->tensor_bytes(device, &c->desc.out[i]);
    }
    return reserve(selection, CVY_AUTOTUNE_SCRATCH, c->plan.scratch_bytes);
}

/* Only numbers of f32, bf16 and 8 bits can be made up here: labels and positions mean something. */
static bool can_be_timed(const struct cvy_op_desc *desc)
{
    bool good = true;

    for (int i = 0; i < desc->inputs; i++) {
        const enum cvy_dtype dtype = desc->in[i].dtype;
        good = good && (!cvy_tensor_present(&desc->in[i]) || dtype == CVY_F32 || dtype == CVY_BF16 || dtype == CVY_I8 ||
                        (dtype == CVY_U8 && desc->op == CVY_OP_CONV2D_INT8));
    }
    return good;
}

/* One run between two points where the device has nothing left to do. */
static cvy_status time_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                           void *scratch, double *seconds)
{
    double start;

    CVY_TRY(device->backend->synchronize(device));
    start = cvy_clock();
    CVY_TRY(plan->kernel->run(device, plan, in, out, scratch));
    CVY_TRY(device->backend->synchronize(device));
    *seconds = cvy_clock() - start;
    return CVY_OK;
}

static cvy_status run_candidate(struct cvy_selection *selection, const struct autotune_candidate *c, double *seconds)
{
    void *in[CVY_MAX_INPUTS] = {NULL}, *out[CVY_MAX_OUTPUTS] = {NULL};

    for (int i = 0; i < c->desc.inputs; i++) {
        if (cvy_tensor_present(&c->desc.in[i]))
            in[i] = selection->buffers[CVY_AUTOTUNE_IN + i].memory;
    }
    for (int i = 0; i < c->desc.outputs; i++) {
        const int32_t over = c->plan.in_place[i];
        if (!cvy_tensor_present(&c->desc.out[i]))
            continue;
        out[i] = selection->buffers[CVY_AUTOTUNE_OUT + i].memory;
        if (over >= 0 && in[over] && selection->buffers[CVY_AUTOTUNE_IN + over].bytes >= c->plan.out_bytes[i])
            out[i] = in[over]; /* as the planner does where it can */
    }
    return time_run(selection->device, &c->plan, in, out, selection->buffers[CVY_AUTOTUNE_SCRATCH].memory, seconds);
}

/* The shortest time of bringing a tensor from one layout into another. */
static cvy_status time_reorder(struct cvy_selection *selection, const struct cvy_tensor *from,
                               const struct cvy_tensor *to, double *seconds)
{
    struct cvy_op_desc desc = {.op = CVY_OP_REORDER, .inputs = 1, .outputs = 1};
    struct cvy_kernel_plan plan;
    void *in[CVY_MAX_INPUTS] = {NULL}, *out[CVY_MAX_OUTPUTS] = {NULL};
    cvy_status status;

    for (int i = 1; i < CVY_MAX_INPUTS; i++)
        desc.in[i].shape.rank = -1;
    for (int i = 1; i < CVY_MAX_OUTPUTS; i++)
        desc.out[i].shape.rank = -1;
    desc.in[0] = *from;
    desc.out[0] = *to;
    CVY_TRY(cvy_kernel_select_first(selection->device, &desc, &plan));
    CVY_GOTO(reserve_tensor(selection, CVY_AUTOTUNE_STAGE, from));
    CVY_GOTO(reserve_tensor(selection, CVY_AUTOTUNE_OUT, to));
    CVY_GOTO(reserve(selection, CVY_AUTOTUNE_SCRATCH, plan.scratch_bytes));
    plan.out_bytes[0] = selection->device->backend->tensor_bytes(selection->device, to);
    in[0] = selection->buffers[CVY_AUTOTUNE_STAGE].memory;
    out[0] = selection->buffers[CVY_AUTOTUNE_OUT].memory;
    for (int i = 0; i < 1 + MIN_ROUNDS; i++) {
        double once;
        CVY_GOTO(time_run(selection->device, &plan, in, out, selection->buffers[CVY_AUTOTUNE_SCRATCH].memory, &once));
        if (i <= 1 || once < *seconds)
            *seconds = once;
    }
fail:
    cvy_kernel_release(selection->device, &plan);
    return status;
}

/* Reorders before the kernel, unless they run once (weights that never change), and after it: outputs belong in
 * the layout that the table's first choice gives them, gradients of weights in the plain one. */
static cvy_status time_reorders(struct cvy_selection *selection, const struct cvy_op_desc *given,
                                const struct autotune_candidate *first, const struct autotune_candidate *c, double *sum)
{
    double seconds = 0;

    *sum = 0;
    for (int i = 0; i < given->inputs; i++) {
        const bool once = given->inference && c->desc.in[i].layout.kind == CVY_LAYOUT_OPAQUE;
        if (!cvy_tensor_present(&given->in[i]) || once || cvy_layout_equal(&given->in[i].layout, &c->desc.in[i].layout))
            continue;
        CVY_TRY(time_reorder(selection, &given->in[i], &c->desc.in[i], &seconds));
        *sum += seconds;
    }
    for (int i = 0; i < given->outputs; i++) {
        struct cvy_tensor wanted = first->desc.out[i];
        if (!cvy_tensor_present(&wanted))
            continue;
        if (wanted.layout.kind == CVY_LAYOUT_OPAQUE)
            wanted.layout = (struct cvy_layout){CVY_LAYOUT_PLAIN, NULL, 0};
        if (cvy_layout_equal(&wanted.layout, &c->desc.out[i].layout))
            continue;
        CVY_TRY(time_reorder(selection, &c->desc.out[i], &wanted, &seconds));
        *sum += seconds;
    }
    return CVY_OK;
}

static bool enough(int round, double seconds)
{
    if (seconds > long_enough)
        return round >= MIN_ROUNDS;
    return round >= (seconds < short_enough ? MAX_ROUNDS : ROUNDS);
}

/* One run more: the shortest counts, for what disturbs a run only makes it longer. */
static cvy_status time_once(struct cvy_selection *selection, struct autotune_candidate *c, bool first)
{
    const int64_t before = cvy_preemptions();
    double seconds;

    CVY_TRY(run_candidate(selection, c, &seconds));
    if (first || seconds < c->seconds)
        c->seconds = seconds;
    c->clean = (c->clean && !first) || selection->device->gpu || cvy_preemptions() == before;
    return CVY_OK;
}

/* Those that are still in question and had no undisturbed run, in turns. */
static cvy_status time_more(struct cvy_selection *selection, struct autotune_candidate *candidates, int32_t count,
                            const bool *out, int rounds)
{
    for (int round = 0; round < rounds; round++) {
        bool done = true;
        for (int32_t i = 0; i < count; i++) {
            if (out[i] || candidates[i].clean)
                continue;
            CVY_TRY(time_once(selection, &candidates[i], false));
            done = done && candidates[i].clean;
        }
        if (done)
            break;
    }
    return CVY_OK;
}

static cvy_status time_rounds(struct cvy_selection *selection, struct autotune_candidate *candidates, int32_t count)
{
    const double start = cvy_clock();
    bool out[CVY_MAX_CANDIDATES] = {false};
    int rounds = 0;

    for (int round = 0; !enough(round - 1, cvy_clock() - start); round++) {
        double best = 0;
        for (int32_t i = 0; i < count; i++) {
            if (out[i])
                continue;
            CVY_TRY(time_once(selection, &candidates[i], round <= 1));
            if (best == 0 || candidates[i].seconds < best)
                best = candidates[i].seconds;
        }
        /* The first round is cold: twice as much patience there. */
        for (int32_t i = 0; i < count && cvy_clock() - start > patience; i++)
            out[i] = out[i] || candidates[i].seconds > best * hopeless_ratio * (round == 0 ? 2 : 1);
        rounds = round;
    }
    CVY_TRY(time_more(selection, candidates, count, out, rounds * MORE_ROUNDS));
    for (int32_t i = 0; i < count; i++)
        candidates[i].clean = candidates[i].clean || out[i]; /* as slow as that no load makes it */
    return CVY_OK;
}

cvy_status autotune_time_alone(struct cvy_selection *selection, struct autotune_candidate *candidates, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        if (!can_be_timed(&candidates[i].desc))
            return cvy_fail(CVY_UNAVAILABLE, "only operations on f32 and bf16 are timed");
        CVY_TRY(reserve_candidate(selection, &candidates[i]));
    }
    return time_rounds(selection, candidates, count);
}

cvy_status autotune_time(struct cvy_selection *selection, const struct cvy_op_desc *given,
                         struct autotune_candidate *candidates, int32_t count)
{
    CVY_TRY(autotune_time_alone(selection, candidates, count));
    for (int32_t i = 0; i < count; i++) {
        double reorders;
        CVY_TRY(time_reorders(selection, given, &candidates[0], &candidates[i], &reorders));
        candidates[i].seconds += reorders;
    }
    return CVY_OK;
}
