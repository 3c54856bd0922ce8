/* The option parser that all verbs share. Accepted: --name value, --name=value, -b value, -b8, underscores for hyphens,
 * unique prefixes of names, options and other arguments in any order, and `--` before arguments that begin with a
 * hyphen. A mistake is one sentence that names the option (CVY_USAGE). */
#ifndef TOOLS_OPTIONS_H
#define TOOLS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "convoy/status.h"

enum option_kind {
    OPTION_FLAG,       /* bool: no value needed; =true and =false are understood */
    OPTION_TEXT,       /* const char *: points into argv */
    OPTION_CHOICE,     /* int: index in the "a|b|c" of `argument` */
    OPTION_INT,        /* int, between `low` and `high` */
    OPTION_BATCH,      /* the same, or "auto": CVY_BATCH_AUTO */
    OPTION_UINT64,     /* uint64_t */
    OPTION_REAL,       /* double, between `low` and `high` */
    OPTION_BATCH_LIST, /* struct int_list: comma separated, each as OPTION_BATCH */
    OPTION_FORWARD     /* the value goes to `forward`, which checks it and says what is wrong */
};

#define INT_LIST_MAX 64
struct int_list {
    int value[INT_LIST_MAX];
    int count;
};

struct option {
    const char *name;  /* "batch-size" */
    const char *alias; /* another name, or NULL */
    char letter;       /* 'b', or 0 */
    bool flag;         /* OPTION_FORWARD: takes no value (forwarded as NULL) */
    enum option_kind kind;
    void *value;          /* what the kind says; unused by OPTION_FORWARD */
    const char *argument; /* "N", "FILE", "text|json"; NULL for flags */
    const char *help;     /* one line; NULL: not shown, and not found by a prefix */
    double low, high;     /* limits of numbers */
    int group;            /* of the table's `groups`, from 1; 0: shown without --help-all too */
    /* OPTION_FORWARD that may stand alone (forwarded as NULL): whether the next argument is its value. NULL: a flag has
     * none, others need one. */
    bool (*follows)(const char *next);
};

/* True or False, as Python spells them; a whole number. */
bool option_follows_python(const char *next);
bool option_follows_number(const char *next);

/* Rows of a table, with the letter or 0: an option of each kind. */
#define OPT_FLAG(name, letter, value, help)                                                                            \
    {                                                                                                                  \
        name, NULL, letter, false, OPTION_FLAG, value, NULL, help, 0, 0, 0, NULL                                       \
    }
#define OPT_TEXT(name, letter, value, argument, help)                                                                  \
    {                                                                                                                  \
        name, NULL, letter, false, OPTION_TEXT, value, argument, help, 0, 0, 0, NULL                                   \
    }
#define OPT_CHOICE(name, letter, value, argument, help)                                                                \
    {                                                                                                                  \
        name, NULL, letter, false, OPTION_CHOICE, value, argument, help, 0, 0, 0, NULL                                 \
    }
#define OPT_UINT64(name, letter, value, argument, help)                                                                \
    {                                                                                                                  \
        name, NULL, letter, false, OPTION_UINT64, value, argument, help, 0, 0, 0, NULL                                 \
    }
#define OPT_INT(name, letter, value, argument, help, low, high)                                                        \
    {                                                                                                                  \
        name, NULL, letter, false, OPTION_INT, value, argument, help, low, high, 0, NULL                               \
    }
#define OPT_REAL(name, letter, value, argument, help, low, high)                                                       \
    {                                                                                                                  \
        name, NULL, letter, false, OPTION_REAL, value, argument, help, low, high, 0, NULL                              \
    }
#define OPT_BATCH(name, letter, value, argument, help, low, high)                                                      \
    {                                                                                                                  \
        name, NULL, letter, false, OPTION_BATCH, value, argument, help, low, high, 0, NULL                             \
    }
#define OPT_BATCH_LIST(name, letter, value, argument, help, low, high)                                                 \
    {                                                                                                                  \
        name, NULL, letter, false, OPTION_BATCH_LIST, value, argument, help, low, high, 0, NULL                        \
    }
#define OPT_COUNT(rows) (sizeof(rows) / sizeof((rows)[0]))

struct option_table {
    const char *verb;      /* for messages: "train"; "" for the program itself */
    const char *arguments; /* "DIR", "IMAGE|DIR..."; what follows the verb in the usage line */
    const char *summary;   /* what the verb does, in one or more lines */
    const struct option *options;
    size_t count;
    /* Headings of groups of options, ended by NULL. --help then shows those of group 0 alone, and --help-all all. NULL:
     * there are no groups. */
    const char *const *groups;
    int min_arguments, max_arguments; /* how many arguments besides options; max < 0: any number */
    cvy_status (*forward)(void *context, const char *name, const char *value);
    void *context;
};

/* What a parse found. */
struct arguments {
    char **value; /* the arguments that are not options, in order: the front of argv, which is reordered */
    int count;
    bool help; /* --help was given: see options_begin */
};

/* argv holds the arguments alone (neither program nor verb). -h/--help, -q/--quiet and -v/--verbose belong to every
 * verb and are handled here. */
CVY_CHECKED cvy_status options_parse(const struct option_table *table, int argc, char **argv,
                                     struct arguments *arguments);
/* What every verb begins with: false when it ends here, with *status, after a mistake or after printing its help (usage
 * line, summary and options on stdout). */
CVY_CHECKED bool options_begin(const struct option_table *table, int argc, char **argv, struct arguments *arguments,
                               cvy_status *status);

/* For what is made from the tables: while a function is set, --help of a verb hands it the verb's table instead of
 * printing it. NULL: help is printed. */
typedef void (*options_describe)(void *context, const struct option_table *table);
void options_set_describe(options_describe function, void *context);
/* The options of a table and those of every verb; NULL past the end. Those without a help text are not shown. */
const struct option *options_at(const struct option_table *table, size_t index);
bool options_take_value(const struct option *option);

/* A whole decimal number within limits, or a decimal fraction; false for anything else, rest included. */
bool parse_int64(const char *text, int64_t low, int64_t high, int64_t *value);
bool parse_real(const char *text, double low, double high, double *value);

#endif
