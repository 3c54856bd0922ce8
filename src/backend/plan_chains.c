/* Chains of a plan: steps that are run part by part (backend.h).
 *
 * A chain begins with a step whose kernel can be cut and continues as long as the next one can, with as many pixels,
 * and reads what an earlier one has made, and each operand that two of its steps have in common is read and written
 * pixel by pixel by both. What stands between them and reads nothing of theirs, as reorders of weights, is moved before
 * the chain, which counts as one moment where memory is laid out. */
#include <string.h>

#include "backend/plan_internal.h"
#include "base/error.h"

/* Where no kernel says how many pixels a part has: bytes of the largest result, and pixels, at most. */
enum { PART_BYTES = 256 << 10, MOST_PIXELS = 512 };
/* Parts for each thread: as many where the grain is fine enough, half as many at least. */
enum { PARTS = 8 };
/* Steps from one of a chain to the next at most: what is made for them is kept so long. */
enum { MOST_BETWEEN = 12 };

struct member {
    int32_t step;
    struct cvy_cut cut;
};

/* A chain while it grows. */
struct growing {
    struct cvy_plan *plan;
    struct member members[CVY_CHAIN_CALLS];
    int32_t count;
    int32_t grain, part, shares;
};

static bool is_set(uint32_t mask, int32_t i)
{
    return mask >> i & 1;
}

/* ---- what two steps have in common ---- */

static bool reads(const struct cvy_plan_step *step, int32_t tensor)
{
    for (int i = 0; i < CVY_MAX_INPUTS; i++)
        if (step->in[i] == tensor)
            return true;
    return false;
}

/* Whether all that the member does with a tensor it does pixel by pixel. */
static bool by_pixels(const struct cvy_plan *plan, const struct member *member, int32_t tensor)
{
    const struct cvy_plan_step *step = &plan->steps[member->step];

    for (int i = 0; i < CVY_MAX_INPUTS; i++)
        if (step->in[i] == tensor && !is_set(member->cut.in, i))
            return false;
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
        if (step->out[i] == tensor && !is_set(member->cut.out, i))
            return false;
    return true;
}

static bool writes(const struct cvy_plan_step *step, int32_t tensor)
{
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
        if (step->out[i] == tensor)
            return true;
    return false;
}

/* An input in whose place the step may write. */
static bool may_replace(const struct cvy_plan_step *step, int32_t tensor)
{
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++) {
        const int32_t j = step->kernel.in_place[i];
        if (j >= 0 && step->out[i] >= 0 && step->in[j] == tensor)
            return true;
    }
    return false;
}

/* Where the step may write in the place of an input, its output must have each pixel where the input has it. */
static bool replaces_by_pixels(const struct cvy_plan *plan, const struct member *member, int32_t tensor)
{
    const struct cvy_plan_step *step = &plan->steps[member->step];

    for (int i = 0; i < CVY_MAX_OUTPUTS; i++) {
        const int32_t j = step->kernel.in_place[i];
        if (j >= 0 && step->out[i] >= 0 && step->in[j] == tensor &&
            (!is_set(member->cut.out, i) || plan->tensors[step->out[i]].bytes != plan->tensors[tensor].bytes))
            return false;
    }
    return true;
}

/* Whether `next` may follow `member` in a chain, for what concerns this operand of both. */
static bool agree(const struct cvy_plan *plan, const struct member *member, const struct member *next, int32_t tensor)
{
    const struct cvy_plan_step *a = &plan->steps[member->step], *b = &plan->steps[next->step];
    const bool common = (reads(a, tensor) || writes(a, tensor)) && (reads(b, tensor) || writes(b, tensor));
    const bool changes = writes(a, tensor) || writes(b, tensor) || may_replace(b, tensor);

    return !common || !changes ||
           (by_pixels(plan, member, tensor) && by_pixels(plan, next, tensor) && replaces_by_pixels(plan, next, tensor));
}

/* Whether the step reads what another one of the chain has made, and both agree about all that they have in common. */
static bool all_agree(const struct growing *g, const struct member *next)
{
    const struct cvy_plan_step *step = &g->plan->steps[next->step];
    bool linked = false;

    for (int32_t m = 0; m < g->count; m++) {
        for (int i = 0; i < CVY_MAX_INPUTS; i++) {
            if (step->in[i] < 0)
                continue;
            if (!agree(g->plan, &g->members[m], next, step->in[i]))
                return false;
            linked = linked || writes(&g->plan->steps[g->members[m].step], step->in[i]);
        }
        for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
            if (step->out[i] >= 0 && !agree(g->plan, &g->members[m], next, step->out[i]))
                return false;
    }
    return linked;
}

/* ---- growing ---- */

