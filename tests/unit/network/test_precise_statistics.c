/* Statistics over batches, with weights that stay: those of a training step with the whole share, averaged. */
#include "network/statistics.h"

#include "base/rng.h"
#include "support_test.h"
#include "trainer/trainer.h"

enum { BATCH = 4, SIZE = 32, BATCHES = 2 };

static cvy_device *device;
static uint8_t images[BATCHES][BATCH * SIZE * SIZE * 3] __attribute__((aligned(64)));
static int32_t labels[BATCH] __attribute__((aligned(64))) = {0, 2, 1, 1};

static void open_resnet(struct cvy_network *network, const char *freeze, float share, enum cvy_dtype dtype)
{
    struct cvy_model_options model = cvy_model_options_make(3, SIZE);

    model.freeze = freeze;
    model.batch_norm_momentum = share;
    if (cvy_network_open(network, device, cvy_architecture_find("resnet18"), &model, dtype, true) != CVY_OK ||
        cvy_network_initialize(network, 3) != CVY_OK)
        fail_msg("%s", cvy_error());
}

/* The state after one step of training with share 1: the statistics of that batch, by the graph of training. */
static void step_statistics(const char *freeze, enum cvy_dtype dtype, const uint8_t *pixels, float *values)
{
    const struct cvy_optimizer_options sgd = {.momentum = 0};
    const struct cvy_batch batch = {.images = pixels, .labels = labels, .count = BATCH};
    struct cvy_network network;
    struct cvy_trainer trainer;
    struct cvy_comm comm;

    open_resnet(&network, freeze, 1, dtype);
    cvy_comm_single(&comm);
    if (cvy_trainer_open(&trainer, &network, &comm, &sgd, BATCH) != CVY_OK ||
        cvy_trainer_step(&trainer, &batch, 0) != CVY_OK)
        fail_msg("%s", cvy_error());
    memcpy(values, network.store.state, (size_t)network.store.state_elements * sizeof(float));
    cvy_trainer_close(&trainer);
    cvy_network_close(&network);
}

static void compare(const char *freeze, enum cvy_dtype dtype)
{
    struct cvy_network network;
    struct cvy_statistics statistics;
    float *single[BATCHES], *before;
    int64_t moved = 0;

    open_resnet(&network, freeze, 0.1f, dtype);
    const size_t count = (size_t)network.store.state_elements;
    const size_t weight_bytes = (size_t)network.store.trainable_elements * sizeof(float);
    float *weights = malloc(weight_bytes);
    before = malloc(count * sizeof *before);
    assert_true(weights && before);
    memcpy(weights, network.store.weights, weight_bytes);
    memcpy(before, network.store.state, count * sizeof *before);
    if (cvy_statistics_open(&statistics, &network, BATCH) != CVY_OK)
        fail_msg("%s", cvy_error());
    for (int round = 0; round < 2; round++) { /* the second one starts over, from what the first has left */
        assert_int_equal(cvy_statistics_start(&statistics, &network.store), CVY_OK);
        for (int b = 0; b < BATCHES; b++) {
            assert_int_equal(cvy_statistics_add(&statistics, images[b]), CVY_OK);
            if (round == 0) /* nothing is replaced before the end */
                assert_memory_equal(before, network.store.state, count * sizeof *before);
        }
        assert_int_equal(cvy_statistics_finish(&statistics, &network.store), CVY_OK);
    }
    assert_memory_equal(weights, network.store.weights, weight_bytes);
    for (int b = 0; b < BATCHES; b++) {
        single[b] = malloc(count * sizeof(float));
        assert_non_null(single[b]);
        step_statistics(freeze, dtype, images[b], single[b]);
    }
    for (int32_t p = 0; p < network.table.param_count; p++) {
        const struct cvy_param *param = &network.table.params[p];
        const bool frozen = freeze && cvy_name_under(param->name, freeze, strlen(freeze));

        if (param->kind != CVY_PARAM_STATE && param->kind != CVY_PARAM_FROZEN)
            continue;
        for (int64_t k = param->offset; k < param->offset + cvy_shape_elements(&param->shape); k++) {
            const float got = network.store.state[k];
            const double want = ((double)single[0][k] + (double)single[1][k]) / BATCHES;

            /* Means of two numbers in float, whose sums may be divided otherwise in another graph; in bf16 what a
             * fused kernel rounds is rounded elsewhere. */
            if (fabs((double)got - want) > (dtype == CVY_F32 ? 1e-5 : 2e-2) * (fabs(want) + 0.1))
                fail_msg("%s: %g instead of %g", param->name, (double)got, want);
            if (frozen || param->kind == CVY_PARAM_FROZEN)
                assert_true(got == before[k]);
            moved += got != before[k];
        }
    }
    assert_true(moved > 1000); /* of some 8,000 */
    for (int b = 0; b < BATCHES; b++)
        free(single[b]);
    free(weights);
    free(before);
    cvy_statistics_close(&statistics);
    cvy_network_close(&network);
}

/* The others' are the means all the same. */
static void frozen_layers_stay(void **state)
{
    compare("layer1", CVY_F32);
}

/* All layers learn. In bf16 where the processor has it. */
static void means_of_batches(void **state)
{
    enum cvy_dtype dtype;

    if (cvy_precision_choose("bf16", device, &dtype) != CVY_OK)
        dtype = CVY_F32;
    compare(NULL, dtype);
}

static int open_cpu(void **state)
{
    struct cvy_rng rng = cvy_rng_new(5, CVY_RNG_TEST, 0, 0);

    for (int b = 0; b < BATCHES; b++) {
        for (size_t i = 0; i < sizeof images[b]; i++)
            images[b][i] = (uint8_t)cvy_rng_range(&rng, 40.0 * b, 140 + 50.0 * b);
    }
    return cvy_device_open("cpu", 1, &device) == CVY_OK ? 0 : -1;
}

static int close_cpu(void **state)
{
    cvy_device_close(device);
    return 0;
}

RUN_TESTS(open_cpu, close_cpu, TEST(frozen_layers_stay), TEST(means_of_batches))
