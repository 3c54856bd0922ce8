/* Batch norm.
 *
 * Forward: one kernel reads x once and leaves, for each share of the rows, sums of x and of its square around one of
 * its rows; the last block of a tile of channels to finish puts these together in double and writes the statistics. A
 * second kernel makes y of x.
 *
 * Backward, with g = masked dy over m rows:
 *
 *   dbeta = sum g,  dgamma = rstd sum g (x - mean),  dx = gamma rstd (g - dbeta / m - (x - mean) rstd dgamma / m)
 *
 * One kernel makes the sums in the same way, a second one dx. Where a convolution gives the statistics of its output,
 * only the kernel that makes y runs forward, and the first of its rows writes what else is due. Shares depend on the
 * shape alone and are added in order, so the results are the same on every GPU and in every run. */
#include "backend/cuda/kernels/channels.h"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/moments.h"
#include "backend/cuda/kernels/window.h"

struct forward_args {
    struct gpu_spread spread;
    const void *x;
    const float *running_mean, *running_var;
    float *mean, *rstd, *new_mean, *new_var; /* the new ones may be NULL */
    float *variance;                         /* NULL, or it is what is wanted beside the mean, and nothing else */
    float *partial; /* (walkers, channels) three times: sums of x - shift and of its square, and the shift */
    uint32_t *tickets;
    float eps, momentum;
};

struct apply_args {
    struct gpu_spread spread;
    const void *x, *residual;
    void *y;
    uint8_t *sign; /* may be NULL */
    const float *mean, *gamma, *beta; /* mean, beta: NULL is 0 */
    const float *rstd, *var;          /* one of them */
    /* Where mean and var are the batch's as a convolution gives them: what is written; else NULL. */
    float *batch_mean, *batch_rstd, *new_mean, *new_var;
    const float *running_mean, *running_var;
    bool sums;           /* mean and var are the sums that they are made of */
    double share;        /* 1 / rows */
    void *scale, *shift; /* of kernel numbers; may be NULL */
    struct gpu_known_norm other; /* of kernel apply_pair: the residual's */
    float eps, momentum;
    enum cvy_dtype dtype; /* of those */
    enum cvy_activation activation;
};

/* Where the mask of a gradient comes from: nowhere, y, x, or the bits that were kept of y. */
enum mask { MASK_NONE, MASK_OUTPUT, MASK_RECOMPUTED, MASK_SIGN };

struct backward_args {
    struct gpu_spread spread;
    const void *x, *dy, *more, *y; /* more, y: may be NULL */
    const uint8_t *sign;
    const float *gamma, *beta, *mean, *rstd;
    void *dx, *dresidual;
    float *dgamma, *dbeta;                   /* may be NULL */
    float *offset, *slope;                   /* (channels) dbeta / m, rstd dgamma / m */
    const float *given_dgamma, *given_dbeta; /* instead of those; NULL: they are there */
    float *partial;                          /* (walkers, channels) twice: the two sums */
    uint32_t *tickets;
    float share; /* 1 / rows */
    enum mask mask;
    enum cvy_activation activation;
};

/* Mean and variance that are given, of a channel. */
GPU_BODY void given_moments(const struct apply_args *a, int32_t c, float *mean, float *variance)
{
    *mean = a->mean[c];
    *variance = a->var[c];
    if (a->sums)
        gpu_moments_of(*mean, *variance, a->share, mean, variance);
}

/* What a batch norm in training owes beside y, of a channel; mean and variance are given. */
GPU_BODY void write_statistics(const struct apply_args *a, int32_t c)
{
    const double rows = (double)a->spread.rows, momentum = (double)a->momentum;
    float first, second;

    given_moments(a, c, &first, &second);
    const double mean = (double)first, variance = (double)second;
    a->batch_mean[c] = first;
    a->batch_rstd[c] = 1 / sqrtf(second + a->eps); /* as in put_numbers: the same bits */
    if (a->scale)
        gpu_put_scale_and_shift(a->dtype, c, a->gamma[c], a->beta[c], first, 1 / sqrtf(second + a->eps), a->scale,
                            a->shift);
    if (a->new_mean)
        a->new_mean[c] = (float)((1 - momentum) * (double)a->running_mean[c] + momentum * mean);
    if (a->new_var)
        a->new_var[c] = (float)((1 - momentum) * (double)a->running_var[c] + momentum * variance * rows / (rows - 1));
}

