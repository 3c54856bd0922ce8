/* The check backend: right kernels pass, and one wrong element of any output of any op does not. The device it checks
 * here is the reference itself with faults put in. */
#include "backend/check_internal.h"
#include "backend/plan.h"
#include "base/rng.h"
#include "models/models.h"
#include "ops/anchors.h"
#include "ops/ops.h"
#include "support_executor.h"
#include "support_faulty.h"
#include "support_graph.h"
#include "support_test.h"

/* ---- one node of each op, with data ---- */

static cvy_val conv(struct cvy_graph *g, const char *name, cvy_val x, int32_t out, bool bias)
{
    cvy_val y;

    cvy_scope_push(g, name);
    y = cvy_conv2d(g, x, &(struct cvy_conv2d){.out = out, .kernel = 3, .pad = 1, .bias = bias});
    cvy_scope_pop(g);
    return y;
}

static cvy_val norm(struct cvy_graph *g, const char *name, cvy_val x)
{
    cvy_val y;

    cvy_scope_push(g, name);
    y = cvy_batch_norm(g, x, &(struct cvy_batch_norm){0});
    cvy_scope_pop(g);
    return y;
}

/* A detector's ops on three images of 66 anchors; its predictions are parameters, so that they have gradients. */
static const struct cvy_shape detector_codes = {3, {3, 66, 4}}, detector_logits = {3, {3, 66, 6}};

static cvy_val detector_losses(struct cvy_graph *g)
{
    const struct cvy_anchors anchors = cvy_anchors_ssd(16, 24);
    const struct cvy_init init = {0};
    const cvy_val codes = cvy_graph_param(g, "codes", CVY_PARAM_TRAINABLE, detector_codes, init);
    const cvy_val logits = cvy_graph_param(g, "logits", CVY_PARAM_TRAINABLE, detector_logits, init);
    const cvy_val boxes = cvy_graph_input(g, "boxes", CVY_F32, cvy_shape3(3, 40, 4), false);
    const cvy_val labels = cvy_graph_input(g, "box labels", CVY_I32, cvy_shape2(3, 40), false);
    const struct cvy_match_values match = cvy_detection_match(g, boxes, labels, &anchors);

    cvy_graph_result(g, CVY_RESULT_NAMED, "l2", -1, cvy_l2_loss(g, (const cvy_val[]){codes, logits}, 2, 0.5F));
    return cvy_add(g, cvy_focal_loss(g, logits, match.classes, match.positives),
                   cvy_smooth_l1_loss(g, codes, match.targets, match.classes, match.positives));
}

static void detector_boxes(struct cvy_graph *g)
{
    const struct cvy_anchors anchors = cvy_anchors_ssd(16, 24);
    const cvy_val codes = cvy_graph_input(g, "codes", CVY_F32, detector_codes, false);
    const cvy_val logits = cvy_graph_input(g, "logits", CVY_F32, detector_logits, false);
    const struct cvy_detect_values found = cvy_detect(g, codes, logits, &anchors, &(struct cvy_detect){.max_boxes = 5});

    cvy_graph_result(g, CVY_RESULT_NAMED, "count", -1, found.count);
}

