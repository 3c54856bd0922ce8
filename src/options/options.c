/* Options by name: found, set within their limits, and printed. The table is in option_table.c. */
#include "options/options.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/nearest.h"
#include "base/utf8.h"
#include "models/models.h"
#include "options/option_table.h"

const struct cvy_option_info *cvy_train_option_at(size_t index)
{
    const struct cvy_option_row *row = cvy_option_row_at(index);

    return row ? &row->info : NULL;
}

enum cvy_option_group cvy_option_group_of(size_t index)
{
    return cvy_option_row_at(index)->group;
}

bool cvy_has_class_weights(const struct cvy_train_options *options)
{
    return strcmp(options->class_weights, "none") != 0;
}

/* ---- finding ---- */

/* Compare as option names: underscores are hyphens. `length` characters of `name`; all of `full` when `whole`. */
static bool same_name(const char *full, const char *name, size_t length, bool whole)
{
    for (size_t i = 0; i < length; i++) {
        const char c = name[i] == '_' ? '-' : name[i];
        if (full[i] != c)
            return false;
    }
    return !whole || full[length] == '\0';
}

static int find_exact(const char *name, size_t length)
{
    const struct cvy_option_row *row;

    for (int i = 0; (row = cvy_option_row_at((size_t)i)) != NULL; i++) {
        const struct cvy_option_info *info = &row->info;
        if (same_name(info->name, name, length, true) || (info->alias && same_name(info->alias, name, length, true)))
            return i;
        if (length == 1 && info->letter != 0 && info->letter == name[0])
            return i;
    }
    return -1;
}

const char *cvy_network_name(size_t index)
{
    const struct cvy_architecture *architecture = cvy_architecture_at(index);

    return architecture ? architecture->name : NULL;
}

const char *const *cvy_train_option_choices(size_t index)
{
    const struct cvy_option_row *row = cvy_option_row_at(index);

    return row ? row->choices : NULL;
}

int cvy_train_option_find(const char *name)
{
    if (!name) {
        (void)cvy_fail(CVY_USAGE, "an option has no name");
        return -1;
    }
    const struct cvy_option_row *row;
    const size_t length = strlen(name);
    int found = -1;

    if (length > 0)
        found = find_exact(name, length);
    if (found >= 0)
        return found;
    for (int i = 0; length > 0 && (row = cvy_option_row_at((size_t)i)) != NULL; i++) {
        const struct cvy_option_info *info = &row->info;
        if (!same_name(info->name, name, length, false) &&
            !(info->alias && same_name(info->alias, name, length, false)))
            continue;
        if (found >= 0) {
            cvy_status status = cvy_fail(CVY_USAGE, "option %s may be --%s or --%s", cvy_quote(name),
                                         cvy_option_row_at((size_t)found)->info.name, info->name);
            (void)status;
            return -1;
        }
        found = i;
    }
    if (found < 0) {
        struct cvy_nearest nearest = cvy_nearest_begin(name);
        for (size_t i = 0; (row = cvy_option_row_at(i)) != NULL; i++)
            cvy_nearest_offer(&nearest, row->info.name);
        cvy_status status = cvy_fail(CVY_USAGE, "unknown option %s%s", cvy_quote(name), cvy_nearest_text(&nearest));
        (void)status;
    }
    return found;
}

enum cvy_option_source cvy_option_source_of(const struct cvy_train_options *options, const char *name)
{
    const int index = find_exact(name, strlen(name));

    return index < 0 ? CVY_FROM_DEFAULT : (enum cvy_option_source)options->source[index];
}

const char *cvy_option_first_given(const struct cvy_train_options *options, const char *const *names)
{
    for (; *names; names++)
        if (cvy_option_source_of(options, *names) == CVY_FROM_FLAG)
            return *names;
    return NULL;
}

bool cvy_options_are_whole(const struct cvy_train_options *options)
{
    static const char *const names[] = {"arch",     "epochs",       "batch-size",     "lr", "lr-schedule", "warmup",
                                        "momentum", "weight-decay", "label-smoothing"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (cvy_option_source_of(options, names[i]) != CVY_FROM_FLAG)
            return false;
    }
    return options->batch_size != CVY_BATCH_AUTO;
}

/* ---- values ---- */

