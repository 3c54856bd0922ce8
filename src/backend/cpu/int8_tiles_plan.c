/* Integer convolutions by tile products (AMX): what is read how, and how the work is cut (int8_tiles.h). */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/int8_tiles.h"
#include "base/system.h"

/* At most, for the second-level cache: what one segment copies or reads, all segments of a task copy. What is written
 * beyond the third does not come from it. Weights that are used in turn, of the first-level cache. */
enum { SEGMENT_BYTES = 192 << 10, TASK_BYTES = 448 << 10, WRITTEN_BYTES = 1 << 20, NEAR_BYTES = 32 << 10 };

static const struct cpu_int8_tile_loops *loops_here(void)
{
    const char *tiles = getenv("CONVOY_CPU_TILES");
    const unsigned int8 = cvy_cpu_int8();

    if (!(int8 & CVY_INT8_AVX512_VNNI))
        return NULL;
    if (tiles && strcmp(tiles, "model") == 0)
        return CVY_IF_AVX(&cpu_int8_tiles_model);
    return int8 & CVY_INT8_AMX ? CVY_IF_AVX(&cpu_int8_tiles_amx) : NULL;
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* ---- what is read ---- */

/* The fewest steps of equal bytes, four at a time, that make a run. */
static void cut_run(int64_t bytes, struct cpu_packing *packing)
{
    int64_t steps = divide_up(bytes, CPU_TILE_BYTES);

    while (bytes % (4 * steps) != 0)
        steps++;
    packing->run_steps = (int32_t)steps;
    packing->step_bytes = (int32_t)(bytes / steps);
}

/* Images whose pixels are multiplied alone are one row of pixels; a row that is too short for a block is copied, for
 * what lies behind it is read too. */
static void choose_source(struct cpu_int8_tiles *t)
{
    struct cpu_int8_conv *s = &t->conv;

    t->source = s->c % 4 != 0 ? CPU_TILE_PATCHES : CPU_TILE_COPIES;
    if (t->source == CPU_TILE_COPIES && cpu_int8_reads_points(s)) {
        s->w = s->q = s->n * s->h * s->w;
        s->n = s->h = s->p = 1;
        t->source = s->q < 2 * CPU_TILE_ROWS ? CPU_TILE_COPIES : CPU_TILE_POINTS;
    }
}

static struct cpu_packing packing_of(const struct cpu_int8_tiles *t, const struct cvy_op_desc *desc)
{
    const struct cpu_int8_conv *s = &t->conv;
    const struct cvy_conv2d_attr *a = &s->attr.conv2d;
    const bool shared = s->shared, adjacent = a->dilation[1] == 1 && (shared || a->groups == 1);
    struct cpu_packing packing = {.groups = a->groups, .shared = shared, .run_taps = adjacent ? a->kernel[1] : 1};

    packing.run_channels = shared ? (int32_t)t->block_channels : (int32_t)desc->in[1].shape.dim[1];
    if (t->source == CPU_TILE_PATCHES) {
        packing.run_taps = (int32_t)s->taps;
        packing.run_steps = (int32_t)divide_up(s->taps * s->c, CPU_TILE_BYTES);
        packing.step_bytes = CPU_TILE_BYTES;
    } else {
        cut_run(packing.run_taps * packing.run_channels, &packing);
    }
    return packing;
}

static const char *refusal(const struct cvy_op_desc *desc, const struct cpu_int8_conv *s)
{
    const int64_t inputs = desc->in[1].shape.dim[1];
    const struct cvy_conv2d_attr *a = &s->attr.conv2d;

    if (inputs % 4 != 0 && (a->groups > 1 || a->dilation[1] != 1))
        return "channels that are no multiple of 4";
    if (a->groups > 1 && !s->shared && s->k / a->groups < CPU_TILE_CHANNELS)
        return "groups that fill no tile";
    return NULL;
}

/* ---- copies ---- */

/* Rows of places: each begins where the border of the row before it ends, which it shares. */
static void lay_out_rows(struct cpu_int8_tiles *t)
{
    struct cpu_int8_conv *s = &t->conv;
    const struct cvy_conv2d_attr *a = &s->attr.conv2d;
    const bool columns = a->kernel[1] > 1;
    const int64_t before = a->pad[2], read = (s->q - 1) * a->stride[1] + (a->kernel[1] - 1) * a->dilation[1] + 1;
    const int64_t there = before + s->w < read ? before + s->w : read;
    const int64_t pitch = there > read - before ? there : read - before, step = columns ? a->stride[1] : 1;
    const int64_t places = divide_up(pitch, step);

    t->column_step = columns ? 1 : a->stride[1];
    t->row_pixels = s->q;
    t->row_places = columns && places > s->q ? places : s->q;
    t->place_bytes = step * t->block_channels;
    t->pitch_bytes = t->row_places * t->place_bytes;
    t->planes = a->kernel[0] > 1 ? a->stride[0] : 1;
    t->whole_rows = t->block_channels == s->c && (columns || (a->stride[1] == 1 && before == 0));
}

/* What depends on how many rows a segment has. */
static void size_segment(struct cpu_int8_tiles *t, int64_t rows)
{
    struct cpu_int8_conv *s = &t->conv;
    const struct cvy_conv2d_attr *a = &s->attr.conv2d;
    const int64_t beyond = (a->kernel[0] - 1) * a->dilation[0], behind = 2 * CPU_TILE_ROWS * t->place_bytes + 64;

    t->segment_rows = rows;
    t->segments = divide_up(t->source == CPU_TILE_POINTS ? s->q : s->p, rows);
    if (t->source == CPU_TILE_COPIES) {
        t->plane_rows = rows + beyond / a->stride[0];
        t->block_bytes = t->planes * t->plane_rows * t->pitch_bytes;
        t->segment_bytes = (size_t)(s->c / t->block_channels * t->block_bytes + behind +
                                    (a->pad[2] > 0 ? a->pad[2] : 0) * t->block_channels);
    } else if (t->source == CPU_TILE_PATCHES) {
        t->block_bytes = rows * s->q * t->place_bytes + behind;
        t->segment_bytes = (size_t)(t->block_bytes + ((rows - 1) * a->stride[0] + beyond + 1) * s->row_bytes + 64);
    }
    t->segment_bytes = (t->segment_bytes + 63) / 64 * 64;
}

/* Places of a whole segment. */
static int64_t places_of(const struct cpu_int8_tiles *t)
{
    return t->source == CPU_TILE_POINTS ? t->segment_rows : (t->segment_rows - 1) * t->row_places + t->conv.q;
}

/* From a place to what each step takes. */
static cvy_status find_steps(struct cpu_int8_tiles *t, const struct cpu_packing *packing)
{
    const struct cvy_conv2d_attr *a = &t->conv.attr.conv2d;
    const int64_t runs = t->conv.taps / packing->run_taps, width = a->kernel[1] / packing->run_taps;

    t->step_at = cvy_calloc((size_t)t->steps, sizeof(*t->step_at));
    if (!t->step_at)
        return cvy_fail_memory((size_t)t->steps * sizeof(*t->step_at), "the steps of a convolution");
    for (int64_t run = 0; run < runs; run++) {
        int64_t at = 0;
        if (t->source == CPU_TILE_COPIES) {
            const int64_t row = run / width * a->dilation[0], column = run % width * a->dilation[1];
            at =
                (row % a->stride[0] * t->plane_rows + row / a->stride[0]) * t->pitch_bytes + column * t->block_channels;
        }
        for (int32_t i = 0; i < packing->run_steps; i++)
            t->step_at[run * packing->run_steps + i] = at + i * packing->step_bytes;
    }
    return CVY_OK;
}

/* ---- how the work is cut ---- */

/* A guess at the time of everything in cycles of a core, for comparing cuts. Of a 2 x 2 product of tiles; of a half
 * block beside its products; of a task; bytes copied and weights read in a cycle. */
enum { PRODUCTS = 70, AROUND = 350, TASK = 1500, COPIED = 12, WEIGHTS = 10 };

static double guess(const struct cpu_int8_tiles *t, int threads)
{
    const struct cpu_int8_conv *s = &t->conv;
    const int64_t blocks = divide_up(places_of(t), 2 * CPU_TILE_ROWS), halves = divide_up(s->pack_outputs, 32);
    const double all_halves = (double)(s->pack_groups * halves), panels = (double)t->task_panels / (double)s->panels;
    const double block = (double)t->steps * PRODUCTS + AROUND;
    const double copies = t->source == CPU_TILE_POINTS ? 0 : (double)t->segment_bytes / COPIED;
    const double segment = copies + (double)blocks * all_halves * panels * block;
    const double task = TASK + (double)t->task_segments * segment + (double)s->panel_bytes * panels / WEIGHTS;
    /* Threads are not equally fast: what they do not share out is waited for. */
    const int64_t tasks = t->segment_tasks * t->panel_tasks;
    const double rounds = (double)divide_up(tasks, threads), even = (double)tasks / threads + 0.25;
    return task * (rounds > even && rounds <= 6 ? rounds : even);
}

/* Sets the cut; false: it has too much memory. */
static bool cut(struct cpu_int8_tiles *t, int64_t rows, int64_t segments, int64_t panel_tasks)
{
    struct cpu_int8_conv *s = &t->conv;
    const int64_t read = rows * (t->source == CPU_TILE_POINTS ? s->c : 0);

    size_segment(t, rows);
    t->task_segments = segments;
    t->segment_tasks = divide_up(s->n * t->segments, segments);
    t->task_panels = divide_up(s->panels, panel_tasks);
    t->panel_tasks = divide_up(s->panels, t->task_panels);
    s->thread_bytes = t->source == CPU_TILE_POINTS ? 0 : t->segment_bytes * (size_t)segments;
    return (t->segment_bytes <= SEGMENT_BYTES || rows == 1) &&
           (segments == 1 || t->segment_bytes * (size_t)segments <= TASK_BYTES) && read <= SEGMENT_BYTES;
}

/* Rows of a segment for one number of segments; POINTS: whole blocks. */
static int64_t rows_of(const struct cpu_int8_tiles *t, int64_t segments)
{
    const int64_t block = 2 * CPU_TILE_ROWS;

    if (t->source == CPU_TILE_POINTS)
        return divide_up(divide_up(t->conv.q, segments), block) * block;
    return divide_up(t->conv.p, segments);
}

static void choose_cut(struct cpu_int8_tiles *t, int threads)
{
    const struct cpu_int8_conv *s = &t->conv;
    const int64_t most = t->source == CPU_TILE_POINTS ? divide_up(s->q, 2 * CPU_TILE_ROWS) : s->p;
    int64_t best_rows = t->source == CPU_TILE_POINTS ? 2 * CPU_TILE_ROWS : 1, best_segments = 1, best_tasks = s->panels;
    double best = 0;

    for (int64_t parts = 1, rows = 0; parts <= most; parts += parts < 64 ? 1 : parts / 16) {
        if (rows_of(t, parts) == rows)
            continue;
        rows = rows_of(t, parts);
        for (int64_t segments = 1; segments <= s->n; segments *= 2)
            for (int64_t tasks = 1; tasks <= s->panels; tasks++) {
                double now;
                if (divide_up(s->panels, divide_up(s->panels, tasks)) != tasks || !cut(t, rows, segments, tasks))
                    continue;
                now = guess(t, threads);
                if (best > 0 && now >= best)
                    continue;
                best = now;
                best_rows = rows;
                best_segments = segments;
                best_tasks = tasks;
            }
    }
    cut(t, best_rows, best_segments, best_tasks);
    /* Blocks of equal size, the last one too. */
    t->tile_rows = (int32_t)divide_up(places_of(t), 2 * divide_up(places_of(t), 2 * CPU_TILE_ROWS));
}

/* ---- the kernel ---- */

static void describe(const struct cvy_op_desc *desc, struct cpu_int8_tiles *t)
{
    struct cpu_int8_conv *s = &t->conv;
    const struct cvy_shape *w = &desc->in[1].shape;
    const int32_t groups = desc->attr.int8.conv2d.groups;

    memset(t, 0, sizeof(*t));
    cpu_int8_describe(desc, s);
    s->shared = cpu_int8_narrow_groups(w, groups);
    s->pack_groups = s->shared ? 1 : groups;
    s->pack_outputs = s->k / s->pack_groups;
    s->group_inputs = s->c / s->pack_groups;
    s->panels = s->pack_groups * divide_up(s->pack_outputs, CPU_INT8_PANEL);
    t->block_channels = !s->shared ? s->c : w->dim[1] > CPU_TILE_CHANNELS ? w->dim[1] : CPU_TILE_CHANNELS;
    t->diagonal = s->shared && t->block_channels == CPU_TILE_CHANNELS;
}

/* Everything but the memory of its own. */
static void make_state(struct cpu_int8_tiles *t, const struct cpu_packing *packing, const struct cvy_shape *w,
                       int threads)
{
    struct cpu_int8_conv *s = &t->conv;

    t->step_bytes = packing->step_bytes;
    t->steps = (int32_t)(s->taps / packing->run_taps * packing->run_steps);
    s->panel_bytes = cpu_packing_panel_bytes(packing, w);
    if (t->source == CPU_TILE_COPIES) {
        lay_out_rows(t);
    } else {
        t->row_places = t->row_pixels = s->q;
        t->place_bytes = t->source == CPU_TILE_POINTS ? s->c : t->steps * CPU_TILE_BYTES;
        t->block_bytes = t->block_channels;
        s->row_bytes = cpu_int8_bordered_row(s);
    }
    choose_cut(t, threads);
    t->near_panels = NEAR_BYTES / (t->steps * t->step_bytes * CPU_INT8_PANEL);
    t->near_panels = t->near_panels < 1 ? 1 : t->near_panels > CPU_TILE_NEAR ? CPU_TILE_NEAR : t->near_panels;
    t->ends_ahead = s->n * s->p * s->q * s->k > WRITTEN_BYTES;
}

cvy_status cpu_conv2d_int8_tiles_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    static const char *const sources[] = {"points", "rows", "patches"};
    const struct cpu_int8_tile_loops *loops = loops_here();
    const struct cpu_packing *packing;
    struct cpu_packing wanted;
    struct cpu_int8_tiles state;
    const char *why;

    plan->quiet = !loops;
    if (!loops)
        return cvy_fail(CVY_UNAVAILABLE, "this processor has no tiles of bytes");
    describe(desc, &state);
    state.loops = loops;
    why = refusal(desc, &state.conv);
    if (why)
        return cvy_fail(CVY_UNAVAILABLE, "%s", why);
    choose_source(&state);
    wanted = packing_of(&state, desc);
    packing = cpu_packing_known(cpu_of(device), &wanted);
    if (!packing)
        return cvy_fail(CVY_UNAVAILABLE, "more ways to pack weights than this device remembers");
    make_state(&state, packing, &desc->in[1].shape, device->threads);
    cpu_int8_lay_out(desc, packing);
    plan->in_place[0] = cpu_int8_over(desc, device);
    plan->scratch_bytes = state.conv.thread_bytes * (size_t)device->threads;
    snprintf(plan->implementation, sizeof(plan->implementation), "%s:%s", loops->isa, sources[state.source]);
    CVY_TRY(cpu_state(plan, &state, sizeof(state)));
    return find_steps(plan->state, packing);
}

