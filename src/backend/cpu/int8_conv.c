/* Integer convolutions and matrix products: sums of products of bytes in 32 bits, then everything else in the registers
 * (graph/int8.h has the arithmetic). */
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "backend/cpu/int8.h"
#include "base/system.h"

/* Bytes of input that a task shall keep in a core's second-level cache beside the weights, of its table, and of its
 * copies of rows. */
enum { BLOCK_BYTES = 128 << 10, TABLE_BYTES = 64 << 10, ROWS_BYTES = 16 << 10, PANEL_BYTES = 256 << 10 };

/* Values beyond the first come from the cache that cores share, beyond the second from memory. ResNet-50, 32 images at
 * 224 pixels, by steps: pixels that are read ahead save 12 % of a 1x1 product of 26 MB and 6 % of 13 MB and cost 1 % of
 * one of 6 MB; where the ends of 3 MB are made ready 8 % are saved, with 26 MB lost 4 %. */
enum { CORE_BYTES = 1 << 20, STREAMED_BYTES = 8 << 20 };

const struct cpu_int8_kernels *cpu_choose_int8(bool *products)
{
    const unsigned there = cvy_cpu_int8();
    const struct cpu_int8_kernels *kernels = &cpu_int8_kernels_base;

    if (there & CVY_INT8_AVX512_VNNI)
        kernels = CVY_IF_AVX(&cpu_int8_kernels_avx512_vnni);
    else if (there & CVY_INT8_AVX_VNNI)
        kernels = CVY_IF_AVX(&cpu_int8_kernels_avx_vnni);
    else if (cvy_cpu_isa() == CVY_ISA_AVX2) /* with AVX-512, floats are faster */
        kernels = CVY_IF_AVX(&cpu_int8_kernels_avx2);
    *products = kernels->conv;
    return kernels;
}

struct cvy_layout cpu_int8_layout(const struct cvy_shape *shape)
{
    return (struct cvy_layout){.kind = shape->rank == 4 ? CVY_LAYOUT_NHWC : CVY_LAYOUT_PLAIN};
}

void cpu_int8_lay_out(struct cvy_op_desc *desc, const struct cpu_packing *packing)
{
    cpu_plain(desc, 0, 0);
    desc->in[0].layout = cpu_int8_layout(&desc->in[0].shape);
    if (packing)
        desc->in[1].layout =
            (struct cvy_layout){.kind = CVY_LAYOUT_OPAQUE, .detail = packing, .detail_size = sizeof(*packing)};
    if (desc->out[0].shape.rank == 4)
        desc->out[0].layout.kind = CVY_LAYOUT_NHWC;
    if (cvy_tensor_present(&desc->in[4]))
        desc->in[4].layout = desc->out[0].layout;
}

int32_t cpu_int8_over(const struct cvy_op_desc *desc, const cvy_device *device)
{
    return device->threads == 1 && cvy_tensor_present(&desc->in[4]) && desc->out[0].dtype == CVY_U8 ? 4 : -1;
}

void cpu_int8_describe(const struct cvy_op_desc *desc, struct cpu_int8_conv *s)
{
    const struct cvy_shape *x = &desc->in[0].shape, *y = &desc->out[0].shape, *w = &desc->in[1].shape;
    *s = (struct cpu_int8_conv){.attr = desc->attr.int8,
                                .n = x->dim[0],
                                .c = x->dim[1],
                                .h = cpu_int8_extent(x, 2),
                                .w = cpu_int8_extent(x, 3),
                                .k = y->dim[1],
                                .p = cpu_int8_extent(y, 2),
                                .q = cpu_int8_extent(y, 3),
                                .taps = cpu_int8_extent(w, 2) * cpu_int8_extent(w, 3),
                                .floats = desc->out[0].dtype == CVY_F32};
}

int64_t cpu_int8_bordered_row(const struct cpu_int8_conv *s)
{
    const struct cvy_conv2d_attr *a = &s->attr.conv2d;
    const int64_t read = (s->q - 1) * a->stride[1] + a->kernel[1], there = a->pad[2] + s->w;
    return ((read > there ? read : there) * s->c + 4 + 63) / 64 * 64;
}

