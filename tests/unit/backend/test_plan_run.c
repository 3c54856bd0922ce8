/* Whole fused plans on the cpu device against the plain graph on the reference in double: logits, loss, every gradient,
 * the running statistics. The networks are small and hold what is easily laid out wrong: residuals, a tensor that one
 * step reads twice, weights and batch norms that are used twice, channels that fill blocks and channels that do not. */
#include "backend/plan.h"
#include "base/rng.h"
#include "base/system.h"
#include "ops/ops.h"
#include "support_executor.h"
#include "support_graph.h"
#include "support_store.h"
#include "support_test.h"

enum { BATCH = 3, SIZE = 16, CLASSES = 5 };

/* Relative rms error of a tensor. A sum of a thousand float products is off by about sqrt(1000) * 2^-24 = 2e-6; six
 * layers forward and back measured up to 4e-6. One element that is read too late or too early costs 1e-2 and more. */
static const double LIMIT = 2e-5;

/* ---- networks ---- */

static cvy_val conv(struct cvy_graph *g, const char *name, cvy_val x, int32_t out)
{
    cvy_scope_push(g, name);
    x = cvy_conv2d(g, x,
                   &(struct cvy_conv2d){
                       .out = out, .kernel = 3, .pad = 1, .init = {CVY_INIT_NORMAL, (float)sqrt(2.0 / (9.0 * out))}});
    cvy_scope_pop(g);
    return x;
}

static cvy_val norm(struct cvy_graph *g, const char *name, cvy_val x)
{
    cvy_scope_push(g, name);
    x = cvy_batch_norm(g, x, &(struct cvy_batch_norm){0});
    cvy_scope_pop(g);
    return x;
}

/* y = conv(x) + x with x = relu(...): fused, the convolution reads x twice. */
static cvy_val doubled(struct cvy_graph *g, const char *name, cvy_val x, int32_t channels)
{
    x = cvy_relu(g, x);
    return cvy_add(g, conv(g, name, x, channels), x);
}

/* Squeeze and excitation, as the networks have it. */
static cvy_val squeeze_excite(struct cvy_graph *g, const char *name, cvy_val x, int32_t channels)
{
    cvy_val s = cvy_global_avg_pool(g, x);

    cvy_scope_push(g, name);
    cvy_scope_push(g, "fc1");
    s = cvy_relu(g, cvy_linear_1x1(g, s, 6));
    cvy_scope_pop(g);
    cvy_scope_push(g, "fc2");
    s = cvy_sigmoid(g, cvy_linear_1x1(g, s, channels));
    cvy_scope_pop(g);
    x = cvy_scale_channels(g, x, s);
    cvy_scope_pop(g);
    return x;
}

static cvy_val body(struct cvy_graph *g, cvy_val x, int32_t channels)
{
    cvy_val y;

    x = cvy_relu(g, norm(g, "bn1", conv(g, "conv1", x, channels)));
    x = cvy_max_pool(g, x, &(struct cvy_max_pool){.kernel = 3, .stride = 2, .pad = 1});
    y = cvy_relu(g, norm(g, "bn2", conv(g, "conv2", x, channels)));
    y = norm(g, "bn3", conv(g, "conv3", y, channels));
    x = cvy_relu(g, cvy_add(g, y, x));
    y = squeeze_excite(g, "se5", norm(g, "bn5", conv(g, "conv5", x, channels)), channels);
    x = cvy_relu(g, cvy_add(g, y, norm(g, "bn6", conv(g, "conv6", x, channels)))); /* with a projection */
    y = squeeze_excite(g, "se7", norm(g, "bn7", conv(g, "conv7", x, channels)), channels);
    x = cvy_relu(g, cvy_add(g, y, x)); /* without */
    x = doubled(g, "conv4", norm(g, "bn4", x), channels);
    for (int i = 0; i < 2; i++) /* one layer, twice */
        x = cvy_relu(g, norm(g, "shared_bn", conv(g, "shared", x, channels)));
    return x;
}

