/* Frozen layers: which parameters a prefix names, and what is left of the backward pass. */
#include "backend/plan.h"
#include "models/models.h"
#include "ops/ops.h"
#include "support_graph.h"
#include "support_test.h"

static const struct cvy_init zero = {CVY_INIT_ZERO, 0};

static enum cvy_param_kind kind_of(const struct cvy_graph *graph, const char *name)
{
    const int32_t param = cvy_graph_find_param(graph, name);

    if (param < 0)
        fail_msg("there is no %s", name);
    return graph->params[param].kind;
}

static void prefixes_end_at_dots(void **state)
{
    static const struct {
        const char *name;
        bool frozen;
    } names[] = {
        {"layer1.0.conv1.weight", true},
        {"layer1.bias", true},
        {"layer1", true},
        {"layer10.conv1.weight", false},
        {"layer1x", false},
        {"layer", false},
        {"my.layer1", false},
        {"fc.bias", true},
        {"fc.weight", false},
        {"fc.bias2", false},
    };
    struct cvy_graph g;

    cvy_graph_init(&g, true);
    g.freeze = "layer1,fc.bias";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        (void)cvy_graph_param(&g, names[i].name, CVY_PARAM_TRAINABLE, cvy_shape1(3), zero);
        assert_int_equal(kind_of(&g, names[i].name), names[i].frozen ? CVY_PARAM_FROZEN : CVY_PARAM_TRAINABLE);
    }
    /* Other kinds stay what they are. */
    (void)cvy_graph_param(&g, "layer1.running_mean", CVY_PARAM_STATE, cvy_shape1(3), zero);
    assert_int_equal(kind_of(&g, "layer1.running_mean"), CVY_PARAM_STATE);
    (void)cvy_graph_param(&g, "layer1.steps", CVY_PARAM_COUNTER, cvy_shape0(), zero);
    assert_int_equal(kind_of(&g, "layer1.steps"), CVY_PARAM_COUNTER);
    check_graph(&g);
    assert_int_equal(g.trainable_elements, 3 * 6);
    assert_int_equal(g.state_elements, 3 * 5);
    /* Shared as what it has become. */
    assert_true(cvy_graph_param(&g, "layer1.bias", CVY_PARAM_TRAINABLE, cvy_shape1(3), zero) != CVY_NONE);
    assert_int_equal(g.state_elements, 3 * 5);
    cvy_graph_release(&g);
}

static void odd_lists_name_nothing(void **state)
{
    static const char *const lists[] = {"", ",", ",,", "a.", ".a", " a"};

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        struct cvy_graph g;

        cvy_graph_init(&g, true);
        g.freeze = lists[i];
        (void)cvy_graph_param(&g, "a.b", CVY_PARAM_TRAINABLE, cvy_shape1(3), zero);
        assert_int_equal(g.params[0].kind, CVY_PARAM_TRAINABLE);
        cvy_graph_release(&g);
    }
}

/* ---- what training does with a network ---- */

static void build(struct cvy_graph *graph, const char *freeze, bool fuse)
{
    const struct cvy_model_options options = {
        .num_classes = 10, .image_size = 64, .mean = {1, 2, 3}, .std = {4, 5, 6}, .freeze = freeze};

    if (cvy_model_graph(cvy_architecture_find("resnet18"), &options, CVY_MODEL_TRAIN, fuse, graph) != CVY_OK)
        fail_msg("%s", cvy_error());
    check_graph(graph);
    for (int32_t p = 0; p < graph->param_count; p++) {
        const struct cvy_param *param = &graph->params[p];
        const bool trained = param->kind == CVY_PARAM_TRAINABLE;
        assert_int_equal(gradient_of(graph, param->name) != CVY_NONE, trained);
    }
}

/* One row for each way to freeze resnet18, which has 20 convolutions and 20 batch norms: 1 and 4 in the stem and
 * layer1, 5 in each other layer. */
