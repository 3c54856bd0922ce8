#include "models/blocks.h"

#include <math.h>

/* What a normal distribution keeps of its deviation when it is cut off at 2 of them. */
#define TRUNCATED_DEVIATION 0.87962566103423978

void cvy_same_pads(const struct cvy_graph *graph, cvy_val x, int32_t kernel, int32_t stride, int32_t pads[4])
{
    for (int i = 0; i < 2 && graph->status == CVY_OK; i++) {
        const int64_t extent = cvy_shape_of(graph, x)->dim[2 + i], windows = (extent + stride - 1) / stride;
        const int64_t total = (windows - 1) * stride + kernel - extent;

        pads[2 * i] = (int32_t)(total > 0 ? total / 2 : 0);
        pads[2 * i + 1] = (int32_t)(total > 0 ? total - total / 2 : 0);
    }
}

struct cvy_init cvy_init_truncated(double scale, double fan)
{
    return (struct cvy_init){CVY_INIT_TRUNCATED_NORMAL, (float)(sqrt(scale / fan) / TRUNCATED_DEVIATION)};
}

/* A linear layer of squeeze-and-excitation, kept as a 1x1 convolution. */
static cvy_val excite_linear(struct cvy_graph *graph, cvy_val x, int64_t in, int64_t out, bool variance_scaling)
{
    const struct cvy_init init = cvy_init_truncated(1, (double)in);

    return cvy_linear_from(
        graph, x, &(struct cvy_linear){.out = (int32_t)out, .as_1x1 = true, .init = variance_scaling ? &init : NULL});
}

cvy_val cvy_squeeze_excite(struct cvy_graph *graph, cvy_val x, int32_t width, bool variance_scaling)
{
    const int64_t channels = graph->status == CVY_OK ? cvy_shape_of(graph, x)->dim[1] : 0;
    const int64_t hidden = width > 0 ? width : channels / -(int64_t)width;
    cvy_val s = cvy_global_avg_pool(graph, x);

    if (graph->status == CVY_OK && hidden < 1)
        return cvy_graph_fail(graph, CVY_USAGE, "a squeeze width of c/%lld leaves nothing of %lld channels",
                              -(long long)width, (long long)channels);
    cvy_scope_push(graph, "se");
    cvy_scope_push(graph, "fc1");
    s = cvy_relu(graph, excite_linear(graph, s, channels, hidden, variance_scaling));
    cvy_scope_pop(graph);
    cvy_scope_push(graph, "fc2");
    s = cvy_sigmoid(graph, excite_linear(graph, s, hidden, channels, variance_scaling));
    cvy_scope_pop(graph);
    cvy_scope_pop(graph);
    return cvy_scale_channels(graph, x, s);
}