/* In training: all forward and backward ops but those of inference; else the folded form. */
static void build(struct cvy_graph *g, bool training, int32_t channels, bool casts)
{
    const float mean[] = {100, 110, 120}, std[] = {50, 60, 70};
    cvy_val image, labels, seed, x, y, z;

    cvy_graph_init(g, training);
    image = cvy_graph_input(g, "image", CVY_U8, cvy_shape4(CVY_BATCH, 3, 8, 8), true);
    x = conv(g, "conv1", cvy_normalize(g, image, mean, std), channels, true);
    x = cvy_max_pool(g, cvy_relu(g, x), &(struct cvy_max_pool){.kernel = 3, .stride = 2, .pad = 1});
    y = cvy_relu(g, norm(g, "bn1", x));
    y = cvy_fake_quantize(g, y, "quantizer", &(struct cvy_fake_quantize_attr){.symmetric = true});
    y = conv(g, "conv2", y, channels, false);
    y = cvy_relu(g, cvy_add(g, norm(g, "bn2", y), x));
    y = conv(g, "conv3", y, channels, true); /* of either sign, so that the ReLU after the sum has an effect */
    cvy_scope_push(g, "se");
    z = cvy_scale_channels(g, y, cvy_sigmoid(g, cvy_linear_1x1(g, cvy_global_avg_pool(g, y), channels)));
    cvy_scope_pop(g);
    z = cvy_relu6(g, cvy_relu(g, cvy_add(g, z, x)));
    cvy_scope_push(g, "se2"); /* a product alone */
    y = cvy_scale_channels(g, z, cvy_sigmoid(g, cvy_linear_1x1(g, cvy_global_avg_pool(g, z), channels)));
    cvy_scope_pop(g);
    y = norm(g, "bn4", conv(g, "conv4", y, channels, false));
    cvy_rewrite_fold(g, &(struct cvy_fake_quantize_attr){.symmetric = true, .ends = true}, 100);
    if (casts)
        y = cvy_cast(g, cvy_cast(g, y, CVY_F64), CVY_F32);
    x = cvy_global_avg_pool(g, every_unary_op(g, cvy_upsample(g, y)));
    cvy_scope_push(g, "fc");
    x = cvy_linear(g, x, 5);
    cvy_scope_pop(g);
    if (training) {
        labels = cvy_graph_input(g, "labels", CVY_I32, cvy_shape1(CVY_BATCH), false);
        seed = cvy_graph_input(g, "seed", CVY_F32, cvy_shape0(), false);
        x = cvy_add(g, cvy_softmax_cross_entropy(g, x, labels, 0.1F), detector_losses(g));
        cvy_graph_result(g, CVY_RESULT_NAMED, "loss", -1, x);
        cvy_rewrite_fuse_training(g);
        cvy_graph_backward(g, cvy_ops, cvy_graph_find_result(g, "loss"), seed);
        cvy_rewrite_recompute(g);
        cvy_rewrite_fuse_backward(g);
    } else {
        cvy_graph_result(g, CVY_RESULT_NAMED, "probabilities", -1, cvy_softmax(g, x));
        detector_boxes(g);
        cvy_rewrite_fuse_inference(g);
    }
    assert_int_equal(cvy_graph_status(g), CVY_OK);
}

static void fill_sources(struct executor *executor)
{
    struct cvy_rng rng = cvy_rng_new(3, CVY_RNG_TEST, 0, 0);

    for (cvy_val v = 0; v < executor->value_count; v++) {
        const struct cvy_value *value = &executor->graph->values[v];
        const int64_t count = executor_elements(executor, v);
        const bool state = value->param >= 0 && executor->graph->params[value->param].kind == CVY_PARAM_STATE;
        double *numbers;
        if (value->producer >= 0)
            continue;
        numbers = malloc((size_t)count * sizeof *numbers);
        assert_non_null(numbers);
        for (int64_t i = 0; i < count; i++) {
            if (value->dtype == CVY_U8)
                numbers[i] = cvy_rng_below(&rng, 256);
            else if (value->dtype == CVY_I32)
                numbers[i] = cvy_rng_below(&rng, 5);
            else
                numbers[i] = state ? cvy_rng_range(&rng, 0.5, 1.5) : cvy_rng_normal(&rng);
        }
        executor_write(executor, v, numbers);
        free(numbers);
    }
}

/* Run one node of an executed graph again, on `device`; its inputs are there as the reference left them. */
static cvy_status run_again(cvy_device *device, const struct executor *executor, const struct cvy_node *node)
{
    struct cvy_op_desc desc = executor_desc(node->op, node->inputs, node->outputs);
    const void *in[CVY_MAX_INPUTS] = {NULL};
    void *out[CVY_MAX_OUTPUTS] = {NULL};
    cvy_status status;

    desc.attr = node->attr;
    for (int i = 0; i < node->inputs; i++) {
        if (node->in[i] == CVY_NONE)
            continue;
        desc.in[i] = executor->tensors[node->in[i]];
        in[i] = executor->memory[node->in[i]]; /* ref: host memory */
    }
    for (int i = 0; i < node->outputs; i++) {
        if (node->out[i] == CVY_NONE)
            continue;
        desc.out[i] = executor->tensors[node->out[i]];
        out[i] = calloc((size_t)executor_elements(executor, node->out[i]), 8);
        assert_non_null(out[i]);
    }
    if (faulty.output < node->outputs)
        faulty_tensor = desc.out[faulty.output];
    status = executor_run_op(device, &desc, in, out);
    for (int i = 0; i < node->outputs; i++)
        free(out[i]);
    return status;
}

