/* What is kept of a choice between rivals:
 *
 *   <operation> TAB <row> TAB <row>=<nanoseconds> TAB <row>=-
 *
 * the row that was chosen for it (cvy_choice_key), then every rival in the table's order with its shortest time, or -
 * where it refused. */
#include <string.h>

#include "backend/choice_internal.h"

/* "cpu.conv2d=1200345" or "cpu.conv2d=-"; *at is moved behind it. */
static bool read_candidate(const char **at, struct choice_candidate *candidate)
{
    const size_t length = strcspn(*at, "=\t");

    *candidate = (struct choice_candidate){*at, (int)length, -1};
    if (length == 0 || (*at)[length] != '=')
        return false;
    *at += length + 1;
    if (**at == '-')
        ++*at;
    else if (!cvy_cache_number(at, INT64_MAX, &candidate->nanoseconds))
        return false;
    return **at == '\t' || **at == '\0';
}

bool choice_read(const char *value, struct choice_entry *entry)
{
    const size_t length = strcspn(value, "\t");

    *entry = (struct choice_entry){.chosen = -1};
    for (const char *at = value + length; *at; entry->count++) {
        struct choice_candidate *candidate = &entry->candidates[entry->count];
        at++;
        if (entry->count == CVY_MAX_RIVALS || !read_candidate(&at, candidate))
            return false;
        if ((size_t)candidate->length == length && memcmp(candidate->row, value, length) == 0 &&
            candidate->nanoseconds >= 0)
            entry->chosen = entry->count;
    }
    return entry->chosen >= 0;
}

static bool can_be_read(const char *value)
{
    struct choice_entry entry;

    return choice_read(value, &entry);
}

const struct cvy_cache_kind choice_cache = {"# convoy kernels 1", "kernels", can_be_read};

void choice_write(const struct choice_entry *entry, struct cvy_text *value)
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
