/* Quantisation-aware training: the arithmetic of a quantizer by written-out numbers, and where the quantizers stand. */
#include "backend/plan.h"
#include "graph/quantizer.h"
#include "models/models.h"
#include "ops/ops.h"
#include "support_executor.h"
#include "support_graph.h"
#include "support_test.h"

enum { COUNT = 8 };

/* One call of the op on the reference device; `now` NULL: the form without an update. */
static void quantize(struct cvy_fake_quantize_attr attr, const float x[COUNT], const float old[3], float now[3],
                     float y[COUNT])
{
    struct cvy_op_desc desc = executor_desc(CVY_OP_FAKE_QUANTIZE, 2, now ? 2 : 1);
    cvy_device *ref = executor_device("ref", 1);

    desc.attr.fake_quantize = attr;
    desc.in[0] = desc.out[0] = executor_tensor(CVY_F32, cvy_shape1(COUNT));
    desc.in[1] = executor_tensor(CVY_F32, cvy_shape1(3));
    if (now)
        desc.out[1] = desc.in[1];
    executor_run_checked(ref, &desc, (const void *[]){x, old}, (void *[]){y, now});
    cvy_device_close(ref);
}

static void gradient(struct cvy_fake_quantize_attr attr, const float x[COUNT], const float now[3], float dx[COUNT])
{
    static const float dy[COUNT] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct cvy_op_desc desc = executor_desc(CVY_OP_FAKE_QUANTIZE_BWD, 3, 1);
    cvy_device *ref = executor_device("ref", 1);

    desc.attr.fake_quantize = attr;
    desc.in[0] = desc.in[2] = desc.out[0] = executor_tensor(CVY_F32, cvy_shape1(COUNT));
    desc.in[1] = executor_tensor(CVY_F32, cvy_shape1(3));
    executor_run_checked(ref, &desc, (const void *[]){x, now, dy}, (void *[]){dx});
    cvy_device_close(ref);
}

static void expect(const float *got, const float *want, int count, double tolerance)
{
    for (int i = 0; i < count; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= tolerance))
            fail_msg("element %d is %.9g, not %.9g", i, (double)got[i], (double)want[i]);
}

/* With a scale of 1/64 (highest 127/64) all numbers are exact: ties go to the even level, ends are cut. */
static void symmetric_activations(void **state)
{
    static const float x[COUNT] = {0, 0.5f / 64, 1.5f / 64, -2.5f / 64, 127.4f / 64, 3, -128.4f / 64, -3};
    static const float y[COUNT] = {0, 0, 2.0f / 64, -2.0f / 64, 127.0f / 64, 127.0f / 64, -2, -2};
    static const float passed[COUNT] = {1, 2, 3, 4, 5, 0, 7, 0};
    const struct cvy_fake_quantize_attr attr = {.symmetric = true};
    const float observed[3] = {-2, 127.0f / 64, 1};
    float got[COUNT];

    quantize(attr, x, observed, NULL, got);
    expect(got, y, COUNT, 0);
    gradient(attr, x, observed, got);
    expect(got, passed, COUNT, 0);
}

/* By FakeQuantWithMinMaxVars' formulas: min -1, max 2: scale 3 / 255, zero point 85 exactly, levels 0 .. 255. For min
 * -0.99 the zero point 84.43 becomes 84: the range is moved to -84 * scale .. 171 * scale. */
static void asymmetric_activations(void **state)
{
    const float scale = 3.0f / 255, moved = 2.99f / 255;
    const float x[COUNT] = {0, -1, 2, 1, 0.505f, 0.507f, 2.1f, -1.1f};
    const float y[COUNT] = {0, -1, 2, 1, 43 * scale, 43 * scale, 2, -1};
    const float z[COUNT] = {0, -84 * moved, 171 * moved, 85 * moved, 43 * moved, 43 * moved, 171 * moved, -84 * moved};
    const float passed[COUNT] = {1, 2, 3, 4, 5, 6, 0, 0}, cut[COUNT] = {1, 0, 3, 4, 5, 6, 0, 0};
    const struct cvy_fake_quantize_attr attr = {0};
    float got[COUNT];

    quantize(attr, x, (const float[]){-1, 2, 1}, NULL, got);
    expect(got, y, COUNT, 2.4e-7); /* a rounding of the scale and of the product, at 2 */
    gradient(attr, x, (const float[]){-1, 2, 1}, got);
    expect(got, passed, COUNT, 0);
    quantize(attr, x, (const float[]){-0.99f, 2, 1}, NULL, got);
    expect(got, z, COUNT, 4.8e-7);
    gradient(attr, x, (const float[]){-0.99f, 2, 1}, got);
    expect(got, cut, COUNT, 0); /* -1 is level -85 of -84 .. 171 */
}

