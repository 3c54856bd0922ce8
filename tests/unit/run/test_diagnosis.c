/* Each early failure is told once, in words that name what to do; healthy courses of a training say nothing. */
#include "run/records/diagnosis.h"
#include "support_test.h"

static char text[CVY_FINDING_TEXT];

static struct cvy_diagnosis begin(int32_t classes, double smoothing)
{
    struct cvy_diagnosis d;

    cvy_diagnosis_init(&d, NULL, classes, smoothing);
    return d;
}

static void guessing(void **state)
{
    const double counts[] = {90, 10};
    struct cvy_diagnosis d = begin(1000, 0.1);

    assert_true(fabs(d.guess_loss - 6.907755279) < 1e-9); /* ln 1000, whatever the smoothing */
    cvy_diagnosis_init(&d, counts, 2, 0);
    assert_true(fabs(d.guess_loss - 0.325082973) < 1e-9); /* -0.9 ln 0.9 - 0.1 ln 0.1 */
    cvy_diagnosis_init(&d, counts, 2, 0.2);               /* targets 0.82 and 0.18 */
    assert_true(fabs(d.guess_loss - 0.471393) < 1e-6);
}

/* ---- the learning rate, and numbers that are none ---- */

static void rate_too_high(void **state)
{
    struct cvy_diagnosis d = begin(10, 0);
    int told = 0;

    for (int64_t step = 1; step <= 100; step++) {
        const enum cvy_finding finding = cvy_diagnose_loss(&d, 0, step, step < 10 ? 2.4 : 12, text);
        told += finding == CVY_FINDING_RATE;
        assert_true(finding == CVY_FINDING_NONE || finding == CVY_FINDING_RATE);
        if (finding == CVY_FINDING_RATE)
            assert_int_equal(step, 20);
    }
    assert_int_equal(told, 1);
    assert_non_null(strstr(text, "--lr"));
    assert_non_null(strstr(text, "2.3 of guessing"));
}

/* The step at which a training of these mean losses of blocks is said to have too high a rate; 0: it is not. first: the
 * loss of its first step. */
static int64_t found_from(double first, const double *means, int blocks, bool fresh)
{
    struct cvy_diagnosis d = begin(10, 0);

    d.fresh = fresh;
    for (int64_t step = 1; step <= 20 * blocks; step++)
        if (cvy_diagnose_loss(&d, 0, step, step > 1 ? means[(step - 1) / 20] : first, text) == CVY_FINDING_RATE)
            return step;
    return 0;
}

static int64_t found_in(const double *means, int blocks, bool fresh)
{
    return found_from(2.4, means, blocks, fresh);
}

/* With random weights the loss rises in the first steps and comes back: resnet50 on ten classes at a rate that it
 * learnt well with (0.025, batches of 64) has means of 8.3 and 4.9. One that does not come back is told two blocks
 * later at most. */
static void random_weights(void **state)
{
    static const double comes_back[] = {8.3, 4.9, 2.6, 2.4}, slowly[] = {12, 6, 3, 2.4}, rises[] = {8, 9, 2.4, 2.4};
    static const double falls_too_late[] = {20, 12, 8, 4}, later[] = {2.4, 2.3, 2.3, 8};

    (void)state;
    assert_int_equal(found_in(comes_back, 4, true), 0);
    assert_int_equal(found_in(comes_back, 4, false), 20);
    assert_int_equal(found_in(slowly, 4, true), 0);
    assert_int_equal(found_in(rises, 4, true), 40);
    assert_int_equal(found_in(falls_too_late, 4, true), 60);
    assert_int_equal(found_in(later, 4, true), 80);
}

/* Weights of other classes are surer of them than guessing, and wrong: nothing has risen before it is better. */
static void worse_than_guessing(void **state)
{
    static const double learns[] = {9.5, 8, 6, 4, 2.4}, rises[] = {10, 14, 20, 20, 20}, later[] = {8, 3, 2, 8, 8};

    (void)state;
    assert_int_equal(found_from(9, learns, 5, false), 0);
    assert_int_equal(found_from(9, rises, 5, false), 40);
    assert_int_equal(found_from(9, later, 5, false), 80);
    assert_int_equal(found_from(2.4, learns, 5, false), 20);
}

/* Starts overshoot: five times the guess for some steps, half as much again for a while. */
static void healthy_losses(void **state)
{
    static const int32_t classes[] = {2, 10, 100, 1000};

    for (size_t c = 0; c < sizeof classes / sizeof *classes; c++) {
        struct cvy_diagnosis d = begin(classes[c], 0.1);
        const double guess = log(classes[c]);
        for (int64_t step = 1; step <= 500; step++) {
            double loss = guess * (1.3 * exp(-(double)step / 200)) + 0.3;
            if (step % 20 == 3)
                loss *= 3; /* one bad batch in twenty */
            assert_int_equal(cvy_diagnose_loss(&d, 0, step, loss, text), CVY_FINDING_NONE);
        }
    }
}