bool cpu_int8_reads_points(const struct cpu_int8_conv *s)
{
    const struct cvy_conv2d_attr *a = &s->attr.conv2d;
    return s->taps == 1 && a->stride[0] == 1 && a->stride[1] == 1 && s->p == s->h && s->q == s->w && a->pad[0] == 0 &&
           a->pad[2] == 0;
}

/* How many tiles a task takes at most. */
static int64_t max_block(const struct cpu_int8_conv *s)
{
    const int64_t inputs = BLOCK_BYTES / (s->tile * s->c);
    const int64_t table = TABLE_BYTES / (s->taps * s->tile * (int64_t)sizeof(void *));
    const int64_t rows = s->rows ? ROWS_BYTES / (s->taps * s->row_bytes) * s->q / s->tile : table;
    int64_t max = inputs < table ? inputs : table;
    max = max < rows ? max : rows;
    return max < 4 ? 4 : max;
}

static int64_t panels_of(const struct cpu_int8_conv *s, int64_t width)
{
    return s->pack_groups * ((s->pack_outputs + width - 1) / width);
}

/* Output channels of a sorted panel. The more, the less often pixels are put in order: as long as a core's second-level
 * cache keeps their weights, and all tasks have some. */
static int64_t wide_panel(const struct cpu_int8_conv *s, int64_t least_panels)
{
    int64_t width = CPU_INT8_PANEL;
    while (width < CPU_INT8_WIDE_PANEL && width < s->pack_outputs && panels_of(s, 2 * width) >= least_panels &&
           2 * width * s->taps * s->quads * 4 <= PANEL_BYTES)
        width *= 2;
    return width;
}

/* The bytes before the sums, and how the work is cut into tasks. */
static void divide(struct cpu_int8_conv *s, const struct cpu_packing *packing, int threads)
{
    const int64_t groups = packing->shared ? 1 : packing->groups;
    s->threads = threads;
    s->shared = packing->shared;
    s->rows = packing->rows;
    s->points = cpu_int8_reads_points(s);
    const int64_t read = s->n * s->h * s->w * s->c, written = s->n * s->p * s->q * s->k;
    s->pixels_ahead = s->points && read > STREAMED_BYTES;
    s->ends_ahead = s->points && written > CORE_BYTES && written <= STREAMED_BYTES;
    s->taps = s->rows ? s->attr.conv2d.kernel[0] : s->taps;
    s->row_bytes = s->rows ? cpu_int8_bordered_row(s) : 0;
    s->quads = packing->quads;
    s->pack_groups = groups;
    s->pack_outputs = s->k / groups;
    s->group_inputs = s->c / groups;
    s->tiles = (s->n * s->p * s->q + s->tile - 1) / s->tile;
    const int64_t max = max_block(s), even = s->tiles / (8 * threads);
    const bool alike = s->tiles <= max && panels_of(s, CPU_INT8_PANEL) >= 4 * threads; /* tasks have all pixels */
    s->block = alike ? s->tiles : even < 4 ? 4 : even < max ? even : max;
    s->blocks = (s->tiles + s->block - 1) / s->block;
    const int64_t wanted = alike ? 4 * threads : (8 * threads + s->blocks - 1) / s->blocks;
    s->panel = packing->sorted ? wide_panel(s, wanted) : CPU_INT8_PANEL;
    s->panels = panels_of(s, s->panel);
    s->panel_tasks = alike || wanted > s->panels ? s->panels : wanted;
    s->task_panels = (s->panels + s->panel_tasks - 1) / s->panel_tasks;
    s->panel_tasks = (s->panels + s->task_panels - 1) / s->task_panels;
    s->pointers = (size_t)(s->block * s->taps * s->tile) * sizeof(void *);
    s->pointers = (s->pointers + 63) / 64 * 64;
    const int64_t output_rows = s->block * s->tile / s->q + 2; /* that a block may touch */
    s->thread_bytes = s->pointers + (size_t)(output_rows * s->taps * s->row_bytes);
}