static void build(struct cvy_graph *g, int32_t channels, bool training, bool fuse)
{
    const float mean[] = {120, 115, 105}, std[] = {58, 57, 56};
    cvy_val image, target, scale, logits, loss;

    cvy_graph_init(g, training);
    image = cvy_graph_input(g, "image", CVY_U8, cvy_shape4(CVY_BATCH, 3, SIZE, SIZE), true);
    logits = cvy_global_avg_pool(g, body(g, cvy_normalize(g, image, mean, std), channels));
    cvy_scope_push(g, "fc");
    logits = cvy_linear(g, logits, CLASSES);
    cvy_scope_pop(g);
    cvy_graph_result(g, CVY_RESULT_NAMED, "logits", -1, logits);
    if (training) {
        target = cvy_graph_input(g, "target", CVY_I32, cvy_shape1(CVY_BATCH), false);
        scale = cvy_graph_input(g, "loss_scale", CVY_F32, cvy_shape0(), false);
        loss = cvy_softmax_cross_entropy(g, logits, target, 0.1F);
        cvy_graph_result(g, CVY_RESULT_NAMED, "loss", -1, loss);
        if (fuse)
            cvy_rewrite_fuse_training(g);
        cvy_graph_backward(g, cvy_ops, loss, scale);
        if (fuse) {
            cvy_rewrite_recompute(g);
            cvy_rewrite_fuse_backward(g);
        }
    } else if (fuse) {
        cvy_rewrite_fuse_inference(g);
    }
    check_graph(g);
}

/* ---- one run ---- */

struct outcome {
    double logits[BATCH * CLASSES], loss;
    float *gradients, *state; /* in the order of the parameter table */
};

static void read_result(struct cvy_plan *plan, const char *name, double *values, size_t count)
{
    float narrow[BATCH * CLASSES];

    if (plan->graph.values[cvy_graph_find_result(&plan->graph, name)].dtype == CVY_F64) {
        assert_int_equal(cvy_plan_read(plan, name, values, count * sizeof *values), CVY_OK);
        return;
    }
    assert_int_equal(cvy_plan_read(plan, name, narrow, count * sizeof *narrow), CVY_OK);
    for (size_t i = 0; i < count; i++)
        values[i] = (double)narrow[i];
}

/* Runs the graph (which it takes over) twice, so that the second finds what the first left in memory. */
static void run(const char *device_name, struct cvy_graph *graph, struct outcome *outcome)
{
    static uint8_t image[BATCH * SIZE * SIZE * 3];
    static const int32_t labels[BATCH] = {4, 0, 2};
    static const float scale = 8;
    static const double wide_scale = 8;
    const bool training = graph->training, wide = strcmp(device_name, "ref") == 0;
    cvy_device *device = executor_device(device_name, 2);
    struct cvy_rng rng = cvy_rng_new(2, CVY_RNG_TEST, 0, 0);
    struct cvy_store store;
    struct cvy_plan plan;

    for (size_t i = 0; i < sizeof image; i++)
        image[i] = (uint8_t)cvy_rng_below(&rng, 256);
    if (wide)
        cvy_rewrite_precision(graph, cvy_ops, CVY_F64);
    assert_int_equal(cvy_store_open(&store, device, graph->trainable_elements, graph->state_elements, training),
                     CVY_OK);
    if (cvy_plan_open(&plan, device, &store, graph, BATCH) != CVY_OK)
        fail_msg("%s", cvy_error());
    assert_int_equal(cvy_plan_bind(&plan, "image", image), CVY_OK);
    if (training) {
        const bool wide_seed = plan.graph.values[plan.graph.input_list[2].value].dtype == CVY_F64;
        assert_int_equal(cvy_plan_bind(&plan, "target", labels), CVY_OK);
        assert_int_equal(
            cvy_plan_bind(&plan, "loss_scale", wide_seed ? (const void *)&wide_scale : (const void *)&scale), CVY_OK);
    }
    for (int round = 0; round < 2; round++) {
        store_fill(&plan.graph, &store); /* cpu, ref: host memory; the running statistics start again */
        if (cvy_plan_run(&plan, NULL) != CVY_OK)
            fail_msg("%s: %s", device_name, cvy_error());
    }
    read_result(&plan, "logits", outcome->logits, BATCH * CLASSES);
    if (training) {
        read_result(&plan, "loss", &outcome->loss, 1);
        outcome->gradients = store_copy(store.gradients, store.trainable_elements);
    }
    outcome->state = store_copy(store.state, store.state_elements);
    cvy_plan_close(&plan);
    cvy_store_close(&store);
    cvy_device_close(device);
}

