#include "support_update.h"
#include "base/rng.h"
#include "support_cases.h"
#include "support_test.h"

enum { ELEMENTS = 150000, SEGMENTS = 300, EVERY = 30 /* elements, of the short ones */ };
enum { WEIGHTS, MOMENTUM, SQUARES, GRADIENTS, ARENAS, SCALER = ARENAS, RATE, BUFFERS };

/* All arenas on the host. */
struct arenas {
    float *data[ARENAS];
};

static void open_arenas(struct arenas *arenas)
{
    for (int i = 0; i < ARENAS; i++)
        assert_non_null(arenas->data[i] = malloc(ELEMENTS * sizeof(float)));
}

static void close_arenas(struct arenas *arenas)
{
    for (int i = 0; i < ARENAS; i++)
        free(arenas->data[i]);
}

static void fill(struct arenas *arenas)
{
    struct cvy_rng rng = cvy_rng_new(5, CVY_RNG_TEST, 0, 0);

    for (int k = 0; k < ELEMENTS; k++)
        for (int i = 0; i < ARENAS; i++)
            arenas->data[i][k] = (float)cvy_rng_range(&rng, i == SQUARES ? 0.25 : -1, 1);
}

/* Two steps of segments of all lengths, with holes between them that must stay as they are, in a device's own memory.
 * `scaler` may be NULL. */
