/* Standard normal numbers, many at once. Logarithm and cosine are our own and nothing but sums, products, quotients and
 * roots of doubles, each rounded once (CMakeLists.txt): every processor, compiler and C library gives the
 * same bits, with any width of vectors. */
#include <math.h>
#include <string.h>

#include "base/philox.h"
#include "base/rng.h"

#define BLOCK 64

/* 2^52: added to a whole number below, its bits are those of the number. */
static const uint64_t WHOLE_BITS = 0x4330000000000000u;
static const double WHOLE = 0x1p52;

static inline double from_bits(uint64_t bits)
{
    double value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A whole number below 2^52. */
static inline double from_whole(uint64_t value)
{
    return from_bits(value | WHOLE_BITS) - WHOLE;
}

/* bits * 2^-64, of which the upper 53 count. */
static inline double uniform(uint64_t bits)
{
    return from_whole(bits >> 38) * 0x1p-26 + from_whole((bits >> 11) & 0x7ffffff) * 0x1p-53;
}

/* ln x for x in [2^-64, 1]: x = 2^e m with m in [sqrt(1/2), sqrt(2)), and with s = (m - 1) / (m + 1), f = m - 1,
 * ln m = f - f^2/2 + s (f^2/2 + R(s^2)), where R is the minimax polynomial of (ln((1 + s) / (1 - s)) - 2 s) / s that C
 * libraries use for doubles (the method of K. C. Ng). e ln 2 is added in two parts. Error below one unit in the last
 * place. */
static inline double logarithm(double x)
{
    static const uint64_t ROOT_HALF = 0x3fe6a09e667f3bcdu, FRACTION = 0x000fffffffffffffu;
    static const double LN2_HIGH = 6.93147180369123816490e-01, LN2_LOW = 1.90821492927058770002e-10;
    static const double R[] = {6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01,
                               2.222219843214978396e-01, 1.818357216161805012e-01, 1.531383769920937332e-01,
                               1.479819860511658591e-01};
    uint64_t bits;

    memcpy(&bits, &x, sizeof bits);
    bits -= ROOT_HALF;
    const double f = from_bits((bits & FRACTION) + ROOT_HALF) - 1, e = from_whole(((bits >> 52) + 64) & 0xfff) - 64;
    const double s = f / (2 + f), z = s * s, half_square = 0.5 * f * f;
    const double r = z * (R[0] + z * (R[1] + z * (R[2] + z * (R[3] + z * (R[4] + z * (R[5] + z * R[6]))))));
    return e * LN2_HIGH - ((half_square - (s * (half_square + r) + e * LN2_LOW)) - f);
}

/* cos 2 pi u for u in [0, 1). 4 u - n is exact, so that nothing is lost by the reduction to [-pi/4, pi/4]; the
 * polynomials are the minimax ones that C libraries use there. */
static inline double cosine_of_turns(double u)
{
    static const double C[] = {4.16666666666666019037e-02,  -1.38888888888741095749e-03, 2.48015872894767294178e-05,
                               -2.75573143513906633035e-07, 2.08757232129817482790e-09,  -1.13596475577881948265e-11};
    static const double S[] = {-1.66666666666666324348e-01, 8.33333333332248946124e-03,  -1.98412698298579493134e-04,
                               2.75573137070700676789e-06,  -2.50507602534068634195e-08, 1.58969099521155010221e-10};
    const double n = 4 * u + WHOLE - WHOLE; /* to the nearest whole number, 0 to 4 */
    const double t = (4 * u - n) * 1.57079632679489661923, z = t * t, half_square = 0.5 * z, w = 1 - half_square;
    const double cosine =
        w + (((1 - w) - half_square) + z * z * (C[0] + z * (C[1] + z * (C[2] + z * (C[3] + z * (C[4] + z * C[5]))))));
    const double sine = t + t * z * (S[0] + z * (S[1] + z * (S[2] + z * (S[3] + z * (S[4] + z * S[5])))));
    const double value = n == 1 || n == 3 ? sine : cosine;
    return n == 1 || n == 2 ? -value : value;
}

/* Box and Muller's: the first number in (0, 1], so that its logarithm is finite. */
static inline double normal(uint64_t radius, uint64_t angle)
{
    return sqrt(-2 * logarithm(1 - uniform(radius))) * cosine_of_turns(uniform(angle));
}

double cvy_rng_normal(struct cvy_rng *rng)
{
    const uint64_t radius = cvy_rng_u64(rng), angle = cvy_rng_u64(rng);

    return normal(radius, angle);
}

/* `count` at most BLOCK numbers of the counters from `counter` on, one of each. Loops of a fixed length, so that each
 * is made of vectors. */
static inline __attribute__((always_inline)) void fill_block(const struct cvy_rng *rng, double *values, int64_t count)
{
    uint64_t radius[BLOCK], angle[BLOCK];
    double block[BLOCK];

    for (uint32_t i = 0; i < BLOCK; i++) {
        const uint32_t counter[4] = {rng->counter[0] + i, rng->counter[1], rng->counter[2], rng->counter[3]};
        uint32_t out[4];
        cvy_philox_rounds(rng->key, counter, out);
        radius[i] = out[0] | (uint64_t)out[1] << 32;
        angle[i] = out[2] | (uint64_t)out[3] << 32;
    }
    for (int i = 0; i < BLOCK; i++)
        block[i] = normal(radius[i], angle[i]);
    memcpy(values, block, (size_t)count * sizeof *values);
}

typedef void (*fill_function)(const struct cvy_rng *rng, double *values, int64_t count);

static void fill_base(const struct cvy_rng *rng, double *values, int64_t count)
{
    fill_block(rng, values, count);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void fill_avx2(const struct cvy_rng *rng, double *values, int64_t count)
{
    fill_block(rng, values, count);
}

static fill_function choose(void)
{
    return __builtin_cpu_supports("avx2") ? fill_avx2 : fill_base;
}
#else
static fill_function choose(void)
{
    return fill_base;
}
#endif

static void fill_all(struct cvy_rng *rng, double *values, int64_t count, fill_function fill)
{
    for (; count > 0 && rng->used < 4; count--) /* between two counters */
        *values++ = cvy_rng_normal(rng);
    for (int64_t first = 0; first < count; first += BLOCK) {
        const int64_t some = count - first < BLOCK ? count - first : BLOCK;
        fill(rng, values + first, some);
        rng->counter[0] += (uint32_t)some;
    }
}

void cvy_rng_normals(struct cvy_rng *rng, double *values, int64_t count)
{
    fill_all(rng, values, count, choose());
}

void cvy_rng_normals_plain(struct cvy_rng *rng, double *values, int64_t count)
{
    fill_all(rng, values, count, fill_base);
}
