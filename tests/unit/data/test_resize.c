/* The resize against a plain double computation, against Pillow's own bytes, and its variants against each other. */
#include "base/system.h"
#include "data/image/resize.h"
#include "data/image/resize_kernels.h"
#include "support_images.h"
#include "support_test.h"

static const int sizes[][4] = {
    /* from width x height to width x height */
    {8, 8, 8, 8},     {1, 1, 5, 7},    {5, 1, 1, 5},     {37, 29, 16, 16}, {40, 30, 224, 168}, {300, 200, 64, 43},
    {100, 3, 10, 20}, {500, 2, 33, 1}, {17, 90, 16, 91}, {1000, 7, 3, 7},  {64, 48, 64, 20},   {63, 48, 20, 48},
};
enum { SIZE_COUNT = sizeof sizes / sizeof *sizes };

static const enum cvy_filter filters[] = {CVY_FILTER_BILINEAR, CVY_FILTER_BICUBIC, CVY_FILTER_LINEAR};
enum { FILTER_COUNT = sizeof filters / sizeof *filters };

static double weigh(enum cvy_filter filter, double x)
{
    if (filter != CVY_FILTER_BICUBIC)
        return x < 1 ? 1 - x : 0;
    return x < 1 ? 1.5 * x * x * x - 2.5 * x * x + 1 : x < 2 ? -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2 : 0;
}

/* One axis in double: rounds to a level only at the end. in and out are (lines, count, 3) with `lines` untouched. */
static void reference_axis(enum cvy_filter filter, const double *in, int lines, int count, double *out, int out_count)
{
    const double scale = (double)count / out_count;
    const double width = scale > 1 && filter != CVY_FILTER_LINEAR ? scale : 1;
    for (int x = 0; x < out_count; x++) {
        const double center = (x + 0.5) * scale;
        double sum = 0, *weights = calloc((size_t)count, sizeof *weights);
        assert_non_null(weights);
        for (int i = 0; i < count; i++) {
            weights[i] = weigh(filter, fabs(i + 0.5 - center) / width);
            sum += weights[i];
        }
        for (int line = 0; line < lines; line++)
            for (int c = 0; c < 3; c++) {
                double value = 0;
                for (int i = 0; i < count; i++)
                    value += weights[i] / sum * in[(line * count + i) * 3 + c];
                out[(line * out_count + x) * 3 + c] = value < 0 ? 0 : value > 255 ? 255 : value;
            }
        free(weights);
    }
}

static double *transposed(const double *in, int rows, int columns)
{
    double *out = malloc((size_t)rows * (size_t)columns * 3 * sizeof *out);
    assert_non_null(out);
    for (int y = 0; y < rows; y++)
        for (int x = 0; x < columns; x++)
            memcpy(out + (x * rows + y) * 3, in + (y * columns + x) * 3, 3 * sizeof *out);
    return out;
}

static void agrees_with_double(void **state)
{
    struct cvy_resizer resizer = {0};
    for (int s = 0; s < SIZE_COUNT * FILTER_COUNT; s++) {
        const int *const size = sizes[s % SIZE_COUNT];
        const int w = size[0], h = size[1], fw = size[2], fh = size[3];
        const enum cvy_filter filter = resizer.filter = filters[s / SIZE_COUNT];
        struct cvy_rng rng = cvy_rng_new(1, CVY_RNG_TEST, 0, (uint32_t)s);
        uint8_t *in = support_noise(&rng, w, h, 3), *out = malloc((size_t)fw * (size_t)fh * 3);
        double *a = malloc((size_t)w * (size_t)h * 3 * sizeof *a), *b = malloc((size_t)fw * (size_t)h * 3 * sizeof *b);
        double *c = malloc((size_t)fw * (size_t)fh * 3 * sizeof *c);
        assert_true(out && a && b && c);
        for (int i = 0; i < w * h * 3; i++)
            a[i] = in[i];
        reference_axis(filter, a, h, w, b, fw);
        double *columns = transposed(b, h, fw);
        reference_axis(filter, columns, fw, h, c, fh);
        double *expected = transposed(c, fw, fh);
        assert_int_equal(
            cvy_resize(&resizer, in, (size_t)w * 3, w, h, fw, fh, &(struct cvy_box){0, 0, fw, fh}, false, out), CVY_OK);
        /* Two roundings to a level of at most 0.5 each (the first one averaged; the cubic weights add up to 1.25
         * times themselves at most, regardless of their signs), and weights of 22 bits. */
        const double max = filter == CVY_FILTER_BICUBIC ? 1.13 : 1.01;
        for (int i = 0; i < fw * fh * 3; i++)
            if (fabs(out[i] - expected[i]) > max)
                fail_msg("filter %d, %d x %d to %d x %d, byte %d: %d, expected %g", (int)filter, w, h, fw, fh, i,
                         out[i], expected[i]);
        free(in);
        free(out);
        free(a);
        free(b);
        free(c);
        free(columns);
        free(expected);
    }
    cvy_resizer_release(&resizer);
}

