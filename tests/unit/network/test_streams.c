/* Batches of networks in integers: whatever the parts and the streams that compute them, the answers are the same. In
 * 16-bit floats streams answer as one thread does that has their images alone. */
#include <stdatomic.h>

#include "base/rng.h"
#include "eval/evaluate.h"
#include "network/memory.h"
#include "support_subject.h"
#include "support_test.h"

enum {
    BATCH = 4,
    SIZE = SUBJECT_SIZE,
    CLASSES = SUBJECT_CLASSES,
    FEATURES = 512 /* of resnet18 */,
    DETECTOR_SIZE = 64,
    MANY = 95
};

static uint8_t images[BATCH * DETECTOR_SIZE * DETECTOR_SIZE * 3] __attribute__((aligned(64)));
static float float_images[BATCH * DETECTOR_SIZE * DETECTOR_SIZE * 3] __attribute__((aligned(64))); /* the same */

/* What an evaluator of one network or another gives for a batch. */
struct answers {
    float logits[BATCH * CLASSES], probabilities[BATCH * CLASSES], features[BATCH * FEATURES];
    float boxes[BATCH * CVY_MAX_DETECTIONS * 4], scores[BATCH * CVY_MAX_DETECTIONS];
    int32_t classes[BATCH * CVY_MAX_DETECTIONS], count[BATCH];
};

/* The evaluator's for its batch, which are those of images `first` and following. */
static void take_answers(const struct cvy_evaluator *evaluator, int64_t first, struct answers *answers)
{
    const struct cvy_detector_outputs *found = &evaluator->found;
    const size_t batch = (size_t)evaluator->batch, rows = batch * CVY_MAX_DETECTIONS;
    const int64_t row = first * CVY_MAX_DETECTIONS;

    if (evaluator->logits) {
        assert_int_equal(evaluator->feature_count, FEATURES);
        memcpy(answers->logits + first * CLASSES, evaluator->logits, batch * CLASSES * sizeof(float));
        memcpy(answers->probabilities + first * CLASSES, evaluator->probabilities, batch * CLASSES * sizeof(float));
        memcpy(answers->features + first * FEATURES, evaluator->features, batch * FEATURES * sizeof(float));
        return;
    }
    memcpy(answers->boxes + 4 * row, found->boxes, 4 * rows * sizeof *found->boxes);
    memcpy(answers->scores + row, found->scores, rows * sizeof *found->scores);
    memcpy(answers->classes + row, found->classes, rows * sizeof *found->classes);
    memcpy(answers->count + first, found->count, batch * sizeof *found->count);
}

/* Answers of a batch on so many threads, whose split the size of the cache decides. Twice: the second time constants
 * are there. */
static void answer(const char *name, int32_t size, int threads, size_t cache_bytes, struct cvy_split split,
                   struct answers *answers)
{
    struct subject subject;
    struct cvy_evaluator evaluator;

    subject_open_integers(&subject, name, size, threads, cache_bytes);
    must(cvy_evaluator_open(&evaluator, &subject.network, BATCH));
    assert_int_equal(evaluator.batch, BATCH);
    assert_int_equal(evaluator.streams.count, split.streams);
    assert_int_equal(cvy_evaluator_plan(&evaluator)->batch, split.images);
    assert_int_equal(cvy_evaluator_plan(&evaluator)->device->threads, split.streams > 1 ? 1 : threads);
    must(cvy_evaluator_run(&evaluator, images, evaluator.batch, true));
    must(cvy_evaluator_run(&evaluator, images, evaluator.batch, true));
    memset(answers, 0, sizeof *answers);
    take_answers(&evaluator, 0, answers);
    cvy_evaluator_close(&evaluator);
    subject_close(&subject);
}

/* The widest step of resnet18 at 32 px is its pool: of 64 channels, from 16 x 16 bytes to 8 x 8, 20,480 for an image.
 */