/* ---- comparing ---- */

static void compare(const char *device, int32_t channels, const char *name, const double *found, const double *expected,
                    int64_t count)
{
    double error = 0, size = 0;

    for (int64_t i = 0; i < count; i++) {
        error += pow(found[i] - expected[i], 2);
        size += expected[i] * expected[i];
    }
    assert_true(size > 0);
    if (!(error <= LIMIT * LIMIT * size))
        fail_msg("%s, %d channels: %s is off by %.3g of its size", device, (int)channels, name, sqrt(error / size));
}

static void compare_floats(const char *device, int32_t channels, const struct cvy_param *param, const float *found,
                           const float *expected)
{
    const int64_t count = cvy_shape_elements(&param->shape);
    double *wide = malloc(2 * (size_t)count * sizeof *wide);

    assert_non_null(wide);
    for (int64_t i = 0; i < count; i++) {
        wide[i] = (double)found[param->offset + i];
        wide[count + i] = (double)expected[param->offset + i];
    }
    compare(device, channels, param->name, wide, wide + count, count);
    free(wide);
}

static void agrees(const char *device, int32_t channels, bool training)
{
    struct outcome found = {0}, expected = {0};
    struct cvy_graph table, graph;

    build(&table, channels, training, false);
    build(&graph, channels, training, false);
    run("ref", &graph, &expected);
    build(&graph, channels, training, true);
    run(device, &graph, &found);
    compare(device, channels, "logits", found.logits, expected.logits, BATCH * CLASSES);
    if (training)
        compare(device, channels, "loss", &found.loss, &expected.loss, 1);
    for (int32_t p = 0; p < table.param_count; p++) {
        const struct cvy_param *param = &table.params[p];
        if (param->kind == CVY_PARAM_TRAINABLE && training)
            compare_floats(device, channels, param, found.gradients, expected.gradients);
        if (param->kind == CVY_PARAM_STATE)
            compare_floats(device, channels, param, found.state, expected.state);
    }
    cvy_graph_release(&table);
    free(found.gradients);
    free(found.state);
    free(expected.gradients);
    free(expected.state);
}

static const int32_t channel_counts[] = {16, 48, 8, 13};

static void all_agree(const char *device, bool training)
{
    for (size_t i = 0; i < sizeof channel_counts / sizeof *channel_counts; i++)
        agrees(device, channel_counts[i], training);
}

static void training_on_cpu(void **state)
{
    all_agree("cpu", true);
}

static void training_on_check(void **state)
{
    all_agree("check:cpu", true);
}

static void inference_on_cpu(void **state)
{
    all_agree("cpu", false);
}

static void inference_on_check(void **state)
{
    all_agree("check:cpu", false);
}

/* The networks above are no test of these unless the plan really does it. */
static void the_plan_holds_the_hard_cases(void **state)
{
    cvy_device *device = executor_device("cpu", 1);
    struct cvy_graph graph;
    struct cvy_plan plan;
    int32_t twice = 0, added = 0;

    build(&graph, 16, false, true);
    assert_int_equal(cvy_plan_open(&plan, device, NULL, &graph, BATCH), CVY_OK);
    for (int32_t s = 0; s < plan.step_count; s++)
        twice += plan.steps[s].desc.op == CVY_OP_CONV2D && plan.steps[s].in[3] >= 0 &&
                 plan.steps[s].in[3] == plan.steps[s].in[0];
    cvy_plan_close(&plan);
    assert_int_equal(twice, 1);
    build(&graph, 16, true, true);
    assert_int_equal(cvy_plan_open(&plan, device, NULL, &graph, BATCH), CVY_OK);
    for (int32_t s = 0; s < plan.step_count; s++) /* the gradients of the shared weight, 3x3 */
        added += plan.steps[s].desc.op == CVY_OP_ADD && plan.steps[s].desc.out[0].shape.rank == 4 &&
                 plan.steps[s].desc.out[0].shape.dim[2] == 3;
    cvy_plan_close(&plan);
    assert_int_equal(added, 1);
    cvy_device_close(device);
}

