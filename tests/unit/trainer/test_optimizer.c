/* Which parameters decay, and in which buckets gradients are summed. */
#include "comm/comm.h"
#include "models/models.h"
#include "network/network.h"
#include "ops/ops.h"
#include "support_test.h"
#include "trainer/optimizer.h"
#include "trainer/reducer.h"

static void open_table(struct cvy_graph *graph, const char *arch)
{
    const struct cvy_model_options model = cvy_model_options_make(1000, 224);

    assert_int_equal(cvy_model_graph(cvy_architecture_find(arch), &model, CVY_MODEL_INFER, false, graph), CVY_OK);
}

/* Published by the reference program when it starts: tensors without and with decay. */
static void decay_counts(void **state)
{
    static const struct {
        const char *arch;
        int exempt, decayed;
    } rows[] = {{"resnet18", 34, 28},
                {"resnet34", 66, 44},
                {"resnet50", 98, 63},
                {"resnet101", 200, 114},
                {"resnet152", 302, 165}};

    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        struct cvy_graph graph;
        int exempt = 0, decayed = 0;

        open_table(&graph, rows[r].arch);
        for (int32_t i = 0; i < graph.param_count; i++) {
            if (graph.params[i].kind != CVY_PARAM_TRAINABLE)
                continue;
            exempt += cvy_decay_exempt(&graph, i, CVY_DECAY_NAME);
            decayed += !cvy_decay_exempt(&graph, i, CVY_DECAY_NAME);
        }
        assert_int_equal(exempt, rows[r].exempt);
        assert_int_equal(decayed, rows[r].decayed);
        cvy_graph_release(&graph);
    }
}

/* Segments cover the arena once and change where the decay changes. */
static void segments(void **state)
{
    struct cvy_optimizer_options options = {.momentum = 0.9f, .weight_decay = 0.5f};
    struct cvy_optimizer optimizer;
    struct cvy_graph graph;
    int64_t next = 0;

    open_table(&graph, "resnet18");
    assert_int_equal(cvy_optimizer_open(&optimizer, &graph, &options), CVY_OK);
    for (int32_t i = 0; i < optimizer.segment_count; i++) {
        assert_int_equal(optimizer.segments[i].first, next);
        next += optimizer.segments[i].count;
        if (i > 0)
            assert_true(optimizer.segments[i].weight_decay != optimizer.segments[i - 1].weight_decay);
    }
    assert_int_equal(next, graph.trainable_elements);
    cvy_optimizer_close(&optimizer);
    options.decay_rule = CVY_DECAY_ALL;
    assert_int_equal(cvy_optimizer_open(&optimizer, &graph, &options), CVY_OK);
    assert_int_equal(optimizer.segment_count, 1);
    cvy_optimizer_close(&optimizer);
    cvy_graph_release(&graph);
}

/* ---- gradient buckets ---- */

static int64_t reduced_elements, reduced_calls;
static int64_t reduced_first[64]; /* of the first calls: where they begin */
static float *arena;
static char *reduced; /* per element: already summed */

/* On the reducer's own thread. */
static cvy_status count_reduce(struct cvy_comm *comm, void *data, int64_t count, enum cvy_comm_type type)
{
    const int64_t first = (float *)data - arena;

    if (reduced_calls < 64)
        reduced_first[reduced_calls] = first;
    reduced_calls++;
    reduced_elements += count;
    for (int64_t i = first; i < first + count; i++) {
        if (reduced[i] || type != CVY_COMM_F32)
            return CVY_FAILED;
        reduced[i] = 1;
    }
    return CVY_OK;
}

/* Runs the plan's announcements of two steps; a hook that finds a sum already done fails. `most_waiting`: elements that
 * are ready and not summed. */
static void announce(struct cvy_plan *plan, int64_t bucket, int64_t elements, int max_calls, int64_t most_waiting)
{
    struct cvy_comm comm;
    struct cvy_store store = {0};
    struct cvy_reducer reducer;

    cvy_comm_single(&comm);
    comm.world = 2;
    comm.all_reduce = count_reduce;
    arena = calloc((size_t)plan->graph.trainable_elements, sizeof *arena);
    reduced = calloc((size_t)plan->graph.trainable_elements, 1);
    assert_true(arena && reduced);
    store.gradients = arena;
    store.device = plan->device;
    assert_int_equal(cvy_reducer_open(&reducer, &comm, &store, plan, bucket), CVY_OK);
    for (int round = 0; round < 2; round++) {
        int64_t announced = 0;
        memset(reduced, 0, (size_t)plan->graph.trainable_elements);
        reduced_elements = reduced_calls = 0;
        cvy_reducer_start(&reducer);
        for (int32_t i = 0; i < plan->ready_count; i++) {
            const struct cvy_param *param = &plan->graph.params[plan->ready[i].param];
            assert_false(reduced[param->offset]);
            announced += cvy_shape_elements(&param->shape);
            if (i + 1 == plan->ready_count && most_waiting < elements) /* what is left for the end is little */
                assert_true(elements - reduced_elements <= bucket / 16 ||
                            elements - reduced_elements == cvy_shape_elements(&param->shape));
            assert_int_equal(cvy_reducer_ready(&reducer, plan->ready[i].param), CVY_OK);
            assert_int_equal(cvy_reducer_finish(&reducer), CVY_OK); /* all that was posted is summed */
            /* Gradients become ready about in the order of the buckets: few wait for others. */
            assert_true(announced - reduced_elements <= most_waiting);
        }
        assert_int_equal(reduced_elements, elements);
        assert_in_range(reduced_calls, 1, max_calls);
    }
    cvy_reducer_close(&reducer);
    free(arena);
    free(reduced);
}

