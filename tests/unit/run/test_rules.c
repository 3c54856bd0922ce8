/* The rules around a step: what decays, when an epoch is the best, when patience ends, what a checkpoint keeps of the
 * optimizer and of the moving average. */
#include <math.h>

#include "formats/weights/safetensors.h"
#include "run/setup/stages.h"
#include "run/training/training.h"
#include "support_test.h"

/* ---- weight decay ---- */

static int count_exempt(const char *arch, enum cvy_decay_rule rule)
{
    const struct cvy_model_options model = cvy_model_options_make(1000, 224);
    struct cvy_graph graph;
    int exempt = 0;

    assert_int_equal(cvy_model_graph(cvy_architecture_find(arch), &model, CVY_MODEL_INFER, false, &graph), CVY_OK);
    for (int32_t i = 0; i < graph.param_count; i++)
        exempt += graph.params[i].kind == CVY_PARAM_TRAINABLE && cvy_decay_exempt(&graph, i, rule);
    cvy_graph_release(&graph);
    return exempt;
}

static void what_decays(void **state)
{
    static const struct {
        const char *name;
        int resnet50, se_resnext101;
    } rows[] = {
        {"name", 98, 200},
        {"exact", 106, 208},   /* the batch norms of four projections too */
        {"weights", 107, 275}, /* and the bias of fc, those of 33 squeezes and excitations */
        {"all", 0, 0},
    };
    enum cvy_decay_rule rule;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_true(cvy_decay_rule_find(rows[i].name, &rule));
        assert_int_equal(count_exempt("resnet50", rule), rows[i].resnet50);
        assert_int_equal(count_exempt("se-resnext101-32x4d", rule), rows[i].se_resnext101);
    }
    assert_false(cvy_decay_rule_find("bn", &rule));
}

/* ---- batches ---- */

static void batches_of_validation(void **state)
{
    struct cvy_run_config config = {.accumulate = 8};
    struct cvy_train_options *o = &config.options;

    cvy_train_options_init(o);
    assert_int_equal(cvy_run_evaluation_batch(o), 256); /* as many as a step has */
    o->batch_size = 10;
    assert_int_equal(cvy_run_evaluation_batch(o), 32); /* but never few */
    o->evaluate = true;
    assert_int_equal(cvy_run_evaluation_batch(o), 32); /* nobody has said */
    assert_int_equal(cvy_train_options_set(o, "batch-size", "7", CVY_FROM_FLAG), CVY_OK);
    assert_int_equal(cvy_run_evaluation_batch(o), 7);
    o->evaluate = false;
    assert_int_equal(cvy_train_options_set(o, "arch", "ssd320", CVY_FROM_FLAG), CVY_OK);
    o->batch_size = 64;
    assert_int_equal(cvy_run_evaluation_batch(o), cvy_evaluation_batch(cvy_architecture_find("ssd320")));

    o->prof = 100; /* batches */
    assert_int_equal(cvy_run_prof_steps(&config), 12);
    o->prof = 3;
    assert_int_equal(cvy_run_prof_steps(&config), 1);
    o->prof = -1;
    assert_true(cvy_run_prof_steps(&config) <= 0);
}

/* ---- the best epoch ---- */

static struct cvy_run *new_run(void)
{
    struct cvy_run *run = calloc(1, sizeof *run);

    assert_non_null(run);
    run->config = run->resolving = &run->owned_config;
    cvy_train_options_init(&run->resolving->options);
    run->state.progress.best_epoch = -1;
    return run;
}

/* The end of an epoch with these accuracies; whether it is the best. */
static bool end_epoch(struct cvy_run *run, double top1, double average)
{
    const struct cvy_train_epoch epoch = {
        .validated = true,
        .averaged = true,
        .val = {.list = {{"top1", top1}}, .count = 1},
        .val_ema = {.list = {{"top1", average}}, .count = 1},
    };
    const bool best = cvy_run_update_best(run, &epoch);

    run->state.progress.epoch++;
    return best;
}

static void best_and_patience(void **state)
{
    struct cvy_run *run = new_run();

    run->resolving->options.early_stopping = 2;
    run->resolving->options.early_stopping_min_delta = 1;
    assert_true(end_epoch(run, 0, 9)); /* the first one, whatever it says */
    assert_true(end_epoch(run, 50, 8));
    assert_true(end_epoch(run, 50.5, 7)); /* better, but not by 1 */
    assert_int_equal(run->state.progress.stale_epochs, 1);
    assert_false(cvy_run_early_stop(run));
    assert_true(end_epoch(run, 51.25, 6)); /* than 50 */
    assert_int_equal(run->state.progress.stale_epochs, 0);
    assert_false(end_epoch(run, 51.25, 5)); /* strictly better */
    assert_false(cvy_run_early_stop(run));
    assert_false(end_epoch(run, 40, 4));
    assert_true(cvy_run_early_stop(run));
    assert_int_equal(run->state.progress.best_epoch, 3);
    assert_true(run->state.progress.best_score == 51.25);
    run->resolving->options.early_stopping = -1;
    assert_false(cvy_run_early_stop(run));
    free(run);
}