static void list_choices(const char *const *choices, char *buffer, size_t size)
{
    size_t used = 0;

    buffer[0] = '\0';
    for (size_t i = 0; choices[i] && used < size; i++) {
        const char *separator = i == 0 ? "" : choices[i + 1] ? ", " : " or ";
        const int length = snprintf(buffer + used, size - used, "%s%s", separator, choices[i]);
        used += length > 0 ? (size_t)length : 0;
    }
}

/* The texts that are more than a choice: replaced by their one spelling, kept in `buffer` where that is a new one. */
static cvy_status canonical_text(const struct cvy_option_row *row, const char **value, char buffer[16])
{
    int32_t width;

    if (strcmp(row->info.name, "arch") == 0) {
        const struct cvy_architecture *architecture = cvy_architecture_find(*value);
        if (!architecture)
            return cvy_architecture_fail(*value);
        *value = architecture->name;
    }
    if (strcmp(row->info.name, "squeeze-width") == 0) {
        CVY_TRY(cvy_squeeze_width_parse(*value, &width));
        *value = cvy_squeeze_width_text(width, buffer);
    }
    if (strcmp(row->info.name, "data-backend") == 0 && strcmp(*value, "syntetic") == 0) /* as it once was spelt */
        *value = "synthetic";
    return CVY_OK;
}

static cvy_status parse_text(const struct cvy_option_row *row, const char *value, const char **text, char buffer[16])
{
    char allowed[256];

    CVY_TRY(canonical_text(row, &value, buffer));
    if (row->choices) {
        size_t i = 0;
        while (row->choices[i] && strcmp(row->choices[i], value) != 0)
            i++;
        if (!row->choices[i]) {
            struct cvy_nearest nearest = cvy_nearest_begin(value);
            for (i = 0; row->choices[i]; i++)
                cvy_nearest_offer(&nearest, row->choices[i]);
            list_choices(row->choices, allowed, sizeof allowed);
            return cvy_fail(CVY_USAGE, "option --%s is %s, not %s%s", row->info.name, allowed, cvy_quote(value),
                            cvy_nearest_text(&nearest));
        }
    }
    if (value[0] == '\0')
        return cvy_fail(CVY_USAGE, "option --%s is empty", row->info.name);
    if (strlen(value) >= row->size)
        return cvy_fail(CVY_USAGE, "option --%s is longer than %zu bytes", row->info.name, row->size - 1);
    *text = value;
    return CVY_OK;
}

static cvy_status out_of_range(const struct cvy_option_row *row, const char *value)
{
    char low[32], high[32], special[64] = "", buffer[32];

    if (row->has_special)
        snprintf(special, sizeof special, " (or %s)", cvy_double_text(row->special, buffer));
    else if (row->word)
        snprintf(special, sizeof special, " (or %s)", row->word);
    return cvy_fail(CVY_USAGE, "option --%s: %s is not %s %s and %s %s%s", row->info.name, cvy_quote(value),
                    row->above_low ? "above" : "at least", cvy_double_text(row->low, low),
                    row->below_high ? "below" : "at most", cvy_double_text(row->high, high), special);
}

static cvy_status check_range(const struct cvy_option_row *row, const char *value, double number)
{
    if (row->has_special && number == row->special)
        return CVY_OK;
    if (!(number >= row->low && number <= row->high) || (row->above_low && number == row->low) ||
        (row->below_high && number == row->high))
        return out_of_range(row, value);
    return CVY_OK;
}

/* strtod and strtoll pass over leading white space; a value must not have any. */
static bool starts_well(const char *value)
{
    return value[0] != '\0' && !isspace((unsigned char)value[0]);
}

static cvy_status parse_int(const struct cvy_option_row *row, const char *value, int64_t *number)
{
    char *end = NULL;

    if (row->word && strcmp(value, row->word) == 0) {
        *number = (int64_t)row->special;
        return CVY_OK;
    }
    errno = 0;
    *number = strtoll(value, &end, 10);
    if (!starts_well(value) || *end != '\0')
        return cvy_fail(CVY_USAGE, "option --%s: %s is not a whole number", row->info.name, cvy_quote(value));
    if (errno == ERANGE)
        return out_of_range(row, value);
    return check_range(row, value, (double)*number);
}

static cvy_status parse_uint(const struct cvy_option_row *row, const char *value, uint64_t *number)
{
    char *end = NULL;

    errno = 0;
    *number = strtoull(value, &end, 10);
    if (!isdigit((unsigned char)value[0]) || *end != '\0' || errno == ERANGE)
        return cvy_fail(CVY_USAGE, "option --%s: %s is not a whole number from 0 to 2^64 - 1", row->info.name,
                        cvy_quote(value));
    return CVY_OK;
}

