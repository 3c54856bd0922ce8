/* From graph to steps: picks a kernel for each node, inserts reorders where a kernel wants another layout than the one
 * its input arrives in, and says where each tensor is stored. */
#include <stdio.h>
#include <string.h>

#include "backend/autotune.h"
#include "backend/plan_internal.h"
#include "base/error.h"
#include "ops/ops.h"

struct builder {
    struct cvy_plan *plan;
    bool *constant;        /* per node: depends on fixed parameters only */
    bool *value_constant;  /* per value */
    int32_t *first_tensor; /* per value: the tensor its producer writes; -1 before that */
    int32_t *next_tensor;  /* per tensor: the same value in another layout, or -1 */
    int32_t *first_result; /* per value: a result that it is, or -1; next_result: the value's next one */
    int32_t *next_result;
    int32_t step_capacity, tensor_capacity;
    struct cvy_selection selection;
};

static cvy_status grow(void **array, int32_t *capacity, int32_t count, size_t size)
{
    int32_t wanted;
    void *larger;

    if (count < *capacity)
        return CVY_OK;
    wanted = *capacity ? *capacity * 2 : 256;
    larger = cvy_realloc(*array, (size_t)wanted, size);
    if (!larger)
        return cvy_fail_memory((size_t)wanted * size, "a plan");
    *array = larger;
    *capacity = wanted;
    return CVY_OK;
}

static cvy_status new_tensor(struct builder *b, cvy_val value, const struct cvy_layout *layout, int32_t *index)
{
    struct cvy_plan *plan = b->plan;
    const struct cvy_value *v = &plan->graph.values[value];
    struct cvy_plan_tensor *t;
    int32_t capacity = b->tensor_capacity;

    CVY_TRY(grow((void **)&plan->tensors, &b->tensor_capacity, plan->tensor_count, sizeof *plan->tensors));
    CVY_TRY(grow((void **)&b->next_tensor, &capacity, plan->tensor_count, sizeof *b->next_tensor));
    t = &plan->tensors[plan->tensor_count];
    memset(t, 0, sizeof *t);
    t->tensor.shape = cvy_shape_bind(&v->shape, plan->batch);
    t->tensor.dtype = v->dtype;
    t->tensor.layout = *layout;
    t->value = value;
    t->param = t->alias = -1;
    t->first = t->last = -1;
    t->bytes = plan->device->backend->tensor_bytes(plan->device, &t->tensor);
    if (t->bytes == 0) {
        char text[96];
        return cvy_fail(CVY_NO_MEMORY, "a tensor of %s %s is too large", cvy_shape_text(&t->tensor.shape, text),
                        cvy_dtype_name(v->dtype));
    }
    b->next_tensor[plan->tensor_count] = -1;
    *index = plan->tensor_count++;
    return CVY_OK;
}

/* Append `tensor` to the chain of its value. */
static void link_tensor(struct builder *b, int32_t tensor)
{
    int32_t *slot = &b->first_tensor[b->plan->tensors[tensor].value];

    while (*slot >= 0)
        slot = &b->next_tensor[*slot];
    *slot = tensor;
}

/* Graph inputs and parameters have a tensor before any step. */
static cvy_status source_tensor(struct builder *b, cvy_val value)
{
    struct cvy_plan *plan = b->plan;
    const struct cvy_value *v = &plan->graph.values[value];
    struct cvy_layout layout = {CVY_LAYOUT_PLAIN, NULL, 0};
    int32_t index;

    if (v->input >= 0 && plan->graph.input_list[v->input].nhwc)
        layout.kind = CVY_LAYOUT_NHWC;
    CVY_TRY(new_tensor(b, value, &layout, &index));
    if (v->input >= 0)
        plan->tensors[index].storage = CVY_STORE_INPUT;
    else if (plan->graph.params[v->param].kind == CVY_PARAM_TRAINABLE)
        plan->tensors[index].storage = CVY_STORE_WEIGHT;
    else
        plan->tensors[index].storage = CVY_STORE_STATE;
    plan->tensors[index].param = v->param;
    link_tensor(b, index);
    return CVY_OK;
}

