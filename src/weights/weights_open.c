/* Weights files of any format and naming: opening them, and finding out which network they are for. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "models/naming.h"
#include "weights/model_variant.h"
#include "weights/published.h"
#include "weights/weights.h"

/* The checkpoint that TensorFlow's file "checkpoint" in a folder names as the last one; NULL where there is no such
 * file, or it names none. Lives in the arena. */
static cvy_status find_last_checkpoint(struct cvy_arena *arena, const char *folder, const char **path)
{
    enum { LIMIT = 1 << 20 };
    static const char key[] = "model_checkpoint_path: \"";
    const char *state = cvy_arena_printf(arena, "%s/checkpoint", folder);
    void *text = NULL;
    size_t size;

    *path = NULL;
    if (!state)
        return cvy_fail_memory(strlen(folder), "a path");
    if (!cvy_path_is_file(state))
        return CVY_OK;
    CVY_TRY(cvy_file_read(state, LIMIT, &text, &size));
    const char *name = strncmp(text, key, strlen(key)) == 0 ? (const char *)text + strlen(key) : NULL;
    const int length = name ? (int)strcspn(name, "\"\n") : 0;
    bool failed = false;
    if (length > 0 && name[length] == '"') {
        *path = name[0] == '/' ? cvy_arena_printf(arena, "%.*s", length, name)
                               : cvy_arena_printf(arena, "%s/%.*s", folder, length, name);
        failed = !*path;
    }
    cvy_free(text);
    return failed ? cvy_fail_memory((size_t)length, "a path") : CVY_OK;
}

/* What one of TensorFlow's programs left in a folder. */
static cvy_status open_model_dir(struct cvy_tensor_file *file, const char *folder, bool *found)
{
    struct cvy_arena arena = {0};
    const char *path;
    cvy_status status = find_last_checkpoint(&arena, folder, &path);

    *found = status != CVY_OK || path;
    if (status == CVY_OK && path)
        status = cvy_tensor_file_open(file, path);
    cvy_arena_release(&arena);
    return status;
}

/* The weights of a run's folder: the best of its epochs, else the last. */
static cvy_status open_run(struct cvy_tensor_file *file, const char *folder)
{
    static const char *const names[] = {"model_best.safetensors", "checkpoint.safetensors"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *path = cvy_path_join(folder, names[i]);
        if (!path)
            return cvy_fail_memory(strlen(folder), "a path");
        const bool here = cvy_path_is_file(path);
        const cvy_status status = here ? cvy_tensor_file_open(file, path) : CVY_OK;
        cvy_free(path);
        if (here)
            return status;
    }
    bool found;
    const cvy_status status = open_model_dir(file, folder, &found);
    if (found)
        return status;
    return cvy_fail(CVY_NO_INPUT, "%s is a folder without %s and %s", cvy_quote(folder), names[0], names[1]);
}

/* Gives the tensors the usual names. */
static cvy_status name_tensors(struct cvy_tensor_file *file, const char *path)
{
    enum cvy_naming naming;
    cvy_status status;

    CVY_GOTO(cvy_naming_read(file, path, &naming));
    if (naming == CVY_NAMING_LEGACY && cvy_tensor_find(file, "layer1.0.se.fc1.weight"))
        cvy_log(CVY_LOG_WARNING,
                "%s is of a legacy SE network, whose first pooling has no padding at the top and left: this one pads, "
                "and its answers differ a little",
                cvy_quote(path));
    return CVY_OK;
fail:
    cvy_tensor_file_close(file);
    return status;
}

cvy_status cvy_weights_open(struct cvy_tensor_file *file, const char *path)
{
    char pulled[4096];
    bool published = false;

    if (!cvy_tensor_file_exists(path))
        CVY_TRY(cvy_published_resolve(path, pulled, sizeof pulled, &published));
    if (published)
        path = pulled;
    CVY_TRY(cvy_path_is_directory(path) ? open_run(file, path) : cvy_tensor_file_open(file, path));
    return name_tensors(file, path);
}

cvy_status cvy_weights_open_memory(struct cvy_tensor_file *file, const char *name, const void *data, size_t size)
{
    CVY_TRY(cvy_tensor_file_open_memory(file, name, data, size));
    return name_tensors(file, name);
}

