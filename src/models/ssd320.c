#include "models/ssd320.h"

#include <stdio.h>

#include "models/blocks.h"
#include "ops/anchors.h"

/* What all batch norms keep of their running statistics is 0.997; TensorFlow's fused kernel raises an epsilon of 1e-5
 * to 1.001e-5. */
static const struct cvy_batch_norm backbone_norm = {.eps = 1.001e-5F, .momentum = 0.003F};
static const struct cvy_batch_norm head_norm = {.eps = 1e-3F, .momentum = 0.003F};

static const struct cvy_init backbone_init = {CVY_INIT_TRUNCATED_NORMAL, 0.03F};
static const struct cvy_init head_init = {CVY_INIT_NORMAL, 0.01F};

enum { LEVELS = CVY_SSD_LEVELS, DEPTH = 256, TOWER_LAYERS = 4, CODE_SIZE = 4 };

/* ---- small steps ---- */

/* A convolution without bias, (kernel - 1) / 2 on every side of it. */
static cvy_val conv(struct cvy_graph *g, cvy_val x, const char *name, int32_t out, int32_t kernel, int32_t stride)
{
    cvy_scope_push(g, name);
    x = cvy_conv2d(g, x,
                   &(struct cvy_conv2d){
                       .out = out, .kernel = kernel, .stride = stride, .pad = (kernel - 1) / 2, .init = backbone_init});
    cvy_scope_pop(g);
    return x;
}

static cvy_val norm(struct cvy_graph *g, cvy_val x, const char *name, const struct cvy_batch_norm *options)
{
    cvy_scope_push(g, name);
    x = cvy_batch_norm(g, x, options);
    cvy_scope_pop(g);
    return x;
}

/* ---- the backbone: ResNet-50 under torchvision's names ---- */

/* y = relu(f(x) + shortcut(x)). `stride` is that of torchvision's networks, on the 3x3 convolution. */
static cvy_val unit(struct cvy_graph *g, cvy_val x, int32_t mid, int32_t stride, bool projects)
{
    const int32_t out = 4 * mid;
    cvy_val y = x, shortcut = x;

    y = cvy_relu6(g, norm(g, conv(g, y, "conv1", mid, 1, 1), "bn1", &backbone_norm));
    y = cvy_relu6(g, norm(g, conv(g, y, "conv2", mid, 3, stride), "bn2", &backbone_norm));
    y = norm(g, conv(g, y, "conv3", out, 1, 1), "bn3", &backbone_norm);
    if (projects) {
        cvy_scope_push(g, "downsample");
        shortcut = norm(g, conv(g, x, "0", out, 1, stride), "1", &backbone_norm);
        cvy_scope_pop(g);
    }
    return cvy_relu(g, cvy_add(g, y, shortcut));
}

static cvy_val block(struct cvy_graph *g, cvy_val x, int index, int32_t units, int32_t stride)
{
    char name[8];

    snprintf(name, sizeof name, "layer%d", (index + 1) % 10);
    cvy_scope_push(g, name);
    for (int32_t i = 0; i < units; i++) {
        cvy_scope_push_index(g, i);
        x = unit(g, x, 64 << index, i == 0 ? stride : 1, i == 0);
        cvy_scope_pop(g);
    }
    cvy_scope_pop(g);
    return x;
}

/* The results of the last three blocks, at strides 8, 16 and 32. In TF-slim's network a block ends at the stride that
 * it begins with, and what the next one reads of it is every second pixel; in torchvision's the first unit of a block
 * has the stride. */
static void backbone(struct cvy_graph *g, cvy_val x, bool torchvision, cvy_val ends[3])
{
    static const int32_t units[4] = {3, 4, 6, 3};
    struct cvy_max_pool pool = {.kernel = 3, .stride = 2, .pad = 1, .use_pads = !torchvision};

    cvy_scope_push(g, "backbone");
    x = cvy_relu6(g, norm(g, conv(g, x, "conv1", 64, 7, 2), "bn1", &backbone_norm));
    if (pool.use_pads)
        cvy_same_pads(g, x, pool.kernel, pool.stride, pool.pads);
    x = cvy_max_pool(g, x, &pool);
    for (int i = 0; i < 4; i++) {
        if (i > 0 && !torchvision)
            x = cvy_max_pool(g, x, &(struct cvy_max_pool){.kernel = 1, .stride = 2});
        x = block(g, x, i, units[i], i > 0 && torchvision ? 2 : 1);
        if (i > 0)
            ends[i - 1] = x;
    }
    cvy_scope_pop(g);
}

/* ---- the feature pyramid ---- */

/* 1x1, linear, with a bias. */
static cvy_val lateral(struct cvy_graph *g, cvy_val x, int level)
{
    char name[16];

    snprintf(name, sizeof name, "lateral%d", level % 10);
    cvy_scope_push(g, name);
    x = cvy_conv2d(g, x, &(struct cvy_conv2d){.out = DEPTH, .kernel = 1, .bias = true, .init = backbone_init});
    cvy_scope_pop(g);
    return x;
}

