/* JSON text of any size as a sequence of events, from memory or from a file. Built on yajl; at most 64 levels. */
#ifndef CVY_FORMATS_JSON_STREAM_H
#define CVY_FORMATS_JSON_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "convoy/status.h"

enum cvy_json_event_kind {
    CVY_JSON_HAS_NULL,
    CVY_JSON_HAS_BOOL,
    CVY_JSON_HAS_NUMBER,
    CVY_JSON_HAS_STRING,
    CVY_JSON_HAS_KEY,
    CVY_JSON_BEGIN_OBJECT,
    CVY_JSON_END_OBJECT,
    CVY_JSON_BEGIN_ARRAY,
    CVY_JSON_END_ARRAY
};
struct cvy_json_event {
    enum cvy_json_event_kind kind;
    bool boolean;
    const char *text; /* of a number, as it stands there, a string or a key; not terminated, valid during the call */
    size_t length;
};

struct cvy_json_stream;
/* A failure ends the reading and is returned. */
typedef cvy_status (*cvy_json_handler)(void *context, struct cvy_json_stream *stream,
                                       const struct cvy_json_event *event);

/* `what` names the source in errors. CVY_BAD_DATA: no JSON, or not one value; CVY_NO_MEMORY; what the handler
 * returned. */
CVY_CHECKED cvy_status cvy_json_stream_text(const char *what, const char *text, size_t length, cvy_json_handler handler,
                                            void *context);
/* A file, piece by piece. CVY_NO_INPUT: missing or unreadable. */
CVY_CHECKED cvy_status cvy_json_stream_file(const char *path, cvy_json_handler handler, void *context);

/* ---- for handlers ---- */

/* Leave out the value after the key of this event, or the rest of what this event begins, its end included. */
void cvy_json_skip(struct cvy_json_stream *stream);
/* Bytes read: the end of the event. */
uint64_t cvy_json_position(const struct cvy_json_stream *stream);
/* Record ""what": bad JSON near byte N: why" and return CVY_BAD_DATA. */
cvy_status cvy_json_refuse(const struct cvy_json_stream *stream, const char *why);

struct cvy_json_number {
    double number;
    bool is_integer; /* without fraction or exponent, and fits 64 bits */
    int64_t integer; /* when is_integer; else 0 */
};
/* The value of a number's event. CVY_BAD_DATA: more than a double can hold, or 512 characters. */
CVY_CHECKED cvy_status cvy_json_read_number(const struct cvy_json_stream *stream, const struct cvy_json_event *event,
                                            struct cvy_json_number *number);
/* CVY_BAD_DATA: the text holds a zero byte or is not UTF-8 (yajl lets overlong forms and single surrogates pass). */
CVY_CHECKED cvy_status cvy_json_check_text(const struct cvy_json_stream *stream, const struct cvy_json_event *event);

#endif
