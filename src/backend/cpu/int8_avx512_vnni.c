/* Integer inference with AVX-512 and VNNI: the tasks of a convolution (int8_avx512_tile.inc has the arithmetic). */
#include <immintrin.h>
#include <string.h>

#include "backend/cpu/int8.h"

#include "backend/cpu/int8_avx512_finish.inc"
#include "backend/cpu/int8_avx512_tile.inc"
#include "backend/cpu/int8_avx512_woven.inc"

/* ---- what a task reads ---- */

/* A place of the output. */
struct place {
    int64_t n, p, q;
};

static inline void step(const struct cpu_int8_conv *s, struct place *at)
{
    if (++at->q < s->q)
        return;
    at->q = 0;
    if (++at->p < s->p)
        return;
    at->p = 0;
    at->n++;
}

/* The pixels that the taps of one place read, TILE pointers apart; outside the image the pixel of zero points. */
static inline void find_taps(const struct cpu_int8_conv *s, const uint8_t *x, const struct place *at,
                             const uint8_t **pixels)
{
    const struct cvy_conv2d_attr *a = &s->attr.conv2d;
    const int64_t top = at->p * a->stride[0] - a->pad[0], left = at->q * a->stride[1] - a->pad[2];
    const uint8_t *first = x + ((at->n * s->h + top) * s->w + left) * s->c;
    if (top >= 0 && left >= 0 && top + (a->kernel[0] - 1) * a->dilation[0] < s->h &&
        left + (a->kernel[1] - 1) * a->dilation[1] < s->w) {
        for (int64_t tap = 0; tap < s->taps; tap++)
            pixels[tap * TILE] = first + s->offsets[tap];
        return;
    }
    for (int32_t r = 0; r < a->kernel[0]; r++) {
        const int64_t row = top + r * a->dilation[0];
        const bool inside = row >= 0 && row < s->h;
        for (int32_t t = 0; t < a->kernel[1]; t++, pixels += TILE) {
            const int64_t column = left + t * a->dilation[1];
            *pixels = inside && column >= 0 && column < s->w ? first + s->offsets[r * a->kernel[1] + t] : s->outside;
        }
    }
}

/* Those of tiles `first` to `end`: for each tile (taps, TILE). */
static void find_pixels(const struct cpu_int8_conv *s, const uint8_t *x, int64_t first, int64_t end,
                        const uint8_t **pixels)
{
    const int64_t area = s->p * s->q, count = s->n * area, begin = first * TILE;
    struct place at = {begin / area, begin % area / s->q, begin % s->q};
    if (s->points) {
        for (int64_t i = begin; i < end * TILE; i++)
            pixels[i - begin] = i < count ? x + i * s->c : s->outside;
        return;
    }
    for (int64_t tile = first; tile < end; tile++, pixels += s->taps * TILE)
        for (int64_t i = 0; i < TILE; i++) {
            if (tile * TILE + i < count)
                find_taps(s, x, &at, pixels + i);
            for (int64_t tap = 0; tap < s->taps && tile * TILE + i >= count; tap++)
                pixels[tap * TILE + i] = s->outside;
            step(s, &at);
        }
}

/* The same for windows whose rows are what is taken by fours: copies of the rows of every row of the output, and for
 * each tile the places in the first (TILE). */
static void copy_rows(const struct cpu_int8_conv *s, const uint8_t *x, int64_t first, int64_t end,
                      const uint8_t **pixels, uint8_t *rows)
{
    const struct cvy_conv2d_attr *a = &s->attr.conv2d;
    const int64_t area = s->p * s->q, count = s->n * area, begin = first * TILE;
    struct place at = {begin / area, begin % area / s->q, begin % s->q};
    for (int64_t i = begin; i < end * TILE; i++, step(s, &at)) {
        const bool another = i > begin && at.q == 0 && i < count;
        rows += another ? s->taps * s->row_bytes : 0;
        for (int64_t r = 0; r < s->taps && (another || i == begin); r++)
            copy_row(s, x, at.n, at.p * a->stride[0] - a->pad[0] + r * a->dilation[0], rows + r * s->row_bytes);
        pixels[i - begin] = rows + (i < count ? at.q * a->stride[1] * s->c : 0);
    }
}

/* ---- memory ahead: for products of single pixels, which take less time than their bytes do to come ---- */

/* The pixels of the next tile, which nothing has read yet. */
INLINE void prefetch_pixels(const struct cpu_int8_conv *s, const struct tile *tile, const uint8_t *const *next)
{
    const int64_t bytes = s->shared ? PANEL : 4 * s->quads;
    for (int i = 0; i < TILE; i++)
        for (int64_t at = 0; at < bytes; at += 64)
            __builtin_prefetch(next[i] + tile->skip + at);
}

/* Where this tile will write, and what it adds there. */
INLINE void prefetch_ends(const struct cpu_int8_conv *s, const struct cpu_int8_work *work, int64_t at, int count)
{
    const int64_t size = s->floats ? (int64_t)sizeof(float) : 1;
    for (int i = 0; i < count; i++, at += s->k) {
        __builtin_prefetch((const char *)work->y + at * size, 1);
        if (work->residual)
            __builtin_prefetch(work->residual + at);
    }
}

