#include "formats/json_in.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "formats/json_stream.h"

enum {
    MAX_DEPTH = 64,       /* as many as a stream has */
    MAX_VALUES = 4 << 20, /* a tree of 350 MiB: a small file must not become an unbounded one in memory */
};

struct parser {
    const char *what;
    struct cvy_arena *arena;
    struct cvy_json_value *root, *parents[MAX_DEPTH], *last[MAX_DEPTH]; /* last: where the next entry is hung */
    int depth;
    size_t values, max_values;
    const char *key;
};

/* A terminated copy in the tree's arena. */
static cvy_status copy_text(struct parser *parser, const struct cvy_json_stream *stream,
                            const struct cvy_json_event *event, const char **text)
{
    CVY_TRY(cvy_json_check_text(stream, event));
    char *copy = event->length < SIZE_MAX ? cvy_arena_alloc(parser->arena, event->length + 1) : NULL;
    if (!copy)
        return cvy_fail_memory(event->length, "a JSON tree");
    memcpy(copy, event->text, event->length);
    *text = copy; /* arena memory is zeroed: terminated */
    return CVY_OK;
}

/* A new value, hung into the open array or object or made the root. */
static cvy_status add_value(struct parser *parser, const struct cvy_json_stream *stream, enum cvy_json_type type,
                            struct cvy_json_value **out)
{
    if (++parser->values > parser->max_values)
        return cvy_json_refuse(stream, "too many values");
    struct cvy_json_value *value = *out = cvy_arena_alloc(parser->arena, sizeof *value);
    if (!value)
        return cvy_fail_memory(sizeof *value, "a JSON tree");
    value->type = type;
    if (parser->depth == 0) {
        parser->root = value;
        return CVY_OK;
    }
    struct cvy_json_value *parent = parser->parents[parser->depth - 1];
    struct cvy_json_value **last = &parser->last[parser->depth - 1];
    value->key = parent->type == CVY_JSON_OBJECT ? parser->key : NULL;
    if (*last)
        (*last)->next = value;
    else
        parent->first = value;
    *last = value;
    parent->count++;
    return CVY_OK;
}

static cvy_status add_number(struct parser *parser, const struct cvy_json_stream *stream,
                             const struct cvy_json_event *event)
{
    struct cvy_json_value *value;
    struct cvy_json_number number;

    CVY_TRY(cvy_json_read_number(stream, event, &number));
    CVY_TRY(add_value(parser, stream, CVY_JSON_NUMBER, &value));
    value->number = number.number;
    value->is_integer = number.is_integer;
    value->integer = number.integer;
    return CVY_OK;
}

static cvy_status add_string(struct parser *parser, const struct cvy_json_stream *stream,
                             const struct cvy_json_event *event)
{
    struct cvy_json_value *value;
    const char *text = NULL;

    CVY_TRY(copy_text(parser, stream, event, &text));
    CVY_TRY(add_value(parser, stream, CVY_JSON_STRING, &value));
    value->text = text;
    return CVY_OK;
}