/* What y is made of x with, and the residual's batch norm: rows of a table in shared memory that the threads of a block
 * make together, a channel of the block each. */
enum { MEAN, SCALE, BETA, NUMBERS, OTHER_MEAN = NUMBERS, OTHER_SCALE, OTHER_BETA, ALL_NUMBERS };
typedef float number_row[8 * SPREAD_THREADS];

/* What the numbers of a channel are made of. */
struct number_sources {
    float mean, variance, gamma, beta; /* rstd instead of variance, if that is there */
};

GPU_BODY struct number_sources sources_of(const struct apply_args *a, int32_t c)
{
    struct number_sources from;

    from.mean = a->mean ? a->mean[c] : 0;
    from.variance = a->rstd ? a->rstd[c] : a->var[c];
    from.gamma = a->gamma[c];
    from.beta = a->beta ? a->beta[c] : 0;
    return from;
}

GPU_BODY void put_numbers(const struct apply_args *a, struct number_sources from, int32_t at,
                          number_row *shared_numbers)
{
    if (a->sums)
        gpu_moments_of(from.mean, from.variance, a->share, &from.mean, &from.variance);
    shared_numbers[MEAN][at] = from.mean;
    shared_numbers[SCALE][at] = (a->rstd ? from.variance : 1 / sqrtf(from.variance + a->eps)) * from.gamma;
    shared_numbers[BETA][at] = from.beta;
}

/* Some channels of a thread are on their way at a time: of wide images it has eight. */
GPU_BODY void put_block_numbers(const struct apply_args *a, int32_t width, bool paired, number_row *shared_numbers)
{
    enum { BATCH = 4 };
    const int32_t first = GPU_BLOCK_Y * a->spread.across * width, left = a->spread.channels - first;
    const int32_t channels = a->spread.across * width < left ? a->spread.across * width : left;

    GPU_ROLLED
    for (int32_t at = GPU_THREAD; at < channels; at += BATCH * SPREAD_THREADS) {
        struct number_sources from[BATCH];
        GPU_UNROLL
        for (int k = 0; k < BATCH; k++) {
            const int32_t next = at + k * SPREAD_THREADS;
            from[k] = sources_of(a, first + (next < channels ? next : at));
        }
        GPU_UNROLL
        for (int k = 0; k < BATCH; k++) {
            if (at + k * SPREAD_THREADS < channels)
                put_numbers(a, from[k], at + k * SPREAD_THREADS, shared_numbers);
        }
    }
    GPU_ROLLED
    for (int32_t at = GPU_THREAD; at < channels; at += SPREAD_THREADS) {
        if (paired) {
            shared_numbers[OTHER_MEAN][at] = a->other.mean[first + at];
            shared_numbers[OTHER_SCALE][at] = a->other.rstd[first + at] * a->other.gamma[first + at];
            shared_numbers[OTHER_BETA][at] = a->other.beta[first + at];
        }
        if (a->batch_rstd && GPU_BLOCK_X == 0)
            write_statistics(a, first + at);
    }
    GPU_SYNC();
}

struct channel_numbers {
    float mean[8], scale[8], beta[8];
};

GPU_BODY void backward_numbers(const struct backward_args *a, int32_t channel, int32_t width,
                               struct channel_numbers *numbers)
{
    const struct gpu_known_norm norm = {a->gamma, a->beta, a->mean, a->rstd};

    gpu_known_numbers(&norm, channel, width, numbers->mean, numbers->scale, numbers->beta);
}

/* dbeta / m and rstd dgamma / m of a thread's channels. */
GPU_BODY void backward_slopes(const struct backward_args *a, int32_t channel, int32_t width, float *offset,
                              float *slope)
{
    float rstd[8];

    gpu_get_channels(a->given_dbeta ? a->given_dbeta : a->offset, channel, width, offset);
    gpu_get_channels(a->given_dgamma ? a->given_dgamma : a->slope, channel, width, slope);
    if (!a->given_dgamma)
        return;
    gpu_get_channels(a->rstd, channel, width, rstd);
    GPU_UNROLL
    for (int32_t i = 0; i < width; i++) {
        offset[i] *= a->share;
        slope[i] *= rstd[i] * a->share;
    }
}

