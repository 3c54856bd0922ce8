/* Loading the tensors of a network. */
#include "weights/weights.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/finite.h"
#include "ops/anchors.h"

/* ---- what is wrong with a file, in one sentence ---- */

enum { NAMED_PROBLEMS = 3 }; /* more are only counted */

struct problems {
    int missing, unexpected, wrong;
    char missing_names[256], unexpected_names[256], wrong_names[384];
};

static void note(int *count, char *names, size_t size, const char *text)
{
    const size_t used = strlen(names);

    if (*count < NAMED_PROBLEMS && used < size)
        snprintf(names + used, size - used, "%s%s", *count ? ", " : "", text);
    (*count)++;
}

static void note_tensor(struct problems *problems, const struct cvy_param *param, const struct cvy_named_tensor *tensor)
{
    char is[96], should[96], text[320];

    if (cvy_shape_equal(&param->shape, &tensor->shape))
        snprintf(text, sizeof text, "%s has numbers of type %s", cvy_quote(param->name), cvy_dtype_name(tensor->dtype));
    else
        snprintf(text, sizeof text, "%s is %s instead of %s", cvy_quote(param->name),
                 cvy_shape_text(&tensor->shape, is), cvy_shape_text(&param->shape, should));
    note(&problems->wrong, problems->wrong_names, sizeof problems->wrong_names, text);
}

static void add_part(char *text, size_t size, int count, const char *what, const char *names)
{
    const size_t used = strlen(text);

    if (count > 0 && used < size)
        snprintf(text + used, size - used, "%s%d %s (%s%s)", used ? ", " : "", count, what, names,
                 count > NAMED_PROBLEMS ? ", ..." : "");
}

/* The layers that tell classes apart, of a classifier or of a detector: its rows are the scores of each class and of
 * the background for every anchor at a location. */
static const struct head {
    const char *name;
    int rank;
    int64_t rows_of_a_class, background;
} heads[] = {{"fc.weight", 2, 1, 0}, {"head.class_predictor.weight", 4, CVY_SSD_ANCHORS, 1}};
enum { HEADS = sizeof heads / sizeof heads[0] };

/* 0: of another shape. */
static int64_t head_classes(const struct head *head, const struct cvy_shape *shape)
{
    const int64_t rows = shape->rank == head->rank ? shape->dim[0] : 0;

    if (rows < 1 || rows % head->rows_of_a_class != 0)
        return 0;
    return rows / head->rows_of_a_class - head->background;
}

/* The network's; 0 when it has none of these layers. */
static int64_t table_classes(const struct cvy_graph *table)
{
    for (int i = 0; i < HEADS; i++) {
        const int32_t param = cvy_graph_find_param(table, heads[i].name);
        if (param >= 0)
            return head_classes(&heads[i], &table->params[param].shape);
    }
    return 0;
}

static cvy_status report(const struct cvy_architecture *architecture, const struct cvy_graph *table,
                         const struct problems *problems, const char *what)
{
    const int64_t classes = table_classes(table);
    char text[1100] = "";

    add_part(text, sizeof text, problems->missing, "missing", problems->missing_names);
    add_part(text, sizeof text, problems->unexpected, "unexpected", problems->unexpected_names);
    add_part(text, sizeof text, problems->wrong, "of another shape or type", problems->wrong_names);
    return cvy_fail(CVY_BAD_DATA, "%s does not hold the tensors of %s with %s: %s", cvy_quote(what), architecture->name,
                    cvy_counted(classes, "class"), text);
}

/* Scalars are written with rank 0 or as one element. */
bool cvy_weights_fits(const struct cvy_param *param, const struct cvy_named_tensor *tensor)
{
    if (param->kind == CVY_PARAM_COUNTER)
        return tensor->dtype == CVY_I64 && cvy_shape_elements(&tensor->shape) == 1;
    return cvy_dtype_is_float(tensor->dtype) && cvy_shape_equal(&param->shape, &tensor->shape);
}

bool cvy_weights_is_model(const char *name)
{
    return strncmp(name, "optimizer.", 10) != 0 && strncmp(name, CVY_EMA_PREFIX, strlen(CVY_EMA_PREFIX)) != 0;
}

int32_t cvy_weights_classes(const struct cvy_tensor_file *file)
{
    for (int i = 0; i < HEADS; i++) {
        const struct cvy_named_tensor *tensor = cvy_tensor_find(file, heads[i].name);
        const int64_t classes = tensor ? head_classes(&heads[i], &tensor->shape) : 0;
        if (tensor)
            return classes < 1 || classes > INT32_MAX ? 0 : (int32_t)classes;
    }
    return 0;
}

