/* What of a network gets 8 bits, and the graphs that it is calibrated with. */
#include <stdio.h>
#include <string.h>

#include "infer/quantize/ptq.h"
#include "support_test.h"

static void open_table(struct cvy_network *network, const char *arch, int32_t side)
{
    *network = (struct cvy_network){.architecture = cvy_architecture_find(arch)};
    network->model = cvy_model_options_usual(network->architecture, 7, side);
    network->model.quantize = CVY_QUANTIZE_SYMMETRIC;
    assert_int_equal(cvy_model_graph(network->architecture, &network->model, CVY_MODEL_INFER, false, &network->table),
                     CVY_OK);
}

static const struct cvy_ptq_part *find(const struct cvy_ptq_parts *parts, const char *name)
{
    for (int32_t i = 0; i < parts->part_count; i++) {
        if (strcmp(parts->parts[i].name, name) == 0)
            return &parts->parts[i];
    }
    print_error("no part %s\n", name);
    fail();
    return NULL;
}

/* The name of the parameter that corrects the mean of the n-th node of a part. */
static const char *correction(const struct cvy_network *network, const struct cvy_ptq_parts *parts, const char *part,
                              int n, bool mean)
{
    const int32_t index = (int32_t)(find(parts, part) - parts->parts);

    for (int32_t i = 0; i < parts->node_count; i++) {
        if (parts->nodes[i].part == index && n-- == 0) {
            assert_int_equal(parts->nodes[i].mean, mean);
            return network->table.params[parts->nodes[i].param].name;
        }
    }
    fail();
    return NULL;
}

static int count_layers(const struct cvy_ptq_parts *parts)
{
    int count = 0;

    for (int32_t i = 0; i < parts->part_count; i++)
        count += parts->parts[i].weights >= 0;
    return count;
}

static int count_nodes(const struct cvy_graph *graph, enum cvy_op op)
{
    int count = 0;

    for (int32_t n = 0; n < graph->node_count; n++)
        count += graph->nodes[n].op == op;
    return count;
}

static void classifier(void **state)
{
    struct cvy_ptq_parts parts = {0};
    struct cvy_network network;
    const struct cvy_ptq_part *first, *shortcut;

    open_table(&network, "resnet18", 64);
    assert_int_equal(cvy_ptq_parts_find(&network.table, &parts), CVY_OK);
    assert_int_equal(count_layers(&parts), 21);
    assert_int_equal(parts.node_count, 21);
    assert_string_equal(parts.parts[0].name, "conv1");
    assert_int_equal(parts.parts[0].elements, 64 * 3 * 7 * 7);
    assert_string_equal(correction(&network, &parts, "conv1", 0, true), "bn1.running_mean");
    assert_string_equal(correction(&network, &parts, "layer2.0.downsample.0", 0, true),
                        "layer2.0.downsample.1.running_mean");
    assert_string_equal(correction(&network, &parts, "fc", 0, false), "fc.bias");
    /* A block's first convolution and its shortcut read the same value. */
    first = find(&parts, "layer2.0.conv1");
    shortcut = find(&parts, "layer2.0.downsample.0");
    assert_int_equal(first->input_count, 1);
    assert_int_equal(first->inputs[0], shortcut->inputs[0]);
    assert_true(parts.quantizers[first->inputs[0]].layers);
    assert_true(parts.quantizers[first->weights].attr.weights);
    cvy_ptq_parts_release(&parts);
    cvy_graph_release(&network.table);
}

/* A detector's layers that all levels pass: one for all, with an input of each level. */
static void detector(void **state)
{
    struct cvy_ptq_parts parts = {0};
    struct cvy_network network;
    char norm[64];

    open_table(&network, "ssd320", 64);
    assert_int_equal(cvy_ptq_parts_find(&network.table, &parts), CVY_OK);
    assert_int_equal(find(&parts, "head.class_tower.0.conv")->input_count, 5);
    assert_int_equal(find(&parts, "head.class_predictor")->input_count, 5);
    for (int level = 0; level < 5; level++) {
        snprintf(norm, sizeof norm, "head.class_tower.0.bn.%d.running_mean", level);
        assert_string_equal(correction(&network, &parts, "head.class_tower.0.conv", level, true), norm);
        assert_string_equal(correction(&network, &parts, "head.class_predictor", level, false),
                            "head.class_predictor.bias");
    }
    assert_string_equal(correction(&network, &parts, "fpn.lateral3", 0, false), "fpn.lateral3.bias");
    cvy_ptq_parts_release(&parts);
    cvy_graph_release(&network.table);
}

/* What makes the factors of a squeeze-and-excitation stays in floats; what they are applied to does not, and what else
 * follows a mean of channels, or has a sigmoid after it, does not either. */
