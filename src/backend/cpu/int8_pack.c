/* Weights of integer convolutions in panels: the layout, and the way into it and back. */
#include <string.h>

#include "backend/cpu/int8.h"

/* Runs of adjacent bytes that an output sums over. */
static int64_t runs_of(const struct cpu_packing *packing, const struct cvy_shape *w)
{
    return packing->rows ? cpu_int8_extent(w, 2) : cpu_int8_extent(w, 2) * cpu_int8_extent(w, 3);
}

/* Steps of four bytes that make a sum; panels alone. */
static int64_t panel_steps(const struct cpu_packing *packing, const struct cvy_shape *w)
{
    return runs_of(packing, w) * packing->quads;
}

bool cpu_int8_narrow_groups(const struct cvy_shape *w, int32_t groups)
{
    const int64_t inputs = w->dim[1], outputs = w->dim[0] / groups;
    return groups > 1 && inputs == outputs && (inputs == 4 || inputs == 8 || inputs == 16 || inputs == 32) &&
           w->dim[0] % CPU_INT8_VECTOR == 0;
}

/* Shared panels read whole vectors of a pixel's channels. */
struct cpu_packing cpu_packing_for(const struct cvy_shape *w, int32_t groups)
{
    const int64_t inputs = w->dim[1];
    const bool rows = groups == 1 && inputs % 4 != 0 && w->rank == 4;
    return (struct cpu_packing){.groups = groups,
                                .quads = (int32_t)(((rows ? inputs * w->dim[3] : inputs) + 3) / 4),
                                .shared = cpu_int8_narrow_groups(w, groups),
                                .rows = rows};
}

const struct cpu_packing *cpu_packing_known(struct cpu_device *cpu, const struct cpu_packing *packing)
{
    for (int i = 0; i < cpu->packing_count; i++) {
        const struct cpu_packing *known = &cpu->packings[i];
        if (known->groups == packing->groups && known->quads == packing->quads && known->shared == packing->shared &&
            known->rows == packing->rows && known->sorted == packing->sorted &&
            known->step_bytes == packing->step_bytes && known->run_steps == packing->run_steps &&
            known->run_taps == packing->run_taps && known->run_channels == packing->run_channels)
            return known;
    }
    if (cpu->packing_count == CPU_MAX_PACKINGS)
        return NULL;
    cpu->packings[cpu->packing_count] = *packing;
    return &cpu->packings[cpu->packing_count++];
}

static int64_t pack_groups(const struct cpu_packing *packing)
{
    return packing->shared ? 1 : packing->groups;
}

/* Products of tiles that make a sum. */
static int64_t tile_steps(const struct cpu_packing *packing, const struct cvy_shape *w)
{
    return cpu_int8_extent(w, 2) * cpu_int8_extent(w, 3) / packing->run_taps * packing->run_steps;
}

/* Bytes of the panels of a group, whose last one is as wide as it must be, or of its pairs of tiles. */
static size_t group_bytes(const struct cpu_packing *packing, const struct cvy_shape *w)
{
    const int64_t outputs = w->dim[0] / pack_groups(packing);
    if (packing->step_bytes) {
        const int64_t pair = 2 * CPU_INT8_VECTOR;
        return (size_t)((outputs + pair - 1) / pair * tile_steps(packing, w) * packing->step_bytes * pair);
    }
    const int64_t vectors = (outputs + CPU_INT8_VECTOR - 1) / CPU_INT8_VECTOR;
    return (size_t)(vectors * panel_steps(packing, w) * CPU_INT8_VECTOR * 4);
}

size_t cpu_packing_panel_bytes(const struct cpu_packing *packing, const struct cvy_shape *w)
{
    return group_bytes(packing, w) * (size_t)pack_groups(packing);
}

/* Halves of vectors of sorted panels, each of which has its order. */
static int64_t halves_of(const struct cpu_packing *packing, const struct cvy_shape *w)
{
    return (int64_t)cpu_packing_panel_bytes(packing, w) / (panel_steps(packing, w) * CPU_INT8_HALF * 4);
}

