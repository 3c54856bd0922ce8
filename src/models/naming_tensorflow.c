#include "models/naming_tensorflow.h"

#include <string.h>

#include "base/error.h"
#include "models/naming_rules.h"

#define BLOCK "btlnck_block_#_#/"

/* ---- the table ---- */

static const struct cvy_naming_leaf kernel[CVY_NAMING_LEAVES] = {{"weight", "kernel"}, {"bias", "bias"}};
static const struct cvy_naming_leaf group[CVY_NAMING_LEAVES] = {{"weight", "bottleneck_2group_filter"}};
static const struct cvy_naming_leaf norm[CVY_NAMING_LEAVES] = {
    {"weight", "gamma"}, {"bias", "beta"}, {"running_mean", "moving_mean"}, {"running_var", "moving_variance"}};

/* The first is for convolutions with groups alone: the others write the rest. */
static const struct cvy_naming_rule rules[] = {
    {group, "layer#.#.conv2.", BLOCK "bottleneck_2/", {-1}},
    {kernel, "conv1.", "conv2d/conv2d/", {0}},
    {norm, "bn1.", "conv2d/BatchNorm/", {0}},
    {kernel, "layer#.#.conv#.", BLOCK "bottleneck_#/conv2d/", {-1}},
    {norm, "layer#.#.bn#.", BLOCK "bottleneck_#/BatchNorm/", {-1}},
    {kernel, "layer#.#.downsample.0.", BLOCK "shortcut/conv2d/conv2d/", {-1}},
    {norm, "layer#.#.downsample.1.", BLOCK "shortcut/conv2d/BatchNorm/", {-1}},
    {kernel, "layer#.#.se.fc1.", BLOCK "bottleneck_se_layer/dense/", {-1}},
    {kernel, "layer#.#.se.fc2.", BLOCK "bottleneck_se_layer/dense_1/", {-1}},
    {kernel, "fc.", "output/dense/", {0}},
};
enum { RULES = sizeof rules / sizeof *rules };

/* ---- theirs to ours ---- */

/* The scope of the network with its "/": the front of a name in the file. */
struct scope {
    const char *name;
    size_t length; /* 0: the file is none of that program's */
};

static struct scope find_scope(const struct cvy_tensor_file *file)
{
    static const char first[] = "/btlnck_block_0_0/bottleneck_1/conv2d/kernel";

    for (size_t i = 0; i < file->tensor_count; i++) {
        const char *name = file->tensors[i].name, *at = strstr(name, first);
        if (at && at > name && strcmp(at, first) == 0)
            return (struct scope){name, (size_t)(at - name) + 1};
    }
    return (struct scope){"", 0};
}

bool cvy_tensorflow_naming_looks_like(const struct cvy_tensor_file *file)
{
    return find_scope(file).length > 0;
}

/* What a rewritten graph keeps beside the network: ".../weights_quant/min", ".../act_quant/max/biased". */
static bool is_range(const char *variable)
{
    return strstr(variable, "_quant/") != NULL;
}

static bool is_squeeze(const char *ours)
{
    return strstr(ours, ".se.fc") != NULL;
}

static bool is_weight(const char *ours)
{
    const char *dot = strrchr(ours, '.');

    return dot && strcmp(dot, ".weight") == 0;
}

/* Linear layers are matrices there; here those of squeeze-and-excitation are convolutions, and the last one is what
 * may have been one there. */
static void adapt_shape(const char *ours, struct cvy_shape *shape)
{
    if (shape->rank == 2 && is_squeeze(ours))
        *shape = cvy_shape4(shape->dim[0], shape->dim[1], 1, 1);
    else if (shape->rank == 4 && shape->dim[2] == 1 && shape->dim[3] == 1 && strcmp(ours, "fc.weight") == 0)
        *shape = cvy_shape2(shape->dim[0], shape->dim[1]);
}

static cvy_status read_tensor(struct cvy_arena *arena, const char *variable, struct cvy_named_tensor *tensor)
{
    static const struct cvy_naming_table table = {rules, RULES};
    char own[CVY_NAMING_TEXT], ours[CVY_NAMING_TEXT];
    const char *prefix = cvy_naming_cut_copy(false, variable, own);

    if (!cvy_naming_rename(&table, false, own, ours))
        return CVY_OK;
    const char *name = cvy_arena_printf(arena, "%s%s", prefix, ours);
    if (!name)
        return cvy_fail_memory(strlen(tensor->name), "a tensor name");
    tensor->name = name;
    if (!is_weight(ours))
        return CVY_OK;
    CVY_TRY(cvy_naming_reorder(arena, false, tensor));
    adapt_shape(ours, &tensor->shape);
    return CVY_OK;
}

