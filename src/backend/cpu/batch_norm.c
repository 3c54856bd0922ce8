/* Batch norm: training, backward and inference.
 *
 * Statistics. A run (one channel block of one image) is summed, then its squares around its own mean while it is still
 * in cache: float over short pieces, double beyond. The runs of a channel are put together in the order of the images
 * by the parallel formula of Chan, Golub and LeVeque ("Updating formulae and a pairwise algorithm for computing sample
 * variances", 1979). So the data is read from memory once, as in the textbook's one-pass formula, without that
 * formula's cancellation; and as a run does not depend on the number of threads, neither does the result. */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu.h"

struct batch_norm {
    struct cpu_image image;
    float eps, momentum;
    enum cvy_activation activation;
};

static struct batch_norm state_of(const struct cvy_op_desc *desc)
{
    struct batch_norm state = {.image = cpu_image_of(&desc->in[0]),
                               .eps = desc->attr.batch_norm.eps,
                               .momentum = desc->attr.batch_norm.momentum,
                               .activation = desc->attr.batch_norm.activation};
    (void)cpu_cut(&state.image); /* no number belongs to one image alone */
    return state;
}

static cvy_status prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan,
                          uint32_t image_inputs, uint32_t image_outputs)
{
    if (cvy_tensor_present(&desc->out[5]) || cvy_tensor_present(&desc->in[10]))
        return cvy_fail(CVY_UNAVAILABLE, "batch norms with their neighbours are for other devices");
    CVY_TRY(cpu_expect_images(desc, image_inputs, image_outputs, 0, 0));
    if (desc->in[0].shape.rank != 2 && desc->in[0].shape.rank != 4)
        return cvy_fail(CVY_UNAVAILABLE, "batch norm takes 2 or 4 dimensions, not %d", (int)desc->in[0].shape.rank);
    cpu_agree(cpu_of(device), desc, image_inputs, image_outputs);
    cpu_plain(desc, image_inputs, image_outputs);
    const struct batch_norm state = state_of(desc);
    return cpu_state(plan, &state, sizeof(state));
}

/* Sums of one run, by channel of its block. */
struct run_sums {
    double first[CPU_LANES], second[CPU_LANES];
};

static size_t sums_bytes(const struct cpu_image *image)
{
    return (size_t)image->batch * (size_t)image->blocks * sizeof(struct run_sums);
}

/* Both directions measure every run, finish the numbers of each block from all images, and apply them to every run.
 * Where batches of several ranks count as one, `share` puts what the images of this rank came to into `shared`, two
 * numbers for each channel, and finish reads there what all came to. */
struct pass {
    void (*measure)(const void *operands, int64_t n, int64_t b);
    void (*share)(const void *operands, int64_t b);
    void (*finish)(const void *operands, int64_t b);
    void (*apply)(const void *operands, int64_t n, int64_t b);
    const void *operands;
    double *shared; /* (2, C); NULL: this rank's batch is all there is */
};

static size_t shared_bytes(const cvy_device *device, const struct cpu_image *image)
{
    return cvy_device_ranks(device) > 1 ? 2 * (size_t)image->blocks * (size_t)image->block * sizeof(double) : 0;
}

/* After the sums of the runs. */
static double *shared_of(const cvy_device *device, const struct cpu_image *image, void *scratch)
{
    return cvy_device_ranks(device) > 1 ? (double *)(void *)((char *)scratch + sums_bytes(image)) : NULL;
}

static cvy_status run_shared_pass(const cvy_device *device, const struct cpu_image *image, const struct pass *pass)
{
    const int64_t batch = image->batch, blocks = image->blocks;
#pragma omp parallel num_threads(device->threads)
    {
#pragma omp for schedule(static) collapse(2)
        for (int64_t n = 0; n < batch; n++)
            for (int64_t b = 0; b < blocks; b++)
                pass->measure(pass->operands, n, b);
#pragma omp for schedule(static)
        for (int64_t b = 0; b < blocks; b++)
            pass->share(pass->operands, b);
    }
    CVY_TRY(cvy_device_sum(device, pass->shared, 2 * blocks * image->block));
#pragma omp parallel num_threads(device->threads)
    {
#pragma omp for schedule(static)
        for (int64_t b = 0; b < blocks; b++)
            pass->finish(pass->operands, b);
#pragma omp for schedule(static) collapse(2)
        for (int64_t n = 0; n < batch; n++)
            for (int64_t b = 0; b < blocks; b++)
                pass->apply(pass->operands, n, b);
    }
    return CVY_OK;
}

