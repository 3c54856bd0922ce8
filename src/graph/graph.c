/* The graph builder: values, nodes, parameters, scopes, and the first error that sticks. */
#include "graph/graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

/* ---- life and errors ---- */

void cvy_graph_init(struct cvy_graph *graph, bool training)
{
    memset(graph, 0, sizeof *graph);
    graph->training = training;
}

void cvy_graph_release(struct cvy_graph *graph)
{
    if (!graph)
        return;
    cvy_free(graph->values);
    cvy_free(graph->nodes);
    cvy_free(graph->params);
    cvy_free(graph->input_list);
    cvy_free(graph->results);
    cvy_arena_release(&graph->arena);
    memset(graph, 0, sizeof *graph);
}

cvy_status cvy_graph_status(const struct cvy_graph *graph)
{
    return graph->status == CVY_OK ? CVY_OK : cvy_fail(graph->status, "%s", graph->message);
}

cvy_val cvy_graph_fail(struct cvy_graph *graph, cvy_status status, const char *format, ...)
{
    size_t used = 0;
    va_list arguments;

    if (graph->status != CVY_OK)
        return CVY_NONE;
    graph->status = status;
    if (graph->scope[0])
        used = (size_t)snprintf(graph->message, sizeof graph->message, "%s: ", graph->scope);
    va_start(arguments, format);
    vsnprintf(graph->message + used, sizeof graph->message - used, format, arguments);
    va_end(arguments);
    (void)cvy_fail(status, "%s", graph->message);
    return CVY_NONE;
}

static cvy_val fail_memory(struct cvy_graph *graph)
{
    return cvy_graph_fail(graph, CVY_NO_MEMORY, "out of memory while building the graph");
}

/* ---- growing lists ---- */

/* The list with room for one more entry; NULL (and the error recorded) when there is none. */
static void *grown(struct cvy_graph *graph, void *list, int32_t count, int32_t *capacity, size_t size)
{
    int32_t wanted = 64;
    void *larger;

    if (count < *capacity)
        return list;
    if (*capacity > 0 && __builtin_mul_overflow(*capacity, 2, &wanted)) {
        cvy_graph_fail(graph, CVY_NO_MEMORY, "the graph has more than %d entries of one kind", *capacity);
        return NULL;
    }
    larger = cvy_realloc(list, (size_t)wanted, size);
    if (!larger) {
        fail_memory(graph);
        return NULL;
    }
    *capacity = wanted;
    return larger;
}

/* The shape may be that of another value, which moves when the table grows. */
static cvy_val add_value(struct cvy_graph *graph, enum cvy_dtype dtype, const struct cvy_shape *shape)
{
    const struct cvy_value value = {.shape = *shape, .dtype = dtype, .producer = -1, .param = -1, .input = -1};
    struct cvy_value *values =
        grown(graph, graph->values, graph->value_count, &graph->value_capacity, sizeof *graph->values);

    if (!values)
        return CVY_NONE;
    graph->values = values;
    values[graph->value_count] = value;
    return graph->value_count++;
}

cvy_val cvy_graph_add_output(struct cvy_graph *graph, int32_t node, enum cvy_dtype dtype, const struct cvy_shape *shape)
{
    struct cvy_node *n = &graph->nodes[node];
    const cvy_val value = n->outputs < CVY_MAX_OUTPUTS ? add_value(graph, dtype, shape) : CVY_NONE;

    if (value == CVY_NONE)
        return CVY_NONE;
    graph->values[value].producer = node;
    n->out[n->outputs++] = value;
    return value;
}

/* Whether every dimension is positive (the first may be CVY_BATCH) and the bytes of one sample fit. */
static bool valid_shape(const struct cvy_shape *shape)
{
    struct cvy_shape one;
    int64_t bytes;

    if (shape->rank < 0 || shape->rank > CVY_MAX_RANK)
        return false;
    for (int32_t i = 0; i < shape->rank; i++) {
        if (shape->dim[i] <= 0 && !(i == 0 && shape->dim[i] == CVY_BATCH))
            return false;
    }
    one = cvy_shape_bind(shape, 1);
    return cvy_shape_elements(&one) > 0 && !__builtin_mul_overflow(cvy_shape_elements(&one), (int64_t)8, &bytes);
}

/* ---- scopes ---- */

