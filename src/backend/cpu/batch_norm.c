/* Batch norm in training, forward; its gradient is in batch_norm_bwd.c.
 *
 * Statistics. A run (one channel block of one image) is summed, then its squares around its own mean while it is still
 * in cache: float over short pieces, double beyond. The runs of a channel are put together in the order of the images
 * by the parallel formula of Chan, Golub and LeVeque ("Updating formulae and a pairwise algorithm for computing sample
 * variances", 1979). So the data is read from memory once, as in the textbook's one-pass formula, without that
 * formula's cancellation; and as a run does not depend on the number of threads, neither does the result.
 *
 * Where statistics are given, made by the convolution before it, no data is read for them. */
#include <math.h>
#include <string.h>

#include "backend/cpu/batch_norm.h"
#include "backend/cpu/parts.h"
#include "backend/cpu/sign.h"

static struct batch_norm state_of(cvy_device *device, const struct cvy_op_desc *desc)
{
    struct batch_norm state = {.image = cpu_image_of(&desc->in[0]),
                               .eps = desc->attr.batch_norm.eps,
                               .momentum = desc->attr.batch_norm.momentum,
                               .activation = desc->attr.batch_norm.activation,
                               .stream = cpu_tensor_bytes(device, &desc->in[0]) >= cpu_of(device)->stream_bytes};
    (void)cpu_make_pieces(&state.image); /* no number belongs to one image alone */
    return state;
}

static void make_channels_last(struct cvy_op_desc *desc, uint32_t inputs, uint32_t outputs)
{
    for (int32_t i = 0; i < desc->inputs; i++)
        if ((inputs & 1U << i) && cvy_tensor_present(&desc->in[i]))
            desc->in[i].layout = (struct cvy_layout){.kind = CVY_LAYOUT_NHWC};
    for (int32_t i = 0; i < desc->outputs; i++)
        if ((outputs & 1U << i) && cvy_tensor_present(&desc->out[i]))
            desc->out[i].layout = (struct cvy_layout){.kind = CVY_LAYOUT_NHWC};
}

cvy_status batch_norm_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan,
                              uint32_t image_inputs, uint32_t image_outputs, struct cvy_tensor *sign)
{
    const uint32_t sign_input = sign == &desc->in[6] ? 1U << 6 : 0, sign_output = sign == &desc->out[5] ? 1U << 5 : 0;
    if (cvy_tensor_present(&desc->in[10]))
        return cvy_fail(CVY_UNAVAILABLE, "batch norms with the residual's are for other devices");
    CVY_TRY(cpu_expect_images(desc, image_inputs | sign_input, image_outputs | sign_output, 0, 0));
    if (desc->in[0].shape.rank != 2 && desc->in[0].shape.rank != 4)
        return cvy_fail(CVY_UNAVAILABLE, "batch norm takes 2 or 4 dimensions, not %d", (int)desc->in[0].shape.rank);
    if (sign) {
        CVY_TRY(cpu_expect_sign(sign));
        make_channels_last(desc, image_inputs, image_outputs);
        sign->layout = cpu_sign_layout();
    } else {
        cpu_agree(cpu_of(device), desc, image_inputs, image_outputs);
    }
    cpu_plain(desc, image_inputs | sign_input, image_outputs | sign_output);
    const struct batch_norm state = state_of(device, desc);
    plan->scratch_bytes = (size_t)state.image.blocks * sizeof(struct cpu_affine);
    return cpu_state(plan, &state, sizeof(state));
}

void batch_norm_affine(const float *mean, const float *rstd, const float *gamma, const float *beta, int64_t first,
                       int32_t block, struct cpu_affine *lanes)
{
    float factor[CPU_LANES];
    memset(lanes->mean, 0, sizeof(lanes->mean));
    memset(lanes->shift, 0, sizeof(lanes->shift));
    if (mean)
        cpu_spread(mean, first, block, lanes->mean);
    if (beta)
        cpu_spread(beta, first, block, lanes->shift);
    cpu_spread(rstd, first, block, lanes->scale);
    cpu_spread(gamma, first, block, factor);
    for (int32_t lane = 0; lane < CPU_LANES; lane++)
        lanes->scale[lane] *= factor[lane];
}

