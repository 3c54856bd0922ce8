#include "options.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "convoy/program/program.h"
#include "terminal.h"

static bool help_wanted, all_wanted, quiet_wanted, verbose_wanted;

static const struct option common_options[] = {
    OPT_FLAG("help", 'h', &help_wanted, "print this text"),
    OPT_FLAG("help-all", 0, &all_wanted, NULL), /* shown by the last line of a help text in groups */
    OPT_FLAG("quiet", 'q', &quiet_wanted, "results, warnings and errors only"),
    OPT_FLAG("verbose", 'v', &verbose_wanted, "say more about what is done"),
};
enum { OPTIONS_MAX = 256 }; /* of a table that suggestions are made from */
#define COMMON_COUNT (sizeof(common_options) / sizeof(common_options[0]))

static const struct option *option_at(const struct option_table *table, size_t index)
{
    return index < table->count ? &table->options[index] : &common_options[index - table->count];
}

static size_t option_count(const struct option_table *table)
{
    return table->count + COMMON_COUNT;
}

static bool takes_value(const struct option *option)
{
    return option->kind != OPTION_FLAG && !option->flag;
}

bool option_follows_python(const char *next)
{
    return strcmp(next, "True") == 0 || strcmp(next, "False") == 0;
}

bool option_follows_number(const char *next)
{
    int64_t number;

    return parse_int64(next, INT64_MIN, INT64_MAX, &number);
}

/* ---- numbers ---- */

bool parse_int64(const char *text, int64_t low, int64_t high, int64_t *value)
{
    char *end = NULL;
    if (*text != '-' && *text != '+' && !(*text >= '0' && *text <= '9'))
        return false; /* strtoll would pass over spaces */
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    if (end == text || *end || errno || number < low || number > high)
        return false;
    *value = number;
    return true;
}

bool parse_real(const char *text, double low, double high, double *value)
{
    char *end = NULL;
    if (!*text || text[strspn(text, "0123456789.eE+-")])
        return false; /* neither spaces, hexadecimal, inf nor nan */
    const double number = strtod(text, &end);
    if (end == text || *end || !isfinite(number) || number < low || number > high)
        return false;
    *value = number;
    return true;
}

static bool parse_uint64(const char *text, uint64_t *value)
{
    char *end = NULL;
    if (!(*text >= '0' && *text <= '9'))
        return false;
    errno = 0;
    const unsigned long long number = strtoull(text, &end, 10);
    if (*end || errno)
        return false;
    *value = number;
    return true;
}

static bool parse_flag(const char *text, bool *value)
{
    /* The spellings that cvy_train_options_set() takes. */
    static const char *const yes[] = {"true", "yes", "on", "1"};
    static const char *const no[] = {"false", "no", "off", "0"};
    for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++) {
        if (strcasecmp(text, yes[i]) == 0 || strcasecmp(text, no[i]) == 0) {
            *value = strcasecmp(text, yes[i]) == 0;
            return true;
        }
    }
    return false;
}

/* The index of `text` in "a|b|c", -1 if it is not there. */
static int choice_index(const char *choices, const char *text)
{
    const size_t length = strlen(text);
    for (int index = 0;; index++) {
        const size_t width = strcspn(choices, "|");
        if (width == length && strncmp(choices, text, width) == 0)
            return index;
        if (!choices[width])
            return -1;
        choices += width + 1;
    }
}

/* A batch size: a number, or "auto". */
static bool parse_batch(const char *text, const struct option *option, int *batch)
{
    int64_t value = CVY_BATCH_AUTO;
    if (strcmp(text, "auto") != 0 && !parse_int64(text, (int64_t)option->low, (int64_t)option->high, &value))
        return false;
    *batch = (int)value;
    return true;
}

static bool parse_batch_list(const char *text, const struct option *option, struct int_list *list)
{
    list->count = 0;
    for (;;) {
        char number[32];
        const size_t width = strcspn(text, ",");
        if (width >= sizeof(number) || list->count == INT_LIST_MAX)
            return false;
        memcpy(number, text, width);
        number[width] = 0;
        if (!parse_batch(number, option, &list->value[list->count]))
            return false;
        list->count++;
        if (!text[width])
            return true;
        text += width + 1;
    }
}