/* Image.resize((3, 4)) and ((9, 2)), BILINEAR and BICUBIC, of a 7 x 5 image with byte i = (i * 37 + i * i * 11) % 256,
 * made with Pillow 9.4. */
static void equals_pillow(void **state)
{
    static const uint8_t small[] = {116, 85,  162, 157, 119, 180, 197, 75,  124, 151, 163, 133,
                                    78,  170, 145, 182, 149, 94,  175, 128, 179, 100, 142, 191,
                                    150, 174, 94,  133, 160, 122, 88,  117, 193, 168, 111, 191};
    static const uint8_t wide[] = {161, 159, 86,  139, 127, 160, 124, 110, 178, 109, 127, 157, 74,  189,
                                   162, 130, 142, 167, 187, 115, 153, 204, 112, 104, 175, 127, 31,  157,
                                   136, 149, 167, 137, 132, 149, 153, 163, 99,  162, 204, 31,  127, 175,
                                   116, 109, 209, 156, 118, 178, 166, 149, 122, 162, 189, 74};
    static const uint8_t small_cubic[] = {107, 80,  164, 165, 115, 187, 204, 66,  122, 155, 169, 125,
                                          65,  174, 145, 187, 151, 90,  183, 123, 185, 101, 138, 203,
                                          144, 184, 83,  126, 165, 113, 84,  113, 203, 174, 102, 199};
    static const uint8_t wide_cubic[] = {162, 159, 80,  138, 125, 168, 124, 97,  189, 113, 118, 152, 79,  193,
                                         162, 128, 145, 167, 196, 112, 158, 212, 110, 100, 170, 123, 20,  157,
                                         138, 152, 173, 136, 121, 156, 158, 160, 98,  170, 213, 26,  122, 172,
                                         115, 106, 218, 160, 115, 185, 166, 152, 118, 162, 196, 78};
    struct cvy_resizer resizer = {0};
    uint8_t in[7 * 5 * 3], out[9 * 4 * 3];
    for (int i = 0; i < 7 * 5 * 3; i++)
        in[i] = (uint8_t)(i * 37 + i * i * 11);
    assert_int_equal(cvy_resize(&resizer, in, 21, 7, 5, 3, 4, &(struct cvy_box){0, 0, 3, 4}, false, out), CVY_OK);
    assert_memory_equal(out, small, sizeof small);
    assert_int_equal(cvy_resize(&resizer, in, 21, 7, 5, 9, 2, &(struct cvy_box){0, 0, 9, 2}, false, out), CVY_OK);
    assert_memory_equal(out, wide, sizeof wide);
    resizer.filter = CVY_FILTER_BICUBIC;
    assert_int_equal(cvy_resize(&resizer, in, 21, 7, 5, 3, 4, &(struct cvy_box){0, 0, 3, 4}, false, out), CVY_OK);
    assert_memory_equal(out, small_cubic, sizeof small_cubic);
    assert_int_equal(cvy_resize(&resizer, in, 21, 7, 5, 9, 2, &(struct cvy_box){0, 0, 9, 2}, false, out), CVY_OK);
    assert_memory_equal(out, wide_cubic, sizeof wide_cubic);
    cvy_resizer_release(&resizer);
}

/* A window is that part of the whole result, mirrored when asked; it reads no pixel outside cvy_resize_need. */
static void windows_and_flips(void **state)
{
    struct cvy_resizer resizer = {0};
    for (int s = 0; s < SIZE_COUNT * FILTER_COUNT; s++) {
        const int *const size = sizes[s % SIZE_COUNT];
        const int w = size[0], h = size[1], fw = size[2], fh = size[3];
        resizer.filter = filters[s / SIZE_COUNT];
        struct cvy_rng rng = cvy_rng_new(2, CVY_RNG_TEST, 0, (uint32_t)s);
        uint8_t *in = support_noise(&rng, w, h, 3), *all = malloc((size_t)fw * (size_t)fh * 3);
        assert_non_null(all);
        assert_int_equal(
            cvy_resize(&resizer, in, (size_t)w * 3, w, h, fw, fh, &(struct cvy_box){0, 0, fw, fh}, false, all), CVY_OK);
        for (int i = 0; i < 20; i++) {
            struct cvy_box box = {.x = (int32_t)cvy_rng_below(&rng, (uint32_t)fw),
                                  .y = (int32_t)cvy_rng_below(&rng, (uint32_t)fh)};
            box.width = 1 + (int32_t)cvy_rng_below(&rng, (uint32_t)(fw - box.x));
            box.height = 1 + (int32_t)cvy_rng_below(&rng, (uint32_t)(fh - box.y));
            const bool flip = i % 2;
            const struct cvy_box need = cvy_resize_need(resizer.filter, w, h, NULL, fw, fh, &box);
            /* Only the needed part, in memory that ends with it. */
            uint8_t *part = malloc((size_t)need.width * (size_t)need.height * 3);
            uint8_t *out = malloc((size_t)box.width * (size_t)box.height * 3);
            assert_true(part && out);
            for (int y = 0; y < need.height; y++)
                memcpy(part + (size_t)y * (size_t)need.width * 3,
                       in + ((size_t)(need.y + y) * (size_t)w + (size_t)need.x) * 3, (size_t)need.width * 3);
            assert_int_equal(
                cvy_resize_part(&resizer, part, (size_t)need.width * 3, w, h, NULL, fw, fh, &box, flip, out), CVY_OK);
            for (int y = 0; y < box.height; y++)
                for (int x = 0; x < box.width; x++) {
                    const int from = flip ? box.width - 1 - x : x;
                    assert_memory_equal(out + (y * box.width + x) * 3, all + ((box.y + y) * fw + box.x + from) * 3, 3);
                }
            free(part);
            free(out);
        }
        free(in);
        free(all);
    }
    cvy_resizer_release(&resizer);
}

