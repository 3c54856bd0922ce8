/* The devices of the ranks become a group that sums gradients by itself. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "convoy/program/program.h"
#include "run/ranks/ranks.h"

enum { REASON_BYTES = 512, SHOWN_RANKS = 64, MAX_CORES = 4096 };

/* What a rank tells the others about its device. */
struct introduction {
    struct cvy_collective_view view;
    char reason[REASON_BYTES]; /* why it cannot take part; "": it can */
    char host[64], device[96], cores[96];
};

/* The cores that this process may use, "0-3,8": as far as there is room. */
static void describe_cores(char *text, size_t size)
{
    cpu_set_t *own = CPU_ALLOC(MAX_CORES);
    const size_t bytes = CPU_ALLOC_SIZE(MAX_CORES);
    size_t used = 0;

    text[0] = '\0';
    if (own && sched_getaffinity(0, bytes, own) != 0)
        CPU_ZERO_S(bytes, own);
    for (int i = 0; own && i < MAX_CORES && used + 24 < size; i++) {
        int last = i;

        if (!CPU_ISSET_S((size_t)i, bytes, own))
            continue;
        while (last + 1 < MAX_CORES && CPU_ISSET_S((size_t)last + 1, bytes, own))
            last++;
        used += (size_t)snprintf(text + used, size - used, last > i ? "%s%d-%d" : "%s%d", used ? "," : "", i, last);
        i = last;
    }
    if (own)
        CPU_FREE(own);
}

static void describe_rank(const struct cvy_run *run, struct introduction *mine)
{
    const int length = (int)strcspn(run->state.device->description, ",");

    if (gethostname(mine->host, sizeof mine->host - 1) != 0)
        mine->host[0] = '\0';
    snprintf(mine->device, sizeof mine->device, "%s (%.*s)", run->ranks.device_name, length < 60 ? length : 60,
             run->state.device->description);
    describe_cores(mine->cores, sizeof mine->cores);
}

static cvy_status make_table(struct cvy_run_ranks *ranks, const struct introduction *all)
{
    struct cvy_text text = {0};

    for (int i = 0; i < ranks->comm.world && i < SHOWN_RANKS; i++)
        cvy_text_printf(&text, "%-11s  rank %d on %s: %s, cores %s\n", "", i, all[i].host, all[i].device, all[i].cores);
    if (ranks->comm.world > SHOWN_RANKS)
        cvy_text_printf(&text, "%-11s  and %d more\n", "", ranks->comm.world - SHOWN_RANKS);
    if (text.failed)
        return cvy_fail_memory(text.length, "the table of the ranks");
    cvy_free(ranks->table);
    ranks->table = text.text;
    return CVY_OK;
}

static cvy_status introduce(struct cvy_run *run, struct introduction **all)
{
    const struct cvy_collective *collective = run->state.device->backend->collective;
    struct introduction mine;
    size_t *counts = cvy_calloc((size_t)run->ranks.comm.world, sizeof *counts);
    void *together = NULL;
    cvy_status status;

    *all = NULL;
    if (!counts)
        return cvy_fail_memory((size_t)run->ranks.comm.world * sizeof *counts, "the devices of the ranks");
    memset(&mine, 0, sizeof mine);
    describe_rank(run, &mine);
    if (collective->query(run->state.device, &mine.view) != CVY_OK)
        snprintf(mine.reason, sizeof mine.reason, "rank %d: %.400s", run->ranks.comm.rank, cvy_error());
    status = cvy_comm_all_gather_v(&run->ranks.comm, &mine, 1, sizeof mine, &together, counts);
    cvy_free(counts);
    *all = together;
    return status;
}

/* Whether ranks can sum with each other; the same answer on all of them. */
static bool can_join(const struct introduction *all, int world, const char *library, char reason[REASON_BYTES])
{
    for (int i = 0; i < world; i++) {
        if (all[i].reason[0]) {
            snprintf(reason, REASON_BYTES, "%s", all[i].reason);
            return false;
        }
    }
    for (int i = 1; i < world; i++) {
        if (strcmp(all[i].view.version, all[0].view.version) != 0) {
            snprintf(reason, REASON_BYTES, "rank 0 has %s %s and rank %d has %s", library, all[0].view.version, i,
                     all[i].view.version);
            return false;
        }
        for (int k = 0; k < i; k++) {
            if (all[i].view.device != all[k].view.device)
                continue;
            snprintf(reason, REASON_BYTES, "ranks %d and %d share a GPU, which %s does not take", k, i, library);
            return false;
        }
    }
    return true;
}