/* A factor for each channel leaves the image in the layout it has: between the first convolution and the mean at the
 * end, no image is laid out anew. And no memory is spent on what can be written over its input. */
static void excitation_keeps_the_layout(void **state)
{
    if (!CVY_HAS_AVX) /* elsewhere no convolution of oneDNN wants blocks */
        skip();
    cvy_device *device = executor_device("cpu", 1);

    for (int training = 0; training < 2; training++) {
        struct cvy_graph graph;
        struct cvy_plan plan;
        int32_t scaled = 0, in_place = 0, with_mean = 0;

        build(&graph, 16, training, true);
        assert_int_equal(cvy_plan_open(&plan, device, NULL, &graph, BATCH), CVY_OK);
        for (int32_t s = 0; s < plan.step_count; s++) {
            const struct cvy_plan_step *step = &plan.steps[s];
            const struct cvy_tensor *in = &step->desc.in[0], *out = &step->desc.out[0];
            if (step->desc.op == CVY_OP_REORDER && in->shape.rank == 4 && in->shape.dim[0] == BATCH)
                fail_msg("%s: %s is laid out as %s", step->scope, cvy_layout_name(&in->layout),
                         cvy_layout_name(&out->layout));
            if (step->desc.op != CVY_OP_SCALE_CHANNELS)
                continue;
            assert_true(in->layout.kind == CVY_LAYOUT_BLOCKED16 || in->layout.kind == CVY_LAYOUT_BLOCKED8);
            assert_true(cvy_layout_equal(&in->layout, &out->layout));
            scaled++;
            with_mean += step->in[2] >= 0;
            in_place += plan.tensors[step->out[0]].offset == plan.tensors[step->in[0]].offset;
        }
        cvy_plan_close(&plan);
        /* Training: twice forward, twice as gradients, and the output of the block without projection once more. */
        assert_int_equal(scaled, training ? 5 : 2);
        assert_int_equal(with_mean, training ? 2 : 0);
        /* All but the gradient that goes to the shortcut as well: the backward pass has its own copies of what is
         * scaled. */
        assert_true(in_place >= (training ? 3 : 2));
    }
    cvy_device_close(device);
}

/* ---- results and gradients ---- */

static void an_input_can_be_a_result(void **state)
{
    static const char *const devices[] = {"ref", "cpu", "check:cpu"};
    static const float x[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}; /* (1, 2, 2, 3) stored as N, H, W, C */
    static const float plain[] = {1, 4, 7, 10, 2, 5, 8, 11, 3, 6, 9, 12};

    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++) {
        for (int nhwc = 0; nhwc < 2; nhwc++) {
            cvy_device *device = executor_device(devices[d], 1);
            struct cvy_store store;
            struct cvy_graph graph;
            struct cvy_plan plan;
            float read[12];

            cvy_graph_init(&graph, false);
            cvy_graph_result(&graph, CVY_RESULT_NAMED, "x", -1,
                             cvy_graph_input(&graph, "x", CVY_F32, cvy_shape4(CVY_BATCH, 3, 2, 2), nhwc));
            assert_int_equal(cvy_store_open(&store, device, 0, 0, false), CVY_OK);
            assert_int_equal(cvy_plan_open(&plan, device, &store, &graph, 1), CVY_OK);
            assert_int_equal(cvy_plan_bind(&plan, "x", x), CVY_OK);
            assert_int_equal(cvy_plan_run(&plan, NULL), CVY_OK);
            assert_int_equal(cvy_plan_read(&plan, "x", read, sizeof read), CVY_OK);
            assert_memory_equal(read, nhwc ? plain : x, sizeof read);
            cvy_plan_close(&plan);
            cvy_store_close(&store);
            cvy_device_close(device);
        }
    }
}