static void expect_caught(cvy_device *device, const struct executor *executor, const struct cvy_node *node, int32_t i,
                          enum fault fault)
{
    char output[32];

    snprintf(output, sizeof output, "output %d of ", i);
    faulty.fault = fault;
    faulty.output = i;
    if (run_again(device, executor, node) != CVY_FAILED)
        fail_msg("fault %d in output %d of %s is not noticed", fault, i, cvy_ops[node->op].name);
    if (!strstr(cvy_error(), "kernel faulty.kernel disagrees with ref") || !strstr(cvy_error(), output) ||
        !strstr(cvy_error(), cvy_ops[node->op].name))
        fail_msg("the sentence is: %s", cvy_error());
}

static void faults_of(cvy_device *device, bool training, bool *covered)
{
    cvy_device *ref = executor_device("ref", 1);
    struct executor executor;
    struct cvy_graph graph;

    build(&graph, training, 4, true);
    executor_open(&executor, ref, &graph, 3);
    fill_sources(&executor);
    executor_run(&executor, 0, graph.node_count);
    for (int32_t n = 0; n < graph.node_count; n++) {
        const struct cvy_node *node = &graph.nodes[n];
        faulty.fault = FAULT_NONE;
        if (run_again(device, &executor, node) != CVY_OK)
            fail_msg("%s is right, but: %s", cvy_ops[node->op].name, cvy_error());
        for (int32_t i = 0; i < node->outputs; i++) {
            if (node->out[i] == CVY_NONE || executor.tensors[node->out[i]].dtype == CVY_F64)
                continue;
            expect_caught(device, &executor, node, i, FAULT_VALUE);
            expect_caught(device, &executor, node, i, FAULT_HOLE);
        }
        covered[node->op] = true;
    }
    faulty.fault = FAULT_NONE;
    executor_close(&executor);
    cvy_graph_release(&graph);
    cvy_device_close(ref);
}

/* A reorder comes with its own sentence. */
static void reorder_faults(cvy_device *device)
{
    struct cvy_op_desc desc = executor_desc(CVY_OP_REORDER, 1, 1);
    float in[1 * 16 * 2 * 2], out[1 * 16 * 2 * 2];

    for (int i = 0; i < 64; i++)
        in[i] = (float)i + 1;
    desc.in[0] = desc.out[0] = faulty_tensor = executor_tensor(CVY_F32, cvy_shape4(1, 16, 2, 2));
    desc.out[0].layout.kind = CVY_LAYOUT_BLOCKED16;
    for (int fault = FAULT_NONE; fault <= FAULT_HOLE; fault++) {
        faulty.fault = (enum fault)fault;
        faulty.output = 0;
        assert_int_equal(executor_run_op(device, &desc, (const void *[]){in}, (void *[]){out}),
                         fault == FAULT_NONE ? CVY_OK : CVY_FAILED);
        if (fault != FAULT_NONE)
            assert_non_null(
                strstr(cvy_error(), "kernel faulty.kernel disagrees with ref: output 0 of reorder 1x16x2x2"));
    }
    faulty.fault = FAULT_NONE;
}

/* Rows of two levels and their gradients, which no loss of a classifier reads. */
static void level_faults(cvy_device *device, bool backward)
{
    const struct cvy_shape large = cvy_shape4(1, 6, 2, 2), small = cvy_shape4(1, 6, 1, 1);
    struct cvy_op_desc desc =
        backward ? executor_desc(CVY_OP_FLATTEN_LEVELS_BWD, 1, 2) : executor_desc(CVY_OP_FLATTEN_LEVELS, 2, 1);
    float maps[2][24], rows[30];

    for (int i = 0; i < 24; i++)
        maps[0][i] = maps[1][i] = rows[i] = (float)i + 1;
    for (int i = 24; i < 30; i++)
        rows[i] = (float)-i;
    desc.attr.levels.columns = 3;
    (backward ? desc.out : desc.in)[0] = executor_tensor(CVY_F32, large);
    (backward ? desc.out : desc.in)[1] = executor_tensor(CVY_F32, small);
    (backward ? desc.in : desc.out)[0] = executor_tensor(CVY_F32, (struct cvy_shape){.rank = 3, .dim = {1, 10, 3}});
    for (int output = 0; output < (backward ? 2 : 1); output++) {
        faulty_tensor = desc.out[output];
        faulty.output = output;
        for (int fault = FAULT_NONE; fault <= FAULT_HOLE; fault++) {
            faulty.fault = (enum fault)fault;
            assert_int_equal(executor_run_op(device, &desc,
                                             backward ? (const void *[]){rows} : (const void *[]){maps[0], maps[1]},
                                             backward ? (void *[]){maps[0], maps[1]} : (void *[]){rows}),
                             fault == FAULT_NONE ? CVY_OK : CVY_FAILED);
        }
    }
    faulty.fault = FAULT_NONE;
}

