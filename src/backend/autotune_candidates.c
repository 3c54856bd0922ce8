/* Decides which row runs an operation: the user, the checkpoint, measurements, or the order of the table. */
#include "backend/autotune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/autotune_internal.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/system.h"
#include "ops/ops.h"

/* The row that comes first in the table stays unless another is faster by this share, or by the row's own lead: what is
 * nearer is noise. */
static const double min_lead = 0.03;

/* ---- the environment ---- */

/* "conv2d=cpu.conv2d" or "conv2d#3=cpu.conv2d" */
static bool read_override(const struct cvy_backend *backend, char *text, struct autotune_override *override)
{
    char *row = strchr(text, '='), *number, *end;
    int32_t op = 0;

    if (!row)
        return false;
    *row++ = '\0';
    number = strchr(text, '#');
    if (number) {
        *number++ = '\0';
        override->number = number[0] >= '1' && number[0] <= '9' ? (int32_t)strtol(number, &end, 10) : 0;
        if (override->number < 1 || *end)
            return false;
    }
    while (op < CVY_OP_COUNT && strcmp(cvy_ops[op].name, text) != 0)
        op++;
    override->op = (enum cvy_op)op;
    for (size_t i = 0; i < backend->kernel_count && op < CVY_OP_COUNT; i++) {
        if (backend->kernels[i].op == override->op && strcmp(backend->kernels[i].name, row) == 0)
            override->row = &backend->kernels[i];
    }
    return override->row != NULL;
}

static cvy_status read_overrides(const struct cvy_backend *backend, struct cvy_autotuner *autotuner)
{
    const char *given = getenv("CONVOY_KERNEL");
    char *copy, *save = NULL;
    cvy_status status = CVY_OK;

    if (!given || !given[0])
        return CVY_OK;
    copy = cvy_strdup(given);
    if (!copy)
        return cvy_fail_memory(strlen(given) + 1, "CONVOY_KERNEL");
    for (char *part = strtok_r(copy, ",", &save); part && status == CVY_OK; part = strtok_r(NULL, ",", &save)) {
        if (autotuner->override_count == AUTOTUNE_MAX_OVERRIDES ||
            !read_override(backend, part, &autotuner->overrides[autotuner->override_count++]))
            status = cvy_fail(CVY_USAGE,
                              "CONVOY_KERNEL: %s has an entry that is not OPERATION=KERNEL or OPERATION#NUMBER=KERNEL "
                              "of device %s",
                              cvy_quote(given), backend->name);
    }
    cvy_free(copy);
    return status;
}

/* ---- opening ---- */

/* What measured times belong to: one line of device, version, settings. */
static cvy_status open_cache(const cvy_device *device, struct cvy_cache *cache)
{
    struct cvy_text identity = {0};
    char name[64];
    cvy_status status;

    cvy_text_printf(&identity, "%s; convoy %s", device->description, cvy_version());
    if (!device->gpu && cvy_cpu_signature()[0])
        cvy_text_printf(&identity, "; processor %s", cvy_cpu_signature());
    if (device->settings[0])
        cvy_text_printf(&identity, "; %s", device->settings);
    for (char *c = identity.text; c && *c; c++) {
        if ((unsigned char)*c < ' ')
            *c = ' ';
    }
    snprintf(name, sizeof name, "kernels-%s", device->backend->name);
    status = identity.failed ? cvy_fail_memory(identity.capacity, "the autotuner of kernels")
                             : cvy_cache_open(cache, &autotune_cache, name, identity.text);
    cvy_text_release(&identity);
    return status;
}

