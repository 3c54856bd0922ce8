/* Convolutions of 1 x 1 pixel of channels-last bf16 images by tile products. With x and dx at pixels (p, q) * stride:
 *
 *     y[n][p][q][k] = activation(sum over c of x[n][..][..][c] * w[k][c] + bias[k] + residual[n][p][q][k])
 *     dx[n][..][..][c] = sum over k of dy[n][p][q][k] * w[k][c]; 0 in the pixels that the stride leaves out
 *
 * Each is a product of a matrix of pixels with one of weights, which lie in the order of a tile's right side already
 * (an opaque layout). A tile's rows are 16 pixels as they lie in memory; two by two tiles of sums stay in registers
 * over the whole depth, and the sums of 32 lanes become a line of the cache. A task is some pixels and some lanes: all
 * lanes, but where there are fewer pixels than threads want. The larger operand is read once, the other stays in the
 * second-level cache. Where the stride leaves pixels out, those of the input are copied side by side first, and the
 * gradient's zeros are written with what is not. Results larger than the caches hold are written past them: a store
 * would read the line that it fills.
 *
 * Sums for the batch norm beside a convolution are made where its numbers are written, of groups of pixels that depend
 * on the shape alone, and put together in the order of the groups: forward mean and variance of y; backward, of the
 * batch norm with ReLU before the convolution, the gradients of its gamma and beta, of dx (with the gradient of y's
 * other reader) where that passes the ReLU. So a pass over y, or over dx and x, is saved. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "backend/cpu/conv/places.h"
#include "backend/cpu/conv/tile_product.h"
#include "backend/cpu/conv/tile_weights.h"
#include "backend/cpu/parts.h"
#include "backend/cpu/sign.h"
#include "base/system.h"

const struct cpu_tile_product_loops *cpu_tile_product_loops_here(void)
{
    return cpu_tile_loops(CVY_IF_AVX(&cpu_tile_product_amx_bf16), CVY_IF_AVX(&cpu_tile_product_amx_bf16_model));
}

/* ---- run ---- */

struct operands {
    const uint16_t *from;
    const char *weights;
    const float *bias;
    const uint16_t *more;
    uint16_t *to;
    uint32_t *passed;
    struct cpu_tile_norm norm;
    float *sums; /* of all groups */
};

/* Where pixels [begin, begin + count) of the smaller images lie in the wider ones: pixels before each. */
static void find_pixels(const struct tile_product *s, int64_t begin, int32_t count, int64_t *at)
{
    int64_t q = begin % s->small[1], p = begin / s->small[1] % s->small[0];
    int64_t n = begin / ((int64_t)s->small[0] * s->small[1]);

    for (int32_t i = 0; i < count; i++) {
        at[i] = (n * s->wide[0] + p * s->stride[0]) * s->wide[1] + q * s->stride[1];
        if (++q == s->small[1]) {
            q = 0;
            if (++p == s->small[0]) {
                p = 0;
                n++;
            }
        }
    }
}

/* The pixels that the gradient at pixel i of the smaller images stands for: its own is written by the product, the
 * others of its field of stride x stride are 0. */
static void clear_field(const struct tile_product *s, int64_t i, uint16_t *to)
{
    const int64_t q = i % s->small[1], p = i / s->small[1] % s->small[0];
    const int64_t down = s->wide[0] - p * s->stride[0], across = s->wide[1] - q * s->stride[1];
    const int64_t rows = down < s->stride[0] ? down : s->stride[0];
    const int64_t columns = across < s->stride[1] ? across : s->stride[1];
    const size_t lanes = (size_t)s->lanes;

    for (int64_t r = 0; r < rows; r++) {
        const size_t own = r == 0;
        s->loops->zero(to + ((size_t)r * (size_t)s->wide[1] + own) * lanes, ((size_t)columns - own) * lanes);
    }
}

/* The given pixels side by side. */
static void gather(const struct tile_product *s, const uint16_t *from, const int64_t *pixel, int32_t count, char *to)
{
    const size_t bytes = (size_t)s->depth * sizeof(*from);

    for (int32_t i = 0; i < count; i++)
        memcpy(to + (size_t)i * bytes, from + pixel[i] * s->depth, bytes);
}

/* Pixels [begin, begin + count) and the lanes from `lane` on. `buffer`: of the thread: sums, then pixels side by side.
 */