size_t cpu_packing_bytes(const struct cpu_packing *packing, const struct cvy_shape *w)
{
    const size_t plain = cpu_packing_panel_bytes(packing, w) + (size_t)w->dim[0] * sizeof(int32_t);
    if (!packing->sorted)
        return plain;
    const int64_t order = cpu_int8_order_size(panel_steps(packing, w));
    return plain + (size_t)(halves_of(packing, w) * order) * sizeof(uint16_t);
}

/* Where the weights of an output channel lie: four adjacent bytes of its inputs after another, `step` bytes apart. */
struct lane {
    size_t at, step;
    int64_t channel; /* its first input channel, of those that are packed together */
};

static struct lane lane_of(const struct cpu_packing *packing, const struct cvy_shape *w, int64_t k)
{
    const int64_t outputs = w->dim[0] / pack_groups(packing), group = k / outputs, j = k % outputs;
    const size_t first = (size_t)group * group_bytes(packing, w), lane = (size_t)(j % CPU_INT8_VECTOR * 4);
    if (packing->step_bytes) {
        const int64_t tile = packing->step_bytes * CPU_INT8_VECTOR, pair = j / (2 * CPU_INT8_VECTOR);
        const int64_t tiles = pair * tile_steps(packing, w) * 2 + j / CPU_INT8_VECTOR % 2;
        const int64_t channel = packing->shared ? k / (w->dim[0] / packing->groups) * w->dim[1] : 0;
        return (struct lane){first + (size_t)(tiles * tile) + lane, 4 * CPU_INT8_VECTOR,
                             packing->shared ? channel % packing->run_channels : 0};
    }
    const int64_t panel = j / CPU_INT8_PANEL, left = outputs - panel * CPU_INT8_PANEL;
    const int64_t vectors = left < CPU_INT8_PANEL ? (left + CPU_INT8_VECTOR - 1) / CPU_INT8_VECTOR : 4;
    const int64_t steps = panel_steps(packing, w);
    if (packing->sorted)
        return (struct lane){first + (size_t)((j / CPU_INT8_HALF * steps * CPU_INT8_HALF + j % CPU_INT8_HALF) * 4),
                             4 * CPU_INT8_HALF, 0};
    return (struct lane){first + (size_t)((panel * steps * CPU_INT8_PANEL + j % CPU_INT8_PANEL) * 4),
                         (size_t)(vectors * CPU_INT8_VECTOR * 4), 0};
}

/* Which of the lane's bytes belongs to one tap and input channel. */
static int32_t byte_of(const struct cpu_packing *packing, const struct cvy_shape *w, int64_t tap, int64_t c)
{
    const int64_t width = cpu_int8_extent(w, 3);
    if (packing->step_bytes) { /* the tiles of a pair take turns */
        const int64_t in_run = tap % packing->run_taps * packing->run_channels + c, bytes = packing->step_bytes;
        const int64_t step = tap / packing->run_taps * packing->run_steps + in_run / bytes;
        return (int32_t)(2 * step * bytes + in_run % bytes);
    }
    if (packing->rows)
        return (int32_t)(tap / width * packing->quads * 4 + tap % width * w->dim[1] + c);
    return (int32_t)(tap * packing->quads * 4 + c);
}

/* Input channels that byte_of knows. */
static int64_t channels_of(const struct cpu_packing *packing, const struct cvy_shape *w)
{
    return packing->step_bytes && packing->shared ? packing->run_channels : w->dim[1];
}

/* ---- sorted panels ---- */

/* A step's weights: (8, 4), as one of the pairings has them. */
struct step {
    int8_t w[CPU_INT8_HALF][4];
};

static struct step paired(const struct step *step, int pairing, bool back)
{
    struct step y;
    for (int lane = 0; lane < CPU_INT8_HALF; lane++)
        for (int i = 0; i < 4; i++) {
            const int other = cpu_int8_pairings[pairing][i];
            y.w[lane][back ? other : i] = step->w[lane][back ? i : other];
        }
    return y;
}

/* What the weights of a step's pairs make of bytes of 1, those above 0 and those below, without their sign: (8, 2, 2
 * pairs). Up to 128 of each, times 255, fits into 16 bits, whatever the unsigned bytes are. */
enum { MOST = 128 };
struct reach {
    uint8_t most[4 * CPU_INT8_HALF];
};