static void batches_in_parts(void **state)
{
    static const struct {
        int threads;
        size_t cache_bytes;
        struct cvy_split split;
    } cases[] = {
        {1, (size_t)1 << 30, {BATCH, 1}},
        {1, 2 * 3 * 22000, {2, 1}}, /* three would fit: the divisor below */
        {1, 2 * 22000, {1, 1}},
        {1, 1000, {BATCH, 1}}, /* not even one fits */
        {2, 0, {BATCH, 1}},    /* nothing is known */
        {2, (size_t)1 << 30, {2, 2}},
        {2, 2 * 3 * 22000, {1, 2}},
        {2, 2 * 22000, {1, 2}},           /* and more than fits */
        {3, (size_t)1 << 30, {BATCH, 1}}, /* two of three would wait in the end */
        {3, 2 * 22000, {BATCH, 1}},       /* and there would be fewer images than threads */
        {4, (size_t)1 << 30, {1, 4}},
        {8, (size_t)1 << 30, {BATCH, 1}},
    };
    struct answers whole, parts;

    answer("resnet18", SIZE, 1, 0, (struct cvy_split){BATCH, 1}, &whole);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        answer("resnet18", SIZE, cases[i].threads, cases[i].cache_bytes, cases[i].split, &parts);
        assert_memory_equal(&parts, &whole, sizeof whole);
    }
}

/* The widest step of ssd320 at 64 px takes about 750,000 bytes for an image. */
static void detections_in_parts(void **state)
{
    struct answers whole, parts;

    answer("ssd320", DETECTOR_SIZE, 1, 0, (struct cvy_split){BATCH, 1}, &whole);
    for (int i = 0; i < BATCH; i++)
        assert_true(whole.count[i] > 0);
    assert_memory_not_equal(whole.scores, whole.scores + 2 * CVY_MAX_DETECTIONS, sizeof whole.scores / BATCH);
    answer("ssd320", DETECTOR_SIZE, 1, 2 * 3 * 800000, (struct cvy_split){2, 1}, &parts);
    assert_memory_equal(&parts, &whole, sizeof whole);
    answer("ssd320", DETECTOR_SIZE, 2, (size_t)1 << 30, (struct cvy_split){2, 2}, &parts);
    assert_memory_equal(&parts, &whole, sizeof whole);
}

static void check_split(const struct cvy_network *network, int64_t batch, struct cvy_split wanted)
{
    struct cvy_split split;

    must(cvy_network_split(network, batch, &split));
    assert_int_equal(split.images, wanted.images);
    assert_int_equal(split.streams, wanted.streams);
}

/* Networks in 32-bit floats, and those whose parameters change, are not divided. */
static void floats_stay_together(void **state)
{
    struct subject subject;

    subject_open_integers(&subject, "resnet18", SIZE, 2, (size_t)1 << 30);
    subject.network.int8 = false;
    check_split(&subject.network, BATCH, (struct cvy_split){BATCH, 1});
    subject.network.constant = true;
    check_split(&subject.network, BATCH, (struct cvy_split){BATCH, 1});
    subject_close(&subject);
    if (!subject_open_halves(&subject, "resnet18", SIZE, 2, (size_t)1 << 30))
        return;
    subject.network.constant = false;
    check_split(&subject.network, BATCH, (struct cvy_split){BATCH, 1});
    subject_close(&subject);
}

static void halves_are_divided(void **state)
{
    static const struct {
        int threads;
        size_t cache_bytes;
        int64_t batch;
        struct cvy_split split;
    } cases[] = {
        {1, 2 * 45000, 32, {32, 1}},       /* parts alone gain nothing */
        {2, 0, 32, {32, 1}},               /* nothing is known */
        {2, 2 * 45000, 32, {4, 2}},        /* one would fit: four at least */
        {2, (size_t)1 << 30, 32, {16, 2}}, /* all do */
        {2, 2 * 14 * 45000, 28, {7, 2}},   /* seven for each do */
        {2, (size_t)1 << 30, 2, {1, 2}},   /* there are no more */
        {2, (size_t)1 << 30, 1, {1, 1}},
        {3, (size_t)1 << 30, 4, {4, 1}}, /* two of three would wait */
        {3, 2 * 45000, 33, {33, 1}},     /* three divide it, but are too few, and some would wait */
        {2, 2 * 45000, 31, {31, 1}},     /* one at a time would not gain */
        {4, 2 * 45000, 256, {4, 4}},
        {2, (size_t)1 << 30, 4096, {512, 2}}, /* no more than 32 MiB for each */
    };
    struct subject subject;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!subject_open_halves(&subject, "resnet18", SIZE, cases[i].threads, cases[i].cache_bytes))
            skip();
        check_split(&subject.network, cases[i].batch, cases[i].split);
        subject_close(&subject);
    }
}