static void run_task(const struct tile_product *s, const struct operands *o, int64_t begin, int32_t count, int32_t lane,
                     char *buffer)
{
    const size_t pitch = (size_t)s->depth * sizeof(uint16_t);
    const bool dense = tile_product_is_dense(s), sparse = !s->backward && !dense, scattered = s->backward && !dense;
    const int32_t rest = count % (2 * s->height), left = s->lanes - lane;
    char *const copy = buffer + s->thread_bytes - s->copy_bytes;
    int64_t wide[PRODUCT_MOST];
    struct cpu_tile_task task = {.from = sparse ? copy : (const char *)(o->from + begin * s->depth),
                                 .pitch = pitch,
                                 .weights = o->weights,
                                 .bias = o->bias,
                                 .more = o->more,
                                 .first = o->to,
                                 .norm = o->norm,
                                 .passed = o->passed,
                                 .kind = s->sums,
                                 .lanes = s->lanes,
                                 .pixels = count,
                                 .steps = s->depth / PRODUCT_DEPTH,
                                 .height = s->height,
                                 .lane = lane,
                                 .end = lane + (left < s->task_lanes ? left : s->task_lanes),
                                 .low = s->low,
                                 .high = s->high,
                                 .far = !sparse,
                                 .past = s->past};

    if (s->sums)
        task.sums = o->sums + begin / PRODUCT_GROUP * tile_sums_numbers(s->sums) * s->lanes;
    if (!dense)
        find_pixels(s, begin, count, wide);
    for (int32_t i = 0; i < count; i++)
        task.to[i] = o->to + (scattered ? wide[i] : begin + i) * s->lanes;
    if (sparse)
        gather(s, o->from, wide, count, copy);
    else if (rest % s->height) {
        memcpy(copy, o->from + (begin + count - rest) * s->depth, (size_t)rest * pitch);
        task.last = copy;
    }
    /* Either all weights stay in the second-level cache, or the pixels of the task do. */
    task.lanes_first = !s->fixed && (size_t)(task.end - lane) * pitch <= PRODUCT_HELD;
    s->loops->multiply(&task, (float *)buffer);
    for (int32_t i = 0; scattered && lane == 0 && i < count; i++)
        clear_field(s, begin + i, task.to[i]);
}

static int64_t lane_parts(const struct tile_product *s)
{
    return divide_up(s->lanes, s->task_lanes);
}

static int64_t task_count(const struct tile_product *s)
{
    const int64_t shared = (int64_t)s->task_pixels * s->chunks;
    return divide_up(s->pixels, shared) * s->chunks * lane_parts(s);
}

/* Task `task` of those that cut_tasks() or cut_fixed() makes: of some pixels all lanes, and of some lanes all chunks.
 */
static void run_numbered(const struct tile_product *s, const struct operands *o, int64_t task, char *buffer)
{
    const int64_t parts = lane_parts(s), share = task / (parts * s->chunks), part = task / s->chunks % parts;
    const int64_t begin = (share * s->chunks + task % s->chunks) * s->task_pixels, left = s->pixels - begin;

    if (left > 0)
        run_task(s, o, begin, (int32_t)(left < s->task_pixels ? left : s->task_pixels), (int32_t)part * s->task_lanes,
                 buffer);
}

/* What a thread's buffers are followed by: sums of all groups, then a number of each lane. */
static float *sums_at(const cvy_device *device, const struct tile_product *s, void *scratch)
{
    return (float *)((char *)scratch + (size_t)device->threads * s->thread_bytes);
}

static void run(cvy_device *device, const struct tile_product *s, const struct operands *o, void *scratch)
{
    const int64_t tasks = task_count(s);

#pragma omp parallel num_threads(device->threads)
    {
        char *const buffer = (char *)scratch + (size_t)omp_get_thread_num() * s->thread_bytes;
        if (s->fixed) {
#pragma omp for schedule(static) nowait
            for (int64_t task = 0; task < tasks; task++)
                run_numbered(s, o, task, buffer);
        } else {
            /* Whoever is free takes the next task: other programs may slow one core down. */
#pragma omp for schedule(dynamic, 1) nowait
            for (int64_t task = 0; task < tasks; task++)
                run_numbered(s, o, task, buffer);
        }
        s->loops->finish();
    }
}

/* The factors of the batch norm: what follows the sums. */
static float *scale_at(const cvy_device *device, const struct tile_product *s, void *scratch)
{
    return sums_at(device, s, scratch) + tile_product_groups(s) * tile_sums_numbers(s->sums) * s->lanes;
}

static struct operands forward_operands(const cvy_device *device, const struct tile_product *s, void *const *in,
                                        void *const *out, void *scratch)
{
    struct operands o = {in[0], in[1], in[2], in[3], out[0], .sums = sums_at(device, s, scratch)};

    if (s->norm) {
        o.norm = (struct cpu_tile_norm){.mean = in[10], .scale = scale_at(device, s, scratch), .shift = in[9]};
        o.passed = out[3];
    }
    return o;
}

/* What the sums of a batch norm's output, or of its gradient, are multiplied by. */
static void make_scale(const cvy_device *device, const struct tile_product *s, const float *gamma, const float *rstd,
                       void *scratch)
{
    float *const scale = scale_at(device, s, scratch);

    for (int32_t c = 0; s->norm && c < s->lanes; c++)
        scale[c] = rstd[c] * gamma[c];
}

static cvy_status begin_forward(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                void *const *out, void *scratch)
{
    (void)out;
    make_scale(device, plan->state, in[8], in[11], scratch);
    return CVY_OK;
}