/* ---- what the last block does ---- */

/* Whether this block is the last one of its tile to come here: then what all of them have written can be read. The
 * counter is zero again for the next kernel. */
GPU_BODY bool last_of_tile(const struct gpu_spread *spread, uint32_t *tickets)
{
    GPU_SHARED bool last;

    GPU_SYNC();
    if (GPU_THREAD == 0) {
        last = GPU_TICKET(&tickets[GPU_BLOCK_Y]) == (uint32_t)spread->walkers - 1;
        if (last)
            tickets[GPU_BLOCK_Y] = 0;
        GPU_FENCE();
    }
    GPU_SYNC();
    return last;
}

GPU_BODY int64_t partial_size(const struct gpu_spread *spread)
{
    return (int64_t)spread->walkers * spread->channels;
}

/* Adds what a walker has left to the sums of all. */
GPU_BODY void add_partial(double first, double second, double total[2])
{
    total[0] += first;
    total[1] += second;
}

/* Forward, of so many rows: from sums around a shift that is `away` from where the sums of all are. */
GPU_BODY void add_shifted(double rows, double away, double first, double second, double total[2])
{
    total[0] += first + rows * away;
    total[1] += second + 2 * away * first + rows * away * away;
}

/* The two sums over all walkers, in double, of the channel of each thread that has one: the first threads of the block
 * have one each, and its number comes back. Forward: sums around `centre`, the shift of walker 0. */
GPU_BODY bool tile_totals(const struct gpu_spread *spread, const float *partial, bool forward, int32_t width,
                          int32_t *channel, double *centre, double total[2])
{
    enum { BATCH = 16 };
    GPU_SHARED double shared_sums[2][SPREAD_THREADS];
    const int32_t lanes = spread->across * width, parts = SPREAD_THREADS / lanes;
    const int32_t part = GPU_THREAD / lanes;
    const int64_t size = partial_size(spread);
    const struct gpu_walks walks = gpu_walks_of(spread);

    *channel = GPU_BLOCK_Y * lanes + GPU_THREAD % lanes;
    const bool inside = part < parts && *channel < spread->channels;
    total[0] = total[1] = 0;
    *centre = forward && inside ? (double)partial[2 * size + *channel] : 0;
    for (int32_t walker = part; inside && walker < spread->walkers; walker += BATCH * parts) {
        float first[BATCH], second[BATCH], shift[BATCH];
        GPU_UNROLL
        for (int32_t k = 0; k < BATCH; k++) {
            const int32_t w = walker + k * parts < spread->walkers ? walker + k * parts : walker;
            const float *from = partial + (int64_t)w * spread->channels + *channel;
            first[k] = from[0];
            second[k] = from[size];
            shift[k] = forward ? from[2 * size] : 0;
        }
        GPU_UNROLL
        for (int32_t k = 0; k < BATCH; k++) {
            const int32_t w = walker + k * parts;
            if (w < spread->walkers && forward)
                add_shifted(gpu_walker_rows(&walks, w), (double)shift[k] - *centre, (double)first[k],
                            (double)second[k], total);
            else if (w < spread->walkers)
                add_partial((double)first[k], (double)second[k], total);
        }
    }
    shared_sums[0][GPU_THREAD] = total[0];
    shared_sums[1][GPU_THREAD] = total[1];
    GPU_SYNC();
    for (int32_t p = 1; part == 0 && p < parts; p++) {
        total[0] += shared_sums[0][GPU_THREAD + p * lanes];
        total[1] += shared_sums[1][GPU_THREAD + p * lanes];
    }
    return inside && part == 0;
}