static void every_fault_is_caught(void **state)
{
    bool covered[CVY_OP_COUNT] = {false};
    cvy_device *device = open_faulty();

    faults_of(device, true, covered);
    faults_of(device, false, covered);
    reorder_faults(device);
    covered[CVY_OP_REORDER] = true;
    for (int backward = 0; backward < 2; backward++)
        level_faults(device, backward);
    covered[CVY_OP_FLATTEN_LEVELS] = covered[CVY_OP_FLATTEN_LEVELS_BWD] = true;
    for (int op = 0; op < CVY_OP_COUNT; op++) {
        /* Inference batch norm is always folded here; a test below has it. A test below has those in integers. Closed
         * forms are never seen. */
        if (!covered[op] && !cvy_ops[op].int8 && op != CVY_OP_BATCH_NORM_INFERENCE &&
            op != CVY_OP_BATCH_NORM_INFERENCE_BWD && !cvy_ops[op].closed)
            fail_msg("%s was not tried", cvy_ops[op].name);
    }
    cvy_device_close(device);
}

/* ---- masks within rounding of zero ---- */

static struct cvy_op_desc norm_bwd(void)
{
    struct cvy_op_desc desc = executor_desc(CVY_OP_BATCH_NORM_BWD, 6, 3);

    desc.attr.batch_norm =
        (struct cvy_batch_norm_attr){.eps = 1e-5F, .momentum = 0.1F, .activation = CVY_ACTIVATION_RELU};
    desc.in[0] = desc.in[5] = desc.out[0] = executor_tensor(CVY_F32, cvy_shape4(2, 1, 2, 2));
    for (int i = 1; i < 5; i++)
        desc.in[i] = executor_tensor(CVY_F32, cvy_shape1(1));
    desc.out[1] = desc.out[2] = desc.in[1];
    return desc;
}

static void a_mask_may_flip_only_within_rounding(void **state)
{
    /* Two elements are the mean itself, where y is 0 and its sign a matter of rounding; the third is 0.01 below. */
    const float x[] = {1, 2, 0.5F, 1, 0.99F, 3, -1, 0.25F}, dy[] = {3, 1, -2, 4, 5, 1, 2, 3};
    const float gamma = 2, beta = 0, mean = 1, rstd = 0.75F;
    float dx[8], dgamma, dbeta;
    cvy_device *device = open_faulty();
    struct cvy_op_desc desc = norm_bwd();
    const void *in[] = {x, &gamma, &beta, &mean, &rstd, dy};
    void *out[] = {dx, &dgamma, &dbeta};

    faulty.fault = FAULT_NONE;
    assert_int_equal(executor_run_op(device, &desc, in, out), CVY_OK);
    assert_true(dbeta == 1 + 1); /* x = 2 and 3 */
    faulty.fault = FAULT_SHIFT;
    faulty.shift = 1e-9F;
    assert_int_equal(executor_run_op(device, &desc, in, out), CVY_OK);
    assert_true(dbeta == 1 + 1 + 3 + 4); /* the two on the edge as well */
    faulty.shift = 0.02F;
    assert_int_equal(executor_run_op(device, &desc, in, out), CVY_FAILED);
    faulty.fault = FAULT_NONE;
    cvy_device_close(device);
}

