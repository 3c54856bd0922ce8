/* Chains (backend.h): each thread takes a part of the pixels through all steps before its next part. */
#include <omp.h>
#include <string.h>

#include "backend/cpu/parts.h"
#include "base/error.h"
#include "base/system.h"

/* Images that are worth it: a step finds smaller ones in the caches as they are (measured: doc/worklog.md). */
enum { LARGE_BYTES = 4 << 20 };

cvy_status cpu_choose_chains(struct cpu_device *device)
{
    enum cpu_choice choice;

    CVY_TRY(cpu_read_choice("CONVOY_CPU_CHAINS", &choice));
    device->chain_bytes = choice == CPU_AUTO ? LARGE_BYTES : choice == CPU_ALWAYS ? 0 : SIZE_MAX;
    return CVY_OK;
}

size_t cpu_chain_bytes(const cvy_device *device)
{
    return ((const struct cpu_device *)device)->chain_bytes;
}

static const struct cpu_parts *parts_of(const struct cvy_kernel_plan *plan)
{
    static const struct {
        cvy_status (*run)(cvy_device *, const struct cvy_kernel_plan *, void *const *, void *const *, void *);
        const struct cpu_parts *parts;
    } known[] = {{cpu_batch_norm_run, &cpu_batch_norm_parts},
                 {cpu_batch_norm_bwd_run, &cpu_batch_norm_bwd_parts},
                 {cpu_batch_norm_apply_run, &cpu_batch_norm_apply_parts},
                 {cpu_tile_product_run, &cpu_tile_product_parts},
                 {cpu_tile_product_bwd_data_run, &cpu_tile_product_bwd_data_parts},
                 {cpu_tile_gradient_run, &cpu_tile_gradient_parts}};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (plan->kernel->run == known[i].run)
            return known[i].parts;
    return NULL;
}

bool cpu_cut_kernel(cvy_device *device, const struct cvy_op_desc *desc, const struct cvy_kernel_plan *plan,
                    struct cvy_cut *cut)
{
    const struct cpu_parts *const parts = parts_of(plan);

    *cut = (struct cvy_cut){.grain = 1};
    return parts && desc->training && cvy_device_ranks(device) == 1 && parts->cut(device, desc, plan, cut);
}

/* ---- run ---- */

/* A thread's view of the steps: where an operand is there in parts alone, pixel 0 would lie that far before the part.
 */
struct view {
    void *in[CVY_CHAIN_CALLS][CVY_MAX_INPUTS], *out[CVY_CHAIN_CALLS][CVY_MAX_OUTPUTS];
    uint32_t near[CVY_CHAIN_CALLS];
    const struct cpu_parts *parts[CVY_CHAIN_CALLS];
};

static void begin_view(const struct cvy_chain *chain, struct view *view)
{
    for (int32_t c = 0; c < chain->count; c++) {
        memcpy(view->in[c], chain->calls[c].in, sizeof(view->in[c]));
        memcpy(view->out[c], chain->calls[c].out, sizeof(view->out[c]));
        view->near[c] = 0;
        view->parts[c] = parts_of(chain->calls[c].plan);
    }
    for (int32_t i = 0; i < chain->local_count; i++)
        if (chain->locals[i].output)
            view->near[chain->locals[i].call] |= 1U << chain->locals[i].slot;
}

static void place_locals(const struct cvy_chain *chain, char *local, int64_t first, struct view *view)
{
    for (int32_t i = 0; i < chain->local_count; i++) {
        const struct cvy_chain_local *const l = &chain->locals[i];
        void **const pointer = l->output ? &view->out[l->call][l->slot] : &view->in[l->call][l->slot];
        *pointer = (void *)((uintptr_t)local + l->at - (size_t)first * l->pixel_bytes);
    }
}

static void copy_results(const cvy_device *device, const struct cvy_chain *chain, int32_t call, const char *local,
                         int64_t first, int32_t count)
{
    for (int32_t i = 0; i < chain->local_count; i++) {
        const struct cvy_chain_local *const l = &chain->locals[i];
        if (l->copied && l->call == call)
            ((const struct cpu_device *)device)
                ->kernels->copy_past((char *)chain->calls[call].out[l->slot] + (size_t)first * l->pixel_bytes,
                                     local + l->at, (size_t)count * l->pixel_bytes);
    }
}