/* Every instruction set gives the bytes of the plain one. */
static void compare_kernels(const struct resize_kernels *fast)
{
    enum { COUNT = 70, STRIDE = 12, WIDTH = 300 };
    struct cvy_rng rng = cvy_rng_new(3, CVY_RNG_TEST, 0, 0);
    int32_t first[COUNT], taps[COUNT], weights[COUNT * STRIDE] = {0};
    int16_t split[COUNT * STRIDE * 8];
    uint8_t in[WIDTH * 3 + RESIZE_OVERREAD], a[WIDTH * 3], b[WIDTH * 3];
    struct resize_axis axis = {COUNT, STRIDE, first, taps, weights, split};
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (uint8_t)cvy_rng_below(&rng, 256);
    for (int x = 0; x < COUNT; x++) {
        taps[x] = 1 + (int32_t)cvy_rng_below(&rng, STRIDE);
        first[x] = x == 0 ? WIDTH - taps[x] : (int32_t)cvy_rng_below(&rng, (uint32_t)(WIDTH - taps[x]));
        for (int t = 0; t < taps[x]; t++) /* sums reach one, as real weights do; some are one alone, some below 0 */
            weights[x * STRIDE + t] = taps[x] == 1 ? 1 << 22
                                                   : (int32_t)cvy_rng_below(&rng, (1 << 22) / (uint32_t)taps[x]) *
                                                         (cvy_rng_below(&rng, 4) == 0 ? -1 : 1);
        for (int t = 0; t < STRIDE; t++)
            for (int c = 0; c < 4; c++) {
                int16_t *group = split + (x * STRIDE / 4 + t / 4) * 32 + (t % 4 / 2) * 8 + c * 2 + t % 2;
                group[0] = (int16_t)(weights[x * STRIDE + t] >> RESIZE_LOW_BITS);
                group[16] = (int16_t)(weights[x * STRIDE + t] & ((1 << RESIZE_LOW_BITS) - 1));
            }
    }
    cvy_resize_kernels_base.row(&axis, in, a);
    fast->row(&axis, in, b);
    assert_memory_equal(a, b, COUNT * 3);
    enum { OUT_STRIDE = COUNT * 3 + RESIZE_OVERWRITE + 2 };
    uint8_t rows[RESIZE_ROWS][WIDTH * 3 + RESIZE_OVERREAD], out[RESIZE_ROWS * OUT_STRIDE + RESIZE_OVERREAD];
    for (int y = 0; y < RESIZE_ROWS; y++)
        for (size_t i = 0; i < sizeof rows[y]; i++)
            rows[y][i] = (uint8_t)cvy_rng_below(&rng, 256);
    fast->rows(&axis, rows[0], sizeof rows[0], out, OUT_STRIDE);
    for (int i = 0; i < RESIZE_ROWS; i++) {
        cvy_resize_kernels_base.row(&axis, rows[i], a);
        assert_memory_equal(a, out + i * OUT_STRIDE, COUNT * 3);
    }
    for (size_t bytes = 1; bytes < 150; bytes++) {
        cvy_resize_kernels_base.column(in, 151, weights + 5 * STRIDE, 4, bytes, a);
        fast->column(in, 151, weights + 5 * STRIDE, 4, bytes, b);
        assert_memory_equal(a, b, bytes);
    }
}

static void variants_agree(void **state)
{
    if (cvy_cpu_isa() >= CVY_ISA_AVX2)
        compare_kernels(CVY_IF_AVX(&cvy_resize_kernels_avx2));
    if (cvy_cpu_isa() >= CVY_ISA_AVX512)
        compare_kernels(CVY_IF_AVX(&cvy_resize_kernels_avx512));
    compare_kernels(&cvy_resize_kernels_base);
}

RUN_TESTS(NULL, NULL, TEST(agrees_with_double), TEST(equals_pillow), TEST(windows_and_flips), TEST(variants_agree))
