/* Orders of an epoch: what each kind holds, that seed and epoch decide it, and that ranks share it. */
#include "data/loader/order_pytorch.h"
#include "data/loader/sampler.h"
#include "support_test.h"

/* 5 classes of very different sizes, not sorted by class; class 3 has no samples. */
enum { CLASSES = 5, COUNT = 103 };
static const uint32_t sizes[CLASSES] = {70, 2, 30, 0, 1};
static struct cvy_sample samples[COUNT];
static const struct cvy_dataset set = {.class_count = CLASSES, .samples = samples, .sample_count = COUNT};

static int set_up(void **state)
{
    uint32_t left[CLASSES], at = 0;
    memcpy(left, sizes, sizeof left);
    for (int32_t c = 0; at < COUNT; c = (c + 1) % CLASSES) {
        if (left[c] > 0) {
            left[c]--;
            samples[at++].label = c;
        }
    }
    return 0;
}

static void places_of(enum cvy_sampler_kind kind, uint64_t seed, uint32_t epoch, int32_t rank, int32_t world,
                      struct cvy_epoch_slot *places)
{
    struct cvy_sampler sampler;
    assert_int_equal(cvy_sampler_open(&sampler, &set, kind, seed), CVY_OK);
    cvy_sampler_slots(&sampler, epoch, rank, world, places);
    cvy_sampler_close(&sampler);
}

static void each_sample_once(void **state)
{
    struct cvy_epoch_slot places[COUNT];
    uint32_t seen[COUNT] = {0}, moved = 0;
    places_of(CVY_SAMPLE_IN_ORDER, 3, 1, 0, 1, places);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_true(places[i].sample == i && places[i].repeat == 0);
    places_of(CVY_SAMPLE_SHUFFLED, 3, 1, 0, 1, places);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(places[i].repeat, 0);
        seen[places[i].sample]++;
        moved += places[i].sample != i;
    }
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(seen[i], 1);
    assert_true(moved > COUNT / 2);
}

/* 103 places for 4 classes: 25 each, and one more for three of them. Inside a class no sample is taken more often than
 * another by more than one, and each time under another number. */
static void each_class_equally_often(void **state)
{
    struct cvy_epoch_slot places[COUNT];
    uint32_t one_more[CLASSES] = {0}, sampled[COUNT] = {0};
    for (uint32_t epoch = 0; epoch < 40; epoch++) {
        uint32_t by_class[CLASSES] = {0}, seen[COUNT] = {0}, repeats[COUNT] = {0};
        places_of(CVY_SAMPLE_BALANCED, 5, epoch, 0, 1, places);
        for (uint32_t i = 0; i < COUNT; i++) {
            const struct cvy_epoch_slot p = places[i];
            by_class[samples[p.sample].label]++;
            seen[p.sample]++;
            assert_true(p.repeat < 32);
            assert_false(repeats[p.sample] & 1u << p.repeat); /* a number of its own each time, from 0 */
            repeats[p.sample] |= 1u << p.repeat;
        }
        for (int32_t c = 0; c < CLASSES; c++) {
            assert_in_range(by_class[c], sizes[c] ? 25 : 0, sizes[c] ? 26 : 0);
            one_more[c] += by_class[c] == 26;
        }
        for (uint32_t i = 0; i < COUNT; i++) {
            const uint32_t size = sizes[samples[i].label], min = 25 / size;
            assert_in_range(seen[i], min, min + 1);
            assert_int_equal(repeats[i], (1u << seen[i]) - 1);
            sampled[i] += seen[i];
        }
    }
    /* Over 40 epochs everybody has a turn: a class misses the extra place with probability 1/4 each time, a sample of
     * the largest class is left out with 45/70. */
    for (int32_t c = 0; c < CLASSES; c++)
        assert_in_range(one_more[c], sizes[c] ? 20 : 0, sizes[c] ? 39 : 0);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_true(sampled[i] > 0);
}

/* The classes are mixed: no long run of one class in the order. */
static void classes_are_mixed(void **state)
{
    struct cvy_epoch_slot places[COUNT];
    uint32_t longest = 0, run = 0;
    places_of(CVY_SAMPLE_BALANCED, 5, 0, 0, 1, places);
    for (uint32_t i = 0; i < COUNT; i++) {
        run = i > 0 && samples[places[i].sample].label == samples[places[i - 1].sample].label ? run + 1 : 1;
        longest = run > longest ? run : longest;
    }
    assert_true(longest < 10); /* ten in a row: 4^-9 for each place */
}

static void seed_and_epoch_decide(void **state)
{
    static const enum cvy_sampler_kind kinds[] = {CVY_SAMPLE_SHUFFLED, CVY_SAMPLE_BALANCED, CVY_SAMPLE_PYTORCH};
    struct cvy_epoch_slot a[COUNT], b[COUNT], other[COUNT];
    struct cvy_sampler sampler;
    for (int k = 0; k < 3; k++) {
        places_of(kinds[k], 5, 2, 0, 1, a);
        assert_int_equal(cvy_sampler_open(&sampler, &set, kinds[k], 5), CVY_OK);
        for (uint32_t epoch = 0; epoch < 3; epoch++) /* what came before leaves no trace */
            cvy_sampler_slots(&sampler, epoch, 0, 1, b);
        cvy_sampler_close(&sampler);
        assert_memory_equal(a, b, sizeof a);
        places_of(kinds[k], 5, 3, 0, 1, other);
        assert_memory_not_equal(a, other, sizeof a);
        places_of(kinds[k], 6, 2, 0, 1, other);
        assert_memory_not_equal(a, other, sizeof a);
    }
}