static void only_what_is_needed_runs_backward(void **state)
{
    static const struct {
        const char *freeze;
        int32_t weights, data, norms, norms_backward, folded, inference, inference_backward, masks, pools, fc_data;
    } cases[] = {
        {NULL, 20, 19, 20, 20, 0, 0, 0, 0, 1, 1},
        /* Nothing below the first trained layer: its two convolutions at the input need no gradient of x. */
        {"conv1,bn1,layer1,layer2", 10, 8, 10, 10, 10, 0, 0, 0, 0, 1},
        {"conv1,bn1,layer1,layer2,layer3,layer4", 0, 0, 0, 0, 20, 0, 0, 0, 0, 0},
        /* In the middle the gradient passes through: no gradients of weights, but of what they read. Four ReLUs. */
        {"layer3", 15, 19, 15, 15, 5, 0, 0, 4, 1, 1},
        /* Without their convolution, batch norms keep the form of inference; both ReLUs are theirs. */
        {"layer2.0.bn1,layer2.1.bn2", 20, 19, 18, 18, 0, 2, 2, 2, 1, 1},
        /* Without its batch norm, a convolution gets no gradient, and the rest stays. */
        {"conv1", 19, 19, 20, 20, 0, 0, 0, 0, 1, 1},
        {"layer1.0.conv1,layer1.0.bn1.weight", 19, 19, 20, 20, 0, 0, 0, 0, 1, 1},
        {"fc", 20, 19, 20, 20, 0, 0, 0, 0, 1, 1},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cvy_graph g;

        build(&g, cases[i].freeze, true);
        assert_int_equal(count_nodes(&g, CVY_OP_CONV2D_BWD_WEIGHTS), cases[i].weights);
        assert_int_equal(count_nodes(&g, CVY_OP_CONV2D_BWD_DATA), cases[i].data);
        assert_int_equal(count_nodes(&g, CVY_OP_BATCH_NORM), cases[i].norms);
        assert_int_equal(count_nodes(&g, CVY_OP_BATCH_NORM_BWD), cases[i].norms_backward);
        assert_int_equal(count_nodes(&g, CVY_OP_FOLD_BATCH_NORM), cases[i].folded);
        assert_int_equal(count_nodes(&g, CVY_OP_BATCH_NORM_INFERENCE), cases[i].inference);
        assert_int_equal(count_nodes(&g, CVY_OP_BATCH_NORM_INFERENCE_BWD), cases[i].inference_backward);
        assert_int_equal(count_nodes(&g, CVY_OP_RELU_BWD), cases[i].masks);
        assert_int_equal(count_nodes(&g, CVY_OP_MAX_POOL_BWD), cases[i].pools);
        assert_int_equal(count_nodes(&g, CVY_OP_LINEAR_BWD_DATA), cases[i].fc_data);
        assert_int_equal(count_nodes(&g, CVY_OP_RELU), 0);
        cvy_graph_release(&g);
    }
}

/* A frozen part is the same nodes in training as in inference. */
static void frozen_layers_look_as_in_inference(void **state)
{
    const struct cvy_model_options options = {.num_classes = 10, .image_size = 64, .std = {1, 1, 1}};
    struct cvy_graph train, infer;
    int32_t same = 0;

    build(&train, "conv1,bn1,layer1,layer2,layer3", true);
    assert_int_equal(cvy_model_graph(cvy_architecture_find("resnet18"), &options, CVY_MODEL_INFER, true, &infer),
                     CVY_OK);
    for (int32_t n = 0; n < infer.node_count && strncmp(infer.nodes[n].scope, "layer4", 6) != 0; n++, same++) {
        const struct cvy_node *a = &infer.nodes[n], *b = &train.nodes[n];

        assert_string_equal(a->scope, b->scope);
        assert_int_equal(a->op, b->op);
        assert_int_equal(a->attr.conv2d.activation, b->attr.conv2d.activation);
        assert_int_equal(a->inputs, b->inputs);
    }
    assert_int_equal(same, 2 + 15 + 15); /* normalisation and pool, convolutions, folded batch norms */
    cvy_graph_release(&train);
    cvy_graph_release(&infer);
}

