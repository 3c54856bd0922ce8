/* The ranks of a run agree. */
#include "train/run_ranks.h"

#include <stdio.h>
#include <string.h>

#include "backend/choice.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/system.h"
#include "train/option_table.h"
#include "train/options.h"

static bool is_alone(const struct cvy_run *run)
{
    return run->comm.world == 1;
}

cvy_status cvy_ranks_open(struct cvy_run *run)
{
    struct cvy_comm_place place;
    size_t available;

    cvy_comm_single(&run->comm);
    CVY_TRY(cvy_comm_find_place(&place));
    CVY_TRY(cvy_comm_open(&run->comm, &place, (double)run->options.comm_timeout));
    if (is_alone(run))
        return CVY_OK;
    available = cvy_available_memory(); /* before anybody has taken anything large: all have looked, then all go on */
    run->memory_share = available == SIZE_MAX ? 0 : available / (size_t)run->comm.local_world;
    return run->comm.barrier(&run->comm);
}

int cvy_train_rank(int *ranks)
{
    struct cvy_comm_place place;
    const bool known = cvy_comm_find_place(&place) == CVY_OK;

    *ranks = known ? place.world : 1;
    return known ? place.rank : 0;
}

void cvy_ranks_fail(struct cvy_run *run, cvy_status status)
{
    char sentence[1024];

    if (!run->comm.abort || is_alone(run))
        return;
    cvy_error_get(sentence, sizeof sentence);
    run->comm.abort(&run->comm, status, sentence);
    cvy_ranks_part_devices(run, true);
    cvy_error_put(sentence);
}

cvy_status cvy_ranks_end_together(struct cvy_run *run, cvy_status status)
{
    char sentence[1024];

    cvy_error_get(sentence, sizeof sentence);
    CVY_TRY(run->comm.barrier(&run->comm));
    cvy_error_put(sentence);
    return status;
}

/* ---- the same everywhere ---- */

/* FNV-1a, continued. */
static uint64_t hash(uint64_t value, const void *data, size_t bytes)
{
    const unsigned char *from = data;

    for (size_t i = 0; i < bytes; i++)
        value = (value ^ from[i]) * UINT64_C(0x100000001b3);
    return value;
}

/* Samples with their labels in their order. Paths count without the folder that the set lies in, which may be another
 * on each host: their last two parts. */
static uint64_t hash_samples(const struct cvy_dataset *set)
{
    uint64_t value = UINT64_C(0xcbf29ce484222325);

    for (uint32_t i = 0; i < set->sample_count; i++) {
        const struct cvy_sample *sample = &set->samples[i];
        const char *tail = sample->path ? sample->path + strlen(sample->path) : "";

        for (int slashes = 0; sample->path && tail > sample->path; tail--) {
            slashes += tail[-1] == '/';
            if (slashes == 2)
                break;
        }
        value = hash(value, tail, strlen(tail) + 1);
        value = hash(value, &sample->label, sizeof sample->label);
        value = hash(value, &sample->record_offset, sizeof sample->record_offset);
    }
    return value;
}

static uint64_t hash_classes(const struct cvy_dataset *set)
{
    uint64_t value = UINT64_C(0xcbf29ce484222325);

    for (int32_t i = 0; set->classes && i < set->class_count; i++)
        value = hash(value, set->classes[i], strlen(set->classes[i]) + 1);
    return value;
}

/* Of the options that do not change the result: those that say when ranks meet. */
static bool must_agree(const struct cvy_option_row *row)
{
    static const char *const names[] = {"evaluate", "run-epochs", "print-freq", "checkpoint-every"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(row->info.name, names[i]) == 0)
            return true;
    }
    return row->group == CVY_OPTION_RESULT && strcmp(row->info.name, "threads") != 0;
}

/* "name<TAB>value" lines. */
static void describe(const struct cvy_run *run, struct cvy_text *text)
{
    const struct cvy_option_row *row;
    char value[CVY_PATH_MAX];

    cvy_text_printf(text, "the version of convoy\t%s\n", cvy_version());
    cvy_text_printf(text, "the number of training images\t%u\n", run->train.sample_count);
    cvy_text_printf(text, "the number of validation images\t%u\n", run->val.sample_count);
    cvy_text_printf(text, "the number of classes\t%d\n", (int)run->train.class_count);
    cvy_text_printf(text, "the fingerprint of the classes\t%016llx\n", (unsigned long long)hash_classes(&run->train));
    cvy_text_printf(text, "the fingerprint of the training set\t%016llx\n",
                    (unsigned long long)hash_samples(&run->train));
    cvy_text_printf(text, "the fingerprint of the validation set\t%016llx\n",
                    (unsigned long long)hash_samples(&run->val));
    cvy_text_printf(text, "the device\t%s\n", run->device->backend->name);
    cvy_text_printf(text, "the instruction set of the processor\t%s\n", cvy_isa_name(cvy_cpu_isa()));
    cvy_text_printf(text, "the choice of algorithms\t%s\n", run->device->settings);
    for (size_t i = 0; (row = cvy_option_row_at(i)) != NULL; i++) {
        if (must_agree(row) && strcmp(row->info.name, "device") != 0)
            cvy_text_printf(text, "option --%s\t%s\n", row->info.name,
                            cvy_train_option_text(&run->options, i, value, sizeof value));
    }
}

