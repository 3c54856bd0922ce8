/* Planning 1x1 convolutions by tile products: which they take, and how they are cut into tasks (tile_product.c). */
#include <math.h>
#include <stdio.h>

#include "backend/cpu/conv/places.h"
#include "backend/cpu/conv/tile_product.h"
#include "backend/cpu/conv/tile_weights.h"
#include "backend/cpu/sign.h"

#define TASKS      8                   /* for each thread, at least, where there are so many blocks */
#define FEW_TASKS  2                   /* the same where weights pass by the pixels of a task */
#define COPY_BYTES ((size_t)512 << 10) /* of the pixels of a task that are copied side by side */

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
    const bool held = (size_t)s->lanes * (size_t)s->depth * sizeof(uint16_t) <= PRODUCT_HELD;
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
                  copied = tile_product_is_dense(s) || s->backward ? pair : (s->task_pixels + pair - 1) / pair * pair;

    s->copy_bytes = (size_t)s->depth * sizeof(uint16_t) * (size_t)copied;
    s->thread_bytes = 4 * PRODUCT_HEIGHT * PRODUCT_LANES * sizeof(float) + s->copy_bytes;
    if (s->sums || s->norm) /* and a number of each lane */
        s->sums_bytes =
            (size_t)(tile_product_groups(s) * tile_sums_numbers(s->sums) + 1) * (size_t)s->lanes * sizeof(float);
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
