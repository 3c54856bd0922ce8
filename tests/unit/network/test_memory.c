/* Memory of a run: plans that take turns in one workspace, what a run is said to need, the largest batch that fits. */
#include "base/rng.h"
#include "eval/evaluate.h"
#include "network/memory.h"
#include "support_graph.h"
#include "support_test.h"
#include "trainer/trainer.h"

enum { BATCH = 4, SIZE = 32, CLASSES = 5, STEPS = 2 };

static cvy_device *device;
static uint8_t images[BATCH * SIZE * SIZE * 3] __attribute__((aligned(64)));
static int32_t labels[BATCH] __attribute__((aligned(64))) = {0, 3, 1, 4};

static void must(cvy_status status)
{
    if (status != CVY_OK)
        fail_msg("%s", cvy_error());
}

/* ---- the workspace ---- */

/* What a run computes: the loss of each step, and logits after each of them. */
struct outcome {
    float loss[STEPS], logits[STEPS][BATCH * CLASSES];
};

/* Training steps and evaluations in turn. `bytes`: the workspace; 0: every plan has its own memory. */
static void take_turns(size_t bytes, struct outcome *outcome)
{
    const struct cvy_model_options model = cvy_model_options_make(CLASSES, SIZE);
    const struct cvy_optimizer_options sgd = {.momentum = 0.9f, .weight_decay = 1e-4f};
    const struct cvy_batch batch = {.images = images, .labels = labels, .count = BATCH};
    struct cvy_network network;
    struct cvy_trainer trainer;
    struct cvy_evaluator evaluator;
    struct cvy_comm comm;
    float again;

    cvy_comm_single(&comm);
    must(cvy_network_open(&network, device, cvy_architecture_find("resnet18"), &model, CVY_F32, true));
    must(cvy_network_initialize(&network, 3));
    if (bytes)
        must(cvy_network_reserve(&network, bytes));
    must(cvy_trainer_open(&trainer, &network, &comm, &sgd, BATCH));
    must(cvy_evaluator_open(&evaluator, &network, BATCH));
    assert_true((trainer.plan.workspace != NULL) == (bytes > 0));
    assert_true((cvy_evaluator_plan(&evaluator)->workspace != NULL) == (bytes > 0));
    for (int s = 0; s < STEPS; s++) {
        must(cvy_trainer_step(&trainer, &batch, 0.01));
        must(cvy_trainer_loss(&trainer, &outcome->loss[s]));
        if (!bytes) /* in a workspace the constants are lost anyway, and made again without being told */
            network.store.version++;
        must(cvy_evaluator_run(&evaluator, images, evaluator.batch, false));
        memcpy(outcome->logits[s], evaluator.logits, sizeof outcome->logits[s]);
        /* The numbers of a batch outlive what another plan does to the plan's memory, other results do not. */
        must(cvy_trainer_loss(&trainer, &again));
        assert_true(again == outcome->loss[s]);
        assert_int_equal(cvy_plan_read(&trainer.plan, "loss", &again, sizeof again), bytes ? CVY_FAILED : CVY_OK);
    }
    cvy_evaluator_close(&evaluator);
    cvy_trainer_close(&trainer);
    cvy_network_close(&network);
}

static struct cvy_memory_case training(const struct cvy_model_options *model, int64_t batch)
{
    return (struct cvy_memory_case){
        .device = device,
        .architecture = cvy_architecture_find("resnet18"),
        .model = model,
        .dtype = CVY_F32,
        .training = true,
        .batch = batch,
        .evaluation_batch = BATCH,
        .image_data = 4 * SIZE * SIZE * 3,
    };
}

static void shared_workspace(void **state)
{
    const struct cvy_model_options model = cvy_model_options_make(CLASSES, SIZE);
    const struct cvy_memory_case one = training(&model, BATCH);
    struct cvy_memory_estimate estimate;
    struct outcome *own = calloc(1, sizeof *own), *shared = calloc(1, sizeof *shared);

    assert_non_null(own);
    assert_non_null(shared);
    must(cvy_memory_estimate(&one, &estimate));
    assert_true(estimate.workspace == (estimate.plan > estimate.evaluation ? estimate.plan : estimate.evaluation));
    take_turns(0, own);
    take_turns(estimate.workspace, shared);
    assert_memory_equal(own->loss, shared->loss, sizeof own->loss);
    assert_memory_equal(own->logits, shared->logits, sizeof own->logits);
    free(own);
    free(shared);
}

/* ---- what fits ---- */

/* Beyond what the process has already. */
static size_t need(const struct cvy_memory_case *run, int64_t batch)
{
    struct cvy_memory_case one = *run;
    struct cvy_memory_estimate estimate;

    one.batch = batch;
    must(cvy_memory_estimate(&one, &estimate));
    assert_true(estimate.total == estimate.program + estimate.parameters + estimate.workspace + estimate.data);
    return estimate.total - estimate.program;
}