void cvy_scope_push(struct cvy_graph *graph, const char *name)
{
    size_t used = strlen(graph->scope);
    int length;

    if (graph->status != CVY_OK)
        return;
    if (!name[0] || strchr(name, '.') || strchr(name, '/')) {
        cvy_graph_fail(graph, CVY_FAILED, "%s cannot name a scope", cvy_quote(name));
        return;
    }
    length = snprintf(graph->scope + used, sizeof graph->scope - used, "%s%s", used ? "." : "", name);
    if ((size_t)length >= sizeof graph->scope - used) {
        graph->scope[used] = '\0';
        cvy_graph_fail(graph, CVY_FAILED, "scopes are nested too deeply for %s", cvy_quote(name));
    }
}

void cvy_scope_push_index(struct cvy_graph *graph, int32_t index)
{
    char name[16];

    snprintf(name, sizeof name, "%d", (int)index);
    cvy_scope_push(graph, name);
}

void cvy_scope_pop(struct cvy_graph *graph)
{
    char *dot = strrchr(graph->scope, '.');

    if (graph->status != CVY_OK)
        return;
    if (dot)
        *dot = '\0';
    else if (graph->scope[0])
        graph->scope[0] = '\0';
    else
        cvy_graph_fail(graph, CVY_FAILED, "there is no scope to leave");
}

/* ---- inputs, parameters, results ---- */

cvy_val cvy_graph_input(struct cvy_graph *graph, const char *name, enum cvy_dtype dtype, struct cvy_shape shape,
                        bool nhwc)
{
    struct cvy_graph_input *list;
    const char *owned;
    cvy_val value;

    if (graph->status != CVY_OK)
        return CVY_NONE;
    for (int32_t i = 0; i < graph->input_count; i++) {
        if (strcmp(graph->input_list[i].name, name) == 0)
            return cvy_graph_fail(graph, CVY_FAILED, "the graph already has an input %s", cvy_quote(name));
    }
    if (!valid_shape(&shape) || (nhwc && shape.rank != 4)) {
        char text[96];
        return cvy_graph_fail(graph, CVY_USAGE, "input %s cannot have the shape %s", cvy_quote(name),
                              shape.rank >= 0 && shape.rank <= CVY_MAX_RANK ? cvy_shape_text(&shape, text) : "given");
    }
    list = grown(graph, graph->input_list, graph->input_count, &graph->input_capacity, sizeof *list);
    if (!list)
        return CVY_NONE;
    graph->input_list = list;
    owned = cvy_arena_strdup(&graph->arena, name);
    if (!owned)
        return fail_memory(graph);
    value = add_value(graph, dtype, &shape);
    if (value == CVY_NONE)
        return CVY_NONE;
    graph->values[value].input = graph->input_count;
    list[graph->input_count++] = (struct cvy_graph_input){.name = owned, .value = value, .nhwc = nhwc};
    return value;
}

static const char *const kind_names[] = {
    [CVY_PARAM_TRAINABLE] = "trainable",
    [CVY_PARAM_STATE] = "state",
    [CVY_PARAM_FROZEN] = "frozen",
    [CVY_PARAM_COUNTER] = "counter",
};

bool cvy_name_under(const char *name, const char *prefix, size_t length)
{
    return strncmp(name, prefix, length) == 0 && (name[length] == '\0' || name[length] == '.');
}

static bool is_frozen(const struct cvy_graph *graph, const char *name)
{
    const char *prefix = graph->freeze;

    while (prefix && *prefix) {
        const size_t length = strcspn(prefix, ",");
        if (length > 0 && cvy_name_under(name, prefix, length))
            return true;
        prefix += length + (prefix[length] == ',');
    }
    return false;
}

/* The parameter that was asked for before, under the same terms. */
static cvy_val shared_param(struct cvy_graph *graph, struct cvy_param *param, enum cvy_param_kind kind,
                            const struct cvy_shape *shape)
{
    char was[96], is[96];

    if (param->kind != kind)
        return cvy_graph_fail(graph, CVY_USAGE, "parameter %s is shared as %s and as %s", cvy_quote(param->name),
                              kind_names[param->kind], kind_names[kind]);
    if (!cvy_shape_equal(&param->shape, shape))
        return cvy_graph_fail(graph, CVY_USAGE, "parameter %s is shared with two shapes, %s and %s",
                              cvy_quote(param->name), cvy_shape_text(&param->shape, was), cvy_shape_text(shape, is));
    param->uses++;
    return param->value;
}

/* Books the parameter's place in the arena of its kind; false when the arena's size overflows. */
static bool place_param(struct cvy_graph *graph, struct cvy_param *param)
{
    int64_t *end = param->kind == CVY_PARAM_TRAINABLE ? &graph->trainable_elements
                   : param->kind == CVY_PARAM_COUNTER ? &graph->counters
                                                      : &graph->state_elements;
    int64_t elements = cvy_shape_elements(&param->shape), total, bytes;

    if (__builtin_add_overflow(*end, elements, &total) || __builtin_mul_overflow(total, (int64_t)8, &bytes))
        return false;
    param->offset = *end;
    *end = total;
    return true;
}

