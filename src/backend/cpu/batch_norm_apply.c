/* Batch norms whose statistics are known: of inference, its gradient, and the forward output of training again. */
#include <math.h>

#include "backend/cpu/batch_norm.h"
#include "backend/cpu/parts.h"
#include "backend/cpu/sign.h"

void batch_norm_write(const struct cpu_loops *loops, const struct batch_norm *state, void *y, uint32_t *sign,
                      const void *x, const void *residual, const struct cpu_affine *lanes, int64_t b, int64_t end)
{
    const struct cpu_image *image = &state->image;
    if (cpu_in_rows(image)) {
        struct cpu_rows rows = cpu_rows_of(image, end - b);
        rows.stream = state->stream && y != x && y != residual;
        rows.sign = sign;
        loops->rows_affine(y, x, residual, &rows, &lanes[b], state->activation);
        return;
    }
    loops->affine(y, x, residual, image->run, &lanes[b], state->activation);
}

/* ---- part by part ---- */

bool batch_norm_cut(const struct batch_norm *state, struct cvy_cut *cut)
{
    cut->pixels = state->image.batch * state->image.pixels;
    return cpu_in_rows(&state->image);
}

size_t batch_norm_part_offset(const struct batch_norm *state, const struct cpu_part *part)
{
    return (size_t)(part->first * state->image.blocks) * state->image.block_bytes;
}

void batch_norm_write_part(const struct cpu_loops *loops, const struct batch_norm *state, const struct cpu_part *part,
                           void *y, void *sign, const void *x, const void *residual, const struct cpu_affine *lanes)
{
    const size_t at = batch_norm_part_offset(state, part);
    struct cpu_rows rows = cpu_rows_of(&state->image, state->image.blocks);
    rows.pixels = (size_t)part->count;
    rows.stream = state->stream && !(part->near & 1U) && y != x && y != residual;
    rows.sign = cpu_sign_at(sign, at);
    loops->rows_affine(cpu_run_at(y, at), cpu_run_of(x, at), cpu_run_of(residual, at), &rows, lanes, state->activation);
}

/* ---- images ---- */

/* The operands of y = affine(x) (+ residual), then the activation. */
struct apply {
    const struct cpu_loops *loops;
    const struct batch_norm *state;
    const void *x, *residual;
    void *y;
    const struct cpu_affine *lanes; /* of each block of channels */
};

static void write_part(const void *operands, int64_t n, int64_t b, int64_t end)
{
    const struct apply *f = operands;
    const size_t at = cpu_run_offset(&f->state->image, n, b);
    batch_norm_write(f->loops, f->state, cpu_run_at(f->y, at), NULL, cpu_run_of(f->x, at), cpu_run_of(f->residual, at),
                     f->lanes, b, end);
}

static void write_images(const cvy_device *device, const struct batch_norm *state, void *y, const void *x,
                         const void *residual, const struct cpu_affine *lanes)
{
    const struct apply f = {cpu_loops_for(device, state->image.dtype), state, x, residual, y, lanes};
    batch_norm_run_apply(device, &state->image, &(struct batch_norm_pass){.apply = write_part, .operands = &f});
}

/* ---- inference ---- */

/* The numbers of each block from running statistics. mean, beta: NULL is 0. */
static void lanes_of(const struct batch_norm *state, const float *mean, const float *var, const float *gamma,
                     const float *beta, struct cpu_affine *lanes)
{
    const struct cpu_image *image = &state->image;
    for (int64_t b = 0; b < image->blocks; b++) {
        const int64_t first = b * image->block;
        float rstd[CPU_LANES];
        for (int32_t c = 0; c < image->block; c++)
            rstd[c] = (float)(1.0 / sqrt((double)var[first + c] + (double)state->eps));
        batch_norm_affine(mean ? mean + first : NULL, rstd, gamma + first, beta ? beta + first : NULL, 0, image->block,
                          &lanes[b]);
    }
}

cvy_status cpu_batch_norm_inference_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    plan->in_place[0] = 0;
    return batch_norm_prepare(device, desc, plan, 1U << 0 | 1U << 5, 1U << 0, NULL);
}

cvy_status cpu_batch_norm_inference_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                        void *const *out, void *scratch)
{
    lanes_of(plan->state, in[3], in[4], in[1], in[2], scratch);
    write_images(device, plan->state, out[0], in[0], in[5], scratch);
    return CVY_OK;
}

/* dx = dy * gamma * rstd: the affine map of the forward pass without mean and shift. */
cvy_status cpu_batch_norm_inference_bwd_prepare(cvy_device *device, struct cvy_op_desc *desc,
                                                struct cvy_kernel_plan *plan)
{
    plan->in_place[0] = 0;
    return batch_norm_prepare(device, desc, plan, 1U << 0, 1U << 0, NULL);
}

cvy_status cpu_batch_norm_inference_bwd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                            void *const *out, void *scratch)
{
    struct batch_norm linear = *(const struct batch_norm *)plan->state;
    linear.activation = CVY_ACTIVATION_NONE;
    lanes_of(&linear, NULL, in[2], in[1], NULL, scratch);
    write_images(device, &linear, out[0], in[0], NULL, scratch);
    return CVY_OK;
}

/* ---- the forward output again, from the statistics that were kept ---- */

cvy_status cpu_batch_norm_apply_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    return batch_norm_prepare(device, desc, plan, 1U << 0 | 1U << 5, 1U << 0, NULL);
}

static void make_lanes(const struct batch_norm *state, void *const *in, struct cpu_affine *lanes)
{
    for (int64_t b = 0; b < state->image.blocks; b++)
        batch_norm_affine(in[3], in[4], in[1], in[2], b * state->image.block, state->image.block, &lanes[b]);
}

cvy_status cpu_batch_norm_apply_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                    void *const *out, void *scratch)
{
    make_lanes(plan->state, in, scratch);
    write_images(device, plan->state, out[0], in[0], in[5], scratch);
    return CVY_OK;
}

static bool cut_apply(cvy_device *device, const struct cvy_op_desc *desc, const struct cvy_kernel_plan *plan,
                      struct cvy_cut *cut)
{
    const struct batch_norm *const state = plan->state;
    (void)device;
    (void)desc;
    if (!batch_norm_cut(state, cut))
        return false;
    cut->in = 1U << 0 | 1U << 5;
    cut->out = 1U << 0;
    cut->past = state->stream && state->image.channels % (2 * CPU_LANES) == 0 ? 1U << 0 : 0;
    return true;
}

static cvy_status begin_apply(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                              void *scratch)
{
    (void)device;
    (void)out;
    make_lanes(plan->state, in, scratch);
    return CVY_OK;
}

static void run_apply_part(cvy_device *device, const struct cpu_part *part)
{
    const struct batch_norm *const state = part->plan->state;
    batch_norm_write_part(cpu_loops_for(device, state->image.dtype), state, part, part->out[0], NULL, part->in[0],
                          part->in[5], part->scratch);
}

const struct cpu_parts cpu_batch_norm_apply_parts = {.cut = cut_apply, .begin = begin_apply, .run = run_apply_part};
