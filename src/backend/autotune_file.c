/* What the cache keeps for an operation with candidates:
 *
 *   <operation> TAB <row> TAB <row>=<nanoseconds> TAB <row>=-  [TAB busy=<times>]
 *
 * the row that was chosen for it (cvy_autotune_key), then every candidate in the table's order with its shortest time,
 * or
 * - where it refused; busy: other programs ran each time that it was timed. */
#include <string.h>

#include "backend/autotune_internal.h"
#include "base/error.h"
#include "base/log.h"

/* "cpu.conv2d=1200345" or "cpu.conv2d=-"; *at is moved after it. */
static bool read_candidate(const char **at, struct autotune_timing *candidate)
{
    const size_t length = strcspn(*at, "=\t");

    *candidate = (struct autotune_timing){*at, (int)length, -1};
    if (length == 0 || (*at)[length] != '=')
        return false;
    *at += length + 1;
    if (**at == '-')
        ++*at;
    else if (!cvy_cache_number(at, INT64_MAX, &candidate->nanoseconds))
        return false;
    return **at == '\t' || **at == '\0';
}

bool autotune_read(const char *value, struct autotune_measurement *entry)
{
    const size_t length = strcspn(value, "\t");

    *entry = (struct autotune_measurement){.chosen = -1};
    for (const char *at = value + length; *at; entry->count++) {
        struct autotune_timing *candidate = &entry->candidates[entry->count];
        at++;
        if (strncmp(at, "busy=", 5) == 0) {
            at += 5;
            if (!cvy_cache_number(&at, 1000, &entry->busy) || *at)
                return false;
            break;
        }
        if (entry->count == CVY_MAX_CANDIDATES || !read_candidate(&at, candidate))
            return false;
        if ((size_t)candidate->length == length && memcmp(candidate->row, value, length) == 0 &&
            candidate->nanoseconds >= 0)
            entry->chosen = entry->count;
    }
    return entry->chosen >= 0;
}

static bool can_be_read(const char *value)
{
    struct autotune_measurement entry;

    return autotune_read(value, &entry);
}

const struct cvy_cache_kind autotune_cache = {"# convoy kernels 1", "kernels", can_be_read};

static void write_entry(const struct autotune_measurement *entry, struct cvy_text *value)
{
    cvy_text_puts(value, entry->candidates[entry->chosen].row);
    for (int32_t i = 0; i < entry->count; i++) {
        cvy_text_printf(value, "\t%s=", entry->candidates[i].row);
        if (entry->candidates[i].nanoseconds < 0)
            cvy_text_puts(value, "-");
        else
            cvy_text_printf(value, "%lld", (long long)entry->candidates[i].nanoseconds);
    }
    if (entry->busy)
        cvy_text_printf(value, "\tbusy=%lld", (long long)entry->busy);
}

bool autotune_is_stale(const struct cvy_autotuner *autotuner, const char *key, const struct autotune_measurement *entry)
{
    return entry->busy > 0 && entry->busy < CVY_AUTOTUNE_TRIES && !autotuner->once && !autotuner->frozen &&
           !cvy_cache_find(&autotuner->timed_here, key);
}

static void log_load(struct cvy_autotuner *autotuner)
{
    if (autotuner->logged_load || autotuner->once)
        return;
    autotuner->logged_load = true;
    cvy_log(CVY_LOG_INFO, "other programs ran meanwhile: what could not be timed well is timed again next time");
}

cvy_status autotune_keep(struct cvy_autotuner *autotuner, const char *key, struct autotune_measurement *entry,
                         bool clean)
{
    const char *kept = cvy_cache_find(&autotuner->measured.table, key);
    struct autotune_measurement before = {.busy = 0};
    struct cvy_text value = {0};
    cvy_status status;

    entry->busy = 0;
    if (!clean && !autotuner->once) {
        entry->busy = (kept && autotune_read(kept, &before) ? before.busy : 0) + 1;
        log_load(autotuner);
    }
    write_entry(entry, &value);
    status = value.failed ? cvy_fail_memory(value.capacity, "the autotuner of kernels")
                          : cvy_cache_add(&autotuner->measured, key, value.text);
    cvy_text_release(&value);
    return status == CVY_OK ? cvy_cache_put(&autotuner->timed_here, key, "") : status;
}