/* One part through all steps. `seconds`: of each step, or NULL. */
static void run_part(cvy_device *device, const struct cvy_chain *chain, const struct view *view, char *local,
                     int64_t first, int32_t count, double *seconds)
{
    double before = seconds ? cvy_clock() : 0;

    for (int32_t c = 0; c < chain->count; c++) {
        const struct cvy_chain_call *const call = &chain->calls[c];
        view->parts[c]->run(device, &(struct cpu_part){.plan = call->plan,
                                                       .in = view->in[c],
                                                       .out = view->out[c],
                                                       .scratch = call->scratch,
                                                       .thread = omp_get_thread_num(),
                                                       .first = first,
                                                       .count = count,
                                                       .near = view->near[c]});
        copy_results(device, chain, c, local, first, count);
        if (seconds) {
            const double now = cvy_clock();
            seconds[c] += now - before;
            before = now;
        }
    }
}

static void run_own_parts(cvy_device *device, const struct cvy_chain *chain, double *seconds)
{
    const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    const int64_t parts = (chain->pixels + chain->part - 1) / chain->part;
    const int64_t shares = chain->shares ? chain->shares : parts;
    const int64_t begin = parts * (shares * thread / threads) / shares;
    const int64_t end = parts * (shares * (thread + 1) / threads) / shares;
    char *const local = chain->local + (size_t)thread * chain->local_bytes;
    struct view view;

    begin_view(chain, &view);
    for (int64_t i = begin; i < end; i++) {
        const int64_t first = i * chain->part, left = chain->pixels - first;
        place_locals(chain, local, first, &view);
        run_part(device, chain, &view, local, first, left < chain->part ? (int32_t)left : chain->part, seconds);
    }
    ((const struct cpu_device *)device)->kernels->finish_past();
}

/* What all threads do for a step before or after its parts. */
static cvy_status run_whole(cvy_device *device, const struct cvy_chain_call *call, bool after)
{
    const struct cpu_parts *const parts = parts_of(call->plan);
    cvy_status (*const run)(cvy_device *, const struct cvy_kernel_plan *, void *const *, void *const *, void *) =
        after ? parts->end : parts->begin;
    const double before = call->seconds && run ? cvy_clock() : 0;

    if (run)
        CVY_TRY(run(device, call->plan, call->in, call->out, call->scratch));
    if (call->seconds && run)
        *call->seconds += cvy_clock() - before;
    return CVY_OK;
}

/* With the time of the steps: that of the whole, shared out by what they take in all threads. */
static void time_parts(cvy_device *device, const struct cvy_chain *chain)
{
    double seconds[CVY_CHAIN_CALLS] = {0}, sum = 0;
    const double before = cvy_clock();

#pragma omp parallel num_threads(device->threads) reduction(+ : seconds[:CVY_CHAIN_CALLS])
    run_own_parts(device, chain, seconds);
    const double all = cvy_clock() - before;
    for (int32_t c = 0; c < chain->count; c++)
        sum += seconds[c];
    for (int32_t c = 0; c < chain->count && sum > 0; c++)
        *chain->calls[c].seconds += all * seconds[c] / sum;
}

static void run_parts(cvy_device *device, const struct cvy_chain *chain)
{
#pragma omp parallel num_threads(device->threads)
    run_own_parts(device, chain, NULL);
}

cvy_status cpu_run_chain(cvy_device *device, const struct cvy_chain *chain)
{
    for (int32_t c = 0; c < chain->count; c++)
        CVY_TRY(run_whole(device, &chain->calls[c], false));
    if (chain->calls[0].seconds)
        time_parts(device, chain);
    else
        run_parts(device, chain);
    for (int32_t c = 0; c < chain->count; c++)
        CVY_TRY(run_whole(device, &chain->calls[c], true));
    return CVY_OK;
}
