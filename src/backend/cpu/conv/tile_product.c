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

#define TASKS      8                   /* for each thread, at least, where there are so many blocks */
#define FEW_TASKS  2                   /* the same where weights pass by the pixels of a task */
#define HELD_BYTES ((size_t)1 << 20)   /* of weights beside which the pixels pass */
#define COPY_BYTES ((size_t)512 << 10) /* of the pixels of a task that are copied side by side */

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

static int64_t groups_of(const struct tile_product *s)
{
    return divide_up(s->pixels, PRODUCT_GROUP);
}

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

static bool is_dense(const struct tile_product *s)
{
    return s->stride[0] == 1 && s->stride[1] == 1;
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
    const bool dense = is_dense(s), sparse = !s->backward && !dense, scattered = s->backward && !dense;
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
    task.lanes_first = !s->fixed && (size_t)(task.end - lane) * pitch <= HELD_BYTES;
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
    return sums_at(device, s, scratch) + groups_of(s) * tile_sums_numbers(s->sums) * s->lanes;
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
    return is_dense(s) && !s->fixed;
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

/* ---- prepare ---- */

static bool has(const struct cvy_tensor *tensors, int32_t count, int32_t i)
{
    return i < count && cvy_tensor_present(&tensors[i]);
}

/* Whether there is nothing beside the product but what these loops do: bias, residual and activation in inference, sums
 * in training, of layers with frozen weights too (ops.def). */
static bool operands_fit(const struct cvy_op_desc *desc)
{
    const struct cvy_conv2d_attr *const attr = &desc->attr.conv2d;
    const bool dense = attr->stride[0] == 1 && attr->stride[1] == 1, sums = has(desc->out, desc->outputs, 2);
    bool fit;

    if (desc->op == CVY_OP_CONV2D) {
        const bool norm = has(desc->in, desc->inputs, 8);
        const bool ends =
            has(desc->in, desc->inputs, 2) || has(desc->in, desc->inputs, 3) || attr->activation != CVY_ACTIVATION_NONE;
        fit = sums == has(desc->out, desc->outputs, 1) && !(sums && (ends || !desc->training)) &&
              norm == has(desc->out, desc->outputs, 3);
        for (int32_t i = 4; i < 12; i++)
            fit = fit && has(desc->in, desc->inputs, i) == (norm && i >= 8);
        return fit && !(norm && (!dense || sums || has(desc->in, desc->inputs, 2) || !has(desc->in, desc->inputs, 3) ||
                                 attr->activation != CVY_ACTIVATION_RELU));
    }
    const bool norm = has(desc->in, desc->inputs, 2), sign = has(desc->in, desc->inputs, 7),
               more = has(desc->in, desc->inputs, 8);
    fit = norm == has(desc->out, desc->outputs, 1) && sums == (norm || sign) && (more || !sign) && !(more && !sums) &&
          (dense || !sums);
    for (int32_t i = 3; i < 7; i++)
        fit = fit && has(desc->in, desc->inputs, i) == norm;
    return fit;
}

/* Why these loops do not take a convolution; NULL: they do. x: its input, or the gradient of that. */
static const char *refusal(const struct cpu_device *device, const struct cvy_op_desc *desc, const struct cvy_tensor *x,
                           const struct cvy_tensor *w)
{
    const struct cvy_conv2d_attr *const attr = &desc->attr.conv2d;
    bool plain = attr->groups == 1 && operands_fit(desc);

    for (int i = 0; i < 2; i++)
        plain = plain && attr->kernel[i] == 1 && attr->pad[2 * i] == 0 && attr->pad[2 * i + 1] == 0;
    if (!cpu_tile_product_loops_here() || x->dtype != CVY_BF16 || w->dtype != CVY_BF16 || !plain)
        return "tiles are for 1x1 convolutions of bf16 alone, where the processor has them";
    if (!cpu_prefers_nhwc(device, desc->images, CVY_BF16))
        return "images are channels-last here";
    if (w->shape.dim[0] % PRODUCT_LANES || w->shape.dim[1] % PRODUCT_LANES)
        return "channels are not a multiple of 32";
    if (w->shape.dim[0] > INT16_MAX || w->shape.dim[1] > INT16_MAX)
        return "too many channels";
    return NULL;
}

/* Pixels of a task: not more than fit beside weights where they are copied. */
static int64_t most_pixels(const struct tile_product *s)
{
    enum { PAIR = 2 * PRODUCT_HEIGHT };
    const int64_t fitting = (int64_t)(COPY_BYTES / ((size_t)s->depth * sizeof(uint16_t) * PAIR)) * PAIR;

    return fitting < PAIR ? PAIR : fitting < PRODUCT_MOST ? fitting : PRODUCT_MOST;
}

/* The task with sums is made of whole groups, which fit into what may be copied for up to 2,048 channels. */
static int64_t in_groups(const struct tile_product *s, int64_t pixels)
{
    return s->sums ? larger(pixels / PRODUCT_GROUP, 1) * PRODUCT_GROUP : pixels;
}

/* So many pixels and lanes that every thread has some. */
static void cut_tasks(struct tile_product *s, int threads)
{
    enum { PAIR = 2 * PRODUCT_HEIGHT };
    const bool held = (size_t)s->lanes * (size_t)s->depth * sizeof(uint16_t) <= HELD_BYTES;
    const int64_t blocks = (s->pixels + PAIR - 1) / PAIR, tasks = (int64_t)(held ? TASKS : FEW_TASKS) * threads;
    const int64_t most = most_pixels(s) / PAIR, pairs = s->lanes / PRODUCT_LANES, few = (int64_t)TASKS / 2 * threads;
    int64_t together = blocks / tasks, share = pairs;

    together = together < 1 ? 1 : together < most ? together : most;
    if (blocks < few) { /* as many pixels as may be, and lanes for the threads */
        together = blocks < most ? blocks : most;
        const int64_t chunks = (blocks + together - 1) / together, parts = (2 * threads + chunks - 1) / chunks;
        share = (pairs + parts - 1) / parts;
    }
    s->task_pixels = (int32_t)in_groups(s, together * PAIR);
    if (s->sums) { /* groups are coarse */
        const int64_t parts = divide_up((int64_t)TASKS * threads, divide_up(s->pixels, s->task_pixels));
        share = smaller(share, divide_up(pairs, parts));
    }
    s->task_lanes = (int32_t)share * PRODUCT_LANES;
    s->height = PRODUCT_HEIGHT;
    s->chunks = 1;
}

/* Nanoseconds for a thread where the pixels are shared out to threads / parts threads and the lanes to `parts`: for the
 * products, for weights from the shared cache, and where there are parts for what the others have written or will read.
 * Measured on two cores of a Xeon with AMX (doc/worklog.md). */
static double fixed_cost(const struct tile_product *s, int threads, int32_t parts)
{
    const double product = 8.6, weight_byte = 0.077, foreign_byte = 0.2;
    const int64_t shares = threads / parts, pixels = divide_up(s->pixels, shares);
    const int64_t pairs = divide_up(s->lanes / PRODUCT_LANES, parts);
    const double lanes = (double)(pairs * PRODUCT_LANES), depth = (double)s->depth;
    const double tiles = (double)pixels / PRODUCT_HEIGHT * (lanes / 16) * (depth / PRODUCT_DEPTH);
    const double read = (double)pixels * depth * sizeof(uint16_t), written = (double)pixels * lanes * sizeof(uint16_t);

    return product * tiles + weight_byte * lanes * depth * sizeof(uint16_t) +
           (parts > 1 ? foreign_byte * (read * (1 - 1.0 / parts) + written) : 0);
}

/* A few images, whose weights do not change: each thread takes the same pixels in every layer, so that what it reads is
 * in its own cache, or where there is more of weights than of pixels, lanes. */
static void cut_fixed(struct tile_product *s, int threads)
{
    int32_t parts = 1;

    for (int32_t p = 2; p <= threads && p <= s->lanes / PRODUCT_LANES; p++)
        if (threads % p == 0 && fixed_cost(s, threads, p) < fixed_cost(s, threads, parts))
            parts = p;
    const int64_t shares = threads / parts, pixels = divide_up(s->pixels, shares), most = most_pixels(s);
    const int64_t chunks = divide_up(pixels, most);
    s->fixed = true;
    s->chunks = (int32_t)chunks;
    s->task_pixels = (int32_t)divide_up(pixels, chunks);
    s->task_lanes = (int32_t)divide_up(s->lanes / PRODUCT_LANES, parts) * PRODUCT_LANES;
    s->height = tile_height(s->task_pixels, 1);
}

/* Bias, residual and activation of a forward pass. */
static void add_ends(struct cvy_op_desc *desc, struct cvy_kernel_plan *plan, struct tile_product *s)
{
    const enum cvy_activation activation = desc->attr.conv2d.activation;

    if (has(desc->in, desc->inputs, 3)) {
        desc->in[3].layout = desc->out[0].layout;
        plan->in_place[0] = 3;
    }
    if (activation != CVY_ACTIVATION_NONE)
        s->low = 0;
    if (activation == CVY_ACTIVATION_RELU6)
        s->high = 6;
    if (s->norm)
        desc->out[3].layout = cpu_sign_layout();
}

/* The batch norm before the convolution: its input, and where a residual was added its sign and the other gradient, in
 * whose place the sum may be written. */
static void add_norm(struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    if (has(desc->in, desc->inputs, 2))
        desc->in[2].layout = desc->out[0].layout;
    if (has(desc->in, desc->inputs, 7))
        desc->in[7].layout = cpu_sign_layout();
    if (has(desc->in, desc->inputs, 8)) {
        desc->in[8].layout = desc->out[0].layout;
        plan->in_place[0] = 8;
    }
}

/* What is computed; how it is cut into tasks is added later. */
static struct tile_product describe(const struct cvy_op_desc *desc, const struct cvy_tensor *x,
                                    const struct cvy_tensor *w, const struct cvy_tensor *y)
{
    const bool backward = desc->op == CVY_OP_CONV2D_BWD_DATA;
    struct tile_product s = {.loops = cpu_tile_product_loops_here(),
                             .backward = backward,
                             .depth = (int32_t)w->shape.dim[backward ? 0 : 1],
                             .lanes = (int32_t)w->shape.dim[backward ? 1 : 0],
                             .pixels = y->shape.dim[0] * y->shape.dim[2] * y->shape.dim[3],
                             .low = -INFINITY,
                             .high = INFINITY,
                             .norm = has(desc->in, desc->inputs, backward ? 2 : 8),
                             .sums = !has(desc->out, desc->outputs, 2) ? TILE_SUMS_NONE
                                     : backward                        ? TILE_SUMS_GRADIENT
                                                                       : TILE_SUMS_MOMENTS};

    for (int i = 0; i < 2; i++) {
        s.stride[i] = desc->attr.conv2d.stride[i];
        s.small[i] = (int32_t)y->shape.dim[2 + i];
        s.wide[i] = (int32_t)x->shape.dim[2 + i];
    }
    return s;
}

/* A thread's sums, and pixels side by side: all of a task, or the last ones where these do not fill two
 * tiles. */
static void count_bytes(struct tile_product *s)
{
    const int32_t pair = 2 * s->height,
                  copied = is_dense(s) || s->backward ? pair : (s->task_pixels + pair - 1) / pair * pair;

    s->copy_bytes = (size_t)s->depth * sizeof(uint16_t) * (size_t)copied;
    s->thread_bytes = 4 * PRODUCT_HEIGHT * PRODUCT_LANES * sizeof(float) + s->copy_bytes;
    if (s->sums || s->norm) /* and a number of each lane */
        s->sums_bytes = (size_t)(groups_of(s) * tile_sums_numbers(s->sums) + 1) * (size_t)s->lanes * sizeof(float);
}

/* x and y: the convolution's input and output, or their gradients. */
static cvy_status prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan,
                          struct cvy_tensor *x, struct cvy_tensor *w, struct cvy_tensor *y)
{
    const struct cpu_device *const cpu = cpu_of(device);
    const char *const why = refusal(cpu, desc, x, w);
    const bool backward = desc->op == CVY_OP_CONV2D_BWD_DATA;

