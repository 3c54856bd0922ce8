/* A convolution with its batch norm folded into weights that are rounded: forward and backward, beside the batch norm
 * that it is as long as nothing is rounded, and beside finite differences. With rounding: tests/parity/quantize.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "ops/ops.h"
#include "support_gradients.h"
#include "support_graph.h"

enum { BATCH = 3, CHANNELS = 4, FREEZE = 7 };

struct layer {
    struct cvy_graph graph;
    cvy_val y, loss, seed, target;
    int32_t forward; /* nodes of the forward part */
};

/* Ranges are looked at, and nothing is rounded for a thousand batches. */
static const struct cvy_fake_quantize_attr form = {.ends = true, .delay = 1000};

/* A convolution with stride and groups, its batch norm (*y), and a layer after it, which makes the logits. */
static cvy_val body(struct cvy_graph *g, cvy_val *y)
{
    cvy_val x = cvy_graph_input(g, "x", CVY_F32, cvy_shape4(CVY_BATCH, 2, 5, 4), false);

    cvy_scope_push(g, "conv");
    x = cvy_conv2d(g, x, &(struct cvy_conv2d){.out = CHANNELS, .kernel = 3, .stride = 2, .pad = 1, .groups = 2});
    cvy_scope_pop(g);
    cvy_scope_push(g, "bn");
    *y = cvy_batch_norm(g, x, &(struct cvy_batch_norm){.eps = 0.25F, .momentum = 0.3F});
    cvy_scope_pop(g);
    cvy_scope_push(g, "head");
    x = cvy_conv2d(g, cvy_sigmoid(g, *y), &(struct cvy_conv2d){.out = CHANNELS, .kernel = 2});
    cvy_scope_pop(g);
    return cvy_global_avg_pool(g, x);
}

static void build(struct layer *layer, bool fold)
{
    struct cvy_graph *g = &layer->graph;
    cvy_val logits;

    cvy_graph_init(g, true);
    logits = body(g, &layer->y);
    layer->target = cvy_graph_input(g, "target", CVY_F32, cvy_shape2(CVY_BATCH, CHANNELS), false);
    layer->loss = cvy_softmax_cross_entropy(g, logits, layer->target, 0);
    layer->seed = cvy_graph_input(g, "seed", CVY_F32, cvy_shape0(), false);
    cvy_graph_result(g, CVY_RESULT_NAMED, "loss", -1, layer->loss);
    if (fold) {
        cvy_rewrite_fold(g, &form, FREEZE);
        cvy_rewrite_quantize(g, &form);
    }
    layer->forward = g->node_count;
    cvy_graph_backward(g, cvy_ops, layer->loss, layer->seed);
    check_graph(g);
    gradient_to_double(g);
}

static cvy_val param_value(const struct cvy_graph *g, const char *name)
{
    const int32_t param = cvy_graph_find_param(g, name);

    assert_true(param >= 0);
    return g->params[param].value;
}

/* Numbers that depend on the name alone. */
static void fill(struct executor *executor, const struct layer *layer, double batches)
{
    const struct cvy_graph *g = &layer->graph;

    for (cvy_val v = 0; v < executor->value_count; v++) {
        const struct cvy_value *value = &g->values[v];
        const char *name = value->param >= 0 ? g->params[value->param].name : "";
        struct cvy_rng rng = cvy_rng_new(5, CVY_RNG_TEST, 0, 0);

        if (value->producer >= 0)
            continue;
        for (const char *c = name; *c; c++)
            rng = cvy_rng_new(5, CVY_RNG_TEST, (uint32_t)*c, cvy_rng_u32(&rng));
        if (strstr(name, "observed"))
            executor_write(executor, v, (double[]){-1, 1, batches});
        else
            gradient_write_random(executor, v, &rng, strstr(name, "running_var") || v == layer->target ? 0.3 : -1.5, 2);
    }
    executor_write(executor, layer->seed, (double[]){1.25});
}

static double *read(const struct executor *executor, cvy_val value)
{
    double *numbers = malloc((size_t)executor_elements(executor, value) * sizeof *numbers);

    assert_non_null(numbers);
    executor_read(executor, value, numbers);
    return numbers;
}

static void compare(const struct executor *a, cvy_val av, const struct executor *b, cvy_val bv)
{
    double *left = read(a, av), *right = read(b, bv);

    assert_int_equal(executor_elements(a, av), executor_elements(b, bv));
    executor_same(left, right, (size_t)executor_elements(a, av), 1e-11); /* doubles: some dozens of roundings */
    free(left);
    free(right);
}

