/* What the cache keeps for an operation with candidates:
 *
 *   <operation> TAB <row> TAB <row>=<nanoseconds> TAB <row>=-
 *
 * the row that was chosen for it (cvy_autotune_key), then every candidate in the table's order with its shortest time,
 * or
 * - where it refused. */
#include <string.h>

#include "backend/autotune_internal.h"

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

void autotune_write(const struct autotune_measurement *entry, struct cvy_text *value)
{
    cvy_text_puts(value, entry->candidates[entry->chosen].row);
    for (int32_t i = 0; i < entry->count; i++) {
        cvy_text_printf(value, "\t%s=", entry->candidates[i].row);
        if (entry->candidates[i].nanoseconds < 0)
            cvy_text_puts(value, "-");
        else
            cvy_text_printf(value, "%lld", (long long)entry->candidates[i].nanoseconds);
    }
}