static void not_finite(void **state)
{
    struct cvy_diagnosis d = begin(10, 0);

    assert_int_equal(cvy_diagnose_loss(&d, 3, 7, 2, text), CVY_FINDING_NONE);
    assert_int_equal(cvy_diagnose_loss(&d, 3, 8, NAN, text), CVY_FINDING_NOT_FINITE);
    assert_string_equal(text, "the loss of step 8 (epoch 3) is not a finite number");
    assert_int_equal(cvy_diagnose_loss(&d, 3, 9, INFINITY, text), CVY_FINDING_NONE);
}

/* ---- the loss scale ---- */

/* Ten steps of the rule; the first `overflows` of them overflow. */
static void ten_steps(struct cvy_scaler *scaler, const struct cvy_scaler_rule *rule, int overflows)
{
    for (int i = 0; i < 10; i++) {
        scaler->overflow = i < overflows;
        cvy_scaler_update(scaler, rule);
    }
}

static void scale_at_its_floor(void **state)
{
    /* fp16_utils: halved, 1 at least. */
    const struct cvy_scaler_rule rule = {2, 0.5F, 1, INFINITY, 1000, true};
    struct cvy_scaler scaler = {.scale = 1024};
    struct cvy_diagnosis d = begin(10, 0);

    for (int i = 0; i < 2; i++) {
        ten_steps(&scaler, &rule, 10);
        assert_int_equal(cvy_diagnose_scale(&d, &scaler, &rule, 10, text), CVY_FINDING_NONE);
    }
    assert_true(scaler.scale == 1);
    ten_steps(&scaler, &rule, 10);
    assert_int_equal(cvy_diagnose_scale(&d, &scaler, &rule, 10, text), CVY_FINDING_LOSS_SCALE);
    assert_non_null(strstr(text, "10 of the last 10 steps"));
    ten_steps(&scaler, &rule, 10);
    assert_int_equal(cvy_diagnose_scale(&d, &scaler, &rule, 10, text), CVY_FINDING_NONE);
}

static void healthy_scales(void **state)
{
    const struct cvy_scaler_rule torch = {2, 0.5F, 0, INFINITY, 100, true};
    const struct cvy_scaler_rule fixed = {1, 1, 0, INFINITY, 0, false};
    struct cvy_scaler scaler = {.scale = 65536};
    struct cvy_diagnosis d = begin(10, 0);

    /* The search from above: 14 halvings, then one overflow whenever the scale has grown. */
    for (int i = 0; i < 200; i++) {
        ten_steps(&scaler, &torch, i == 0 ? 10 : i == 1 ? 4 : i % 10 == 0);
        assert_int_equal(cvy_diagnose_scale(&d, &scaler, &torch, 10, text), CVY_FINDING_NONE);
    }
    /* One that begins at 1 and loses a step now and then; one that never moves. */
    d = begin(10, 0);
    scaler = (struct cvy_scaler){.scale = 1};
    for (int i = 0; i < 50; i++) {
        ten_steps(&scaler, &torch, i % 5 == 0);
        assert_int_equal(cvy_diagnose_scale(&d, &scaler, &torch, 10, text), CVY_FINDING_NONE);
        assert_int_equal(cvy_diagnose_scale(&d, &(struct cvy_scaler){.scale = 1}, &fixed, 10, text), CVY_FINDING_NONE);
    }
    /* A resumed run reads a count of skipped steps that is not its own. */
    d = begin(10, 0);
    scaler = (struct cvy_scaler){.scale = 1, .skipped = 500};
    for (int i = 0; i < 3; i++)
        assert_int_equal(cvy_diagnose_scale(&d, &scaler, &torch, 10, text), CVY_FINDING_NONE);
}

/* ---- epochs and validations ---- */

static void loss_that_does_not_move(void **state)
{
    struct cvy_diagnosis d = begin(10, 0.1);

    assert_int_equal(cvy_diagnose_epoch(&d, 0, 300, 2.31, text), CVY_FINDING_NONE); /* one epoch says nothing */
    assert_int_equal(cvy_diagnose_epoch(&d, 1, 60, 2.31, text), CVY_FINDING_NONE);  /* nor do sixty steps */
    assert_int_equal(cvy_diagnose_epoch(&d, 1, 300, NAN, text), CVY_FINDING_NONE);
    assert_int_equal(cvy_diagnose_epoch(&d, 1, 300, 2.20, text), CVY_FINDING_NONE); /* it moves */
    assert_int_equal(cvy_diagnose_epoch(&d, 2, 450, 2.31, text), CVY_FINDING_FLAT);
    assert_non_null(strstr(text, "after 3 epochs"));
    assert_non_null(strstr(text, "shuffled"));
    assert_int_equal(cvy_diagnose_epoch(&d, 3, 600, 2.31, text), CVY_FINDING_NONE);
}

