#include "report/records/events.h"

#include <dirent.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/system.h"
#include "formats/container/tfrecord.h"

/* The messages are event.proto's: Event { double wall_time = 1; int64 step = 2; string file_version = 3;
 * Summary summary = 5; }, Summary { repeated Value value = 1; }, Value { string tag = 1; float simple_value = 2; }.
 * A field is its key (number << 3 | wire type: 0 varint, 1 eight bytes, 2 bytes with length, 5 four bytes) and its
 * value. */
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
enum { EVENT_WALL_TIME = 1, EVENT_STEP = 2, EVENT_FILE_VERSION = 3, EVENT_SUMMARY = 5 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2 };

static const size_t MAX_FILE = (size_t)1 << 30;
static const char prefix[] = "events.out.tfevents.", suffix[] = ".convoy";

/* ---- protobuf out ---- */

static void put_varint(struct cvy_text *out, uint64_t value)
{
    do {
        const unsigned char byte = (unsigned char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        cvy_text_append(out, &byte, 1);
        value >>= 7;
    } while (value);
}

static void put_key(struct cvy_text *out, unsigned field, unsigned type)
{
    put_varint(out, field << 3 | type);
}

static void put_bytes(struct cvy_text *out, unsigned field, const void *data, size_t size)
{
    put_key(out, field, BYTES);
    put_varint(out, size);
    cvy_text_append(out, data, size);
}

/* The lowest `count` bytes of the bits, little-endian. */
static void put_fixed(struct cvy_text *out, uint64_t bits, int count)
{
    for (int i = 0; i < count; i++) {
        const unsigned char byte = (unsigned char)(bits >> 8 * i);
        cvy_text_append(out, &byte, 1);
    }
}

static void begin_event(struct cvy_text *event)
{
    const double now = cvy_wall_clock();
    uint64_t bits;

    memcpy(&bits, &now, sizeof bits);
    put_key(event, EVENT_WALL_TIME, FIXED64);
    put_fixed(event, bits, 8);
}

static void put_scalar(struct cvy_text *summary, const struct cvy_scalar *scalar)
{
    struct cvy_text value = {0};
    const float number = (float)scalar->value;
    uint32_t bits;

    memcpy(&bits, &number, sizeof bits);
    put_bytes(&value, VALUE_TAG, scalar->tag, strlen(scalar->tag));
    put_key(&value, VALUE_SIMPLE, FIXED32);
    put_fixed(&value, bits, 4);
    summary->failed |= value.failed;
    put_bytes(summary, SUMMARY_VALUE, value.text, value.length);
    cvy_text_release(&value);
}

static cvy_status write_event(struct cvy_events *events, struct cvy_text *event)
{
    struct cvy_text record = {0};
    cvy_status status;

    if (!event->failed)
        cvy_tfrecord_append(&record, event->text, event->length);
    status = event->failed || record.failed ? cvy_fail_memory(event->length, "an event")
                                            : cvy_line_file_append(&events->file, record.text, record.length);
    cvy_text_release(&record);
    cvy_text_release(event);
    return status;
}

static cvy_status write_version(struct cvy_events *events)
{
    static const char version[] = "brain.Event:2";
    struct cvy_text event = {0};

    begin_event(&event);
    put_bytes(&event, EVENT_FILE_VERSION, version, strlen(version));
    return write_event(events, &event);
}

cvy_status cvy_events_add(struct cvy_events *events, int64_t step, const struct cvy_scalar *scalars, size_t count)
{
    struct cvy_text event = {0}, summary = {0};

    if (!events->file.stream)
        return CVY_OK;
    for (size_t i = 0; i < count; i++)
        put_scalar(&summary, &scalars[i]);
    begin_event(&event);
    put_key(&event, EVENT_STEP, VARINT);
    put_varint(&event, (uint64_t)step);
    put_bytes(&event, EVENT_SUMMARY, summary.text, summary.length);
    event.failed |= summary.failed;
    cvy_text_release(&summary);
    return write_event(events, &event);
}

/* ---- protobuf in ---- */

/* A message that is being read; `ok` turns false at the first damage. */
struct message {
    const uint8_t *at, *end;
    bool ok;
};
struct field {
    uint64_t number, value; /* value: of varints and fixed ones */
    const uint8_t *data;    /* of bytes */
    size_t size;
};

static uint64_t take_varint(struct message *m)
{
    uint64_t value = 0;

    for (int shift = 0; shift < 64; shift += 7) {
        if (m->at == m->end)
            break;
        const uint8_t byte = *m->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
    m->ok = false;
    return 0;
}

/* The next field; false at the end and after damage. */
static bool next_field(struct message *m, struct field *field)
{
    uint64_t key, size;

    if (!m->ok || m->at == m->end)
        return false;
    *field = (struct field){0};
    key = take_varint(m);
    field->number = key >> 3;
    switch (key & 7) {
    case VARINT:
        field->value = take_varint(m);
        return m->ok;
    case FIXED64:
    case FIXED32:
        size = (key & 7) == FIXED64 ? 8 : 4;
        break;
    case BYTES:
        size = take_varint(m);
        break;
    default:
        m->ok = false;
        return false;
    }
    if (!m->ok || size > (uint64_t)(m->end - m->at)) {
        m->ok = false;
        return false;
    }
    field->data = m->at;
    field->size = (size_t)size;
    for (size_t i = 0; (key & 7) != BYTES && i < field->size; i++)
        field->value |= (uint64_t)m->at[i] << 8 * i;
    m->at += size;
    return true;
}

/* The value of the scalar "epoch" in a summary, -1 without one. */
static int64_t find_epoch(const uint8_t *data, size_t size)
{
    struct message summary = {data, data + size, true};
    struct field value, part;

    while (next_field(&summary, &value)) {
        struct message scalar = {value.data, value.data + value.size, value.number == SUMMARY_VALUE && value.data};
        bool is_epoch = false;
        float number = -1;

        while (next_field(&scalar, &part)) {
            const uint32_t bits = (uint32_t)part.value;
            if (part.number == VALUE_TAG && part.data)
                is_epoch = part.size == 5 && memcmp(part.data, "epoch", 5) == 0;
            else if (part.number == VALUE_SIMPLE)
                memcpy(&number, &bits, sizeof number);
        }
        if (scalar.ok && is_epoch && number >= 0 && number < 1e9F)
            return (int64_t)number;
    }
    return -1;
}

static bool keeps(const struct cvy_events_keep *keep, const uint8_t *data, size_t size)
{
    struct message event = {data, data + size, true};
    struct field field;
    int64_t step = 0, epoch = -1;

    while (next_field(&event, &field)) {
        if (field.number == EVENT_STEP)
            step = (int64_t)field.value;
        else if (field.number == EVENT_SUMMARY && field.data)
            epoch = find_epoch(field.data, field.size);
    }
    return event.ok && step <= keep->step && epoch < keep->epoch;
}

/* How many bytes of an existing file stay; 0 for one that cannot be read. */
static int64_t kept_bytes(const char *path, const struct cvy_events_keep *keep)
{
    void *content = NULL;
    size_t size = 0, at = 0, used, payload_size;
    const uint8_t *payload;

    if (cvy_file_read(path, MAX_FILE, &content, &size) != CVY_OK)
        return 0;
    while (at < size &&
           cvy_tfrecord_parse(path, at, (const char *)content + at, size - at, &payload, &payload_size, &used) ==
               CVY_OK &&
           keeps(keep, payload, payload_size))
        at += used;
    cvy_free(content);
    return (int64_t)at;
}

/* ---- the file ---- */

static bool is_ours(const char *name)
{
    const size_t length = strlen(name);

    return strncmp(name, prefix, strlen(prefix)) == 0 && length > strlen(prefix) + strlen(suffix) &&
           strcmp(name + length - strlen(suffix), suffix) == 0;
}

/* The name of the newest event file of ours; empty when there is none. */
static void find_file(const char *folder, char *name, size_t capacity)
{
    DIR *listing = opendir(folder);
    const struct dirent *entry;

    name[0] = '\0';
    while (listing && (entry = readdir(listing)) != NULL) {
        if (is_ours(entry->d_name) && strlen(entry->d_name) < capacity && strcmp(entry->d_name, name) > 0)
            snprintf(name, capacity, "%s", entry->d_name);
    }
    if (listing)
        closedir(listing);
}

static void make_name(char *name, size_t capacity)
{
    char host[65] = "";

    if (gethostname(host, sizeof host - 1) != 0 || !host[0])
        snprintf(host, sizeof host, "localhost");
    for (char *c = host; *c; c++)
        *c = *c == '/' ? '_' : *c;
    snprintf(name, capacity, "%s%lld.%s.%ld%s", prefix, (long long)floor(cvy_wall_clock()), host, (long)getpid(),
             suffix);
}

cvy_status cvy_events_open(struct cvy_events *events, const char *folder, const struct cvy_events_keep *keep)
{
    char name[256], *path;
    int64_t offset;
    cvy_status status;

    *events = (struct cvy_events){0};
    find_file(folder, name, sizeof name);
    if (!name[0])
        make_name(name, sizeof name);
    path = cvy_path_join(folder, name);
    if (!path)
        return cvy_fail_memory(strlen(folder) + sizeof name, "a file name");
    offset = keep && cvy_path_exists(path) ? kept_bytes(path, keep) : 0;
    status = cvy_line_file_open(&events->file, path, offset);
    cvy_free(path);
    if (status == CVY_OK && cvy_line_file_offset(&events->file) == 0)
        status = write_version(events);
    if (status != CVY_OK)
        cvy_events_close(events);
    return status;
}

void cvy_events_close(struct cvy_events *events)
{
    cvy_line_file_close(&events->file);
}