static bool keeps_busy(int64_t parts, int64_t threads)
{
    return parts % threads == 0 || parts >= 4 * threads;
}

/* Neighbouring blocks that are taken together, so that of each image some pages are read on end; no more, for what the
 * first pass has read is to be in cache for the second (measured: doc/worklog.md). */
static int64_t blocks_together(const struct cpu_image *image, int64_t threads)
{
    enum { ENOUGH = 16 << 10 };
    int64_t together = 1;
    while (together * (int64_t)image->run_bytes < ENOUGH && 2 * together <= image->blocks &&
           image->blocks % (2 * together) == 0 && keeps_busy(image->blocks / (2 * together), threads))
        together *= 2;
    return together;
}

/* With enough blocks to keep all threads busy, a thread takes whole channels: then what their first pass read is still
 * in cache for the second. Otherwise the images are shared out too. Both ways give the same numbers. */
static cvy_status run_pass(const cvy_device *device, const struct cpu_image *image, const struct pass *pass)
{
    const int64_t batch = image->batch, blocks = image->blocks;
    if (pass->shared)
        return run_shared_pass(device, image, pass);
    const bool isolated = image->step == CPU_LANES; /* the runs of a channel do not share cache lines with others */
    if (isolated && keeps_busy(blocks, device->threads)) {
        const int64_t together = blocks_together(image, device->threads);
#pragma omp parallel for num_threads(device->threads) schedule(static)
        for (int64_t first = 0; first < blocks; first += together) {
            for (int64_t n = 0; n < batch; n++)
                for (int64_t b = first; b < first + together; b++)
                    pass->measure(pass->operands, n, b);
            for (int64_t b = first; b < first + together; b++)
                pass->finish(pass->operands, b);
            for (int64_t n = batch; n-- > 0;) /* backwards: the last ones read are the likeliest in cache */
                for (int64_t b = first + together; b-- > first;)
                    pass->apply(pass->operands, n, b);
        }
        return CVY_OK;
    }
#pragma omp parallel num_threads(device->threads)
    {
#pragma omp for schedule(static) collapse(2)
        for (int64_t n = 0; n < batch; n++)
            for (int64_t b = 0; b < blocks; b++)
                pass->measure(pass->operands, n, b);
#pragma omp for schedule(static)
        for (int64_t b = 0; b < blocks; b++)
            pass->finish(pass->operands, b);
#pragma omp for schedule(static) collapse(2)
        for (int64_t n = 0; n < batch; n++)
            for (int64_t b = 0; b < blocks; b++)
                pass->apply(pass->operands, n, b);
    }
    return CVY_OK;
}

/* ---- forward ---- */

/* first: sum of the run; second: sum of squares around the run's mean. */
static void measure_run(const struct cpu_loops *loops, const struct cpu_image *image, const void *x,
                        struct run_sums *sums)
{
    double lanes[CPU_LANES], channels[CPU_LANES], mean[CPU_LANES];
    float rounded[CPU_LANES], centre[CPU_LANES];
    loops->sum(x, image->run, image->step, lanes);
    cpu_fold(lanes, image->block, sums->first);
    for (int32_t c = 0; c < image->block; c++) {
        mean[c] = sums->first[c] / (double)image->pixels;
        rounded[c] = (float)mean[c];
    }
    cpu_spread(rounded, 0, image->block, centre);
    loops->sum_squares(x, image->run, image->step, centre, lanes);
    cpu_fold(lanes, image->block, channels);
    for (int32_t c = 0; c < image->block; c++) { /* `centre` was rounded to float: move to the mean itself */
        const double off = mean[c] - (double)rounded[c];
        sums->second[c] = channels[c] - off * off * (double)image->pixels;
    }
}

/* Means and sums of squares around them of the channels of a block, over all images: all channels of an image before
 * the next one, for several divisions are then under way at a time. */
struct moments {
    double mean[CPU_LANES], squares[CPU_LANES];
};

