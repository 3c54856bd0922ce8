/* Patterns of several nodes for which cuDNN has kernels of their own: a convolution with the batch norm before it,
 * forward and in both gradients. Asked before a graph is planned, for only there all nodes are in sight; taken where
 * the sum of what they cost was measured to be less than the sum of what they replace. */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/conv_engine.h"

enum { MAX_REASON = 120 };

/* ---- times ---- */

/* Adds what the convolution takes; CVY_UNAVAILABLE where nothing does it, and where it cannot be timed. */
static cvy_status add_time(struct gpu_device *device, const struct gpu_conv_problem *problem, double *seconds)
{
    const bool must_be_timed = device->patterns != GPU_STATISTICS_ALWAYS_FUSED;
    struct gpu_conv *conv;
    double found;

    if (must_be_timed && !gpu_conv_is_timed(device, problem))
        return cvy_fail(CVY_UNAVAILABLE, "not timed");
    CVY_TRY(gpu_conv_open(device, problem, &conv));
    found = gpu_conv_seconds(conv);
    gpu_conv_close(conv);
    if (found <= 0 && must_be_timed)
        return cvy_fail(CVY_UNAVAILABLE, "not timed");
    *seconds += found;
    return CVY_OK;
}

/* Adds the time of a forward convolution whose statistics are made in the faster way. */
static cvy_status add_faster(struct gpu_device *device, struct gpu_conv_problem problem, double *seconds)
{
    double separate = 0, fused = 0;
    cvy_status status;

    problem.statistics = GPU_STATISTICS_SEPARATE;
    CVY_TRY(add_time(device, &problem, &separate));
    problem.statistics = GPU_STATISTICS_FUSED;
    status = add_time(device, &problem, &fused);
    if (status != CVY_OK && status != CVY_UNAVAILABLE)
        return status;
    *seconds += status == CVY_OK && fused < separate ? fused : separate;
    return CVY_OK;
}

/* Separate convolutions may be done by kernels of our own. */
static cvy_status spare(struct gpu_device *device, const struct gpu_conv_problem *problem, double *seconds)
{
    double gain;

    CVY_TRY(gpu_grouped_gain(device, *problem, &gain));
    *seconds -= gain;
    return CVY_OK;
}

/* CVY_UNAVAILABLE unless what is fused takes less than what is separate; both go to `reason`. */
static cvy_status compare(double fused, double separate, char *reason)
{
    if (separate <= fused)
        return cvy_fail(CVY_UNAVAILABLE, "%.3f ms, separate %.3f ms", 1e3 * fused, 1e3 * separate);
    snprintf(reason, MAX_REASON, "%.3f ms, separate %.3f ms", 1e3 * fused, 1e3 * separate);
    return CVY_OK;
}

/* ---- questions ---- */

static cvy_status describe(const struct cvy_graph *graph, int32_t n, int64_t batch, bool tf32,
                           struct gpu_conv_problem *problem)
{
    struct cvy_op_desc desc;

    cvy_node_describe(graph, &graph->nodes[n], batch, &desc);
    CVY_TRY(gpu_conv_describe(&desc, problem));
    problem->tf32 = tf32;
    return CVY_OK;
}

/* Whether a convolution and its gradient of weights had better make their input themselves. Only both: with one of them
 * reading what batch norm wrote, it is written and read as often as before. */
static cvy_status ask_prologue(struct gpu_device *device, const struct cvy_graph *graph, int64_t batch,
                               const struct cvy_conv_pattern *pattern, char *reason)
{
    struct gpu_conv_problem forward, weights;
    double fused = 0, separate = 0;

    CVY_TRY(describe(graph, pattern->conv, batch, device->base.tf32, &forward));
    if (pattern->weights >= 0) {
        CVY_TRY(describe(graph, pattern->weights, batch, device->base.tf32, &weights));
        weights.prologue = GPU_PART_FUSED;
        CVY_TRY(gpu_check_fusable(&weights));
        CVY_TRY(add_time(device, &weights, &fused));
    }
    forward.prologue = GPU_PART_FUSED;
    forward.statistics = GPU_STATISTICS_FUSED;
    CVY_TRY(gpu_check_fusable(&forward));
    CVY_TRY(add_time(device, &forward, &fused));
    if (device->patterns == GPU_STATISTICS_ALWAYS_FUSED)
        return CVY_OK;
    forward.prologue = GPU_PART_SEPARATE; /* batch norm's kernel, which runs once */
    CVY_TRY(add_faster(device, forward, &separate));
    CVY_TRY(spare(device, &forward, &separate));
    weights.prologue = GPU_PART_NONE;
    if (pattern->weights >= 0) {
        CVY_TRY(add_time(device, &weights, &separate));
        CVY_TRY(spare(device, &weights, &separate));
    }
    return compare(fused, separate, reason);
}

