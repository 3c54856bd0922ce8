#include "answers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "terminal.h"

void bad_files_add(struct bad_files *bad, cvy_status status, const char *error)
{
    if (bad->first == CVY_OK)
        bad->first = status;
    if (bad->count == bad->capacity) {
        const size_t capacity = bad->capacity ? 2 * bad->capacity : 16;
        char **errors = realloc(bad->errors, capacity * sizeof(*errors));
        if (!errors) {
            bad->out_of_memory = true;
            return;
        }
        bad->errors = errors;
        bad->capacity = capacity;
    }
    char *text = strdup(error ? error : "unreadable");
    if (text)
        bad->errors[bad->count++] = text;
    else
        bad->out_of_memory = true;
}

cvy_status bad_files_end(struct bad_files *bad, cvy_status status, const char *doing)
{
    terminal_clear_progress();
    for (size_t i = 0; i < bad->count; i++)
        terminal_fail(bad->first, "%s", bad->errors[i]);
    if (bad->out_of_memory)
        status = terminal_fail(CVY_NO_MEMORY, "out of memory while %s", doing);
    else if (status != CVY_OK && (bad->count == 0 || status != bad->first))
        status = terminal_fail_library(status); /* else it is the first bad file's, already told */
    for (size_t i = 0; i < bad->count; i++)
        free(bad->errors[i]);
    free(bad->errors);
    *bad = (struct bad_files){0};
    return status;
}

void print_csv_field(const char *text)
{
    const bool formula = text[0] && strchr("=+-@\t\r", text[0]);

    if (!text[strcspn(text, ",\"\r\n")]) {
        printf("%s%s", formula ? "'" : "", text);
        return;
    }
    fputs(formula ? "\"'" : "\"", stdout);
    for (; *text; text++) {
        if (*text == '"')
            putchar('"');
        putchar(*text);
    }
    putchar('"');
}
