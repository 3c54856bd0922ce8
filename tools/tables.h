/* The option tables of all verbs, for what is made from them: completion and manual pages. */
#ifndef TOOLS_TABLES_H
#define TOOLS_TABLES_H

#include "options.h"
#include "verbs.h"

/* One command: a verb, or a verb with one of its kinds. */
struct command {
    const struct verb *verb;
    const char *kind; /* "" where the verb has none */
    const struct option_table *table;
};
typedef void (*command_handler)(void *context, const struct command *command);
/* Calls the handler for each command; of verb `only` alone where that is not NULL. What it is given lives during the
 * call. */
CVY_CHECKED cvy_status tables_walk(const char *only, command_handler handler, void *context);

/* The words that the value of an option may be, separated by blanks; "" where it may be anything. Returns buffer. */
const char *option_words(const struct option *option, char *buffer, size_t size);
/* Whether a file or folder is what is asked for: "FILE", "DIR", "IMAGE|DIR...". */
bool is_file_argument(const char *argument);

#endif