/* ---- forward ---- */

/* The mean of each channel of a block from the sum of its run, and that rounded to float. */
static void means_of(const struct cpu_image *image, const struct cpu_sums *sums, double mean[CPU_LANES],
                     float rounded[CPU_LANES])
{
    for (int32_t c = 0; c < image->block; c++) {
        mean[c] = sums->first[c] / (double)image->pixels;
        rounded[c] = (float)mean[c];
    }
}

/* Sums of squares around the rounded mean become those around the mean itself. */
static void move_to_mean(const struct cpu_image *image, const double mean[CPU_LANES], const float rounded[CPU_LANES],
                         double squares[CPU_LANES])
{
    for (int32_t c = 0; c < image->block; c++) {
        const double off = mean[c] - (double)rounded[c];
        squares[c] -= off * off * (double)image->pixels;
    }
}

/* first: sum of the run; second: sum of squares around the run's mean. */
static void measure_run(const struct cpu_loops *loops, const struct cpu_image *image, const void *x,
                        struct cpu_sums *sums)
{
    double lanes[CPU_LANES], mean[CPU_LANES];
    float rounded[CPU_LANES], centre[CPU_LANES];
    loops->sum(x, image->run, lanes);
    cpu_fold(lanes, image->block, sums->first);
    means_of(image, sums, mean, rounded);
    cpu_spread(rounded, 0, image->block, centre);
    loops->sum_squares(x, image->run, centre, lanes);
    cpu_fold(lanes, image->block, sums->second);
    move_to_mean(image, mean, rounded, sums->second);
}

/* The same for that many blocks of a channels-last image, whose first number x is. */
static void measure_rows(const struct cpu_loops *loops, const struct cpu_image *image, const char *x, int64_t blocks,
                         struct cpu_sums *sums)
{
    enum { MOST = 64 }; /* at once: as many channels as the loops sum at once */
    double mean[MOST][CPU_LANES];
    float rounded[MOST * CPU_LANES];
    for (int64_t first = 0; first < blocks; first += MOST) {
        const int64_t count = blocks - first < MOST ? blocks - first : MOST;
        const struct cpu_rows rows = cpu_rows_of(image, count);
        const char *const from = x + (size_t)first * image->block_bytes;
        struct cpu_sums *const to = sums + first;
        loops->rows_sum(from, &rows, to);
        for (int64_t i = 0; i < count; i++)
            means_of(image, &to[i], mean[i], rounded + i * CPU_LANES);
        loops->rows_sum_squares(from, &rows, rounded, to);
        for (int64_t i = 0; i < count; i++)
            move_to_mean(image, mean[i], rounded + i * CPU_LANES, to[i].second);
    }
}

/* Means and sums of squares around them of the channels of a block, over all images: all channels of an image before
 * the next one, for several divisions are then under way at a time. */
struct moments {
    double mean[CPU_LANES], squares[CPU_LANES];
};

static void combine_runs(const struct cpu_image *image, const struct cpu_sums *sums, struct moments *all)
{
    const double pixels = (double)image->pixels;
    double total[CPU_LANES], count = pixels;
    for (int32_t c = 0; c < image->block; c++) {
        total[c] = sums[0].first[c];
        all->squares[c] = sums[0].second[c];
    }
    for (int64_t n = 1; n < image->batch; n++) {
        const struct cpu_sums *run = &sums[n * image->blocks];
        for (int32_t c = 0; c < image->block; c++) {
            const double difference = run->first[c] / pixels - total[c] / count;
            all->squares[c] += run->second[c] + difference * difference * count * pixels / (count + pixels);
            total[c] += run->first[c];
        }
        count += pixels;
    }
    for (int32_t c = 0; c < image->block; c++) {
        const double squares = all->squares[c];
        all->mean[c] = total[c] / count;
        all->squares[c] = squares > 0 || squares != squares ? squares : 0;
    }
}