/* ---- storing one option ---- */

static cvy_status fail_number(const struct option *option, const char *value, const char *what)
{
    if (option->high >= 2147483647.0)
        return terminal_fail(CVY_USAGE, "option --%s takes %s of at least %.10g, not %s", option->name, what,
                             option->low, quoted(value));
    return terminal_fail(CVY_USAGE, "option --%s takes %s from %.10g to %.10g, not %s", option->name, what, option->low,
                         option->high, quoted(value));
}

static cvy_status fail_choice(const struct option *option, const char *value)
{
    char choices[512];
    const char *names[32], *nearest;
    size_t count = 0;

    snprintf(choices, sizeof(choices), "%s", option->argument);
    for (char *at = choices, *rest; at && count < OPT_COUNT(names); at = rest) {
        rest = strchr(at, '|');
        if (rest)
            *rest++ = '\0';
        names[count++] = at;
    }
    nearest = cvy_nearest_name(value, names, count);
    return terminal_fail(CVY_USAGE, "option --%s is one of %s, not %s%s%s", option->name, option->argument,
                         quoted(value), nearest ? ", perhaps " : "", nearest ? nearest : "");
}

/* `value` is NULL for an option without one. */
static cvy_status store(const struct option_table *table, const struct option *option, const char *value)
{
    switch (option->kind) {
    case OPTION_FLAG:
        if (!value)
            *(bool *)option->value = true;
        else if (!parse_flag(value, option->value))
            return terminal_fail(CVY_USAGE, "option --%s is true or false, not %s", option->name, quoted(value));
        return CVY_OK;
    case OPTION_TEXT:
        if (!*value)
            return terminal_fail(CVY_USAGE, "option --%s needs a value that is not empty", option->name);
        *(const char **)option->value = value;
        return CVY_OK;
    case OPTION_CHOICE: {
        const int index = choice_index(option->argument, value);
        if (index < 0)
            return fail_choice(option, value);
        *(int *)option->value = index;
        return CVY_OK;
    }
    case OPTION_INT: {
        int64_t number = 0;
        if (!parse_int64(value, (int64_t)option->low, (int64_t)option->high, &number))
            return fail_number(option, value, "a whole number");
        *(int *)option->value = (int)number;
        return CVY_OK;
    }
    case OPTION_BATCH:
        if (!parse_batch(value, option, option->value))
            return fail_number(option, value, "auto or a whole number");
        return CVY_OK;
    case OPTION_UINT64:
        if (!parse_uint64(value, option->value))
            return terminal_fail(CVY_USAGE, "option --%s takes a whole number of at least 0, not %s", option->name,
                                 quoted(value));
        return CVY_OK;
    case OPTION_REAL:
        if (!parse_real(value, option->low, option->high, option->value))
            return fail_number(option, value, "a number");
        return CVY_OK;
    case OPTION_BATCH_LIST:
        if (!parse_batch_list(value, option, option->value))
            return fail_number(option, value, "whole numbers (or auto) separated by commas,");
        return CVY_OK;
    case OPTION_FORWARD:
        return table->forward(table->context, option->name, value);
    }
    return CVY_OK;
}

/* ---- finding options ---- */

/* Compare with hyphens for underscores: 0 different, 1 `text` is a prefix of `name`, 2 equal. */
static int match(const char *name, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (name[i] != (text[i] == '_' ? '-' : text[i])) /* the end of the name differs from any letter */
            return 0;
    return name[length] ? 1 : 2;
}

static cvy_status fail_unknown(const struct option_table *table, const char *text, size_t length)
{
    const char *names[OPTIONS_MAX], *nearest = NULL;
    size_t count = 0;
    char name[128];
    snprintf(name, sizeof(name), "%.*s", (int)(length < 100 ? length : 100), text);
    for (size_t i = 0; i < option_count(table) && count < OPTIONS_MAX; i++)
        if (option_at(table, i)->help)
            names[count++] = option_at(table, i)->name;
    if (length > 4) /* two hyphens, and enough letters to tell */
        nearest = cvy_nearest_name(name + 2, names, count);
    return terminal_fail(CVY_USAGE, "unknown option %s%s%s (convoy%s%s --help%s lists the options)", quoted(name),
                         nearest ? ", perhaps --" : "", nearest ? nearest : "", *table->verb ? " " : "", table->verb,
                         table->groups ? "-all" : "");
}

