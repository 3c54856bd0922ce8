/* The ranks of a run agree. */
#include "run/ranks/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/autotune.h"
#include "base/cache.h"
#include "base/error.h"
#include "base/resources.h"
#include "convoy/program/program.h"

static bool is_alone(const struct cvy_run_ranks *ranks)
{
    return ranks->comm.world == 1;
}

/* Ranks that nobody has bound to cores of their own, or more ranks than cores: each takes its part of what they share.
 */
static cvy_status count_sharers(struct cvy_run_ranks *ranks)
{
    double *cores = cvy_calloc((size_t)ranks->comm.world, sizeof *cores);
    const double mine = (double)(cvy_cores_hash() >> 12); /* exact */
    cvy_status status;

    if (!cores)
        return cvy_fail_memory((size_t)ranks->comm.world * sizeof *cores, "the cores of the ranks");
    status = cvy_comm_all_gather(&ranks->comm, mine, cores);
    for (int i = 0; i < ranks->comm.world; i++)
        ranks->on_cores += cores[i] == mine;
    cvy_free(cores);
    return status;
}

/* Beside the run directory, which does not exist yet: where it will be on all hosts. */
static void name_key_file(const struct cvy_train_options *options, char *path, size_t size)
{
    const char *folder = options->workspace[0] ? options->workspace : options->resume;
    size_t length = strlen(folder);

    while (length > 1 && folder[length - 1] == '/')
        length--;
    if (length == 0 || snprintf(path, size, "%.*s.ranks-key", (int)length, folder) >= (int)size)
        path[0] = '\0';
}

cvy_status cvy_ranks_open(struct cvy_run *run)
{
    struct cvy_comm_config place;
    size_t available;

    cvy_comm_single(&run->ranks.comm);
    CVY_TRY(cvy_comm_find_config(&place));
    if (!getenv("CONVOY_COMM_KEY"))
        name_key_file(&run->config->options, place.key_file, sizeof place.key_file);
    CVY_TRY(cvy_comm_open(&run->ranks.comm, &place, (double)run->config->options.comm_timeout));
    if (is_alone(&run->ranks))
        return CVY_OK;
    available = cvy_available_memory(); /* before anybody has taken anything large: all have looked, then all go on */
    run->resolving->memory_share = available == SIZE_MAX ? 0 : available / (size_t)run->ranks.comm.local_world;
    return count_sharers(&run->ranks);
}

cvy_status cvy_ranks_list_threads(struct cvy_run *run)
{
    const size_t world = (size_t)run->ranks.comm.world;
    double *threads;
    cvy_status status;

    if (is_alone(&run->ranks))
        return CVY_OK;
    threads = cvy_calloc(world, sizeof *threads);
    run->ranks.threads = cvy_calloc(world, sizeof *run->ranks.threads);
    if (threads && run->ranks.threads)
        status = cvy_comm_all_gather(&run->ranks.comm, run->state.device->threads, threads);
    else
        status = cvy_fail_memory(world * sizeof *threads, "the threads of the ranks");
    for (size_t i = 0; status == CVY_OK && i < world; i++)
        run->ranks.threads[i] = (int)threads[i];
    cvy_free(threads);
    return status;
}

int cvy_train_rank(int *ranks)
{
    struct cvy_comm_config place;
    const bool known = cvy_comm_find_config(&place) == CVY_OK;

    if (ranks)
        *ranks = known ? place.world : 1;
    return known ? place.rank : 0;
}

void cvy_ranks_fail(struct cvy_run *run, cvy_status status)
{
    char sentence[1024];

    if (!run->ranks.comm.abort || is_alone(&run->ranks))
        return;
    cvy_error_get(sentence, sizeof sentence);
    run->ranks.comm.abort(&run->ranks.comm, status, sentence);
    cvy_ranks_leave_devices(&run->state, true);
    cvy_error_put(sentence);
}

