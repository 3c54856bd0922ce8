/* Tables of choices, and the file that keeps what was measured. One file for each device, version and settings:
 *
 *   # convoy kernels 1
 *   # AMD EPYC 9V74 80-Core Processor, avx512, oneDNN 2.6.3; convoy 0.1.0; CONVOY_CPU_WINOGRAD=auto
 *   <operation> TAB <row> TAB <row>=<nanoseconds> TAB <row>=-
 *
 * one line for each operation (cvy_choice_key): the row that was chosen, then every rival in the table's order with its
 * shortest time, or - where it refused. It is only ever replaced as a whole, under a lock beside it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/choice_internal.h"
#include "base/cache.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

static const char first_line[] = "# convoy kernels 1";
enum { FILE_LIMIT = 8 << 20 };

/* ---- tables ---- */

/* Where `key` is, or belongs. */
static int32_t position_of(const struct choice_table *table, const char *key)
{
    int32_t low = 0, high = table->count;

    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (strcmp(table->choices[middle].key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct choice *choice_find(const struct choice_table *table, const char *key)
{
    const int32_t at = position_of(table, key);

    return at < table->count && strcmp(table->choices[at].key, key) == 0 ? &table->choices[at] : NULL;
}

struct choice *choice_add(struct choice_table *table, struct cvy_arena *arena, const char *key)
{
    const int32_t at = position_of(table, key);
    const char *kept;

    if (at < table->count && strcmp(table->choices[at].key, key) == 0)
        return &table->choices[at];
    if (table->count == table->room) {
        const int32_t room = table->room ? 2 * table->room : 64;
        struct choice *larger = cvy_realloc(table->choices, (size_t)room, sizeof *larger);
        if (!larger)
            return NULL;
        table->choices = larger;
        table->room = room;
    }
    kept = cvy_arena_strdup(arena, key);
    if (!kept)
        return NULL;
    memmove(&table->choices[at + 1], &table->choices[at], (size_t)(table->count - at) * sizeof *table->choices);
    table->choices[at] = (struct choice){.key = kept};
    table->count++;
    return &table->choices[at];
}

cvy_status choice_path(const char *backend, const char *identity, char **path)
{
    char kind[64];

    snprintf(kind, sizeof kind, "kernels-%s", backend);
    return cvy_cache_path(kind, identity, path);
}

/* ---- reading ---- */

/* Cuts the text at the first `separator`; *rest is behind it, NULL at the end. */
static char *cut(char *text, char separator, char **rest)
{
    char *end = strchr(text, separator);

    if (end)
        *end = '\0';
    *rest = end ? end + 1 : NULL;
    return text;
}

/* "cpu.conv2d=1200345" or "cpu.conv2d=-" */
static bool read_candidate(char *text, struct cvy_arena *arena, struct choice_candidate *candidate)
{
    char *number, *end;
    const char *row = cut(text, '=', &number);

    if (!row[0] || !number || !number[0])
        return false;
    candidate->row = cvy_arena_strdup(arena, row);
    candidate->nanoseconds = -1;
    if (strcmp(number, "-") == 0)
        return candidate->row != NULL;
    errno = 0;
    candidate->nanoseconds = number[0] >= '0' && number[0] <= '9' ? strtoll(number, &end, 10) : -1;
    return candidate->row && candidate->nanoseconds >= 0 && errno == 0 && *end == '\0';
}

/* Key, row, candidates; the row must be one of them that did not refuse. */
static bool read_line(char *line, struct cvy_arena *arena, const char **key, struct choice *choice)
{
    struct choice_candidate found[CVY_MAX_RIVALS];
    char *rest, *row;
    int32_t count = 0;
    bool good = false;

    *key = cut(line, '\t', &rest);
    if (!(*key)[0] || !rest)
        return false;
    row = cut(rest, '\t', &rest);
    while (rest && count < CVY_MAX_RIVALS) {
        if (!read_candidate(cut(rest, '\t', &rest), arena, &found[count]))
            return false;
        good = good || (strcmp(found[count].row, row) == 0 && found[count].nanoseconds >= 0);
        count++;
    }
    if (!good || rest)
        return false;
    choice->row = cvy_arena_strdup(arena, row);
    choice->candidates = cvy_arena_alloc(arena, (size_t)count * sizeof *choice->candidates);
    choice->candidate_count = count;
    if (!choice->row || !choice->candidates)
        return false;
    memcpy(choice->candidates, found, (size_t)count * sizeof *found);
    return true;
}

/* All lines into the table, or false: the text is none of ours. What is there already stays. */
static bool read_lines(struct cvy_choices *choices, char *text, struct choice_table *table)
{
    char *rest = text, *identity;

    if (strcmp(cut(rest, '\n', &rest), first_line) != 0 || !rest)
        return false;
    identity = cut(rest, '\n', &rest);
    if (strncmp(identity, "# ", 2) != 0 || strcmp(identity + 2, choices->identity) != 0 || !rest)
        return false;
    while (*rest) {
        struct choice read = {0}, *made;
        const char *key;
        char *line = cut(rest, '\n', &rest);
        if (!rest || !read_line(line, &choices->arena, &key, &read))
            return false;
        made = choice_add(table, &choices->arena, key);
        if (!made)
            return false;
        if (!made->row) {
            read.key = made->key;
            *made = read;
        }
    }
    return true;
}

/* The file into the table; true also where there is none. */
static bool read_file(struct cvy_choices *choices, struct choice_table *table)
{
    void *data = NULL;
    size_t size = 0;
    bool good;

    if (!cvy_path_exists(choices->path))
        return true;
    good = cvy_file_read(choices->path, FILE_LIMIT, &data, &size) == CVY_OK;
    if (!good) {
        cvy_log(CVY_LOG_WARNING, "the kept choices of kernels cannot be read: %s", cvy_error());
        return false;
    }
    good = strlen(data) == size && read_lines(choices, data, table);
    cvy_free(data);
    if (!good)
        cvy_log(CVY_LOG_WARNING, "%s is damaged: the kernels are timed again", cvy_quote(choices->path));
    return good;
}

void choice_load(struct cvy_choices *choices)
{
    struct choice_table found = {0};

    if (choices->loaded || !choices->path)
        return;
    choices->loaded = true;
    if (read_file(choices, &found)) { /* all of it or nothing */
        cvy_free(choices->measured.choices);
        choices->measured = found;
    } else {
        cvy_free(found.choices);
    }
}

/* ---- writing ---- */

static void write_lines(const struct cvy_choices *choices, struct cvy_text *text)
{
    cvy_text_printf(text, "%s\n# %s\n", first_line, choices->identity);
    for (int32_t i = 0; i < choices->measured.count; i++) {
        const struct choice *choice = &choices->measured.choices[i];
        if (!choice->row) /* there was no memory for it */
            continue;
        cvy_text_printf(text, "%s\t%s", choice->key, choice->row);
        for (int32_t c = 0; c < choice->candidate_count; c++) {
            const struct choice_candidate *candidate = &choice->candidates[c];
            cvy_text_printf(text, "\t%s=", candidate->row);
            if (candidate->nanoseconds < 0)
                cvy_text_puts(text, "-");
            else
                cvy_text_printf(text, "%lld", (long long)candidate->nanoseconds);
        }
        cvy_text_puts(text, "\n");
    }
}

static cvy_status write_file(struct cvy_choices *choices)
{
    struct cvy_text text = {0};
    cvy_status status;
    int lock;

    CVY_TRY(cvy_cache_lock(choices->path, &lock));
    if (!read_file(choices, &choices->measured)) /* what others measured meanwhile */
        cvy_log(CVY_LOG_DEBUG, "%s is replaced", cvy_quote(choices->path));
    write_lines(choices, &text);
    status = text.failed ? cvy_fail_memory(text.capacity, "the choices of kernels")
                         : cvy_file_replace(choices->path, text.text, text.length);
    cvy_cache_unlock(lock);
    cvy_text_release(&text);
    return status;
}

void choice_save(struct cvy_choices *choices)
{
    if (!choices->changed)
        return;
    choices->changed = false;
    if (!choices->path)
        cvy_log(CVY_LOG_DEBUG, "the times of the kernels are not kept: neither CONVOY_CACHE_DIR nor HOME is set");
    else if (write_file(choices) != CVY_OK)
        cvy_log(CVY_LOG_WARNING, "the times of the kernels are not kept: %s", cvy_error());
}