/* 3x3 with batch norm and ReLU6. */
static cvy_val smooth(struct cvy_graph *g, cvy_val x, const char *what, int level, int32_t stride)
{
    struct cvy_conv2d options = {.out = DEPTH, .kernel = 3, .stride = stride, .use_pads = true, .init = backbone_init};
    char name[16];

    snprintf(name, sizeof name, "%s%d", what, level % 10);
    cvy_same_pads(g, x, options.kernel, stride, options.pads);
    cvy_scope_push(g, name);
    cvy_scope_push(g, "conv");
    x = cvy_conv2d(g, x, &options);
    cvy_scope_pop(g);
    x = cvy_relu6(g, norm(g, x, "bn", &head_norm));
    cvy_scope_pop(g);
    return x;
}

/* Levels 3 to 7. What goes down the pyramid is not smoothed; level 5 never is, and levels 6 and 7 are made from it. */
static void pyramid(struct cvy_graph *g, const cvy_val ends[3], cvy_val levels[LEVELS])
{
    cvy_val down = lateral(g, ends[2], 5);

    levels[2] = down;
    for (int i = 1; i >= 0; i--) {
        down = cvy_add(g, lateral(g, ends[i], 3 + i), cvy_upsample(g, down));
        levels[i] = smooth(g, down, "smooth", 3 + i, 1);
    }
    levels[3] = smooth(g, levels[2], "down", 6, 2);
    levels[4] = smooth(g, levels[3], "down", 7, 2);
}

/* ---- the predictor ---- */

/* Four convolutions whose weights all levels share, after each a batch norm of the level's own. */
static void tower(struct cvy_graph *g, const char *name, cvy_val levels[LEVELS])
{
    cvy_scope_push(g, name);
    for (int32_t layer = 0; layer < TOWER_LAYERS; layer++) {
        cvy_scope_push_index(g, layer);
        for (int32_t i = 0; i < LEVELS; i++) {
            cvy_scope_push(g, "conv");
            levels[i] =
                cvy_conv2d(g, levels[i], &(struct cvy_conv2d){.out = DEPTH, .kernel = 3, .pad = 1, .init = head_init});
            cvy_scope_pop(g);
        }
        cvy_scope_push(g, "bn");
        for (int32_t i = 0; i < LEVELS; i++) {
            cvy_scope_push_index(g, i);
            levels[i] = cvy_relu6(g, cvy_batch_norm(g, levels[i], &head_norm));
            cvy_scope_pop(g);
        }
        cvy_scope_pop(g);
        cvy_scope_pop(g);
    }
    cvy_scope_pop(g);
}

/* A tower and the convolution after it: `columns` numbers for each anchor, (N, A, columns). */
static cvy_val predict(struct cvy_graph *g, const char *what, const cvy_val levels[LEVELS], int32_t columns,
                       struct cvy_init bias_init)
{
    const struct cvy_conv2d options = {.out = CVY_SSD_ANCHORS * columns,
                                       .kernel = 3,
                                       .pad = 1,
                                       .bias = true,
                                       .init = head_init,
                                       .bias_init = bias_init};
    cvy_val maps[LEVELS];
    char name[32];

    for (int32_t i = 0; i < LEVELS; i++)
        maps[i] = levels[i];
    snprintf(name, sizeof name, "%s_tower", what);
    tower(g, name, maps);
    snprintf(name, sizeof name, "%s_predictor", what);
    cvy_scope_push(g, name);
    for (int32_t i = 0; i < LEVELS; i++)
        maps[i] = cvy_conv2d(g, maps[i], &options);
    cvy_scope_pop(g);
    return cvy_flatten_levels(g, LEVELS, maps, columns);
}

struct cvy_predictions cvy_ssd320_build(struct cvy_graph *graph, cvy_val image, const struct cvy_model_options *options)
{
    /* sigmoid(-4.6) = 0.01: at the start every anchor is background. */
    const struct cvy_init zero = {CVY_INIT_ZERO, 0}, rare = {CVY_INIT_CONSTANT, -4.6F};
    struct cvy_predictions predictions = {CVY_NONE, CVY_NONE};
    cvy_val ends[3] = {CVY_NONE, CVY_NONE, CVY_NONE}, levels[LEVELS];

    if (options->num_classes >= INT32_MAX / CVY_SSD_ANCHORS) {
        (void)cvy_graph_fail(graph, CVY_USAGE, "%d classes are too many", (int)options->num_classes);
        return predictions;
    }
    backbone(graph, image, options->detector.torchvision_backbone, ends);
    cvy_scope_push(graph, "fpn");
    pyramid(graph, ends, levels);
    cvy_scope_pop(graph);
    cvy_scope_push(graph, "head");
    predictions.codes = predict(graph, "box", levels, CODE_SIZE, zero);
    predictions.logits = predict(graph, "class", levels, options->num_classes + 1, rare);
    cvy_scope_pop(graph);
    return predictions;
}