/* What so many threads give for the images, a stream each where there are two, with two images at a time for each: of
 * bytes, or of the same as floats, which a network opened beside that of bytes takes. False where there is no bf16. */
static bool answer_halves(const char *name, int32_t size, int streams, bool floats, struct answers *answers)
{
    const int64_t batch = streams * BATCH / 2, values = (int64_t)size * size * 3;
    struct subject subject;
    struct cvy_network tensors = {0};
    struct cvy_evaluator evaluator;

    if (!subject_open_halves(&subject, name, size, streams, (size_t)1 << 30))
        return false;
    subject.model.float_images = floats;
    must(cvy_network_open_beside(&tensors, subject.device, &subject.model, &subject.network));
    must(cvy_evaluator_open(&evaluator, floats ? &tensors : &subject.network, batch));
    assert_int_equal(evaluator.streams.count, streams);
    assert_int_equal(cvy_evaluator_plan(&evaluator)->batch, BATCH / 2);
    memset(answers, 0, sizeof *answers);
    for (int64_t first = 0; first < BATCH; first += batch) {
        const void *given = images + first * values;

        if (floats)
            given = float_images + first * values;
        must(cvy_evaluator_run(&evaluator, given, evaluator.batch, true));
        take_answers(&evaluator, first, answers);
    }
    cvy_evaluator_close(&evaluator);
    cvy_network_close(&tensors);
    subject_close(&subject);
    return true;
}

/* Two images each by two streams: the bits of one thread that has two. */
static void halves_by_streams(void **state)
{
    for (int floats = 0; floats < 2; floats++) {
        struct answers one, two;

        if (!answer_halves("resnet18", SIZE, 1, floats, &one))
            skip();
        answer_halves("resnet18", SIZE, 2, floats, &two);
        assert_memory_equal(&one, &two, sizeof one);
        assert_memory_not_equal(two.logits, two.logits + 2 * CLASSES, 2 * CLASSES * sizeof(float));
        assert_memory_not_equal(two.features, two.features + 2 * FEATURES, 2 * FEATURES * sizeof(float));
        for (int i = 0; i < BATCH; i++)
            assert_true(two.probabilities[i * CLASSES] > 0 && two.probabilities[i * CLASSES] < 1);
    }
}

static void detections_by_streams(void **state)
{
    for (int floats = 0; floats < 2; floats++) {
        struct answers one, two;

        if (!answer_halves("ssd320", DETECTOR_SIZE, 1, floats, &one))
            skip();
        answer_halves("ssd320", DETECTOR_SIZE, 2, floats, &two);
        assert_memory_equal(&one, &two, sizeof one);
        for (int i = 0; i < BATCH; i++)
            assert_true(two.count[i] > 0);
        assert_memory_not_equal(two.scores, two.scores + 2 * CVY_MAX_DETECTIONS, sizeof two.scores / BATCH);
    }
}

