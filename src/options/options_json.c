/* Options as JSON: stored in checkpoints and beside them, restored by --resume. */
#include "options/options.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "options/option_table.h"

/* An option without a value (an empty text, a number that stands for "not given") is left out. */
static bool is_unset(const struct cvy_option_info *info, const char *text)
{
    static const char *const zero_is_unset[] = {"val-split", "image-size", "eval-resize", "num-classes", "head-lr"};

    for (size_t i = 0; i < sizeof zero_is_unset / sizeof zero_is_unset[0]; i++) {
        if (strcmp(info->name, zero_is_unset[i]) == 0 && strcmp(text, "0") == 0)
            return true;
    }
    return text[0] == '\0';
}

/* What a run does that another one does not go on with. */
static bool is_of_one_run(const char *name)
{
    return strcmp(name, "resume") == 0 || strcmp(name, "evaluate") == 0 || strcmp(name, "eval-training-data") == 0;
}

static void write_value(const struct cvy_train_options *options, const struct cvy_option_info *info, const char *text,
                        struct cvy_json *json)
{
    /* Seeds go beyond the integers that JSON readers keep exactly. */
    if (info->type == CVY_OPTION_TEXT || (info->type == CVY_OPTION_UINT && options->seed > INT64_MAX))
        cvy_json_string(json, text);
    else
        cvy_json_raw(json, text);
}

void cvy_options_write_json(const struct cvy_train_options *options, enum cvy_option_group group, struct cvy_json *json)
{
    char text[CVY_PATH_MAX];
    const struct cvy_option_info *info;

    cvy_json_begin_object(json);
    for (size_t i = 0; (info = cvy_train_option_at(i)) != NULL; i++) {
        if (cvy_option_group_of(i) != group || is_of_one_run(info->name) ||
            is_unset(info, cvy_train_option_text(options, i, text, sizeof text)))
            continue;
        cvy_json_key(json, info->name);
        write_value(options, info, text, json);
    }
    cvy_json_end_object(json);
}

void cvy_options_write_parameters(const struct cvy_train_options *options, struct cvy_json *json)
{
    char text[CVY_PATH_MAX], name[64];
    const struct cvy_option_info *info;

    cvy_json_begin_object(json);
    cvy_json_key(json, "data");
    cvy_json_string(json, options->data[0] ? options->data : NULL);
    for (size_t i = 0; (info = cvy_train_option_at(i)) != NULL; i++) {
        snprintf(name, sizeof name, "%s", info->name);
        for (char *c = name; *c; c++)
            *c = *c == '-' ? '_' : *c;
        cvy_json_key(json, name);
        if (is_unset(info, cvy_train_option_text(options, i, text, sizeof text)))
            cvy_json_string(json, NULL);
        else
            write_value(options, info, text, json);
    }
    cvy_json_end_object(json);
}

void cvy_options_take(struct cvy_train_options *to, const struct cvy_train_options *from, const char *const *names)
{
    for (; *names; names++) {
        const int index = cvy_train_option_find(*names);
        const struct cvy_option_row *row = index < 0 ? NULL : cvy_option_row_at((size_t)index);

        if (!row)
            continue;
        memcpy((char *)to + row->offset, (const char *)from + row->offset, row->size);
        to->source[index] = from->source[index];
    }
}

/* The text form of a JSON value, as cvy_train_options_set takes it; NULL for null, arrays and objects. */
static const char *value_text(const struct cvy_json_value *value, char *buffer, size_t size)
{
    char number[32];

    switch (value->type) {
    case CVY_JSON_STRING:
        return value->text;
    case CVY_JSON_BOOL:
        return value->boolean ? "true" : "false";
    case CVY_JSON_NUMBER:
        if (value->is_integer)
            snprintf(buffer, size, "%lld", (long long)value->integer);
        else
            snprintf(buffer, size, "%s", cvy_double_text(value->number, number));
        return buffer;
    default:
        return NULL;
    }
}

static bool same_value(const struct cvy_train_options *a, const struct cvy_train_options *b, size_t index)
{
    char left[CVY_PATH_MAX], right[CVY_PATH_MAX];

    return strcmp(cvy_train_option_text(a, index, left, sizeof left),
                  cvy_train_option_text(b, index, right, sizeof right)) == 0;
}

/* What a file never decides: where a run is kept, and what it is asked to do. */
static bool is_for_the_command_line(const char *name)
{
    return is_of_one_run(name) || strcmp(name, "workspace") == 0;
}

static cvy_status read_entry(struct cvy_train_options *options, const char *what, enum cvy_option_group group,
                             const struct cvy_json_value *entry)
{
    struct cvy_train_options usual, saved;
    char buffer[64];
    const char *text = value_text(entry, buffer, sizeof buffer);
    const int index = cvy_train_option_find(entry->key);

    if (index < 0)
        return CVY_USAGE;
    if (strcmp(cvy_train_option_at((size_t)index)->name, entry->key) != 0)
        return cvy_fail(CVY_USAGE, "unknown option %s", cvy_quote(entry->key));
    if (!text)
        return cvy_fail(CVY_USAGE, "option --%s is not a value", entry->key);
    if (strcmp(entry->key, "recipe") == 0)
        return CVY_OK; /* what it said is in the other values already */
    if (cvy_option_group_of((size_t)index) != group || is_for_the_command_line(entry->key)) {
        cvy_log(CVY_LOG_WARNING, "%s: the saved option --%s is not for this file to decide, and is left out",
                cvy_quote(what), entry->key);
        return CVY_OK;
    }
    cvy_train_options_init(&usual);
    cvy_train_options_init(&saved);
    CVY_TRY(cvy_train_options_set(&saved, entry->key, text, CVY_FROM_RESUME));
    /* "auto" leaves the choice to the run, and this run has chosen before. */
    if (options->source[index] == CVY_FROM_FLAG && strcmp(entry->key, "batch-size") == 0 &&
        options->batch_size == CVY_BATCH_AUTO)
        options->source[index] = CVY_FROM_RESUME;
    if (options->source[index] == CVY_FROM_FLAG) {
        /* What a run does has no bearing on its numbers: where nobody had given it, nothing is replaced. */
        const bool given = group != CVY_OPTION_RUN || !same_value(&usual, &saved, (size_t)index);
        if (given && !same_value(options, &saved, (size_t)index)) {
            char now[256];
            cvy_log(CVY_LOG_WARNING, "--%s %s replaces the saved %s", entry->key,
                    cvy_train_option_text(options, (size_t)index, now, sizeof now), cvy_quote(text));
        }
        return CVY_OK;
    }
    return cvy_train_options_set(options, entry->key, text, CVY_FROM_RESUME);
}

cvy_status cvy_options_read_json(struct cvy_train_options *options, const char *what, enum cvy_option_group group,
                                 const struct cvy_json_value *object)
{
    if (object->type != CVY_JSON_OBJECT)
        return cvy_fail(CVY_BAD_DATA, "%s: the saved options are not a JSON object", cvy_quote(what));
    for (const struct cvy_json_value *entry = object->first; entry; entry = entry->next) {
        if (read_entry(options, what, group, entry) != CVY_OK)
            return cvy_fail_context(CVY_BAD_DATA, "%s: saved options", cvy_quote(what));
    }
    return CVY_OK;
}
