/* Random numbers: the published vectors, the layout of the counter (a contract: it decides every shuffle and crop), and
 * the distributions. */
#include "base/rng.h"
#include "support_test.h"

/* From the known-answer file of Random123, the authors' library: philox 4x32, 10 rounds. */
static void test_published_vectors(void **state)
{
    static const struct {
        uint32_t counter[4], key[2], expected[4];
    } vectors[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        uint32_t out[4];
        cvy_philox4x32_10(vectors[i].key, vectors[i].counter, out);
        assert_memory_equal(out, vectors[i].expected, sizeof out);
    }
}

/* key = seed, counter = (draw, purpose, index, epoch). */
static void test_counter_layout(void **state)
{
    struct cvy_rng rng = cvy_rng_new(0x1122334455667788u, CVY_RNG_AUGMENT, 5, 7);
    const uint32_t key[2] = {0x55667788, 0x11223344};
    for (uint32_t draw = 0; draw < 3; draw++) {
        const uint32_t counter[4] = {draw, CVY_RNG_AUGMENT, 7, 5};
        uint32_t out[4];
        cvy_philox4x32_10(key, counter, out);
        for (int i = 0; i < 4; i++)
            assert_int_equal(cvy_rng_u32(&rng), out[i]);
    }
    struct cvy_rng a = cvy_rng_new(1, CVY_RNG_TEST, 0, 0), b = a;
    uint64_t low = cvy_rng_u32(&a), high = cvy_rng_u32(&a);
    assert_true(cvy_rng_u64(&b) == (low | high << 32));
}

static void test_streams_differ(void **state)
{
    struct cvy_rng streams[] = {
        cvy_rng_new(0, CVY_RNG_SHUFFLE, 0, 0), cvy_rng_new(1, CVY_RNG_SHUFFLE, 0, 0),
        cvy_rng_new(0, CVY_RNG_AUGMENT, 0, 0), cvy_rng_new(0, CVY_RNG_SHUFFLE, 1, 0),
        cvy_rng_new(0, CVY_RNG_SHUFFLE, 0, 1), cvy_rng_new(UINT64_C(1) << 32, CVY_RNG_SHUFFLE, 0, 0),
    };
    enum { COUNT = sizeof streams / sizeof *streams };
    uint64_t first[COUNT];
    for (int i = 0; i < COUNT; i++) {
        first[i] = cvy_rng_u64(&streams[i]);
        for (int j = 0; j < i; j++)
            assert_true(first[i] != first[j]);
    }
}

/* 7 cells, 70,000 draws: chi-square with 6 degrees of freedom is below 33 in all but one of 100,000 seeds, and the seed
 * is fixed. */
static void test_below_is_uniform(void **state)
{
    struct cvy_rng rng = cvy_rng_new(3, CVY_RNG_TEST, 0, 0);
    int cells[7] = {0};
    for (int i = 0; i < 70000; i++) {
        uint32_t value = cvy_rng_below(&rng, 7);
        assert_true(value < 7);
        cells[value]++;
    }
    double chi_square = 0;
    for (int i = 0; i < 7; i++)
        chi_square += (cells[i] - 10000.0) * (cells[i] - 10000.0) / 10000.0;
    assert_true(chi_square < 33);
    for (int i = 0; i < 100; i++)
        assert_int_equal(cvy_rng_below(&rng, 1), 0);
}

/* n = 3 * 2^30 rejects a quarter of the draws; without rejection the low third would come up half of the time. */
static void test_below_rejects(void **state)
{
    struct cvy_rng rng = cvy_rng_new(4, CVY_RNG_TEST, 0, 0);
    int thirds[3] = {0};
    for (int i = 0; i < 30000; i++)
        thirds[cvy_rng_below(&rng, UINT32_C(3) << 30) / (UINT32_C(1) << 30)]++;
    for (int i = 0; i < 3; i++) /* standard deviation 82: six of them */
        assert_true(abs(thirds[i] - 10000) < 490);
}

static void test_uniform_and_range(void **state)
{
    struct cvy_rng rng = cvy_rng_new(5, CVY_RNG_TEST, 0, 0);
    double sum = 0, min = 1, max = 0;
    for (int i = 0; i < 100000; i++) {
        double value = cvy_rng_uniform(&rng);
        assert_true(value >= 0 && value < 1);
        sum += value;
        min = fmin(min, value);
        max = fmax(max, value);
    }
    assert_true(fabs(sum / 100000 - 0.5) < 6 * 0.2887 / 316.2); /* six standard errors */
    assert_true(min < 1e-3 && max > 1 - 1e-3);
    for (int i = 0; i < 1000; i++) {
        double value = cvy_rng_range(&rng, -2, -1);
        assert_true(value >= -2 && value < -1);
        /* So narrow that the sum often rounds to the upper end, which must not come out. */
        double high = nextafter(1, 2);
        assert_true(cvy_rng_range(&rng, 1, high) < high);
    }
}