static void take_steps(cvy_device *device, struct cvy_update step, struct cvy_scaler *scaler,
                       const struct cvy_scaler_rule *rule, struct arenas *arenas)
{
    struct cvy_update_segment segments[SEGMENTS] = {
        {0, 1, 0.2f, 1e-4f}, {3, 17, 0.4f, 0}, {64, 70000, 0.2f, 1e-2f}, {70064, 69000, 0.6f, 1e-4f}};
    const float learning_rate = 0.5f;
    const struct cvy_backend *backend = device->backend;
    const size_t bytes = ELEMENTS * sizeof(float);
    void *memory[BUFFERS] = {NULL};

    for (int i = 4; i < SEGMENTS; i++) /* more than one launch of a GPU takes */
        segments[i] = (struct cvy_update_segment){140000 + i * EVERY, 1 + i % 29, 0.2f, i % 2 ? 1e-4f : 0};
    for (int i = 0; i < ARENAS; i++) {
        assert_int_equal(backend->allocate(device, bytes, &memory[i]), CVY_OK);
        assert_int_equal(backend->upload(device, memory[i], arenas->data[i], bytes), CVY_OK);
    }
    step.segments = segments;
    assert_int_equal(backend->allocate(device, sizeof learning_rate, &memory[RATE]), CVY_OK);
    assert_int_equal(cvy_device_upload_small(device, memory[RATE], &learning_rate, sizeof learning_rate), CVY_OK);
    step.learning_rate = memory[RATE];
    step.segment_count = SEGMENTS;
    step.gradient_scale = 0.5f;
    step.weights = memory[WEIGHTS];
    step.momentum_buffer = memory[MOMENTUM];
    step.square_average = memory[SQUARES];
    step.gradients = memory[GRADIENTS];
    if (scaler) {
        assert_int_equal(backend->allocate(device, sizeof(*scaler), &memory[SCALER]), CVY_OK);
        assert_int_equal(backend->upload(device, memory[SCALER], scaler, sizeof(*scaler)), CVY_OK);
        step.scaler = memory[SCALER];
        step.rule = *rule;
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(backend->update(device, &step), CVY_OK);
    for (int i = 0; i < ARENAS; i++)
        assert_int_equal(backend->download(device, arenas->data[i], memory[i], bytes), CVY_OK);
    if (scaler)
        assert_int_equal(backend->download(device, scaler, memory[SCALER], sizeof(*scaler)), CVY_OK);
    for (int i = 0; i < BUFFERS; i++)
        backend->release(device, memory[i]);
}

void test_update_steps(void **state)
{
    static const struct cvy_update rules[] = {
        {.momentum = 0.9f, .dampening = 0.25f},
        {.momentum = 0.9f, .dampening = 0.25f, .nesterov = true},
        /* Nesterov's form is SGD's: it changes nothing here. */
        {.kind = CVY_UPDATE_RMSPROP, .momentum = 0.75f, .alpha = 0.9, .epsilon = 0.01, .nesterov = true},
        {.kind = CVY_UPDATE_RMSPROP, .alpha = 0.99, .epsilon = 1e-3},
    };
    cvy_device *const devices[3] = {suite.ref, suite.cpu, suite.single};
    struct arenas arenas[3];

    for (int d = 0; d < 3; d++)
        open_arenas(&arenas[d]);
    for (size_t r = 0; r < sizeof(rules) / sizeof(rules[0]); r++) {
        for (int d = 0; d < 3; d++) {
            fill(&arenas[d]);
            take_steps(devices[d], rules[r], NULL, NULL, &arenas[d]);
        }
        for (int i = 0; i < GRADIENTS; i++) {
            const float *want = arenas[0].data[i], *got = arenas[1].data[i];
            for (int k = 0; k < ELEMENTS; k++) /* at most eight roundings of numbers below 4 in each step */
                assert_true(fabsf(want[k] - got[k]) <= (rules[r].kind == CVY_UPDATE_RMSPROP ? 32 : 8) * 0x1p-23f);
            assert_memory_equal(got, arenas[2].data[i], ELEMENTS * sizeof(float));
            assert_true(got[1] == want[1] && got[40] == want[40] && got[ELEMENTS - 1] == want[ELEMENTS - 1]);
        }
    }
    for (int d = 0; d < 3; d++)
        close_arenas(&arenas[d]);
}

/* Two steps with a loss scale of 8: gradients are divided by it, one that is not finite stops the step (unless the rule
 * says that none is ever left out), and the scale moves by the rule. */
void test_loss_scale(void **state)
{
    static const struct cvy_scaler_rule doubling = {2, 0.5f, 0.5f, 16, 2, true}, fixed = {1, 1, 0, 1e30f, 0, false};
    static const struct {
        float gradient; /* of one weight in the last segment */
        const struct cvy_scaler_rule *rule;
        struct cvy_scaler before, after;
    } cases[] = {
        {0.25f, &doubling, {.scale = 8}, {.scale = 16}},
        {0.25f, &doubling, {.scale = 8, .good = 1}, {.scale = 16, .good = 1}},
        {0.25f, &doubling, {.scale = 16, .good = 1}, {.scale = 16, .good = 1}}, /* the largest */
        {INFINITY, &doubling, {.scale = 8, .good = 1, .skipped = 3}, {.scale = 2, .skipped = 5}},
        {-INFINITY, &doubling, {.scale = 1}, {.scale = 0.5f, .skipped = 2}}, /* the smallest */
        {NAN, &doubling, {.scale = 8}, {.scale = 2, .skipped = 2}},
        {0.25f, &fixed, {.scale = 8}, {.scale = 8}},
        {INFINITY, &fixed, {.scale = 8}, {.scale = 8}},
    };
    static const struct cvy_update rules[] = {
        {.momentum = 0.9f, .dampening = 0.25f},
        {.kind = CVY_UPDATE_RMSPROP, .momentum = 0.75f, .alpha = 0.9, .epsilon = 0.01},
    };
    cvy_device *const devices[2] = {suite.ref, suite.cpu};
    struct arenas start, now;

    open_arenas(&start);
    open_arenas(&now);
    for (size_t n = 0; n < 4 * sizeof(cases) / sizeof(cases[0]); n++) {
        const size_t c = n / 4, r = n % 2;
        const bool stopped = cases[c].rule->skips && !isfinite(cases[c].gradient);
        struct cvy_scaler scaler = cases[c].before;
        fill(&start);
        start.data[GRADIENTS][140000 + (SEGMENTS - 1) * EVERY] = cases[c].gradient;
        for (int i = 0; i < ARENAS; i++)
            memcpy(now.data[i], start.data[i], ELEMENTS * sizeof(float));
        take_steps(devices[n / 2 % 2], rules[r], &scaler, cases[c].rule, &now);
        assert_true(scaler.scale == cases[c].after.scale);
        assert_int_equal(scaler.good, cases[c].after.good);
        assert_int_equal(scaler.skipped, cases[c].after.skipped);
        assert_int_equal(scaler.overflow, 0);
        if (stopped) {
            for (int i = 0; i < GRADIENTS; i++)
                assert_memory_equal(now.data[i], start.data[i], ELEMENTS * sizeof(float));
        } else if (cases[c].before.scale == cases[c].after.scale) { /* the second step has the same scale */
            float v = start.data[MOMENTUM][70], w = start.data[WEIGHTS][70], s = start.data[SQUARES][70];
            for (int i = 0; i < 2; i++) {
                const float d = start.data[GRADIENTS][70] * 0.5f / cases[c].before.scale + 1e-2f * w;
                s = 0.9f * s + 0.1f * d * d;
                v = r ? 0.75f * v + d / (sqrtf(s) + 0.01f) : 0.9f * v + 0.75f * d;
                w -= 0.1f * v;
            }
            assert_true(fabsf(now.data[WEIGHTS][70] - w) <= (r ? 32 : 8) * 0x1p-23f);
        }
    }
    close_arenas(&start);
    close_arenas(&now);
}

/* Copies, sums and moving averages of any length, from addresses that no vector divides, and nothing after them. */
void test_combine(void **state)
{
    static const int64_t counts[] = {0, 1, 15, 17, 1000, 70001};
    static const enum cvy_combine ways[] = {CVY_COMBINE_COPY, CVY_COMBINE_ADD, CVY_COMBINE_TOWARDS};
    const size_t bytes = ELEMENTS * sizeof(float);
    const struct cvy_backend *backend = suite.cpu->backend;
    struct arenas arenas, got;
    const float share = 1.0f / 3;
    void *y, *x, *part;

    open_arenas(&arenas);
    open_arenas(&got);
    assert_int_equal(backend->allocate(suite.cpu, sizeof share, &part), CVY_OK);
    assert_int_equal(cvy_device_upload_small(suite.cpu, part, &share, sizeof share), CVY_OK);
    assert_int_equal(backend->allocate(suite.cpu, bytes, &y), CVY_OK);
    assert_int_equal(backend->allocate(suite.cpu, bytes, &x), CVY_OK);
    for (size_t n = 0; n < 2 * 3 * sizeof(counts) / sizeof(counts[0]); n++) {
        const enum cvy_combine how = ways[n % 3];
        const int64_t count = counts[n / 6], first = n / 3 % 2 ? 3 : 0;
        float *want = arenas.data[WEIGHTS] + first;
        const float *other = arenas.data[MOMENTUM] + first;
        fill(&arenas);
        want[0] = other[0]; /* an average that is there already stays, whatever the share rounds to */
        assert_int_equal(backend->upload(suite.cpu, y, arenas.data[WEIGHTS], bytes), CVY_OK);
        assert_int_equal(backend->upload(suite.cpu, x, arenas.data[MOMENTUM], bytes), CVY_OK);
        assert_int_equal(backend->combine(suite.cpu, how, (float *)y + first, (float *)x + first, count, part), CVY_OK);
        assert_int_equal(backend->download(suite.cpu, got.data[0], y, bytes), CVY_OK);
        assert_int_equal(suite.ref->backend->combine(suite.ref, how, want, other, count, &share), CVY_OK);
        for (int64_t i = 0; i < ELEMENTS - first;
             i++) /* a difference, the share, a product and a sum of numbers to 1 */
            assert_true(fabsf(got.data[0][first + i] - want[i]) <=
                        (how == CVY_COMBINE_TOWARDS && i < count ? 4 * 0x1p-24f : 0));
        if (how == CVY_COMBINE_TOWARDS)
            assert_true(got.data[0][first] == other[0]);
    }
    backend->release(suite.cpu, y);
    backend->release(suite.cpu, x);
    backend->release(suite.cpu, part);
    close_arenas(&arenas);
    close_arenas(&got);
}

/* A few bytes, at any address, and nothing beside them; what they were taken from may change at once. */
void test_put(void **state)
{
    const struct cvy_backend *backend = suite.cpu->backend;
    unsigned char from[CVY_SMALL_UPLOAD_BYTES], got[3 * CVY_SMALL_UPLOAD_BYTES], want[sizeof got];
    void *memory;

    assert_int_equal(backend->allocate(suite.cpu, sizeof got, &memory), CVY_OK);
    memset(want, 0, sizeof want);
    for (size_t count = 1; count <= sizeof from; count++) {
        for (size_t i = 0; i < count; i++)
            want[count + i] = from[i] = (unsigned char)(i + count);
        assert_int_equal(cvy_device_upload_small(suite.cpu, (char *)memory + count, from, count), CVY_OK);
        memset(from, 0xff, sizeof from);
        assert_int_equal(backend->download(suite.cpu, got, memory, sizeof got), CVY_OK);
        assert_memory_equal(got, want, sizeof got);
    }
    backend->release(suite.cpu, memory);
}