cvy_status cvy_autotuner_open(const cvy_device *device, struct cvy_autotuner **result)
{
    struct cvy_autotuner *autotuner = cvy_calloc(1, sizeof *autotuner);
    cvy_status status;
    bool timed;

    *result = NULL;
    if (!autotuner)
        return cvy_fail_memory(sizeof *autotuner, "the autotuner of kernels");
    if (pthread_mutex_init(&autotuner->lock, NULL) != 0) {
        status = cvy_fail(CVY_FAILED, "a lock cannot be made");
        goto fail;
    }
    autotuner->lock_made = true;
    autotuner->backend = device->backend;
    CVY_GOTO(cvy_kernels_are_timed(&timed));
    autotuner->first = !timed;
    autotuner->once = cvy_kernels_are_timed_once();
    CVY_GOTO(read_overrides(device->backend, autotuner));
    CVY_GOTO(open_cache(device, &autotuner->measured));
    *result = autotuner;
    return CVY_OK;
fail:
    cvy_autotuner_close(autotuner);
    return status;
}

void cvy_autotuner_close(struct cvy_autotuner *autotuner)
{
    if (!autotuner)
        return;
    if (autotuner->lock_made)
        pthread_mutex_destroy(&autotuner->lock);
    cvy_cache_close(&autotuner->measured);
    cvy_cache_release(&autotuner->pinned);
    cvy_cache_release(&autotuner->used);
    cvy_cache_release(&autotuner->timed_here);
    cvy_free(autotuner);
}

/* ---- tables of decisions ---- */

cvy_status cvy_autotuner_pin(struct cvy_autotuner *autotuner, const char *key, const char *row, const char *where)
{
    cvy_status status;

    pthread_mutex_lock(&autotuner->lock);
    autotuner->pinned_where = where;
    status = cvy_cache_put(&autotuner->pinned, key, row);
    pthread_mutex_unlock(&autotuner->lock);
    return status;
}

void cvy_autotuner_freeze(struct cvy_autotuner *autotuner)
{
    if (!autotuner)
        return;
    pthread_mutex_lock(&autotuner->lock);
    autotuner->frozen = true;
    autotuner->used.count = 0;
    pthread_mutex_unlock(&autotuner->lock);
}

bool cvy_autotuner_at(struct cvy_autotuner *autotuner, int32_t index, const char **key, const char **row)
{
    bool found;

    if (!autotuner)
        return false;
    pthread_mutex_lock(&autotuner->lock);
    found = index >= 0 && index < autotuner->used.count;
    if (found) {
        *key = autotuner->used.lines[index].key;
        *row = autotuner->used.lines[index].value;
    }
    pthread_mutex_unlock(&autotuner->lock);
    return found;
}

int32_t cvy_autotuner_timed(struct cvy_autotuner *autotuner)
{
    int32_t timed;

    pthread_mutex_lock(&autotuner->lock);
    timed = autotuner->timed;
    pthread_mutex_unlock(&autotuner->lock);
    return timed;
}

/* ---- deciding ---- */

/* One decision while it is made. */
struct decision {
    cvy_device *device;
    struct cvy_autotuner *autotuner;
    struct cvy_selection *selection; /* NULL: outside of a plan */
    struct cvy_op_desc *desc;        /* as given, until `plan` is prepared */
    struct cvy_kernel_plan *plan;
    const char *key;
    bool overridden; /* by CONVOY_KERNEL */
};

static void set_reason(struct cvy_kernel_plan *plan, const char *reason)
{
    snprintf(plan->reason, sizeof plan->reason, "%s", reason);
}

static const struct cvy_kernel *find_row(const struct decision *d, const char *name)
{
    const struct cvy_backend *backend = d->device->backend;

    for (size_t i = 0; i < backend->kernel_count; i++) {
        if (backend->kernels[i].op == d->desc->op && strcmp(backend->kernels[i].name, name) == 0)
            return &backend->kernels[i];
    }
    return NULL;
}