/* The same of single weights, four to a number. */
struct parts {
    uint32_t above[CPU_INT8_HALF], below[CPU_INT8_HALF];
};

static struct parts parts_of(const struct step *step)
{
    int8_t w[4 * CPU_INT8_HALF];
    uint8_t above[4 * CPU_INT8_HALF], below[4 * CPU_INT8_HALF];
    struct parts parts;
    memcpy(w, step->w, sizeof(w));
    for (size_t i = 0; i < sizeof(w); i++) {
        above[i] = (uint8_t)(w[i] > 0 ? w[i] : 0);
        below[i] = (uint8_t)(w[i] < 0 ? -w[i] : 0);
    }
    memcpy(parts.above, above, sizeof(above));
    memcpy(parts.below, below, sizeof(below));
    return parts;
}

/* The sums of the pairs of four bytes, at most 255: of 256, twice 128, it is too much as well. */
static inline uint32_t pair_sums(uint32_t bytes, const int pairing)
{
    const uint8_t *const of = cpu_int8_pairings[pairing];
    const uint32_t first = (bytes >> 8 * of[0] & 255) + (bytes >> 8 * of[1] & 255);
    const uint32_t second = (bytes >> 8 * of[2] & 255) + (bytes >> 8 * of[3] & 255);
    return (first - (first >> 8)) | (second - (second >> 8)) << 8;
}

static inline struct reach reach_of(const struct parts *parts, const int pairing)
{
    uint32_t most[CPU_INT8_HALF];
    struct reach reach;
    for (int lane = 0; lane < CPU_INT8_HALF; lane++)
        most[lane] = pair_sums(parts->above[lane], pairing) | pair_sums(parts->below[lane], pairing) << 16;
    memcpy(reach.most, most, sizeof(most));
    return reach;
}

static uint8_t most_of(const struct reach *reach)
{
    uint8_t most = 0;
    for (size_t i = 0; i < sizeof(reach->most); i++)
        most = reach->most[i] > most ? reach->most[i] : most;
    return most;
}

/* Both of them fit; do their sums? */
static bool fit_together(const struct reach *a, const struct reach *b)
{
    uint8_t beyond = 0;
    for (size_t i = 0; i < sizeof(a->most); i++)
        beyond |= a->most[i] > (uint8_t)(MOST - b->most[i]);
    return !beyond;
}

_Static_assert(CPU_INT8_SLICE <= UINT16_MAX / CPU_INT8_STEP_BYTES, "an order has 16 bits for a place in a slice");

/* A step, and how its bytes are paired: CPU_INT8_PAIRINGS where no way fits. */
struct place_of_step {
    int64_t step;
    int pairing;
};

/* What the ways to pair a step's bytes reach. */
struct ways {
    struct reach reach[CPU_INT8_PAIRINGS];
    bool fit[CPU_INT8_PAIRINGS];
    int first;    /* that fits; CPU_INT8_PAIRINGS: none does */
    uint8_t most; /* of the way that reaches least */
};

static struct ways ways_of(const struct step *step)
{
    const struct parts parts = parts_of(step);
    struct ways ways = {.reach = {reach_of(&parts, 0), reach_of(&parts, 1), reach_of(&parts, 2)},
                        .first = CPU_INT8_PAIRINGS,
                        .most = UINT8_MAX};
    for (int pairing = CPU_INT8_PAIRINGS - 1; pairing >= 0; pairing--) {
        const uint8_t most = most_of(&ways.reach[pairing]);
        ways.fit[pairing] = most <= MOST;
        ways.first = most <= MOST ? pairing : ways.first;
        ways.most = most < ways.most ? most : ways.most;
    }
    return ways;
}

/* Ways in which two steps fit together, if there are any. */
static bool couple(const struct ways *a, const struct ways *b, int *of_a, int *of_b)
{
    for (*of_a = 0; *of_a < CPU_INT8_PAIRINGS; ++*of_a)
        for (*of_b = 0; a->fit[*of_a] && *of_b < CPU_INT8_PAIRINGS; ++*of_b)
            if (b->fit[*of_b] && fit_together(&a->reach[*of_a], &b->reach[*of_b]))
                return true;
    return false;
}