/* What the vectors cannot do. */
static const char *refusal(const struct cpu_device *cpu, const struct cvy_op_desc *desc)
{
    const struct cvy_shape *w = &desc->in[1].shape;
    const int32_t groups = desc->attr.int8.conv2d.groups;
    const int64_t inputs = w->dim[1];
    if (!cpu->int8->conv)
        return "this processor has no instructions for sums of products of bytes";
    if (inputs % 4 != 0 && !(groups == 1 && desc->in[0].shape.rank == 4 && desc->attr.int8.conv2d.dilation[1] == 1))
        return "groups of input channels that are no multiple of 4";
    if (groups > 1 && desc->in[0].shape.dim[1] % 4 != 0)
        return "channels that are no multiple of 4";
    return NULL;
}

/* What finding pixels needs. */
static cvy_status make_tables(struct cpu_int8_conv *s)
{
    const struct cvy_conv2d_attr *a = &s->attr.conv2d;
    const int64_t taps = (int64_t)a->kernel[0] * a->kernel[1];
    s->outside = cvy_calloc_aligned((size_t)s->c + 64);
    s->offsets = cvy_calloc((size_t)taps, sizeof(*s->offsets));
    if (!s->outside || !s->offsets)
        return cvy_fail_memory((size_t)s->c, "a pixel");
    memset(s->outside, s->attr.x.zero, (size_t)s->c + 64);
    for (int64_t tap = 0; tap < taps; tap++)
        s->offsets[tap] = (tap / a->kernel[1] * a->dilation[0] * s->w + tap % a->kernel[1] * a->dilation[1]) * s->c;
    return CVY_OK;
}

/* What weaving sums and ends leaves out. */
static const char *woven_refusal(const struct cpu_device *cpu, const struct cpu_int8_conv *s,
                                 const struct cpu_packing *packing)
{
    const int64_t panel = CPU_INT8_PANEL, outputs = s->k / packing->groups;

    if (!cpu->int8->woven || packing->shared || packing->rows || !cpu_int8_reads_points(s) || outputs % panel != 0 ||
        packing->quads < CPU_INT8_WOVEN_QUADS || packing->quads > CPU_INT8_WOVEN_MOST || packing->quads % 4 != 0)
        return "not a product of single pixels by 48 to 512 channels";
    if (s->floats || s->attr.conv2d.activation == CVY_ACTIVATION_RELU6 || !cvy_int8_bounded(&s->attr))
        return "its ends are of another kind";
    return NULL;
}

static cvy_status prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan, bool woven)
{
    struct cpu_device *cpu = cpu_of(device);
    struct cpu_packing wanted = cpu_packing_for(&desc->in[1].shape, desc->attr.int8.conv2d.groups);
    const struct cpu_packing *packing;
    const char *why = refusal(cpu, desc);
    struct cpu_int8_conv state;
    cpu_int8_describe(desc, &state);
    if (!why && woven)
        why = woven_refusal(cpu, &state, &wanted);
    wanted.sorted = cpu->int8->sorted && !wanted.shared;
    packing = why ? NULL : cpu_packing_known(cpu, &wanted);
    plan->quiet = woven;
    if (!packing)
        return cvy_fail(CVY_UNAVAILABLE, "%s", why ? why : "more ways to pack weights than this device remembers");
    cpu_int8_lay_out(desc, packing);
    state.tile = woven ? CPU_INT8_WOVEN_TILE : cpu->int8->tile;
    divide(&state, packing, device->threads);
    state.panel_bytes = cpu_packing_panel_bytes(packing, &desc->in[1].shape);
    plan->in_place[0] = cpu_int8_over(desc, device);
    state.thread_bytes = woven ? 0 : state.thread_bytes; /* it needs no table of pixels */
    plan->scratch_bytes = state.thread_bytes * (size_t)device->threads;
    snprintf(plan->implementation, sizeof(plan->implementation), "%s:%s", cpu->int8->isa,
             woven             ? "woven"
             : packing->shared ? "shared panels"
             : packing->rows   ? "rows"
                               : "panels");
    CVY_TRY(cpu_state(plan, &state, sizeof(state)));
    return make_tables(plan->state);
}

cvy_status cpu_conv2d_int8_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    return prepare(device, desc, plan, false);
}

cvy_status cpu_conv2d_int8_woven_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    return prepare(device, desc, plan, true);
}

void cpu_conv2d_int8_release(cvy_device *device, struct cvy_kernel_plan *plan)
{
    struct cpu_int8_conv *s = plan->state;
    if (s) {
        cvy_free_aligned(s->outside);
        cvy_free(s->offsets);
    }
    cpu_state_release(device, plan);
}

