/* The check backend: sums that cancel, the optimizer, and names of devices. */
#include "backend/check_internal.h"
#include "base/rng.h"
#include "support_faulty.h"
#include "support_test.h"

/* ---- cancellation ---- */

/* A sum of large terms that cancel: the result is all rounding, which is no fault; a term left out is one. */
static void cancelling_sums_are_judged_by_their_terms(void **state)
{
    enum { TERMS = 1000 };
    const struct cvy_op_desc desc = {.op = CVY_OP_LINEAR,
                                     .in = {[0] = {.shape = {2, {1, TERMS}}, .dtype = CVY_F32}},
                                     .out = {[0] = {.shape = {2, {1, 1}}, .dtype = CVY_F32}}};
    double checked = 2e-5, reference = 1e-8, scale = TERMS, error, limit;
    struct check_case item = {.desc = &desc, .checked = {&checked}, .reference = {&reference}, .scale = {&scale}};

    assert_true(check_judge(&item, 0, &error, &limit));
    checked = 1;
    assert_false(check_judge(&item, 0, &error, &limit));
    assert_true(error > limit && error < 2.0 / TERMS);
    checked = NAN;
    assert_false(check_judge(&item, 0, &error, &limit));
    reference = NAN;
    assert_true(check_judge(&item, 0, &error, &limit));
}

/* ---- the optimizer, and names ---- */

static cvy_status forgetful_sgd(cvy_device *device, const struct cvy_update *step)
{
    struct cvy_update other = *step;

    other.momentum = 0.8F;
    return cvy_backend_ref.update(device, &other);
}

/* Leaves NaN in one weight, or in one element of the momentum. */
static bool poison_momentum;
static cvy_status poisonous_sgd(cvy_device *device, const struct cvy_update *step)
{
    const cvy_status status = cvy_backend_ref.update(device, step);

    (poison_momentum ? step->momentum_buffer : step->weights)[step->segments[0].first] = NAN;
    return status;
}

static void a_poisonous_optimizer_is_caught(void **state)
{
    const struct cvy_update_segment segment = {0, 4, 0.5F, 1e-4F};
    const float rate = 0.2F;
    cvy_device *device = open_faulty();

    for (int i = 0; i < 2; i++) {
        float w[] = {1, 2, 3, 4}, v[] = {0.1F, 0.2F, 0.3F, 0.4F}, g[] = {1, -1, 0.5F, 2};
        const struct cvy_update step = {.weights = w,
                                        .momentum_buffer = v,
                                        .gradients = g,
                                        .segments = &segment,
                                        .segment_count = 1,
                                        .learning_rate = &rate,
                                        .momentum = 0.9F,
                                        .gradient_scale = 1};

        faulty_backend.update = cvy_backend_ref.update;
        assert_int_equal(device->backend->update(device, &step), CVY_OK);
        /* A gradient that is not finite makes its own element so, which is no fault; the others are still compared. */
        g[3] = i ? INFINITY : NAN;
        assert_int_equal(device->backend->update(device, &step), CVY_OK);
        faulty_backend.update = poisonous_sgd;
        poison_momentum = i == 1;
        assert_fails(device->backend->update(device, &step), CVY_FAILED, i ? "momentum 0" : "weights 0");
        w[0] = v[0] = 1;
        faulty_backend.update = forgetful_sgd;
        assert_int_equal(device->backend->update(device, &step), CVY_FAILED);
    }
    cvy_device_close(device);
}

static void the_optimizer_is_checked(void **state)
{
    enum { COUNT = 100000 }; /* more than one chunk */
    float *w = cvy_calloc(COUNT, sizeof *w), *v = cvy_calloc(COUNT, sizeof *v), *g = cvy_calloc(COUNT, sizeof *g);
    const struct cvy_update_segment segments[] = {{0, 7, 0.5F, 0}, {7, COUNT - 7, 0.5F, 1e-4F}};
    const float rate = 0.2F;
    const struct cvy_update step = {.weights = w,
                                    .momentum_buffer = v,
                                    .gradients = g,
                                    .segments = segments,
                                    .segment_count = 2,
                                    .learning_rate = &rate,
                                    .momentum = 0.9F,
                                    .gradient_scale = 1,
                                    .nesterov = true};
    struct cvy_rng rng = cvy_rng_new(4, CVY_RNG_TEST, 0, 0);
    cvy_device *device = open_faulty();

    assert_true(w && v && g);
    for (int i = 0; i < COUNT; i++) {
        w[i] = (float)cvy_rng_normal(&rng);
        v[i] = (float)cvy_rng_normal(&rng);
        g[i] = (float)cvy_rng_normal(&rng);
    }
    assert_int_equal(device->backend->update(device, &step), CVY_OK);
    faulty_backend.update = forgetful_sgd;
    assert_fails(device->backend->update(device, &step), CVY_FAILED, "sgd step");
    cvy_device_close(device);
    cvy_free(w);
    cvy_free(v);
    cvy_free(g);
}

static void names_are_checked(void **state)
{
    cvy_device *device = NULL;

    assert_int_equal(cvy_device_open("check", 1, &device), CVY_USAGE);
    assert_null(device);
    assert_int_equal(cvy_device_open("check:check:cpu", 1, &device), CVY_USAGE);
    assert_int_equal(cvy_device_open("check:nothing", 1, &device), CVY_USAGE);
    assert_int_equal(cvy_device_open("ref:1", 1, &device), CVY_USAGE);
    assert_null(device);
    assert_int_equal(cvy_device_open("check:ref", 1, &device), CVY_OK);
    assert_string_equal(device->description, "check of reference kernels in plain C, 1 thread");
    cvy_device_close(device);
}

RUN_TESTS(NULL, NULL, TEST(cancelling_sums_are_judged_by_their_terms), TEST(the_optimizer_is_checked),
          TEST(a_poisonous_optimizer_is_caught), TEST(names_are_checked))
