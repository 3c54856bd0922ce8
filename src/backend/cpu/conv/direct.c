/* Direct convolutions in fp32, forward and the gradient of the data, for images in blocks: for each pixel of a grid the
 * sum over all channels of the source and all taps of the window, as a product of matrices. direct_gradient.c has the
 * gradient of the weights.
 *
 * A task is some pixels of an image, which fit into a second-level cache of 512 KiB with all of their depth, and some
 * panels: up to 3 blocks of channels of the aim. A panel's weights pass by in chunks that stay in the first cache while
 * all pixels use them. Where windows are 1x1 at stride 1 the source is read where it lies, else it is gathered first
 * (direct_source.c). Each result is one sum over the chunks in their order, whatever the tasks and the threads.
 *
 * The gradient of strided data (1x1) has dy as its grid: each pixel's results go to one pixel of dx, and those around
 * it are 0. */
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "backend/cpu/conv/direct.h"

#define TASK_BYTES   (288 << 10) /* of a task's source, about */
#define CHUNK_BLOCKS 32          /* of the depth at most: 24 KiB of a panel */
#define LEAST_PIXELS 16          /* of a task that is cut for more threads */
#define TASKS        4           /* for each thread at least, where there is enough to do */

struct direct {
    const struct cpu_direct_loops *loops;
    struct direct_source source;
    int64_t batch;
    int32_t aim[2], spread[2]; /* the aim's rows and columns; its pixels for each one of the grid */
    int32_t aim_channels, aim_blocks, panels;
    int32_t chunks;                                   /* of the depth */
    int32_t task_pixels, tasks;                       /* at most; of an image */
    int32_t groups;                                   /* of panels */
    size_t source_floats, sums_floats, result_floats; /* working memory of a thread */
    enum cvy_activation activation;
};

static bool is_spread(const struct direct *s)
{
    return s->spread[0] != 1 || s->spread[1] != 1;
}

static void cut_tasks(struct direct *s, int threads)
{
    const int32_t pixels = direct_grid_pixels(&s->source), lanes = s->loops->lanes;
    const int64_t bytes = (int64_t)s->source.depth * lanes * (int64_t)sizeof(float) * pixels;

    s->chunks = (int32_t)divide_up(s->source.depth, CHUNK_BLOCKS);
    s->tasks = (int32_t)smaller(divide_up(bytes, TASK_BYTES), divide_up(pixels, 4));
    s->task_pixels = (int32_t)divide_up(pixels, s->tasks);
    s->tasks = (int32_t)divide_up(pixels, s->task_pixels);
    s->groups = (int32_t)smaller(divide_up((int64_t)TASKS * threads, s->batch * s->tasks), s->panels);
    const int64_t fewer = divide_up((int64_t)TASKS * threads, s->batch * s->groups);
    if (s->tasks < fewer) { /* single images, and many threads */
        s->task_pixels = (int32_t)larger(divide_up(pixels, fewer), smaller(LEAST_PIXELS, s->task_pixels));
        s->tasks = (int32_t)divide_up(pixels, s->task_pixels);
    }
    const size_t block = (size_t)s->task_pixels * (size_t)lanes, panel = block * (size_t)s->loops->panel_blocks;
    s->source_floats = s->source.gathered ? block * (size_t)s->source.depth : 0;
    s->sums_floats = s->chunks > 1 ? panel : 0;
    s->result_floats = is_spread(s) ? panel : 0;
}

