/* The gradient of batch norm in training. With g = masked dy, m = N H W and means over the batch:
 *   dbeta = sum g,  dgamma = rstd * sum g (x - mean)
 *   dx = gamma rstd (g - dbeta / m - (x - mean) * rstd * dgamma / m)
 * Where the sums are given, made by the convolution beside it, no data is read for them. */
#include "backend/cpu/batch_norm.h"
#include "backend/cpu/parts.h"
#include "backend/cpu/sign.h"

struct backward {
    const struct cpu_loops *loops;
    const struct batch_norm *state;
    const void *x, *dy, *more, *y;
    void *sign; /* read alone; instead of y */
    const float *gamma, *beta, *mean, *rstd;
    const float *given_dgamma, *given_dbeta; /* then dy is masked, and the only gradient of y; NULL: computed */
    void *dx;
    void *g; /* where the first pass leaves the masked gradient for the second: dresidual, dx, or NULL */
    float *dgamma, *dbeta;
    struct batch_norm_kept kept; /* shared: sums of g, and of g (x - mean) */
    double count;                /* values of a channel, of all ranks */
};

static void backward_measure(const void *operands, int64_t n, int64_t b, int64_t end)
{
    const struct backward *f = operands;
    const struct cpu_image *image = &f->state->image;
    const size_t at = cpu_run_offset(image, n, b);
    void *const g = cpu_run_at(f->g, at);
    const void *const x = cpu_run_of(f->x, at), *const dy = cpu_run_of(f->dy, at);
    const void *const more = cpu_run_of(f->more, at), *const y = cpu_run_of(f->y, at);
    struct cpu_sums *sums = &f->kept.sums[n * image->blocks + b], lanes;
    if (cpu_in_rows(image)) {
        struct cpu_rows rows = cpu_rows_of(image, end - b);
        rows.stream = f->state->stream && g != dy && g != more;
        rows.sign = cpu_sign_at(f->sign, at);
        f->loops->rows_bwd_sums(g, x, dy, more, y, &rows, &f->kept.lanes[b], f->state->activation, sums);
        return;
    }
    f->loops->batch_norm_bwd_sums(g, x, dy, more, y, image->run, &f->kept.lanes[b], f->state->activation, &lanes);
    cpu_fold(lanes.first, image->block, sums->first);
    cpu_fold(lanes.second, image->block, sums->second);
}

static void take_given(const struct backward *f, int64_t b)
{
    const struct cpu_image *image = &f->state->image;
    for (int32_t c = 0; c < image->block; c++) {
        f->kept.sums[b].first[c] = (double)f->given_dbeta[b * image->block + c];
        f->kept.sums[b].second[c] = (double)f->given_dgamma[b * image->block + c];
    }
}

/* Adds up the images into the sums of the first, and writes dgamma and dbeta. */
static void add_images(const struct backward *f, int64_t b)
{
    const struct cpu_image *image = &f->state->image;
    struct cpu_sums *all = &f->kept.sums[b];
    if (f->given_dgamma) {
        take_given(f, b);
        return;
    }
    for (int64_t n = 1; n < image->batch; n++) {
        const struct cpu_sums *run = &f->kept.sums[n * image->blocks + b];
        for (int32_t c = 0; c < image->block; c++) {
            all->first[c] += run->first[c];
            all->second[c] += run->second[c];
        }
    }
    for (int32_t c = 0; c < image->block; c++) {
        const int64_t at = b * image->block + c;
        all->second[c] *= (double)f->rstd[at];
        f->dbeta[at] = (float)all->first[c];
        f->dgamma[at] = (float)all->second[c];
    }
}

/* dgamma and dbeta stay those of this rank: gradients are summed over the ranks later. */
static void backward_share(const void *operands, int64_t b)
{
    const struct backward *f = operands;
    const struct cpu_image *image = &f->state->image;
    add_images(f, b);
    for (int32_t c = 0; c < image->block; c++) {
        f->kept.shared[b * image->block + c] = f->kept.sums[b].first[c];
        f->kept.shared[(image->blocks + b) * image->block + c] = f->kept.sums[b].second[c];
    }
}

