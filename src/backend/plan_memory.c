/* Memory planning by liveness: how long each tensor is needed, which may reuse another's memory, and where each block
 * lies.
 *
 * Offsets: blocks from the largest to the smallest, each at the lowest offset where it overlaps no block that is alive
 * at the same time (greedy by size; Pisarchyk and Lee, "Efficient memory management for deep neural net inference",
 * 2020). */
#include <stdlib.h>
#include <string.h>

#include "backend/plan_internal.h"
#include "base/error.h"

int32_t cvy_plan_result_tensor(const struct cvy_plan *plan, cvy_val value)
{
    for (int32_t t = 0; t < plan->tensor_count; t++) {
        const struct cvy_plan_tensor *tensor = &plan->tensors[t];
        if (tensor->value == value && tensor->tensor.layout.kind == CVY_LAYOUT_PLAIN &&
            tensor->storage != CVY_STORE_INPUT)
            return t;
    }
    return -1;
}

/* Gathered steps run at once: what one of them makes must not lie where another one writes. */
static void keep_gathered(struct cvy_plan *plan)
{
    int32_t end = 0;

    for (int32_t s = 0; s < plan->step_count; s++)
        end = plan->steps[s].gathered ? s : end;
    for (int32_t s = 0; s < end; s++) {
        struct cvy_plan_tensor *made = plan->steps[s].gathered ? &plan->tensors[plan->steps[s].out[0]] : NULL;

        if (made && made->last < end)
            made->last = end;
    }
}

/* First and last step of each tensor, step_count for what is read by name after the last one. Tensors made in setup and
 * read by later steps become constants. */
static void find_live_ranges(struct cvy_plan *plan)
{
    for (int32_t s = 0; s < plan->step_count; s++) {
        const struct cvy_plan_step *step = &plan->steps[s];

        for (int i = 0; i < CVY_MAX_OUTPUTS; i++) {
            if (step->out[i] >= 0)
                plan->tensors[step->out[i]].first = plan->tensors[step->out[i]].last = s;
        }
        for (int i = 0; i < CVY_MAX_INPUTS; i++) {
            struct cvy_plan_tensor *t = step->in[i] >= 0 ? &plan->tensors[step->in[i]] : NULL;
            if (!t)
                continue;
            t->last = s;
            if (t->storage == CVY_STORE_ACTIVATION && t->first >= 0 && plan->steps[t->first].setup && !step->setup)
                t->storage = CVY_STORE_CONSTANT;
        }
    }
    keep_gathered(plan);
    for (int32_t r = 0; r < plan->graph.result_count; r++) {
        int32_t t = -1;
        if (plan->graph.results[r].kind == CVY_RESULT_NAMED)
            t = cvy_plan_result_tensor(plan, plan->graph.results[r].value);
        if (t >= 0)
            plan->tensors[t].last = plan->step_count;
    }
}

static int32_t root_of(const struct cvy_plan *plan, int32_t tensor)
{
    while (plan->tensors[tensor].alias >= 0)
        tensor = plan->tensors[tensor].alias;
    return tensor;
}

/* Whether an earlier output of the step took over the memory of `root` already. */
static bool taken(const struct cvy_plan *plan, const struct cvy_plan_step *step, int outputs, int32_t root)
{
    for (int k = 0; k < outputs; k++) {
        if (step->out[k] >= 0 && plan->tensors[step->out[k]].alias == root)
            return true;
    }
    return false;
}

/* Whether the step reads input j through another slot as well: y = conv(x) + x must not write over x. */
static bool read_twice(const struct cvy_plan_step *step, int32_t j)
{
    for (int32_t k = 0; k < CVY_MAX_INPUTS; k++) {
        if (k != j && step->in[k] == step->in[j])
            return true;
    }
    return false;
}

/* Output i of a step takes over the memory of an input that dies there. The root of a chain of such tensors carries the
 * range of all of them. */