/* Said where it matters, once. */
static void waiting_for_data(void **state)
{
    struct cvy_diagnosis d = begin(10, 0);
    struct cvy_loader_stats stats = {.images = 5000, .elapsed = 20, .wait = 1.9, .workers = 2};

    assert_int_equal(cvy_diagnose_data(&d, &stats, "advice", text), CVY_FINDING_NONE); /* below a tenth */
    stats.wait = 5;
    stats.images = 499;
    assert_int_equal(cvy_diagnose_data(&d, &stats, "advice", text), CVY_FINDING_NONE); /* the first batches */
    stats.images = 5000;
    assert_int_equal(cvy_diagnose_data(&d, &stats, "advice", text), CVY_FINDING_DATA);
    assert_string_equal(text, "25 % of the epoch's time went into waiting for images: advice");
    assert_string_equal(cvy_finding_name(CVY_FINDING_DATA), "data");
    assert_int_equal(cvy_diagnose_data(&d, &stats, "advice", text), CVY_FINDING_NONE);
}

/* A validation of ten classes with 100 images each, of which `right` are right and the others fall on `other`, or on
 * the class after theirs when it is negative. */
static void validation(struct cvy_validation *v, int64_t counts[40], int64_t right, int32_t other)
{
    *v = (struct cvy_validation){.class_count = 10, .images = 1000};
    memset(counts, 0, 40 * sizeof *counts);
    v->class_images = counts;
    v->class_hits = counts + 10;
    v->class_topk_hits = counts + 20;
    v->class_predicted = counts + 30;
    for (int32_t i = 0; i < 10; i++) {
        const int32_t wrong = other < 0 ? (i + 1) % 10 : other;
        v->class_images[i] = 100;
        v->class_hits[i] = i == wrong ? 100 : right;
        v->class_predicted[i] += right;
        v->class_predicted[wrong] += 100 - right;
    }
}

static void one_class(void **state)
{
    struct cvy_diagnosis d = begin(10, 0);
    struct cvy_validation v;
    int64_t counts[40];

    validation(&v, counts, 0, 4);
    assert_int_equal(cvy_diagnose_validation(&d, &v, 20, 2.3, text),
                     CVY_FINDING_NONE); /* batch norm is not there yet */
    assert_int_equal(cvy_diagnose_validation(&d, &v, 200, 2.3, text), CVY_FINDING_ONE_CLASS);
    assert_non_null(strstr(text, "1000 of the 1000 validation images are taken for \"class 4\""));
    assert_int_equal(cvy_diagnose_validation(&d, &v, 400, 2.3, text), CVY_FINDING_NONE);
    /* Where nearly all images are of that class, nothing is wrong. */
    d = begin(10, 0);
    for (int i = 0; i < 10; i++)
        counts[i] = i == 4 ? 991 : 1;
    assert_int_equal(cvy_diagnose_validation(&d, &v, 400, 0.1, text), CVY_FINDING_NONE);
}

static void validation_at_chance(void **state)
{
    struct cvy_diagnosis d = begin(10, 0);
    struct cvy_validation v;
    int64_t counts[40];

    validation(&v, counts, 11, -1);
    assert_int_equal(cvy_diagnose_validation(&d, &v, 1000, 2.2, text), CVY_FINDING_NONE); /* training does not move */
    assert_int_equal(cvy_diagnose_validation(&d, &v, 1000, 1.0, text), CVY_FINDING_CHANCE);
    assert_non_null(strstr(text, "11.00 %"));
    assert_int_equal(cvy_diagnose_validation(&d, &v, 1100, 1.0, text), CVY_FINDING_NONE);
    /* One such epoch among better ones is noise. */
    d = begin(10, 0);
    validation(&v, counts, 14, -1);
    assert_int_equal(cvy_diagnose_validation(&d, &v, 1000, 1.0, text), CVY_FINDING_NONE);
    validation(&v, counts, 11, -1);
    assert_int_equal(cvy_diagnose_validation(&d, &v, 1100, 1.0, text), CVY_FINDING_NONE);
}

static void healthy_validations(void **state)
{
    struct cvy_diagnosis d = begin(10, 0);
    struct cvy_validation v;
    int64_t counts[40];

    validation(&v, counts, 14, -1); /* a hard set, early: 4 points above chance */
    assert_int_equal(cvy_diagnose_validation(&d, &v, 1000, 1.6, text), CVY_FINDING_NONE);
    validation(&v, counts, 10, 4); /* half collapsed, as first epochs are: 91 % of the images */
    assert_int_equal(cvy_diagnose_validation(&d, &v, 60, 2.0, text), CVY_FINDING_NONE);
    validation(&v, counts, 95, -1);
    assert_int_equal(cvy_diagnose_validation(&d, &v, 9000, 0.1, text), CVY_FINDING_NONE);
    v.images = 20; /* too few to say anything */
    validation(&v, counts, 0, 4);
    v.images = 20;
    assert_int_equal(cvy_diagnose_validation(&d, &v, 9000, 0.1, text), CVY_FINDING_NONE);
}

RUN_TESTS(NULL, NULL, TEST(guessing), TEST(rate_too_high), TEST(random_weights), TEST(worse_than_guessing),
          TEST(healthy_losses), TEST(not_finite), TEST(scale_at_its_floor), TEST(healthy_scales),
          TEST(loss_that_does_not_move), TEST(waiting_for_data), TEST(one_class), TEST(validation_at_chance),
          TEST(healthy_validations))