static cvy_status why_not(void *context, bool late)
{
    struct cvy_run *run = context;

    return run->ranks.comm.reason(&run->ranks.comm, late);
}

static cvy_status join(struct cvy_run *run)
{
    const struct cvy_collective *collective = run->state.device->backend->collective;
    struct cvy_collective_group group = {.rank = run->ranks.comm.rank,
                                         .world = run->ranks.comm.world,
                                         .timeout = (double)run->config->options.comm_timeout,
                                         .reason = why_not,
                                         .context = run};

    if (run->ranks.comm.rank == 0)
        CVY_TRY(collective->make_key(run->state.device, group.key));
    CVY_TRY(run->ranks.comm.broadcast(&run->ranks.comm, group.key, sizeof group.key, 0));
    return collective->join(run->state.device, &group);
}

cvy_status cvy_ranks_name_device(struct cvy_run *run, char *name, size_t size)
{
    const bool automatic = strcmp(run->config->options.device, "auto") == 0;
    const bool any = automatic || strcmp(run->config->options.device, "cuda") == 0;
    const int local = run->ranks.comm.local_rank;
    struct cvy_gpu gpu;
    int count = 0;

    snprintf(name, size, "%s", run->config->options.device);
    if (run->ranks.comm.world > 1 &&
        strncmp(name, "cuda:", 5) == 0) /* a checkpoint must not send all ranks to rank 0's */
        memcpy(run->resolving->options.device, "cuda", sizeof "cuda");
    if (run->ranks.comm.world == 1 || !any)
        return CVY_OK;
    if (cvy_gpu_query(0, &gpu, &count) != CVY_OK || count == 0)
        return CVY_OK; /* opening it says why there is none */
    if (count > 1 && local >= count)
        return cvy_fail(CVY_UNAVAILABLE,
                        "this machine has %d ranks, and this process sees %s: none is left for rank %d",
                        run->ranks.comm.local_world, cvy_counted(count, "GPU"), run->ranks.comm.rank);
    snprintf(name, size, "cuda:%d", count > 1 ? local : 0); /* launchers may show each rank its own one only */
    return CVY_OK;
}

cvy_status cvy_ranks_join_devices(struct cvy_run *run)
{
    const struct cvy_collective *collective = run->state.device->backend->collective;
    struct introduction *all = NULL;
    char reason[REASON_BYTES] = "";
    cvy_status status;

    if (run->ranks.comm.world == 1 || run->config->options.evaluate || !collective)
        return CVY_OK;
    status = introduce(run, &all);
    if (status == CVY_OK && run->ranks.comm.rank == 0)
        status = make_table(&run->ranks, all);
    if (status == CVY_OK && can_join(all, run->ranks.comm.world, collective->name, reason))
        status = join(run);
    else if (status == CVY_OK && run->ranks.comm.rank == 0)
        cvy_log(CVY_LOG_WARNING, "gradients are summed by way of the host's memory, after the backward pass: %s",
                reason);
    cvy_free(all);
    return status;
}

cvy_status cvy_ranks_compare_scalers(struct cvy_run_ranks *ranks, const struct cvy_scaler *scaler)
{
    double *skipped;
    cvy_status status;

    if (ranks->comm.world == 1)
        return CVY_OK;
    skipped = cvy_calloc((size_t)ranks->comm.world, sizeof *skipped);
    if (!skipped)
        return cvy_fail_memory((size_t)ranks->comm.world * sizeof *skipped, "the loss scales of the ranks");
    status = cvy_comm_all_gather(&ranks->comm, (double)scaler->skipped, skipped);
    for (int i = 1; status == CVY_OK && i < ranks->comm.world; i++) {
        if (skipped[i] != skipped[0])
            status = cvy_fail(CVY_FAILED,
                              "%.0f steps were left out on rank %d and %.0f on rank 0: their sums of gradients differ",
                              skipped[i], i, skipped[0]);
    }
    cvy_free(skipped);
    return status;
}

void cvy_ranks_leave_devices(struct cvy_run_state *state, bool failed)
{
    if (state->device && state->device->joined)
        state->device->backend->collective->leave(state->device, failed);
}