static void find_aliases(struct cvy_plan *plan)
{
    for (int32_t s = 0; s < plan->step_count; s++) {
        struct cvy_plan_step *step = &plan->steps[s];

        for (int i = 0; i < CVY_MAX_OUTPUTS; i++) {
            int32_t j = step->kernel.in_place[i], out = step->out[i], root;
            if (j < 0 || out < 0 || step->in[j] < 0 || plan->tensors[out].storage != CVY_STORE_ACTIVATION ||
                plan->tensors[out].local || plan->tensors[step->in[j]].local)
                continue;
            root = root_of(plan, step->in[j]);
            if (plan->tensors[step->in[j]].storage != CVY_STORE_ACTIVATION || plan->tensors[root].last != s ||
                plan->tensors[step->in[j]].last != s || plan->tensors[out].bytes > plan->tensors[root].bytes ||
                read_twice(step, j) || taken(plan, step, i, root))
                continue;
            plan->tensors[out].alias = root;
            plan->tensors[root].last = plan->tensors[out].last;
        }
    }
}

static bool owns_block(const struct cvy_plan_tensor *t, enum cvy_storage storage)
{
    return t->storage == storage && t->alias < 0 && t->first >= 0 && !t->local;
}

/* A chain is one moment: what lives during one of its steps lives during all of them. */
static void join_moments(struct cvy_plan *plan)
{
    for (int32_t c = 0; c < plan->chain_count; c++) {
        const struct cvy_plan_chain *chain = &plan->chains[c];
        for (int32_t i = 0; i < plan->tensor_count; i++) {
            struct cvy_plan_tensor *t = &plan->tensors[i];
            if (!owns_block(t, CVY_STORE_ACTIVATION) || t->first >= chain->end || t->last < chain->from)
                continue;
            t->first = t->first > chain->from ? chain->from : t->first;
            t->last = t->last < chain->end - 1 ? chain->end - 1 : t->last;
        }
    }
}

/* A tensor's memory; or, with one of these numbers for `tensor`, the scratch of a step, which lives during it or during
 * its chain, what a chain has for its parts, or all small results. */
enum { SCRATCH = -1, RESULTS = -2, PARTS = -3 };
struct block {
    int32_t tensor, index; /* index: of the step or the chain */
    int32_t first, last;
    size_t bytes, offset;
};