static cvy_val state_result(const struct cvy_graph *g, const char *name)
{
    const int32_t param = cvy_graph_find_param(g, name);

    for (int32_t r = 0; r < g->result_count; r++) {
        if (g->results[r].kind == CVY_RESULT_STATE && g->results[r].param == param)
            return g->results[r].value;
    }
    return CVY_NONE;
}

static const char *const trainable[] = {"conv.weight", "bn.weight", "bn.bias"};
static const char *const statistics[] = {"bn.running_mean", "bn.running_var"};

/* Nothing is rounded: the layer is its batch norm, and so are all gradients and the new statistics. */
static void without_rounding_it_is_the_batch_norm(void **state)
{
    struct layer plain, folded;
    struct executor a, b;

    build(&plain, false);
    build(&folded, true);
    executor_open(&a, *state, &plain.graph, BATCH);
    executor_open(&b, *state, &folded.graph, BATCH);
    fill(&a, &plain, 0);
    fill(&b, &folded, 0);
    executor_run(&a, 0, plain.graph.node_count);
    executor_run(&b, 0, folded.graph.node_count);
    compare(&a, plain.y, &b, folded.y);
    compare(&a, plain.loss, &b, folded.loss);
    for (int i = 0; i < 3; i++)
        compare(&a, gradient_of(&plain.graph, trainable[i]), &b, gradient_of(&folded.graph, trainable[i]));
    for (int i = 0; i < 2; i++)
        compare(&a, state_result(&plain.graph, statistics[i]), &b, state_result(&folded.graph, statistics[i]));
    executor_close(&a);
    executor_close(&b);
    cvy_graph_release(&plain.graph);
    cvy_graph_release(&folded.graph);
}

/* Finite differences, before and after the running statistics are frozen; after it they stay, and what the layer gives
 * is what inference gives. */
static void gradients_are_those_of_differences(void **state)
{
    static const double projection[] = {1.25};

    for (int frozen = 0; frozen < 2; frozen++) {
        struct layer layer;
        struct executor executor;

        build(&layer, true);
        executor_open(&executor, *state, &layer.graph, BATCH);
        fill(&executor, &layer, frozen ? FREEZE : FREEZE - 1);
        executor_run(&executor, 0, layer.graph.node_count);
        for (int i = 0; i < 3; i++) {
            const struct gradient_objective f = {&executor, layer.forward, layer.loss, projection};
            double *gradient = read(&executor, gradient_of(&layer.graph, trainable[i]));
            gradient_check(&f, trainable[i], param_value(&layer.graph, trainable[i]), gradient);
            free(gradient);
        }
        for (int i = 0; i < 2; i++) {
            const cvy_val old = param_value(&layer.graph, statistics[i]);
            double *before = read(&executor, old), *after = read(&executor, state_result(&layer.graph, statistics[i]));
            assert_int_equal(memcmp(before, after, CHANNELS * sizeof *before) == 0, frozen);
            free(before);
            free(after);
        }
        executor_close(&executor);
        cvy_graph_release(&layer.graph);
    }
}

static void frozen_statistics_give_what_inference_gives(void **state)
{
    struct layer training, inference;
    struct cvy_graph *g = &inference.graph;
    struct executor a, b;

    build(&training, true);
    cvy_graph_init(g, false);
    cvy_graph_result(g, CVY_RESULT_NAMED, "logits", -1, body(g, &inference.y));
    cvy_graph_result(g, CVY_RESULT_NAMED, "y", -1, inference.y);
    inference.target = CVY_NONE;
    inference.seed = cvy_graph_input(g, "seed", CVY_F32, cvy_shape0(), false);
    cvy_rewrite_fold(g, &form, FREEZE);
    cvy_rewrite_quantize(g, &form);
    check_graph(g);
    gradient_to_double(g);
    executor_open(&a, *state, &training.graph, BATCH);
    executor_open(&b, *state, g, BATCH);
    fill(&a, &training, FREEZE);
    fill(&b, &inference, FREEZE);
    executor_run(&a, 0, training.forward);
    executor_run(&b, 0, g->node_count);
    compare(&a, training.y, &b, g->results[1].value);
    /* The same parameters in the same order: plans of both share a store. */
    assert_int_equal(training.graph.param_count, g->param_count);
    for (int32_t p = 0; p < g->param_count; p++)
        assert_string_equal(training.graph.params[p].name, g->params[p].name);
    executor_close(&a);
    executor_close(&b);
    cvy_graph_release(&training.graph);
    cvy_graph_release(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_rounding_it_is_the_batch_norm),
        cmocka_unit_test(gradients_are_those_of_differences),
        cmocka_unit_test(frozen_statistics_give_what_inference_gives),
    };

    return cmocka_run_group_tests(tests, gradient_setup, gradient_teardown);
}
