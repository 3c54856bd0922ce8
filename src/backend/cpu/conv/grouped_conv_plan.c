/* Preparing convolutions with few channels in a group: which of them are taken, taps, steps, sizes. */
#include <stdio.h>
#include <string.h>

#include "backend/cpu/conv/grouped_conv_plan.h"
#include "base/system.h"

#define ALIGN          64
#define PAIR           2   /* blocks of nhwc whose pixels share a line of the cache (bf16) */
#define GRADIENT_TASKS 256 /* pieces of work in a gradient of the weights, about: even shares for many threads */

static size_t round_up(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* The loops with tiles; NULL: none here. */
static const struct cpu_grouped_loops *tiles_here(enum cvy_op op)
{
    if (op == CVY_OP_CONV2D_BWD_WEIGHTS)
        return cpu_tile_loops(CVY_IF_AVX(&cpu_grouped_amx_bf16_gradient),
                              CVY_IF_AVX(&cpu_grouped_amx_bf16_gradient_model));
    return cpu_tile_loops(CVY_IF_AVX(&cpu_grouped_amx_bf16), CVY_IF_AVX(&cpu_grouped_amx_bf16_model));
}

static const struct cpu_grouped_loops *loops_for(enum cvy_dtype dtype, enum cvy_op op, int64_t source_group)
{
    const bool narrow = dtype == CVY_BF16;
    switch (cvy_cpu_isa()) {
    case CVY_ISA_AMX_BF16:
    case CVY_ISA_AVX512_BF16:
        /* Pairs are two channels of one group, except in gradients of weights. */
        if (narrow && (source_group % 2 == 0 || op == CVY_OP_CONV2D_BWD_WEIGHTS))
            return CVY_IF_AVX(&cpu_grouped_avx512_bf16_pairs);
        return CVY_IF_AVX(narrow ? &cpu_grouped_avx512_bf16 : &cpu_grouped_avx512_f32);
    case CVY_ISA_AVX512:
        return CVY_IF_AVX(narrow ? &cpu_grouped_avx512_bf16 : &cpu_grouped_avx512_f32);
    case CVY_ISA_AVX2:
        return CVY_IF_AVX(narrow ? &cpu_grouped_avx2_bf16 : &cpu_grouped_avx2_f32);
    default:
        return narrow ? &cpu_grouped_base_bf16 : &cpu_grouped_base_f32;
    }
}

static void set_lane(const struct grouped *g, struct cpu_grouped_step *step, int32_t lane, int32_t channel)
{
    const bool pairs = g->loops->pairs;
    if (pairs && grouped_is_gradient(g)) {
        step->index.half[2 * lane] = (uint16_t)channel;
        step->index.half[2 * lane + 1] = (uint16_t)(g->loops->lanes + channel);
        step->lane_mask |= 3U << 2 * lane;
    } else {
        step->index.lane[lane] = pairs ? channel / 2 : channel;
        step->lane_mask |= 1U << lane;
    }
}

/* The steps of a block of the aim into `steps`, which may be NULL; returns how many there are. */
static int32_t make_steps(const struct grouped *g, int32_t block, struct cpu_grouped_step *steps)
{
    const int32_t lanes = g->loops->lanes, together = g->loops->pairs && !grouped_is_gradient(g) ? 2 : 1;
    int32_t first, last, count = 0;
    grouped_span(g, block, &first, &last);
    for (; g->loops->tiles && first + count <= last; count++)
        if (steps)
            steps[count] = (struct cpu_grouped_step){.block = first + count, .line = count};
    if (g->loops->tiles)
        return count;
    for (int32_t channel = 0; channel < g->source_group; channel += together)
        for (int32_t from = first; from <= last; from++) {
            struct cpu_grouped_step step = {.channel = channel, .block = from};
            if (!g->loops->pairs)
                memset(step.index.lane, -1, sizeof(step.index.lane));
            for (int32_t lane = 0; lane < lanes; lane++) {
                const int64_t group = ((int64_t)block * lanes + lane) / g->aim_group;
                const int64_t wanted = group * g->source_group + channel;
                if (wanted / lanes == from)
                    set_lane(g, &step, lane, (int32_t)(wanted % lanes));
            }
            if (!step.lane_mask)
                continue;
            step.line = g->loops->permuted_lines ? count : from - first;
            if (steps)
                steps[count] = step;
            count++;
        }
    return count;
}

/* One more tap of a phase of the aim: the source's pixel stands at place `place` of phase `line_phase` of a line. */
static void add_tap(struct phase *phase, int32_t tap, int32_t line_phase, int32_t place)
{
    const int32_t last = phase->run_count - 1;
    if (last >= 0 && phase->line_phase[last] == line_phase && phase->runs[last].taps < CPU_GROUPED_RUN) {
        phase->runs[last].taps++;
    } else {
        phase->line_phase[phase->run_count] = line_phase;
        phase->runs[phase->run_count++] = (struct cpu_grouped_run){.place = place, .first_tap = phase->taps, .taps = 1};
    }
    phase->tap[phase->taps++] = tap;
}

/* Source columns stand at place (column + pad) / stride of phase (column + pad) % stride: there output column q and tap
 * phase + t * stride meet at place q + t. */
static void set_taps_forward(struct grouped *g)
{
    struct phase *all = &g->phases[0];
    const int32_t stride = g->stride[1], width = g->kernel[1];
    g->phase_count = 1;
    g->line_phases = stride;
    g->shift = g->pad[1];
    all->columns = g->aim[1];
    g->phase_places = (g->source[1] + g->pad[1]) / stride + 1;
    if (g->phase_places < all->columns)
        g->phase_places = all->columns;
    for (int32_t phase = 0; phase < stride; phase++)
        for (int32_t tap = phase; tap < width; tap += stride)
            add_tap(all, tap, phase, tap / stride);
}

/* dx column w = j * stride + phase takes dy column (w + pad - tap) / stride where that has no remainder: the taps of
 * the phase from the last to the first meet neighbouring columns, from j + offset on. */
static void set_taps_backward(struct grouped *g)
{
    const int32_t stride = g->stride[1], width = g->kernel[1];
    int32_t taps_before = 0, end = 0;
    g->phase_count = stride;
    g->line_phases = 1;
    g->shift = width; /* an offset is at least (0 - (width - 1)) / stride */
    for (int32_t phase = 0; phase < stride; phase++) {
        struct phase *p = &g->phases[phase];
        const int32_t min = (phase + g->pad[1]) % stride; /* tap */
        p->taps_before = taps_before;
        p->columns = g->aim[1] > phase ? (g->aim[1] - phase + stride - 1) / stride : 0;
        if (min >= width)
            continue;
        const int32_t max = min + (width - 1 - min) / stride * stride;
        /* the difference divides without a remainder, also below 0 */
        const int32_t place = g->shift + (phase + g->pad[1] - max) / stride;
        for (int32_t tap = max; tap >= min; tap -= stride)
            add_tap(p, tap, 0, place + (max - tap) / stride);
        taps_before += p->taps;
        if (place + p->columns > end)
            end = place + p->columns;
    }
    g->phase_places = g->shift + g->source[1];
    if (g->phase_places < end)
        g->phase_places = end;
}

/* Bytes of the weights of some steps. */
static size_t bytes_of_steps(const struct grouped *g, int32_t steps)
{
    return (size_t)steps * (size_t)g->kernel[0] * (size_t)g->kernel[1] * grouped_vector_bytes(g);
}

/* What follows the lines in the memory of a thread; `exact`: bytes of weights. */
static void set_chunk(struct grouped *g, size_t exact)
{
    const size_t held = (size_t)g->together * (size_t)g->slots;
    g->lines_bytes = held * (size_t)g->lines_of_row * g->line_bytes;
    g->held_at = g->lines_bytes + (grouped_is_gradient(g) ? (size_t)g->band * g->aim_line_bytes : 0);
    g->finite_at = g->held_at + round_up(held * sizeof(int64_t));
    g->exact_at = g->finite_at + round_up(held * sizeof(bool));
    g->chunk_bytes = g->exact_at + round_up(exact);
}

/* The loops of the same convolution by vectors: the same lines. */
static void set_exact(const struct grouped *g, struct grouped *exact)
{
    int32_t largest = 0;
    exact->whole = true;
    for (int32_t i = 0; i < exact->first_step[g->aim_blocks]; i++)
        exact->whole = exact->whole && exact->steps[i].lane_mask == UINT32_MAX >> (32 - g->loops->lanes);
    for (int32_t b = 0; b < g->aim_blocks; b++)
        largest = grouped_steps(exact, b) > largest ? grouped_steps(exact, b) : largest;
    memcpy(exact->phases, g->phases, sizeof(exact->phases));
    exact->phase_places = g->phase_places;
    exact->line_bytes = g->line_bytes;
    exact->weights_bytes = bytes_of_steps(exact, largest); /* of one block */
}

static void set_sizes(struct grouped *g)
{
    const int32_t lanes = g->loops->lanes;
    const size_t steps = (size_t)g->first_step[g->aim_blocks];
    const int32_t mask_bits = lanes * (g->loops->pairs && grouped_is_gradient(g) ? 2 : 1);
    g->whole = true;
    for (size_t i = 0; i < steps; i++) {
        g->whole = g->whole && g->steps[i].lane_mask == UINT32_MAX >> (32 - mask_bits);
        if (g->steps[i].line >= g->lines_of_row)
            g->lines_of_row = g->steps[i].line + 1;
    }
    g->band = 1;
    if (grouped_is_gradient(g)) {
        const int32_t rows = g->loops->gradient_columns / g->aim[1];
        g->band = rows < 1 ? 1 : rows > CPU_GROUPED_BAND ? CPU_GROUPED_BAND : rows;
    }
    g->slots = (g->band - 1) * g->stride[0] + g->kernel[0];
    /* What is read after the last column: by a tile that is not full, under the last tap, as the second of a pair. */
    const size_t places = (size_t)g->phase_places + (size_t)g->loops->tile + CPU_GROUPED_TAPS + 1;
    g->phase_places = (int32_t)places;
    for (int32_t p = 0; p < g->phase_count; p++)
        for (int32_t n = 0; n < g->phases[p].run_count; n++)
            g->phases[p].runs[n].place += g->phases[p].line_phase[n] * g->phase_places;
    g->line_bytes = round_up(places * (size_t)g->line_phases * (size_t)lanes * g->loops->line_element);
    if (grouped_is_gradient(g)) {
        const size_t step = (size_t)g->loops->aim_columns, columns = ((size_t)g->aim[1] + step - 1) / step * step;
        g->aim_line_bytes = round_up((columns + 2 * CPU_GROUPED_MARGIN + 2) * (size_t)lanes * g->loops->aim_element);
    }
    g->together = !g->by_rows ? 1 : !grouped_is_gradient(g) ? g->aim_blocks : g->aim_blocks < PAIR ? 1 : PAIR;
    g->weights_bytes = bytes_of_steps(g, (int32_t)steps);
    if (grouped_is_gradient(g)) {
        g->pieces = GRADIENT_TASKS / g->aim_blocks;
        g->pieces = g->pieces < 1 ? 1 : g->pieces > g->batch ? g->batch : g->pieces;
    } else {
        g->pieces = 1;
    }
}

static void set_steps(struct grouped *g)
{
    for (int32_t b = 0; b < g->aim_blocks; b++)
        g->first_step[b + 1] = g->first_step[b] + make_steps(g, b, g->steps + g->first_step[b]);
}

static struct grouped_image image_at(const struct grouped *g, const struct cvy_tensor *tensor, int64_t blocks)
{
    const bool nhwc = tensor->layout.kind == CVY_LAYOUT_NHWC;
    const size_t block = (size_t)g->loops->lanes * g->element;
    struct grouped_image at = {.pixel = nhwc ? block * (size_t)blocks : block};
    at.row = at.pixel * (size_t)tensor->shape.dim[3];
    at.block = nhwc ? block : at.row * (size_t)tensor->shape.dim[2];
    at.image = nhwc ? at.row * (size_t)tensor->shape.dim[2] : at.block * (size_t)blocks;
    return at;
}

static cvy_status expect(const struct cpu_device *device, const struct cvy_op_desc *desc, const struct cvy_tensor *x,
                         const struct cvy_tensor *y)
{
    const struct cvy_conv2d_attr *attr = &desc->attr.conv2d;
    const int64_t block = cpu_block(&(struct cvy_layout){.kind = device->blocked});
    const int64_t inputs = x->shape.dim[1] / attr->groups, outputs = y->shape.dim[1] / attr->groups;
    if (attr->groups == 1)
        return cvy_fail(CVY_UNAVAILABLE, "the convolution has no groups");
    if (x->shape.dim[1] % block != 0 || y->shape.dim[1] % block != 0)
        return cvy_fail(CVY_UNAVAILABLE, "%lld and %lld channels are not whole blocks of %d",
                        (long long)x->shape.dim[1], (long long)y->shape.dim[1], (int)block);
    if (inputs == 1 || outputs == 1 || (inputs % block == 0 && outputs % block == 0))
        return cvy_fail(CVY_UNAVAILABLE, "groups of %lld and %lld channels are oneDNN's strength", (long long)inputs,
                        (long long)outputs);
    for (int i = 0; i < 2; i++) {
        if (attr->dilation[i] != 1)
            return cvy_fail(CVY_UNAVAILABLE, "no grouped convolution with dilation");
        if (attr->kernel[i] > CPU_GROUPED_TAPS || attr->stride[i] > CPU_GROUPED_TAPS)
            return cvy_fail(CVY_UNAVAILABLE, "no grouped convolution with a kernel or stride above %d",
                            CPU_GROUPED_TAPS);
    }
    if (x->shape.dim[0] > INT32_MAX || x->shape.dim[1] > INT32_MAX / 2 || y->shape.dim[1] > INT32_MAX / 2)
        return cvy_fail(CVY_UNAVAILABLE, "no grouped convolution of so large a batch");
    return CVY_OK;
}

static struct grouped describe(const struct cvy_op_desc *desc, const struct cvy_tensor *x, const struct cvy_tensor *y,
                               bool tiles)
{
    const struct cvy_conv2d_attr *attr = &desc->attr.conv2d;
    const bool backward = desc->op == CVY_OP_CONV2D_BWD_DATA;
    const struct cvy_tensor *source = backward ? y : x, *aim = backward ? x : y;
    struct grouped g = {.op = desc->op,
                        .element = cvy_dtype_size(x->dtype),
                        .activation = attr->activation,
                        .batch = (int32_t)x->shape.dim[0],
                        .source_group = (int32_t)(source->shape.dim[1] / attr->groups),
                        .aim_group = (int32_t)(aim->shape.dim[1] / attr->groups)};
    g.loops = tiles ? tiles_here(desc->op) : loops_for(x->dtype, desc->op, g.source_group);
    g.source_blocks = (int32_t)(source->shape.dim[1] / g.loops->lanes);
    g.aim_blocks = (int32_t)(aim->shape.dim[1] / g.loops->lanes);
    g.source_at = image_at(&g, source, g.source_blocks);
    g.aim_at = image_at(&g, aim, g.aim_blocks);
    g.by_rows = source->layout.kind == CVY_LAYOUT_NHWC && aim->layout.kind == CVY_LAYOUT_NHWC;
    for (int i = 0; i < 2; i++) {
        g.kernel[i] = attr->kernel[i];
        g.stride[i] = attr->stride[i];
        g.pad[i] = attr->pad[2 * i];
        g.source[i] = (int32_t)source->shape.dim[2 + i];
        g.aim[i] = (int32_t)aim->shape.dim[2 + i];
    }
    if (backward)
        set_taps_backward(&g);
    else
        set_taps_forward(&g);
    return g;
}

/* A state is struct grouped, the first step of each block, the steps. */
static size_t state_bytes(const struct grouped *g)
{
    size_t steps = 0;
    for (int32_t b = 0; b < g->aim_blocks; b++)
        steps += (size_t)make_steps(g, b, NULL);
    return round_up(sizeof(*g)) + round_up(((size_t)g->aim_blocks + 1) * sizeof(int32_t)) +
           round_up(steps * sizeof(struct cpu_grouped_step));
}

static struct grouped *put_state(const struct grouped *g, char *memory)
{
    struct grouped *state = (struct grouped *)(void *)memory;
    char *firsts = memory + round_up(sizeof(*g));
    *state = *g;
    state->first_step = (int32_t *)(void *)firsts;
    state->steps =
        (struct cpu_grouped_step *)(void *)(firsts + round_up(((size_t)g->aim_blocks + 1) * sizeof(int32_t)));
    set_steps(state);
    return state;
}

/* exact: the same by vectors, or NULL. */
static cvy_status make_state(const struct grouped *g, const struct grouped *exact, struct grouped **state)
{
    const size_t first = state_bytes(g), bytes = first + (exact ? state_bytes(exact) : 0);
    char *memory = cvy_calloc(1, bytes);
    if (!memory)
        return cvy_fail_memory(bytes, "the state of a kernel");
    *state = put_state(g, memory);
    set_sizes(*state);
    if (exact) {
        struct grouped *beside = put_state(exact, memory + first);
        set_exact(*state, beside);
        (*state)->exact = beside;
    }
    set_chunk(*state, exact ? (*state)->exact->weights_bytes : 0);
    return CVY_OK;
}

static cvy_status prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan,
                          struct cvy_tensor *x, struct cvy_tensor *w, struct cvy_tensor *y)
{
    struct grouped *g = NULL;
    plan->quiet = desc->attr.conv2d.groups == 1;
    CVY_TRY(cpu_no_norm(desc));
    CVY_TRY(expect(cpu_of(device), desc, x, y));
    x->layout = cpu_image_layout(cpu_of(device), desc->images, x->shape.dim[1], x->dtype);
    y->layout = cpu_image_layout(cpu_of(device), desc->images, y->shape.dim[1], y->dtype);
    const struct grouped vectors = describe(desc, x, y, false);
    /* The vectors that take what tiles cannot read the same lines: pairs of channels, not of an odd number. Gradients
     * need none. */
    const bool gradient = desc->op == CVY_OP_CONV2D_BWD_WEIGHTS;
    const bool tiles = vectors.loops->pairs && (gradient || vectors.source_group % 2 == 0) && tiles_here(desc->op);
    const struct grouped by_tiles = tiles ? describe(desc, x, y, true) : vectors;
    CVY_TRY(make_state(&by_tiles, tiles && !gradient ? &vectors : NULL, &g));
    plan->state = g;
    plan->scratch_bytes = g->weights_bytes * (size_t)g->pieces + g->chunk_bytes * (size_t)device->threads;
    w->layout = (struct cvy_layout){.kind = CVY_LAYOUT_PLAIN};
    snprintf(plan->implementation, sizeof(plan->implementation), "direct:%s", g->loops->isa);
    return CVY_OK;
}