/* `text` is what follows the two hyphens, `length` its part before '='. */
static cvy_status find_long(const struct option_table *table, const char *text, size_t length,
                            const struct option **found)
{
    char others[512] = "";
    int candidates = 0;
    *found = NULL;
    for (size_t i = 0; i < option_count(table) && length > 0; i++) {
        const struct option *option = option_at(table, i);
        const int by_name = match(option->name, text, length);
        const int by_alias = option->alias ? match(option->alias, text, length) : 0;
        if (by_name == 2 || by_alias == 2) {
            *found = option;
            return CVY_OK;
        }
        if ((by_name || by_alias) && option->help) {
            const size_t used = strlen(others);
            snprintf(others + used, sizeof(others) - used, "%s--%s", candidates ? ", " : "", option->name);
            *found = option;
            candidates++;
        }
    }
    if (candidates == 1)
        return CVY_OK;
    if (candidates > 1)
        return terminal_fail(CVY_USAGE, "option \"--%.*s\" is ambiguous: %s", (int)length, text, others);
    return fail_unknown(table, text - 2, length + 2);
}

static cvy_status find_letter(const struct option_table *table, char letter, const struct option **found)
{
    for (size_t i = 0; i < option_count(table); i++) {
        *found = option_at(table, i);
        if ((*found)->letter == letter && letter)
            return CVY_OK;
    }
    const char name[] = {'-', letter};
    return fail_unknown(table, name, 2);
}

/* ---- the walk over argv ---- */

struct walk {
    const struct option_table *table;
    int argc, at; /* argv[at] is the next argument */
    char **argv;
};

/* The value in the next argument. Something that looks like an option is not taken for a value; negative numbers are.
 */
static cvy_status next_value(struct walk *walk, const struct option *option, const char **value)
{
    const char *text = walk->at < walk->argc ? walk->argv[walk->at] : NULL;
    const bool is_option = text && text[0] == '-' && text[1] && !(text[1] >= '0' && text[1] <= '9') && text[1] != '.';
    if (!text || is_option)
        return terminal_fail(CVY_USAGE, "option --%s needs a value (%s)", option->name,
                             option->argument ? option->argument : "text");
    *value = text;
    walk->at++;
    return CVY_OK;
}

static cvy_status parse_long(struct walk *walk, const char *text)
{
    const struct option *option = NULL;
    const size_t length = strcspn(text, "=");
    const char *value = text[length] ? text + length + 1 : NULL;
    cvy_status status = find_long(walk->table, text, length, &option);
    if (status == CVY_OK && !value && option->follows) {
        if (walk->at < walk->argc && option->follows(walk->argv[walk->at]))
            value = walk->argv[walk->at++];
    } else if (status == CVY_OK && !value && takes_value(option)) {
        status = next_value(walk, option, &value);
    }
    return status == CVY_OK ? store(walk->table, option, value) : status;
}

/* "-b8", "-b 8", "-b=8", and flags in a row: "-qv". */
static cvy_status parse_letters(struct walk *walk, const char *text)
{
    for (; *text; text++) {
        const struct option *option = NULL;
        const char *value = text[1] == '=' ? text + 2 : text + 1;
        cvy_status status = find_letter(walk->table, *text, &option);
        if (status != CVY_OK)
            return status;
        if (takes_value(option)) {
            if (!text[1])
                status = next_value(walk, option, &value);
            return status == CVY_OK ? store(walk->table, option, value) : status;
        }
        status = store(walk->table, option, NULL);
        if (status != CVY_OK)
            return status;
    }
    return CVY_OK;
}

static cvy_status check_argument_count(const struct option_table *table, const struct arguments *arguments)
{
    if (arguments->count < table->min_arguments)
        return terminal_fail(CVY_USAGE, "%s needs %s (convoy %s --help says more)", table->verb, table->arguments,
                             table->verb);
    if (table->max_arguments >= 0 && arguments->count > table->max_arguments)
        return terminal_fail(CVY_USAGE, "%s does not take the argument %s (convoy %s --help says more)", table->verb,
                             quoted(arguments->value[table->max_arguments]), table->verb);
    return CVY_OK;
}