void cpu_conv2d_int8_tiles_release(cvy_device *device, struct cvy_kernel_plan *plan)
{
    struct cpu_int8_tiles *t = plan->state;

    if (t)
        cvy_free(t->step_at);
    cpu_state_release(device, plan);
}

cvy_status cpu_conv2d_int8_tiles_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                     void *const *out, void *scratch)
{
    const struct cpu_int8_tiles *t = plan->state;
    const struct cpu_int8_conv *s = &t->conv;
    const struct cpu_int8_work work = cpu_int8_work_of(in, out, s->panel_bytes, s->k);
    const int64_t tasks = t->segment_tasks * t->panel_tasks, all = s->n * t->segments;

#pragma omp parallel for num_threads(device->threads) schedule(dynamic)
    for (int64_t task = 0; task < tasks; task++) {
        const int64_t first = task / t->panel_tasks * t->task_segments, panel = task % t->panel_tasks * t->task_panels;
        const int64_t end = first + t->task_segments < all ? first + t->task_segments : all;
        const int64_t end_panel = panel + t->task_panels < s->panels ? panel + t->task_panels : s->panels;
        t->loops->conv(t, &work, first, end, panel, end_panel,
                       (char *)scratch + s->thread_bytes * (size_t)omp_get_thread_num());
    }
    return CVY_OK;
}