/* All streams read the weights that the first one has prepared, and that is what is estimated. */
static void check_memory(bool halves)
{
    struct subject subject;
    struct cvy_evaluator evaluator;
    struct cvy_memory_estimate estimate, beside;

    if (!subject_open_divided(&subject, halves))
        skip();
    struct cvy_memory_case run = {.device = subject.device,
                                  .architecture = subject.network.architecture,
                                  .model = &subject.model,
                                  .dtype = subject.network.dtype,
                                  .int8_state = halves ? NULL : subject.network.store.state,
                                  .constant = true,
                                  .batch = BATCH};
    must(cvy_memory_estimate(&run, &estimate));
    run.beside = true;
    must(cvy_memory_estimate(&run, &beside));
    must(cvy_evaluator_open(&evaluator, &subject.network, BATCH));
    const struct cvy_stream *stream = evaluator.streams.stream;
    assert_int_equal(evaluator.streams.count, 2);
    assert_true(stream[0].plan.constant_bytes > 0);
    assert_true(stream[1].plan.constant_bytes == 0 && stream[1].plan.beside == &stream[0].plan);
    assert_true(stream[1].plan.activations != stream[0].plan.activations);
    assert_true(cvy_streams_bytes(&stream->plan, 2) == estimate.plan);
    assert_true(estimate.plan == stream[0].plan.constant_bytes + 2 * stream[0].plan.activation_bytes);
    assert_true(beside.plan == 2 * stream[0].plan.activation_bytes);
    assert_true(estimate.streams > 0);
    assert_true(estimate.total ==
                estimate.program + estimate.parameters + estimate.plan + estimate.streams + estimate.data);
    cvy_evaluator_close(&evaluator);
    subject_close(&subject);
}

static void memory(void **state)
{
    check_memory(false);
}

static void memory_of_halves(void **state)
{
    check_memory(true);
}

/* The same whether a plan reads what another has prepared or has its own. */
static void compare_alone(struct cvy_evaluator *beside, const void *given)
{
    struct answers shared = {0}, own = {0};
    struct cvy_evaluator alone;

    must(cvy_evaluator_open(&alone, beside->network, BATCH));
    assert_true(cvy_evaluator_plan(&alone)->constant_bytes > cvy_evaluator_plan(beside)->constant_bytes);
    must(cvy_evaluator_run(&alone, given, alone.batch, true));
    must(cvy_evaluator_run(beside, given, beside->batch, true));
    take_answers(&alone, 0, &own);
    take_answers(beside, 0, &shared);
    assert_memory_equal(&shared, &own, sizeof own);
    cvy_evaluator_close(&alone);
}

/* Streams read the constants of the plan beside which they are opened, also where they want fewer: images of floats are
 * not normalised by a table of bytes, which only integers have. */
static void check_beside(bool halves)
{
    struct subject subject;
    struct cvy_network floats;
    struct cvy_evaluator one, batch, tensors;

    if (!subject_open_divided(&subject, halves))
        skip();
    must(cvy_evaluator_open(&one, &subject.network, 1));
    must(cvy_evaluator_open_beside(&batch, &subject.network, BATCH, &one));
    subject.model.float_images = true;
    must(cvy_network_open_beside(&floats, subject.device, &subject.model, &subject.network));
    must(cvy_evaluator_open_beside(&tensors, &floats, BATCH, &one));
    assert_true(batch.streams.count == 2 && tensors.streams.count == 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(batch.streams.stream[i].plan.constant_bytes, 0);
        assert_int_equal(tensors.streams.stream[i].plan.constant_bytes, 0);
    }
    compare_alone(&batch, images);
    compare_alone(&tensors, float_images);
    cvy_evaluator_close(&tensors);
    cvy_network_close(&floats);
    cvy_evaluator_close(&batch);
    cvy_evaluator_close(&one);
    subject_close(&subject);
}

static void beside_others(void **state)
{
    check_beside(false);
}

static void halves_beside_others(void **state)
{
    check_beside(true);
}

