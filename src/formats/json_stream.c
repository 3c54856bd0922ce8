#include "formats/json_stream.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <yajl/yajl_parse.h>

#include "base/error.h"
#include "base/json_out.h"
#include "base/mapping.h"
#include "base/memory.h"
#include "base/utf8.h"

enum {
    MAX_DEPTH = 64,
    MAX_NUMBER = 512,    /* characters of one number */
    SCRATCH_HEADER = 16, /* keeps the alignment of what follows */
    PIECE = 1 << 20      /* bytes of a file that are parsed at a time */
};

struct cvy_json_stream {
    const char *what;
    struct cvy_mapping mapping; /* of a file */
    const char *text;
    size_t length;
    cvy_json_handler handler;
    void *context;
    struct cvy_arena scratch; /* yajl's own memory */
    jmp_buf out_of_memory;    /* yajl does not check its allocations: they leave it this way instead */
    size_t wanted;            /* bytes of the allocation that failed */
    yajl_handle yajl;
    size_t done; /* bytes of the pieces before this one */
    int depth, skip_to;
    bool skipping, begins; /* begins: the event being handled begins an object or array */
    bool any;              /* a value has come */
    cvy_status status;     /* set by a callback that stops the parse */
};

/* ---- yajl's allocator: an arena, released as a whole also after a jump. A header keeps the size for realloc. ---- */

