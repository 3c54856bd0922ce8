/* The losses of a detector's validation: of images without objects by the formula of the focal loss, of batches by
 * their images, and that boxes matter. */
#include <math.h>

#include "base/rng.h"
#include "eval/evaluate.h"
#include "support_test.h"

enum { BATCH = 2, SIZE = 64, CLASSES = 3 };

static cvy_device *device;
static struct cvy_network network;
static struct cvy_evaluator evaluator;
static struct cvy_detection_loss loss;
static float images[BATCH * SIZE * SIZE * 3] __attribute__((aligned(64)));
static float boxes[BATCH * CVY_MAX_BOXES * 4];
static int32_t labels[BATCH * CVY_MAX_BOXES];

static void must(cvy_status status)
{
    if (status != CVY_OK)
        fail_msg("%s", cvy_error());
}

static int set_up(void **state)
{
    struct cvy_model_options model = cvy_model_options_make(CLASSES, SIZE);
    struct cvy_rng rng = cvy_rng_new(5, CVY_RNG_BENCH, 0, 0);

    (void)state;
    model.float_images = true;
    model.detector.regularization = 0.01F;
    for (size_t i = 0; i < sizeof images / sizeof *images; i++)
        images[i] = (float)cvy_rng_below(&rng, 256);
    must(cvy_device_open("cpu", 2, &device));
    must(cvy_network_open(&network, device, cvy_architecture_find("ssd320"), &model, CVY_F32, false));
    must(cvy_network_initialize(&network, 3));
    must(cvy_evaluator_open(&evaluator, &network, BATCH));
    must(cvy_detection_loss_open(&loss, &network, cvy_evaluator_plan(&evaluator)));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    cvy_detection_loss_close(&loss);
    cvy_evaluator_close(&evaluator);
    cvy_network_close(&network);
    cvy_device_close(device);
    return 0;
}

/* Adds the losses of the images that can be read. */
static void add(cvy_status first, cvy_status second, double sums[CVY_EVAL_LOSSES])
{
    const cvy_status status[BATCH] = {first, second};
    const struct cvy_batch batch = {
        .images = (const uint8_t *)images, .boxes = boxes, .box_labels = labels, .status = status, .count = BATCH};

    must(cvy_evaluator_run(&evaluator, batch.images, batch.count, false));
    must(cvy_detection_loss_add(&loss, cvy_evaluator_plan(&evaluator), &batch, sums));
}

/* Every anchor is background: alpha 0.25 and gamma 2 leave 0.75 p^2 log(1 / (1 - p)) for each class, over one match. */
static void without_objects(void **state)
{
    double sums[CVY_EVAL_LOSSES] = {0}, wanted = 0;

    (void)state;
    memset(boxes, 0, sizeof boxes);
    memset(labels, 0, sizeof labels);
    add(CVY_OK, CVY_BAD_DATA, sums);
    for (size_t a = 0; a < loss.anchors; a++) {
        for (size_t c = 0; c < loss.width; c++) { /* the background is one of them, as in training */
            const double p = 1 / (1 + exp(-(double)loss.logits[a * loss.width + c]));
            wanted += 0.75 * p * p * -log1p(-p);
        }
    }
    assert_true(sums[0] == 0);
    assert_true(wanted > 0 && fabs(sums[1] - wanted) < 1e-5 * wanted); /* sums of floats */
}

static void with_objects(void **state)
{
    static const float box[] = {0.1F, 0.2F, 0.7F, 0.9F};
    double none[CVY_EVAL_LOSSES] = {0}, one[CVY_EVAL_LOSSES] = {0}, other[CVY_EVAL_LOSSES] = {0},
           both[CVY_EVAL_LOSSES] = {0};
    struct cvy_measures measures = {.count = 0};

    (void)state;
    memset(labels, 0, sizeof labels);
    add(CVY_OK, CVY_BAD_DATA, none);
    memcpy(boxes, box, sizeof box);
    labels[0] = 2;
    add(CVY_OK, CVY_BAD_DATA, one);
    add(CVY_BAD_DATA, CVY_OK, other);
    add(CVY_OK, CVY_OK, both);
    assert_true(one[0] > 0 && one[1] != none[1]);
    assert_true(other[0] == 0 && other[1] > 0);
    for (int i = 0; i < CVY_EVAL_LOSSES; i++)
        assert_true(fabs(both[i] - one[i] - other[i]) <= 1e-12 * both[i]); /* the order of a sum of two */
    /* The total has the penalty on the kernels. */
    must(cvy_detection_loss_measures(&network, &network.store, both, &measures));
    assert_true(cvy_measures_get(&measures, "localization_loss") == both[0]);
    assert_true(cvy_measures_get(&measures, "total_loss") > both[0] + both[1]);
}

/* The plan of a stream has a part of the images: what it says of the others does not exist. */
static void of_a_part(void **state)
{
    static const cvy_status status[BATCH + 1];
    const struct cvy_batch more = {.boxes = boxes, .box_labels = labels, .status = status, .count = BATCH + 1};
    const struct cvy_batch fits = {.boxes = boxes, .box_labels = labels, .status = status, .count = 1};
    double sums[CVY_EVAL_LOSSES] = {0};
    struct cvy_evaluator single;

    must(cvy_evaluator_open(&single, &network, 1));
    assert_fails(cvy_detection_loss_add(&loss, cvy_evaluator_plan(&evaluator), &more, sums), CVY_USAGE, "2 images");
    assert_fails(cvy_detection_loss_add(&loss, cvy_evaluator_plan(&single), &fits, sums), CVY_USAGE, "1 at a time");
    assert_true(sums[0] == 0 && sums[1] == 0);
    cvy_evaluator_close(&single);
}

RUN_TESTS(set_up, tear_down, TEST(without_objects), TEST(with_objects), TEST(of_a_part))