/* Whether what is cut by pixels is whole pixels, and large enough for the device. */
static bool worth_cutting(const struct cvy_plan *plan, const struct member *member)
{
    const struct cvy_plan_step *step = &plan->steps[member->step];
    size_t largest = 0;

    for (int i = 0; i < CVY_MAX_INPUTS + CVY_MAX_OUTPUTS; i++) {
        const bool input = i < CVY_MAX_INPUTS;
        const int32_t slot = input ? i : i - CVY_MAX_INPUTS, t = input ? step->in[slot] : step->out[slot];
        if (t < 0 || !is_set(input ? member->cut.in : member->cut.out, slot))
            continue;
        if (plan->tensors[t].bytes % (size_t)member->cut.pixels != 0)
            return false;
        largest = plan->tensors[t].bytes > largest ? plan->tensors[t].bytes : largest;
    }
    return largest >= plan->device->backend->chain_bytes(plan->device);
}

static bool can_cut(const struct cvy_plan *plan, int32_t s, struct member *member)
{
    const struct cvy_plan_step *step = &plan->steps[s];

    *member = (struct member){.step = s};
    return !step->setup && !step->gathered &&
           plan->device->backend->cut(plan->device, &step->desc, &step->kernel, &member->cut) &&
           worth_cutting(plan, member);
}

static bool fits(const struct growing *g, const struct member *next)
{
    const struct cvy_cut *cut = &next->cut;
    const int32_t part = g->part ? g->part : cut->part, grain = cut->grain > g->grain ? cut->grain : g->grain;

    return g->count < CVY_CHAIN_CALLS && cut->pixels == g->members[0].cut.pixels &&
           (!cut->part || !g->part || (cut->part == g->part && cut->shares == g->shares)) && grain % cut->grain == 0 &&
           grain % g->grain == 0 && part % grain == 0 && all_agree(g, next);
}

static void add_member(struct growing *g, const struct member *next)
{
    g->members[g->count++] = *next;
    g->grain = next->cut.grain > g->grain ? next->cut.grain : g->grain;
    if (next->cut.part) {
        g->part = next->cut.part;
        g->shares = next->cut.shares;
    }
}

/* Whether the step may run before the chain though it stands in it: it reads nothing that is made there, and writes
 * over nothing that is read there. */
static bool can_go_first(const struct growing *g, int32_t s)
{
    const struct cvy_plan_step *step = &g->plan->steps[s];
    bool can = !step->setup && !step->gathered;

    for (int32_t m = 0; can && m < g->count; m++) {
        const struct cvy_plan_step *const member = &g->plan->steps[g->members[m].step];
        for (int i = 0; i < CVY_MAX_INPUTS; i++)
            if (step->in[i] >= 0 &&
                (writes(member, step->in[i]) || (reads(member, step->in[i]) && may_replace(step, step->in[i]))))
                can = false;
    }
    return can;
}

/* The longest chain that begins with step s and ends before `end`; the number of its steps. */
static int32_t grow(struct growing *g, int32_t s, int32_t end)
{
    struct member next;

    if (!can_cut(g->plan, s, &next))
        return 0;
    g->count = g->part = g->shares = 0;
    g->grain = 1;
    add_member(g, &next);
    for (int32_t e = s + 1; e < end && e - g->members[g->count - 1].step <= MOST_BETWEEN; e++) {
        if (can_cut(g->plan, e, &next) && fits(g, &next))
            add_member(g, &next);
        else if (!can_go_first(g, e))
            break;
    }
    return g->count;
}

/* Pixels of a part of a chain whose kernels take any number. */
static int32_t part_of(const struct growing *g)
{
    const int64_t pixels = g->members[0].cut.pixels;
    size_t largest = 1;

    for (int32_t m = 0; m < g->count; m++) {
        const struct cvy_plan_step *step = &g->plan->steps[g->members[m].step];
        for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
            if (step->out[i] >= 0 && is_set(g->members[m].cut.out, i) && g->plan->tensors[step->out[i]].bytes > largest)
                largest = g->plan->tensors[step->out[i]].bytes;
    }
    const size_t fitting = (size_t)PART_BYTES * (size_t)pixels / largest;
    const int64_t share = pixels / ((int64_t)g->plan->device->threads * PARTS);
    const int32_t most = share < MOST_PIXELS ? (int32_t)share : MOST_PIXELS;
    const int32_t part = fitting < (size_t)most ? (int32_t)fitting : most;
    return part < g->grain ? g->grain : part / g->grain * g->grain;
}

/* The steps between those of the chain before it, all in their order; returns where it begins now. */
static int32_t gather_members(struct cvy_plan *plan, struct growing *g)
{
    struct cvy_plan_step members[CVY_CHAIN_CALLS];
    int32_t to = g->members[0].step, found = 0;

    for (int32_t s = to; found < g->count; s++) {
        if (s == g->members[found].step)
            members[found++] = plan->steps[s];
        else
            plan->steps[to++] = plan->steps[s];
    }
    for (int32_t m = 0; m < g->count; m++) {
        plan->steps[to + m] = members[m];
        g->members[m].step = to + m;
    }
    return to;
}

/* Whether all threads have about as much to do: of shares a kernel has seen to it. Of no matter where chains of any
 * size are wanted. */
static bool keeps_busy(const struct growing *g, int32_t part)
{
    const cvy_device *const device = g->plan->device;

    return g->shares || device->backend->chain_bytes(device) == 0 ||
           g->members[0].cut.pixels / part >= (int64_t)device->threads * PARTS / 2;
}

