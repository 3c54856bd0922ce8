/* Floats to 16 bits and back: every instruction set against plain arithmetic on the value, with all 65,536 halves, all
 * places between two of them where rounding turns, and what is no number. */
#include "base/system.h"
#include "comm/half.h"
#include "support_test.h"

/* What the formats are, in words of IEEE 754. */
static const struct {
    int digits, min_exponent; /* digits of the fraction; exponent of the smallest normal number */
    double largest;
} formats[CVY_HALF_COUNT] = {
    [CVY_HALF_BF16] = {7, -126, 0x1.fep127},
    [CVY_HALF_F16] = {10, -14, 65504},
};

static double value_of(enum cvy_half half, uint16_t bits)
{
    const int digits = formats[half].digits, exponents = (1 << (15 - digits)) - 1;
    const int exponent = bits >> digits & exponents, fraction = bits & ((1 << digits) - 1);
    const double sign = bits & 0x8000 ? -1 : 1;

    if (exponent == exponents)
        return fraction ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(fraction, formats[half].min_exponent - digits);
    return sign * ldexp((1 << digits) + fraction, formats[half].min_exponent - digits + exponent - 1);
}

/* The nearest number of the format, the even one of two. */
static double nearest(enum cvy_half half, double value)
{
    int exponent;

    if (isnan(value) || isinf(value) || value == 0)
        return value;
    (void)frexp(value, &exponent); /* value = 0.5 to 1 times 2^exponent */
    exponent = exponent - 1 < formats[half].min_exponent ? formats[half].min_exponent : exponent - 1;
    const double step = ldexp(1, exponent - formats[half].digits), rounded = rint(value / step) * step;
    return fabs(rounded) > formats[half].largest ? copysign(INFINITY, value) : rounded;
}

static const struct cvy_half_kernels *tables[] = {cvy_half_kernels_base, CVY_IF_AVX(cvy_half_kernels_avx2),
                                                  CVY_IF_AVX(cvy_half_kernels_avx512)};

static bool is_here(size_t table)
{
    return (size_t)cvy_cpu_isa() >= table;
}

enum { BLOCK = 8 * 3 + 5 }; /* vectors and a rest */

static void check_pack(enum cvy_half half, const float *values)
{
    uint16_t packed[BLOCK], first[BLOCK];

    for (size_t t = 0; t < sizeof tables / sizeof *tables && is_here(t); t++) {
        tables[t][half].pack(packed, values, BLOCK);
        if (t == 0)
            memcpy(first, packed, sizeof first);
        assert_memory_equal(packed, first, sizeof packed);
        for (int i = 0; i < BLOCK; i++) {
            const double expected = nearest(half, (double)values[i]), got = value_of(half, packed[i]);
            if (isnan(expected) ? !isnan(got) : got != expected || signbit(got) != signbit(expected))
                fail_msg("%a becomes %a instead of %a (instruction set %zu)", (double)values[i], got, expected, t);
        }
    }
}

static void check_unpack(enum cvy_half half, const uint16_t *packed)
{
    float values[BLOCK], sums[BLOCK];

    for (size_t t = 0; t < sizeof tables / sizeof *tables && is_here(t); t++) {
        for (int i = 0; i < BLOCK; i++)
            sums[i] = 0.3f * (float)i;
        tables[t][half].unpack(values, packed, BLOCK);
        tables[t][half].add(sums, packed, BLOCK);
        for (int i = 0; i < BLOCK; i++) {
            const double expected = value_of(half, packed[i]);
            const float sum = 0.3f * (float)i + (float)expected;

            assert_true(isnan(expected) ? isnan(values[i]) && isnan(sums[i])
                                        : (double)values[i] == expected && sums[i] == sum);
        }
    }
}

static float float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static void all_halves(void **state)
{
    for (int half = 0; half < CVY_HALF_COUNT; half++) {
        for (uint32_t start = 0; start < 65536; start += BLOCK) {
            uint16_t packed[BLOCK];
            for (uint32_t i = 0; i < BLOCK; i++)
                packed[i] = (uint16_t)(start + i);
            check_unpack((enum cvy_half)half, packed);
        }
    }
}

/* Each half, the middle between it and the next one, and the floats beside both. */
static void turning_points(void **state)
{
    for (int half = 0; half < CVY_HALF_COUNT; half++) {
        float values[BLOCK];
        int filled = 0;
        for (uint32_t bits = 0; bits < 65536; bits++) {
            const double here = value_of((enum cvy_half)half, (uint16_t)bits);
            const double next = value_of((enum cvy_half)half, (uint16_t)(bits + 1));
            const float points[] = {(float)here, (float)((here + next) / 2)};

            for (size_t i = 0; i < 6; i++) {
                const float point = points[i / 3];
                values[filled++] = i % 3 == 0   ? point
                                   : i % 3 == 1 ? nextafterf(point, INFINITY)
                                                : nextafterf(point, -INFINITY);
                if (filled == BLOCK) {
                    check_pack((enum cvy_half)half, values);
                    filled = 0;
                }
            }
        }
    }
}

static void odd_numbers(void **state)
{
    static const float odd[] = {0.0f,     -0.0f,    INFINITY,  -INFINITY, NAN,      65504.0f,  65519.9961f,
                                65520.0f, 65536.0f, -65520.0f, 3.4e38f,   -3.4e38f, 1e-45f,    -1e-45f,
                                0x1p-24f, 0x1p-25f, 0x1p-26f,  0x1p-14f,  0x1p-15f, 0x1.8p-25f};
    static const uint32_t bits[] = {0x7f800001, 0xff800001, 0x7fffffff, 0xffc12345, 0x7f801fff, 0x7f7fffff};
    float values[BLOCK] = {0};

    memcpy(values, odd, sizeof odd);
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++)
        values[sizeof odd / sizeof *odd + i] = float_of(bits[i]);
    for (int half = 0; half < CVY_HALF_COUNT; half++)
        check_pack((enum cvy_half)half, values);
}

static void any_numbers(void **state)
{
    uint32_t seed = 1;

    for (int round = 0; round < 20000; round++) {
        float values[BLOCK];
        for (int i = 0; i < BLOCK; i++)
            values[i] = float_of(seed = seed * 1664525 + 1013904223);
        check_pack((enum cvy_half)(round % 2), values);
    }
}

RUN_TESTS(NULL, NULL, TEST(all_halves), TEST(turning_points), TEST(odd_numbers), TEST(any_numbers))