/* The number of steps of the training, as text; NULL where the file does not say it. */
static cvy_status read_step(struct cvy_tensor_file *file, const char **text)
{
    const struct cvy_named_tensor *tensor = cvy_tensor_find(file, "global_step");
    int64_t step;

    *text = NULL;
    if (!tensor || !tensor->data || tensor->dtype != CVY_I64 || tensor->bytes != sizeof step)
        return CVY_OK;
    memcpy(&step, tensor->data, sizeof step);
    *text = cvy_arena_printf(&file->arena, "%lld", (long long)step);
    return *text ? CVY_OK : cvy_fail_memory(24, "metadata");
}

cvy_status cvy_tensorflow_naming_read(struct cvy_tensor_file *file)
{
    /* As cvy_model_write and cvy_preprocessing_write have them. */
    struct cvy_tensor_meta own[] = {
        {"convoy.model", "{\"padding\": \"same\"}"},
        {"convoy.preprocessing",
         "{\"image_size\": 224, \"resize\": 256, \"mean\": [123.68, 116.28, 103.53], \"std\": [58.395, 57.12, 57.385], "
         "\"interpolation\": \"bilinear\", \"exif_orientation\": false, \"data_backend\": \"tensorflow\"}"},
        {CVY_TENSORFLOW_STEP, NULL}};
    const struct scope scope = find_scope(file);
    const size_t last = sizeof own / sizeof *own - 1;
    size_t kept = 0;

    CVY_TRY(read_step(file, &own[last].value));
    for (size_t i = 0; i < file->tensor_count; i++) {
        const char *name = file->tensors[i].name;
        if (strncmp(name, scope.name, scope.length) != 0 || is_range(name))
            continue;
        file->tensors[kept] = file->tensors[i];
        CVY_TRY(read_tensor(&file->arena, name + scope.length, &file->tensors[kept++]));
    }
    file->tensor_count = kept;
    return cvy_naming_describe(file, own, own[last].value ? last + 1 : last);
}

/* ---- ours to theirs ---- */

cvy_status cvy_tensorflow_naming_check(const char *arch)
{
    static const char *const networks[] = {"resnet50", "resnext101-32x4d", "se-resnext101-32x4d"};

    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++)
        if (strcmp(arch, networks[i]) == 0)
            return CVY_OK;
    if (strcmp(arch, "ssd320") == 0)
        return cvy_fail(CVY_USAGE, "option --naming tensorflow has no names for ssd320: those are --naming slim");
    return cvy_fail(CVY_USAGE, "TensorFlow's program has no %s: its networks are %s, %s and %s", arch, networks[0],
                    networks[1], networks[2]);
}

cvy_status cvy_tensorflow_naming_write(struct cvy_arena *arena, const char *arch, struct cvy_named_tensor *tensor)
{
    const struct cvy_shape *shape = &tensor->shape;
    const bool grouped = shape->rank == 4 && shape->dim[0] != shape->dim[1];
    const struct cvy_naming_table with = {rules, RULES}, without = {rules + 1, RULES - 1};
    char own[CVY_NAMING_TEXT], theirs[CVY_NAMING_TEXT];
    const char *suffix = cvy_naming_cut_copy(true, tensor->name, own);

    if (!cvy_naming_rename(grouped ? &with : &without, true, own, theirs))
        return cvy_fail(CVY_USAGE, "TensorFlow's program for classification has no name for %s",
                        cvy_quote(tensor->name));
    const char *name = cvy_arena_printf(arena, "%s/%s%s", arch, theirs, suffix);
    if (!name)
        return cvy_fail_memory(strlen(tensor->name), "a tensor name");
    tensor->name = name;
    if (!is_weight(own))
        return CVY_OK;
    if (is_squeeze(own) && shape->rank == 4)
        tensor->shape = cvy_shape2(shape->dim[0], shape->dim[1]);
    return cvy_naming_reorder(arena, true, tensor);
}
