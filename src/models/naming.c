#include "models/naming.h"

#include <string.h>

#include "base/error.h"
#include "base/nearest.h"
#include "models/naming_slim.h"
#include "models/naming_tensorflow.h"

static const char *const scheme_names[] = {
    [CVY_NAMING_TORCHVISION] = "torchvision", [CVY_NAMING_TIMM] = "timm", [CVY_NAMING_NVIDIA] = "nvidia",
    [CVY_NAMING_NVIDIA2019] = "nvidia2019",   [CVY_NAMING_SLIM] = "slim", [CVY_NAMING_TENSORFLOW] = "tensorflow",
    [CVY_NAMING_LEGACY] = "legacy",
};

cvy_status cvy_naming_find(const char *text, enum cvy_naming *naming)
{
    for (int i = CVY_NAMING_TORCHVISION; i < CVY_NAMING_LEGACY; i++)
        if (!strcmp(text, scheme_names[i])) {
            *naming = (enum cvy_naming)i;
            return CVY_OK;
        }
    return cvy_fail(CVY_USAGE, "option --naming is torchvision, timm, nvidia, nvidia2019, slim or tensorflow, not %s%s",
                    cvy_quote(text),
                    CVY_PERHAPS(text, "torchvision", "timm", "nvidia", "nvidia2019", "slim", "tensorflow"));
}

/* ---- one name ---- */

/* Where a part of a name may stand. */
enum place { AT_FRONT, INSIDE };

/* A part that schemes spell differently. The stage number is no text and is treated separately. */
struct part {
    enum place place;
    const char *theirs, *ours;
    enum cvy_naming scheme;
};
static const struct part parts[] = {
    {AT_FRONT, "layer0.", "", CVY_NAMING_LEGACY},
    {AT_FRONT, "last_linear.", "fc.", CVY_NAMING_LEGACY},
    {INSIDE, ".se_module.", ".se.", CVY_NAMING_LEGACY},
    {INSIDE, ".squeeze.squeeze.", ".se.fc1.", CVY_NAMING_NVIDIA2019},
    {INSIDE, ".squeeze.expand.", ".se.fc2.", CVY_NAMING_NVIDIA2019},
};
enum { PARTS = sizeof parts / sizeof *parts };

/* The name of the model's tensor, after what says that it is its momentum or its average, of now or of the last good
 * state. */
static const char *model_name(const char *name)
{
    static const char *const prefixes[] = {CVY_MOMENTUM_PREFIX, CVY_SQUARE_PREFIX, CVY_EMA_PREFIX};

    if (!strncmp(name, CVY_LAST_GOOD_PREFIX, strlen(CVY_LAST_GOOD_PREFIX)))
        name += strlen(CVY_LAST_GOOD_PREFIX);
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
            return name + strlen(prefixes[i]);
    return name;
}

/* name with `length` bytes at `at` replaced; NULL when memory runs out. */
static char *replace(struct cvy_arena *arena, const char *name, const char *at, size_t length, const char *by)
{
    return cvy_arena_printf(arena, "%.*s%s%s", (int)(at - name), name, by, at + length);
}

static bool is_stage(const char *text)
{
    return text[0] >= '0' && text[0] <= '9' && text[1] == '.';
}

/* layers.<s>. of NVIDIA's current programs is layer<s+1>. elsewhere. */
static const char *read_stage(struct cvy_arena *arena, const char *name, enum cvy_naming *scheme)
{
    const char *front = model_name(name);
    char stage[] = "layer?.";

    if (strncmp(front, "layers.", 7) != 0 || !is_stage(front + 7) || front[7] == '9')
        return name;
    *scheme = CVY_NAMING_NVIDIA;
    stage[5] = (char)(front[7] + 1);
    return replace(arena, name, front, 9, stage);
}

static const char *write_stage(struct cvy_arena *arena, const char *name)
{
    const char *front = model_name(name);
    char stage[] = "layers.?.";

    if (strncmp(front, "layer", 5) != 0 || !is_stage(front + 5) || front[5] == '0')
        return name;
    stage[7] = (char)(front[5] - 1);
    return replace(arena, name, front, 7, stage);
}

/* Where `text` stands in the name, as its place asks; NULL: it does not. */
static const char *find_part(const char *name, enum place place, const char *text)
{
    const char *front = model_name(name);

    if (place == INSIDE)
        return strstr(front, text);
    return strncmp(front, text, strlen(text)) == 0 ? front : NULL;
}