static cvy_status prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    const struct cpu_device *const cpu = cpu_of(device);
    const bool backward = desc->op == CVY_OP_CONV2D_BWD_DATA;
    const struct cvy_conv2d_attr *const attr = &desc->attr.conv2d;
    struct cvy_tensor *const source = &desc->in[backward ? 1 : 0], *const aim = &desc->out[0];
    struct cvy_conv2d_attr window = *attr;
    struct direct s = {.loops = direct_loops_here(), .batch = aim->shape.dim[0], .spread = {1, 1}};

    CVY_TRY(direct_expect(cpu, desc, plan));
    for (int i = 0; i < 2 && backward; i++) {
        window.pad[2 * i] = attr->dilation[i] * (attr->kernel[i] - 1) - attr->pad[2 * i];
        window.stride[i] = 1;
        s.spread[i] = attr->stride[i];
    }
    s.source = direct_source_of(&window, source, is_spread(&s) ? source : aim, s.loops->lanes,
                                !backward && direct_is_plain(source, s.loops->lanes));
    source->layout = (struct cvy_layout){.kind = s.source.plain ? CVY_LAYOUT_PLAIN : cpu->blocked};
    aim->layout = (struct cvy_layout){.kind = cpu->blocked};
    desc->in[backward ? 0 : 1].layout = direct_weights_layout(backward, s.source.plain);
    if (!backward && desc->inputs > 2 && cvy_tensor_present(&desc->in[2]))
        desc->in[2].layout = (struct cvy_layout){.kind = CVY_LAYOUT_PLAIN};
    if (!backward && desc->inputs > 3 && cvy_tensor_present(&desc->in[3])) {
        desc->in[3].layout = aim->layout;
        plan->in_place[0] = 3;
    }
    for (int i = 0; i < 2; i++)
        s.aim[i] = (int32_t)aim->shape.dim[2 + i];
    s.aim_channels = (int32_t)aim->shape.dim[1];
    s.aim_blocks = (int32_t)divide_up(s.aim_channels, s.loops->lanes);
    s.panels = (int32_t)divide_up(s.aim_blocks, s.loops->panel_blocks);
    s.activation = backward ? CVY_ACTIVATION_NONE : attr->activation;
    cut_tasks(&s, device->threads);
    plan->scratch_bytes = (size_t)device->threads * (s.source_floats + s.sums_floats + s.result_floats) * sizeof(float);
    snprintf(plan->implementation, sizeof(plan->implementation), "direct:%s", s.loops->isa);
    return cpu_state(plan, &s, sizeof s);
}

cvy_status cpu_direct_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    return prepare(device, desc, plan);
}

/* ---- running ---- */

/* Some pixels of an image, and what a run reads and writes; pointers that may be NULL are. */
struct task {
    const struct direct *s;
    struct cpu_direct_blocks source; /* the pixels' */
    const float *weights, *bias;
    float *residual, *aim; /* of the image */
    int32_t pixel, pixels;
    float *sums, *result; /* working memory of a panel */
};

static void clear_pixels(float *from, const float *end)
{
    if (from < end)
        memset(from, 0, (size_t)(end - from) * sizeof *from);
}

/* A block's results to the pixels they belong to, with zeros between them. */
static void spread_block(const struct task *task, int32_t block, const float *from)
{
    const struct direct *const s = task->s;
    const size_t lanes = (size_t)s->loops->lanes, row_floats = (size_t)s->aim[1] * lanes;
    float *const image = task->aim + (size_t)block * (size_t)s->aim[0] * row_floats;

    for (int32_t i = 0; i < task->pixels; i++, from += lanes) {
        const int32_t p = (task->pixel + i) / s->source.grid[1], q = (task->pixel + i) % s->source.grid[1];
        const bool last = q + 1 == s->source.grid[1];
        const int32_t rows = (int32_t)smaller(s->aim[0] - p * s->spread[0], s->spread[0]);
        for (int32_t r = 0; r < rows; r++) {
            float *const row = image + (size_t)(p * s->spread[0] + r) * row_floats;
            float *const to = row + (size_t)(q * s->spread[1]) * lanes;
            const float *const end = last ? row + row_floats : to + (size_t)s->spread[1] * lanes;
            if (r == 0)
                memcpy(to, from, lanes * sizeof *to);
            clear_pixels(r == 0 ? to + lanes : to, end);
        }
    }
}