/* Weights that are NaN hit the first class; that says nothing of them. */
static void best_is_finite(void **state)
{
    struct cvy_run *run = new_run();
    const struct cvy_train_epoch diverged = {.validated = true,
                                             .val = {.list = {{"top1", 70}, {"loss", NAN}}, .count = 2}};

    assert_false(cvy_run_update_best(run, &diverged));
    assert_int_equal(run->state.progress.best_epoch, -1);
    assert_int_equal(run->state.progress.stale_epochs, 1);
    assert_true(end_epoch(run, 60, 0));
    assert_false(cvy_run_update_best(run, &diverged));
    assert_true(run->state.progress.best_score == 60);
    assert_int_equal(run->state.progress.stale_epochs, 1);
    free(run);
}

static void best_by_average(void **state)
{
    struct cvy_run *run = new_run();
    const struct cvy_train_epoch unseen = {.validated = false};

    run->resolving->best_is_average = true;
    assert_true(end_epoch(run, 50, 10));
    assert_true(end_epoch(run, 40, 20));
    assert_false(end_epoch(run, 60, 15));
    assert_true(run->state.progress.best_score == 20);
    assert_false(cvy_run_update_best(run, &unseen)); /* --training-only */
    assert_int_equal(run->state.progress.stale_epochs, 1);
    free(run);
}

/* ---- the moving average ---- */

static struct cvy_optimizer_options optimizer_of(struct cvy_run *run, int batch, int accumulate, int world)
{
    struct cvy_optimizer_options options;

    run->resolving->options.batch_size = batch;
    run->resolving->accumulate = accumulate;
    run->ranks.comm.world = world;
    assert_int_equal(cvy_run_optimizer(run, CVY_F32, &options), CVY_OK);
    return options;
}

/* By the rule of the step it depends on the images of a step alone, and is torchvision's number: its program moves an
 * average of 600 epochs of steps of 1024 images by 2e-5 * 1024 * 32 / 600 after every 32nd step. */
static void decay_of_the_average(void **state)
{
    struct cvy_run *run = new_run();
    struct cvy_train_options *o = &run->resolving->options;

    o->use_ema = 0.99998;
    o->epochs = 600;
    assert_true(optimizer_of(run, 128, 8, 1).average_decay == 0.99998);
    assert_false(optimizer_of(run, 128, 8, 1).average_by_step);
    assert_int_equal(cvy_train_options_set(o, "ema-rule", "step", CVY_FROM_FLAG), CVY_OK);
    for (int world = 1; world <= 8; world *= 2) {
        const struct cvy_optimizer_options options = optimizer_of(run, 128, 8 / world, world);

        assert_true(options.average_by_step);
        assert_true(fabs(32 * (1 - options.average_decay) - 2e-5 * 1024 * 32 / 600) < 1e-12);
    }
    o->use_ema = 0.5; /* more than everything is everything */
    o->epochs = 1;
    assert_true(optimizer_of(run, 128, 8, 1).average_decay > 0);
    assert_true(optimizer_of(run, 128, 8, 1).average_decay < 1e-300);
    o->use_ema = 0;
    assert_true(optimizer_of(run, 128, 8, 1).average_decay == 0);
    free(run);
}

/* ---- what continues ---- */

static void open_network(cvy_device *device, struct cvy_network *network, int extras, bool average)
{
    const struct cvy_model_options model = cvy_model_options_make(3, 32);

    assert_int_equal(cvy_network_open(network, device, cvy_architecture_find("resnet18"), &model, CVY_F32, true),
                     CVY_OK);
    assert_int_equal(cvy_network_extend(network, extras, average), CVY_OK);
    assert_int_equal(cvy_network_extend(network, extras, average), CVY_OK); /* stays as it is */
}

static void fill(float *values, int64_t count, float start)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = start + (float)i;
}

