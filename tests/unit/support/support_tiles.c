#include "support_tiles.h"

#include <sys/mman.h>

#include "base/memory.h"
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

#if defined(__SANITIZE_ADDRESS__)

void *tiles_memory(size_t bytes)
{
    void *const memory = cvy_calloc_aligned(bytes);

    assert_non_null(memory);
    return memory;
}

void tiles_release(void *memory)
{
    cvy_free_aligned(memory);
}

#else

/* A page that says how long all of it is, pages of which the last lines are handed out, and a page without access. */
enum { PAGE = 4096, LINE = 64 };

void *tiles_memory(size_t bytes)
{
    const size_t lines = (bytes + LINE - 1) / LINE * LINE, pages = (lines + PAGE - 1) / PAGE * PAGE;
    const size_t all = pages + 2 * PAGE;
    char *const at = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(at != MAP_FAILED);
    assert_int_equal(mprotect(at + PAGE + pages, PAGE, PROT_NONE), 0);
    memcpy(at, &all, sizeof all);
    return at + PAGE + (pages - lines);
}

void tiles_release(void *memory)
{
    size_t all;

    if (!memory)
        return;
    char *const at = (char *)memory - (uintptr_t)memory % PAGE - PAGE;
    memcpy(&all, at, sizeof all);
    assert_int_equal(munmap(at, all), 0);
}

#endif

uint16_t *tiles_draw(struct cvy_rng *rng, size_t elements, int limit)
{
    uint16_t *const to = tiles_memory(elements * sizeof *to);

    for (size_t i = 0; i < elements; i++)
        to[i] = tiles_narrow((float)((int)cvy_rng_below(rng, 2 * (uint32_t)limit + 1) - limit));
    return to;
}