cvy_status cvy_ranks_end_all(struct cvy_run *run, cvy_status status)
{
    char sentence[1024];
    cvy_status together;

    cvy_error_get(sentence, sizeof sentence);
    together = run->ranks.comm.barrier(&run->ranks.comm);
    if (together != CVY_OK) {
        cvy_ranks_fail(run, together);
        return together;
    }
    cvy_error_put(sentence);
    return status;
}

/* ---- batches that count as one ---- */

/* After the gradients that are on their way: every rank posts in the same order. */
static cvy_status sum_statistics(void *context, double *values, int64_t count)
{
    struct cvy_run *run = context;
    struct cvy_comm_worker *worker = run->state.trainer.reducer.worker;

    return worker ? cvy_comm_worker_sum(worker, values, count)
                  : run->ranks.comm.all_reduce(&run->ranks.comm, values, count, CVY_COMM_F64);
}

cvy_status cvy_ranks_join_batches(struct cvy_run *run)
{
    const char *device = run->state.device->backend->name;

    if (is_alone(&run->ranks) || !run->config->options.sync_bn)
        return CVY_OK;
    if (strcmp(device, "cpu") != 0 && strcmp(device, "ref") != 0)
        return cvy_fail(CVY_USAGE, "option --sync-bn needs --device cpu or ref, not %s", cvy_quote(device));
    run->state.device->sum_ranks = sum_statistics;
    run->state.device->sum_context = run;
    run->state.device->ranks = run->ranks.comm.world;
    return CVY_OK;
}

enum cvy_comm_type cvy_ranks_gradients(const struct cvy_train_options *options)
{
    return strcmp(options->gradient_compression, "bf16") == 0   ? CVY_COMM_F32_AS_BF16
           : strcmp(options->gradient_compression, "fp16") == 0 ? CVY_COMM_F32_AS_F16
                                                                : CVY_COMM_F32;
}

/* ---- kernels ---- */

/* Rank 0 may have another number of threads than this rank: the operations are the same. */
static cvy_status pin_line(struct cvy_run *run, const char *key, const char *row)
{
    struct cvy_text own = {0};
    cvy_status status;

    cvy_autotune_key_for_threads(key, run->state.device->threads, &own);
    status = own.failed ? cvy_fail_memory(own.capacity, "the kernels")
                        : cvy_autotuner_pin(run->state.device->autotuner, own.text, row, "on rank 0");
    cvy_text_release(&own);
    return status;
}

static cvy_status pin_lines(struct cvy_run *run, char *lines)
{
    for (char *line = lines; *line;) {
        char *const end = strchr(line, '\n'), *const tab = strchr(line, '\t');

        if (!end || !tab || tab > end)
            return cvy_fail(CVY_FAILED, "the kernels of rank 0 are no list");
        *end = *tab = '\0';
        CVY_TRY(pin_line(run, line, tab + 1));
        line = end + 1;
    }
    return CVY_OK;
}

/* Keys and rows are printable: neither has a tab in it. */
static cvy_status broadcast_kernels(struct cvy_run *run)
{
    struct cvy_text mine = {0};
    const char *key, *row;
    char *first = NULL;
    cvy_status status;

    for (int32_t i = 0; run->ranks.comm.rank == 0 && cvy_autotuner_at(run->state.device->autotuner, i, &key, &row); i++)
        cvy_text_printf(&mine, "%s\t%s\n", key, row);
    status = mine.failed ? cvy_fail_memory(mine.length, "the kernels")
                         : cvy_comm_broadcast_text(&run->ranks.comm, mine.text ? mine.text : "", &first);
    if (status == CVY_OK && run->ranks.comm.rank > 0 && run->state.device->autotuner)
        status = pin_lines(run, first);
    cvy_text_release(&mine);
    cvy_free(first);
    return status;
}

cvy_status cvy_ranks_wait_for_kernels(struct cvy_run *run)
{
    return is_alone(&run->ranks) || run->ranks.comm.rank == 0 ? CVY_OK : broadcast_kernels(run);
}