/* The first line that differs, as a failure. */
static cvy_status compare_lines(const struct cvy_run *run, const char *mine, const char *first)
{
    while (*mine && *first) {
        const size_t length = strcspn(mine, "\n"), other = strcspn(first, "\n");
        const size_t name = strcspn(mine, "\t"), other_name = strcspn(first, "\t");

        if (length != other || memcmp(mine, first, length) != 0) {
            char here[512], there[512];

            snprintf(here, sizeof here, "%.*s", (int)(length - name - 1), mine + name + 1);
            snprintf(there, sizeof there, "%.*s", (int)(other - other_name - 1), first + other_name + 1);
            return cvy_fail(CVY_USAGE, "%.*s is %s on rank %d and %s on rank 0: all ranks must be started alike",
                            (int)name, mine, cvy_quote(here), run->comm.rank, cvy_quote(there));
        }
        mine += length + 1;
        first += other + 1;
    }
    return *mine || *first ? cvy_fail(CVY_USAGE, "this is another program than that of rank 0") : CVY_OK;
}

cvy_status cvy_ranks_compare(struct cvy_run *run)
{
    struct cvy_text mine = {0};
    char *first = NULL;
    bool unused;
    cvy_status status;

    if (is_alone(run))
        return CVY_OK;
    describe(run, &mine);
    status = mine.failed ? cvy_fail_memory(mine.length, "the options of the run")
                         : cvy_comm_share_text(&run->comm, mine.text, &first);
    if (status == CVY_OK)
        status = compare_lines(run, mine.text, first);
    if (status == CVY_OK) /* whoever differs ends here, and with it the others */
        status = cvy_comm_any(&run->comm, false, &unused);
    cvy_text_release(&mine);
    cvy_free(first);
    return status;
}

/* ---- batches that count as one ---- */

/* Behind the gradients that are on their way: every rank posts in the same order. */
static cvy_status sum_statistics(void *context, double *values, int64_t count)
{
    struct cvy_run *run = context;
    struct cvy_comm_worker *worker = run->trainer.reducer.worker;

    return worker ? cvy_comm_worker_sum(worker, values, count)
                  : run->comm.all_reduce(&run->comm, values, count, CVY_COMM_F64);
}