static void backward_finish(const void *operands, int64_t b)
{
    const struct backward *f = operands;
    const struct cpu_image *image = &f->state->image;
    const double count = f->count;
    struct cpu_sums *all = &f->kept.sums[b];
    float offset[CPU_LANES], slope[CPU_LANES]; /* of channels */
    if (!f->kept.shared)
        add_images(f, b);
    for (int32_t c = 0; c < image->block; c++) {
        const int64_t at = b * image->block + c;
        if (f->kept.shared) {
            all->first[c] = f->kept.shared[at];
            all->second[c] = f->kept.shared[image->blocks * image->block + at];
        }
        offset[c] = (float)(all->first[c] / count);
        slope[c] = (float)(all->second[c] / count * (double)f->rstd[at]);
    }
    cpu_spread(offset, 0, image->block, f->kept.slopes[b].offset);
    cpu_spread(slope, 0, image->block, f->kept.slopes[b].slope);
}

static void backward_apply(const void *operands, int64_t n, int64_t b, int64_t end)
{
    const struct backward *f = operands;
    const struct cpu_image *image = &f->state->image;
    const enum cvy_activation activation = f->g ? CVY_ACTIVATION_NONE : f->state->activation;
    const size_t at = cpu_run_offset(image, n, b);
    const void *const x = cpu_run_of(f->x, at), *const y = cpu_run_of(f->y, at);
    const void *const dy = cpu_run_of(f->g ? f->g : f->dy, at);
    void *const dx = cpu_run_at(f->dx, at);
    if (cpu_in_rows(image)) {
        struct cpu_rows rows = cpu_rows_of(image, end - b);
        rows.stream = f->state->stream && dx != x && dx != dy;
        rows.sign = cpu_sign_at(f->sign, at);
        f->loops->rows_bwd(dx, x, dy, y, &rows, &f->kept.lanes[b], &f->kept.slopes[b], activation);
        return;
    }
    f->loops->batch_norm_bwd(dx, x, dy, y, image->run, &f->kept.lanes[b], &f->kept.slopes[b], activation);
}

/* With the sums given dx is all there is to make, of one gradient. */
static cvy_status expect_alone(const struct cvy_op_desc *desc)
{
    for (int i = 1; i < 4; i++)
        if (cvy_tensor_present(&desc->out[i]))
            return cvy_fail(CVY_UNAVAILABLE, "with dgamma and dbeta given dx is the only output here");
    if (cvy_tensor_present(&desc->in[7]))
        return cvy_fail(CVY_UNAVAILABLE, "with dgamma and dbeta given there is one dy here");
    return CVY_OK;
}

cvy_status cpu_batch_norm_bwd_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    struct cvy_tensor *const sign =
        cvy_tensor_present(&desc->in[6]) && cpu_is_sign(&desc->in[6].layout) ? &desc->in[6] : NULL;
    const uint32_t images = 1U << 0 | 1U << 5 | 1U << 7 | (sign ? 0 : 1U << 6);
    const bool two = cvy_tensor_present(&desc->in[7]), given = cvy_tensor_present(&desc->in[8]);
    const bool residual = cvy_tensor_present(&desc->out[3]);
    if (given)
        CVY_TRY(expect_alone(desc));
    CVY_TRY(batch_norm_prepare(device, desc, plan, images, 1U << 0 | 1U << 3, sign));
    struct batch_norm *const state = plan->state;
    state->sign = sign;
    if (given)
        state->activation = CVY_ACTIVATION_NONE; /* dy is masked */
    plan->scratch_bytes = batch_norm_kept_bytes(device, &state->image, given);
    /* dx over x, dresidual over dy. The sum of two dy needs a place that is not x for the second pass to read. */
    plan->in_place[0] = two && !residual ? 5 : 0;
    plan->in_place[3] = 5;
    return CVY_OK;
}