/* Weight decay as a term of the loss, beside a sum by hand; what is exempt does not count. */
static void l2_loss(void **unused)
{
    const struct cvy_optimizer_options options = {.weight_decay = 1e-3F, .decay_rule = CVY_DECAY_WEIGHTS};
    struct cvy_optimizer optimizer;
    struct cvy_network network;
    cvy_device *device;
    double sum = 0, loss;

    assert_int_equal(cvy_device_open("cpu", 1, &device), CVY_OK);
    open_network(device, &network, 0, false);
    assert_int_equal(cvy_optimizer_open(&optimizer, &network.table, &options), CVY_OK);
    for (int64_t i = 0; i < network.store.trainable_elements; i++)
        network.store.weights[i] = (float)(i % 7 - 3);
    for (int32_t k = 0; k < network.table.param_count; k++) {
        const struct cvy_param *param = &network.table.params[k];

        for (int64_t i = 0; param->shape.rank >= 2 && i < cvy_shape_elements(&param->shape); i++)
            sum += pow((double)network.store.weights[param->offset + i], 2);
    }
    assert_int_equal(cvy_optimizer_l2_loss(&optimizer, &network.store, &loss), CVY_OK);
    assert_true(fabs(loss - (double)1e-3F / 2 * sum) < 1e-9 * sum);
    cvy_optimizer_close(&optimizer);
    cvy_network_close(&network);
    cvy_device_close(device);
}

static void training_round_trip(void **unused)
{
    struct cvy_network a, b, plain;
    struct cvy_weights_view view = {0};
    struct cvy_tensor_file file = {0};
    char path[] = "/tmp/convoy-rules.XXXXXX";
    const int descriptor = mkstemp(path);
    cvy_device *device;
    size_t trainable, states;
    bool averaged;

    assert_true(descriptor >= 0);
    close(descriptor);
    assert_int_equal(cvy_device_open("cpu", 1, &device), CVY_OK);
    open_network(device, &a, CVY_EXTRA_SQUARE_AVERAGE | CVY_EXTRA_GRADIENT_SUM, true);
    open_network(device, &b, CVY_EXTRA_SQUARE_AVERAGE, true);
    open_network(device, &plain, 0, true);
    assert_null(b.store.gradient_sum);
    trainable = (size_t)a.store.trainable_elements;
    states = (size_t)a.store.state_elements;
    fill(a.store.momentum, a.store.trainable_elements, 1);
    fill(a.store.square_average, a.store.trainable_elements, 2);
    fill(a.average.weights, a.store.trainable_elements, 3);
    fill(a.average.state, a.store.state_elements, 4);
    assert_int_equal(cvy_weights_collect(&a, CVY_PART_TRAINING, &view), CVY_OK);
    assert_int_equal(view.count, 122 + 62 + 62 + 102); /* weights; momentum; squares; average without counters */
    assert_int_equal(cvy_st_write(path, view.tensors, view.count, NULL, 0), CVY_OK);
    cvy_weights_view_release(&view);
    assert_int_equal(cvy_st_open(&file, path), CVY_OK);
    assert_int_equal(cvy_weights_load_training(&b, &file, path, &CVY_WEIGHTS_LOAD_DEFAULTS, &averaged), CVY_OK);
    assert_true(averaged);
    assert_memory_equal(a.store.momentum, b.store.momentum, trainable * sizeof(float));
    assert_memory_equal(a.store.square_average, b.store.square_average, trainable * sizeof(float));
    assert_memory_equal(a.average.weights, b.average.weights, trainable * sizeof(float));
    assert_memory_equal(a.average.state, b.average.state, states * sizeof(float));
    cvy_tensor_file_close(&file);

    /* The best weights may be the average, under bare names. */
    assert_int_equal(cvy_weights_collect(&a, CVY_PART_AVERAGE, &view), CVY_OK);
    assert_int_equal(view.count, 122);
    assert_string_equal(view.tensors[0].name, "conv1.weight");
    assert_true(((const float *)view.tensors[0].data)[1] == 4);
    cvy_weights_view_release(&view);

    /* A run without either: an average is optional, squares are required. */
    cvy_store_close(&plain.average);
    assert_int_equal(cvy_weights_collect(&plain, CVY_PART_TRAINING, &view), CVY_OK);
    assert_int_equal(cvy_st_write(path, view.tensors, view.count, NULL, 0), CVY_OK);
    cvy_weights_view_release(&view);
    assert_int_equal(cvy_st_open(&file, path), CVY_OK);
    assert_fails(cvy_weights_load_training(&b, &file, path, &CVY_WEIGHTS_LOAD_DEFAULTS, &averaged), CVY_BAD_DATA,
                 "optimizer.square_avg.conv1.weight");
    assert_int_equal(cvy_network_extend(&plain, 0, true), CVY_OK);
    assert_int_equal(cvy_weights_load_training(&plain, &file, path, &CVY_WEIGHTS_LOAD_DEFAULTS, &averaged), CVY_OK);
    assert_false(averaged);
    cvy_tensor_file_close(&file);
    cvy_network_close(&a);
    cvy_network_close(&b);
    cvy_network_close(&plain);
    cvy_device_close(device);
    unlink(path);
}

RUN_TESTS(NULL, NULL, TEST(what_decays), TEST(batches_of_validation), TEST(best_and_patience), TEST(best_is_finite),
          TEST(best_by_average), TEST(decay_of_the_average), TEST(l2_loss), TEST(training_round_trip))
