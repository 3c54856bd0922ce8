/* Training with frozen layers and a classifier with a learning rate of its own: what moves, what stays, what is kept in
 * a checkpoint. */
#include "base/rng.h"
#include "formats/weights/safetensors.h"
#include "support_test.h"
#include "trainer/trainer.h"
#include "weights/weights.h"

enum { BATCH = 4, SIZE = 32, CLASSES = 5 };

static cvy_device *device;
static uint8_t images[BATCH * SIZE * SIZE * 3] __attribute__((aligned(64)));
static int32_t labels[BATCH] __attribute__((aligned(64))) = {0, 3, 1, 4};

static const struct cvy_optimizer_options sgd = {.momentum = 0.9f, .weight_decay = 1e-2f};

static void open_resnet(struct cvy_network *network, const char *freeze)
{
    struct cvy_model_options model = cvy_model_options_make(CLASSES, SIZE);

    model.freeze = freeze;
    if (cvy_network_open(network, device, cvy_architecture_find("resnet18"), &model, CVY_F32, true) != CVY_OK ||
        cvy_network_initialize(network, 3) != CVY_OK)
        fail_msg("%s", cvy_error());
    /* Statistics as after a training: not what they start with. */
    for (int32_t i = 0; i < network->table.param_count; i++) {
        const struct cvy_param *param = &network->table.params[i];
        const bool variance = strstr(param->name, "running_var") != NULL;

        for (int64_t k = 0; param->kind == CVY_PARAM_STATE && k < cvy_shape_elements(&param->shape); k++)
            network->store.state[param->offset + k] = variance ? 0.5f + 0.01f * (float)(k % 50) : 0.002f * (float)k;
        if (param->kind == CVY_PARAM_COUNTER)
            network->counters[param->offset] = 100;
    }
    network->store.version++;
}

static void take_steps(struct cvy_network *network, const struct cvy_optimizer_options *options, int steps)
{
    const struct cvy_batch batch = {.images = images, .labels = labels, .count = BATCH};
    struct cvy_trainer trainer;
    struct cvy_comm comm;

    cvy_comm_single(&comm);
    if (cvy_trainer_open(&trainer, network, &comm, options, BATCH) != CVY_OK)
        fail_msg("%s", cvy_error());
    for (int s = 0; s < steps; s++) {
        if (cvy_trainer_step(&trainer, &batch, 0.01) != CVY_OK)
            fail_msg("%s", cvy_error());
    }
    cvy_trainer_close(&trainer);
}

static const float *values_of(const struct cvy_network *network, const struct cvy_param *param)
{
    return (param->kind == CVY_PARAM_TRAINABLE ? network->store.weights : network->store.state) + param->offset;
}

static bool same_values(const struct cvy_network *a, const struct cvy_network *b, int32_t param)
{
    const struct cvy_param *p = &a->table.params[param], *q = &b->table.params[param];

    assert_string_equal(p->name, q->name);
    if (p->kind == CVY_PARAM_COUNTER)
        return a->counters[p->offset] == b->counters[q->offset];
    return memcmp(values_of(a, p), values_of(b, q), (size_t)cvy_shape_elements(&p->shape) * sizeof(float)) == 0;
}

static bool frozen_name(const char *name)
{
    return cvy_name_under(name, "conv1", 5) || cvy_name_under(name, "bn1", 3) || cvy_name_under(name, "layer2", 6);
}

static void frozen_tensors_stay_bit_for_bit(void **state)
{
    struct cvy_network before, after;
    int stayed = 0, moved = 0;

    open_resnet(&before, NULL);
    open_resnet(&after, "conv1,bn1,layer2");
    take_steps(&after, &sgd, 3);
    for (int32_t i = 0; i < before.table.param_count; i++) {
        const struct cvy_param *param = &before.table.params[i];
        const bool same = same_values(&before, &after, i);

        if (same != frozen_name(param->name))
            fail_msg("%s %s", param->name, same ? "has not moved" : "has moved");
        stayed += same;
        moved += !same;
    }
    /* Six tensors for each convolution with its batch norm: 6 of 20 pairs stay; the classifier has two. */
    assert_int_equal(stayed, 6 * 6);
    assert_int_equal(moved, 6 * 14 + 2);
    assert_true(cvy_network_parameters(&before) == cvy_network_parameters(&after));
    assert_true(cvy_network_frozen(&after) > 0 && cvy_network_frozen(&before) == 0);
    assert_true(cvy_network_frozen(&after) + after.store.trainable_elements == before.store.trainable_elements);
    cvy_network_close(&before);
    cvy_network_close(&after);
}