/* CVY_UNAVAILABLE: no override names it, or the row refuses it. */
static cvy_status take_override(struct decision *d)
{
    const int32_t number = d->selection ? d->selection->seen[d->desc->op] : -1;

    for (int32_t i = 0; i < d->autotuner->override_count; i++) {
        const struct autotune_override *override = &d->autotuner->overrides[i];
        cvy_status status;
        if (override->op != d->desc->op || (override->number != 0 && override->number != number))
            continue;
        status = cvy_kernel_prepare(d->device, override->row, d->desc, d->plan);
        if (status == CVY_OK)
            set_reason(d->plan, "CONVOY_KERNEL");
        d->overridden = status == CVY_OK;
        if (status != CVY_UNAVAILABLE)
            return status;
    }
    return CVY_UNAVAILABLE;
}

/* CVY_UNAVAILABLE: neither a checkpoint nor rank 0 says anything, or what they say cannot be done here. */
static cvy_status take_pinned(struct decision *d)
{
    const char *pinned = cvy_cache_find(&d->autotuner->pinned, d->key);
    const struct cvy_kernel *row = pinned ? find_row(d, pinned) : NULL;
    cvy_status status = CVY_UNAVAILABLE;

    if (!pinned)
        return CVY_UNAVAILABLE;
    if (row)
        status = cvy_kernel_prepare(d->device, row, d->desc, d->plan);
    if (status == CVY_OK)
        snprintf(d->plan->reason, sizeof d->plan->reason, "as %s", d->autotuner->pinned_where);
    if (status == CVY_UNAVAILABLE && !d->autotuner->logged_pin) {
        d->autotuner->logged_pin = true;
        cvy_log(CVY_LOG_WARNING,
                "kernel %s, which is not available here (%s), was chosen %s: the run continues, but not bit for bit as "
                "it would have",
                cvy_quote(pinned), row ? cvy_error() : "no such kernel", d->autotuner->pinned_where);
    }
    return status;
}

/* The row that the entry chose; NULL unless it has every candidate of this op, in the order of the table: else the
 * table has changed since. */
static const struct cvy_kernel *row_of(const struct decision *d, const struct autotune_measurement *entry)
{
    const struct cvy_backend *backend = d->device->backend;
    const struct cvy_kernel *chosen = NULL;
    int32_t count = 0;

    for (size_t i = 0; i < backend->kernel_count && count < CVY_MAX_CANDIDATES; i++) {
        const struct cvy_kernel *row = &backend->kernels[i];
        const struct autotune_timing *candidate = &entry->candidates[count];
        if (row->op != d->desc->op || !row->candidate)
            continue;
        if (count >= entry->count || strlen(row->name) != (size_t)candidate->length ||
            strncmp(row->name, candidate->row, (size_t)candidate->length) != 0)
            return NULL;
        if (count++ == entry->chosen)
            chosen = row;
    }
    return count == entry->count ? chosen : NULL;
}

/* "timed 8.21 ms; cpu.conv2d 12.30" */
static void describe_times(const struct autotune_measurement *entry, struct cvy_kernel_plan *plan)
{
    struct cvy_text text = {0};

    cvy_text_printf(&text, "timed %.3g ms", (double)entry->candidates[entry->chosen].nanoseconds * 1e-6);
    for (int32_t i = 0; i < entry->count; i++) {
        const struct autotune_timing *candidate = &entry->candidates[i];
        if (i != entry->chosen && candidate->nanoseconds >= 0)
            cvy_text_printf(&text, "; %.*s %.3g ms", candidate->length, candidate->row,
                            (double)candidate->nanoseconds * 1e-6);
    }
    if (entry->busy)
        cvy_text_puts(&text, "; under load");
    if (!text.failed)
        set_reason(plan, text.text);
    cvy_text_release(&text);
}

/* Whether the decision may be made by timing now. */
static bool can_time(const struct decision *d)
{
    return !d->autotuner->first && !d->autotuner->frozen && d->selection && d->selection->timing &&
           d->selection->seconds > 0;
}