GPU_BODY void forward_finish(const struct forward_args *a, int32_t width)
{
    const double rows = (double)a->spread.rows, momentum = (double)a->momentum;
    double centre, total[2], mean, squares;
    int32_t c;

    if (!tile_totals(&a->spread, a->partial, true, width, &c, &centre, total))
        return;
    mean = centre + total[0] / rows;
    squares = total[1] - total[0] / rows * total[0];
    squares = squares < 0 ? 0 : squares;
    a->mean[c] = (float)mean;
    if (a->variance) {
        a->variance[c] = (float)(squares / rows);
        return;
    }
    a->rstd[c] = (float)(1 / sqrt(squares / rows + (double)a->eps));
    if (a->new_mean)
        a->new_mean[c] = (float)((1 - momentum) * (double)a->running_mean[c] + momentum * mean);
    if (a->new_var)
        a->new_var[c] = (float)((1 - momentum) * (double)a->running_var[c] + momentum * squares / (rows - 1));
}

GPU_BODY void backward_finish(const struct backward_args *a, int32_t width)
{
    const double rows = (double)a->spread.rows;
    double centre, total[2], rstd;
    int32_t c;

    if (!tile_totals(&a->spread, a->partial, false, width, &c, &centre, total))
        return;
    rstd = (double)a->rstd[c];
    if (a->dbeta)
        a->dbeta[c] = (float)total[0];
    if (a->dgamma)
        a->dgamma[c] = (float)(total[1] * rstd);
    a->offset[c] = (float)(total[0] / rows);
    a->slope[c] = (float)(total[1] * rstd * rstd / rows);
}

#define KERNELS "backend/cuda/kernels/batch_norm.inc"
#include "backend/cuda/kernels/widths.inc"
#undef KERNELS

/* Two batch norms whose outputs are added: both have the same spread, and the masked gradient of one, rounded, is
 * that of the other. Of `one` all but given_dgamma and given_dbeta, with MASK_SIGN; of `two` x, the numbers, dx and what
 * becomes of the sums. */
struct pair_args {
    struct backward_args one, two;
};
#define KERNELS "backend/cuda/kernels/batch_norm_pair.inc"
#include "backend/cuda/kernels/widths.inc"

/* A batch norm with ReLU before a max pool: its gradient comes through the pool's windows. Of `norm` all but dy, more
 * and dresidual, with MASK_RECOMPUTED. */
struct pooled_args {
    struct backward_args norm;
    struct gpu_window pool;
};
enum { HALVED_BYTES = SPREAD_THREADS * 128 }; /* 128 of each thread: a flight */
#undef KERNELS
#define KERNELS "backend/cuda/kernels/batch_norm_pool.inc"
#include "backend/cuda/kernels/widths.inc"

/* ---- launches ---- */

GPU_EXTERN void gpu_batch_norm_shape(int64_t rows, int64_t channels, int64_t *tiles, int64_t *scratch_floats)
{
    const struct gpu_spread spread = gpu_spread_sums(rows, channels);

    *tiles = spread.tiles;
    /* Three partial numbers forward; backward two, and two more for each channel. */
    *scratch_floats = (3 * (int64_t)spread.walkers + 2) * channels;
}

static struct apply_args apply_args_of(const struct gpu_batch_norm *what, const float *mean, const float *beta,
                                       const float *rstd, const float *var)
{
    struct apply_args args;

    memset(&args, 0, sizeof args);
    args.spread = gpu_spread_map(1, what->rows, what->channels);
    args.share = 1 / (double)what->rows;
    args.x = what->x;
    args.residual = what->residual;
    args.y = what->y;
    args.sign = what->sign;
    args.mean = mean;
    args.gamma = what->gamma;
    args.beta = beta;
    args.rstd = rstd;
    args.var = var;
    args.other.gamma = what->residual_gamma;
    args.other.beta = what->residual_beta;
    args.other.mean = what->residual_mean;
    args.other.rstd = what->residual_rstd;
    args.eps = what->eps;
    args.activation = what->activation;
    return args;
}

static void launch_apply(void *stream, enum cvy_dtype dtype, const struct apply_args *args)
{
    if (args->other.rstd)
        GPU_LAUNCH_SPREAD(apply_pair, dtype, stream, 1, args->spread, *args);
    else if (args->residual)
        GPU_LAUNCH_SPREAD(apply_sum, dtype, stream, 1, args->spread, *args);
    else
        GPU_LAUNCH_SPREAD(apply, dtype, stream, 1, args->spread, *args);
}