static void inference_batch_norm(void **state)
{
    struct cvy_op_desc desc = executor_desc(CVY_OP_BATCH_NORM_INFERENCE, 5, 1);
    const float x[] = {1, -2, 3, 4}, gamma[] = {2, -1}, beta[] = {0.5F, 1}, mean[] = {0.25F, 3}, var[] = {1.5F, 0.5F};
    float y[4];
    cvy_device *device = open_faulty();

    desc.attr.batch_norm.eps = 1e-5F;
    desc.in[0] = desc.out[0] = faulty_tensor = executor_tensor(CVY_F32, cvy_shape2(2, 2));
    for (int i = 1; i < 5; i++)
        desc.in[i] = executor_tensor(CVY_F32, cvy_shape1(2));
    for (int fault = FAULT_NONE; fault <= FAULT_HOLE; fault++) {
        faulty.fault = (enum fault)fault;
        faulty.output = 0;
        assert_int_equal(executor_run_op(device, &desc, (const void *[]){x, gamma, beta, mean, var}, (void *[]){y}),
                         fault == FAULT_NONE ? CVY_OK : CVY_FAILED);
    }
    /* Its gradient: x stands for dy. */
    desc.op = CVY_OP_BATCH_NORM_INFERENCE_BWD;
    desc.inputs = 3;
    desc.in[3].shape.rank = desc.in[4].shape.rank = -1;
    for (int fault = FAULT_NONE; fault <= FAULT_HOLE; fault++) {
        faulty.fault = (enum fault)fault;
        assert_int_equal(executor_run_op(device, &desc, (const void *[]){x, gamma, var}, (void *[]){y}),
                         fault == FAULT_NONE ? CVY_OK : CVY_FAILED);
    }
    faulty.fault = FAULT_NONE;
    cvy_device_close(device);
}

/* ---- integer inference: one wrong byte, or one missing ---- */

static void integer_faults(cvy_device *device, struct cvy_op_desc *desc, const void *const *in)
{
    float y[64]; /* room for bytes, too */

    faulty_tensor = desc->out[0];
    faulty.output = 0;
    for (int fault = FAULT_NONE; fault <= FAULT_HOLE; fault++) {
        faulty.fault = (enum fault)fault;
        if (executor_run_op(device, desc, in, (void *[]){y}) != (fault == FAULT_NONE ? CVY_OK : CVY_FAILED))
            fail_msg("%s, fault %d: %s", cvy_ops[desc->op].name, fault, cvy_error());
        if (fault != FAULT_NONE)
            assert_non_null(strstr(cvy_error(), "the bytes differ"));
    }
    faulty.fault = FAULT_NONE;
}

static void integers(void **state)
{
    const struct cvy_int8_levels levels = {0.1F, 128};
    cvy_device *device = open_faulty();
    struct cvy_op_desc desc = executor_desc(CVY_OP_CONV2D_INT8, 5, 1);
    uint8_t x[32];
    int8_t w[32];
    float values[32], scales[4] = {0.1F, 0.2F, 0.3F, 0.4F};

    for (int i = 0; i < 32; i++) {
        x[i] = (uint8_t)(100 + 2 * i);
        w[i] = (int8_t)(i - 16);
        values[i] = 0.1F * (float)(i - 10);
    }
    desc.attr.int8 = (struct cvy_int8_attr){
        .conv2d = {.kernel = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}, .groups = 1}, .x = levels, .y = {1, 128}};
    desc.in[0] = executor_tensor(CVY_U8, cvy_shape4(1, 8, 2, 2));
    desc.in[1] = executor_tensor(CVY_I8, cvy_shape4(4, 8, 1, 1));
    desc.in[2] = executor_tensor(CVY_F32, cvy_shape4(4, 1, 1, 1));
    desc.in[3].shape.rank = desc.in[4].shape.rank = -1;
    desc.out[0] = executor_tensor(CVY_U8, cvy_shape4(1, 4, 2, 2));
    integer_faults(device, &desc, (const void *[]){x, w, scales, NULL, NULL});
    desc.attr.int8.y.scale = 0; /* floats */
    desc.out[0].dtype = CVY_F32;
    integer_faults(device, &desc, (const void *[]){x, w, scales, NULL, NULL});
    desc = executor_desc(CVY_OP_QUANTIZE, 1, 1);
    desc.attr.int8 = (struct cvy_int8_attr){.x = levels, .y = levels};
    desc.in[0] = executor_tensor(CVY_F32, cvy_shape4(1, 8, 2, 2));
    desc.out[0] = executor_tensor(CVY_U8, cvy_shape4(1, 8, 2, 2));
    integer_faults(device, &desc, (const void *[]){values});
    cvy_device_close(device);
}

