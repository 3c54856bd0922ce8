#include "support_tiles.h"

#include "base/system.h"
#include "support_test.h"

cvy_device *tiles_devices[TILES_THREADS + 1];

int tiles_open(void **state)
{
    (void)state;
    for (int t = 1; t <= TILES_THREADS; t++)
        assert_int_equal(cvy_device_open("cpu", t, &tiles_devices[t]), CVY_OK);
    return 0;
}

int tiles_close(void **state)
{
    (void)state;
    for (int t = 1; t <= TILES_THREADS; t++)
        cvy_device_close(tiles_devices[t]);
    return 0;
}

void tiles_need(bool model)
{
    if (cvy_cpu_isa() < (model ? CVY_ISA_AVX512_BF16 : CVY_ISA_AMX_BF16))
        skip();
    if (model)
        setenv("CONVOY_CPU_TILES", "model", 1);
    else
        unsetenv("CONVOY_CPU_TILES");
}

uint16_t tiles_narrow(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return isnan(value) ? 0x7fc0 : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float tiles_widen(uint16_t value)
{
    const uint32_t bits = (uint32_t)value << 16;
    float wide;

    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

size_t tiles_count(const struct cvy_tensor *tensor)
{
    return (size_t)cvy_shape_elements(&tensor->shape);
}

struct cvy_tensor tiles_image(int64_t batch, int64_t channels, int64_t rows, int64_t columns)
{
    return (struct cvy_tensor){.shape = {.rank = 4, .dim = {batch, channels, rows, columns}},
                               .dtype = CVY_BF16,
                               .layout = {.kind = CVY_LAYOUT_NHWC}};
}

uint16_t *tiles_draw(struct cvy_rng *rng, size_t elements, int limit)
{
    uint16_t *const to = cvy_calloc_aligned(elements * sizeof *to);

    assert_non_null(to);
    for (size_t i = 0; i < elements; i++)
        to[i] = tiles_narrow((float)((int)cvy_rng_below(rng, 2 * (uint32_t)limit + 1) - limit));
    return to;
}