/* Whether the shapes differ in the number of rows alone. */
static bool other_rows(const struct cvy_shape *a, const struct cvy_shape *b)
{
    struct cvy_shape same = *a;

    same.dim[0] = b->dim[0];
    return cvy_shape_equal(&same, b) && a->dim[0] != b->dim[0];
}

/* The most frequent mistake gets a sentence of its own. */
static cvy_status check_classes(const struct cvy_graph *table, const struct cvy_tensor_file *file, const char *what,
                                const struct cvy_weights_load_options *options)
{
    const int32_t classes = cvy_weights_classes(file);

    for (int i = 0; i < HEADS && !options->skip_head && classes > 0; i++) {
        const int32_t param = cvy_graph_find_param(table, heads[i].name);
        const struct cvy_named_tensor *tensor = cvy_tensor_find(file, heads[i].name);
        if (param >= 0 && tensor && other_rows(&tensor->shape, &table->params[param].shape))
            return cvy_fail(CVY_BAD_DATA, "%s has %s, not %lld%s", cvy_quote(what), cvy_counted(classes, "class"),
                            (long long)table_classes(table),
                            options->can_reset_head ? "; --reset-head starts a new classifier on the rest" : "");
    }
    return CVY_OK;
}

static const char backbone[] = "backbone.";

static bool is_backbone(const char *name)
{
    return strncmp(name, backbone, strlen(backbone)) == 0;
}

bool cvy_weights_is_classifier(const struct cvy_tensor_file *file)
{
    return cvy_tensor_find(file, "layer1.0.conv1.weight") != NULL;
}

bool cvy_weights_is_backbone(const struct cvy_tensor_file *file)
{
    return cvy_tensor_find(file, "backbone.conv1.weight") && !cvy_tensor_find(file, "head.class_predictor.weight");
}

/* The file's tensor for a parameter. */
static const struct cvy_named_tensor *tensor_for(const struct cvy_tensor_file *file, const char *name,
                                                 const struct cvy_weights_load_options *options)
{
    const struct cvy_named_tensor *tensor;

    if (options->backbone && !is_backbone(name))
        return NULL;
    tensor = cvy_tensor_find(file, name);
    return options->backbone && !tensor ? cvy_tensor_find(file, name + strlen(backbone)) : tensor;
}

/* The parameter for a tensor of the file; -1: there is none. */
static int32_t param_for(const struct cvy_graph *table, const char *name,
                         const struct cvy_weights_load_options *options)
{
    char whole[512];

    if (!options->backbone || is_backbone(name))
        return cvy_graph_find_param(table, name);
    snprintf(whole, sizeof whole, "%s%s", backbone, name);
    return cvy_graph_find_param(table, whole);
}

static bool ends_with_quantizer(const char *name)
{
    const size_t length = strlen(name), end = strlen(CVY_QUANTIZER_SUFFIX);

    return length > end && strcmp(name + length - end, CVY_QUANTIZER_SUFFIX) == 0;
}

/* Whether the load leaves the parameter of this name alone. */
static bool left_alone(const char *name, const struct cvy_weights_load_options *options)
{
    return (options->backbone && !is_backbone(name)) || (options->skip_head && cvy_is_head(name)) ||
           (options->any_quantizers && ends_with_quantizer(name));
}

static cvy_status check_names(const struct cvy_architecture *architecture, const struct cvy_graph *table,
                              const struct cvy_tensor_file *file, const char *what,
                              const struct cvy_weights_load_options *options)
{
    struct problems problems = {0};

    for (int32_t i = 0; i < table->param_count; i++) {
        const struct cvy_param *param = &table->params[i];
        const struct cvy_named_tensor *tensor = tensor_for(file, param->name, options);
        if (left_alone(param->name, options) && (!tensor || cvy_is_head(param->name)))
            continue;
        if (!tensor && param->kind != CVY_PARAM_COUNTER)
            note(&problems.missing, problems.missing_names, sizeof problems.missing_names, cvy_quote(param->name));
        else if (tensor && !cvy_weights_fits(param, tensor))
            note_tensor(&problems, param, tensor);
    }
    for (size_t i = 0; i < file->tensor_count; i++) {
        const char *name = file->tensors[i].name;
        if (options->backbone && (cvy_is_head(name) || ends_with_quantizer(name)))
            continue;
        if (cvy_weights_is_model(name) && (options->backbone || !left_alone(name, options)) &&
            param_for(table, name, options) < 0)
            note(&problems.unexpected, problems.unexpected_names, sizeof problems.unexpected_names, cvy_quote(name));
    }
    if (problems.missing + problems.unexpected + problems.wrong > 0)
        return report(architecture, table, &problems, what);
    return CVY_OK;
}