/* Whether a data gradient had better make the sums of the preceding batch norm. */
static cvy_status ask_sums(struct gpu_device *device, const struct cvy_graph *graph, int64_t batch, int32_t data,
                           char *reason)
{
    struct gpu_conv_problem problem;
    double fused = 0, separate = 0;

    CVY_TRY(describe(graph, data, batch, device->base.tf32, &problem));
    problem.gradient_sums = GPU_PART_FUSED;
    CVY_TRY(gpu_check_fusable(&problem));
    CVY_TRY(add_time(device, &problem, &fused));
    if (device->patterns == GPU_STATISTICS_ALWAYS_FUSED)
        return CVY_OK;
    problem.gradient_sums = GPU_PART_SEPARATE;
    problem.unmasked = true;
    CVY_TRY(add_time(device, &problem, &separate));
    CVY_TRY(spare(device, &problem, &separate));
    return compare(fused, separate, reason);
}

/* Whether kernels of our own that add a second gradient, mask and sum are faster than a gradient of data and batch
 * norm's kernel that does so after it. */
static cvy_status ask_residual_sums(struct gpu_device *device, const struct cvy_graph *graph, int64_t batch,
                                    int32_t data, char *reason)
{
    struct gpu_conv_problem problem;
    double fused, separate = 0;

    CVY_TRY(describe(graph, data, batch, device->base.tf32, &problem));
    problem.gradient_sums = GPU_PART_SEPARATE;
    problem.residual = true;
    CVY_TRY(gpu_pointwise_backward_ask(device, &problem, &fused));
    if (fused <= 0)
        return CVY_OK;
    CVY_TRY(add_time(device, &problem, &separate));
    return compare(fused, separate, reason);
}

/* ---- the rewrite ---- */

/* For `info --plan`. */
static void note(struct cvy_graph *graph, int32_t node, const char *what, const char *why)
{
    char text[MAX_REASON + 32];

    if (!why[0])
        return;
    snprintf(text, sizeof text, "%s: %s", what, why);
    graph->nodes[node].note = cvy_arena_strdup(&graph->arena, text);
    if (!graph->nodes[node].note)
        cvy_graph_fail(graph, CVY_NO_MEMORY, "out of memory while rewriting the graph");
}

/* The other of two gradients, which may have been asked first and refused, has no sums of its own any more. */
static void forget_other(struct cvy_graph *graph, int32_t data)
{
    const struct cvy_node *node = &graph->nodes[data];
    const cvy_val more = node->inputs > 8 ? node->in[8] : CVY_NONE;
    const int32_t other = more == CVY_NONE ? -1 : graph->values[more].producer;

    if (other >= 0 && graph->nodes[other].op == CVY_OP_CONV2D_BWD_DATA)
        graph->nodes[other].note = NULL;
}

/* The reason of a refusal without the convolution that it is about, which its reader sees. */
static void refusal(char *reason)
{
    const char *text = cvy_error(), *key = strstr(text, ": ");

    snprintf(reason, MAX_REASON, "%s", key && strstr(text, "groups") ? key + 2 : text);
}

static cvy_status rewrite_forward(struct gpu_device *device, struct cvy_graph *graph, int64_t batch, int32_t n)
{
    struct cvy_conv_pattern pattern;
    char reason[MAX_REASON] = "";
    cvy_status status;

    if (graph->nodes[n].op != CVY_OP_CONV2D || !cvy_prologue_find(graph, n, &pattern))
        return CVY_OK;
    status = ask_prologue(device, graph, batch, &pattern, reason);
    if (status != CVY_OK && status != CVY_UNAVAILABLE)
        return status;
    if (status == CVY_OK)
        cvy_prologue_fuse(graph, &pattern);
    else
        refusal(reason);
    note(graph, n, status == CVY_OK ? "batch norm taken in" : "batch norm separate", reason);
    return CVY_OK;
}