static cvy_status end_forward(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                              void *scratch)
{
    const struct tile_product *const s = plan->state;
    const struct operands o = forward_operands(device, s, in, out, scratch);

    if (s->sums) {
#pragma omp parallel for num_threads(device->threads) schedule(static)
        for (int32_t lane = 0; lane < s->lanes; lane += 16)
            s->loops->join_moments(o.sums, s->pixels, s->lanes, lane, out[1], out[2]);
    }
    return CVY_OK;
}

cvy_status cpu_tile_product_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                void *const *out, void *scratch)
{
    CVY_TRY(begin_forward(device, plan, in, out, scratch));
    const struct operands o = forward_operands(device, plan->state, in, out, scratch);
    run(device, plan->state, &o, scratch);
    return end_forward(device, plan, in, out, scratch);
}

static struct operands backward_operands(const cvy_device *device, const struct tile_product *s, void *const *in,
                                         void *const *out, void *scratch)
{
    struct operands o = {.from = in[1], .weights = in[0], .to = out[0], .sums = sums_at(device, s, scratch)};

    if (s->sums) {
        o.norm = (struct cpu_tile_norm){in[2], in[7], in[5], scale_at(device, s, scratch), in[4]};
        o.more = in[8];
    }
    return o;
}

static cvy_status begin_backward(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                 void *const *out, void *scratch)
{
    (void)out;
    make_scale(device, plan->state, in[3], in[6], scratch);
    return CVY_OK;
}

static cvy_status end_backward(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                               void *const *out, void *scratch)
{
    const struct tile_product *const s = plan->state;
    const float *const sums = sums_at(device, s, scratch);

    if (s->sums) {
#pragma omp parallel for num_threads(device->threads) schedule(static)
        for (int32_t lane = 0; lane < s->lanes; lane += 16)
            s->loops->join_gradients(sums, s->pixels, s->lanes, lane, in[6], out[1], out[2]);
    }
    return CVY_OK;
}

cvy_status cpu_tile_product_bwd_data_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                         void *const *out, void *scratch)
{
    const struct tile_product *const s = plan->state;

    CVY_TRY(begin_backward(device, plan, in, out, scratch));
    const struct operands o = backward_operands(device, s, in, out, scratch);
    run(device, s, &o, scratch);
    return end_backward(device, plan, in, out, scratch);
}

/* ---- part by part ---- */

static bool cut_dense(const struct tile_product *s, struct cvy_cut *cut)
{
    cut->pixels = s->pixels;
    cut->grain = s->sums ? PRODUCT_GROUP : 2 * PRODUCT_HEIGHT;
    cut->out |= 1U << 0;
    return tile_product_is_dense(s) && !s->fixed;
}

static bool cut_forward(cvy_device *device, const struct cvy_op_desc *desc, const struct cvy_kernel_plan *plan,
                        struct cvy_cut *cut)
{
    (void)device;
    (void)desc;
    const struct tile_product *const s = plan->state;

    cut->in = 1U << 0 | 1U << 3;
    if (s->norm) {
        cut->out = 1U << 3;
        cut->past = s->past ? 1U << 0 : 0;
    }
    return cut_dense(s, cut);
}

static bool cut_backward(cvy_device *device, const struct cvy_op_desc *desc, const struct cvy_kernel_plan *plan,
                         struct cvy_cut *cut)
{
    (void)device;
    (void)desc;
    cut->in = 1U << 1 | 1U << 2 | 1U << 7 | 1U << 8;
    return cut_dense(plan->state, cut);
}

/* All lanes of the part's pixels, as many at a time as a task takes. */
static void run_part(const struct tile_product *s, const struct operands *o, const struct cpu_part *part)
{
    char *const buffer = (char *)part->scratch + (size_t)part->thread * s->thread_bytes;
    struct tile_product own = *s;

    own.past = s->past && !part->near;
    own.task_lanes = s->lanes;
    for (int32_t done = 0; done < part->count; done += PRODUCT_MOST) {
        const int32_t left = part->count - done;
        run_task(&own, o, part->first + done, left < PRODUCT_MOST ? left : PRODUCT_MOST, 0, buffer);
    }
}

static void run_forward_part(cvy_device *device, const struct cpu_part *part)
{
    const struct tile_product *const s = part->plan->state;
    const struct operands o = forward_operands(device, s, part->in, part->out, part->scratch);

    run_part(s, &o, part);
}

static void run_backward_part(cvy_device *device, const struct cpu_part *part)
{
    const struct tile_product *const s = part->plan->state;
    const struct operands o = backward_operands(device, s, part->in, part->out, part->scratch);

    run_part(s, &o, part);
}

const struct cpu_parts cpu_tile_product_parts = {
    .cut = cut_forward, .begin = begin_forward, .run = run_forward_part, .end = end_forward};
const struct cpu_parts cpu_tile_product_bwd_data_parts = {
    .cut = cut_backward, .begin = begin_backward, .run = run_backward_part, .end = end_backward};