static void apply(void *stream, const struct gpu_batch_norm *what, const float *mean, const float *beta,
                  const float *rstd, const float *var)
{
    const struct apply_args args = apply_args_of(what, mean, beta, rstd, var);

    launch_apply(stream, what->dtype, &args);
}

GPU_EXTERN void gpu_batch_norm(void *stream, const struct gpu_batch_norm *what, float *scratch, uint32_t *tickets)
{
    struct forward_args args;

    memset(&args, 0, sizeof args);
    args.spread = gpu_spread_sums(what->rows, what->channels);
    args.x = what->x;
    args.running_mean = what->running_mean;
    args.running_var = what->running_var;
    args.mean = what->mean;
    args.rstd = what->rstd;
    args.new_mean = what->new_mean;
    args.new_var = what->new_var;
    args.partial = scratch;
    args.tickets = tickets;
    args.eps = what->eps;
    args.momentum = what->momentum;
    GPU_LAUNCH_SPREAD(forward_sums, what->dtype, stream, 1, args.spread, args);
    if (what->y)
        apply(stream, what, args.mean, what->beta, args.rstd, 0);
}

static struct apply_args given_args_of(const struct gpu_batch_norm *what, const float *mean, const float *variance)
{
    struct apply_args args = apply_args_of(what, mean, what->beta, 0, variance);

    args.running_mean = what->running_mean;
    args.running_var = what->running_var;
    args.batch_mean = what->mean;
    args.batch_rstd = what->rstd;
    args.new_mean = what->new_mean;
    args.new_var = what->new_var;
    args.sums = what->sums;
    args.scale = what->scale;
    args.shift = what->shift;
    args.dtype = what->dtype;
    args.momentum = what->momentum;
    return args;
}

GPU_EXTERN void gpu_batch_norm_given(void *stream, const struct gpu_batch_norm *what, const float *mean,
                                     const float *variance)
{
    const struct apply_args args = given_args_of(what, mean, variance);

    launch_apply(stream, what->dtype, &args);
}

GPU_EXTERN void gpu_statistics(void *stream, enum cvy_dtype dtype, const void *x, int64_t rows, int64_t channels,
                               float *mean, float *variance, float *scratch, uint32_t *tickets)
{
    struct forward_args args;

    memset(&args, 0, sizeof args);
    args.spread = gpu_spread_sums(rows, channels);
    args.x = x;
    args.mean = mean;
    args.variance = variance;
    args.partial = scratch;
    args.tickets = tickets;
    GPU_LAUNCH_SPREAD(forward_sums, dtype, stream, 1, args.spread, args);
}

/* A thread for each channel. */
SPREAD_KERNEL(numbers, struct apply_args)
{
    const int64_t c = (int64_t)GPU_BLOCK_X * SPREAD_THREADS + GPU_THREAD;

    if (c < a.spread.channels)
        write_statistics(&a, (int32_t)c);
}

GPU_EXTERN void gpu_batch_norm_numbers(void *stream, const struct gpu_batch_norm *what, const float *mean,
                                       const float *variance)
{
    const struct apply_args args = given_args_of(what, mean, variance);

    GPU_LAUNCH(numbers, stream, gpu_parts(what->channels, SPREAD_THREADS), 1, SPREAD_THREADS, args);
}

GPU_EXTERN void gpu_batch_norm_apply(void *stream, const struct gpu_batch_norm *what)
{
    apply(stream, what, what->mean, what->beta, what->rstd, 0);
}

GPU_EXTERN void gpu_batch_norm_inference(void *stream, const struct gpu_batch_norm *what)
{
    apply(stream, what, what->running_mean, what->beta, 0, what->running_var);
}

GPU_EXTERN void gpu_batch_norm_inference_bwd(void *stream, const struct gpu_batch_norm *what)
{
    apply(stream, what, 0, 0, 0, what->running_var);
}

/* `scratch`: what gpu_batch_norm_shape says. */
static struct backward_args backward_args_of(const struct gpu_batch_norm_bwd *what, float *scratch, uint32_t *tickets)
{
    struct backward_args args;