static void counters_of_frozen_batch_norms_stand_still(void **state)
{
    struct cvy_graph g;

    build(&g, "bn1,layer2", false);
    for (int32_t p = 0; p < g.param_count; p++) {
        const struct cvy_param *param = &g.params[p];
        const bool frozen = cvy_name_under(param->name, "bn1", 3) || cvy_name_under(param->name, "layer2", 6);

        if (param->kind == CVY_PARAM_COUNTER)
            assert_int_equal(param->uses, !frozen);
    }
    cvy_graph_release(&g);
    /* Shared: it would count twice. */
    for (int frozen = 0; frozen < 2; frozen++) {
        cvy_val x = start_graph(&g, true, 4, 3, 3);

        g.freeze = frozen ? "bn" : NULL;
        cvy_scope_push(&g, "bn");
        x = cvy_batch_norm(&g, cvy_batch_norm(&g, x, &(struct cvy_batch_norm){0}), &(struct cvy_batch_norm){0});
        cvy_scope_pop(&g);
        check_graph(&g);
        assert_int_equal(g.params[cvy_graph_find_param(&g, "bn.num_batches_tracked")].uses, frozen ? 0 : 2);
        assert_int_equal(g.result_count, frozen ? 0 : 2);
        cvy_graph_release(&g);
    }
}

/* ---- the plan ---- */

static void plan_of(struct cvy_plan *plan, cvy_device *device, const char *freeze)
{
    struct cvy_graph graph;

    build(&graph, freeze, true);
    if (cvy_plan_open(plan, device, NULL, &graph, 64) != CVY_OK)
        fail_msg("%s", cvy_error());
}

/* Tensors of whole batches that the forward pass makes in the stem and the first two layers for the backward pass. */
static int32_t kept_of_frozen(const struct cvy_plan *plan)
{
    int32_t count = 0;

    for (int32_t t = 0; t < plan->tensor_count; t++) {
        const struct cvy_plan_tensor *tensor = &plan->tensors[t];
        const struct cvy_plan_step *maker = tensor->first >= 0 ? &plan->steps[tensor->first] : NULL;

        if (!maker || tensor->storage != CVY_STORE_ACTIVATION || tensor->alias >= 0 || maker->backward || maker->setup)
            continue;
        if (tensor->tensor.shape.rank == 4 && tensor->tensor.shape.dim[0] == 64 &&
            strncmp(maker->scope, "layer3", 6) < 0 && tensor->last < plan->step_count)
            count += plan->steps[tensor->last].backward;
    }
    return count;
}

/* Folding happens once, and the activations below the first trained layer are not kept. */
static void frozen_layers_cost_less(void **state)
{
    struct cvy_plan all, upper;
    cvy_device *device;

    assert_int_equal(cvy_device_open("cpu", 1, &device), CVY_OK);
    plan_of(&all, device, NULL);
    plan_of(&upper, device, "conv1,bn1,layer1,layer2");
    for (int32_t s = 0; s < all.step_count; s++)
        assert_false(all.steps[s].setup);
    for (int32_t s = 0; s < upper.step_count; s++) {
        const struct cvy_plan_step *step = &upper.steps[s];

        if (step->desc.op == CVY_OP_FOLD_BATCH_NORM)
            assert_true(step->setup);
        if (step->desc.op == CVY_OP_CONV2D)
            assert_int_equal(step->desc.inference, strncmp(step->scope, "layer3", 6) < 0);
        assert_false(step->setup && (step->backward || step->scope[0] == '\0'));
    }
    assert_true(kept_of_frozen(&all) > 9);       /* each convolution's output at least */
    assert_int_equal(kept_of_frozen(&upper), 1); /* what the first trained layer reads */
    assert_true(upper.activation_bytes < all.activation_bytes);
    cvy_plan_close(&all);
    cvy_plan_close(&upper);
    cvy_device_close(device);
}

RUN_TESTS(NULL, NULL, TEST(prefixes_end_at_dots), TEST(odd_lists_name_nothing), TEST(only_what_is_needed_runs_backward),
          TEST(frozen_layers_look_as_in_inference), TEST(counters_of_frozen_batch_norms_stand_still),
          TEST(frozen_layers_cost_less))
