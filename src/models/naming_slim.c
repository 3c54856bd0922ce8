#include "models/naming_slim.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

#define BACKBONE  "resnet_v1_50/"
#define DETECTOR  "FeatureExtractor/"
#define PREDICTOR "WeightSharedConvolutionalBoxPredictor/"

/* ---- the table ---- */

/* What a layer's variables are called. */
enum { MAX_LEAVES = 4 };
enum layer { CONVOLUTION, NORM };
static const struct leaf {
    const char *ours, *theirs;
} leaves[2][MAX_LEAVES] = {
    [CONVOLUTION] = {{"weight", "weights"}, {"bias", "biases"}},
    [NORM] = {{"weight", "gamma"},
              {"bias", "beta"},
              {"running_mean", "moving_mean"},
              {"running_var", "moving_variance"}},
};

/* The names of layers; each # is a digit, which is larger by `more` with them. */
enum { MAX_DIGITS = 3 };
static const struct rule {
    enum layer layer;
    const char *ours, *theirs;
    int more[MAX_DIGITS];
} rules[] = {
    {CONVOLUTION, "backbone.conv1.", BACKBONE "conv1/", {0}},
    {NORM, "backbone.bn1.", BACKBONE "conv1/BatchNorm/", {0}},
    {CONVOLUTION, "backbone.layer#.#.conv#.", BACKBONE "block#/unit_#/bottleneck_v1/conv#/", {0, 1, 0}},
    {NORM, "backbone.layer#.#.bn#.", BACKBONE "block#/unit_#/bottleneck_v1/conv#/BatchNorm/", {0, 1, 0}},
    {CONVOLUTION, "backbone.layer#.#.downsample.0.", BACKBONE "block#/unit_#/bottleneck_v1/shortcut/", {0, 1}},
    {NORM, "backbone.layer#.#.downsample.1.", BACKBONE "block#/unit_#/bottleneck_v1/shortcut/BatchNorm/", {0, 1}},
    {CONVOLUTION, "fpn.lateral#.", BACKBONE "fpn/projection_#/", {-2}},
    {CONVOLUTION, "fpn.smooth#.conv.", BACKBONE "fpn/smoothing_#/", {-2}},
    {NORM, "fpn.smooth#.bn.", BACKBONE "fpn/smoothing_#/BatchNorm/", {-2}},
    {CONVOLUTION, "fpn.down#.conv.", BACKBONE "fpn/bottom_up_block#/", {-1}},
    {NORM, "fpn.down#.bn.", BACKBONE "fpn/bottom_up_block#/BatchNorm/", {-1}},
    {CONVOLUTION, "head.box_tower.#.conv.", PREDICTOR "BoxPredictionTower/conv2d_#/", {0}},
    {NORM, "head.box_tower.#.bn.#.", PREDICTOR "BoxPredictionTower/conv2d_#/BatchNorm/feature_#/", {0, 0}},
    {CONVOLUTION, "head.class_tower.#.conv.", PREDICTOR "ClassPredictionTower/conv2d_#/", {0}},
    {NORM, "head.class_tower.#.bn.#.", PREDICTOR "ClassPredictionTower/conv2d_#/BatchNorm/feature_#/", {0, 0}},
    {CONVOLUTION, "head.box_predictor.", PREDICTOR "BoxPredictor/", {0}},
    {CONVOLUTION, "head.class_predictor.", PREDICTOR "ClassPredictor/", {0}},
};
enum { RULES = sizeof rules / sizeof *rules };

/* What an optimizer and an average keep of a variable: a prefix here, a suffix there. */
static const struct copy {
    const char *ours, *theirs;
} copies[] = {
    {CVY_MOMENTUM_PREFIX, "/Momentum"},
    {CVY_SQUARE_PREFIX, "/RMSProp"},
    {CVY_EMA_PREFIX, "/ExponentialMovingAverage"},
};
enum { COPIES = sizeof copies / sizeof *copies };

/* ---- one name ---- */

/* What follows the pattern at the front of the name, NULL where it is not there. */
static const char *match(const char *pattern, const char *name, int digits[MAX_DIGITS])
{
    int count = 0;

    for (; *pattern; pattern++, name++) {
        if (*pattern == '#' && *name >= '0' && *name <= '9' && count < MAX_DIGITS)
            digits[count++] = *name - '0';
        else if (*pattern != *name)
            return NULL;
    }
    return name;
}

/* The pattern with its digits, larger by sign * more. False where one is none any more. */
static bool fill(const char *pattern, const int digits[MAX_DIGITS], const int more[MAX_DIGITS], int sign, char *text,
                 size_t size)
{
    size_t used = 0;
    int count = 0;

    for (; *pattern && used + 1 < size; pattern++) {
        if (*pattern != '#') {
            text[used++] = *pattern;
            continue;
        }
        const int digit = digits[count] + sign * more[count];
        if (digit < 0 || digit > 9)
            return false;
        text[used++] = (char)('0' + digit);
        count++;
    }
    text[used] = '\0';
    return !*pattern;
}

struct renamed {
    char layer[128];
    const char *leaf;
};

/* The name of a variable of the model, to or from TensorFlow's. False where there is none. */
static bool rename_variable(const char *name, bool write, struct renamed *to)
{
    for (int i = 0; i < RULES; i++) {
        const struct rule *rule = &rules[i];
        int digits[MAX_DIGITS] = {0};
        const char *leaf = match(write ? rule->ours : rule->theirs, name, digits);

        for (int k = 0; leaf && k < MAX_LEAVES && leaves[rule->layer][k].ours; k++) {
            const struct leaf *pair = &leaves[rule->layer][k];
            if (strcmp(leaf, write ? pair->ours : pair->theirs) != 0)
                continue;
            to->leaf = write ? pair->theirs : pair->ours;
            return fill(write ? rule->theirs : rule->ours, digits, rule->more, write ? 1 : -1, to->layer,
                        sizeof to->layer);
        }
    }
    return false;
}