static void test_normal_moments(void **state)
{
    struct cvy_rng rng = cvy_rng_new(6, CVY_RNG_TEST, 0, 0);
    double sum = 0, squares = 0, fourth = 0;
    const int n = 200000;
    for (int i = 0; i < n; i++) {
        double value = cvy_rng_normal(&rng);
        assert_true(isfinite(value));
        sum += value;
        squares += value * value;
        fourth += value * value * value * value;
    }
    /* Six standard errors: 1/sqrt(n) for the mean, sqrt(2/n) for the variance, sqrt(96/n) for the fourth moment, 3. */
    assert_true(fabs(sum / n) < 6 / sqrt(n));
    assert_true(fabs(squares / n - 1) < 6 * sqrt(2.0 / n));
    assert_true(fabs(fourth / n - 3) < 6 * sqrt(96.0 / n));
}

/* Many at once are what calls one by one give, bit for bit, with and without vector instructions, from between two
 * counters too. */
static void test_normals(void **state)
{
    for (int64_t count = 0; count < 300; count += 37) {
        for (int skipped = 0; skipped < 5; skipped++) {
            struct cvy_rng one = cvy_rng_new(8, CVY_RNG_TEST, 1, 2);
            for (int i = 0; i < skipped; i++)
                cvy_rng_u32(&one);
            struct cvy_rng many = one, plain = one;
            double values[300], others[300];
            cvy_rng_normals(&many, values, count);
            cvy_rng_normals_plain(&plain, others, count);
            for (int64_t i = 0; i < count; i++) {
                const double value = cvy_rng_normal(&one);
                assert_memory_equal(&value, &values[i], sizeof value);
                assert_memory_equal(&value, &others[i], sizeof value);
            }
            const uint32_t next = cvy_rng_u32(&one);
            assert_int_equal(cvy_rng_u32(&many), next);
            assert_int_equal(cvy_rng_u32(&plain), next);
        }
    }
}

/* Beside the C library's functions, and recorded bits: they are those of every machine (five of the six are the exact
 * numbers' next doubles, one is a unit beside; by mpmath). */
static void test_normal_values(void **state)
{
    struct cvy_rng rng = cvy_rng_new(9, CVY_RNG_TEST, 0, 0), same = rng;
    for (int i = 0; i < 100000; i++) {
        const double radius = 1 - cvy_rng_uniform(&same),
                     angle = 6.283185307179586476925286766559 * cvy_rng_uniform(&same);
        assert_float_equal(cvy_rng_normal(&rng), sqrt(-2 * log(radius)) * cos(angle), 1e-14);
    }
    static const uint64_t recorded[] = {0xbfe0b6864a8d9cf0u, 0x3fd5a88ac7f05b90u, 0xbfe0e6a87adbfac9u,
                                        0xbff29d96f5124253u, 0x3fe01f9d19088ae1u, 0xbfdebf2709ddd722u};
    rng = cvy_rng_new(10, CVY_RNG_TEST, 0, 0);
    for (size_t i = 0; i < sizeof recorded / sizeof *recorded; i++) {
        const double value = cvy_rng_normal(&rng);
        uint64_t bits;
        memcpy(&bits, &value, sizeof bits);
        assert_true(bits == recorded[i]);
    }
}

static void test_permutation(void **state)
{
    uint32_t order[100], again[100], seen[100] = {0};
    struct cvy_rng rng = cvy_rng_new(7, CVY_RNG_SHUFFLE, 2, 0);
    struct cvy_rng same = rng;
    cvy_rng_permutation(&rng, order, 100);
    cvy_rng_permutation(&same, again, 100);
    assert_memory_equal(order, again, sizeof order);
    int fixed = 0;
    for (uint32_t i = 0; i < 100; i++) {
        assert_true(order[i] < 100);
        seen[order[i]]++;
        fixed += order[i] == i;
    }
    for (int i = 0; i < 100; i++)
        assert_int_equal(seen[i], 1);
    assert_true(fixed < 10); /* one is expected */
    cvy_rng_permutation(&rng, order, 0);
    cvy_rng_permutation(&rng, order, 1);
    assert_int_equal(order[0], 0);

    /* Each of the 6 orders of three things equally often: 6,000 draws, chi-square with 5 degrees of freedom. */
    int counts[27] = {0};
    for (int i = 0; i < 6000; i++) {
        cvy_rng_permutation(&rng, order, 3);
        counts[order[0] * 9 + order[1] * 3 + order[2]]++;
    }
    double chi_square = 0;
    for (int i = 0; i < 27; i++)
        if (counts[i] > 0)
            chi_square += (counts[i] - 1000.0) * (counts[i] - 1000.0) / 1000.0;
    assert_true(chi_square < 31); /* exceeded by one seed in 100,000 */
}

RUN_TESTS(NULL, NULL, TEST(test_published_vectors), TEST(test_counter_layout), TEST(test_streams_differ),
          TEST(test_below_is_uniform), TEST(test_below_rejects), TEST(test_uniform_and_range),
          TEST(test_normal_moments), TEST(test_normals), TEST(test_normal_values), TEST(test_permutation))
