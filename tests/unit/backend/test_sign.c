/* What passes an activation, in bits (backend/cpu/sign.h): the reorders. */
#include "backend/cpu/sign.h"
#include "base/rng.h"
#include "support_test.h"
#include "support_tiles.h"

static const struct cvy_layout plain = {.kind = CVY_LAYOUT_PLAIN}, nhwc = {.kind = CVY_LAYOUT_NHWC};

static struct cvy_tensor image_of(int64_t batch, int64_t channels, int64_t rows, int64_t columns,
                                  struct cvy_layout layout)
{
    struct cvy_tensor image = tiles_image(batch, channels, rows, columns);

    image.layout = layout;
    return image;
}

/* ---- reorders ---- */

static cvy_status select_reorder(cvy_device *device, const struct cvy_tensor *from, const struct cvy_tensor *to,
                                 struct cvy_kernel_plan *plan)
{
    struct cvy_op_desc desc = {.op = CVY_OP_REORDER, .inputs = 1, .outputs = 1, .in = {*from}, .out = {*to}};

    return cvy_kernel_select(device, &desc, plan);
}

static void reorder(cvy_device *device, const struct cvy_tensor *from, const struct cvy_tensor *to, void *data,
                    void *result)
{
    struct cvy_kernel_plan plan;

    assert_int_equal(select_reorder(device, from, to, &plan), CVY_OK);
    assert_string_equal(plan.kernel->name, "cpu.reorder_sign");
    assert_int_equal(plan.kernel->run(device, &plan, (void *[]){data}, (void *[]){result}, NULL), CVY_OK);
    cvy_kernel_release(device, &plan);
}

static size_t place(const struct cvy_tensor *image, int64_t n, int64_t c, int64_t pixel)
{
    const int64_t channels = image->shape.dim[1], pixels = image->shape.dim[2] * image->shape.dim[3];

    return (size_t)(image->layout.kind == CVY_LAYOUT_NHWC ? (n * pixels + pixel) * channels + c
                                                          : (n * channels + c) * pixels + pixel);
}

/* Numbers into bits, looked at one by one, and back: ones and zeros. */
static void check_reorder(cvy_device *device, int64_t batch, int64_t channels, int64_t rows, int64_t columns,
                          struct cvy_layout layout)
{
    static const uint16_t numbers[] = {0, 0x3f80, 0x8000, 0, 0, 0x3f80}; /* 0, 1, -0 */
    const struct cvy_tensor image = image_of(batch, channels, rows, columns, layout);
    const struct cvy_tensor sign = image_of(batch, channels, rows, columns, cpu_sign_layout());
    const size_t count = tiles_count(&image);
    struct cvy_rng rng = cvy_rng_new(7, CVY_RNG_TEST, 0, (uint32_t)count);
    uint16_t *const x = tiles_memory(count * sizeof *x), *const again = tiles_memory(count * sizeof *again);
    unsigned char *const bits = tiles_memory(count / 8);

    assert_int_equal(cpu_tensor_bytes(device, &sign), count / 8);
    for (size_t i = 0; i < count; i++)
        x[i] = numbers[cvy_rng_below(&rng, sizeof numbers / sizeof *numbers)];
    memset(bits, 0x5a, count / 8);
    reorder(device, &image, &sign, x, bits);
    reorder(device, &sign, &image, bits, again);
    for (int64_t n = 0; n < batch; n++)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t pixel = 0; pixel < rows * columns; pixel++) {
                const size_t at = place(&image, n, c, pixel),
                             bit = place(&(struct cvy_tensor){image.shape, image.dtype, nhwc}, n, c, pixel);
                assert_int_equal(bits[bit / 8] >> bit % 8 & 1, x[at] == 0x3f80);
                assert_int_equal(again[at], x[at] == 0x3f80 ? 0x3f80 : 0);
            }
    tiles_release(x);
    tiles_release(again);
    tiles_release(bits);
}

static void numbers_to_bits_and_back(void **state)
{
    for (int threads = 1; threads <= 3; threads++)
        for (int in_rows = 0; in_rows < 2; in_rows++) {
            check_reorder(tiles_devices[threads], 1, 32, 1, 1, in_rows ? nhwc : plain);
            check_reorder(tiles_devices[threads], 3, 96, 5, 2, in_rows ? nhwc : plain);
        }
}

/* Nothing takes the bits for something else, or something else for bits. */
static void refuses_other_tensors(void **state)
{
    cvy_device *const device = tiles_devices[1];
    const struct cvy_tensor sign = image_of(2, 64, 3, 3, cpu_sign_layout()), image = image_of(2, 64, 3, 3, nhwc);
    struct cvy_tensor other = image_of(2, 64, 3, 3, (struct cvy_layout){.kind = CVY_LAYOUT_BLOCKED16});
    struct cvy_kernel_plan plan;

    assert_true(cpu_is_sign(&sign.layout));
    assert_false(cpu_is_sign(&image.layout));
    assert_fails(select_reorder(device, &sign, &sign, &plan), CVY_UNAVAILABLE, "between bits and");
    assert_fails(select_reorder(device, &sign, &other, &plan), CVY_UNAVAILABLE, "between bits and");
    assert_fails(select_reorder(device, &other, &sign, &plan), CVY_UNAVAILABLE, "between bits and");
    other = image;
    other.dtype = CVY_F32;
    assert_fails(select_reorder(device, &sign, &other, &plan), CVY_UNAVAILABLE, "between bits and");
    other = image_of(2, 48, 3, 3, nhwc);
    assert_fails(cpu_expect_sign(&other), CVY_UNAVAILABLE, "a multiple of 32 channels");
    other = image_of(2, 64, 3, 3, nhwc);
    other.dtype = CVY_F32;
    assert_fails(cpu_expect_sign(&other), CVY_UNAVAILABLE, "images of bf16");
}

RUN_TESTS(tiles_open, tiles_close, TEST(numbers_to_bits_and_back), TEST(refuses_other_tensors))