static void *scratch_alloc(void *context, size_t bytes)
{
    struct cvy_json_stream *stream = context;
    size_t total;
    unsigned char *block = NULL;
    if (cvy_size_add(bytes, SCRATCH_HEADER, &total))
        block = cvy_arena_alloc(&stream->scratch, total);
    if (!block) {
        stream->wanted = bytes;
        longjmp(stream->out_of_memory, 1);
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

cvy_status cvy_json_refuse(const struct cvy_json_stream *stream, const char *why)
{
    return cvy_fail(CVY_BAD_DATA, "%s: bad JSON near byte %llu: %s", cvy_quote(stream->what),
                    (unsigned long long)cvy_json_position(stream), why);
}

void cvy_json_skip(struct cvy_json_stream *stream)
{
    stream->skipping = true;
    stream->skip_to = stream->begins ? stream->depth - 1 : stream->depth;
}

uint64_t cvy_json_position(const struct cvy_json_stream *stream)
{
    const size_t position = stream->done + yajl_get_bytes_consumed(stream->yajl);

    return position < stream->length ? position : stream->length; /* yajl ends a text with a space of its own */
}

static int deliver(struct cvy_json_stream *stream, const struct cvy_json_event *event)
{
    stream->begins = event->kind == CVY_JSON_BEGIN_OBJECT || event->kind == CVY_JSON_BEGIN_ARRAY;
    stream->status = stream->handler(stream->context, stream, event);
    return stream->status == CVY_OK;
}

/* A value without parts. */
static int on_value(struct cvy_json_stream *stream, const struct cvy_json_event *event)
{
    stream->any = true;
    if (!stream->skipping)
        return deliver(stream, event);
    stream->skipping = stream->depth != stream->skip_to;
    return 1;
}

static int on_null(void *context)
{
    return on_value(context, &(struct cvy_json_event){.kind = CVY_JSON_HAS_NULL});
}

static int on_boolean(void *context, int boolean)
{
    return on_value(context, &(struct cvy_json_event){.kind = CVY_JSON_HAS_BOOL, .boolean = boolean != 0});
}

static int on_number(void *context, const char *text, size_t length)
{
    return on_value(context, &(struct cvy_json_event){.kind = CVY_JSON_HAS_NUMBER, .text = text, .length = length});
}

static int on_string(void *context, const unsigned char *text, size_t length)
{
    return on_value(
        context, &(struct cvy_json_event){.kind = CVY_JSON_HAS_STRING, .text = (const char *)text, .length = length});
}

static int on_key(void *context, const unsigned char *text, size_t length)
{
    struct cvy_json_stream *stream = context;
    return stream->skipping ||
           deliver(stream,
                   &(struct cvy_json_event){.kind = CVY_JSON_HAS_KEY, .text = (const char *)text, .length = length});
}

static int begin(struct cvy_json_stream *stream, enum cvy_json_event_kind kind)
{
    stream->any = true;
    if (stream->depth == MAX_DEPTH) {
        stream->status = cvy_json_refuse(stream, "nested more than 64 levels deep");
        return 0;
    }
    stream->depth++;
    return stream->skipping || deliver(stream, &(struct cvy_json_event){.kind = kind});
}

static int end(struct cvy_json_stream *stream, enum cvy_json_event_kind kind)
{
    stream->depth--;
    if (!stream->skipping)
        return deliver(stream, &(struct cvy_json_event){.kind = kind});
    stream->skipping = stream->depth != stream->skip_to;
    return 1;
}

static int on_begin_object(void *context)
{
    return begin(context, CVY_JSON_BEGIN_OBJECT);
}

static int on_begin_array(void *context)
{
    return begin(context, CVY_JSON_BEGIN_ARRAY);
}

static int on_end_object(void *context)
{
    return end(context, CVY_JSON_END_OBJECT);
}

static int on_end_array(void *context)
{
    return end(context, CVY_JSON_END_ARRAY);
}

/* ---- the run ---- */

/* yajl's reason, first line only. */
static cvy_status syntax_error(struct cvy_json_stream *stream)
{
    char reason[128] = "";
    unsigned char *text = yajl_get_error(stream->yajl, 0, NULL, 0);
    if (text) {
        size_t length = strcspn((char *)text, "\n");
        if (length > sizeof reason - 1)
            length = sizeof reason - 1;
        memcpy(reason, text, length);
        if (length > 0 && reason[length - 1] == '.')
            reason[length - 1] = 0;
    }
    return cvy_json_refuse(stream, reason[0] ? reason : "it ends too early");
}

/* A file may begin with UTF-8's mark, as some programs on Windows write it. */
static size_t mark_bytes(const struct cvy_json_stream *stream)
{
    static const char mark[] = "\xEF\xBB\xBF";
    const size_t bytes = sizeof mark - 1;

    return stream->mapping.data && stream->length >= bytes && memcmp(stream->text, mark, bytes) == 0 ? bytes : 0;
}

/* What has been read of a file is not needed again. */
static yajl_status parse_pieces(struct cvy_json_stream *stream)
{
    yajl_status result = yajl_status_ok;

    for (size_t from = 0; result == yajl_status_ok && from < stream->length; from += PIECE) {
        const size_t size = stream->length - from < PIECE ? stream->length - from : PIECE,
                     mark = from == 0 ? mark_bytes(stream) : 0;
        stream->done = from + mark;
        result = yajl_parse(stream->yajl, (const unsigned char *)stream->text + from + mark, size - mark);
        if (stream->mapping.data)
            cvy_file_forget(&stream->mapping, stream->text + from, size);
    }
    return result;
}

static cvy_status run(struct cvy_json_stream *stream)
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
    yajl_alloc_funcs memory = {scratch_alloc, scratch_realloc, scratch_free, stream};

    if (setjmp(stream->out_of_memory) != 0)
        return cvy_fail_memory(stream->wanted, "the JSON parser");
    stream->yajl = yajl_alloc(&callbacks, &memory, stream);
    yajl_status result = parse_pieces(stream);
    if (result == yajl_status_ok) {
        stream->done = stream->length;
        result = yajl_complete_parse(stream->yajl);
    }
    if (stream->status != CVY_OK)
        return stream->status;
    if (result != yajl_status_ok || !stream->any)
        return syntax_error(stream);
    return CVY_OK; /* the handle lies in the scratch arena */
}

/* On the heap: a jump back leaves it as it was. */
static cvy_status open_stream(const char *what, cvy_json_handler handler, void *context, struct cvy_json_stream **out)
{
    struct cvy_json_stream *stream = cvy_calloc(1, sizeof *stream);
    *out = stream;
    if (!stream)
        return cvy_fail_memory(sizeof *stream, "the JSON parser");
    stream->what = what;
    stream->handler = handler;
    stream->context = context;
    return CVY_OK;
}

static void close_stream(struct cvy_json_stream *stream)
{
    cvy_arena_release(&stream->scratch);
    cvy_file_unmap(&stream->mapping);
    cvy_free(stream);
}

cvy_status cvy_json_stream_text(const char *what, const char *text, size_t length, cvy_json_handler handler,
                                void *context)
{
    struct cvy_json_stream *stream;

    CVY_TRY(open_stream(what, handler, context, &stream));
    stream->text = text;
    stream->length = length;
    cvy_status status = run(stream);
    close_stream(stream);
    return status;
}

cvy_status cvy_json_stream_file(const char *path, cvy_json_handler handler, void *context)
{
    struct cvy_json_stream *stream;

    CVY_TRY(open_stream(path, handler, context, &stream));
    cvy_status status = cvy_file_map(path, &stream->mapping);
    if (status == CVY_OK) {
        stream->text = stream->mapping.data;
        stream->length = stream->mapping.size;
        status = run(stream);
        const cvy_status changed = cvy_mapping_check(&stream->mapping, path);
        status = changed != CVY_OK ? changed : status;
    }
    close_stream(stream);
    return status;
}

/* ---- values ---- */

cvy_status cvy_json_read_number(const struct cvy_json_stream *stream, const struct cvy_json_event *event,
                                struct cvy_json_number *number)
{
    char copy[MAX_NUMBER + 1];

    if (event->length > MAX_NUMBER)
        return cvy_json_refuse(stream, "a number has too many digits");
    memcpy(copy, event->text, event->length);
    copy[event->length] = 0;
    *number = (struct cvy_json_number){.number = cvy_double_parse(copy, NULL)};
    if (!isfinite(number->number))
        return cvy_json_refuse(stream, "a number is too large");
    if (!strpbrk(copy, ".eE")) {
        errno = 0;
        number->integer = strtoll(copy, NULL, 10);
        number->is_integer = errno == 0;
        if (!number->is_integer)
            number->integer = 0;
    }
    return CVY_OK;
}

cvy_status cvy_json_check_text(const struct cvy_json_stream *stream, const struct cvy_json_event *event)
{
    uint32_t code_point;

    if (memchr(event->text, 0, event->length))
        return cvy_json_refuse(stream, "a string holds a zero byte");
    for (size_t i = 0, size; i < event->length; i += size)
        if (!(size = cvy_utf8_sequence(event->text + i, event->length - i, &code_point)))
            return cvy_json_refuse(stream, "a string is not UTF-8");
    return CVY_OK;
}