cvy_status cvy_weights_check(const struct cvy_architecture *architecture, const struct cvy_graph *table,
                             const struct cvy_tensor_file *file, const char *what,
                             const struct cvy_weights_load_options *options)
{
    if (!options->backbone)
        CVY_TRY(check_classes(table, file, what, options));
    CVY_TRY(check_names(architecture, table, file, what, options));
    return cvy_weights_check_quantizers(table, file, what);
}

cvy_status cvy_weights_check_model(const struct cvy_architecture *architecture, const struct cvy_model_options *model,
                                   const struct cvy_tensor_file *file, const char *what)
{
    struct cvy_graph table;
    cvy_status status;

    CVY_TRY(cvy_model_graph(architecture, model, CVY_MODEL_INFER, false, &table));
    status = cvy_weights_check(architecture, &table, file, what, &CVY_WEIGHTS_LOAD_DEFAULTS);
    cvy_graph_release(&table);
    return status;
}

/* ---- values ---- */

static bool is_variance(const char *name)
{
    const size_t length = strlen(name), end = strlen(".running_var");

    return length > end && strcmp(name + length - end, ".running_var") == 0;
}

/* The floats may have any alignment. */
static size_t count_negative(const void *floats, size_t count)
{
    const unsigned char *bytes = floats;
    size_t negative = 0;

    for (size_t i = 0; i < count; i++) {
        float value;

        memcpy(&value, bytes + i * sizeof value, sizeof value);
        negative += value < 0;
    }
    return negative;
}

cvy_status cvy_weights_check_numbers(const struct cvy_named_tensor *tensor, const void *values, const char *what)
{
    const size_t count = (size_t)cvy_shape_elements(&tensor->shape);
    size_t bad = cvy_count_not_finite(values, count);

    if (bad)
        return cvy_fail(CVY_BAD_DATA, "%s holds no trained network: %zu of the %zu numbers of %s are NaN or infinite",
                        cvy_quote(what), bad, count, cvy_quote(tensor->name));
    bad = is_variance(tensor->name) ? count_negative(values, count) : 0;
    if (bad) /* their roots would be NaN */
        return cvy_fail(CVY_BAD_DATA, "%s holds no trained network: %zu of the %zu variances %s are negative",
                        cvy_quote(what), bad, count, cvy_quote(tensor->name));
    return CVY_OK;
}

/* what: the name of the file, if the numbers have to be those of a network that answers; else NULL. */
static cvy_status check_numbers(const struct cvy_named_tensor *tensor, const void *values, const char *what)
{
    return what ? cvy_weights_check_numbers(tensor, values, what) : CVY_OK;
}

/* scale (3) or NULL: factors for the inputs of a convolution, (K, 3, R, S). what: as above. */
static cvy_status load_tensor(struct cvy_network *network, const struct cvy_named_tensor *tensor, const float *scale,
                              const char *what, float *to)
{
    const struct cvy_backend *backend = network->device->backend;
    const size_t count = (size_t)cvy_shape_elements(&tensor->shape);
    float *values;
    cvy_status status;

    if (tensor->dtype == CVY_F32 && !scale) {
        CVY_TRY(check_numbers(tensor, tensor->data, what));
        return backend->upload(network->device, to, tensor->data, tensor->bytes);
    }
    values = cvy_calloc(count, sizeof *values);
    if (!values)
        return cvy_fail_memory(count * sizeof *values, tensor->name);
    cvy_tensor_floats(tensor, values);
    if (scale) {
        const size_t area = (size_t)(tensor->shape.dim[2] * tensor->shape.dim[3]);
        for (size_t i = 0; i < count; i++)
            values[i] *= scale[i / area % 3];
    }
    status = check_numbers(tensor, values, what);
    if (status == CVY_OK)
        status = backend->upload(network->device, to, values, count * sizeof *values);
    cvy_free(values);
    return status;
}

cvy_status cvy_weights_load(struct cvy_network *network, const struct cvy_tensor_file *file, const char *what,
                            const struct cvy_weights_load_options *options)
{
    const struct cvy_graph *table = &network->table;

    CVY_TRY(cvy_weights_check(network->architecture, table, file, what, options));
    for (int32_t i = 0; i < table->param_count; i++) {
        const struct cvy_param *param = &table->params[i];
        const struct cvy_named_tensor *tensor = tensor_for(file, param->name, options);
        const bool first = options->backbone && strcmp(param->name, "backbone.conv1.weight") == 0;

        if (left_alone(param->name, options) && (!tensor || cvy_is_head(param->name)))
            continue;
        if (param->kind == CVY_PARAM_COUNTER) {
            network->counters[param->offset] = 0;
            if (tensor)
                memcpy(&network->counters[param->offset], tensor->data, sizeof(int64_t));
            continue;
        }
        CVY_TRY(load_tensor(network, tensor, first ? options->first_scale : NULL, options->any_numbers ? NULL : what,
                            (param->kind == CVY_PARAM_TRAINABLE ? network->store.weights : network->store.state) +
                                param->offset));
        cvy_file_forget(&file->mapping, tensor->data, tensor->bytes);
    }
    network->store.version++;
    return cvy_tensor_file_check(file, what);
}