/* A gradient of data that makes the sums of the batch norm before it. */
struct sums_pattern {
    int32_t (*find)(const struct cvy_graph *graph, int32_t data);
    cvy_status (*ask)(struct gpu_device *device, const struct cvy_graph *graph, int64_t batch, int32_t data,
                      char *reason);
    void (*fuse)(struct cvy_graph *graph, int32_t data, int32_t norm_bwd);
};
/* Within a block; and at its end, once the sign of its output is kept. */
static const struct sums_pattern within_block = {cvy_gradient_sums_find, ask_sums, cvy_gradient_sums_fuse},
                                 block_end = {cvy_residual_sums_find, ask_residual_sums, cvy_residual_sums_fuse};

static cvy_status rewrite_sums(struct gpu_device *device, struct cvy_graph *graph, int64_t batch, int32_t n,
                               const struct sums_pattern *pattern)
{
    const int32_t norm = graph->nodes[n].op == CVY_OP_CONV2D_BWD_DATA ? pattern->find(graph, n) : -1;
    char reason[MAX_REASON] = "";
    cvy_status status;

    if (norm < 0)
        return CVY_OK;
    status = pattern->ask(device, graph, batch, n, reason);
    if (status != CVY_OK && status != CVY_UNAVAILABLE)
        return status;
    if (status == CVY_OK) {
        pattern->fuse(graph, n, norm);
        forget_other(graph, n);
    } else {
        refusal(reason);
    }
    note(graph, n, status == CVY_OK ? "sums taken in" : "sums separate", reason);
    return CVY_OK;
}

/* No library has such kernels for f32. */
static bool is_narrow(const struct cvy_graph *graph, int32_t n)
{
    const struct cvy_node *node = &graph->nodes[n];

    return node->outputs > 0 && node->out[0] != CVY_NONE && cvy_dtype_size(graph->values[node->out[0]].dtype) == 2;
}

/* Where no kernel of the libraries is asked for, and the same bits come of less that is read and written: nothing has
 * to be timed. */
static void rewrite_norms(struct cvy_graph *graph)
{
    bool changed = false;

    for (int32_t n = 0; n < graph->node_count && graph->status == CVY_OK; n++)
        changed |= cvy_norm_keep_sign(graph, n);
    for (int32_t n = 0; n < graph->node_count && graph->status == CVY_OK; n++) {
        changed |= cvy_norm_take_residual(graph, n);
        changed |= cvy_norm_take_residual_gradient(graph, n);
        changed |= cvy_pool_take_norm(graph, n);
        changed |= cvy_pool_take_norm_gradient(graph, n);
        changed |= cvy_pool_take_sum(graph, n);
    }
    if (changed)
        cvy_rewrite_remove_dead(graph);
}

cvy_status gpu_rewrite(cvy_device *device, struct cvy_graph *graph, int64_t batch)
{
    struct gpu_device *gpu = gpu_of(device);

    CVY_TRY(gpu_enter_of(gpu));
    if (!graph->training || gpu->patterns == GPU_STATISTICS_ALWAYS_SEPARATE)
        return CVY_OK;
    for (int32_t n = 0; n < graph->node_count && graph->status == CVY_OK; n++) {
        if (!is_narrow(graph, n))
            continue;
        CVY_TRY(rewrite_forward(gpu, graph, batch, n));
        CVY_TRY(rewrite_sums(gpu, graph, batch, n, &within_block));
    }
    if (device->checked)
        return CVY_OK;
    rewrite_norms(graph);
    for (int32_t n = 0; n < graph->node_count && graph->status == CVY_OK; n++) {
        if (is_narrow(graph, n))
            CVY_TRY(rewrite_sums(gpu, graph, batch, n, &block_end));
    }
    cvy_rewrite_order(graph);
    return CVY_OK;
}