static cvy_status append_step(struct builder *b, struct cvy_plan_step **step)
{
    struct cvy_plan *plan = b->plan;

    CVY_TRY(grow((void **)&plan->steps, &b->step_capacity, plan->step_count, sizeof *plan->steps));
    *step = &plan->steps[plan->step_count];
    memset(*step, 0, sizeof **step);
    (*step)->chain = -1;
    for (int i = 0; i < CVY_MAX_INPUTS; i++)
        (*step)->in[i] = -1;
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
        (*step)->out[i] = -1;
    return CVY_OK;
}

/* A step that brings tensor `from` into `layout` (a plain copy when it has it already): *to is the new tensor. */
static cvy_status add_reorder(struct builder *b, int32_t from, const struct cvy_layout *layout, const char *scope,
                              bool backward, int32_t *to)
{
    struct cvy_plan *plan = b->plan;
    cvy_val value = plan->tensors[from].value;
    struct cvy_plan_step *step;

    CVY_TRY(new_tensor(b, value, layout, to));
    CVY_TRY(append_step(b, &step));
    step->desc.op = CVY_OP_REORDER;
    step->desc.inputs = step->desc.outputs = 1;
    step->desc.in[0] = plan->tensors[from].tensor;
    step->desc.out[0] = plan->tensors[*to].tensor;
    step->desc.inference = !plan->graph.training;
    for (int i = 1; i < CVY_MAX_INPUTS; i++)
        step->desc.in[i].shape.rank = -1;
    for (int i = 1; i < CVY_MAX_OUTPUTS; i++)
        step->desc.out[i].shape.rank = -1;
    step->scope = scope;
    step->backward = backward;
    step->setup = b->value_constant[value];
    step->in[0] = from;
    step->out[0] = *to;
    plan->step_count++;
    return cvy_selection_select(&b->selection, &step->desc, &step->kernel);
}

/* The tensor of `value` in `layout`; a reorder is added the first time. */
static cvy_status tensor_in_layout(struct builder *b, cvy_val value, const struct cvy_layout *layout,
                                   const struct cvy_node *reader, int32_t *tensor)
{
    int32_t made;

    for (int32_t t = b->first_tensor[value]; t >= 0; t = b->next_tensor[t]) {
        if (cvy_layout_equal(&b->plan->tensors[t].tensor.layout, layout)) {
            *tensor = t;
            return CVY_OK;
        }
    }
    CVY_TRY(add_reorder(b, b->first_tensor[value], layout, reader->scope, reader->backward, &made));
    link_tensor(b, made);
    *tensor = made;
    return CVY_OK;
}

/* A convolution of a frozen layer is made for weights that stay, as in inference. */
static bool fixed_weights(const struct builder *b, const struct cvy_node *node)
{
    return node->op == CVY_OP_CONV2D && b->value_constant[node->in[1]];
}

static void describe_node(struct builder *b, const struct cvy_node *node, struct cvy_op_desc *desc)
{
    struct cvy_plan *plan = b->plan;

    memset(desc, 0, sizeof *desc);
    desc->op = node->op;
    desc->attr = node->attr;
    desc->inputs = node->inputs;
    desc->outputs = node->outputs;
    desc->inference = !plan->graph.training || fixed_weights(b, node);
    desc->training = plan->graph.training;
    desc->images = plan->images;
    for (int i = 0; i < CVY_MAX_INPUTS; i++) {
        if (i < node->inputs && node->in[i] != CVY_NONE)
            desc->in[i] = plan->tensors[b->first_tensor[node->in[i]]].tensor;
        else
            desc->in[i].shape.rank = -1;
    }
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++) {
        if (i < node->outputs && node->out[i] != CVY_NONE) {
            const struct cvy_value *v = &plan->graph.values[node->out[i]];
            desc->out[i].shape = cvy_shape_bind(&v->shape, plan->batch);
            desc->out[i].dtype = v->dtype;
        } else {
            desc->out[i].shape.rank = -1;
        }
    }
}