cvy_status cvy_ranks_join_batches(struct cvy_run *run)
{
    const char *device = run->device->backend->name;

    if (is_alone(run) || !run->options.sync_bn)
        return CVY_OK;
    if (strcmp(device, "cpu") != 0 && strcmp(device, "ref") != 0)
        return cvy_fail(CVY_USAGE, "option --sync-bn needs --device cpu or ref, not %s", cvy_quote(device));
    run->device->sum_ranks = sum_statistics;
    run->device->sum_context = run;
    run->device->ranks = run->comm.world;
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

    cvy_choice_key_on(key, run->device->threads, &own);
    status = own.failed ? cvy_fail_memory(own.capacity, "the kernels")
                        : cvy_choices_pin(run->device->choices, own.text, row, "on rank 0");
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
static cvy_status share_choices(struct cvy_run *run)
{
    struct cvy_text mine = {0};
    const char *key, *row;
    char *first = NULL;
    cvy_status status;

    for (int32_t i = 0; run->comm.rank == 0 && cvy_choices_at(run->device->choices, i, &key, &row); i++)
        cvy_text_printf(&mine, "%s\t%s\n", key, row);
    status = mine.failed ? cvy_fail_memory(mine.length, "the kernels")
                         : cvy_comm_share_text(&run->comm, mine.text ? mine.text : "", &first);
    if (status == CVY_OK && run->comm.rank > 0 && run->device->choices)
        status = pin_lines(run, first);
    cvy_text_release(&mine);
    cvy_free(first);
    return status;
}

cvy_status cvy_ranks_wait_for_choices(struct cvy_run *run)
{
    return is_alone(run) || run->comm.rank == 0 ? CVY_OK : share_choices(run);
}

cvy_status cvy_ranks_give_choices(struct cvy_run *run)
{
    return is_alone(run) || run->comm.rank > 0 ? CVY_OK : share_choices(run);
}

/* ---- what rank 0 gives the others ---- */

/* Device memory of all ranks becomes rank 0's. */
static cvy_status give_floats(struct cvy_run *run, float *values, int64_t count)
{
    const struct cvy_backend *backend = run->device->backend;
    const size_t bytes = (size_t)count * sizeof *values;
    float *staged;
    cvy_status status;

    if (!values || count == 0)
        return CVY_OK;
    if (backend->host_memory)
        return run->comm.broadcast(&run->comm, values, bytes, 0);
    staged = cvy_calloc((size_t)count, sizeof *staged);
    if (!staged)
        return cvy_fail_memory(bytes, "the weights on their way to other ranks");
    status = backend->download(run->device, staged, values, bytes);
    if (status == CVY_OK)
        status = run->comm.broadcast(&run->comm, staged, bytes, 0);
    if (status == CVY_OK)
        status = backend->upload(run->device, values, staged, bytes);
    cvy_free(staged);
    return status;
}

static cvy_status give_store(struct cvy_run *run, struct cvy_store *store)
{
    CVY_TRY(give_floats(run, store->weights, store->trainable_elements));
    CVY_TRY(give_floats(run, store->momentum, store->trainable_elements));
    CVY_TRY(give_floats(run, store->square_average, store->trainable_elements));
    CVY_TRY(give_floats(run, store->state, store->state_elements));
    store->version++;
    return CVY_OK;
}

/* Gradients are summed bucket by bucket: plans that are not the same would add what does not belong together. */
static cvy_status compare_buckets(struct cvy_run *run)
{
    const struct cvy_reducer *reducer = &run->trainer.reducer;
    uint64_t mine = UINT64_C(0xcbf29ce484222325), first;

    for (int32_t i = 0; i < reducer->bucket_count; i++) {
        mine = hash(mine, &reducer->buckets[i].first, sizeof reducer->buckets[i].first);
        mine = hash(mine, &reducer->buckets[i].count, sizeof reducer->buckets[i].count);
    }
    first = mine;
    CVY_TRY(run->comm.broadcast(&run->comm, &first, sizeof first, 0));
    return first == mine ? CVY_OK
                         : cvy_fail(CVY_FAILED,
                                    "rank %d has gradients ready in another order than rank 0: their plans "
                                    "differ",
                                    run->comm.rank);
}

cvy_status cvy_ranks_give_weights(struct cvy_run *run)
{
    if (is_alone(run))
        return CVY_OK;
    CVY_TRY(compare_buckets(run));
    CVY_TRY(give_store(run, &run->network.store));
    CVY_TRY(give_store(run, &run->network.average));
    CVY_TRY(run->comm.broadcast(&run->comm, run->network.counters,
                                (size_t)run->network.table.counters * sizeof *run->network.counters, 0));
    return run->comm.broadcast(&run->comm, &run->state, sizeof run->state, 0);
}

cvy_status cvy_ranks_give_statistics(struct cvy_run *run, struct cvy_store *store)
{
    if (is_alone(run))
        return CVY_OK;
    CVY_TRY(give_floats(run, store->state, store->state_elements));
    store->version++;
    return CVY_OK;
}

cvy_status cvy_ranks_give_directory(struct cvy_run *run)
{
    struct cvy_run_paths *paths = &run->paths;
    char *folder;
    cvy_status status;

    if (is_alone(run))
        return CVY_OK;
    CVY_TRY(cvy_comm_share_text(&run->comm, paths->folder, &folder));
    status = run->comm.rank == 0 ? CVY_OK : cvy_run_paths_set(paths, folder, &run->options);
    cvy_free(folder);
    return status;
}

/* ---- while the run goes on ---- */

cvy_status cvy_ranks_join_loss(struct cvy_run *run, double *values, int count, bool *stopping)
{
    double all[2 + CVY_LOSS_PARTS];

    if (is_alone(run))
        return CVY_OK;
    memcpy(all, values, (size_t)count * sizeof *all);
    all[count] = cvy_run_stopping();
    CVY_TRY(cvy_comm_sum(&run->comm, all, count + 1));
    for (int i = 0; i < count; i++)
        values[i] = all[i] / run->comm.world;
    *stopping = all[count] > 0;
    return CVY_OK;
}

cvy_status cvy_ranks_sum(struct cvy_run *run, int64_t *count)
{
    double value = (double)*count;

    CVY_TRY(cvy_comm_sum(&run->comm, &value, 1));
    *count = (int64_t)value;
    return CVY_OK;
}

cvy_status cvy_ranks_least(struct cvy_run *run, int64_t *count)
{
    double value = (double)*count;

    CVY_TRY(cvy_comm_least(&run->comm, &value));
    *count = (int64_t)value;
    return CVY_OK;
}