/* Whatever is available, the batch found fits and the next larger one does not. */
static void largest_batch(void **state)
{
    const struct cvy_model_options model = cvy_model_options_make(CLASSES, SIZE);
    const struct cvy_memory_case run = training(&model, 8);
    const int64_t rooms[] = {2, 4, 8, 16, 24, 40, 64, 120, 248};

    for (size_t i = 0; i < sizeof rooms / sizeof rooms[0]; i++) {
        const int64_t capacity = rooms[i], next = capacity < 8 ? 2 * capacity : capacity + 8;
        const size_t enough = need(&run, capacity), more = need(&run, next);
        int64_t batch;

        assert_true(enough <= more);
        must(cvy_memory_largest_batch(&run, enough, 1, 256, &batch));
        assert_true(need(&run, batch) <= enough); /* two batches may need the same */
        assert_true(batch >= capacity);
        must(cvy_memory_largest_batch(&run, more - 1, 1, 256, &batch));
        assert_true(need(&run, batch) < more);
        must(cvy_memory_largest_batch(&run, 2 * enough, 0.5, capacity, &batch)); /* a share, and a limit */
        assert_int_equal(batch, capacity);
    }
}

static void no_limit_and_no_capacity(void **state)
{
    const struct cvy_model_options model = cvy_model_options_make(CLASSES, SIZE);
    const struct cvy_memory_case run = training(&model, 8);
    int64_t batch;

    must(cvy_memory_largest_batch(&run, SIZE_MAX, 0.8, 100, &batch));
    assert_int_equal(batch, 96);
    must(cvy_memory_largest_batch(&run, (size_t)1 << 20, 1, 256, &batch));
    assert_int_equal(batch, 0);
}

/* One sentence: what is needed, what there is, what would fit. */
static void refusal(void **state)
{
    const struct cvy_model_options model = cvy_model_options_make(CLASSES, SIZE);
    const struct cvy_memory_case run = training(&model, 256);
    struct cvy_memory_case one = training(&model, 1); /* too small: a batch norm over one value */
    struct cvy_memory_estimate estimate;
    char needed[32], advice[64];

    assert_int_equal(cvy_memory_check(&run, need(&run, 256), &estimate), CVY_OK);
    assert_int_equal(cvy_memory_check(&run, SIZE_MAX, &estimate), CVY_OK);
    assert_int_equal(cvy_memory_check(&run, need(&run, 48), &estimate), CVY_NO_MEMORY);
    assert_true(estimate.total > 0);
    (void)cvy_memory_text(estimate.total, needed);
    assert_error(needed);
    assert_error("resnet18");
    snprintf(advice, sizeof advice, "the largest batch that fits is 48");
    assert_error(advice);
    assert_fails(cvy_memory_check(&run, 0, &estimate), CVY_NO_MEMORY, "no batch fits");
    assert_int_equal(cvy_memory_check(&one, SIZE_MAX, &estimate), CVY_USAGE);
    one.batch = INT64_MAX / 2; /* cannot even be counted */
    assert_int_not_equal(cvy_memory_check(&one, SIZE_MAX, &estimate), CVY_OK);
}

static void inference(void **state)
{
    const struct cvy_model_options model = cvy_model_options_make(CLASSES, SIZE);
    struct cvy_memory_case run = training(&model, 1);
    size_t first, later;

    run.training = false;
    run.evaluation_batch = 0;
    first = need(&run, 1);
    run.loaded = true; /* the parameters are there already */
    later = need(&run, 1);
    assert_true(first - later > (size_t)44000000 && first - later < (size_t)46000000); /* 11.2 million floats */
}

/* A network in integers: what is estimated is what its plan takes, a third of that in floats. */
static void integers(void **state)
{
    struct cvy_model_options model = cvy_model_options_make(CLASSES, SIZE);
    struct cvy_memory_case run = training(&model, BATCH);
    struct cvy_memory_estimate floats, bytes;
    struct cvy_network network;
    struct cvy_evaluator evaluator;

    model.quantize = CVY_QUANTIZE_CHANNELS;
    run.training = false;
    run.evaluation_batch = 0;
    must(cvy_network_open(&network, device, run.architecture, &model, CVY_F32, false));
    set_quantizer_ranges(&network.table, network.store.state);
    must(cvy_memory_estimate(&run, &floats));
    run.int8_state = network.store.state;
    must(cvy_memory_estimate(&run, &bytes));
    assert_true(3 * bytes.plan < floats.plan);
    network.int8 = true;
    must(cvy_evaluator_open(&evaluator, &network, BATCH));
    assert_true(cvy_plan_bytes(cvy_evaluator_plan(&evaluator)) == bytes.plan);
    cvy_evaluator_close(&evaluator);
    cvy_network_close(&network);
}

static void texts(void **state)
{
    char text[32];

    assert_string_equal(cvy_memory_text((size_t)812 << 20, text), "812 MiB");
    assert_string_equal(cvy_memory_text((size_t)1536 << 20, text), "1.5 GiB");
}

static int open_device(void **state)
{
    struct cvy_rng rng = cvy_rng_new(5, CVY_RNG_BENCH, 0, 0);

    for (size_t i = 0; i < sizeof images; i++)
        images[i] = (uint8_t)cvy_rng_below(&rng, 256);
    /* What a batch needs must not depend on what this machine found fastest for another one. */
    setenv("CONVOY_KERNELS", "first", 1);
    return cvy_device_open("cpu", 1, &device) == CVY_OK ? 0 : 1;
}

static int close_device(void **state)
{
    cvy_device_close(device);
    return 0;
}

RUN_TESTS(open_device, close_device, TEST(shared_workspace), TEST(largest_batch), TEST(no_limit_and_no_capacity),
          TEST(refusal), TEST(inference), TEST(integers), TEST(texts))