/* Does the file hold just the parameters of the network? num_batches_tracked may be missing. */
static bool holds(const struct cvy_graph *graph, const struct cvy_tensor_file *file)
{
    size_t found = 0, model = 0;

    for (size_t i = 0; i < file->tensor_count; i++)
        model += cvy_weights_is_model(file->tensors[i].name);
    if (model > (size_t)graph->param_count)
        return false;
    for (int32_t i = 0; i < graph->param_count; i++) {
        const struct cvy_param *param = &graph->params[i];
        const struct cvy_named_tensor *tensor = cvy_tensor_find(file, param->name);

        if (!tensor && param->kind == CVY_PARAM_COUNTER)
            continue;
        if (!tensor || !cvy_weights_fits(param, tensor))
            return false;
        found++;
    }
    return found == model;
}

/* What the file decides of a network. */
static cvy_status describe(const struct cvy_tensor_file *file, const char *what, struct cvy_model_options *model)
{
    enum { MAX_CLASSES = 1000000 }; /* as in --num-classes */
    const int32_t classes = cvy_weights_classes(file);

    if (classes > MAX_CLASSES)
        return cvy_fail(CVY_BAD_DATA, "%s has %d classes; the most are %d", cvy_quote(what), (int)classes, MAX_CLASSES);
    if (classes > 0)
        model->num_classes = classes;
    model->resnet.squeeze_width = cvy_weights_squeeze_width(file);
    model->quantize = cvy_weights_quantize(file);
    return CVY_OK;
}

/* An architecture without squeeze-and-excitation takes no width; whether it fits, the other tensors tell. */
static struct cvy_model_options options_for(const struct cvy_architecture *architecture,
                                            const struct cvy_model_options *model)
{
    struct cvy_model_options own = *model;

    if (architecture->squeeze_width == 0)
        own.resnet.squeeze_width = 0;
    return own;
}

static cvy_status try_all(const struct cvy_tensor_file *file, const char *what, const struct cvy_model_options *model,
                          const struct cvy_architecture **architecture)
{
    const struct cvy_architecture *candidate;
    char names[256] = "";
    int fitting = 0;
    cvy_status status;

    for (size_t i = 0; (candidate = cvy_architecture_at(i)); i++) {
        const struct cvy_model_options own = options_for(candidate, model);
        struct cvy_graph graph;
        bool fits;

        status = cvy_model_graph(candidate, &own, CVY_MODEL_INFER, false, &graph);
        if (status == CVY_NO_MEMORY)
            return status;
        if (status != CVY_OK) /* what cannot be built fits nothing */
            continue;
        fits = holds(&graph, file);
        cvy_graph_release(&graph);
        if (!fits)
            continue;
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", fitting++ ? ", " : "", candidate->name);
        *architecture = candidate;
    }
    if (fitting == 0 && cvy_weights_is_backbone(file))
        return cvy_fail(CVY_BAD_DATA,
                        "%s holds a detector's backbone alone (TF-slim's resnet_v1_50 is one): training starts with it "
                        "by --arch ssd320 --pretrained-weights, and nothing else can be done with it",
                        cvy_quote(what));
    if (fitting == 0)
        return cvy_fail(CVY_BAD_DATA,
                        "%s does not say which network it is for, and its tensors are those of none: with --arch NAME "
                        "the differences are listed",
                        cvy_quote(what));
    if (fitting > 1)
        return cvy_fail(CVY_USAGE, "%s fits several networks (%s): --arch NAME is needed", cvy_quote(what), names);
    return CVY_OK;
}

cvy_status cvy_weights_identify(const struct cvy_tensor_file *file, const char *what, const char *arch,
                                const struct cvy_architecture **architecture, struct cvy_model_options *model)
{
    *architecture = NULL;
    CVY_TRY(describe(file, what, model));
    if (arch)
        *architecture = cvy_architecture_find(arch);
    else
        CVY_TRY(try_all(file, what, model, architecture));
    if (!*architecture)
        return cvy_architecture_fail(arch);
    *model = options_for(*architecture, model);
    return CVY_OK;
}
