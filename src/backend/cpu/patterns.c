/* Convolutions by tiles that do something for the batch norms beside them, so that these read less: asked before a plan
 * is made, for only there all nodes are in sight. */
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/error.h"

/* Sums are added up in another order: results depend on it. */
static cvy_status choose(struct cpu_device *device, const char *variable, enum cpu_choice *choice)
{
    CVY_TRY(cpu_read_choice(variable, choice));
    if (*choice != CPU_AUTO)
        cpu_add_setting(device, variable, getenv(variable));
    return CVY_OK;
}

cvy_status cpu_choose_patterns(struct cpu_device *device)
{
    CVY_TRY(choose(device, "CONVOY_CPU_PATTERNS", &device->patterns));
    return choose(device, "CONVOY_CPU_CLOSED", &device->closed);
}

/* Images from this size on. Of smaller ones the batch norm's second pass finds in the second-level caches what its
 * first one has read, which costs as little as reading it beside a product (measured: doc/worklog.md). The sums are
 * added up in another order, so the size must not depend on the threads. */
enum { LARGE_BYTES = 4 << 20 };

/* Whether the tile kernel takes the node. */
static bool takes_any(cvy_device *device, const struct cvy_graph *graph, const struct cvy_node *node, int64_t batch)
{
    struct cvy_op_desc desc;
    struct cvy_kernel_plan plan = {.state = NULL};
    cvy_status status;

    cvy_node_describe(graph, node, batch, &desc);
    desc.images = CVY_IMAGES_NHWC;
    status = (node->op == CVY_OP_CONV2D ? cpu_tile_product_prepare : cpu_tile_product_bwd_data_prepare)(device, &desc,
                                                                                                        &plan);
    cpu_state_release(device, &plan);
    return status == CVY_OK;
}

/* Whether it does, and it is worth while; of any size where `choice` says so. */
static bool takes(cvy_device *device, const struct cvy_graph *graph, const struct cvy_node *node, int64_t batch,
                  enum cpu_choice choice)
{
    struct cvy_op_desc desc;

    cvy_node_describe(graph, node, batch, &desc);
    return (choice == CPU_ALWAYS || cpu_tensor_bytes(device, &desc.out[0]) >= LARGE_BYTES) &&
           takes_any(device, graph, node, batch);
}

/* A batch norm in closed form saves passes over the convolution's output and costs sums over products of its input's
 * channels: worth it where there are so many more channels in the output, and so many pixels for each that products of
 * weights cost little beside them (measured: doc/worklog.md). */
enum { OUTPUTS_FOR_INPUT = 4, PIXELS_FOR_INPUT = 16 };

static bool pays_in_closed_form(const struct cvy_op_desc *conv)
{
    const int64_t *const x = conv->in[0].shape.dim, *const w = conv->in[1].shape.dim;

    return w[0] >= OUTPUTS_FOR_INPUT * w[1] && x[0] * x[2] * x[3] >= PIXELS_FOR_INPUT * w[1];
}

/* A batch norm at a block's end in closed form, where the tile kernels take what becomes of its neighbours. Whether it
 * was so. */
static bool rewrite_product_norm(cvy_device *device, struct cvy_graph *graph, int64_t batch, int32_t n)
{
    const enum cpu_choice choice = cpu_of(device)->closed;
    struct cvy_product_norm found;
    struct cvy_op_desc desc;

    if (choice == CPU_NEVER || cvy_device_ranks(device) > 1 || !cvy_product_norm_find(graph, n, &found))
        return false;
    cvy_node_describe(graph, &graph->nodes[found.conv], batch, &desc);
    if ((choice == CPU_AUTO && !pays_in_closed_form(&desc)) ||
        !takes(device, graph, &graph->nodes[found.conv], batch, choice) ||
        !takes(device, graph, &graph->nodes[found.after], batch, choice) ||
        !takes_any(device, graph, &graph->nodes[found.data], batch))
        return false;
    cvy_product_norm_fuse(graph, &found);
    return true;
}