/* With everything but the classifier frozen, a training step computes the logits of inference, bit for bit: the same
 * nodes, the same kernels (main keeps Winograd's, which only inference uses, out of it). */
static void a_frozen_network_gives_what_it_gives_in_inference(void **state)
{
    float train[BATCH * CLASSES], infer[BATCH * CLASSES], scale = 1;
    struct cvy_network network;
    struct cvy_plan plan, inference;

    open_resnet(&network, "conv1,bn1,layer1,layer2,layer3,layer4");
    assert_int_equal(cvy_network_plan(&network, CVY_MODEL_TRAIN, BATCH, &plan), CVY_OK);
    assert_int_equal(cvy_network_plan(&network, CVY_MODEL_INFER, BATCH, &inference), CVY_OK);
    assert_int_equal(cvy_plan_bind(&plan, "image", images), CVY_OK);
    assert_int_equal(cvy_plan_bind(&plan, "target", labels), CVY_OK);
    assert_int_equal(cvy_plan_bind(&plan, "loss_scale", &scale), CVY_OK);
    assert_int_equal(cvy_plan_bind(&inference, "image", images), CVY_OK);
    for (int run = 0; run < 2; run++) { /* the second run takes what setup has made */
        assert_int_equal(cvy_plan_run(&plan, NULL), CVY_OK);
        assert_int_equal(cvy_plan_run(&inference, NULL), CVY_OK);
        assert_int_equal(cvy_plan_read(&plan, "logits", train, sizeof train), CVY_OK);
        assert_int_equal(cvy_plan_read(&inference, "logits", infer, sizeof infer), CVY_OK);
        assert_memory_equal(train, infer, sizeof train);
    }
    assert_int_equal(plan.ready_count, 2); /* gradients of fc.weight and fc.bias */
    cvy_plan_close(&plan);
    cvy_plan_close(&inference);
    cvy_network_close(&network);
}

/* ---- the optimizer ---- */

static void the_classifier_has_its_own_rate(void **state)
{
    struct cvy_optimizer_options options = sgd;
    struct cvy_network slow, fast;
    struct cvy_optimizer optimizer;
    int64_t next = 0;

    options.head_ratio = 10;
    open_resnet(&slow, NULL);
    open_resnet(&fast, NULL);
    assert_int_equal(cvy_optimizer_open(&optimizer, &fast.table, &options), CVY_OK);
    for (int32_t i = 0; i < optimizer.segment_count; i++) {
        const struct cvy_update_segment *segment = &optimizer.segments[i];
        assert_int_equal(segment->first, next);
        next += segment->count;
        assert_true(optimizer.segments[i].rate == (i == optimizer.segment_count - 1 ? 10 : 1));
    }
    assert_int_equal(next, fast.store.trainable_elements);
    assert_int_equal(optimizer.segments[optimizer.segment_count - 1].count, CLASSES * 512 + CLASSES);
    cvy_optimizer_close(&optimizer);

    /* One step from the same start: ten times as far in fc, the same in the rest. */
    take_steps(&slow, &sgd, 1);
    take_steps(&fast, &options, 1);
    for (int32_t i = 0; i < slow.table.param_count; i++)
        assert_int_equal(same_values(&slow, &fast, i), !cvy_is_head(slow.table.params[i].name));
    {
        const struct cvy_param *bias = &slow.table.params[cvy_graph_find_param(&slow.table, "fc.bias")];
        struct cvy_network start;

        open_resnet(&start, NULL);
        for (int32_t k = 0; k < CLASSES; k++) {
            const float from = values_of(&start, bias)[k];
            const float near = values_of(&slow, bias)[k] - from, far = values_of(&fast, bias)[k] - from;
            assert_true(near != 0);
            /* Both differences lose what the additions round off: 2^-24 of values below 0.1. */
            assert_true(fabsf(far - 10 * near) < 1e-7f);
        }
        cvy_network_close(&start);
    }
    cvy_network_close(&slow);
    cvy_network_close(&fast);
}

static void frozen_parameters_have_no_segment(void **state)
{
    struct cvy_optimizer_options options = sgd;
    struct cvy_optimizer optimizer;
    struct cvy_network network;
    int64_t elements = 0;

    options.head_ratio = 2;
    open_resnet(&network, "conv1,bn1,layer1,layer2,layer3,layer4");
    assert_int_equal(network.store.trainable_elements, CLASSES * 512 + CLASSES);
    assert_int_equal(cvy_optimizer_open(&optimizer, &network.table, &options), CVY_OK);
    for (int32_t i = 0; i < optimizer.segment_count; i++)
        elements += optimizer.segments[i].count;
    assert_int_equal(elements, network.store.trainable_elements);
    cvy_optimizer_close(&optimizer);
    cvy_network_close(&network);
}

