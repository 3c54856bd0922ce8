#include "formats/json_in.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <yajl/yajl_parse.h>

#include "base/error.h"
#include "base/json_out.h"
#include "base/utf8.h"

enum {
    MAX_DEPTH = 64,
    MAX_NUMBER = 512,     /* characters of one number */
    MAX_VALUES = 4 << 20, /* a tree of 350 MiB: a small file must not become an unbounded one in memory */
    SCRATCH_HEADER = 16,  /* keeps the alignment of what follows */
};

struct parser {
    const char *what;
    struct cvy_arena *arena;
    struct cvy_arena scratch; /* yajl's own memory */
    jmp_buf out_of_memory;    /* yajl does not check its allocations: they leave it this way instead */
    size_t wanted;            /* bytes of the allocation that failed */
    struct cvy_json_value *root, *parents[MAX_DEPTH], *last[MAX_DEPTH]; /* last: where the next entry is hung */
    int depth;
    size_t values, most_values;
    const char *key;
    cvy_status status; /* set by a callback that stops the parse */
};

/* ---- yajl's allocator: an arena, released as a whole also after a jump. A header keeps the size for realloc. ---- */

static void *scratch_alloc(void *context, size_t bytes)
{
    struct parser *parser = context;
    size_t total;
    unsigned char *block = NULL;
    if (cvy_size_add(bytes, SCRATCH_HEADER, &total))
        block = cvy_arena_alloc(&parser->scratch, total);
    if (!block) {
        parser->wanted = bytes;
        longjmp(parser->out_of_memory, 1);
    }
    memcpy(block, &bytes, sizeof bytes);
    return block + SCRATCH_HEADER;
}

static void *scratch_realloc(void *context, void *block, size_t bytes)
{
    size_t old = 0;
    if (block)
        memcpy(&old, (unsigned char *)block - SCRATCH_HEADER, sizeof old);
    if (bytes <= old)
        return block;
    void *grown = scratch_alloc(context, bytes);
    if (old > 0)
        memcpy(grown, block, old);
    return grown;
}

static void scratch_free(void *context, void *block)
{
    (void)context;
    (void)block;
}

/* ---- events ---- */

static int refuse(struct parser *parser, const char *why)
{
    parser->status = cvy_fail(CVY_BAD_DATA, "%s: bad JSON: %s", cvy_quote(parser->what), why);
    return 0;
}

static int no_memory(struct parser *parser, size_t bytes)
{
    parser->status = cvy_fail_memory(bytes, "a JSON tree");
    return 0;
}

/* A terminated copy in the tree's arena; NULL after refusing. */
static const char *copy_text(struct parser *parser, const unsigned char *text, size_t length)
{
    if (memchr(text, 0, length)) {
        refuse(parser, "a string holds a zero byte");
        return NULL;
    }
    /* yajl lets overlong forms and single surrogates pass. */
    uint32_t code_point;
    for (size_t i = 0, size; i < length; i += size)
        if (!(size = cvy_utf8_sequence((const char *)text + i, length - i, &code_point))) {
            refuse(parser, "a string is not UTF-8");
            return NULL;
        }
    char *copy = length < SIZE_MAX ? cvy_arena_alloc(parser->arena, length + 1) : NULL;
    if (!copy) {
        no_memory(parser, length);
        return NULL;
    }
    memcpy(copy, text, length);
    return copy; /* arena memory is zeroed: terminated */
}