static void take_chain(struct cvy_plan *plan, const struct growing *g, int32_t part)
{
    struct cvy_plan_chain *const chain = &plan->chains[plan->chain_count];
    const int32_t from = g->members[0].step;

    *chain = (struct cvy_plan_chain){.from = from, .end = from + g->count};
    chain->chain.count = g->count;
    chain->chain.pixels = g->members[0].cut.pixels;
    chain->chain.part = part;
    chain->chain.shares = g->shares;
    for (int32_t m = 0; m < g->count; m++) {
        chain->cuts[m] = g->members[m].cut;
        plan->steps[from + m].chain = plan->chain_count;
    }
    plan->chain_count++;
}

/* Chains of the steps [from, end); what comes before a chain now may have some, too. */
static void find_chains(struct cvy_plan *plan, int32_t from, int32_t end)
{
    struct growing growing = {.plan = plan};

    for (int32_t s = from; s < end; s++) {
        if (grow(&growing, s, end) < 2)
            continue;
        const int32_t part = growing.part ? growing.part : part_of(&growing);
        if (!keeps_busy(&growing, part))
            continue;
        const int32_t begin = gather_members(plan, &growing);
        take_chain(plan, &growing, part);
        find_chains(plan, s, begin);
        s = begin + growing.count - 1;
    }
}

cvy_status cvy_plan_find_chains(struct cvy_plan *plan)
{
    if (!plan->device->backend->run_chain)
        return CVY_OK;
    plan->chains = cvy_calloc((size_t)plan->step_count / 2 + 1, sizeof *plan->chains);
    if (!plan->chains)
        return cvy_fail_memory((size_t)plan->step_count * sizeof *plan->chains, "a plan");
    find_chains(plan, 0, plan->step_count);
    return CVY_OK;
}

/* ---- tensors that are there in parts ---- */

/* Memory for a part of this tensor, for all of the chain's steps that have it; whether they are few enough. */
static bool add_local(const struct cvy_plan *plan, struct cvy_plan_chain *chain, int32_t tensor, bool copied)
{
    struct cvy_chain *const c = &chain->chain;
    const size_t pixel_bytes = plan->tensors[tensor].bytes / (size_t)c->pixels;
    int32_t count = c->local_count;

    for (int32_t s = chain->from; s < chain->end; s++) {
        const struct cvy_plan_step *step = &plan->steps[s];
        for (int32_t i = 0; i < CVY_MAX_INPUTS + CVY_MAX_OUTPUTS; i++) {
            const bool output = i >= CVY_MAX_INPUTS;
            const int32_t slot = output ? i - CVY_MAX_INPUTS : i;
            if ((output ? step->out[slot] : step->in[slot]) != tensor)
                continue;
            if (count == CVY_CHAIN_LOCALS)
                return false;
            c->locals[count++] =
                (struct cvy_chain_local){s - chain->from, slot, output, copied && output, c->local_bytes, pixel_bytes};
        }
    }
    c->local_count = count;
    c->local_bytes += cvy_plan_align(pixel_bytes * (size_t)c->part);
    return true;
}

/* How many of the chain's steps read the tensor. */
static int32_t count_readers(const struct cvy_plan *plan, const struct cvy_plan_chain *chain, int32_t tensor)
{
    int32_t count = 0;

    for (int32_t s = chain->from; s < chain->end; s++)
        count += reads(&plan->steps[s], tensor);
    return count;
}

static void find_locals_of(struct cvy_plan *plan, struct cvy_plan_chain *chain, int32_t call)
{
    const struct cvy_plan_step *const step = &plan->steps[chain->from + call];
    const struct cvy_cut *const cut = &chain->cuts[call];

    for (int i = 0; i < CVY_MAX_OUTPUTS; i++) {
        struct cvy_plan_tensor *const t = step->out[i] >= 0 ? &plan->tensors[step->out[i]] : NULL;
        if (!t || !is_set(cut->out, i) || t->storage != CVY_STORE_ACTIVATION ||
            count_readers(plan, chain, step->out[i]) == 0)
            continue;
        if (t->last < chain->end)
            t->local = add_local(plan, chain, step->out[i], false);
        else if (is_set(cut->past, i))
            (void)add_local(plan, chain, step->out[i], true);
    }
}

void cvy_plan_find_locals(struct cvy_plan *plan)
{
    for (int32_t c = 0; c < plan->chain_count; c++)
        for (int32_t call = 0; call < plan->chains[c].chain.count; call++)
            find_locals_of(plan, &plan->chains[c], call);
}

void cvy_plan_resolve_chains(struct cvy_plan *plan)
{
    for (int32_t c = 0; c < plan->chain_count; c++) {
        struct cvy_plan_chain *const chain = &plan->chains[c];
        chain->chain.local = plan->activations ? plan->activations + chain->offset : NULL;
        for (int32_t s = chain->from; s < chain->end; s++) {
            const struct cvy_plan_step *step = &plan->steps[s];
            chain->chain.calls[s - chain->from] = (struct cvy_chain_call){
                .plan = &step->kernel, .in = step->in_ptr, .out = step->out_ptr, .scratch = step->scratch_ptr};
        }
    }
}
