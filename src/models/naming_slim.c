#include "models/naming_slim.h"

#include <string.h>

#include "base/error.h"
#include "models/naming_rules.h"

#define BACKBONE  "resnet_v1_50/"
#define DETECTOR  "FeatureExtractor/"
#define PREDICTOR "WeightSharedConvolutionalBoxPredictor/"

/* ---- the table ---- */

static const struct cvy_naming_leaf convolution[CVY_NAMING_LEAVES] = {{"weight", "weights"}, {"bias", "biases"}};
static const struct cvy_naming_leaf norm[CVY_NAMING_LEAVES] = {
    {"weight", "gamma"}, {"bias", "beta"}, {"running_mean", "moving_mean"}, {"running_var", "moving_variance"}};

static const struct cvy_naming_rule rules[] = {
    {convolution, "backbone.conv1.", BACKBONE "conv1/", {0}},
    {norm, "backbone.bn1.", BACKBONE "conv1/BatchNorm/", {0}},
    {convolution, "backbone.layer#.#.conv#.", BACKBONE "block#/unit_#/bottleneck_v1/conv#/", {0, 1, 0}},
    {norm, "backbone.layer#.#.bn#.", BACKBONE "block#/unit_#/bottleneck_v1/conv#/BatchNorm/", {0, 1, 0}},
    {convolution, "backbone.layer#.#.downsample.0.", BACKBONE "block#/unit_#/bottleneck_v1/shortcut/", {0, 1}},
    {norm, "backbone.layer#.#.downsample.1.", BACKBONE "block#/unit_#/bottleneck_v1/shortcut/BatchNorm/", {0, 1}},
    {convolution, "fpn.lateral#.", BACKBONE "fpn/projection_#/", {-2}},
    {convolution, "fpn.smooth#.conv.", BACKBONE "fpn/smoothing_#/", {-2}},
    {norm, "fpn.smooth#.bn.", BACKBONE "fpn/smoothing_#/BatchNorm/", {-2}},
    {convolution, "fpn.down#.conv.", BACKBONE "fpn/bottom_up_block#/", {-1}},
    {norm, "fpn.down#.bn.", BACKBONE "fpn/bottom_up_block#/BatchNorm/", {-1}},
    {convolution, "head.box_tower.#.conv.", PREDICTOR "BoxPredictionTower/conv2d_#/", {0}},
    {norm, "head.box_tower.#.bn.#.", PREDICTOR "BoxPredictionTower/conv2d_#/BatchNorm/feature_#/", {0, 0}},
    {convolution, "head.class_tower.#.conv.", PREDICTOR "ClassPredictionTower/conv2d_#/", {0}},
    {norm, "head.class_tower.#.bn.#.", PREDICTOR "ClassPredictionTower/conv2d_#/BatchNorm/feature_#/", {0, 0}},
    {convolution, "head.box_predictor.", PREDICTOR "BoxPredictor/", {0}},
    {convolution, "head.class_predictor.", PREDICTOR "ClassPredictor/", {0}},
};
static const struct cvy_naming_table table = {rules, sizeof rules / sizeof *rules};

/* ---- files ---- */

/* Without the scope that a detector puts around its backbone. */
static const char *own_scope(const char *name)
{
    return cvy_naming_begins(name, DETECTOR BACKBONE) ? name + strlen(DETECTOR) : name;
}

bool cvy_slim_looks_like(const struct cvy_tensor_file *file)
{
    for (size_t i = 0; i < file->tensor_count; i++)
        if (strcmp(own_scope(file->tensors[i].name), BACKBONE "conv1/weights") == 0)
            return true;
    return false;
}

/* Whether a tensor is the network's. The classifier of resnet_v1_50 and the mean of its images are not. */
static bool is_wanted(const char *name)
{
    return (cvy_naming_begins(name, BACKBONE) || cvy_naming_begins(name, DETECTOR) ||
            cvy_naming_begins(name, PREDICTOR)) &&
           !cvy_naming_begins(name, BACKBONE "logits/") && !cvy_naming_begins(name, BACKBONE "mean_rgb");
}

static cvy_status read_tensor(struct cvy_arena *arena, struct cvy_named_tensor *tensor)
{
    char variable[CVY_NAMING_TEXT], ours[CVY_NAMING_TEXT];
    const char *prefix = cvy_naming_cut_copy(false, own_scope(tensor->name), variable);

    if (!cvy_naming_rename(&table, false, variable, ours))
        return CVY_OK;
    const char *name = cvy_arena_printf(arena, "%s%s", prefix, ours);
    if (!name)
        return cvy_fail_memory(strlen(tensor->name), "a tensor name");
    tensor->name = name;
    return cvy_naming_reorder(arena, false, tensor);
}

cvy_status cvy_slim_read(struct cvy_tensor_file *file)
{
    static const struct cvy_tensor_meta strides = {"convoy.model",
                                                   "{\"padding\": \"torch\", \"backbone_strides\": \"slim\"}"};
    size_t kept = 0;

    for (size_t i = 0; i < file->tensor_count; i++) {
        if (!is_wanted(file->tensors[i].name))
            continue;
        file->tensors[kept] = file->tensors[i];
        CVY_TRY(read_tensor(&file->arena, &file->tensors[kept++]));
    }
    file->tensor_count = kept;
    return cvy_naming_describe(file, &strides, 1);
}

cvy_status cvy_slim_write(struct cvy_arena *arena, struct cvy_named_tensor *tensor)
{
    char variable[CVY_NAMING_TEXT], theirs[CVY_NAMING_TEXT];
    const char *suffix = cvy_naming_cut_copy(true, tensor->name, variable);

    if (!cvy_naming_rename(&table, true, variable, theirs))
        return cvy_fail(CVY_USAGE, "option --naming slim is for ssd320, and has no name for %s",
                        cvy_quote(tensor->name));
    const char *scope = cvy_naming_begins(theirs, BACKBONE) ? DETECTOR : "";
    const char *name = cvy_arena_printf(arena, "%s%s%s", scope, theirs, suffix);
    if (!name)
        return cvy_fail_memory(strlen(tensor->name), "a tensor name");
    tensor->name = name;
    return cvy_naming_reorder(arena, true, tensor);
}