static cvy_status run_tasks(int threads, const struct cvy_kernel_plan *plan, cpu_int8_task task_of, void *const *in,
                            void *const *out, void *scratch)
{
    const struct cpu_int8_conv *s = plan->state;
    const struct cpu_int8_work work = cpu_int8_work_of(in, out, s->panel_bytes, s->k);
    const int64_t tasks = s->blocks * s->panel_tasks;
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t task = 0; task < tasks; task++) {
        const int64_t first = task / s->panel_tasks * s->block, panel = task % s->panel_tasks * s->task_panels;
        const int64_t end = first + s->block < s->tiles ? first + s->block : s->tiles;
        const int64_t end_panel = panel + s->task_panels < s->panels ? panel + s->task_panels : s->panels;
        task_of(s, &work, first, end, panel, end_panel,
                (char *)scratch + s->thread_bytes * (size_t)omp_get_thread_num());
    }
    return CVY_OK;
}

cvy_status cpu_conv2d_int8_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                               void *const *out, void *scratch)
{
    return run_tasks(device->threads, plan, cpu_of(device)->int8->conv, in, out, scratch);
}

cvy_status cpu_conv2d_int8_woven_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                     void *const *out, void *scratch)
{
    return run_tasks(device->threads, plan, cpu_of(device)->int8->woven, in, out, scratch);
}

/* ---- plain loops, for what there are no tiles for ---- */

cvy_status cpu_conv2d_int8_plain_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    cpu_int8_lay_out(desc, NULL);
    struct cpu_int8_conv state;
    cpu_int8_describe(desc, &state);
    state.pack_groups = desc->attr.int8.conv2d.groups;
    state.group_inputs = desc->in[1].shape.dim[1];
    state.pack_outputs = state.k / state.pack_groups;
    plan->in_place[0] = cpu_int8_over(desc, device);
    return cpu_state(plan, &state, sizeof(state));
}

static int32_t plain_sum(const struct cpu_int8_conv *s, const uint8_t *x, const int8_t *w, int64_t pq)
{
    const struct cvy_conv2d_attr *a = &s->attr.conv2d;
    int32_t sum = 0;
    for (int64_t tap = 0; tap < s->taps; tap++) {
        const int64_t row = pq / s->q * a->stride[0] - a->pad[0] + tap / a->kernel[1] * a->dilation[0];
        const int64_t column = pq % s->q * a->stride[1] - a->pad[2] + tap % a->kernel[1] * a->dilation[1];
        if (row < 0 || row >= s->h || column < 0 || column >= s->w)
            continue;
        const uint8_t *from = x + (row * s->w + column) * s->c;
        for (int64_t c = 0; c < s->group_inputs; c++)
            sum += (from[c] - s->attr.x.zero) * w[c * s->taps + tap];
    }
    return sum;
}

cvy_status cpu_conv2d_int8_plain_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                     void *const *out, void *scratch)
{
    (void)scratch;
    const struct cpu_int8_conv *s = plan->state;
    const float *multiplier = in[2], *bias = in[3];
    const uint8_t *residual = in[4];
    const int64_t pixels = s->p * s->q;
#pragma omp parallel for num_threads(device->threads) schedule(dynamic)
    for (int64_t i = 0; i < s->n * pixels; i++)
        for (int64_t k = 0; k < s->k; k++) {
            const uint8_t *x =
                (const uint8_t *)in[0] + i / pixels * s->h * s->w * s->c + k / s->pack_outputs * s->group_inputs;
            const int8_t *w = (const int8_t *)in[1] + k * s->group_inputs * s->taps;
            const struct cvy_int8_finish finish = cvy_int8_finish_of(&s->attr, multiplier[k], bias ? bias[k] : 0);
            const int64_t at = i * s->k + k;
            const float v =
                cvy_int8_finished(&s->attr, finish, plain_sum(s, x, w, i % pixels), residual ? residual[at] : 0);
            if (s->floats)
                ((float *)out[0])[at] = v;
            else
                ((uint8_t *)out[0])[at] = cvy_int8_byte(v, (float)-s->attr.y.zero, s->attr.y.zero);
        }
    return CVY_OK;
}