    plan->quiet = true;
    if (why)
        return cvy_fail(CVY_UNAVAILABLE, "%s", why);
    plan->quiet = false;
    /* The bias is f32, and so are the numbers of batch norms. */
    CVY_TRY(cpu_expect_images(desc, backward ? ~(15U << 3) : ~(1U << 2 | 15U << 8), 1U << 0 | 1U << 3, 0, 0));
    cpu_plain(desc, 0, 0);
    x->layout = cpu_image_layout(cpu, desc->images, x->shape.dim[1], CVY_BF16);
    y->layout = cpu_image_layout(cpu, desc->images, y->shape.dim[1], CVY_BF16);
    w->layout = tile_weights_layout(backward);
    struct tile_product s = describe(desc, x, w, y);
    s.past = desc->training && !backward && cpu_tensor_bytes(device, y) >= cpu->stream_bytes;
    if (desc->inference && !s.sums && cpu_is_few(device, x, y))
        cut_fixed(&s, device->threads);
    else
        cut_tasks(&s, device->threads);
    count_bytes(&s);
    plan->scratch_bytes = (size_t)device->threads * s.thread_bytes + s.sums_bytes;
    snprintf(plan->implementation, sizeof(plan->implementation), "tiles:%s", s.loops->isa);
    if (backward)
        add_norm(desc, plan);
    else
        add_ends(desc, plan, &s);
    return cpu_state(plan, &s, sizeof(s));
}

cvy_status cpu_tile_product_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    return prepare(device, desc, plan, &desc->in[0], &desc->in[1], &desc->out[0]);
}

cvy_status cpu_tile_product_bwd_data_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    return prepare(device, desc, plan, &desc->out[0], &desc->in[0], &desc->in[1]);
}

cvy_status cpu_tile_product_constant_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    plan->quiet = true;
    if (!desc->inference)
        return cvy_fail(CVY_UNAVAILABLE, "these weights change");
    return cpu_tile_product_prepare(device, desc, plan);
}