/* FLOPs of a step: per sample where anything in it has a batch. */
static double step_flops(const struct cvy_plan *plan, const struct cvy_node *node)
{
    bool batched = false;

    for (int i = 0; i < node->inputs; i++)
        batched |= node->in[i] != CVY_NONE && plan->graph.values[node->in[i]].shape.rank > 0 &&
                   plan->graph.values[node->in[i]].shape.dim[0] == CVY_BATCH;
    return cvy_node_flops(&plan->graph, node) * (batched ? (double)plan->batch : 1);
}

/* Results are plain; gradients and running statistics are stored in the arenas. */
static cvy_status add_result(struct builder *b, const struct cvy_graph_result *result)
{
    static const struct cvy_layout plain = {CVY_LAYOUT_PLAIN, NULL, 0};
    struct cvy_plan *plan = b->plan;
    const struct cvy_value *v = &plan->graph.values[result->value];
    struct cvy_node reader = {.scope = "", .backward = v->producer >= 0 && plan->graph.nodes[v->producer].backward};
    const bool named = result->kind == CVY_RESULT_NAMED;
    enum cvy_storage storage;
    int32_t tensor;

    if (b->first_tensor[result->value] < 0)
        CVY_TRY(source_tensor(b, result->value));
    if (v->producer >= 0)
        reader.scope = plan->graph.nodes[v->producer].scope;
    CVY_TRY(tensor_in_layout(b, result->value, &plain, &reader, &tensor));
    /* The value may be stored elsewhere already (an input, a parameter, another result): then copy it. What is read by
     * name may stay there, but not in an input: that memory is the caller's and not known before it is bound. */
    storage = plan->tensors[tensor].storage;
    if (named ? storage == CVY_STORE_INPUT : storage != CVY_STORE_ACTIVATION)
        CVY_TRY(add_reorder(b, tensor, &plain, reader.scope, reader.backward, &tensor));
    if (named)
        return CVY_OK;
    plan->tensors[tensor].storage = result->kind == CVY_RESULT_GRADIENT ? CVY_STORE_GRADIENT : CVY_STORE_STATE;
    plan->tensors[tensor].param = result->param;
    return CVY_OK;
}

/* What the device's rewrite said of the node precedes why it has its kernel. */
static void add_note(const struct cvy_node *node, struct cvy_kernel_plan *kernel)
{
    struct cvy_text text = {0};

    if (!node->note)
        return;
    cvy_text_printf(&text, "%s; %s", node->note, kernel->reason);
    if (!text.failed)
        snprintf(kernel->reason, sizeof kernel->reason, "%s", text.text);
    cvy_text_release(&text);
}