/* The range is that of the tensor, whatever was seen before: -127 .. 127, or 1 .. 255 with zero at 1 + 254 / 3. */
static void weights_have_their_own_range(void **state)
{
    static const float x[COUNT] = {0, 0.5f, -0.25f, 0.1f, 0.3f, -0.2f, 0.4f, 0.01f};
    const float fine = 0.75f / 254;
    float got[COUNT], now[3], want[COUNT];

    for (int i = 0; i < COUNT; i++)
        want[i] = rintf(x[i] * 254) / 254;
    quantize((struct cvy_fake_quantize_attr){.symmetric = true, .weights = true}, x, (const float[]){-9, 9, 6}, now,
             got);
    expect(got, want, COUNT, 6e-8);
    expect(now, (const float[]){-0.5f, 0.5f, 7}, 3, 0);
    for (int i = 0; i < COUNT; i++) /* 1 + 0.25 / fine = 85.67, so that zero is level 86 and -0.25 is -85 */
        want[i] = fmaxf(rintf(x[i] / fine), -85) * fine;
    quantize((struct cvy_fake_quantize_attr){.weights = true}, x, (const float[]){-9, 9, 6}, NULL, got);
    expect(got, want, COUNT, 6e-8);
}

/* Two rows of four weights: 127 levels up to 0.5, and up to 0.4; a row of zeros stays one. What is never negative has
 * 255 levels above zero. */
static void channels_and_positive_values(void **state)
{
    static const float x[COUNT] = {0, 0.5f, -0.25f, 0.1f, 0.3f, -0.2f, 0.4f, 0.01f}, zeros[COUNT] = {127, 1, 2, -4};
    const struct cvy_fake_quantize_attr channels = {.symmetric = true, .weights = true, .channels = true};
    const struct cvy_fake_quantize_attr positive = {.symmetric = true, .positive = true};
    struct cvy_op_desc desc = executor_desc(CVY_OP_FAKE_QUANTIZE, 2, 2);
    cvy_device *ref = executor_device("ref", 1);
    const float old[3] = {0, 9, 6};
    float got[COUNT], now[3], want[COUNT];

    (void)state;
    desc.attr.fake_quantize = channels;
    desc.in[0] = desc.out[0] = executor_tensor(CVY_F32, cvy_shape2(2, COUNT / 2));
    desc.in[1] = desc.out[1] = executor_tensor(CVY_F32, cvy_shape1(3));
    executor_run_checked(ref, &desc, (const void *[]){x, old}, (void *[]){got, now});
    for (int i = 0; i < COUNT; i++) {
        const float scale = (i < COUNT / 2 ? 0.5f : 0.4f) / 127;
        want[i] = rintf(x[i] / scale) * scale;
    }
    expect(got, want, COUNT, 0);
    expect(now, (const float[]){0, 0.5f, 7}, 3, 0);
    executor_run_checked(ref, &desc, (const void *[]){zeros, old}, (void *[]){got, now});
    expect(got, zeros, COUNT, 0);
    expect(got + COUNT / 2, (const float[COUNT / 2]){0}, COUNT / 2, 0);
    cvy_device_close(ref);
    for (int i = 0; i < COUNT; i++) /* up to 0.255: 255 levels of 0.001; what is below zero is not expected, and cut */
        want[i] = fmaxf(0, fminf(rintf(x[i] / 0.001f), 255)) * 0.001f;
    quantize(positive, x, (const float[]){0, 0.255f, 6}, NULL, got);
    expect(got, want, COUNT, 1e-7);
}

