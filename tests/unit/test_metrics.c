/* Accuracy and cross-entropy, and which parameters decay. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "comm/comm.h"
#include "train/metrics.h"
#include "train/optimizer.h"

static void uniform_logits(void **state)
{
    float logits[1000], probabilities[1000];

    (void)state;
    for (int i = 0; i < 1000; i++)
        logits[i] = 3.5f;
    /* ln 1000; doubles carry sixteen digits, the literal ten. */
    assert_true(fabs(cvy_cross_entropy(logits, 1000, 17) - 6.907755279) < 1e-9);
    cvy_softmax_row(logits, 1000, probabilities);
    assert_true(probabilities[999] == 0.001f);
}

static void large_logits_do_not_overflow(void **state)
{
    const float logits[] = {1000.0f, 0.0f, -1000.0f};

    (void)state;
    assert_true(cvy_cross_entropy(logits, 3, 0) == 0.0);
    assert_true(cvy_cross_entropy(logits, 3, 1) == 1000.0);
    assert_true(cvy_cross_entropy(logits, 3, 2) == 2000.0);
}

static void ranks(void **state)
{
    const float logits[] = {1, 3, 3, 2, NAN};

    (void)state;
    assert_int_equal(cvy_label_rank(logits, 5, 1), 0);
    assert_int_equal(cvy_label_rank(logits, 5, 2), 1); /* the first among equals ranks first */
    assert_int_equal(cvy_label_rank(logits, 5, 3), 2);
    assert_int_equal(cvy_label_rank(logits, 5, 0), 3);
    assert_int_equal(cvy_label_rank(logits, 5, 4), 4); /* NaN is never a hit */
}

static void counting(void **state)
{
    struct cvy_metrics metrics = {.top_k = 2};
    const float a[] = {3, 2, 1}, b[] = {1, 2, 3};

    (void)state;
    assert_true(cvy_metrics_top1(&metrics) == 0 && cvy_metrics_loss(&metrics) == 0);
    cvy_metrics_add(&metrics, a, 3, 0);
    cvy_metrics_add(&metrics, a, 3, 1);
    cvy_metrics_add(&metrics, b, 3, 0);
    cvy_metrics_add(&metrics, b, 3, 2);
    assert_true(cvy_metrics_top1(&metrics) == 50.0);
    assert_true(cvy_metrics_topk(&metrics) == 75.0);
    assert_int_equal(metrics.images, 4);
}

/* ---- the optimizer's table ---- */

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

    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        struct cvy_graph graph;
        int exempt = 0, decayed = 0;

        open_table(&graph, rows[r].arch);
        for (int32_t i = 0; i < graph.param_count; i++) {
            if (graph.params[i].kind != CVY_PARAM_TRAINABLE)
                continue;
            exempt += cvy_decay_exempt(graph.params[i].name);
            decayed += !cvy_decay_exempt(graph.params[i].name);
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

    (void)state;
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
    options.decay_batch_norm = true;
    assert_int_equal(cvy_optimizer_open(&optimizer, &graph, &options), CVY_OK);
    assert_int_equal(optimizer.segment_count, 1);
    cvy_optimizer_close(&optimizer);
    cvy_graph_release(&graph);
}

/* ---- gradient buckets ---- */

static int64_t reduced_elements, reduced_calls;
static float *arena;
static char *reduced; /* per element: already summed */

static cvy_status count_reduce(struct cvy_comm *comm, float *data, int64_t count)
{
    (void)comm;
    reduced_calls++;
    reduced_elements += count;
    for (int64_t i = data - arena; i < data - arena + count; i++) {
        assert_false(reduced[i]);
        reduced[i] = 1;
    }
    return CVY_OK;
}

static void buckets(void **state)
{
    struct cvy_comm comm;
    struct cvy_store store = {0};
    struct cvy_reducer reducer;
    struct cvy_graph graph;

    (void)state;
    open_table(&graph, "resnet18");
    cvy_comm_single(&comm);
    comm.all_reduce = count_reduce;
    arena = calloc((size_t)graph.trainable_elements, sizeof *arena);
    reduced = calloc((size_t)graph.trainable_elements, 1);
    assert_true(arena && reduced);
    store.gradients = arena;
    assert_int_equal(cvy_reducer_open(&reducer, &comm, &store, &graph, 1000000), CVY_OK);
    for (int round = 0; round < 2; round++) {
        memset(reduced, 0, (size_t)graph.trainable_elements);
        reduced_elements = reduced_calls = 0;
        cvy_reducer_start(&reducer);
        for (int32_t i = graph.param_count - 1; i >= 0; i--) {
            if (graph.params[i].kind == CVY_PARAM_TRAINABLE)
                assert_int_equal(cvy_reducer_ready(&reducer, i), CVY_OK);
        }
        assert_int_equal(reduced_elements, graph.trainable_elements);
        assert_true(reduced_calls > 3 &&
                    reduced_calls <= 12); /* 11.7 million elements in buckets of a million or more */
    }
    cvy_reducer_close(&reducer);
    free(arena);
    free(reduced);
    cvy_graph_release(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uniform_logits), cmocka_unit_test(large_logits_do_not_overflow),
        cmocka_unit_test(ranks),          cmocka_unit_test(counting),
        cmocka_unit_test(decay_counts),   cmocka_unit_test(segments),
        cmocka_unit_test(buckets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