static void combine_runs(const struct cpu_image *image, const struct run_sums *sums, struct moments *all)
{
    const double pixels = (double)image->pixels;
    double total[CPU_LANES], count = pixels;
    for (int32_t c = 0; c < image->block; c++) {
        total[c] = sums[0].first[c];
        all->squares[c] = sums[0].second[c];
    }
    for (int64_t n = 1; n < image->batch; n++) {
        const struct run_sums *run = &sums[n * image->blocks];
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
    void *y;
    float *mean, *rstd, *new_mean, *new_var;
    struct run_sums *sums;
    double *shared; /* (2, C): sums of x, and of its squares; NULL: no other ranks */
    double count;   /* values of a channel, of all ranks */
};

static void forward_measure(const void *operands, int64_t n, int64_t b)
{
    const struct forward *f = operands;
    const struct cpu_image *image = &f->state->image;
    measure_run(f->loops, image, cpu_run_of(f->x, cpu_run_offset(image, n, b)), &f->sums[n * image->blocks + b]);
}

static void forward_share(const void *operands, int64_t b)
{
    const struct forward *f = operands;
    const struct cpu_image *image = &f->state->image;
    const double own = (double)image->batch * (double)image->pixels;
    struct moments all;
    combine_runs(image, &f->sums[b], &all);
    for (int32_t c = 0; c < image->block; c++) {
        const int64_t at = b * image->block + c;
        f->shared[at] = all.mean[c] * own;
        f->shared[image->blocks * image->block + at] = all.squares[c] + all.mean[c] * all.mean[c] * own;
    }
}

/* The same over the batches of all ranks. */
static void moments_of(const struct forward *f, int64_t b, struct moments *all)
{
    const struct cpu_image *image = &f->state->image;
    if (!f->shared) {
        combine_runs(image, &f->sums[b], all);
        return;
    }
    for (int32_t c = 0; c < image->block; c++) {
        const int64_t at = b * image->block + c;
        const double mean = f->shared[at] / f->count;
        const double squares = f->shared[image->blocks * image->block + at] - mean * f->shared[at];
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
}

/* Forward and backward make the numbers of y here, so that both get the same sign. mean, beta: NULL is 0. */
static void affine_of(const float *mean, const float *rstd, const float *gamma, const float *beta, int64_t first,
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

static void forward_apply(const void *operands, int64_t n, int64_t b)
{
    const struct forward *f = operands;
    const struct cpu_image *image = &f->state->image;
    const size_t at = cpu_run_offset(image, n, b);
    struct cpu_affine lanes;
    affine_of(f->mean, f->rstd, f->gamma, f->beta, b * image->block, image->block, &lanes);
    f->loops->affine(cpu_run_at(f->y, at), cpu_run_of(f->x, at), cpu_run_of(f->residual, at), image->run, image->step,
                     &lanes, f->state->activation);
}

cvy_status cpu_batch_norm_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    CVY_TRY(cpu_no_statistics(desc));
    CVY_TRY(prepare(device, desc, plan, 1U << 0 | 1U << 5, 1U << 0));
    const struct cpu_image *image = &((struct batch_norm *)plan->state)->image;
    plan->scratch_bytes = sums_bytes(image) + shared_bytes(device, image);
    plan->in_place[0] = 0;
    plan->in_place[3] = 3;
    plan->in_place[4] = 4;
    return CVY_OK;
}

cvy_status cpu_batch_norm_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                              void *scratch)
{
    const struct batch_norm *state = plan->state;
    const struct cpu_image *image = &state->image;
    const struct forward f = {.loops = cpu_loops_for(device, state->image.dtype),
                              .state = state,
                              .x = in[0],
                              .gamma = in[1],
                              .beta = in[2],
                              .running_mean = in[3],
                              .running_var = in[4],
                              .residual = in[5],
                              .y = out[0],
                              .mean = out[1],
                              .rstd = out[2],
                              .new_mean = out[3],
                              .new_var = out[4],
                              .sums = scratch,
                              .shared = shared_of(device, image, scratch),
                              .count = (double)image->batch * (double)image->pixels * cvy_device_ranks(device)};
    return run_pass(device, image,
                    &(struct pass){forward_measure, forward_share, forward_finish, forward_apply, &f, f.shared});
}

/* ---- backward ----
 * With g = masked dy, m = N H W and means over the batch:
 *   dbeta = sum g,  dgamma = rstd * sum g (x - mean)
 *   dx = gamma rstd (g - dbeta / m - (x - mean) * rstd * dgamma / m) */
struct backward {
    const struct cpu_loops *loops;
    const struct batch_norm *state;
    const void *x, *dy, *more, *y;
    const float *gamma, *beta, *mean, *rstd;
    void *dx;
    void *g; /* where the first pass leaves the masked gradient for the second: dresidual, dx, or NULL */
    float *dgamma, *dbeta;
    struct run_sums *sums;
    double *shared; /* (2, C): sums of g, and of g (x - mean); NULL: no other ranks */
    double count;   /* values of a channel, of all ranks */
};

static void backward_measure(const void *operands, int64_t n, int64_t b)
{
    const struct backward *f = operands;
    const struct cpu_image *image = &f->state->image;
    const size_t at = cpu_run_offset(image, n, b);
    struct run_sums *sums = &f->sums[n * image->blocks + b];
    struct cpu_affine lanes;
    double first[CPU_LANES], second[CPU_LANES];
    affine_of(f->mean, f->rstd, f->gamma, f->beta, b * image->block, image->block, &lanes);
    f->loops->batch_norm_bwd_sums(cpu_run_at(f->g, at), cpu_run_of(f->x, at), cpu_run_of(f->dy, at),
                                  cpu_run_of(f->more, at), cpu_run_of(f->y, at), image->run, image->step, &lanes,
                                  f->state->activation, first, second);
    cpu_fold(first, image->block, sums->first);
    cpu_fold(second, image->block, sums->second);
}

/* Adds up the images into the sums of the first, and writes dgamma and dbeta. */
static void add_images(const struct backward *f, int64_t b)
{
    const struct cpu_image *image = &f->state->image;
    struct run_sums *all = &f->sums[b];
    for (int64_t n = 1; n < image->batch; n++) {
        const struct run_sums *run = &f->sums[n * image->blocks + b];
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
        f->shared[b * image->block + c] = f->sums[b].first[c];
        f->shared[(image->blocks + b) * image->block + c] = f->sums[b].second[c];
    }
}

static void backward_finish(const void *operands, int64_t b)
{
    const struct backward *f = operands;
    const struct cpu_image *image = &f->state->image;
    if (!f->shared) {
        add_images(f, b);
        return;
    }
    for (int32_t c = 0; c < image->block; c++) {
        f->sums[b].first[c] = f->shared[b * image->block + c];
        f->sums[b].second[c] = f->shared[(image->blocks + b) * image->block + c];
    }
}

static void backward_apply(const void *operands, int64_t n, int64_t b)
{
    const struct backward *f = operands;
    const struct cpu_image *image = &f->state->image;
    const double count = f->count;
    const size_t at = cpu_run_offset(image, n, b);
    struct cpu_affine lanes;
    float offsets[CPU_LANES], slopes[CPU_LANES], offset[CPU_LANES], slope[CPU_LANES]; /* of channels, of lanes */
    affine_of(f->mean, f->rstd, f->gamma, f->beta, b * image->block, image->block, &lanes);
    for (int32_t c = 0; c < image->block; c++) {
        offsets[c] = (float)(f->sums[b].first[c] / count);
        slopes[c] = (float)(f->sums[b].second[c] / count * (double)f->rstd[b * image->block + c]);
    }
    cpu_spread(offsets, 0, image->block, offset);
    cpu_spread(slopes, 0, image->block, slope);
    f->loops->batch_norm_bwd(cpu_run_at(f->dx, at), cpu_run_of(f->x, at), cpu_run_of(f->g ? f->g : f->dy, at),
                             cpu_run_of(f->y, at), image->run, image->step, &lanes, offset, slope,
                             f->g ? CVY_ACTIVATION_NONE : f->state->activation);
}

cvy_status cpu_batch_norm_bwd_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    const uint32_t images = 1U << 0 | 1U << 5 | 1U << 6 | 1U << 7;
    const bool two = desc->inputs > 7 && cvy_tensor_present(&desc->in[7]);
    const bool residual = desc->outputs > 3 && cvy_tensor_present(&desc->out[3]);
    CVY_TRY(prepare(device, desc, plan, images, 1U << 0 | 1U << 3));
    const struct cpu_image *image = &((struct batch_norm *)plan->state)->image;
    plan->scratch_bytes = sums_bytes(image) + shared_bytes(device, image);
    /* dx over x, dresidual over dy. The sum of two dy needs a place that is not x for the second pass to read. */
    plan->in_place[0] = two && !residual ? 5 : 0;
    plan->in_place[3] = 5;
    return CVY_OK;
}