cvy_status cvy_ranks_broadcast_kernels(struct cvy_run *run)
{
    return is_alone(&run->ranks) || run->ranks.comm.rank > 0 ? CVY_OK : broadcast_kernels(run);
}

/* ---- what rank 0 gives the others ---- */

/* Device memory of all ranks becomes rank 0's. */
static cvy_status broadcast_floats(struct cvy_run *run, float *values, int64_t count)
{
    const struct cvy_backend *backend = run->state.device->backend;
    const size_t bytes = (size_t)count * sizeof *values;
    float *staged;
    cvy_status status;

    if (!values || count == 0)
        return CVY_OK;
    if (backend->host_memory)
        return run->ranks.comm.broadcast(&run->ranks.comm, values, bytes, 0);
    staged = cvy_calloc((size_t)count, sizeof *staged);
    if (!staged)
        return cvy_fail_memory(bytes, "the weights on their way to other ranks");
    status = backend->download(run->state.device, staged, values, bytes);
    if (status == CVY_OK)
        status = run->ranks.comm.broadcast(&run->ranks.comm, staged, bytes, 0);
    if (status == CVY_OK)
        status = backend->upload(run->state.device, values, staged, bytes);
    cvy_free(staged);
    return status;
}

static cvy_status broadcast_store(struct cvy_run *run, struct cvy_store *store)
{
    CVY_TRY(broadcast_floats(run, store->weights, store->trainable_elements));
    CVY_TRY(broadcast_floats(run, store->momentum, store->trainable_elements));
    CVY_TRY(broadcast_floats(run, store->square_average, store->trainable_elements));
    CVY_TRY(broadcast_floats(run, store->state, store->state_elements));
    store->version++;
    return CVY_OK;
}

/* Gradients are summed bucket by bucket: plans that are not the same would add what does not belong together. */
static cvy_status compare_buckets(struct cvy_run *run)
{
    const struct cvy_reducer *reducer = &run->state.trainer.reducer;
    uint64_t mine = cvy_hash(NULL, 0), first;

    for (int32_t i = 0; i < reducer->bucket_count; i++) {
        mine = cvy_hash_more(mine, &reducer->buckets[i].first, sizeof reducer->buckets[i].first);
        mine = cvy_hash_more(mine, &reducer->buckets[i].count, sizeof reducer->buckets[i].count);
    }
    first = mine;
    CVY_TRY(run->ranks.comm.broadcast(&run->ranks.comm, &first, sizeof first, 0));
    return first == mine ? CVY_OK
                         : cvy_fail(CVY_FAILED,
                                    "rank %d has gradients ready in another order than rank 0: their plans "
                                    "differ",
                                    run->ranks.comm.rank);
}

cvy_status cvy_ranks_broadcast_weights(struct cvy_run *run)
{
    if (is_alone(&run->ranks))
        return CVY_OK;
    CVY_TRY(compare_buckets(run));
    CVY_TRY(broadcast_store(run, &run->state.network.store));
    CVY_TRY(broadcast_store(run, &run->state.network.average));
    if (run->state.snapshot.taken) { /* on all ranks: they have read the same checkpoint */
        CVY_TRY(broadcast_store(run, &run->state.snapshot.store));
        if (run->state.snapshot.average.weights)
            CVY_TRY(broadcast_store(run, &run->state.snapshot.average));
    }
    CVY_TRY(run->ranks.comm.broadcast(&run->ranks.comm, run->state.network.counters,
                                      (size_t)run->state.network.table.counters * sizeof *run->state.network.counters,
                                      0));
    return run->ranks.comm.broadcast(&run->ranks.comm, &run->state.progress, sizeof run->state.progress, 0);
}

cvy_status cvy_ranks_broadcast_statistics(struct cvy_run *run, struct cvy_store *store)
{
    if (is_alone(&run->ranks))
        return CVY_OK;
    CVY_TRY(broadcast_floats(run, store->state, store->state_elements));
    store->version++;
    return CVY_OK;
}