/* CVY_UNAVAILABLE: not measured yet, or of another table, or to be measured again. */
static cvy_status take_measured(struct decision *d)
{
    const struct cvy_kernel *row;
    struct autotune_measurement entry;
    const char *kept;
    cvy_status status;

    cvy_cache_load(&d->autotuner->measured);
    kept = cvy_cache_find(&d->autotuner->measured.table, d->key);
    row = kept && autotune_read(kept, &entry) ? row_of(d, &entry) : NULL;
    if (!row || (can_time(d) && autotune_is_stale(d->autotuner, d->key, &entry)))
        return CVY_UNAVAILABLE;
    status = cvy_kernel_prepare(d->device, row, d->desc, d->plan);
    if (status == CVY_OK)
        describe_times(&entry, d->plan);
    return status;
}

/* Every row that may run it: the first that accepts alone, or if that is a candidate, all candidates that accept. Into
 * *count, how many. */
static cvy_status find_candidates(struct decision *d, struct autotune_candidate *found, int32_t *count,
                                  struct cvy_refusals *refusals)
{
    const struct cvy_backend *backend = d->device->backend;

    *count = 0;
    for (size_t i = 0; i < backend->kernel_count && *count < CVY_MAX_CANDIDATES; i++) {
        struct autotune_candidate *c = &found[*count];
        cvy_status status;
        if (backend->kernels[i].op != d->desc->op || (*count > 0 && !backend->kernels[i].candidate))
            continue;
        *c = (struct autotune_candidate){.row = &backend->kernels[i], .desc = *d->desc};
        status = cvy_kernel_prepare(d->device, c->row, &c->desc, &c->plan);
        if (status == CVY_OK && ++*count == 1 && !c->row->candidate)
            break;
        if (status == CVY_UNAVAILABLE)
            cvy_refusals_add(refusals, c->row, c->plan.quiet);
        else if (status != CVY_OK)
            return status;
    }
    return CVY_OK;
}

static void log_timing(struct cvy_autotuner *autotuner)
{
    if (autotuner->logged_timing)
        return;
    autotuner->logged_timing = true;
    cvy_log(CVY_LOG_INFO, "timing kernels on this processor, once%s%s",
            autotuner->measured.path ? ": the result is kept in " : "",
            autotuner->measured.path ? autotuner->measured.path : "");
}

/* Which of the timed ones: the first in the table's order that none of the others beats clearly. */
static int32_t best_of(const struct autotune_candidate *found, int32_t count)
{
    int32_t chosen = 0;

    for (int32_t i = 1; i < count; i++) {
        const double lead = found[chosen].row->lead;
        if (found[i].seconds < found[chosen].seconds * (1 - (lead > min_lead ? lead : min_lead)))
            chosen = i;
    }
    return chosen;
}

static cvy_status remember(struct decision *d, struct autotune_candidate *found, int32_t count, int32_t best)
{
    const struct cvy_backend *backend = d->device->backend;
    struct autotune_measurement entry = {0};
    bool clean = true;
    cvy_status status;

    for (size_t i = 0; i < backend->kernel_count && entry.count < CVY_MAX_CANDIDATES; i++) {
        const struct cvy_kernel *row = &backend->kernels[i];
        struct autotune_timing *candidate = &entry.candidates[entry.count];
        if (row->op != d->desc->op || !row->candidate)
            continue;
        *candidate = (struct autotune_timing){row->name, (int)strlen(row->name), -1};
        for (int32_t c = 0; c < count; c++) {
            if (found[c].row == row)
                candidate->nanoseconds = (int64_t)(found[c].seconds * 1e9 + 0.5);
            clean = clean && found[c].clean;
        }
        if (found[best].row == row)
            entry.chosen = entry.count;
        entry.count++;
    }
    status = autotune_keep(d->autotuner, d->key, &entry, clean);
    d->autotuner->timed += status == CVY_OK;
    if (status == CVY_OK)
        describe_times(&entry, &found[best].plan);
    return status;
}

