#include "models/resnet.h"

#include <math.h>
#include <stdio.h>

#include "models/blocks.h"

struct builder {
    struct cvy_graph *graph;
    const struct cvy_resnet *net;
    const struct cvy_model_options *options;
};

/* What the calls below leave out. */
struct convolution {
    int32_t out, kernel, stride, groups;
};

/* normal(0, sqrt(2 / fan)); fan_out is not divided by the groups, as in the reference programs. TensorFlow's version
 * gives its grouped filters no rule of their own: they get the framework's, Glorot and Bengio's uniform. */
static struct cvy_init conv_init(const struct builder *b, cvy_val x, const struct convolution *conv)
{
    double area = (double)conv->kernel * conv->kernel, fan, fan_in;

    if (b->graph->status != CVY_OK)
        return (struct cvy_init){CVY_INIT_ZERO, 0};
    fan_in = (double)cvy_shape_of(b->graph, x)->dim[1] / conv->groups * area;
    fan = b->options->resnet.fan_out_init ? conv->out * area : fan_in;
    if (!b->options->resnet.tensorflow_init)
        return (struct cvy_init){CVY_INIT_NORMAL, (float)sqrt(2 / fan)};
    if (conv->groups > 1)
        return (struct cvy_init){CVY_INIT_UNIFORM, (float)sqrt(6 / (fan_in + conv->out * area))};
    return cvy_init_truncated(2, fan);
}

/* Padded so that a stride of 1 keeps the extent; no bias, for a batch norm follows. */
static cvy_val convolve(const struct builder *b, cvy_val x, const char *name, struct convolution conv)
{
    struct cvy_conv2d options = {
        .out = conv.out, .kernel = conv.kernel, .stride = conv.stride, .groups = conv.groups ? conv.groups : 1};

    conv.groups = options.groups;
    options.pad = (conv.kernel - 1) / 2;
    options.use_pads = b->options->resnet.same_padding;
    if (options.use_pads)
        cvy_same_pads(b->graph, x, conv.kernel, conv.stride ? conv.stride : 1, options.pads);
    options.init = conv_init(b, x, &conv);
    cvy_scope_push(b->graph, name);
    x = cvy_conv2d(b->graph, x, &options);
    cvy_scope_pop(b->graph);
    return x;
}

static cvy_val normalise(const struct builder *b, cvy_val x, const char *name, bool gamma_zero)
{
    cvy_scope_push(b->graph, name);
    x = cvy_batch_norm(b->graph, x, &(struct cvy_batch_norm){.gamma_zero = gamma_zero});
    cvy_scope_pop(b->graph);
    return x;
}

/* "conv<i>" and "bn<i>". */
static cvy_val conv_bn(const struct builder *b, cvy_val x, int i, bool gamma_zero, struct convolution conv)
{
    char conv_name[8], norm_name[8];

    snprintf(conv_name, sizeof conv_name, "conv%d", i % 10);
    snprintf(norm_name, sizeof norm_name, "bn%d", i % 10);
    return normalise(b, convolve(b, x, conv_name, conv), norm_name, gamma_zero);
}

/* The projection shortcut: 1x1 with the block's stride. */
static cvy_val downsample(const struct builder *b, cvy_val x, int32_t out, int32_t stride)
{
    cvy_scope_push(b->graph, "downsample");
    x = convolve(b, x, "0", (struct convolution){.out = out, .kernel = 1, .stride = stride});
    x = normalise(b, x, "1", false);
    cvy_scope_pop(b->graph);
    return x;
}

static int64_t channels(const struct builder *b, cvy_val x)
{
    return b->graph->status == CVY_OK ? cvy_shape_of(b->graph, x)->dim[1] : 0;
}

/* One residual block: y = relu(f(x) + shortcut(x)). */
static cvy_val block(const struct builder *b, cvy_val x, int stage, int32_t stride)
{
    const struct cvy_resnet *net = b->net;
    const int32_t mid = net->width[stage], out = mid * net->expansion, groups = net->groups;
    const bool gamma_zero = b->options->resnet.last_bn_gamma_zero;
    struct cvy_graph *g = b->graph;
    cvy_val y = x, shortcut = x;

    if (net->bottleneck) {
        y = cvy_relu(g, conv_bn(b, y, 1, false, (struct convolution){.out = mid, .kernel = 1}));
        y = cvy_relu(g, conv_bn(b, y, 2, false,
                                (struct convolution){.out = mid, .kernel = 3, .stride = stride, .groups = groups}));
        y = conv_bn(b, y, 3, gamma_zero, (struct convolution){.out = out, .kernel = 1});
    } else {
        y = cvy_relu(g, conv_bn(b, y, 1, false,
                                (struct convolution){.out = mid, .kernel = 3, .stride = stride, .groups = groups}));
        y = conv_bn(b, y, 2, gamma_zero, (struct convolution){.out = out, .kernel = 3, .groups = groups});
    }
    if (b->options->resnet.squeeze_width != 0)
        y = cvy_squeeze_excite(g, y, b->options->resnet.squeeze_width, b->options->resnet.tensorflow_init);
    if (stride != 1 || channels(b, x) != out)
        shortcut = downsample(b, x, out, stride);
    return cvy_relu(g, cvy_add(g, y, shortcut));
}

/* Halves the map (but for the first one) in its first block. */
static cvy_val stage_of_blocks(const struct builder *b, cvy_val x, int stage)
{
    char name[8];

    snprintf(name, sizeof name, "layer%d", (stage + 1) % 10);
    cvy_scope_push(b->graph, name);
    for (int32_t i = 0; i < b->net->blocks[stage]; i++) {
        cvy_scope_push_index(b->graph, i);
        x = block(b, x, stage, i == 0 && stage > 0 ? 2 : 1);
        cvy_scope_pop(b->graph);
    }
    cvy_scope_pop(b->graph);
    return x;
}

static cvy_val classifier(const struct builder *b, cvy_val x)
{
    const int32_t classes = b->options->num_classes;
    const struct cvy_init init =
        cvy_init_truncated(2, b->options->resnet.fan_out_init ? classes : (double)channels(b, x));

    return cvy_linear_from(
        b->graph, x, &(struct cvy_linear){.out = classes, .init = b->options->resnet.tensorflow_init ? &init : NULL});
}

cvy_val cvy_resnet_build(struct cvy_graph *graph, cvy_val image, const struct cvy_model_options *options,
                         const void *config)
{
    const struct builder b = {.graph = graph, .net = config, .options = options};
    struct cvy_max_pool pool = {.kernel = 3, .stride = 2, .pad = 1, .use_pads = options->resnet.same_padding};
    cvy_val x = image;

    x = cvy_relu(graph, conv_bn(&b, x, 1, false, (struct convolution){.out = 64, .kernel = 7, .stride = 2}));
    if (pool.use_pads)
        cvy_same_pads(graph, x, pool.kernel, pool.stride, pool.pads);
    x = cvy_max_pool(graph, x, &pool);
    for (int stage = 0; stage < 4; stage++)
        x = stage_of_blocks(&b, x, stage);
    x = cvy_global_avg_pool(graph, x);
    cvy_scope_push(graph, "fc");
    x = classifier(&b, x);
    cvy_scope_pop(graph);
    return x;
}