/* Channels-last, images of floats are laid out anew: one step more than for bytes, and the same constants. */
static void floats_laid_out(void **state)
{
    struct subject subject;
    struct cvy_network floats;
    struct cvy_evaluator bytes, tensors;

    setenv("CONVOY_CPU_LAYOUT", "nhwc", 1);
    const bool there = subject_open_divided(&subject, true);
    unsetenv("CONVOY_CPU_LAYOUT");
    if (!there)
        skip();
    must(cvy_evaluator_open(&bytes, &subject.network, 1));
    subject.model.float_images = true;
    must(cvy_network_open_beside(&floats, subject.device, &subject.model, &subject.network));
    must(cvy_evaluator_open_beside(&tensors, &floats, 1, &bytes));
    assert_int_equal(cvy_evaluator_plan(&tensors)->step_count, cvy_evaluator_plan(&bytes)->step_count + 1);
    assert_int_equal(cvy_evaluator_plan(&tensors)->constant_bytes, 0);
    cvy_evaluator_close(&tensors);
    cvy_network_close(&floats);
    cvy_evaluator_close(&bytes);
    subject_close(&subject);
}

/* Any allocation may fail: that is said, and nothing is left behind. */
static void refuse_memory(bool halves)
{
    struct subject subject;
    struct cvy_evaluator evaluator;
    cvy_status status = CVY_NO_MEMORY;

    if (!subject_open_divided(&subject, halves))
        skip();
    for (int n = 1; status != CVY_OK; n += 1 + n / 6) {
        cvy_memory_fail_after(n, false);
        status = cvy_evaluator_open(&evaluator, &subject.network, BATCH);
        cvy_memory_fail_after(0, false);
        if (status != CVY_OK && status != CVY_NO_MEMORY)
            fail_msg("allocation %d: status %d: %s", n, status, cvy_error());
        assert_true(status == CVY_OK || n < 100000);
    }
    assert_int_equal(evaluator.streams.count, 2);
    must(cvy_evaluator_run(&evaluator, images, evaluator.batch, true));
    cvy_evaluator_close(&evaluator);
    subject_close(&subject);
}

static void refused_memory(void **state)
{
    refuse_memory(false);
}

static void halves_refused_memory(void **state)
{
    refuse_memory(true);
}

/* ---- who computes what ---- */

struct tally {
    const struct cvy_streams *streams;
    atomic_int parts[3], seen[MANY]; /* of each stream; of each first image */
    int64_t refused;
};

static cvy_status count_part(void *context, struct cvy_stream *stream, int64_t first)
{
    struct tally *tally = context;

    tally->parts[stream - tally->streams->stream]++;
    tally->seen[first]++;
    return first == tally->refused ? cvy_fail(CVY_BAD_DATA, "image %d is refused", (int)first) : CVY_OK;
}

/* Every part once, whoever computes it; the same number for each stream while a plan is profiled; a failure is that of
 * the call. */
static void every_part_once(void **state)
{
    struct subject subject;
    struct cvy_streams streams;

    subject_open_integers(&subject, "resnet18", SIZE, 2, 2 * 22000);
    must(cvy_streams_open(&streams, &subject.network, BATCH, NULL));
    assert_int_equal(cvy_streams_rounds(&streams), 2);
    for (int profile = 0; profile < 2; profile++) {
        struct tally tally = {.streams = &streams, .refused = -1};

        streams.stream->plan.profile = profile;
        must(cvy_streams_run(&streams, streams.batch, count_part, &tally));
        for (int i = 0; i < BATCH; i++)
            assert_int_equal(tally.seen[i], 1);
        assert_int_equal(tally.parts[0] + tally.parts[1], BATCH);
        if (profile)
            assert_int_equal(tally.parts[0], 2);
        tally.refused = 3;
        assert_int_equal(cvy_streams_run(&streams, streams.batch, count_part, &tally), CVY_BAD_DATA);
        assert_string_equal(cvy_error(), "image 3 is refused");
    }
    cvy_streams_close(&streams);
    subject_close(&subject);
}