static cvy_status parse_real(const struct cvy_option_row *row, const char *value, double *number)
{
    char *end = NULL;

    *number = cvy_double_parse(value, &end);
    if (!starts_well(value) || *end != '\0')
        return cvy_fail(CVY_USAGE, "option --%s: %s is not a number", row->info.name, cvy_quote(value));
    *number += 0.0; /* -0 is 0: texts and files know one of them */
    return check_range(row, value, *number);
}

static cvy_status parse_flag(const struct cvy_option_row *row, const char *value, bool *flag)
{
    static const char *const yes[] = {"true", "yes", "on", "1"};
    static const char *const no[] = {"false", "no", "off", "0"};

    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++) {
        if (strcasecmp(value, yes[i]) == 0 || strcasecmp(value, no[i]) == 0) {
            *flag = strcasecmp(value, yes[i]) == 0;
            return CVY_OK;
        }
    }
    return cvy_fail(CVY_USAGE, "option --%s is true or false, not %s", row->info.name, cvy_quote(value));
}

cvy_status cvy_train_options_set(struct cvy_train_options *options, const char *name, const char *value,
                                 enum cvy_option_source source)
{
    CVY_REQUIRE(options);
    CVY_REQUIRE(name);
    const int index = cvy_train_option_find(name);
    const struct cvy_option_row *row;
    const char *text = NULL;
    char buffer[16];
    union {
        int64_t integer;
        uint64_t natural;
        double real;
        bool flag;
    } parsed = {0};

    if (index < 0)
        return CVY_USAGE;
    row = cvy_option_row_at((size_t)index);
    if (!value && row->info.type != CVY_OPTION_FLAG)
        return cvy_fail(CVY_USAGE, "option --%s needs a value", row->info.name);
    if (value && !cvy_utf8_is_valid(value)) /* the files of a run, which are JSON, could not hold it */
        return cvy_fail(CVY_USAGE, "option --%s: %s is not UTF-8", row->info.name, cvy_quote(value));
    switch (row->info.type) {
    case CVY_OPTION_TEXT:
        CVY_TRY(parse_text(row, value, &text, buffer));
        break;
    case CVY_OPTION_INT:
        CVY_TRY(parse_int(row, value, &parsed.integer));
        break;
    case CVY_OPTION_UINT:
        CVY_TRY(parse_uint(row, value, &parsed.natural));
        break;
    case CVY_OPTION_REAL:
        CVY_TRY(parse_real(row, value, &parsed.real));
        break;
    case CVY_OPTION_FLAG:
        CVY_TRY(parse_flag(row, value ? value : "true", &parsed.flag));
        break;
    }
    if (options->source[index] > (unsigned char)source)
        return CVY_OK;
    if (text)
        snprintf((char *)options + row->offset, row->size, "%s", text);
    else
        memcpy((char *)options + row->offset, &parsed, row->size);
    options->source[index] = (unsigned char)source;
    return CVY_OK;
}

const char *cvy_train_option_text(const struct cvy_train_options *options, size_t index, char *buffer, size_t size)
{
    const struct cvy_option_row *row = cvy_option_row_at(index);
    const void *field;
    char number[32];

    if (!options || !buffer || size == 0)
        return buffer;
    buffer[0] = '\0';
    if (!row)
        return buffer;
    field = (const char *)options + row->offset;
    switch (row->info.type) {
    case CVY_OPTION_TEXT:
        snprintf(buffer, size, "%s", (const char *)field);
        break;
    case CVY_OPTION_INT:
        if (row->word && *(const int64_t *)field == (int64_t)row->special)
            snprintf(buffer, size, "%s", row->word);
        else
            snprintf(buffer, size, "%lld", (long long)*(const int64_t *)field);
        break;
    case CVY_OPTION_UINT:
        snprintf(buffer, size, "%llu", (unsigned long long)*(const uint64_t *)field);
        break;
    case CVY_OPTION_REAL:
        snprintf(buffer, size, "%s", cvy_double_text(*(const double *)field, number));
        break;
    case CVY_OPTION_FLAG:
        snprintf(buffer, size, "%s", *(const bool *)field ? "true" : "false");
        break;
    }
    return buffer;
}
