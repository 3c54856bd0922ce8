/* Before the ranks of a run compute anything together they compare what they were told and what they found. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cache.h"
#include "base/error.h"
#include "base/system.h"
#include "options/option_table.h"
#include "run/ranks/ranks.h"

/* Samples with their labels in their order. Paths count without the folder that the set lies in, which may be another
 * on each host: their last two parts. */
static uint64_t hash_samples(const struct cvy_dataset *set)
{
    uint64_t value = cvy_hash(NULL, 0);

    for (uint32_t i = 0; i < set->sample_count; i++) {
        const struct cvy_sample *sample = &set->samples[i];
        const char *tail = sample->path ? sample->path + strlen(sample->path) : "";

        for (int slashes = 0; sample->path && tail > sample->path; tail--) {
            slashes += tail[-1] == '/';
            if (slashes == 2)
                break;
        }
        value = cvy_hash_more(value, tail, strlen(tail) + 1);
        value = cvy_hash_more(value, &sample->label, sizeof sample->label);
        value = cvy_hash_more(value, &sample->record_offset, sizeof sample->record_offset);
    }
    return value;
}

static uint64_t hash_classes(const struct cvy_dataset *set)
{
    uint64_t value = cvy_hash(NULL, 0);

    for (int32_t i = 0; set->classes && i < set->class_count; i++)
        value = cvy_hash_more(value, set->classes[i], strlen(set->classes[i]) + 1);
    return value;
}

/* Among the options that do not change the result, those that decide when ranks synchronize. */
static bool must_agree(const struct cvy_option_row *row)
{
    static const char *const names[] = {"evaluate",  "eval-training-data", "run-epochs",
                                        "run-steps", "print-freq",         "checkpoint-every"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(row->info.name, names[i]) == 0)
            return true;
    }
    return row->group == CVY_OPTION_RESULT && strcmp(row->info.name, "threads") != 0;
}

/* Where the objects on the images are. */
static uint64_t hash_objects(const struct cvy_dataset *set)
{
    uint64_t value = cvy_hash(NULL, 0);

    for (uint32_t i = 0; set->images && i < set->sample_count; i++) {
        const struct cvy_coco_object *objects;
        size_t count;

        cvy_dataset_all_objects(set, i, &objects, &count);
        value = cvy_hash_more(value, &count, sizeof count);
        for (size_t k = 0; k < count; k++) {
            value = cvy_hash_more(value, objects[k].bbox, sizeof objects[k].bbox);
            value = cvy_hash_more(value, &objects[k].area, sizeof objects[k].area);
            value = cvy_hash_more(value, &objects[k].slot, sizeof objects[k].slot);
            value = cvy_hash_more(value, &objects[k].crowd, sizeof objects[k].crowd);
        }
    }
    return value;
}

static void describe_data(const struct cvy_run_data *data, struct cvy_text *text)
{
    static const char *const names[] = {"training", "validation"};
    const struct cvy_dataset *const sets[] = {&data->train, &data->val};

    cvy_text_printf(text, "the number of classes\t%d\n", (int)data->train.class_count);
    cvy_text_printf(text, "the fingerprint of the classes\t%016" PRIx64 "\n", hash_classes(&data->train));
    for (int i = 0; i < 2; i++) {
        cvy_text_printf(text, "the number of %s images\t%u\n", names[i], sets[i]->sample_count);
        cvy_text_printf(text, "the fingerprint of the %s set\t%016" PRIx64 "\n", names[i], hash_samples(sets[i]));
        cvy_text_printf(text, "the fingerprint of the boxes of the %s set\t%016" PRIx64 "\n", names[i],
                        hash_objects(sets[i]));
    }
}

/* What follows from options, data and machine. */
static void describe_result(const struct cvy_run *run, struct cvy_text *text)
{
    const size_t weights =
        run->config->class_weights ? (size_t)run->config->options.num_classes * sizeof *run->config->class_weights : 0;

    cvy_text_printf(text, "the device\t%s\n", run->state.device->backend->name);
    cvy_text_printf(text, "the instruction set of the processor\t%s\n", cvy_isa_name(cvy_cpu_isa()));
    cvy_text_printf(text, "the choice of algorithms\t%s\n", run->state.device->settings);
    cvy_text_printf(text, "the fingerprint of the class weights\t%016" PRIx64 "\n",
                    cvy_hash(run->config->class_weights, weights));
}

static void describe_checkpoint(const struct cvy_resume *resume, struct cvy_text *text)
{
    cvy_text_printf(text, "the checkpoint of --resume\t");
    if (resume->found)
        cvy_text_printf(text, "epoch %" PRId64 ", step %" PRId64 "\n", resume->info.state.epoch,
                        resume->info.state.step);
    else
        cvy_text_puts(text, "none\n");
}

/* "name<TAB>value" lines. */
static void describe(const struct cvy_run *run, enum cvy_ranks_stage stage, struct cvy_text *text)
{
    const struct cvy_option_row *row;
    char value[CVY_PATH_MAX];

    cvy_text_printf(text, "the version of convoy\t%s\n", cvy_version());
    if (stage == CVY_RANKS_OPTIONS) /* before the options, which it has changed */
        describe_checkpoint(&run->resume, text);
    for (size_t i = 0; (row = cvy_option_row_at(i)) != NULL; i++) {
        if (must_agree(row) && strcmp(row->info.name, "device") != 0)
            cvy_text_printf(text, "option --%s\t%s\n", row->info.name,
                            cvy_train_option_text(&run->config->options, i, value, sizeof value));
    }
    if (stage == CVY_RANKS_DATA)
        describe_data(&run->data, text);
    if (stage == CVY_RANKS_READY)
        describe_result(run, text);
}

/* The first line that differs, as a failure. */
static cvy_status compare_lines(const struct cvy_run_ranks *ranks, const char *mine, const char *first)
{
    while (*mine && *first) {
        const size_t length = strcspn(mine, "\n"), other = strcspn(first, "\n");
        const size_t name = strcspn(mine, "\t"), other_name = strcspn(first, "\t");

        if (length != other || memcmp(mine, first, length) != 0) {
            char here[512], there[512];

            snprintf(here, sizeof here, "%.*s", (int)(length - name - 1), mine + name + 1);
            snprintf(there, sizeof there, "%.*s", (int)(other - other_name - 1), first + other_name + 1);
            return cvy_fail(CVY_USAGE, "%.*s is %s on rank %d and %s on rank 0: all ranks must be started alike",
                            (int)name, mine, cvy_quote(here), ranks->comm.rank, cvy_quote(there));
        }
        mine += length + 1;
        first += other + 1;
    }
    return *mine || *first ? cvy_fail(CVY_USAGE, "this is another program than that of rank 0") : CVY_OK;
}

cvy_status cvy_ranks_compare(struct cvy_run *run, enum cvy_ranks_stage stage)
{
    struct cvy_text mine = {0};
    char *first = NULL;
    bool unused;
    cvy_status status;

    if (run->ranks.comm.world == 1)
        return CVY_OK;
    describe(run, stage, &mine);
    status = mine.failed ? cvy_fail_memory(mine.length, "the options of the run")
                         : cvy_comm_broadcast_text(&run->ranks.comm, mine.text, &first);
    if (status == CVY_OK)
        status = compare_lines(&run->ranks, mine.text, first);
    if (status == CVY_OK) /* whoever differs ends here, and with it the others */
        status = cvy_comm_all_reduce_or(&run->ranks.comm, false, &unused);
    cvy_text_release(&mine);
    cvy_free(first);
    return status;
}