/* Rank r of w has every w-th place: together they are the order of one. */
static void ranks_share_an_order(void **state)
{
    struct cvy_epoch_slot whole[COUNT], part[COUNT];
    for (int kind = CVY_SAMPLE_IN_ORDER; kind <= CVY_SAMPLE_PYTORCH; kind++) {
        places_of((enum cvy_sampler_kind)kind, 8, 4, 0, 1, whole);
        for (int32_t rank = 0; rank < 3; rank++) {
            places_of((enum cvy_sampler_kind)kind, 8, 4, rank, 3, part);
            for (uint32_t i = (uint32_t)rank, n = 0; i < COUNT; i += 3, n++)
                assert_memory_equal(&part[n], &whole[i], sizeof part[n]);
        }
    }
}

/* The numbers are those of torch.randperm of PyTorch 1.13 for these counts and seeds: the first ones, and all as digits
 * of a number. */
static void pytorch_orders(void **state)
{
    static const struct {
        uint32_t count;
        uint64_t seed, digest;
        uint32_t first[6];
    } cases[] = {
        {20, 3, UINT64_C(10772159949957484866), {6, 12, 3, 7, 1, 5}},
        {COUNT, UINT64_C(4294967301), UINT64_C(12597687340032920091), {24, 19, 76, 88, 12, 83}},
        {5000, 123456789, UINT64_C(13538211413166783510), {408, 1792, 2258, 2058, 842, 1580}},
    };
    static uint32_t order[5000];
    struct cvy_epoch_slot places[COUNT];
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        uint64_t digest = 0;
        cvy_pytorch_permutation(cases[c].seed, order, cases[c].count);
        assert_memory_equal(order, cases[c].first, sizeof cases[c].first);
        for (uint32_t i = 0; i < cases[c].count; i++)
            digest = digest * 1000003 + order[i];
        assert_true(digest == cases[c].digest);
    }
    /* DistributedSampler adds the epoch to its seed. */
    places_of(CVY_SAMPLE_PYTORCH, UINT64_C(4294967299), 2, 0, 1, places);
    for (int i = 0; i < 6; i++)
        assert_true(places[i].sample == cases[1].first[i] && places[i].repeat == 0);
}

static void memory_may_run_out(void **state)
{
    struct cvy_sampler sampler;
    cvy_status status = CVY_NO_MEMORY;
    for (int64_t n = 1; status != CVY_OK; n++) {
        assert_true(n < 20);
        status = WITH_FAILURE(n, false, cvy_sampler_open(&sampler, &set, CVY_SAMPLE_BALANCED, 0));
        if (status != CVY_OK)
            assert_int_equal(status, CVY_NO_MEMORY);
    }
    cvy_sampler_close(&sampler);
    cvy_sampler_close(&sampler);
}

/* Three ranks go on where two had done two batches of seven: no sample is seen twice, until all were. */
static void others_go_on(void **state)
{
    enum { SEEN = 2 * 2 * 7 };
    struct cvy_epoch_slot old[COUNT], places[COUNT];
    struct cvy_sampler sampler;
    char done[COUNT] = {0};

    for (int rank = 0; rank < 2; rank++) {
        places_of(CVY_SAMPLE_SHUFFLED, 5, 1, rank, 2, old);
        for (int i = 0; i < SEEN / 2; i++)
            done[old[i].sample]++;
    }
    assert_int_equal(cvy_sampler_open(&sampler, &set, CVY_SAMPLE_SHUFFLED, 5), CVY_OK);
    cvy_sampler_skip(&sampler, 1, SEEN);
    for (int rank = 0; rank < 3; rank++) {
        cvy_sampler_slots(&sampler, 1, rank, 3, places);
        for (int i = 0; i < (COUNT - SEEN) / 3; i++)
            done[places[i].sample]++;
        cvy_sampler_slots(&sampler, 2, rank, 3, places); /* another epoch is as it always is */
        places_of(CVY_SAMPLE_SHUFFLED, 5, 2, rank, 3, old);
        assert_memory_equal(old, places, (COUNT / 3) * sizeof *old);
    }
    cvy_sampler_close(&sampler);
    int left = 0;
    for (int i = 0; i < COUNT; i++) {
        assert_in_range(done[i], 0, 1);
        left += !done[i];
    }
    assert_int_equal(left, (COUNT - SEEN) % 3);
}

RUN_TESTS(set_up, NULL, TEST(each_sample_once), TEST(each_class_equally_often), TEST(classes_are_mixed),
          TEST(seed_and_epoch_decide), TEST(ranks_share_an_order), TEST(memory_may_run_out), TEST(pytorch_orders),
          TEST(others_go_on))