/* Of a batch that is filled in part, the parts that hold its images. */
static void filled_parts(void **state)
{
    static const size_t cache_bytes[] = {2 * 22000, (size_t)1 << 30}; /* an image at a time, two */
    struct answers whole, some;

    for (int i = 0; i < 2; i++) {
        struct subject subject;
        struct cvy_evaluator evaluator;

        subject_open_integers(&subject, "resnet18", SIZE, 2, cache_bytes[i]);
        must(cvy_evaluator_open(&evaluator, &subject.network, BATCH));
        const int64_t part = cvy_evaluator_plan(&evaluator)->batch;
        assert_int_equal(part, i + 1);
        must(cvy_evaluator_run(&evaluator, images, BATCH, true));
        take_answers(&evaluator, 0, &whole);
        for (int64_t count = 1; count <= BATCH; count++) {
            const int64_t computed = (count + part - 1) / part * part;
            struct tally tally = {.streams = &evaluator.streams, .refused = -1};

            must(cvy_streams_run(&evaluator.streams, count, count_part, &tally));
            for (int64_t first = 0; first < BATCH; first++)
                assert_int_equal(tally.seen[first], first < computed && first % part == 0);
            memset(evaluator.logits, 0, sizeof whole.logits);
            must(cvy_evaluator_run(&evaluator, images, count, false));
            take_answers(&evaluator, 0, &some);
            assert_memory_equal(some.logits, whole.logits, (size_t)computed * CLASSES * sizeof(float));
            for (int64_t j = computed * CLASSES; j < BATCH * CLASSES; j++)
                assert_true(some.logits[j] == 0);
        }
        cvy_evaluator_close(&evaluator);
        subject_close(&subject);
    }
}

/* 95 images by three streams, which leave one place in 96 empty. */
static void uneven_parts(void **state)
{
    struct subject subject;
    struct cvy_streams streams;
    struct tally tally = {.streams = &streams, .refused = -1};

    subject_open_integers(&subject, "resnet18", SIZE, 3, (size_t)1 << 30);
    must(cvy_streams_open(&streams, &subject.network, MANY, NULL));
    assert_true(streams.count == 3 && streams.stream->plan.batch == 1);
    assert_int_equal(cvy_streams_rounds(&streams), 32);
    streams.stream->plan.profile = true;
    must(cvy_streams_run(&streams, streams.batch, count_part, &tally));
    for (int i = 0; i < MANY; i++)
        assert_int_equal(tally.seen[i], 1);
    assert_true(tally.parts[0] == 32 && tally.parts[1] == 32 && tally.parts[2] == 31);
    cvy_streams_close(&streams);
    subject_close(&subject);
}

/* Where there are no threads to be had: within the work of others. */
static void one_thread_for_all(void **state)
{
    struct subject subject;
    struct cvy_streams streams;

    subject_open_integers(&subject, "resnet18", SIZE, 2, 2 * 22000);
    must(cvy_streams_open(&streams, &subject.network, BATCH, NULL));
    for (int profile = 0; profile < 2; profile++) {
        struct tally tally = {.streams = &streams, .refused = -1};
        cvy_status status = CVY_FAILED;

        streams.stream->plan.profile = profile;
#pragma omp parallel num_threads(2)
#pragma omp single
        status = cvy_streams_run(&streams, streams.batch, count_part, &tally);
        must(status);
        for (int i = 0; i < BATCH; i++)
            assert_int_equal(tally.seen[i], 1);
    }
    cvy_streams_close(&streams);
    subject_close(&subject);
}

static int fill_images(void **state)
{
    struct cvy_rng rng = cvy_rng_new(5, CVY_RNG_BENCH, 0, 0);

    for (size_t i = 0; i < sizeof images; i++)
        float_images[i] = images[i] = (uint8_t)cvy_rng_below(&rng, 256);
    setenv("CONVOY_KERNELS", "first", 1); /* nothing is timed */
    return 0;
}

RUN_TESTS(fill_images, NULL, TEST(batches_in_parts), TEST(detections_in_parts), TEST(floats_stay_together),
          TEST(halves_are_divided), TEST(halves_by_streams), TEST(detections_by_streams), TEST(memory),
          TEST(memory_of_halves), TEST(beside_others), TEST(halves_beside_others), TEST(floats_laid_out),
          TEST(refused_memory), TEST(halves_refused_memory), TEST(every_part_once), TEST(filled_parts),
          TEST(uneven_parts), TEST(one_thread_for_all))