cvy_status options_parse(const struct option_table *table, int argc, char **argv, struct arguments *arguments)
{
    struct walk walk = {table, argc, 0, argv};
    bool only_arguments = false;

    *arguments = (struct arguments){argv, 0, false};
    help_wanted = all_wanted = quiet_wanted = verbose_wanted = false;
    while (walk.at < argc) {
        char *text = argv[walk.at++];
        cvy_status status = CVY_OK;
        if (only_arguments || text[0] != '-' || !text[1])
            arguments->value[arguments->count++] = text;
        else if (strcmp(text, "--") == 0)
            only_arguments = true;
        else if (text[1] == '-')
            status = parse_long(&walk, text + 2);
        else
            status = parse_letters(&walk, text + 1);
        if (status != CVY_OK)
            return status;
    }
    if (quiet_wanted || verbose_wanted)
        terminal_set_verbosity(verbose_wanted ? VERBOSE : QUIET);
    arguments->help = help_wanted || all_wanted;
    return arguments->help ? CVY_OK : check_argument_count(table, arguments);
}

/* ---- help ---- */

/* "  -b, --batch-size N" */
static int print_names(const struct option *option)
{
    int width = option->letter ? printf("  -%c, ", option->letter) : printf("      ");
    width += printf("--%s", option->name);
    if (option->alias)
        width += printf(", --%s", option->alias);
    if (option->argument && takes_value(option))
        width += printf(" %s", option->argument);
    return width;
}

/* Words of `text` from column `indent` to column 100; the cursor stands at column `at`. */
static void print_wrapped(const char *text, int at, int indent)
{
    if (at >= indent) {
        putchar('\n');
        at = 0;
    }
    at += printf("%*s", indent - at, "");
    while (*text) {
        const int width = (int)strcspn(text, " ");
        if (at > indent && at + 1 + width > 100) {
            printf("\n%*s", indent, "");
            at = indent;
        }
        at += printf("%s%.*s", at > indent ? " " : "", width, text);
        text += width;
        text += strspn(text, " ");
    }
    putchar('\n');
}

/* `heading`: NULL for none. Nothing of a group without options. */
static void print_group(const struct option_table *table, int group, const char *heading)
{
    for (size_t i = 0; i < option_count(table); i++) {
        const struct option *option = option_at(table, i);
        if (!option->help || option->group != group)
            continue;
        if (heading)
            printf("\n%s:\n", heading);
        heading = NULL;
        print_wrapped(option->help, print_names(option), 36);
    }
}

static void print_help(const struct option_table *table)
{
    int more = 0;
    printf("usage: convoy %s%s%s [options]\n\n%s\n\noptions:\n", table->verb, *table->arguments ? " " : "",
           table->arguments, table->summary);
    print_group(table, 0, NULL);
    for (int group = 1; all_wanted && table->groups && table->groups[group - 1]; group++)
        print_group(table, group, table->groups[group - 1]);
    for (size_t i = 0; i < option_count(table); i++)
        more += option_at(table, i)->help && option_at(table, i)->group > 0;
    if (table->groups && !all_wanted)
        printf("\nconvoy %s --help-all lists the other %d\n", table->verb, more);
}

static options_describe describe; /* NULL: help is printed */
static void *describe_context;

void options_set_describe(options_describe function, void *context)
{
    describe = function;
    describe_context = context;
}

const struct option *options_at(const struct option_table *table, size_t index)
{
    return index < option_count(table) ? option_at(table, index) : NULL;
}

bool options_take_value(const struct option *option)
{
    return takes_value(option);
}

bool options_begin(const struct option_table *table, int argc, char **argv, struct arguments *arguments,
                   cvy_status *status)
{
    *status = options_parse(table, argc, argv, arguments);
    if (*status == CVY_OK && arguments->help && describe)
        describe(describe_context, table);
    else if (*status == CVY_OK && arguments->help)
        print_help(table);
    return *status == CVY_OK && !arguments->help;
}