/* The operands of a training forward pass, by name. */
struct forward {
    const struct cpu_loops *loops;
    const struct batch_norm *state;
    const void *x, *residual;
    const float *gamma, *beta, *running_mean, *running_var;
    const float *given_mean, *given_var; /* of this rank's batch; NULL: computed */
    void *y, *sign;                      /* sign may be NULL */
    float *mean, *rstd, *new_mean, *new_var;
    struct batch_norm_kept kept; /* shared: sums of x, and of its squares */
    double count;                /* values of a channel, of all ranks */
};

static void forward_measure(const void *operands, int64_t n, int64_t b, int64_t end)
{
    const struct forward *f = operands;
    const struct cpu_image *image = &f->state->image;
    const void *x = cpu_run_of(f->x, cpu_run_offset(image, n, b));
    struct cpu_sums *sums = &f->kept.sums[n * image->blocks + b];
    if (cpu_in_rows(image))
        measure_rows(f->loops, image, x, end - b, sums);
    else
        measure_run(f->loops, image, x, sums);
}

/* Those of this rank's batch. */
static void own_moments(const struct forward *f, int64_t b, struct moments *own)
{
    const struct cpu_image *image = &f->state->image;
    if (!f->given_mean) {
        combine_runs(image, &f->kept.sums[b], own);
        return;
    }
    for (int32_t c = 0; c < image->block; c++) {
        own->mean[c] = (double)f->given_mean[b * image->block + c];
        own->squares[c] = (double)f->given_var[b * image->block + c] * batch_norm_own_count(image);
    }
}

static void forward_share(const void *operands, int64_t b)
{
    const struct forward *f = operands;
    const struct cpu_image *image = &f->state->image;
    const double own = batch_norm_own_count(image);
    struct moments all;
    own_moments(f, b, &all);
    for (int32_t c = 0; c < image->block; c++) {
        const int64_t at = b * image->block + c;
        f->kept.shared[at] = all.mean[c] * own;
        f->kept.shared[image->blocks * image->block + at] = all.squares[c] + all.mean[c] * all.mean[c] * own;
    }
}

/* The same over the batches of all ranks. */
static void moments_of(const struct forward *f, int64_t b, struct moments *all)
{
    const struct cpu_image *image = &f->state->image;
    if (!f->kept.shared) {
        own_moments(f, b, all);
        return;
    }
    for (int32_t c = 0; c < image->block; c++) {
        const int64_t at = b * image->block + c;
        const double mean = f->kept.shared[at] / f->count;
        const double squares = f->kept.shared[image->blocks * image->block + at] - mean * f->kept.shared[at];
        all->mean[c] = mean;
        all->squares[c] = squares > 0 || squares != squares ? squares : 0;
    }
}

static void forward_finish(const void *operands, int64_t b)
{
    const struct forward *f = operands;
    const struct batch_norm *state = f->state;
    const double count = f->count, momentum = state->momentum;
    struct moments all;
    moments_of(f, b, &all);
    for (int32_t c = 0; c < state->image.block; c++) {
        const int64_t at = b * state->image.block + c;
        const double mean = all.mean[c], squares = all.squares[c];
        f->mean[at] = (float)mean;
        f->rstd[at] = (float)(1.0 / sqrt(squares / count + (double)state->eps));
        const double unbiased = squares / (count - 1);
        if (f->new_mean)
            f->new_mean[at] = (float)((1 - momentum) * (double)f->running_mean[at] + momentum * mean);
        if (f->new_var)
            f->new_var[at] = (float)((1 - momentum) * (double)f->running_var[at] + momentum * unbiased);
    }
    batch_norm_affine(f->mean, f->rstd, f->gamma, f->beta, b * state->image.block, state->image.block,
                      &f->kept.lanes[b]);
}