static void buckets(void **state)
{
    const struct cvy_model_options options = cvy_model_options_make(1000, 64);
    cvy_device *device;
    struct cvy_graph graph;
    struct cvy_plan plan;

    assert_int_equal(cvy_device_open("cpu", 1, &device), CVY_OK);
    assert_int_equal(cvy_model_graph(cvy_architecture_find("resnet18"), &options, CVY_MODEL_TRAIN, true, &graph),
                     CVY_OK);
    assert_int_equal(cvy_plan_open(&plan, device, NULL, &graph, 2), CVY_OK);
    /* 11.7 million elements in stretches of a million or more; a group of parameters is broken in two where a
     * projection is ready before the convolutions that precede it. */
    announce(&plan, 1000000, plan.graph.trainable_elements, 24, 999999);
    announce(&plan, 1, plan.graph.trainable_elements, plan.ready_count, 512 * 1000 /* the classifier, for its bias */);
    cvy_plan_close(&plan);
    cvy_device_close(device);
}

/* Ranks whose gradients become ready in another order make the same sums in the same order. */
static void same_order(void **state)
{
    const struct cvy_model_options options = cvy_model_options_make(1000, 64);
    cvy_device *device;
    struct cvy_graph graph;
    struct cvy_plan plan;
    int64_t first[64];

    assert_int_equal(cvy_device_open("cpu", 1, &device), CVY_OK);
    assert_int_equal(cvy_model_graph(cvy_architecture_find("resnet18"), &options, CVY_MODEL_TRAIN, true, &graph),
                     CVY_OK);
    assert_int_equal(cvy_plan_open(&plan, device, NULL, &graph, 2), CVY_OK);
    memset(reduced_first, 0, sizeof reduced_first);
    announce(&plan, 1000000, plan.graph.trainable_elements, 24, 999999);
    memcpy(first, reduced_first, sizeof first);
    for (int32_t i = 0, j = plan.ready_count - 1; i < j; i++, j--) {
        const struct cvy_plan_ready ready = plan.ready[i];
        plan.ready[i] = plan.ready[j];
        plan.ready[j] = ready;
    }
    memset(reduced_first, 0, sizeof reduced_first);
    announce(&plan, 1000000, plan.graph.trainable_elements, 24, plan.graph.trainable_elements);
    assert_memory_equal(first, reduced_first, sizeof first);
    assert_true(first[1] < first[0]); /* from the last parameter on */
    cvy_plan_close(&plan);
    cvy_device_close(device);
}

/* A parameter that the loss does not see lies between two that it sees: nobody waits for its gradient. */
static void a_parameter_without_gradient(void **state)
{
    static const char *const names[] = {"first", "unseen", "last"};
    cvy_device *device;
    struct cvy_graph graph;
    struct cvy_plan plan;
    cvy_val x, y[3], seed;

    cvy_graph_init(&graph, true);
    x = cvy_graph_input(&graph, "x", CVY_F32, cvy_shape2(CVY_BATCH, 4), false);
    for (int i = 0; i < 3; i++) {
        cvy_scope_push(&graph, names[i]);
        y[i] = cvy_linear(&graph, i == 2 ? y[0] : x, 4);
        cvy_scope_pop(&graph);
    }
    cvy_graph_result(&graph, CVY_RESULT_NAMED, "unseen", -1, y[1]);
    seed = cvy_graph_input(&graph, "seed", CVY_F32, cvy_shape0(), false);
    x = cvy_graph_input(&graph, "labels", CVY_I32, cvy_shape1(CVY_BATCH), false);
    y[2] = cvy_softmax_cross_entropy(&graph, y[2], x, 0);
    cvy_graph_result(&graph, CVY_RESULT_NAMED, "loss", -1, y[2]);
    cvy_graph_backward(&graph, cvy_ops, y[2], seed);
    assert_int_equal(cvy_device_open("ref", 1, &device), CVY_OK);
    assert_int_equal(cvy_plan_open(&plan, device, NULL, &graph, 2), CVY_OK);
    assert_int_equal(plan.ready_count, 4);
    announce(&plan, 1000, 2 * (4 * 4 + 4), 2, 999);
    cvy_plan_close(&plan);
    cvy_device_close(device);
}

RUN_TESTS(NULL, NULL, TEST(decay_counts), TEST(segments), TEST(buckets), TEST(same_order),
          TEST(a_parameter_without_gradient))