/* Steps by what they reach, the least first. */
static void rank(const struct ways *ways, int64_t count, int64_t *ranked)
{
    int64_t before[UINT8_MAX + 2] = {0};
    for (int64_t i = 0; i < count; i++)
        before[ways[i].most + 1]++;
    for (int most = 0; most <= UINT8_MAX; most++)
        before[most + 1] += before[most];
    for (int64_t i = 0; i < count; i++)
        ranked[before[ways[i].most]++] = i;
}

/* One of the first `count` ranked steps that fits together with this one, of so many that are free; -1: none does. */
enum { TRIES = 32 };
static int64_t partner_of(const struct ways *ways, const int64_t *ranked, int64_t count, const bool *taken,
                          int64_t step, int *of_step, int *of_partner)
{
    for (int64_t r = 0, tries = 0; r < count && tries < TRIES; r++) {
        if (taken[ranked[r]])
            continue;
        if (couple(&ways[step], &ways[ranked[r]], of_step, of_partner))
            return ranked[r];
        tries++;
    }
    return -1;
}

/* The order of a slice's steps: couples, of which the sums of the products of both fit into 16 bits; steps of which
 * their own do; others. Those that reach most choose first, among those that reach least. Returns how many couples
 * there are; *fit: steps that fit, those of couples among them. */
static int64_t choose_order(const struct step *steps, int64_t count, struct place_of_step *places, int64_t *fit)
{
    struct ways ways[CPU_INT8_SLICE];
    int64_t ranked[CPU_INT8_SLICE], at = 0, end = count;
    bool taken[CPU_INT8_SLICE] = {false};
    for (int64_t i = 0; i < count; i++)
        ways[i] = ways_of(&steps[i]);
    rank(ways, count, ranked);
    for (int64_t r = count - 1; r > 0; r--) {
        const int64_t step = ranked[r];
        int of_step, of_partner;
        const int64_t partner = taken[step] ? -1 : partner_of(ways, ranked, r, taken, step, &of_step, &of_partner);
        if (partner < 0)
            continue;
        places[at++] = (struct place_of_step){step, of_step};
        places[at++] = (struct place_of_step){partner, of_partner};
        taken[step] = taken[partner] = true;
    }
    const int64_t couples = at / 2;
    for (int64_t i = 0; i < count; i++)
        if (!taken[i])
            places[ways[i].first < CPU_INT8_PAIRINGS ? at++ : --end] = (struct place_of_step){i, ways[i].first};
    *fit = at;
    return couples;
}

/* Steps of a slice in that order. order: how many couples there are, and how many steps that fit; then for each step
 * where its bytes begin in what a slice takes, (steps, pairings, 8 pixels, 4). */
static void sort_slice(struct step *steps, int64_t count, uint16_t *order)
{
    struct step sorted[CPU_INT8_SLICE];
    struct place_of_step places[CPU_INT8_SLICE];
    int64_t fit;
    order[0] = (uint16_t)choose_order(steps, count, places, &fit);
    order[1] = (uint16_t)fit;
    order += CPU_INT8_ORDER_HEAD;
    for (int64_t at = 0; at < count; at++) {
        const struct step *step = &steps[places[at].step];
        const int pairing = at < fit ? places[at].pairing : 0;
        sorted[at] = paired(step, pairing, false);
        order[at] = (uint16_t)(CPU_INT8_STEP_BYTES * places[at].step + CPU_INT8_PAIRING_BYTES * pairing);
    }
    memcpy(steps, sorted, (size_t)count * sizeof(*steps));
}

static void unsort_slice(const struct step *sorted, int64_t count, const uint16_t *order, struct step *steps)
{
    order += CPU_INT8_ORDER_HEAD;
    for (int64_t at = 0; at < count; at++) {
        const int step = order[at] / CPU_INT8_STEP_BYTES, rest = order[at] % CPU_INT8_STEP_BYTES;
        steps[step] = paired(&sorted[at], rest / CPU_INT8_PAIRING_BYTES, true);
    }
}

struct reorder {
    struct cpu_packing packing;
    struct cvy_shape shape;
    bool unpack;
};