static void a_dry_run_plan_has_nothing_to_read(void **state)
{
    cvy_device *device = executor_device("cpu", 1);
    struct cvy_graph graph;
    struct cvy_plan plan;
    float logits[BATCH * CLASSES];

    build(&graph, 16, false, true);
    assert_int_equal(cvy_plan_open(&plan, device, NULL, &graph, BATCH), CVY_OK);
    assert_fails(cvy_plan_read(&plan, "logits", logits, sizeof logits), CVY_FAILED, "logits");
    cvy_plan_close(&plan);
    cvy_device_close(device);
}

/* A result in the middle of a network: its plain copy stays, the blocked tensor that it was copied from does not. */
static void only_what_is_read_stays(void **state)
{
    cvy_device *device = executor_device("cpu", 1);
    struct cvy_graph graph;
    struct cvy_plan plan;
    int32_t staying = 0;
    cvy_val x, features;

    x = start_graph(&graph, false, 16, SIZE, SIZE);
    features = conv(&graph, "a", x, 32);
    cvy_graph_result(&graph, CVY_RESULT_NAMED, "features", -1, features);
    x = conv(&graph, "c", conv(&graph, "b", features, 32), 32);
    cvy_graph_result(&graph, CVY_RESULT_NAMED, "logits", -1, cvy_global_avg_pool(&graph, x));
    assert_int_equal(cvy_plan_open(&plan, device, NULL, &graph, 1), CVY_OK);
    for (int32_t t = 0; t < plan.tensor_count; t++) {
        if (plan.tensors[t].value != features)
            continue;
        staying += plan.tensors[t].last == plan.step_count;
        if (plan.tensors[t].tensor.layout.kind != CVY_LAYOUT_PLAIN)
            assert_true(plan.tensors[t].last < plan.step_count);
    }
    assert_int_equal(staying, 1);
    cvy_plan_close(&plan);
    cvy_device_close(device);
}

/* A gradient that a later step reads must not be handed out before it has been read. */
static void a_gradient_waits_for_its_readers(void **state)
{
    cvy_device *device = executor_device("cpu", 1);
    struct cvy_graph graph;
    struct cvy_plan plan;
    int32_t last_reader = -1;
    cvy_val a, b, made;

    cvy_graph_init(&graph, true);
    a = cvy_graph_param(&graph, "a", CVY_PARAM_TRAINABLE, cvy_shape1(4), (struct cvy_init){CVY_INIT_ONE, 0});
    b = cvy_graph_param(&graph, "b", CVY_PARAM_TRAINABLE, cvy_shape1(4), (struct cvy_init){CVY_INIT_ONE, 0});
    made = cvy_relu(&graph, a);
    cvy_graph_result(&graph, CVY_RESULT_GRADIENT, NULL, 0, made);
    cvy_graph_result(&graph, CVY_RESULT_GRADIENT, NULL, 1, cvy_relu(&graph, b));
    cvy_graph_result(&graph, CVY_RESULT_NAMED, "later", -1, cvy_add(&graph, made, b));
    assert_int_equal(cvy_plan_open(&plan, device, NULL, &graph, 1), CVY_OK);
    for (int32_t s = 0; s < plan.step_count; s++) {
        for (int i = 0; i < CVY_MAX_INPUTS; i++) {
            if (plan.steps[s].in[i] >= 0 && plan.tensors[plan.steps[s].in[i]].storage == CVY_STORE_GRADIENT)
                last_reader = s;
        }
    }
    assert_int_equal(plan.ready_count, 2);
    assert_int_equal(last_reader, plan.step_count - 1);
    assert_int_equal(plan.ready[0].param, 1);
    assert_true(plan.ready[0].step < last_reader);
    assert_int_equal(plan.ready[1].param, 0);
    assert_int_equal(plan.ready[1].step, last_reader);
    cvy_plan_close(&plan);
    cvy_device_close(device);
}

/* ---- single numbers ---- */