static const char *read_name(struct cvy_arena *arena, const char *name, enum cvy_naming *scheme)
{
    name = read_stage(arena, name, scheme);
    for (size_t i = 0; name && i < PARTS; i++) {
        const char *at = find_part(name, parts[i].place, parts[i].theirs);
        if (!at)
            continue;
        if (*scheme != CVY_NAMING_NVIDIA) /* which shares its squeeze with NVIDIA 2019 */
            *scheme = parts[i].scheme;
        name = replace(arena, name, at, strlen(parts[i].theirs), parts[i].ours);
    }
    return name;
}

/* ---- shapes: linear layers (R,C) here, convolutions (R,C,1,1) there ---- */

static bool is_squeeze_weight(const char *name)
{
    const char *se = strstr(name, ".se.fc");

    return se && (se[6] == '1' || se[6] == '2') && strcmp(se + 7, ".weight") == 0;
}

static void to_convolution(struct cvy_shape *shape)
{
    if (shape->rank == 2)
        *shape = cvy_shape4(shape->dim[0], shape->dim[1], 1, 1);
}

static void to_linear(struct cvy_shape *shape)
{
    if (shape->rank == 4 && shape->dim[2] == 1 && shape->dim[3] == 1)
        *shape = cvy_shape2(shape->dim[0], shape->dim[1]);
}

/* ---- files ---- */

cvy_status cvy_naming_read(struct cvy_tensor_file *file, const char *what, enum cvy_naming *found)
{
    *found = CVY_NAMING_TORCHVISION;
    if (cvy_slim_looks_like(file)) {
        *found = CVY_NAMING_SLIM;
        CVY_TRY(cvy_slim_read(file));
        return cvy_tensor_file_check_names(file, what);
    }
    if (cvy_tensorflow_naming_looks_like(file)) {
        *found = CVY_NAMING_TENSORFLOW;
        CVY_TRY(cvy_tensorflow_naming_read(file));
        return cvy_tensor_file_check_names(file, what);
    }
    for (size_t i = 0; i < file->tensor_count; i++) {
        struct cvy_named_tensor *tensor = &file->tensors[i];
        struct cvy_arena steps = {0}; /* between the old name and the new one; only that stays */
        const char *name = read_name(&steps, tensor->name, found);

        if (name && name != tensor->name)
            name = cvy_arena_strdup(&file->arena, name);
        cvy_arena_release(&steps);
        if (!name)
            return cvy_fail_memory(strlen(tensor->name), "a tensor name");
        tensor->name = name;
        if (!is_squeeze_weight(name))
            continue;
        to_convolution(&tensor->shape);
        if (*found == CVY_NAMING_TORCHVISION)
            *found = CVY_NAMING_TIMM;
    }
    return cvy_tensor_file_check_names(file, what);
}

bool cvy_naming_has(enum cvy_naming naming, const struct cvy_named_tensor *tensor)
{
    const size_t length = strlen(tensor->name), counter = strlen(".num_batches_tracked");

    if (naming != CVY_NAMING_SLIM && naming != CVY_NAMING_TENSORFLOW)
        return true;
    if (naming == CVY_NAMING_TENSORFLOW && strstr(tensor->name, "_quantizer."))
        return false;
    return length < counter || strcmp(tensor->name + length - counter, ".num_batches_tracked") != 0;
}

cvy_status cvy_naming_write(enum cvy_naming naming, const char *arch, struct cvy_arena *arena,
                            struct cvy_named_tensor *tensor)
{
    const char *name = tensor->name;

    if (naming == CVY_NAMING_SLIM)
        return cvy_slim_write(arena, tensor);
    if (naming == CVY_NAMING_TENSORFLOW)
        return cvy_tensorflow_naming_write(arena, arch, tensor);
    if (naming != CVY_NAMING_NVIDIA && naming != CVY_NAMING_NVIDIA2019)
        return CVY_OK;
    if (is_squeeze_weight(name))
        to_linear(&tensor->shape);
    for (size_t i = 0; name && i < PARTS; i++) {
        const char *at = parts[i].scheme == CVY_NAMING_NVIDIA2019 ? strstr(name, parts[i].ours) : NULL;
        if (at)
            name = replace(arena, name, at, strlen(parts[i].ours), parts[i].theirs);
    }
    if (name && naming == CVY_NAMING_NVIDIA)
        name = write_stage(arena, name);
    if (!name)
        return cvy_fail_memory(strlen(tensor->name), "a tensor name");
    tensor->name = name;
    return CVY_OK;
}