static void forward_apply(const void *operands, int64_t n, int64_t b, int64_t end)
{
    const struct forward *f = operands;
    const struct cpu_image *image = &f->state->image;
    const size_t at = cpu_run_offset(image, n, b);
    batch_norm_write(f->loops, f->state, cpu_run_at(f->y, at), cpu_sign_at(f->sign, at), cpu_run_of(f->x, at),
                     cpu_run_of(f->residual, at), f->kept.lanes, b, end);
}

cvy_status cpu_batch_norm_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    struct cvy_tensor *const sign = cvy_tensor_present(&desc->out[5]) ? &desc->out[5] : NULL;
    if (sign && !cvy_tensor_present(&desc->out[0]))
        return cvy_fail(CVY_UNAVAILABLE, "what passes the activation is kept beside y alone");
    CVY_TRY(batch_norm_prepare(device, desc, plan, 1U << 0 | 1U << 5, 1U << 0, sign));
    const struct cpu_image *image = &((struct batch_norm *)plan->state)->image;
    plan->scratch_bytes = batch_norm_kept_bytes(device, image, cvy_tensor_present(&desc->in[6]));
    plan->in_place[0] = cvy_tensor_present(&desc->out[0]) ? 0 : -1;
    plan->in_place[3] = 3;
    plan->in_place[4] = 4;
    return CVY_OK;
}

static struct forward forward_of(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                 void *const *out, void *scratch)
{
    const struct batch_norm *state = plan->state;
    const struct cpu_image *image = &state->image;
    return (struct forward){.loops = cpu_loops_for(device, state->image.dtype),
                            .state = state,
                            .x = in[0],
                            .gamma = in[1],
                            .beta = in[2],
                            .running_mean = in[3],
                            .running_var = in[4],
                            .residual = in[5],
                            .given_mean = in[6],
                            .given_var = in[7],
                            .y = out[0],
                            .sign = out[5],
                            .mean = out[1],
                            .rstd = out[2],
                            .new_mean = out[3],
                            .new_var = out[4],
                            .kept = batch_norm_kept_at(device, image, in[6], scratch),
                            .count = batch_norm_own_count(image) * cvy_device_ranks(device)};
}

static cvy_status run_forward(cvy_device *device, const struct forward *f, bool apply)
{
    return batch_norm_run_pass(device, &f->state->image,
                               &(struct batch_norm_pass){f->given_mean ? NULL : forward_measure, forward_share,
                                                         forward_finish, apply ? forward_apply : NULL, f,
                                                         f->kept.shared});
}

cvy_status cpu_batch_norm_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                              void *scratch)
{
    const struct forward f = forward_of(device, plan, in, out, scratch);
    return run_forward(device, &f, f.y);
}

/* ---- forward, part by part ----
 * With statistics that are given alone: what the pass for them has read last the next one reads first. */

static bool cut_forward(cvy_device *device, const struct cvy_op_desc *desc, const struct cvy_kernel_plan *plan,
                        struct cvy_cut *cut)
{
    const struct batch_norm *const state = plan->state;
    (void)device;
    if (!batch_norm_cut(state, cut) || !cvy_tensor_present(&desc->out[0]) || !cvy_tensor_present(&desc->in[6]))
        return false;
    cut->in = 1U << 0 | 1U << 5;
    cut->out = 1U << 0 | 1U << 5;
    cut->past = state->stream && state->image.channels % (2 * CPU_LANES) == 0 ? 1U << 0 : 0;
    return true;
}

static cvy_status begin_forward(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                void *const *out, void *scratch)
{
    const struct forward f = forward_of(device, plan, in, out, scratch);
    return run_forward(device, &f, false);
}

static void run_forward_part(cvy_device *device, const struct cpu_part *part)
{
    const struct forward f = forward_of(device, part->plan, part->in, part->out, part->scratch);
    batch_norm_write_part(f.loops, f.state, part, f.y, f.sign, f.x, f.residual, f.kept.lanes);
}

const struct cpu_parts cpu_batch_norm_parts = {.cut = cut_forward, .begin = begin_forward, .run = run_forward_part};