cvy_val cvy_graph_param(struct cvy_graph *graph, const char *name, enum cvy_param_kind kind, struct cvy_shape shape,
                        struct cvy_init init)
{
    struct cvy_param param = {.shape = shape, .init = init.kind, .init_scale = init.scale, .uses = 1};
    struct cvy_param *list;
    int32_t known;

    if (graph->status != CVY_OK)
        return CVY_NONE;
    param.value = CVY_NONE;
    if (name[0] == '/')
        param.name = cvy_arena_strdup(&graph->arena, name + 1);
    else
        param.name = cvy_arena_printf(&graph->arena, "%s%s%s", graph->scope, graph->scope[0] ? "." : "", name);
    if (!param.name)
        return fail_memory(graph);
    if (kind == CVY_PARAM_TRAINABLE && is_frozen(graph, param.name))
        kind = CVY_PARAM_FROZEN;
    param.kind = kind;
    known = cvy_graph_find_param(graph, param.name);
    if (known >= 0)
        return shared_param(graph, &graph->params[known], kind, &shape);
    if (!valid_shape(&shape) || (shape.rank > 0 && shape.dim[0] == CVY_BATCH) || !place_param(graph, &param))
        return cvy_graph_fail(graph, CVY_USAGE, "parameter %s is empty or too large", cvy_quote(param.name));
    list = grown(graph, graph->params, graph->param_count, &graph->param_capacity, sizeof *list);
    if (!list)
        return CVY_NONE;
    graph->params = list;
    if (kind != CVY_PARAM_COUNTER) {
        param.value = add_value(graph, CVY_F32, &shape);
        if (param.value == CVY_NONE)
            return CVY_NONE;
        graph->values[param.value].param = graph->param_count;
    }
    list[graph->param_count++] = param;
    return param.value;
}

int32_t cvy_graph_find_param(const struct cvy_graph *graph, const char *name)
{
    for (int32_t i = 0; i < graph->param_count; i++) {
        if (strcmp(graph->params[i].name, name) == 0)
            return i;
    }
    return -1;
}

void cvy_graph_result(struct cvy_graph *graph, enum cvy_result_kind kind, const char *name, int32_t param,
                      cvy_val value)
{
    struct cvy_graph_result *list;
    const char *owned = NULL;

    if (graph->status != CVY_OK)
        return;
    if (value < 0 || value >= graph->value_count ||
        (kind != CVY_RESULT_NAMED && (param < 0 || param >= graph->param_count))) {
        cvy_graph_fail(graph, CVY_FAILED, "a result without a value");
        return;
    }
    if (kind == CVY_RESULT_NAMED && cvy_graph_find_result(graph, name) != CVY_NONE) {
        cvy_graph_fail(graph, CVY_FAILED, "the graph already has a result %s", cvy_quote(name));
        return;
    }
    list = grown(graph, graph->results, graph->result_count, &graph->result_capacity, sizeof *list);
    if (!list)
        return;
    graph->results = list;
    if (kind == CVY_RESULT_NAMED) {
        owned = cvy_arena_strdup(&graph->arena, name);
        if (!owned) {
            fail_memory(graph);
            return;
        }
        param = -1;
    }
    list[graph->result_count++] =
        (struct cvy_graph_result){.kind = kind, .name = owned, .param = param, .value = value};
}

cvy_val cvy_graph_find_result(const struct cvy_graph *graph, const char *name)
{
    for (int32_t i = 0; i < graph->result_count; i++) {
        if (graph->results[i].kind == CVY_RESULT_NAMED && strcmp(graph->results[i].name, name) == 0)
            return graph->results[i].value;
    }
    return CVY_NONE;
}

/* ---- nodes ---- */

/* The current scope, owned by the arena; neighbours share one copy. */
static const char *owned_scope(struct cvy_graph *graph)
{
    if (!graph->scope[0])
        return "";
    if (graph->node_count > 0 && strcmp(graph->nodes[graph->node_count - 1].scope, graph->scope) == 0)
        return graph->nodes[graph->node_count - 1].scope;
    return cvy_arena_strdup(&graph->arena, graph->scope);
}