/* ---- values ---- */

/* A kernel's values in the other order: (H,W,I,O) to (O,I,H,W), or back with `write`. Its bytes fit its shape, which
 * the reader of the file has checked. */
static cvy_status reorder(struct cvy_arena *arena, bool write, struct cvy_named_tensor *tensor)
{
    const size_t size = cvy_dtype_size(tensor->dtype), bytes = tensor->bytes;
    const uint8_t *from = tensor->data;
    const int64_t *old = tensor->shape.dim;
    /* For each new dimension: which old one it is, and its stride, in elements, in the old order. */
    const int was[4] = {write ? 2 : 3, write ? 3 : 2, write ? 1 : 0, write ? 0 : 1};
    int64_t new[4], step[4];
    uint8_t *to, *copy;

    for (int i = 0; i < 4; i++) {
        new[i] = old[was[i]];
        step[i] = 1;
        for (int k = was[i] + 1; k < 4; k++)
            step[i] *= old[k];
    }
    tensor->shape = cvy_shape4(new[0], new[1], new[2], new[3]);
    if (!from) /* shapes alone */
        return CVY_OK;
    copy = to = cvy_arena_alloc(arena, bytes);
    if (!copy)
        return cvy_fail_memory(bytes, tensor->name);
    for (int64_t a = 0; a < new[0]; a++)
        for (int64_t b = 0; b < new[1]; b++)
            for (int64_t c = 0; c < new[2]; c++)
                for (int64_t d = 0; d < new[3]; d++, to += size)
                    memcpy(to, from + (size_t)(a * step[0] + b * step[1] + c * step[2] + d * step[3]) * size, size);
    tensor->data = copy;
    return CVY_OK;
}

/* ---- files ---- */

static bool begins(const char *name, const char *front)
{
    return strncmp(name, front, strlen(front)) == 0;
}

static const char *end_of(const char *name, const char *end)
{
    const size_t length = strlen(name), tail = strlen(end);

    return length > tail && strcmp(name + length - tail, end) == 0 ? name + length - tail : NULL;
}

/* Without the scope that a detector puts around its backbone. */
static const char *own_scope(const char *name)
{
    return begins(name, DETECTOR BACKBONE) ? name + strlen(DETECTOR) : name;
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
    return (begins(name, BACKBONE) || begins(name, DETECTOR) || begins(name, PREDICTOR)) &&
           !begins(name, BACKBONE "logits/") && !begins(name, BACKBONE "mean_rgb");
}

static cvy_status read_tensor(struct cvy_arena *arena, struct cvy_named_tensor *tensor)
{
    const char *prefix = "", *name = own_scope(tensor->name);
    struct renamed to;
    char text[256];

    for (int i = 0; i < COPIES; i++) {
        const char *end = end_of(name, copies[i].theirs);
        if (!end)
            continue;
        prefix = copies[i].ours;
        snprintf(text, sizeof text, "%.*s", (int)(end - name), name);
        name = text;
        break;
    }
    if (!rename_variable(name, false, &to))
        return CVY_OK;
    name = cvy_arena_printf(arena, "%s%s%s", prefix, to.layer, to.leaf);
    if (!name)
        return cvy_fail_memory(strlen(tensor->name), "a tensor name");
    tensor->name = name;
    return tensor->shape.rank == 4 ? reorder(arena, false, tensor) : CVY_OK;
}

static cvy_status add_strides(struct cvy_tensor_file *file)
{
    static const struct cvy_tensor_meta model = {"convoy.model",
                                                 "{\"padding\": \"torch\", \"backbone_strides\": \"slim\"}"};
    const size_t bytes = (file->metadata_count + 1) * sizeof model;
    struct cvy_tensor_meta *more;

    if (cvy_tensor_metadata(file, model.key))
        return CVY_OK;
    more = cvy_arena_alloc(&file->arena, bytes);
    if (!more)
        return cvy_fail_memory(bytes, "metadata");
    if (file->metadata_count > 0)
        memcpy(more, file->metadata, file->metadata_count * sizeof *more);
    more[file->metadata_count++] = model;
    file->metadata = more;
    return CVY_OK;
}

cvy_status cvy_slim_read(struct cvy_tensor_file *file)
{
    size_t kept = 0;

    for (size_t i = 0; i < file->tensor_count; i++) {
        if (!is_wanted(file->tensors[i].name))
            continue;
        file->tensors[kept] = file->tensors[i];
        CVY_TRY(read_tensor(&file->arena, &file->tensors[kept++]));
    }
    file->tensor_count = kept;
    return add_strides(file);
}

cvy_status cvy_slim_write(struct cvy_arena *arena, struct cvy_named_tensor *tensor)
{
    const char *name = tensor->name, *suffix = "", *scope = "";
    struct renamed to;

    for (int i = 0; i < COPIES; i++) {
        if (!begins(name, copies[i].ours))
            continue;
        suffix = copies[i].theirs;
        name += strlen(copies[i].ours);
        break;
    }
    if (!rename_variable(name, true, &to))
        return cvy_fail(CVY_USAGE, "option --naming slim is for ssd320, and has no name for %s",
                        cvy_quote(tensor->name));
    if (begins(to.layer, BACKBONE))
        scope = DETECTOR;
    name = cvy_arena_printf(arena, "%s%s%s%s", scope, to.layer, to.leaf, suffix);
    if (!name)
        return cvy_fail_memory(strlen(tensor->name), "a tensor name");
    tensor->name = name;
    return tensor->shape.rank == 4 ? reorder(arena, true, tensor) : CVY_OK;
}