cvy_status cvy_ranks_broadcast_directory(struct cvy_run *run)
{
    struct cvy_run_paths *paths = &run->resolving->paths;
    char *folder;
    cvy_status status;

    if (is_alone(&run->ranks))
        return CVY_OK;
    CVY_TRY(cvy_comm_broadcast_text(&run->ranks.comm, paths->folder, &folder));
    status = run->ranks.comm.rank == 0 ? CVY_OK : cvy_run_paths_set(paths, folder, &run->config->options);
    cvy_free(folder);
    return status;
}

/* ---- while the run continues ---- */

cvy_status cvy_ranks_reduce_loss(struct cvy_run *run, double *values, int count, bool *stopping)
{
    struct cvy_run_ranks *ranks = &run->ranks;
    double all[2 + CVY_LOSS_PARTS];

    if (is_alone(ranks))
        return CVY_OK;
    memcpy(all, values, (size_t)count * sizeof *all);
    all[count] = cvy_run_stopping(run);
    CVY_TRY(cvy_comm_all_reduce_sum(&ranks->comm, all, count + 1));
    for (int i = 0; i < count; i++)
        values[i] = all[i] / ranks->comm.world;
    *stopping = all[count] > 0;
    return CVY_OK;
}

cvy_status cvy_ranks_gather_times(struct cvy_run_ranks *ranks, double seconds, double data, double wait)
{
    const struct cvy_rank_times mine = {.compute = seconds - data - wait, .data = data, .wait = wait};

    if (is_alone(ranks))
        return CVY_OK;
    if (!ranks->times)
        ranks->times = cvy_calloc((size_t)ranks->comm.world, sizeof *ranks->times);
    if (!ranks->times)
        return cvy_fail_memory((size_t)ranks->comm.world * sizeof *ranks->times, "the times of the ranks");
    return cvy_rank_times_all_gather(&ranks->comm, &mine, ranks->times);
}

static int by_number(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/* The numbers of the bad samples of all ranks -> how many different ones there are. */
static cvy_status unite_bad(struct cvy_run_ranks *ranks, const uint32_t *mine, size_t count, int64_t *united)
{
    size_t *counts = cvy_calloc((size_t)ranks->comm.world, sizeof *counts), sum = 0;
    void *all = NULL;
    uint32_t *samples;
    cvy_status status = CVY_OK;

    *united = 0;
    if (!counts)
        status = cvy_fail_memory((size_t)ranks->comm.world * sizeof *counts, "the unreadable images");
    if (status == CVY_OK)
        status = cvy_comm_all_gather_v(&ranks->comm, mine, count, sizeof *mine, &all, counts);
    for (int i = 0; status == CVY_OK && i < ranks->comm.world; i++)
        sum += counts[i];
    samples = all;
    if (sum > 1)
        qsort(samples, sum, sizeof *samples, by_number);
    for (size_t i = 0; i < sum; i++)
        *united += i == 0 || samples[i] != samples[i - 1];
    cvy_free(all);
    cvy_free(counts);
    return status;
}

cvy_status cvy_ranks_count_bad(struct cvy_run *run, int64_t *count)
{
    uint32_t *mine = NULL;
    int64_t known = cvy_source_bad_samples(&run->data.train_source);
    cvy_status status;

    *count = known;
    if (is_alone(&run->ranks))
        return CVY_OK;
    mine = cvy_calloc((size_t)known + 1, sizeof *mine);
    if (!mine)
        return cvy_fail_memory((size_t)known * sizeof *mine, "the unreadable images");
    known = cvy_source_list_bad(&run->data.train_source, mine, known);
    status = unite_bad(&run->ranks, mine, (size_t)known, count);
    cvy_free(mine);
    return status;
}

cvy_status cvy_ranks_all_reduce_min(struct cvy_run_ranks *ranks, int64_t *count)
{
    double value = (double)*count;

    CVY_TRY(cvy_comm_all_reduce_min(&ranks->comm, &value));
    *count = (int64_t)value;
    return CVY_OK;
}