int32_t cvy_graph_node(struct cvy_graph *graph, enum cvy_op op, const union cvy_attr *attr, int32_t inputs,
                       const cvy_val *in, int32_t outputs, const struct cvy_shape *shapes, const enum cvy_dtype *dtypes)
{
    struct cvy_node node = {.op = op, .inputs = inputs, .outputs = outputs};
    struct cvy_node *nodes;

    if (graph->status != CVY_OK)
        return -1;
    if (inputs < 0 || inputs > CVY_MAX_INPUTS || outputs < 0 || outputs > CVY_MAX_OUTPUTS) {
        cvy_graph_fail(graph, CVY_FAILED, "a node with %d inputs and %d outputs", (int)inputs, (int)outputs);
        return -1;
    }
    if (attr)
        node.attr = *attr;
    for (int32_t i = 0; i < CVY_MAX_INPUTS; i++)
        node.in[i] = i < inputs ? in[i] : CVY_NONE;
    for (int32_t i = 0; i < CVY_MAX_OUTPUTS; i++)
        node.out[i] = CVY_NONE;
    nodes = grown(graph, graph->nodes, graph->node_count, &graph->node_capacity, sizeof *nodes);
    if (!nodes)
        return -1;
    graph->nodes = nodes;
    node.scope = owned_scope(graph);
    if (!node.scope) {
        fail_memory(graph);
        return -1;
    }
    for (int32_t i = 0; i < outputs; i++) {
        if (shapes[i].rank < 0)
            continue;
        if (!valid_shape(&shapes[i])) {
            cvy_graph_fail(graph, CVY_USAGE, "a tensor is empty or too large");
            return -1;
        }
        node.out[i] = add_value(graph, dtypes[i], &shapes[i]);
        if (node.out[i] == CVY_NONE)
            return -1;
        graph->values[node.out[i]].producer = graph->node_count;
    }
    nodes[graph->node_count] = node;
    return graph->node_count++;
}

/* ---- questions ---- */

int32_t cvy_graph_uses(const struct cvy_graph *graph, cvy_val value)
{
    int32_t uses = 0;

    for (int32_t n = 0; n < graph->node_count; n++) {
        for (int32_t i = 0; i < graph->nodes[n].inputs; i++)
            uses += graph->nodes[n].in[i] == value;
    }
    for (int32_t r = 0; r < graph->result_count; r++)
        uses += graph->results[r].value == value;
    return uses;
}

cvy_status cvy_graph_check_batch(const struct cvy_graph *graph, int64_t batch)
{
    char text[96];

    if (batch < 1)
        return cvy_fail(CVY_USAGE, "a batch of %lld images is impossible", (long long)batch);
    for (cvy_val v = 0; v < graph->value_count; v++) {
        struct cvy_shape bound = cvy_shape_bind(&graph->values[v].shape, batch);
        if (!valid_shape(&bound))
            return cvy_fail(CVY_USAGE, "a batch of %lld images is too large", (long long)batch);
    }
    for (int32_t n = 0; n < graph->node_count; n++) {
        const struct cvy_node *node = &graph->nodes[n];
        struct cvy_shape x;

        if (node->op != CVY_OP_BATCH_NORM)
            continue;
        x = cvy_shape_bind(&graph->values[node->in[0]].shape, batch);
        if (cvy_shape_elements(&x) / x.dim[1] > 1)
            continue;
        return cvy_fail(CVY_USAGE, "batch norm %s needs more than one value per channel in training, its input is %s",
                        cvy_quote(node->scope), cvy_shape_text(&x, text));
    }
    return CVY_OK;
}

bool cvy_graph_param_fixed(const struct cvy_graph *graph, int32_t param)
{
    if (!graph->training || graph->params[param].kind == CVY_PARAM_FROZEN)
        return true;
    for (int32_t r = 0; r < graph->result_count; r++) {
        if (graph->results[r].kind == CVY_RESULT_STATE && graph->results[r].param == param)
            return false;
    }
    return graph->params[param].kind == CVY_PARAM_STATE;
}

bool *cvy_graph_constant_nodes(const struct cvy_graph *graph)
{
    bool *constant = cvy_calloc((size_t)graph->node_count + 1, sizeof *constant);

    if (!constant)
        return NULL;
    for (int32_t n = 0; n < graph->node_count; n++) {
        const struct cvy_node *node = &graph->nodes[n];

        constant[n] = true;
        for (int32_t i = 0; i < node->inputs && constant[n]; i++) {
            const struct cvy_value *value = node->in[i] == CVY_NONE ? NULL : &graph->values[node->in[i]];
            if (value && value->param >= 0)
                constant[n] = cvy_graph_param_fixed(graph, value->param);
            else if (value)
                constant[n] = value->producer >= 0 && constant[value->producer];
        }
    }
    return constant;
}