static cvy_status add_node(struct builder *b, int32_t node_index)
{
    struct cvy_plan *plan = b->plan;
    const struct cvy_node *node = &plan->graph.nodes[node_index];
    struct cvy_op_desc desc;
    struct cvy_kernel_plan kernel;
    struct cvy_plan_step *step;
    int32_t in[CVY_MAX_INPUTS];
    cvy_status status;

    for (int i = 0; i < node->inputs; i++) {
        if (node->in[i] != CVY_NONE && b->first_tensor[node->in[i]] < 0)
            CVY_TRY(source_tensor(b, node->in[i]));
    }
    describe_node(b, node, &desc);
    status = cvy_selection_select(&b->selection, &desc, &kernel);
    if (status != CVY_OK)
        return cvy_fail_context(status, "%s%s%s", node->scope, node->scope[0] ? " " : "", cvy_ops[node->op].name);
    add_note(node, &kernel);
    for (int i = 0; i < node->inputs && status == CVY_OK; i++) {
        in[i] = -1;
        if (node->in[i] != CVY_NONE)
            status = tensor_in_layout(b, node->in[i], &desc.in[i].layout, node, &in[i]);
    }
    if (status == CVY_OK)
        status = append_step(b, &step);
    if (status != CVY_OK) {
        cvy_kernel_release(plan->device, &kernel);
        return status;
    }
    step->kernel = kernel;
    step->desc = desc;
    step->scope = node->scope;
    step->backward = node->backward;
    step->setup = b->constant[node_index];
    step->flops = step_flops(plan, node);
    memcpy(step->in, in, (size_t)node->inputs * sizeof *in);
    plan->step_count++;
    for (int i = 0; i < node->outputs; i++) {
        if (node->out[i] == CVY_NONE)
            continue;
        CVY_TRY(new_tensor(b, node->out[i], &desc.out[i].layout, &step->out[i]));
        step->kernel.out_bytes[i] = plan->tensors[step->out[i]].bytes;
        link_tensor(b, step->out[i]);
    }
    /* At once, so that a gradient can be summed over the ranks while the backward pass continues. */
    for (int i = 0; i < node->outputs; i++) {
        for (int32_t r = node->out[i] != CVY_NONE ? b->first_result[node->out[i]] : -1; r >= 0; r = b->next_result[r])
            CVY_TRY(add_result(b, &plan->graph.results[r]));
    }
    return CVY_OK;
}

/* Gathers the small steps that convert weights to their kernels' types and layouts: none of them depends on another
 * step. */
static bool can_gather(const struct cvy_plan *plan, const struct cvy_plan_step *step)
{
    return !step->setup && step->kernel.kernel->run_many && step->kernel.scratch_bytes == 0 && step->desc.inputs == 1 &&
           step->desc.outputs == 1 && plan->tensors[step->in[0]].storage == CVY_STORE_WEIGHT &&
           plan->tensors[step->out[0]].storage == CVY_STORE_ACTIVATION;
}

/* Gradients of weights on their way into the arena may wait for others. */
static bool can_wait(const struct cvy_plan *plan, const struct cvy_plan_step *step)
{
    return step->desc.op == CVY_OP_REORDER && step->kernel.kernel->run_many && step->kernel.scratch_bytes == 0 &&
           plan->tensors[step->in[0]].storage == CVY_STORE_ACTIVATION &&
           plan->tensors[step->out[0]].storage == CVY_STORE_GRADIENT;
}

/* Steps that wait: as many as are run at once, and of no more bytes than a bucket of what ranks sum while the backward
 * pass runs (25 MiB) can wait for without coming late. */
enum { MAX_WAITING_BYTES = 16 << 20 };
struct waiting {
    const struct cvy_plan_step *steps[CVY_MANY_CALLS];
    int32_t count;
    size_t bytes;
};

static bool reads_waiting(const struct waiting *waiting, const struct cvy_plan_step *step)
{
    for (int32_t w = 0; w < waiting->count; w++) {
        for (int i = 0; i < step->desc.inputs; i++) {
            if (step->in[i] >= 0 && step->in[i] == waiting->steps[w]->out[0])
                return true;
        }
    }
    return false;
}

static void append_waiting(struct waiting *waiting, struct cvy_plan_step *sorted, int32_t *count)
{
    for (int32_t w = 0; w < waiting->count; w++) {
        sorted[*count] = *waiting->steps[w];
        sorted[(*count)++].gathered = true;
    }
    waiting->count = 0;
    waiting->bytes = 0;
}

/* The steps that are neither setup nor gathered. */
static void sort_others(const struct cvy_plan *plan, struct cvy_plan_step *sorted, int32_t *count)
{
    struct waiting waiting = {.count = 0};

    for (int32_t i = 0; i < plan->step_count; i++) {
        const struct cvy_plan_step *step = &plan->steps[i];

        if (step->setup || step->gathered)
            continue;
        if (reads_waiting(&waiting, step))
            append_waiting(&waiting, sorted, count);
        if (!can_wait(plan, step)) {
            sorted[(*count)++] = *step;
            continue;
        }
        waiting.steps[waiting.count++] = step;
        waiting.bytes += plan->tensors[step->out[0]].bytes;
        if (waiting.count == CVY_MANY_CALLS || waiting.bytes >= MAX_WAITING_BYTES)
            append_waiting(&waiting, sorted, count);
    }
    append_waiting(&waiting, sorted, count);
}