/* Where both were under load, the shorter of what was measured before and now is nearer to the truth. */
static void take_shorter_times(const struct decision *d, struct autotune_candidate *found, int32_t count)
{
    const char *kept = cvy_cache_find(&d->autotuner->measured.table, d->key);
    struct autotune_measurement entry;

    if (!kept || !autotune_read(kept, &entry) || !entry.busy || !row_of(d, &entry))
        return;
    for (int32_t c = 0; c < count; c++) {
        for (int32_t i = 0; i < entry.count && !found[c].clean; i++) {
            const double before = (double)entry.candidates[i].nanoseconds * 1e-9;
            if (strlen(found[c].row->name) == (size_t)entry.candidates[i].length && before > 0 &&
                strncmp(found[c].row->name, entry.candidates[i].row, (size_t)entry.candidates[i].length) == 0 &&
                before < found[c].seconds)
                found[c].seconds = before;
        }
    }
}

/* *best = the index of the fastest candidate; 0, the first of the table, where they cannot be timed. */
static cvy_status measure(struct decision *d, struct autotune_candidate *found, int32_t count, int32_t *best)
{
    const double start = cvy_clock();
    cvy_status status;

    *best = 0;
    log_timing(d->autotuner);
    status = autotune_time(d->selection, d->desc, found, count);
    d->selection->spent += cvy_clock() - start;
    d->selection->seconds -= cvy_clock() - start;
    if (status != CVY_OK) {
        cvy_log(CVY_LOG_DEBUG, "%s is not timed: %s", d->key, cvy_error());
        return CVY_OK;
    }
    take_shorter_times(d, found, count);
    *best = best_of(found, count);
    CVY_TRY(remember(d, found, count, *best));
    d->selection->timed++;
    return CVY_OK;
}

/* Prepare all that may run it, time them where that is allowed and there is a question, keep one. */
static cvy_status take_best(struct decision *d)
{
    struct autotune_candidate *found = cvy_calloc(CVY_MAX_CANDIDATES, sizeof *found);
    struct cvy_refusals refusals = {0};
    int32_t count = 0, best = 0;
    cvy_status status;

    if (!found)
        return cvy_fail_memory(CVY_MAX_CANDIDATES * sizeof *found, "the selection of a kernel");
    CVY_GOTO(find_candidates(d, found, &count, &refusals));
    if (count == 0) {
        status = cvy_kernel_select_first(d->device, d->desc, d->plan); /* its sentence has every refusal */
        goto fail;
    }
    if (count > 1)
        CVY_GOTO(measure(d, found, count, &best));
    *d->desc = found[best].desc;
    *d->plan = found[best].plan;
    memset(&found[best].plan, 0, sizeof found[best].plan);
    cvy_refusals_complete(&refusals, d->plan);
fail:
    for (int32_t i = 0; i < count; i++)
        cvy_kernel_release(d->device, &found[i].plan);
    cvy_free(found);
    return status;
}

static cvy_status decide(struct decision *d)
{
    cvy_status status = take_override(d);

    if (status == CVY_UNAVAILABLE)
        status = take_pinned(d);
    if (status == CVY_UNAVAILABLE && !d->autotuner->first)
        status = take_measured(d);
    if (status != CVY_UNAVAILABLE)
        return status;
    if (can_time(d))
        return take_best(d);
    return cvy_kernel_select_first(d->device, d->desc, d->plan);
}

static bool has_candidates(const struct cvy_backend *backend, enum cvy_op op)
{
    for (size_t i = 0; i < backend->kernel_count; i++) {
        if (backend->kernels[i].op == op && backend->kernels[i].candidate)
            return true;
    }
    return false;
}

static cvy_status select_row(cvy_device *device, struct cvy_selection *selection, struct cvy_op_desc *desc,
                             struct cvy_kernel_plan *plan)
{
    struct decision d = {device, device->autotuner, selection, desc, plan, NULL, false};
    const bool candidates = has_candidates(device->backend, desc->op);
    struct cvy_text key = {0};
    cvy_status status;

