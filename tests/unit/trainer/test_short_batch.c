/* The short batch that ends an epoch: a step of its images alone, whatever lies in the rest of the memory; bit for bit
 * the one that a trainer of batches of that size takes. */
#include "base/rng.h"
#include "support_test.h"
#include "trainer/trainer.h"

enum { BATCH = 4, SHORT = 2, SIZE = 33, CLASSES = 5, STEPS = 4 };
static const int32_t counts[STEPS] = {BATCH, SHORT, BATCH, SHORT};

static cvy_device *device;
static uint8_t images[BATCH * SIZE * SIZE * 3] __attribute__((aligned(64)));
static int32_t labels[BATCH] __attribute__((aligned(64))) = {0, 3, 1, 4};

static void must(cvy_status status)
{
    if (status != CVY_OK)
        fail_msg("%s", cvy_error());
}

static struct cvy_batch batch_of(int step)
{
    struct cvy_rng rng = cvy_rng_new(5, CVY_RNG_BENCH, 0, (uint32_t)step);
    const size_t used = (size_t)counts[step] * SIZE * SIZE * 3;

    for (size_t i = 0; i < used; i++)
        images[i] = (uint8_t)cvy_rng_below(&rng, 256);
    memset(images + used, 255, sizeof images - used); /* which nothing may read */
    return (struct cvy_batch){.images = images, .labels = labels, .count = counts[step], .index = step};
}

struct outcome {
    float loss[STEPS];
    float *values[4]; /* weights, momentum, running statistics, the average of the weights */
    size_t bytes[4];
};

static void keep(const struct cvy_network *network, struct outcome *outcome)
{
    const float *const from[] = {network->store.weights, network->store.momentum, network->store.state,
                                 network->average.weights};

    for (int i = 0; i < 4; i++) {
        outcome->bytes[i] = (size_t)(i == 2 ? network->store.state_elements : network->store.trainable_elements) * 4;
        outcome->values[i] = cvy_calloc(1, outcome->bytes[i]);
        assert_non_null(outcome->values[i]);
        memcpy(outcome->values[i], from[i], outcome->bytes[i]);
    }
}

/* One trainer with a plan for short batches, or a trainer of its own for each step. */
static void train(bool one, size_t workspace, float alpha, struct outcome *outcome)
{
    struct cvy_model_options model = cvy_model_options_make(CLASSES, SIZE);
    const struct cvy_optimizer_options sgd = {.momentum = 0.9f, .weight_decay = 1e-4f, .average_decay = 0.9};
    const struct cvy_mixup mixup = {.alpha = (double)alpha, .seed = 5, .world = 1};
    struct cvy_network network;
    struct cvy_trainer trainer = {0};
    struct cvy_comm comm;

    model.mixup = alpha > 0;
    cvy_comm_single(&comm);
    must(cvy_network_open(&network, device, cvy_architecture_find("resnet18"), &model, CVY_F32, true));
    must(cvy_network_initialize(&network, 3));
    must(cvy_network_extend(&network, 0, true));
    must(cvy_network_start_average(&network));
    if (workspace)
        must(cvy_network_reserve(&network, workspace));
    for (int step = 0; step < STEPS; step++) {
        const struct cvy_batch batch = batch_of(step);

        if (step == 0 || !one) {
            cvy_trainer_close(&trainer);
            must(cvy_trainer_open(&trainer, &network, &comm, &sgd, one ? BATCH : counts[step]));
            cvy_trainer_set_mixup(&trainer, &mixup);
            trainer.batches = step;
            if (one)
                must(cvy_trainer_open_short(&trainer, SHORT));
        }
        must(cvy_trainer_step(&trainer, &batch, 0.01));
        must(cvy_trainer_loss(&trainer, &outcome->loss[step]));
    }
    keep(&network, outcome);
    cvy_trainer_close(&trainer);
    cvy_network_close(&network);
}

static void compare(size_t workspace, float alpha)
{
    struct outcome one, many;

    train(true, workspace, alpha, &one);
    train(false, workspace, alpha, &many);
    for (int step = 0; step < STEPS; step++)
        assert_true(one.loss[step] == many.loss[step]);
    for (int i = 0; i < 4; i++) {
        assert_memory_equal(one.values[i], many.values[i], one.bytes[i]);
        cvy_free(one.values[i]);
        cvy_free(many.values[i]);
    }
}

static void as_a_batch_of_its_own(void **state)
{
    compare((size_t)256 << 20, 0); /* which the plans share */
}

/* Who is mixed with whom is drawn among the images of the short batch. */
static void with_mixup(void **state)
{
    compare(0, 0.4f);
}

static int open_device(void **state)
{
    must(cvy_device_open("cpu", 2, &device));
    return 0;
}

static int close_device(void **state)
{
    cvy_device_close(device);
    return 0;
}

RUN_TESTS(open_device, close_device, TEST(as_a_batch_of_its_own), TEST(with_mixup))