static int by_size(const void *a, const void *b)
{
    const struct block *x = a, *y = b;

    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static int by_offset(const void *a, const void *b)
{
    const struct block *const *x = a, *const *y = b;

    if ((*x)->offset != (*y)->offset)
        return (*x)->offset < (*y)->offset ? -1 : 1;
    return 0;
}

/* Lowest offset at which `block` fits between the already placed blocks[0..placed) alive at the same time. */
static size_t lowest_offset(struct block *blocks, int32_t placed, const struct block *block, struct block **conflicts)
{
    int32_t count = 0;
    size_t offset = 0;

    for (int32_t i = 0; i < placed; i++) {
        if (blocks[i].first <= block->last && block->first <= blocks[i].last)
            conflicts[count++] = &blocks[i];
    }
    qsort(conflicts, (size_t)count, sizeof *conflicts, by_offset);
    for (int32_t i = 0; i < count; i++) {
        if (offset + block->bytes <= conflicts[i]->offset)
            break;
        if (conflicts[i]->offset + conflicts[i]->bytes > offset)
            offset = conflicts[i]->offset + conflicts[i]->bytes;
    }
    return offset;
}

/* Results of a few bytes stay to the end and lie side by side: they are read together. */
static bool is_small_result(const struct cvy_plan *plan, const struct cvy_plan_tensor *tensor)
{
    return owns_block(tensor, CVY_STORE_ACTIVATION) && tensor->last == plan->step_count &&
           tensor->bytes <= CVY_PLAN_ALIGNMENT;
}

/* The blocks of all activations, unplaced; returns their number. */
static int32_t list_blocks(struct cvy_plan *plan, struct block *blocks)
{
    struct block results = {RESULTS, 0, plan->step_count, plan->step_count, 0, 0};
    int32_t count = 0;

    for (int32_t t = 0; t < plan->tensor_count; t++) {
        const struct cvy_plan_tensor *tensor = &plan->tensors[t];
        if (is_small_result(plan, tensor)) {
            results.first = tensor->first < results.first ? tensor->first : results.first;
            results.bytes += CVY_PLAN_ALIGNMENT;
        } else if (owns_block(tensor, CVY_STORE_ACTIVATION)) {
            blocks[count++] = (struct block){t, 0, tensor->first, tensor->last, cvy_plan_align(tensor->bytes), 0};
        }
    }
    if (results.bytes)
        blocks[count++] = results;
    for (int32_t s = 0; s < plan->step_count; s++) {
        const size_t scratch = cvy_plan_align(plan->steps[s].kernel.scratch_bytes);
        const int32_t chain = plan->steps[s].chain;
        const int32_t first = chain < 0 ? s : plan->chains[chain].from,
                      last = chain < 0 ? s : plan->chains[chain].end - 1;
        if (scratch)
            blocks[count++] = (struct block){SCRATCH, s, first, last, scratch, 0};
        if (scratch > plan->scratch_bytes)
            plan->scratch_bytes = scratch;
    }
    for (int32_t c = 0; c < plan->chain_count; c++) {
        const struct cvy_plan_chain *chain = &plan->chains[c];
        const size_t bytes = cvy_plan_align(chain->chain.local_bytes * (size_t)plan->device->threads);
        if (bytes)
            blocks[count++] = (struct block){PARTS, c, chain->from, chain->end - 1, bytes, 0};
    }
    return count;
}

/* What a placed block says about the plan. */
static void reserve_block(struct cvy_plan *plan, const struct block *block)
{
    size_t offset = block->offset;

    if (block->tensor >= 0)
        plan->tensors[block->tensor].offset = offset;
    else if (block->tensor == SCRATCH)
        plan->steps[block->index].scratch_offset = offset;
    else if (block->tensor == PARTS)
        plan->chains[block->index].offset = offset;
    for (int32_t t = 0; block->tensor == RESULTS && t < plan->tensor_count; t++) {
        if (!is_small_result(plan, &plan->tensors[t]))
            continue;
        plan->tensors[t].offset = offset;
        offset += CVY_PLAN_ALIGNMENT;
    }
    if (block->offset + block->bytes > plan->activation_bytes)
        plan->activation_bytes = block->offset + block->bytes;
}

static cvy_status place_activations(struct cvy_plan *plan)
{
    const size_t capacity = (size_t)plan->tensor_count + (size_t)plan->step_count + (size_t)plan->chain_count + 1;
    struct block *blocks = cvy_calloc(capacity, sizeof *blocks);
    struct block **conflicts = cvy_calloc(capacity, sizeof *conflicts);
    int32_t count;
    cvy_status status = CVY_OK;

    if (!blocks || !conflicts) {
        status = cvy_fail_memory(capacity * sizeof *blocks, "a plan");
        goto fail;
    }
    count = list_blocks(plan, blocks);
    qsort(blocks, (size_t)count, sizeof *blocks, by_size);
    for (int32_t i = 0; i < count; i++) {
        blocks[i].offset = lowest_offset(blocks, i, &blocks[i], conflicts);
        reserve_block(plan, &blocks[i]);
    }
fail:
    cvy_free(blocks);
    cvy_free(conflicts);
    return status;
}

cvy_status cvy_plan_layout(struct cvy_plan *plan)
{
    CVY_TRY(cvy_plan_find_chains(plan));
    find_live_ranges(plan);
    cvy_plan_find_locals(plan);
    find_aliases(plan);
    join_moments(plan);
    CVY_TRY(place_activations(plan));
    for (int32_t t = 0; t < plan->tensor_count; t++) {
        struct cvy_plan_tensor *tensor = &plan->tensors[t];
        if (!owns_block(tensor, CVY_STORE_CONSTANT))
            continue;
        tensor->offset = plan->constant_bytes;
        plan->constant_bytes += cvy_plan_align(tensor->bytes);
    }
    for (int32_t t = 0; t < plan->tensor_count; t++) {
        if (plan->tensors[t].alias >= 0)
            plan->tensors[t].offset = plan->tensors[root_of(plan, t)].offset;
    }
    return CVY_OK;
}

size_t cvy_plan_live_bytes(const struct cvy_plan *plan)
{
    size_t largest = 0;

    for (int32_t s = 0; s < plan->step_count; s++) {
        size_t live = plan->steps[s].kernel.scratch_bytes;
        for (int32_t t = 0; t < plan->tensor_count; t++) {
            const struct cvy_plan_tensor *tensor = &plan->tensors[t];
            if (owns_block(tensor, CVY_STORE_ACTIVATION) && tensor->first <= s && s <= tensor->last)
                live += tensor->bytes;
        }
        if (live > largest)
            largest = live;
    }
    return largest;
}