/* ---- files ---- */

static void a_checkpoint_holds_no_momentum_of_what_is_frozen(void **state)
{
    static char path[] = "/tmp/convoy-finetune-XXXXXX";
    const struct cvy_weights_load_options all = CVY_WEIGHTS_LOAD_DEFAULTS;
    struct cvy_network network, plain, again;
    struct cvy_weights_view view = {0};
    struct cvy_tensor_file file;
    int handle = mkstemp(path);
    size_t momenta = 0;

    assert_true(handle >= 0);
    close(handle);
    open_resnet(&network, "conv1,bn1,layer2");
    open_resnet(&plain, NULL);
    open_resnet(&again, "conv1,bn1,layer2");
    take_steps(&network, &sgd, 2);
    assert_int_equal(cvy_weights_collect(&network, CVY_PART_TRAINING, &view), CVY_OK);
    assert_int_equal(cvy_st_write(path, view.tensors, view.count, NULL, 0), CVY_OK);
    /* The model's tensors in the same order as without --freeze: the table decides. */
    for (int32_t i = 0; i < plain.table.param_count; i++)
        assert_string_equal(view.tensors[i].name, plain.table.params[i].name);
    for (size_t i = 0; i < view.count; i++) {
        const char *name = view.tensors[i].name;
        if (strncmp(name, CVY_MOMENTUM_PREFIX, strlen(CVY_MOMENTUM_PREFIX)) != 0)
            continue;
        momenta++;
        assert_false(frozen_name(name + strlen(CVY_MOMENTUM_PREFIX)));
    }
    assert_int_equal(momenta, 3 * 14 + 2);
    cvy_weights_view_release(&view);

    assert_int_equal(cvy_weights_open(&file, path), CVY_OK);
    assert_int_equal(cvy_weights_load(&again, &file, path, &all), CVY_OK);
    assert_int_equal(cvy_weights_load_training(&again, &file, path, &CVY_WEIGHTS_LOAD_DEFAULTS, &(bool){false}),
                     CVY_OK);
    for (int32_t i = 0; i < network.table.param_count; i++)
        assert_true(same_values(&network, &again, i));
    assert_memory_equal(network.store.momentum, again.store.momentum, (size_t)again.store.trainable_elements * 4);
    /* To use, it is a file like any other; to go on without --freeze, momentum is missing. */
    assert_int_equal(cvy_weights_load(&plain, &file, path, &all), CVY_OK);
    for (int32_t i = 0; i < network.table.param_count; i++)
        assert_true(same_values(&network, &plain, i));
    assert_int_equal(cvy_weights_load_training(&plain, &file, path, &CVY_WEIGHTS_LOAD_DEFAULTS, &(bool){false}),
                     CVY_BAD_DATA);
    cvy_tensor_file_close(&file);
    unlink(path);
    cvy_network_close(&network);
    cvy_network_close(&plain);
    cvy_network_close(&again);
}

static void memory_that_fails_leaves_nothing(void **state)
{
    struct cvy_optimizer optimizer;
    struct cvy_network network;

    open_resnet(&network, "layer1");
    cvy_memory_fail_after(1, false);
    assert_int_equal(cvy_optimizer_open(&optimizer, &network.table, &sgd), CVY_NO_MEMORY);
    cvy_memory_fail_after(0, false);
    cvy_optimizer_close(&optimizer);
    cvy_network_close(&network);
}

static int set_up(void **state)
{
    struct cvy_rng rng = cvy_rng_new(4, CVY_RNG_TEST, 0, 0);

    for (size_t i = 0; i < sizeof images; i++)
        images[i] = (uint8_t)cvy_rng_below(&rng, 256);
    return cvy_device_open("cpu", 1, &device) == CVY_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    cvy_device_close(device);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frozen_tensors_stay_bit_for_bit),
        cmocka_unit_test(a_frozen_network_gives_what_it_gives_in_inference),
        cmocka_unit_test(the_classifier_has_its_own_rate),
        cmocka_unit_test(frozen_parameters_have_no_segment),
        cmocka_unit_test(a_checkpoint_holds_no_momentum_of_what_is_frozen),
        cmocka_unit_test(memory_that_fails_leaves_nothing),
    };
    if (setenv("CONVOY_CPU_WINOGRAD", "weights", 1) != 0)
        return 1;
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