/* A new value, hung into the open array or object or made the root; NULL after refusing. */
static struct cvy_json_value *add_value(struct parser *parser, enum cvy_json_type type)
{
    if (++parser->values > parser->most_values) {
        refuse(parser, "too many values");
        return NULL;
    }
    struct cvy_json_value *value = cvy_arena_alloc(parser->arena, sizeof *value);
    if (!value) {
        no_memory(parser, sizeof *value);
        return NULL;
    }
    value->type = type;
    if (parser->depth == 0) {
        parser->root = value;
        return value;
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
    return value;
}

static int on_null(void *context)
{
    return add_value(context, CVY_JSON_NULL) != NULL;
}

static int on_boolean(void *context, int boolean)
{
    struct cvy_json_value *value = add_value(context, CVY_JSON_BOOL);
    if (value)
        value->boolean = boolean != 0;
    return value != NULL;
}

static int on_number(void *context, const char *text, size_t length)
{
    struct parser *parser = context;
    char copy[MAX_NUMBER + 1];
    if (length > MAX_NUMBER)
        return refuse(parser, "a number has too many digits");
    struct cvy_json_value *value = add_value(parser, CVY_JSON_NUMBER);
    if (!value)
        return 0;
    memcpy(copy, text, length);
    copy[length] = 0;
    value->number = cvy_double_parse(copy, NULL);
    if (!isfinite(value->number))
        return refuse(parser, "a number is too large");
    if (!strpbrk(copy, ".eE")) {
        errno = 0;
        value->integer = strtoll(copy, NULL, 10);
        value->is_integer = errno == 0;
        if (!value->is_integer)
            value->integer = 0;
    }
    return 1;
}

static int on_string(void *context, const unsigned char *text, size_t length)
{
    struct parser *parser = context;
    const char *copy = copy_text(parser, text, length);
    struct cvy_json_value *value = copy ? add_value(parser, CVY_JSON_STRING) : NULL;
    if (value)
        value->text = copy;
    return value != NULL;
}

static int begin(struct parser *parser, enum cvy_json_type type)
{
    if (parser->depth == MAX_DEPTH)
        return refuse(parser, "nested more than 64 levels deep");
    struct cvy_json_value *value = add_value(parser, type);
    if (!value)
        return 0;
    parser->parents[parser->depth] = value;
    parser->last[parser->depth] = NULL;
    parser->depth++;
    return 1;
}

static int on_begin_object(void *context)
{
    return begin(context, CVY_JSON_OBJECT);
}

static int on_begin_array(void *context)
{
    return begin(context, CVY_JSON_ARRAY);
}

static int on_key(void *context, const unsigned char *text, size_t length)
{
    struct parser *parser = context;
    parser->key = copy_text(parser, text, length);
    return parser->key != NULL;
}

static int on_end_array(void *context)
{
    struct parser *parser = context;
    parser->depth--;
    return 1;
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorting finds equal keys in n log n steps whatever the file holds. */
static int on_end_object(void *context)
{
    struct parser *parser = context;
    const struct cvy_json_value *object = parser->parents[--parser->depth];
    if (object->count < 2)
        return 1;
    const char **keys = cvy_calloc(object->count, sizeof *keys);
    if (!keys)
        return no_memory(parser, object->count * sizeof *keys);
    size_t count = 0;
    for (const struct cvy_json_value *entry = object->first; entry; entry = entry->next)
        keys[count++] = entry->key;
    qsort(keys, count, sizeof *keys, compare_keys);
    int good = 1;
    for (size_t i = 1; i < count && good; i++)
        if (!strcmp(keys[i - 1], keys[i])) {
            parser->status = cvy_fail(CVY_BAD_DATA, "%s: bad JSON: the key %s stands twice in one object",
                                      cvy_quote(parser->what), cvy_quote(keys[i]));
            good = 0;
        }
    cvy_free(keys);
    return good;
}

/* yajl's reason, first line only. */
static cvy_status syntax_error(struct parser *parser, yajl_handle handle)
{
    char reason[128] = "";
    unsigned char *text = yajl_get_error(handle, 0, NULL, 0);
    if (text) {
        size_t length = strcspn((char *)text, "\n");
        if (length > sizeof reason - 1)
            length = sizeof reason - 1;
        memcpy(reason, text, length);
    }
    return cvy_fail(CVY_BAD_DATA, "%s: bad JSON near byte %zu: %s", cvy_quote(parser->what),
                    yajl_get_bytes_consumed(handle), reason[0] ? reason : "it ends too early");
}

static cvy_status run(struct parser *parser, const char *text, size_t length)
{
    static const yajl_callbacks callbacks = {
        .yajl_null = on_null,
        .yajl_boolean = on_boolean,
        .yajl_number = on_number,
        .yajl_string = on_string,
        .yajl_start_map = on_begin_object,
        .yajl_map_key = on_key,
        .yajl_end_map = on_end_object,
        .yajl_start_array = on_begin_array,
        .yajl_end_array = on_end_array,
    };
    yajl_alloc_funcs memory = {scratch_alloc, scratch_realloc, scratch_free, parser};

    if (setjmp(parser->out_of_memory) != 0)
        return cvy_fail_memory(parser->wanted, "the JSON parser");
    yajl_handle handle = yajl_alloc(&callbacks, &memory, parser);
    yajl_status result = yajl_parse(handle, (const unsigned char *)text, length);
    if (result == yajl_status_ok)
        result = yajl_complete_parse(handle);
    if (parser->status != CVY_OK)
        return parser->status;
    if (result != yajl_status_ok || !parser->root)
        return syntax_error(parser, handle);
    return CVY_OK; /* the handle lies in the scratch arena */
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
    parser->most_values = memory / sizeof *parser->root < MAX_VALUES ? memory / sizeof *parser->root : MAX_VALUES;
    cvy_status status = run(parser, text, length);
    if (status == CVY_OK)
        *root = parser->root;
    cvy_arena_release(&parser->scratch);
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