/* Decay 0.999, unbiased: the first range is that of the batch, later ones weigh in by (1 - d) / (1 - d^n). */
static void ranges_are_averages(void **state)
{
    static const float first[COUNT] = {-1, 2}, second[COUNT] = {-3, 1}, third[COUNT] = {NAN, INFINITY, -4};
    const double share = 0.001 / (1 - 0.999 * 0.999);
    float now[3], next[3], y[COUNT];

    quantize((struct cvy_fake_quantize_attr){0}, first, (const float[3]){0}, now, y);
    expect(now, (const float[]){-1, 2, 1}, 3, 0);
    quantize((struct cvy_fake_quantize_attr){0}, second, now, next, y);
    expect(next, (const float[]){(float)(-1 - 2 * share), (float)(2 - share), 2}, 3, 2.4e-7);
    assert_true(y[0] > -3 && y[0] < -1.9f); /* cut: the range is that after this batch */
    quantize((struct cvy_fake_quantize_attr){0}, third, next, now, y);
    expect(now, next, 3, 0); /* infinite values are not observed */
    assert_true(isnan(y[0]));
    /* Symmetric: 127 levels up, 128 down; each end is moved to where the other one asks. */
    quantize((struct cvy_fake_quantize_attr){.symmetric = true}, first, (const float[3]){0}, now, y);
    expect(now, (const float[]){-2 * 128.0f / 127, 2, 1}, 3, 2.4e-7);
    quantize((struct cvy_fake_quantize_attr){.symmetric = true}, second, (const float[3]){0}, now, y);
    expect(now, (const float[]){-3, 3 * 127.0f / 128, 1}, 3, 2.4e-7);
}

/* Delay 2: the third batch is the first that is rounded. What evaluates between them does as the batch before. */
static void values_wait_for_the_delay(void **state)
{
    static const float x[COUNT] = {0.3f, -0.7f, 1};
    const struct cvy_fake_quantize_attr attr = {.symmetric = true, .delay = 2};
    float observed[3] = {0}, next[3], y[COUNT], dx[COUNT];

    for (int step = 0; step < 4; step++) {
        quantize(attr, x, observed, next, y);
        assert_int_equal(memcmp(x, y, sizeof x) == 0, step < 2);
        memcpy(observed, next, sizeof next);
        quantize(attr, x, observed, NULL, y);
        assert_int_equal(memcmp(x, y, sizeof x) == 0, step < 2);
        gradient(attr, (const float[COUNT]){0, 2}, observed, dx);
        assert_int_equal(dx[1] != 0, step < 2);
    }
    assert_true(observed[2] == 4);
}

/* Nothing seen, or nothing but zeros: values pass. */
static void without_a_range_values_pass(void **state)
{
    static const float x[COUNT] = {0.3f, -0.7f, 1}, none[COUNT] = {0};
    float now[3], y[COUNT];

    for (int symmetric = 0; symmetric < 2; symmetric++) {
        const struct cvy_fake_quantize_attr attr = {.symmetric = symmetric};
        quantize(attr, x, (const float[3]){0}, NULL, y);
        assert_memory_equal(y, x, sizeof x);
        quantize(attr, none, (const float[3]){0}, now, y);
        assert_memory_equal(y, none, sizeof y);
        quantize(attr, x, now, NULL, y);
        assert_memory_equal(y, x, sizeof x);
    }
}

/* ---- networks ---- */

/* No training makes a range by whose scale nothing can be divided. */
static void tiny_ranges_are_none(void **state)
{
    static const float tiny[COUNT] = {-1e-38f, 1e-38f}, small[COUNT] = {-2e-36f, 2e-36f};
    static const struct cvy_fake_quantize_attr forms[] = {
        {0}, {.weights = true}, {.symmetric = true}, {.symmetric = true, .weights = true}};
    float now[3], y[COUNT];

    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        quantize(forms[i], tiny, (const float[3]){0}, now, y);
        expect(now, (const float[]){0, 0, 1}, 3, 0);
        expect(y, tiny, COUNT, 0);
        quantize(forms[i], small, (const float[3]){0}, now, y);
        assert_true(now[0] <= -2e-36f && now[1] >= 1.9e-36f);
    }
}

static void make(struct cvy_graph *graph, const char *arch, enum cvy_model_mode mode, bool fuse)
{
    const struct cvy_model_options options = {.num_classes = 10,
                                              .image_size = 64,
                                              .mean = {120, 115, 105},
                                              .std = {58, 57, 56},
                                              .quantize = CVY_QUANTIZE_SYMMETRIC,
                                              .quant_delay = 5};

    if (cvy_model_graph(cvy_architecture_find(arch), &options, mode, fuse, graph) != CVY_OK)
        fail_msg("%s", cvy_error());
    check_graph(graph);
}