static void conv(const struct cpu_int8_conv *s, const struct cpu_int8_work *work, int64_t first, int64_t end,
                 int64_t first_panel, int64_t end_panel, void *memory)
{
    const int64_t of_group = s->panels / s->pack_groups, steps = s->taps * s->quads;
    const int64_t vectors = (s->pack_outputs + LANES - 1) / LANES, pixels = s->n * s->p * s->q;
    const bool bytes = !s->floats && s->attr.conv2d.activation != CVY_ACTIVATION_RELU6;
    const sum_function *sum = sums_of(s);
    const struct ending ending = ending_of(&s->attr);
    const int64_t table_step = s->rows ? TILE : s->taps * TILE;
    const bool add = s->attr.middle.scale > 0, whole = bytes && ending.bounded;
    const uint8_t **table = memory;

    if (s->rows)
        copy_rows(s, work->x, first, end, table, (uint8_t *)memory + s->pointers);
    else
        find_pixels(s, work->x, first, end, table);
    for (int64_t panel = first_panel; panel < end_panel; panel++) {
        const int64_t group = panel / of_group, within = panel % of_group * PANEL;
        const int64_t left = s->pack_outputs - within, width = left < PANEL ? left : PANEL;
        const int64_t channel = group * s->pack_outputs + within;
        struct finish finish;
        finish_function end_function;
        struct tile tile = {.skip = s->shared ? channel : group * s->group_inputs,
                            .pointers = s->rows ? 0 : TILE,
                            .bytes = s->row_bytes,
                            .taps = s->taps,
                            .quads = s->quads,
                            .w = work->w + (group * vectors * LANES + within) * steps * 4,
                            .finish = &finish};

        prepare_panel(s, work, channel, width, &finish);
        end_function = finish_of(&finish, &ending, add);
        for (int64_t i = first; i < end; i++) {
            const int64_t rest = pixels - i * TILE, at = i * TILE * s->k + channel;
            const int count = rest < TILE ? (int)rest : TILE;

            int32_t sums[TILE * PANEL] __attribute__((aligned(64)));

            tile.pixels = table + (i - first) * table_step;
            if (s->pixels_ahead && panel == first_panel && i + 1 < end)
                prefetch_pixels(s, &tile, tile.pixels + table_step);
            if (s->ends_ahead)
                prefetch_ends(s, work, at, count);
            sum[(width + LANES - 1) / LANES - 1](&tile, sums);
            if (!whole || width < PANEL)
                finish_pixels(s, work, sums, &finish, at, count, width);
            else
                end_function(sums, &finish, &ending, (uint8_t *)work->y + at, add ? work->residual + at : NULL, s->k,
                             count);
        }
    }
}

/* The last pixels, which fill no tile of woven halves. */
static void finish_rest(const struct cpu_int8_conv *s, const struct cpu_int8_work *work, const struct woven *t,
                        int64_t pixel, int count, int64_t channel)
{
    const uint8_t *pixels[TILE];
    int32_t sums[TILE * PANEL] __attribute__((aligned(64)));
    const struct tile tile = {.pixels = pixels, .taps = 1, .quads = t->quads, .w = t->w, .finish = t->finish};
    const int64_t at = pixel * s->k + channel;

    for (int i = 0; i < TILE; i++)
        pixels[i] = i < count ? t->x + i * t->step : s->outside;
    sums_ONE_GROUP_4(&tile, sums);
    finish_of(t->finish, t->end, t->other)(sums, t->finish, t->end, (uint8_t *)work->y + at,
                                           t->other ? work->residual + at : NULL, s->k, count);
}

static void woven(const struct cpu_int8_conv *s, const struct cpu_int8_work *work, int64_t first, int64_t end,
                  int64_t first_panel, int64_t end_panel, void *memory)
{
    const int64_t of_group = s->panels / s->pack_groups, all = s->n * s->p * s->q;
    const int64_t begin = first * s->tile, pixels = (end * s->tile < all ? end * s->tile : all) - begin;
    const struct ending ending = ending_of(&s->attr);
    const bool add = s->attr.middle.scale > 0;

    (void)memory;
    for (int64_t panel = first_panel; panel < end_panel; panel++) {
        const int64_t group = panel / of_group, channel = panel * PANEL, at = begin * s->k + channel;
        struct finish finish;
        struct woven t = {.x = work->x + begin * s->c + group * s->group_inputs,
                          .step = s->c,
                          .quads = s->quads,
                          .tiles = pixels / s->tile,
                          .y_step = s->k,
                          .w = work->w + channel * s->quads * 4,
                          .y = (uint8_t *)work->y + at,
                          .other = add ? work->residual + at : NULL,
                          .finish = &finish,
                          .end = &ending};
        const int64_t whole = t.tiles * s->tile;

        prepare_panel(s, work, channel, PANEL, &finish);
        if (whole > 0)
            woven_of(&finish, &ending, add)(&t);
        if (whole == pixels)
            continue;
        t.x += whole * t.step;
        finish_rest(s, work, &t, begin + whole, (int)(pixels - whole), channel);
    }
}

static void largest(uint8_t *y, const uint8_t *const *x, size_t taps, size_t count)
{
    for (size_t i = 0; i < count; i += 64) {
        const __mmask64 mask = count - i >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (count - i)) - 1;
        __m512i max = _mm512_setzero_si512();
        for (size_t tap = 0; tap < taps; tap++)
            max = _mm512_max_epu8(max, _mm512_maskz_loadu_epi8(mask, x[tap] + i));
        _mm512_mask_storeu_epi8(y + i, mask, max);
    }
}

#define CONV       conv
#define WOVEN      woven
#define TAKE_MAX   largest
#define INT8_TABLE cpu_int8_kernels_avx512_vnni
#define INT8_ISA   "avx512_vnni"
#include "backend/cpu/int8_loops.inc"