/* A tensor of every parameter of a kind, with a prefix before its name, into an arena. `any_numbers`: as of
 * cvy_weights_load_options. */
static cvy_status load_arena(struct cvy_network *network, const struct cvy_tensor_file *file, const char *what,
                             const char *prefix, enum cvy_param_kind kind, bool any_numbers, float *arena)
{
    const struct cvy_graph *table = &network->table;

    for (int32_t i = 0; i < table->param_count; i++) {
        const struct cvy_param *param = &table->params[i];
        const struct cvy_named_tensor *tensor;
        char name[512];

        if (param->kind != kind)
            continue;
        snprintf(name, sizeof name, "%s%s", prefix, param->name);
        tensor = cvy_tensor_find(file, name);
        if (!tensor)
            return cvy_fail(CVY_BAD_DATA, "%s has no %s: it is not a checkpoint to resume from", cvy_quote(what),
                            cvy_quote(name));
        if (!cvy_weights_fits(param, tensor))
            return cvy_fail(CVY_BAD_DATA, "%s: %s has another shape or type", cvy_quote(what), cvy_quote(name));
        CVY_TRY(load_tensor(network, tensor, NULL, any_numbers ? NULL : what, arena + param->offset));
        cvy_file_forget(&file->mapping, tensor->data, tensor->bytes);
    }
    return CVY_OK;
}

static bool has_prefix(const struct cvy_tensor_file *file, const char *prefix)
{
    for (size_t i = 0; i < file->tensor_count; i++) {
        if (strncmp(file->tensors[i].name, prefix, strlen(prefix)) == 0)
            return true;
    }
    return false;
}

/* Weights, frozen ones and statistics. */
static cvy_status load_store(struct cvy_network *network, const struct cvy_tensor_file *file, const char *what,
                             const char *prefix, bool any_numbers, const struct cvy_store *store)
{
    CVY_TRY(load_arena(network, file, what, prefix, CVY_PARAM_TRAINABLE, any_numbers, store->weights));
    CVY_TRY(load_arena(network, file, what, prefix, CVY_PARAM_FROZEN, any_numbers, store->state));
    return load_arena(network, file, what, prefix, CVY_PARAM_STATE, any_numbers, store->state);
}

/* What the optimizer keeps. */
static cvy_status load_optimizer(struct cvy_network *network, const struct cvy_tensor_file *file, const char *what,
                                 const char *momentum, const char *squares, const struct cvy_store *store)
{
    if (store->momentum)
        CVY_TRY(load_arena(network, file, what, momentum, CVY_PARAM_TRAINABLE, true, store->momentum));
    return store->square_average
               ? load_arena(network, file, what, squares, CVY_PARAM_TRAINABLE, true, store->square_average)
               : CVY_OK;
}

cvy_status cvy_weights_load_training(struct cvy_network *network, const struct cvy_tensor_file *file, const char *what,
                                     const struct cvy_weights_load_options *options, bool *averaged)
{
    *averaged = network->average.weights && has_prefix(file, CVY_EMA_PREFIX);
    CVY_TRY(load_optimizer(network, file, what, CVY_MOMENTUM_PREFIX, CVY_SQUARE_PREFIX, &network->store));
    if (*averaged)
        CVY_TRY(load_store(network, file, what, CVY_EMA_PREFIX, options->any_numbers, &network->average));
    return cvy_tensor_file_check(file, what);
}

cvy_status cvy_weights_load_snapshot(struct cvy_network *network, const struct cvy_tensor_file *file, const char *what,
                                     struct cvy_snapshot *snapshot)
{
    if (!has_prefix(file, CVY_LAST_GOOD_PREFIX))
        return CVY_OK;
    CVY_TRY(load_store(network, file, what, CVY_LAST_GOOD_PREFIX, true, &snapshot->store));
    CVY_TRY(load_optimizer(network, file, what, CVY_LAST_GOOD_PREFIX CVY_MOMENTUM_PREFIX,
                           CVY_LAST_GOOD_PREFIX CVY_SQUARE_PREFIX, &snapshot->store));
    if (snapshot->average.weights) /* without one it begins with the weights, as that of the network does */
        CVY_TRY(load_store(network, file, what,
                           has_prefix(file, CVY_LAST_GOOD_PREFIX CVY_EMA_PREFIX) ? CVY_LAST_GOOD_PREFIX CVY_EMA_PREFIX
                                                                                 : CVY_LAST_GOOD_PREFIX,
                           true, &snapshot->average));
    snapshot->taken = true;
    return cvy_tensor_file_check(file, what);
}