/* The same states in the same order for training and evaluation, so that one store serves both. */
static void both_modes_have_the_same_quantizers(void **state)
{
    static const char *const archs[] = {"resnet18", "resnet50", "se-resnext101-32x4d"};

    for (size_t a = 0; a < sizeof archs / sizeof *archs; a++) {
        struct cvy_graph train, infer;
        make(&train, archs[a], CVY_MODEL_TRAIN, true);
        make(&infer, archs[a], CVY_MODEL_INFER, true);
        assert_int_equal(train.param_count, infer.param_count);
        for (int32_t p = 0; p < train.param_count; p++) {
            assert_string_equal(train.params[p].name, infer.params[p].name);
            assert_int_equal(train.params[p].offset, infer.params[p].offset);
        }
        cvy_graph_release(&train);
        cvy_graph_release(&infer);
    }
}

/* resnet50: 53 convolutions and the classifier have weights; their inputs are 50 values (a projection reads what the
 * first convolution of its block reads), besides the last convolutions and projections (16 + 4) whose outputs are
 * added, and the image, and what is averaged. */
static void resnet50_is_quantized_throughout(void **state)
{
    static const char *const names[] = {"conv1.input_quantizer",
                                        "conv1.weight_quantizer",
                                        "layer1.0.conv1.input_quantizer",
                                        "layer1.0.conv3.weight_quantizer",
                                        "layer1.0.bn3.output_quantizer",
                                        "layer1.0.downsample.1.output_quantizer",
                                        "layer1.1.conv1.input_quantizer",
                                        "layer4.2.output_quantizer",
                                        "fc.input_quantizer",
                                        "fc.weight_quantizer"};
    struct cvy_graph graph;
    int32_t weights = 0, inputs = 0, outputs = 0;

    make(&graph, "resnet50", CVY_MODEL_INFER, false);
    for (int32_t p = 0; p < graph.param_count; p++) {
        const char *name = graph.params[p].name;
        weights += strstr(name, ".weight_quantizer.observed") != NULL;
        inputs += strstr(name, ".input_quantizer.observed") != NULL;
        outputs += strstr(name, ".output_quantizer.observed") != NULL;
    }
    assert_int_equal(weights, 54);
    assert_int_equal(inputs, 54 - 4);
    assert_int_equal(outputs, 16 + 4 + 1);
    assert_int_equal(count_nodes(&graph, CVY_OP_FAKE_QUANTIZE), weights + inputs + outputs);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char full[128];
        snprintf(full, sizeof full, "%s.observed", names[i]);
        if (cvy_graph_find_param(&graph, full) < 0)
            fail_msg("there is no %s", full);
    }
    for (int32_t n = 0; n < graph.node_count; n++) {
        const struct cvy_node *node = &graph.nodes[n];
        for (int i = 0; i < 2 && (node->op == CVY_OP_CONV2D || node->op == CVY_OP_LINEAR || node->op == CVY_OP_ADD);
             i++)
            assert_int_equal(graph.nodes[graph.values[node->in[i]].producer].op, CVY_OP_FAKE_QUANTIZE);
    }
    cvy_graph_release(&graph);
}

static void builders_refuse(void **state)
{
    const struct cvy_fake_quantize_attr attr = {0}, early = {.delay = -1};
    struct cvy_model_options options = {
        .num_classes = 10, .image_size = 64, .std = {1, 1, 1}, .quantize = CVY_QUANTIZE_SYMMETRIC, .freeze = "conv1"};
    struct cvy_graph graph;
    cvy_val x;

    x = start_graph(&graph, true, 4, 5, 5);
    cvy_fake_quantize(&graph, x, "q", &attr);
    cvy_fake_quantize(&graph, x, "q", &attr);
    check_graph_error(&graph, CVY_FAILED, "two quantizers");
    cvy_graph_release(&graph);
    x = start_graph(&graph, true, 4, 5, 5);
    cvy_fake_quantize(&graph, x, "q", &early);
    check_graph_error(&graph, CVY_USAGE, "before the first");
    cvy_graph_release(&graph);
    assert_int_equal(cvy_model_graph(cvy_architecture_find("resnet18"), &options, CVY_MODEL_TRAIN, true, &graph),
                     CVY_USAGE);
    assert_error("--freeze");
}

RUN_TESTS(NULL, NULL, TEST(symmetric_activations), TEST(asymmetric_activations), TEST(weights_have_their_own_range),
          TEST(tiny_ranges_are_none), TEST(channels_and_positive_values), TEST(ranges_are_averages),
          TEST(values_wait_for_the_delay), TEST(without_a_range_values_pass), TEST(both_modes_have_the_same_quantizers),
          TEST(resnet50_is_quantized_throughout), TEST(builders_refuse))