/* Setup steps first, in their order: they depend on each other and on parameters only. Then what can be gathered, all
 * others last. */
static cvy_status sort_steps(struct cvy_plan *plan)
{
    struct cvy_plan_step *sorted;
    int32_t count = 0;

    if (plan->step_count == 0)
        return CVY_OK;
    sorted = cvy_calloc((size_t)plan->step_count, sizeof *sorted);
    if (!sorted)
        return cvy_fail_memory((size_t)plan->step_count * sizeof *sorted, "a plan");
    for (int32_t i = 0; i < plan->step_count; i++)
        plan->steps[i].gathered = can_gather(plan, &plan->steps[i]);
    for (int rank = 0; rank < 2; rank++) {
        for (int32_t i = 0; i < plan->step_count; i++) {
            if (rank == 0 ? plan->steps[i].setup : !plan->steps[i].setup && plan->steps[i].gathered)
                sorted[count++] = plan->steps[i];
        }
    }
    sort_others(plan, sorted, &count);
    cvy_free(plan->steps);
    plan->steps = sorted;
    return CVY_OK;
}

cvy_status cvy_plan_build(struct cvy_plan *plan)
{
    const struct cvy_graph *graph = &plan->graph;
    struct builder b = {.plan = plan};
    cvy_status status = CVY_NO_MEMORY;

    cvy_selection_begin(&b.selection, plan->device, plan->store != NULL, plan->batch);
    plan->device->dry_run = plan->store == NULL;
    b.first_tensor = cvy_calloc((size_t)graph->value_count + 1, sizeof *b.first_tensor);
    b.value_constant = cvy_calloc((size_t)graph->value_count + 1, sizeof *b.value_constant);
    b.first_result = cvy_calloc((size_t)graph->value_count + 1, sizeof *b.first_result);
    b.next_result = cvy_calloc((size_t)graph->result_count + 1, sizeof *b.next_result);
    b.constant = cvy_graph_constant_nodes(graph);
    if (!b.first_tensor || !b.value_constant || !b.first_result || !b.next_result || !b.constant) {
        status = cvy_fail_memory((size_t)graph->value_count * sizeof *b.first_tensor, "a plan");
        goto fail;
    }
    for (int32_t v = 0; v < graph->value_count; v++) {
        const struct cvy_value *value = &graph->values[v];
        b.first_tensor[v] = b.first_result[v] = -1;
        b.value_constant[v] = value->param >= 0 ? cvy_graph_param_fixed(graph, value->param)
                                                : value->producer >= 0 && b.constant[value->producer];
    }
    for (int32_t r = 0; r < graph->result_count; r++) {
        int32_t *slot = &b.first_result[graph->results[r].value];
        b.next_result[r] = *slot;
        *slot = r;
    }
    for (int32_t n = 0; n < graph->node_count; n++)
        CVY_GOTO(add_node(&b, n));
    for (int32_t r = 0; r < graph->result_count; r++) { /* inputs and parameters that are results themselves */
        if (graph->values[graph->results[r].value].producer < 0)
            CVY_GOTO(add_result(&b, &graph->results[r]));
    }
    status = sort_steps(plan);
fail:
    plan->device->dry_run = false;
    cvy_selection_end(&b.selection, status == CVY_OK);
    cvy_free(b.first_tensor);
    cvy_free(b.next_tensor);
    cvy_free(b.value_constant);
    cvy_free(b.first_result);
    cvy_free(b.next_result);
    cvy_free(b.constant);
    return status;
}