/* Sorts the panels of `packed`, or with `unsorted`, of as many bytes, makes there what they were before. */
static void sort_panels(const struct reorder *s, int threads, int8_t *packed, int8_t *unsorted)
{
    const int64_t steps = panel_steps(&s->packing, &s->shape), halves = halves_of(&s->packing, &s->shape);
    const size_t panels = cpu_packing_panel_bytes(&s->packing, &s->shape);
    struct step *const from = (struct step *)(void *)packed, *const to = (struct step *)(void *)unsorted;
    uint16_t *const orders = (uint16_t *)(void *)(packed + panels + (size_t)s->shape.dim[0] * sizeof(int32_t));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t half = 0; half < halves; half++)
        for (int64_t done = 0; done < steps; done += CPU_INT8_SLICE) {
            const int64_t at = half * steps + done, left = steps - done;
            const int64_t count = left < CPU_INT8_SLICE ? left : CPU_INT8_SLICE;
            uint16_t *order =
                orders + half * cpu_int8_order_size(steps) + done + CPU_INT8_ORDER_HEAD * (done / CPU_INT8_SLICE);
            if (to)
                unsort_slice(from + at, count, order, to + at);
            else
                sort_slice(from + at, count, order);
        }
}

cvy_status cpu_reorder_int8_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    const struct cpu_packing *from = cpu_packing_of(&desc->in[0].layout), *to = cpu_packing_of(&desc->out[0].layout);
    plan->quiet = true;
    if (!from == !to || desc->in[0].dtype != CVY_I8 ||
        (from ? &desc->out[0] : &desc->in[0])->layout.kind != CVY_LAYOUT_PLAIN)
        return cvy_fail(CVY_UNAVAILABLE, "this kernel packs weights of 8 bits only");
    const struct reorder state = {.packing = *(from ? from : to), .shape = desc->in[0].shape, .unpack = from};
    const int64_t taps = cpu_int8_extent(&state.shape, 2) * cpu_int8_extent(&state.shape, 3);
    plan->scratch_bytes = (size_t)(channels_of(&state.packing, &state.shape) * taps) * sizeof(int32_t);
    if (state.unpack && state.packing.sorted)
        plan->scratch_bytes += cpu_packing_panel_bytes(&state.packing, &state.shape);
    return cpu_state(plan, &state, sizeof(state));
}

cvy_status cpu_reorder_int8_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                void *const *out, void *scratch)
{
    const struct reorder *s = plan->state;
    const int64_t outputs = s->shape.dim[0], inputs = s->shape.dim[1], channels = channels_of(&s->packing, &s->shape);
    const int64_t taps = cpu_int8_extent(&s->shape, 2) * cpu_int8_extent(&s->shape, 3);
    const size_t panels = cpu_packing_panel_bytes(&s->packing, &s->shape);
    int8_t *packed = s->unpack ? in[0] : out[0], *plain = s->unpack ? out[0] : in[0];
    int32_t *bytes = scratch; /* (channels, taps) */
    for (int64_t i = 0; i < channels * taps; i++)
        bytes[i] = byte_of(&s->packing, &s->shape, i % taps, i / taps);
    if (!s->unpack)
        memset(packed, 0, panels);
    else if (s->packing.sorted) {
        int8_t *unsorted = (int8_t *)(bytes + channels * taps);
        sort_panels(s, device->threads, packed, unsorted);
        packed = unsorted;
    }
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t k = 0; k < outputs; k++) {
        const struct lane lane = lane_of(&s->packing, &s->shape, k);
        const int32_t *byte = bytes + lane.channel * taps;
        int8_t *from = plain + k * inputs * taps, *to = packed + lane.at;
        int32_t sum = 0;
        for (int64_t i = 0; i < inputs * taps; i++) {
            int8_t *there = to + (size_t)(byte[i] / 4) * lane.step + byte[i] % 4;
            if (s->unpack)
                from[i] = *there;
            else
                *there = from[i];
            sum += from[i];
        }
        if (!s->unpack)
            memcpy(packed + panels + (size_t)k * sizeof(sum), &sum, sizeof(sum));
    }
    if (!s->unpack && s->packing.sorted)
        sort_panels(s, device->threads, packed, NULL);
    return CVY_OK;
}