/* ---- the cpu device ---- */

/* A whole plan, so that kernels meet the layouts that other kernels leave after: one step on random numbers. The graph
 * is taken over. */
static void check_plan_on_cpu(const char *name, struct cvy_graph *graph, int64_t batch)
{
    static const int32_t labels[] = {0, 4, 2};
    static const float seed = 2;
    static uint8_t image[3 * 3 * 32 * 32];
    static float boxes[3 * 40 * 4], codes[3 * 66 * 4], logits[3 * 66 * 6];
    static int32_t box_labels[3 * 40];
    cvy_device *device = executor_device("check:cpu", 2);
    const bool training = graph->training;
    struct cvy_rng rng = cvy_rng_new(8, CVY_RNG_TEST, 0, 0);
    struct cvy_store store;
    struct cvy_plan plan;

    for (size_t i = 0; i < sizeof image; i++)
        image[i] = (uint8_t)cvy_rng_below(&rng, 256);
    for (size_t i = 0; i < sizeof boxes / sizeof *boxes; i++) {
        boxes[i] = (float)cvy_rng_range(&rng, i & 2 ? 0.4 : 0, i & 2 ? 1 : 0.6);
        box_labels[i / 4] = (int32_t)cvy_rng_below(&rng, 6);
    }
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        codes[i] = (float)cvy_rng_normal(&rng);
    for (size_t i = 0; i < sizeof logits / sizeof *logits; i++)
        logits[i] = (float)cvy_rng_normal(&rng);
    assert_int_equal(cvy_store_open(&store, device, graph->trainable_elements, graph->state_elements, training),
                     CVY_OK);
    /* The cpu device has host memory. */
    for (int64_t i = 0; i < store.trainable_elements; i++)
        store.weights[i] = (float)(0.05 * cvy_rng_normal(&rng));
    for (int64_t i = 0; i < store.state_elements; i++)
        store.state[i] = (float)cvy_rng_range(&rng, 0.5, 1.5);
    if (cvy_plan_open(&plan, device, &store, graph, batch) != CVY_OK)
        fail_msg("%s: %s", name, cvy_error());
    assert_int_equal(cvy_plan_bind(&plan, "image", image), CVY_OK);
    if (training) {
        assert_int_equal(cvy_plan_bind(&plan, "labels", labels), CVY_OK);
        assert_int_equal(cvy_plan_bind(&plan, "seed", &seed), CVY_OK);
        assert_int_equal(cvy_plan_bind(&plan, "boxes", boxes), CVY_OK);
        assert_int_equal(cvy_plan_bind(&plan, "box labels", box_labels), CVY_OK);
    } else if (cvy_graph_find_result(&plan.graph, "count") != CVY_NONE) { /* a detector */
        assert_int_equal(cvy_plan_bind(&plan, "codes", codes), CVY_OK);
        assert_int_equal(cvy_plan_bind(&plan, "logits", logits), CVY_OK);
    }
    if (cvy_plan_run(&plan, NULL) != CVY_OK)
        fail_msg("%s: %s", name, cvy_error());
    cvy_plan_close(&plan);
    cvy_store_close(&store);
    cvy_device_close(device);
}

static void the_cpu_device_passes(void **state)
{
    struct cvy_model_options options = {.num_classes = 10, .image_size = 32, .std = {60, 60, 60}};
    struct cvy_graph graph;

    /* 16 channels and more have blocked layouts, 4 have none. */
    build(&graph, true, 4, false);
    check_plan_on_cpu("training, 4 channels", &graph, 3);
    build(&graph, true, 48, false);
    check_plan_on_cpu("training, 48 channels", &graph, 3);
    build(&graph, false, 32, false);
    check_plan_on_cpu("inference, 32 channels", &graph, 2);
    assert_int_equal(cvy_model_graph(cvy_architecture_find("resnet18"), &options, CVY_MODEL_INFER, true, &graph),
                     CVY_OK);
    check_plan_on_cpu("resnet18", &graph, 1);
}

RUN_TESTS(NULL, NULL, TEST(every_fault_is_caught), TEST(a_mask_may_flip_only_within_rounding),
          TEST(inference_batch_norm), TEST(integers), TEST(the_cpu_device_passes))