static void gates(void **state)
{
    static const char *const archs[] = {"se-resnet50", "resnet50", "ssd320"};

    for (int i = 0; i < 3; i++) {
        struct cvy_ptq_parts parts = {0};
        struct cvy_network network;
        int count = 0;

        open_table(&network, archs[i], 64);
        assert_int_equal(cvy_ptq_parts_find(&network.table, &parts), CVY_OK);
        for (int32_t p = 0; p < parts.part_count; p++) {
            assert_int_equal(parts.parts[p].quantized, !parts.parts[p].gate);
            count += parts.parts[p].gate;
        }
        assert_int_equal(count, i == 0 ? 3 * 16 : 0); /* two layers and their factors in each block */
        if (i == 0) {
            assert_true(find(&parts, "layer3.4.se.fc1")->gate && find(&parts, "layer3.4.se.fc2")->gate);
            assert_true(find(&parts, "layer3.4.se.fc2.output")->gate);
            assert_false(find(&parts, "layer3.4.se.output")->gate || find(&parts, "layer3.4.conv3")->gate);
        }
        cvy_ptq_parts_release(&parts);
        cvy_graph_release(&network.table);
    }
}

static void graphs(const char *arch, int32_t side)
{
    struct cvy_ptq_parts parts = {0};
    struct cvy_network network;
    struct cvy_graph graph;
    int quantizers = 0, products;
    char name[32];

    open_table(&network, arch, side);
    assert_int_equal(cvy_ptq_parts_find(&network.table, &parts), CVY_OK);
    products = count_nodes(&network.table, CVY_OP_CONV2D) + count_nodes(&network.table, CVY_OP_LINEAR);
    for (int32_t i = 0; i < parts.quantizer_count; i++)
        quantizers += !parts.quantizers[i].attr.weights;

    /* As the network in floats: nothing rounds, batch norms are folded, and every value to be rounded is there. */
    assert_int_equal(cvy_ptq_graph(&network, CVY_PTQ_FLOATS, &graph), CVY_OK);
    assert_int_equal(count_nodes(&graph, CVY_OP_FAKE_QUANTIZE), 0);
    assert_int_equal(count_nodes(&graph, CVY_OP_BATCH_NORM_INFERENCE), 0);
    assert_int_equal(count_nodes(&graph, CVY_OP_CONV2D) + count_nodes(&graph, CVY_OP_LINEAR), products);
    assert_int_equal(graph.param_count, network.table.param_count);
    for (int32_t i = 0; i < parts.quantizer_count; i++) {
        const cvy_val value = cvy_graph_find_result(&graph, cvy_ptq_value_name(parts.quantizers[i].param, name));
        assert_int_equal(value == CVY_NONE, parts.quantizers[i].attr.weights);
    }
    cvy_graph_release(&graph);

    /* Each layer twice. Those in 8 bits are read by nobody but the result, so that no error reaches another layer. */
    assert_int_equal(cvy_ptq_graph(&network, CVY_PTQ_COMPARE, &graph), CVY_OK);
    assert_int_equal(count_nodes(&graph, CVY_OP_CONV2D) + count_nodes(&graph, CVY_OP_LINEAR), 2 * products);
    for (int32_t i = 0; i < parts.node_count; i++) {
        const cvy_val plain = cvy_graph_find_result(&graph, cvy_ptq_node_name(i, false, name));
        const cvy_val rounded = cvy_graph_find_result(&graph, cvy_ptq_node_name(i, true, name));
        const struct cvy_node *node = &graph.nodes[graph.values[plain].producer];
        const struct cvy_node *copy = &graph.nodes[graph.values[rounded].producer];

        assert_int_equal(cvy_graph_uses(&graph, rounded), 1);
        assert_int_equal(graph.values[plain].shape.dim[1], parts.nodes[i].channels);
        for (int k = 0; k < 2; k++) {
            const struct cvy_node *quantizer = &graph.nodes[graph.values[copy->in[k]].producer];
            assert_int_equal(quantizer->op, CVY_OP_FAKE_QUANTIZE);
            assert_int_equal(quantizer->in[0], node->in[k]);
        }
    }
    cvy_graph_release(&graph);
    cvy_ptq_parts_release(&parts);
    cvy_graph_release(&network.table);
    assert_true(quantizers > 0);
}

static void graphs_of_networks(void **state)
{
    graphs("resnet18", 64);
    graphs("se-resnext101-32x4d", 64);
    graphs("ssd320", 64);
}

/* One of 1,000 images is 0.1 points, however the percentages are rounded. */
static void what_may_be_lost(void **state)
{
    (void)state;
    for (int right = 1; right <= 1000; right++) {
        const double floats = 100.0 * right / 1000, one_less = 100.0 * (right - 1) / 1000;

        assert_true(cvy_ptq_is_enough(floats, one_less, 0.1));
        assert_false(cvy_ptq_is_enough(floats, one_less, 0.09));
        assert_true(cvy_ptq_is_enough(floats, floats, 0));
        assert_false(cvy_ptq_is_enough(floats, one_less, 0));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classifier),         cmocka_unit_test(detector),         cmocka_unit_test(gates),
        cmocka_unit_test(graphs_of_networks), cmocka_unit_test(what_may_be_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