cvy_status cpu_batch_norm_bwd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                  void *const *out, void *scratch)
{
    const struct batch_norm *state = plan->state;
    const struct cpu_image *image = &state->image;
    const struct backward f = {.loops = cpu_loops_for(device, state->image.dtype),
                               .state = state,
                               .x = in[0],
                               .gamma = in[1],
                               .beta = in[2],
                               .mean = in[3],
                               .rstd = in[4],
                               .dy = in[5],
                               .y = in[6],
                               .more = in[7],
                               .dx = out[0],
                               .dgamma = out[1],
                               .dbeta = out[2],
                               .g = out[3]  ? out[3]
                                    : in[7] ? out[0]
                                            : NULL,
                               .sums = scratch,
                               .shared = shared_of(device, image, scratch),
                               .count = (double)image->batch * (double)image->pixels * cvy_device_ranks(device)};
    return run_pass(device, image,
                    &(struct pass){backward_measure, backward_share, backward_finish, backward_apply, &f, f.shared});
}

/* ---- inference ---- */

static void rstd_of(const float *var, int32_t block, float eps, float rstd[CPU_LANES])
{
    for (int32_t c = 0; c < block; c++)
        rstd[c] = (float)(1.0 / sqrt((double)var[c] + (double)eps));
}

cvy_status cpu_batch_norm_inference_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    plan->in_place[0] = 0;
    return prepare(device, desc, plan, 1U << 0 | 1U << 5, 1U << 0);
}