    /* The check device has the autotuner of the device it checks, which selects for itself. */
    if (!d.autotuner || d.autotuner->backend != device->backend || (!candidates && d.autotuner->override_count == 0))
        return cvy_kernel_select_first(device, desc, plan);
    cvy_autotune_key(desc, device->threads, &key);
    if (key.failed) {
        cvy_text_release(&key);
        return cvy_fail_memory(key.capacity, "the selection of a kernel");
    }
    d.key = key.text;
    pthread_mutex_lock(&d.autotuner->lock);
    status = decide(&d);
    if (status == CVY_OK && candidates && !d.overridden) { /* an override is for one run: it is not kept */
        status = cvy_cache_put(&d.autotuner->used, d.key, plan->kernel->name);
        if (status != CVY_OK)
            cvy_kernel_release(device, plan);
    }
    pthread_mutex_unlock(&d.autotuner->lock);
    cvy_text_release(&key);
    return status;
}

cvy_status cvy_kernel_select(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    return select_row(device, NULL, desc, plan);
}

/* ---- the selections of one plan ---- */

void cvy_selection_begin(struct cvy_selection *selection, cvy_device *device, bool timing, int64_t batch)
{
    const double wanted = 2 + 0.5 * (double)batch;

    *selection = (struct cvy_selection){.device = device, .timing = timing, .seconds = wanted < 20 ? wanted : 20};
}

cvy_status cvy_selection_select(struct cvy_selection *selection, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    selection->seen[desc->op]++;
    return select_row(selection->device, selection, desc, plan);
}

void cvy_selection_end(struct cvy_selection *selection, bool keep)
{
    cvy_device *device = selection->device;

    for (int i = 0; i < CVY_AUTOTUNE_BUFFERS; i++) {
        device->backend->release(device, selection->buffers[i].memory);
        selection->buffers[i] = (struct cvy_autotune_buffer){NULL, 0};
    }
    if (selection->timed > 0)
        cvy_memory_give_back(); /* else up to 64 MiB of the buffers would stay beside the plan that is made next */
    if (!device->autotuner || !keep)
        return;
    if (selection->timed > 0)
        cvy_log(CVY_LOG_DEBUG, "timed the kernels of %d operations in %.1f s", (int)selection->timed, selection->spent);
    pthread_mutex_lock(&device->autotuner->lock);
    cvy_cache_save(&device->autotuner->measured);
    pthread_mutex_unlock(&device->autotuner->lock);
}

cvy_status cvy_selection_fastest(struct cvy_selection *selection, const struct cvy_op_desc *desc, double *seconds,
                                 const char **row)
{
    const struct cvy_backend *backend = selection->device->backend;
    struct autotune_candidate *found = cvy_calloc(CVY_MAX_CANDIDATES, sizeof *found);
    int32_t count = 0;
    cvy_status status = CVY_UNAVAILABLE;

    if (!found)
        return cvy_fail_memory(CVY_MAX_CANDIDATES * sizeof *found, "timing kernels");
    for (size_t i = 0; i < backend->kernel_count && count < CVY_MAX_CANDIDATES; i++) {
        struct autotune_candidate *c = &found[count];
        if (backend->kernels[i].op != desc->op)
            continue;
        *c = (struct autotune_candidate){.row = &backend->kernels[i], .desc = *desc};
        status = cvy_kernel_prepare(selection->device, c->row, &c->desc, &c->plan);
        count += status == CVY_OK;
        if (status != CVY_OK && status != CVY_UNAVAILABLE)
            goto fail;
    }
    status = count > 0 ? autotune_time_alone(selection, found, count)
                       : cvy_fail(CVY_UNAVAILABLE, "no kernel of device %s takes this operation", backend->name);
    for (int32_t i = 0; i < count && status == CVY_OK; i++) {
        if (i == 0 || found[i].seconds < *seconds) {
            *seconds = found[i].seconds;
            *row = found[i].row->name;
        }
    }
fail:
    for (int32_t i = 0; i < count; i++)
        cvy_kernel_release(selection->device, &found[i].plan);
    cvy_free(found);
    return status;
}