static struct backward backward_of(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                   void *const *out, void *scratch)
{
    const struct batch_norm *state = plan->state;
    const struct cpu_image *image = &state->image;
    return (struct backward){.loops = cpu_loops_for(device, state->image.dtype),
                             .state = state,
                             .x = in[0],
                             .gamma = in[1],
                             .beta = in[2],
                             .mean = in[3],
                             .rstd = in[4],
                             .dy = in[5],
                             .y = state->sign ? NULL : in[6],
                             .sign = state->sign ? in[6] : NULL,
                             .more = in[7],
                             .given_dgamma = in[8],
                             .given_dbeta = in[9],
                             .dx = out[0],
                             .dgamma = out[1],
                             .dbeta = out[2],
                             .g = out[3]  ? out[3]
                                  : in[7] ? out[0]
                                          : NULL,
                             .kept = batch_norm_kept_at(device, image, in[8], scratch),
                             .count = batch_norm_own_count(image) * cvy_device_ranks(device)};
}

static cvy_status run_backward(cvy_device *device, const struct backward *f, bool apply)
{
    const struct cpu_image *image = &f->state->image;
    for (int64_t b = 0; b < image->blocks; b++)
        batch_norm_affine(f->mean, f->rstd, f->gamma, f->beta, b * image->block, image->block, &f->kept.lanes[b]);
    return batch_norm_run_pass(device, image,
                               &(struct batch_norm_pass){f->given_dgamma ? NULL : backward_measure, backward_share,
                                                         backward_finish, apply ? backward_apply : NULL, f,
                                                         f->kept.shared});
}

cvy_status cpu_batch_norm_bwd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                  void *const *out, void *scratch)
{
    const struct backward f = backward_of(device, plan, in, out, scratch);
    return run_backward(device, &f, true);
}

/* ---- backward, part by part ---- */

/* Without given sums only where images are large: else what the pass for them has read last the next one, which goes
 * backwards, finds in the caches. */
static bool cut_backward(cvy_device *device, const struct cvy_op_desc *desc, const struct cvy_kernel_plan *plan,
                         struct cvy_cut *cut)
{
    const bool given = cvy_tensor_present(&desc->in[8]), alone = !cvy_tensor_present(&desc->in[7]);
    if (!batch_norm_cut(plan->state, cut) || !alone || cvy_tensor_present(&desc->out[3]))
        return false;
    if (!given && cpu_tensor_bytes(device, &desc->in[0]) < 4 * cpu_chain_bytes(device))
        return false;
    cut->in = given ? 1U << 0 | 1U << 5 | 1U << 6 : 0; /* the sums are of all of them */
    cut->out = 1U << 0;
    return true;
}

static cvy_status begin_backward(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                 void *const *out, void *scratch)
{
    const struct backward f = backward_of(device, plan, in, out, scratch);
    return run_backward(device, &f, false);
}

static void run_backward_part(cvy_device *device, const struct cpu_part *part)
{
    const struct backward f = backward_of(device, part->plan, part->in, part->out, part->scratch);
    const size_t at = batch_norm_part_offset(f.state, part);
    struct cpu_rows rows = cpu_rows_of(&f.state->image, f.state->image.blocks);
    rows.pixels = (size_t)part->count;
    rows.stream = f.state->stream && !part->near && f.dx != f.x && f.dx != f.dy;
    rows.sign = cpu_sign_at(f.sign, at);
    f.loops->rows_bwd(cpu_run_at(f.dx, at), cpu_run_of(f.x, at), cpu_run_of(f.dy, at), cpu_run_of(f.y, at), &rows,
                      f.kept.lanes, f.kept.slopes, f.state->activation);
}

const struct cpu_parts cpu_batch_norm_bwd_parts = {
    .cut = cut_backward, .begin = begin_backward, .run = run_backward_part};