static void multiply_panel(const struct task *task, int32_t panel)
{
    const struct direct *const s = task->s;
    const int32_t first = direct_cut(s->aim_blocks, s->panels, panel);
    const int32_t blocks = direct_cut(s->aim_blocks, s->panels, panel + 1) - first;
    const size_t lanes = (size_t)s->loops->lanes, plane = (size_t)s->aim[0] * (size_t)s->aim[1] * lanes;
    const size_t pixel = (size_t)task->pixel * lanes, working = (size_t)s->task_pixels * lanes;
    const struct cpu_direct_blocks there = {task->aim + (size_t)first * plane + pixel, plane};
    const struct cpu_direct_blocks result = {task->result, working}, sums = {task->sums, working};
    const float *weights = task->weights + (size_t)first * lanes * (size_t)s->source.depth * lanes;
    float bias[CPU_DIRECT_PANEL * CPU_LANES] = {0}; /* 0 beyond the channels, as weights are */

    if (task->bias)
        memcpy(bias, task->bias + (size_t)first * lanes,
               (size_t)smaller((int64_t)blocks * s->loops->lanes, s->aim_channels - first * s->loops->lanes) *
                   sizeof *bias);
    for (int32_t c = 0; c < s->chunks; c++) {
        const int32_t begin = direct_cut(s->source.depth, s->chunks, c);
        const bool last = c + 1 == s->chunks;
        struct cpu_direct_product product = {.source = task->source.at + (size_t)begin * task->source.step,
                                             .source_step = task->source.step,
                                             .panel = weights,
                                             .depth = direct_cut(s->source.depth, s->chunks, c + 1) - begin,
                                             .panel_blocks = blocks,
                                             .pixels = task->pixels,
                                             .to = !last          ? sums
                                                   : is_spread(s) ? result
                                                                  : there};
        if (c > 0)
            product.before = sums;
        if (last) {
            product.bias = task->bias ? bias : NULL;
            if (task->residual)
                product.residual = (struct cpu_direct_blocks){task->residual + (size_t)first * plane + pixel, plane};
            product.activation = s->activation;
        }
        s->loops->product(&product);
        weights += (size_t)product.depth * lanes * (size_t)blocks * lanes;
    }
    for (int32_t b = 0; b < blocks && is_spread(s); b++)
        spread_block(task, first + b, task->result + (size_t)b * working);
}

cvy_status cpu_direct_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                          void *scratch)
{
    const struct direct *const s = plan->state;
    const bool backward = plan->kernel->op == CVY_OP_CONV2D_BWD_DATA;
    const float *const source = in[backward ? 1 : 0];
    float *const residual = backward ? NULL : in[3];
    const size_t source_image = direct_image_floats(&s->source), lanes = (size_t)s->loops->lanes;
    const size_t aim_image = (size_t)s->aim_blocks * (size_t)s->aim[0] * (size_t)s->aim[1] * lanes;
    const int32_t pixels = direct_grid_pixels(&s->source);

#pragma omp parallel for num_threads(device->threads) schedule(dynamic, 1)
    for (int64_t t = 0; t < s->batch * s->tasks * s->groups; t++) {
        const int64_t image = t / s->groups / s->tasks;
        const int32_t group = (int32_t)(t % s->groups), at = (int32_t)(t / s->groups % s->tasks) * s->task_pixels;
        const size_t working = (size_t)s->task_pixels * lanes;
        float *const mine =
            (float *)scratch + (size_t)omp_get_thread_num() * (s->source_floats + s->sums_floats + s->result_floats);
        const float *const image_source = source + (size_t)image * source_image;
        struct task task = {.s = s,
                            .weights = in[backward ? 0 : 1],
                            .bias = backward ? NULL : in[2],
                            .residual = residual ? residual + (size_t)image * aim_image : NULL,
                            .aim = (float *)out[0] + (size_t)image * aim_image,
                            .pixel = at,
                            .pixels = (int32_t)smaller(pixels - at, s->task_pixels),
                            .sums = mine + s->source_floats,
                            .result = mine + s->source_floats + s->sums_floats};
        if (s->source.gathered) {
            direct_gather(&s->source, image_source, 0, s->source.depth, at, task.pixels, mine, working);
            task.source = (struct cpu_direct_blocks){mine, working};
        } else {
            task.source.at = (float *)(uintptr_t)(image_source + (size_t)at * lanes);
            task.source.step = (size_t)pixels * lanes;
        }
        const int32_t end = direct_cut(s->panels, s->groups, group + 1);
        for (int32_t p = direct_cut(s->panels, s->groups, group); p < end; p++)
            multiply_panel(&task, p);
    }
    return CVY_OK;
}