static void bind_and_run(struct cvy_plan *plan, struct cvy_store *store)
{
    static const float x[16 * SIZE * SIZE] = {1};
    static const double wide_x[16 * SIZE * SIZE] = {1};
    const bool wide = plan->graph.values[plan->graph.input_list[0].value].dtype == CVY_F64;

    for (int64_t i = 0; i < store->trainable_elements; i++)
        store->weights[i] = (float)(i % 5);
    store->version++;
    assert_int_equal(cvy_plan_bind(plan, "x", wide ? (const void *)wide_x : (const void *)x), CVY_OK);
    assert_int_equal(cvy_plan_run(plan, NULL), CVY_OK);
}

/* Such as the losses of a detector: all in one piece of memory, whatever is computed between them. */
static void numbers_come_together(void **state)
{
    static const char *const names[] = {"w0", "w1", "w2", "sum"}, *const wrong[] = {"w0", "logits"};
    /* Squares of 0, 1, 2, 3, 4, 0, ...: of five weights, of the next six (they begin at 0 again), of seven (at 1). */
    static const float expected[] = {30, 30, 35, 95};

    for (int wide = 0; wide < 2; wide++) {
        cvy_device *device = executor_device(wide ? "ref" : "cpu", 1);
        struct cvy_plan_numbers numbers;
        char bytes[CVY_PLAN_NUMBER_BYTES];
        struct cvy_graph graph;
        struct cvy_store store;
        struct cvy_plan plan;
        cvy_val x = start_graph(&graph, false, 16, SIZE, SIZE), squares[3];
        float values[4] = {0};

        for (int i = 0; i < 3; i++) {
            const cvy_val w = cvy_graph_param(&graph, names[i], CVY_PARAM_TRAINABLE, cvy_shape1(5 + i),
                                              (struct cvy_init){CVY_INIT_ONE, 0});
            squares[i] = cvy_l2_loss(&graph, &w, 1, 2);
            cvy_graph_result(&graph, CVY_RESULT_NAMED, names[i], -1, squares[i]);
        }
        for (int i = 0; i < 3; i++)
            x = cvy_relu(&graph, conv(&graph, i == 0 ? "a" : i == 1 ? "b" : "c", x, 16));
        cvy_graph_result(&graph, CVY_RESULT_NAMED, "logits", -1, cvy_global_avg_pool(&graph, x));
        cvy_graph_result(&graph, CVY_RESULT_NAMED, "sum", -1,
                         cvy_add(&graph, cvy_add(&graph, squares[0], squares[1]), squares[2]));
        if (wide)
            cvy_rewrite_precision(&graph, cvy_ops, CVY_F64);
        assert_int_equal(cvy_store_open(&store, device, graph.trainable_elements, graph.state_elements, false), CVY_OK);
        if (cvy_plan_open(&plan, device, &store, &graph, 1) != CVY_OK)
            fail_msg("%s", cvy_error());
        bind_and_run(&plan, &store);
        assert_int_equal(cvy_plan_find_numbers(&plan, 4, names, &numbers), CVY_OK);
        assert_int_equal(numbers.pieces, 1);
        assert_true(numbers.bytes[0] <= sizeof bytes);
        memcpy(bytes, numbers.from[0], numbers.bytes[0]); /* cpu, ref: host memory */
        cvy_plan_numbers_read(&numbers, bytes, values);
        assert_memory_equal(values, expected, sizeof expected);
        for (int i = 0; i < 4; i++) {
            double alone;
            read_result(&plan, names[i], &alone, 1);
            assert_true(alone == (double)expected[i]);
        }
        assert_int_equal(cvy_plan_find_numbers(&plan, 2, wrong, &numbers), CVY_FAILED);
        cvy_plan_close(&plan);
        cvy_store_close(&store);
        cvy_device_close(device);
    }
}

RUN_TESTS(NULL, NULL, TEST(training_on_cpu), TEST(training_on_check), TEST(inference_on_cpu), TEST(inference_on_check),
          TEST(the_plan_holds_the_hard_cases), TEST(excitation_keeps_the_layout), TEST(an_input_can_be_a_result),
          TEST(a_dry_run_plan_has_nothing_to_read), TEST(only_what_is_read_stays),
          TEST(a_gradient_waits_for_its_readers), TEST(numbers_come_together))