static cvy_status begin(struct parser *parser, const struct cvy_json_stream *stream, enum cvy_json_type type)
{
    struct cvy_json_value *value;

    CVY_TRY(add_value(parser, stream, type, &value));
    parser->parents[parser->depth] = value;
    parser->last[parser->depth] = NULL;
    parser->depth++;
    return CVY_OK;
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorting finds equal keys in n log n steps whatever the file holds. */
static cvy_status end_object(struct parser *parser, const struct cvy_json_stream *stream)
{
    cvy_status status = CVY_OK;
    const struct cvy_json_value *object = parser->parents[--parser->depth];
    if (object->count < 2)
        return CVY_OK;
    const char **keys = cvy_calloc(object->count, sizeof *keys);
    if (!keys)
        return cvy_fail_memory(object->count * sizeof *keys, "a JSON tree");
    size_t count = 0;
    for (const struct cvy_json_value *entry = object->first; entry; entry = entry->next)
        keys[count++] = entry->key;
    qsort(keys, count, sizeof *keys, compare_keys);
    for (size_t i = 1; i < count && status == CVY_OK; i++)
        if (!strcmp(keys[i - 1], keys[i]))
            status =
                cvy_fail(CVY_BAD_DATA, "%s: bad JSON near byte %llu: the key %s stands twice in one object",
                         cvy_quote(parser->what), (unsigned long long)cvy_json_position(stream), cvy_quote(keys[i]));
    cvy_free(keys);
    return status;
}

static cvy_status handle(void *context, struct cvy_json_stream *stream, const struct cvy_json_event *event)
{
    struct parser *parser = context;
    struct cvy_json_value *value;

    switch (event->kind) {
    case CVY_JSON_HAS_NULL:
        return add_value(parser, stream, CVY_JSON_NULL, &value);
    case CVY_JSON_HAS_BOOL:
        CVY_TRY(add_value(parser, stream, CVY_JSON_BOOL, &value));
        value->boolean = event->boolean;
        return CVY_OK;
    case CVY_JSON_HAS_NUMBER:
        return add_number(parser, stream, event);
    case CVY_JSON_HAS_STRING:
        return add_string(parser, stream, event);
    case CVY_JSON_HAS_KEY:
        return copy_text(parser, stream, event, &parser->key);
    case CVY_JSON_BEGIN_OBJECT:
        return begin(parser, stream, CVY_JSON_OBJECT);
    case CVY_JSON_END_OBJECT:
        return end_object(parser, stream);
    case CVY_JSON_BEGIN_ARRAY:
        return begin(parser, stream, CVY_JSON_ARRAY);
    case CVY_JSON_END_ARRAY:
        parser->depth--;
        return CVY_OK;
    }
    return cvy_fail(CVY_FAILED, "an event of an unknown kind");
}

cvy_status cvy_json_parse(const char *what, const char *text, size_t length, struct cvy_arena *arena,
                          struct cvy_json_value **root)
{
    return cvy_json_parse_within(what, text, length, SIZE_MAX, arena, root);
}

cvy_status cvy_json_parse_within(const char *what, const char *text, size_t length, size_t memory,
                                 struct cvy_arena *arena, struct cvy_json_value **root)
{
    struct parser *parser = cvy_calloc(1, sizeof *parser);
    *root = NULL;
    if (!parser)
        return cvy_fail_memory(sizeof *parser, "the JSON parser");
    parser->what = what;
    parser->arena = arena;
    parser->max_values = memory / sizeof *parser->root < MAX_VALUES ? memory / sizeof *parser->root : MAX_VALUES;
    cvy_status status = cvy_json_stream_text(what, text, length, handle, parser);
    if (status == CVY_OK)
        *root = parser->root;
    cvy_free(parser);
    return status;
}

/* ---- lookups ---- */

const struct cvy_json_value *cvy_json_get(const struct cvy_json_value *object, const char *key)
{
    if (!object || object->type != CVY_JSON_OBJECT)
        return NULL;
    for (const struct cvy_json_value *entry = object->first; entry; entry = entry->next)
        if (!strcmp(entry->key, key))
            return entry;
    return NULL;
}

double cvy_json_get_number(const struct cvy_json_value *object, const char *key, double otherwise)
{
    const struct cvy_json_value *value = cvy_json_get(object, key);
    return value && value->type == CVY_JSON_NUMBER ? value->number : otherwise;
}

int64_t cvy_json_get_int(const struct cvy_json_value *object, const char *key, int64_t otherwise)
{
    const struct cvy_json_value *value = cvy_json_get(object, key);
    return value && value->type == CVY_JSON_NUMBER && value->is_integer ? value->integer : otherwise;
}

const char *cvy_json_get_string(const struct cvy_json_value *object, const char *key, const char *otherwise)
{
    const struct cvy_json_value *value = cvy_json_get(object, key);
    return value && value->type == CVY_JSON_STRING ? value->text : otherwise;
}

bool cvy_json_get_bool(const struct cvy_json_value *object, const char *key, bool otherwise)
{
    const struct cvy_json_value *value = cvy_json_get(object, key);
    return value && value->type == CVY_JSON_BOOL ? value->boolean : otherwise;
}