cvy_status cpu_grouped_conv2d_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    CVY_TRY(cpu_expect_images(desc, ~(1U << 2), 1U, 0, 0)); /* the bias is f32 */
    CVY_TRY(prepare(device, desc, plan, &desc->in[0], &desc->in[1], &desc->out[0]));
    if (desc->inputs > 2 && cvy_tensor_present(&desc->in[2]))
        desc->in[2].layout = (struct cvy_layout){.kind = CVY_LAYOUT_PLAIN};
    if (desc->inputs > 3 && cvy_tensor_present(&desc->in[3])) {
        desc->in[3].layout = desc->out[0].layout;
        plan->in_place[0] = 3;
    }
    return CVY_OK;
}

cvy_status cpu_grouped_conv2d_bwd_data_prepare(cvy_device *device, struct cvy_op_desc *desc,
                                               struct cvy_kernel_plan *plan)
{
    CVY_TRY(cpu_expect_images(desc, ~0U, 1U, 0, 0));
    return prepare(device, desc, plan, &desc->out[0], &desc->in[0], &desc->in[1]);
}

cvy_status cpu_grouped_conv2d_bwd_weights_prepare(cvy_device *device, struct cvy_op_desc *desc,
                                                  struct cvy_kernel_plan *plan)
{
    CVY_TRY(cpu_expect_images(desc, ~0U, 0, 0, 0)); /* the gradient of the weights is f32 */
    return prepare(device, desc, plan, &desc->in[0], &desc->out[0], &desc->in[1]);
}