cvy_status cpu_batch_norm_inference_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                        void *const *out, void *scratch)
{
    (void)scratch;
    const struct batch_norm *state = plan->state;
    const struct cpu_image *image = &state->image;
    const struct cpu_loops *loops = cpu_loops_for(device, image->dtype);
    const float *gamma = in[1], *beta = in[2], *mean = in[3], *var = in[4];
#pragma omp parallel for num_threads(device->threads) schedule(static) collapse(2)
    for (int64_t n = 0; n < image->batch; n++)
        for (int64_t b = 0; b < image->blocks; b++) {
            const size_t at = cpu_run_offset(image, n, b);
            const int64_t first = b * image->block;
            struct cpu_affine lanes;
            float rstd[CPU_LANES];
            rstd_of(var + first, image->block, state->eps, rstd);
            affine_of(mean + first, rstd, gamma + first, beta + first, 0, image->block, &lanes);
            loops->affine(cpu_run_at(out[0], at), cpu_run_of(in[0], at), cpu_run_of(in[5], at), image->run, image->step,
                          &lanes, state->activation);
        }
    return CVY_OK;
}

/* dx = dy * gamma * rstd: the affine map of the forward pass without mean and shift. */
cvy_status cpu_batch_norm_inference_bwd_prepare(cvy_device *device, struct cvy_op_desc *desc,
                                                struct cvy_kernel_plan *plan)
{
    plan->in_place[0] = 0;
    return prepare(device, desc, plan, 1U << 0, 1U << 0);
}

cvy_status cpu_batch_norm_inference_bwd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                            void *const *out, void *scratch)
{
    (void)scratch;
    static const float zeros[CPU_LANES];
    const struct batch_norm *state = plan->state;
    const struct cpu_image *image = &state->image;
    const struct cpu_loops *loops = cpu_loops_for(device, image->dtype);
    const float *gamma = in[1], *var = in[2];
#pragma omp parallel for num_threads(device->threads) schedule(static) collapse(2)
    for (int64_t n = 0; n < image->batch; n++)
        for (int64_t b = 0; b < image->blocks; b++) {
            const int64_t first = b * image->block;
            const size_t at = cpu_run_offset(image, n, b);
            struct cpu_affine lanes;
            float rstd[CPU_LANES];
            rstd_of(var + first, image->block, state->eps, rstd);
            affine_of(zeros, rstd, gamma + first, zeros, 0, image->block, &lanes);
            loops->affine(cpu_run_at(out[0], at), cpu_run_of(in[0], at), NULL, image->run, image->step, &lanes, false);
        }
    return CVY_OK;
}

/* ---- the forward output again, from the statistics that were kept ---- */

cvy_status cpu_batch_norm_apply_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    return prepare(device, desc, plan, 1U << 0 | 1U << 5, 1U << 0);
}

cvy_status cpu_batch_norm_apply_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                    void *const *out, void *scratch)
{
    (void)scratch;
    const struct batch_norm *state = plan->state;
    const struct cpu_image *image = &state->image;
    const struct cpu_loops *loops = cpu_loops_for(device, image->dtype);
#pragma omp parallel for num_threads(device->threads) schedule(static) collapse(2)
    for (int64_t n = 0; n < image->batch; n++)
        for (int64_t b = 0; b < image->blocks; b++) {
            const size_t at = cpu_run_offset(image, n, b);
            struct cpu_affine lanes;
            affine_of(in[3], in[4], in[1], in[2], b * image->block, image->block, &lanes);
            loops->affine(cpu_run_at(out[0], at), cpu_run_of(in[0], at), cpu_run_of(in[5], at), image->run, image->step,
                          &lanes, state->activation);
        }
    return CVY_OK;
}