    memset(&args, 0, sizeof args);
    args.spread = gpu_spread_sums(what->rows, what->channels);
    args.x = what->x;
    args.dy = what->dy;
    args.more = what->more;
    args.y = what->y;
    args.sign = what->sign;
    args.gamma = what->gamma;
    args.beta = what->beta;
    args.mean = what->mean;
    args.rstd = what->rstd;
    args.dx = what->dx;
    args.dresidual = what->dresidual;
    args.dgamma = what->dgamma;
    args.dbeta = what->dbeta;
    args.offset = scratch;
    args.slope = scratch + what->channels;
    args.partial = scratch + 2 * what->channels;
    args.tickets = tickets;
    args.share = 1 / (float)what->rows;
    args.activation = what->activation;
    args.mask = what->activation == CVY_ACTIVATION_NONE ? MASK_NONE
                : what->sign                            ? MASK_SIGN
                : what->y                               ? MASK_OUTPUT
                                                        : MASK_RECOMPUTED;
    args.given_dgamma = what->given_dgamma;
    args.given_dbeta = what->given_dbeta;
    return args;
}

GPU_EXTERN void gpu_batch_norm_bwd(void *stream, const struct gpu_batch_norm_bwd *what, float *scratch,
                                   uint32_t *tickets)
{
    struct backward_args args = backward_args_of(what, scratch, tickets);

    if (what->given_dgamma)
        args.mask = MASK_NONE;
    else
        GPU_LAUNCH_SPREAD(backward_sums, what->dtype, stream, 1, args.spread, args);
    if (!what->dx)
        return;
    args.spread = gpu_spread_map(1, what->rows, what->channels);
    if (what->dresidual) { /* the gradient is there, masked and added up */
        args.dy = what->dresidual;
        args.more = 0;
        args.mask = MASK_NONE;
    }
    GPU_LAUNCH_SPREAD(backward_apply, what->dtype, stream, 1, args.spread, args);
}

GPU_EXTERN void gpu_batch_norm_pair_bwd(void *stream, const struct gpu_batch_norm_bwd *what,
                                        const struct gpu_batch_norm_bwd *residual, float *scratch, uint32_t *tickets)
{
    struct pair_args args;
    int64_t tiles, floats;

    gpu_batch_norm_shape(what->rows, what->channels, &tiles, &floats);
    args.one = backward_args_of(what, scratch, tickets);
    args.two = backward_args_of(residual, scratch + floats, tickets);
    GPU_LAUNCH_SPREAD(pair_sums, what->dtype, stream, 1, args.one.spread, args);
    args.one.spread = args.two.spread = gpu_spread_map(1, what->rows, what->channels);
    GPU_LAUNCH_SPREAD(pair_apply, what->dtype, stream, 1, args.one.spread, args);
}

GPU_EXTERN void gpu_norm_pool_bwd(void *stream, const struct gpu_pool *pool, const void *dy, const uint8_t *index,
                                  const struct gpu_batch_norm_bwd *norm, float *scratch, uint32_t *tickets)
{
    struct pooled_args args;

    args.norm = backward_args_of(norm, scratch, tickets);
    args.pool = gpu_window_of(pool);
    args.pool.x = dy;
    args.pool.index = (uint8_t *)(uintptr_t)index; /* which is only read */
    if (args.pool.cells && pool->w % 2 == 0 && norm->rows <= INT32_MAX)
        GPU_LAUNCH_SPREAD(halved_sums, norm->dtype, stream, 1, args.norm.spread, args);
    else
        GPU_LAUNCH_SPREAD(pooled_sums, norm->dtype, stream, 1, args.norm.spread, args);
    args.norm.spread = gpu_spread_map(1, norm->rows, norm->channels);
    if (args.pool.cells)
        GPU_LAUNCH_WIDTH(halved_apply, norm->dtype, gpu_width(pool->c), stream,
                         gpu_parts(gpu_strip_threads(&args.pool), SPREAD_THREADS), 1, args);
    else
        GPU_LAUNCH_SPREAD(pooled_apply, norm->dtype, stream, 1, args.norm.spread, args);
}