/* The statistics of a convolution's output. */
static void rewrite_statistics(cvy_device *device, struct cvy_graph *graph, int64_t batch, int32_t n)
{
    const int32_t conv = cvy_statistics_find(graph, n);
    struct cvy_node node;

    if (conv < 0 || graph->nodes[conv].outputs != 1)
        return;
    node = graph->nodes[conv];
    node.outputs = 3;
    node.out[1] = node.out[2] = graph->nodes[n].out[1];
    if (takes(device, graph, &node, batch, cpu_of(device)->patterns))
        cvy_statistics_take(graph, n);
}

/* `data` with what cvy_gradient_sums_fuse and cvy_residual_sums_fuse give it. */
static struct cvy_node with_sums(const struct cvy_node *data, const struct cvy_node *norm_bwd)
{
    struct cvy_node node = *data;

    for (int i = 0; i < 5; i++)
        node.in[2 + i] = norm_bwd->in[i];
    node.inputs = 7;
    node.out[1] = norm_bwd->out[1];
    node.out[2] = norm_bwd->out[2];
    node.outputs = 3;
    if (norm_bwd->inputs > 7 && norm_bwd->in[7] != CVY_NONE) {
        node.in[7] = norm_bwd->in[6]; /* none within a block, where the mask is made again of x */
        node.in[8] = norm_bwd->in[7];
        node.inputs = 9;
    }
    return node;
}

/* The sums of a batch norm's gradient: within a block, or at its end, where two gradients come together; the mask is
 * then read in bits. */
static void rewrite_sums(cvy_device *device, struct cvy_graph *graph, int64_t batch, int32_t n)
{
    const int32_t within = cvy_gradient_sums_find_two(graph, n);
    const int32_t norm_bwd = within >= 0 ? within : cvy_residual_sums_wanted(graph, n);
    struct cvy_node node;

    if (norm_bwd < 0)
        return;
    node = with_sums(&graph->nodes[n], &graph->nodes[norm_bwd]);
    if (!takes(device, graph, &node, batch, cpu_of(device)->patterns))
        return;
    if (within >= 0)
        cvy_gradient_sums_fuse(graph, n, norm_bwd);
    else if (cvy_norm_keep_sign(graph, norm_bwd) && cvy_residual_sums_find(graph, n) == norm_bwd)
        cvy_residual_sums_fuse(graph, n, norm_bwd);
}

/* The output of a batch norm that only a gradient of weights would have made again. */
static void rewrite_weights(cvy_device *device, struct cvy_graph *graph, int64_t batch, int32_t n)
{
    struct cvy_op_desc desc;

    cvy_node_describe(graph, &graph->nodes[n], batch, &desc);
    desc.images = CVY_IMAGES_NHWC;
    if (cpu_tile_gradient_gains_by_norm(device, &desc))
        (void)cvy_weights_take_norm(graph, n);
}

/* Whether images of bf16 are channels-last whatever the plan finds. */
static bool always_nhwc(cvy_device *device)
{
    enum cvy_images layouts[CVY_MAX_IMAGES];
    const char *why;

    return cpu_images(device, CVY_BF16, true, layouts, &why) == 1 && layouts[0] == CVY_IMAGES_NHWC;
}

cvy_status cpu_rewrite(cvy_device *device, struct cvy_graph *graph, int64_t batch)
{
    bool fused = false;

    if (!graph->training || cpu_of(device)->patterns == CPU_NEVER || !always_nhwc(device))
        return CVY_OK;
    for (int32_t n = graph->node_count - 1; n >= 0 && graph->status == CVY_OK; n--)
        fused |= rewrite_product_norm(device, graph, batch, n);
    if (fused)
        cvy_rewrite_order(graph);
    for (int32_t n = 0; n < graph->node_count && graph->status == CVY_OK; n++) {
        rewrite_statistics(device, graph, batch, n);
        if (graph->nodes[n].op == CVY_OP_CONV2D_BWD_DATA)
            rewrite_sums(device, graph, batch, n);
        else if (graph->nodes[n].op == CVY_OP_CONV2D_BWD_WEIGHTS)
            rewrite_weights(device, graph, batch, n);
    }
    cvy_rewrite_order(graph);
    cvy_rewrite_remove_dead(graph); /* needs the order */
    return CVY_OK;
}
