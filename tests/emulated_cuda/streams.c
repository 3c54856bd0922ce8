/* Streams, events and captured work of an emulated GPU, for one thread at a time.
 *
 * With CONVOY_EMULATED_LATE=1 work is done as late as can be: when somebody waits for it. What was to be read by then,
 * and has been written over by the host or by another stream, is read as it is then. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/cuda/runtime.h"
#include "base/error.h"
#include "base/memory.h"
#include "capture.h"

struct event {
    struct timespec time;
    struct stream *stream;     /* where it was recorded last */
    unsigned recorded, passed; /* how often */
};

enum kind { REPLAY, PASS_EVENT, WAIT_FOR_EVENT, WAIT_OUTSIDE };
struct entry {
    enum kind kind;
    void (*replay)(const void *data);
    void *data; /* owned, of PLAY */
    struct event *event;
    unsigned number; /* of the event's records */
    bool (*done)(void *op);
    void *op;
    struct entry *next;
};

struct graph {
    struct entry *first, **end;
};

struct stream {
    struct emulated_stream_door door;
    struct graph *capturing; /* NULL: work is done */
    struct entry *first, **end;
    bool busy; /* streams that wait for each other's events ask each other */
    int gpu;
    struct stream *next; /* of all streams */
};

static struct stream *streams;

/* ---- one thread at a time ---- */

static pthread_mutex_t turn;

static void make_turn(void)
{
    pthread_mutexattr_t attributes;

    if (pthread_mutexattr_init(&attributes) != 0 ||
        pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE) != 0 ||
        pthread_mutex_init(&turn, &attributes) != 0)
        abort();
    pthread_mutexattr_destroy(&attributes);
}

int emulated_enter(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, make_turn);
    return pthread_mutex_lock(&turn);
}

void emulated_leave(const int *unused)
{
    (void)unused;
    pthread_mutex_unlock(&turn);
}

/* ---- queues ---- */

static struct entry *append(struct entry ***end, const struct entry *values)
{
    struct entry *entry = cvy_calloc(1, sizeof *entry);

    if (!entry)
        abort();
    *entry = *values;
    **end = entry;
    *end = &entry->next;
    return entry;
}

static void append_replay(struct entry ***end, void (*replay)(const void *data), const void *data, size_t bytes)
{
    struct entry *entry = append(end, &(struct entry){.kind = REPLAY, .replay = replay});

    entry->data = cvy_calloc(1, bytes);
    if (!entry->data)
        abort();
    memcpy(entry->data, data, bytes);
}

static void free_entries(struct entry *entry)
{
    while (entry) {
        struct entry *next = entry->next;

        cvy_free(entry->data);
        cvy_free(entry);
        entry = next;
    }
}

static void read_host_clock(struct timespec *now)
{
    clock_gettime(CLOCK_MONOTONIC, now);
}

static void (*read_clock)(struct timespec *now) = read_host_clock;

void emulated_set_clock(void (*read)(struct timespec *now))
{
    read_clock = read ? read : read_host_clock;
}

static void pass(struct event *event, unsigned number)
{
    read_clock(&event->time);
    event->passed = number;
}

static void progress(struct stream *stream, const struct event *until, unsigned number);

static bool has_passed(const struct event *event, unsigned number)
{
    return (int)(event->passed - number) >= 0;
}

static bool is_over(const struct entry *entry)
{
    if (entry->kind == WAIT_OUTSIDE)
        return entry->done(entry->op);
    if (entry->kind != WAIT_FOR_EVENT)
        return true;
    progress(entry->event->stream, entry->event, entry->number);
    return has_passed(entry->event, entry->number);
}

/* Does what can be done now, up to record `number` of an event (NULL: all). */
static void progress(struct stream *stream, const struct event *until, unsigned number)
{
    if (stream->busy)
        return;
    stream->busy = true;
    while (stream->first && !(until && has_passed(until, number)) && is_over(stream->first)) {
        struct entry *entry = stream->first;

        stream->first = entry->next;
        if (!stream->first)
            stream->end = &stream->first;
        if (entry->kind == REPLAY)
            entry->replay(entry->data);
        else if (entry->kind == PASS_EVENT)
            pass(entry->event, entry->number);
        entry->next = NULL;
        free_entries(entry);
    }
    stream->busy = false;
}

bool emulated_is_idle(void *handle)
{
    EMULATED_ALONE();
    struct stream *stream = handle;

    if (stream)
        progress(stream, NULL, 0);
    return !stream || !stream->first;
}

static void pause_shortly(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

void emulated_drain(void)
{
    EMULATED_ALONE();
    for (struct stream *stream = streams; stream; stream = stream->next) {
        while (!emulated_is_idle(stream))
            pause_shortly();
    }
}

static bool is_late(void)
{
    static int late = -1;

    if (late < 0)
        late = getenv("CONVOY_EMULATED_LATE") && strcmp(getenv("CONVOY_EMULATED_LATE"), "1") == 0;
    return late;
}

/* Whether what is queued now is to be done at once. */
static bool starts_at_once(void *handle)
{
    const struct stream *stream = handle;

    return is_late() ? !stream : emulated_is_idle(handle);
}

/* Starts of kernels, copies and captured graphs by the host, for tests that count them. */
static int64_t starts;

__attribute__((visibility("default"))) int64_t emulated_starts(void);
int64_t emulated_starts(void)
{
    return starts;
}

void emulated_do(void *handle, void (*replay)(const void *data), const void *data, size_t bytes)
{
    EMULATED_ALONE();
    struct stream *stream = handle;

    if (stream && stream->gpu != emulated_gpu()) {
        fprintf(stderr, "work for GPU %d from a thread whose GPU is %d\n", stream->gpu, emulated_gpu());
        abort();
    }
    starts += !(stream && stream->capturing);
    if (stream && stream->capturing)
        append_replay(&stream->capturing->end, replay, data, bytes);
    else if (starts_at_once(stream))
        replay(data);
    else
        append_replay(&stream->end, replay, data, bytes);
}

static void attach(void *handle, bool (*done)(void *op), void *op)
{
    EMULATED_ALONE();
    struct stream *stream = handle;

    append(&stream->end, &(struct entry){.kind = WAIT_OUTSIDE, .done = done, .op = op});
    progress(stream, NULL, 0);
}

/* ---- streams ---- */

cvy_status gpu_stream_open(void **handle)
{
    EMULATED_ALONE();
    struct stream *stream = cvy_calloc(1, sizeof *stream);

    *handle = stream;
    if (!stream)
        return cvy_fail_memory(sizeof *stream, "a stream");
    stream->door.attach = attach;
    stream->end = &stream->first;
    stream->gpu = emulated_gpu();
    stream->next = streams;
    streams = stream;
    return CVY_OK;
}

cvy_status gpu_stream_open_urgent(void **stream)
{
    return gpu_stream_open(stream);
}

void gpu_stream_close(void *handle)
{
    EMULATED_ALONE();
    struct stream *stream = handle;

    if (!stream)
        return;
    progress(stream, NULL, 0);
    for (struct stream **at = &streams; *at; at = &(*at)->next) {
        if (*at == stream) {
            *at = stream->next;
            break;
        }
    }
    free_entries(stream->first);
    cvy_free(stream);
}

cvy_status emulated_refuse_in_capture(const void *handle, const char *what)
{
    const struct stream *stream = handle;

    return stream && stream->capturing ? cvy_fail(CVY_FAILED, "%s is not allowed while work is captured", what)
                                       : CVY_OK;
}

bool emulated_broken;

cvy_status gpu_stream_wait(void *stream)
{
    EMULATED_ALONE();
    if (emulated_broken)
        return cvy_fail(CVY_FAILED, "an illegal memory access was encountered");
    CVY_TRY(emulated_refuse_in_capture(stream, "waiting"));
    while (!emulated_is_idle(stream))
        pause_shortly();
    return CVY_OK;
}

cvy_status gpu_stream_done(void *stream, bool *done)
{
    EMULATED_ALONE();
    CVY_TRY(emulated_refuse_in_capture(stream, "asking for the end of work"));
    *done = emulated_is_idle(stream);
    return CVY_OK;
}

/* ---- captured work ---- */

cvy_status gpu_capture_begin(void *handle)
{
    EMULATED_ALONE();
    struct stream *stream = handle;

    CVY_TRY(emulated_refuse_in_capture(stream, "a second capture"));
    stream->capturing = cvy_calloc(1, sizeof *stream->capturing);
    if (!stream->capturing)
        return cvy_fail_memory(sizeof *stream->capturing, "captured work");
    stream->capturing->end = &stream->capturing->first;
    return CVY_OK;
}

cvy_status gpu_capture_end(void *handle, void **graph)
{
    EMULATED_ALONE();
    struct stream *stream = handle;

    *graph = stream->capturing;
    if (!stream->capturing)
        return cvy_fail(CVY_FAILED, "no work is being captured");
    stream->capturing = NULL;
    if (!getenv("CONVOY_EMULATED_CAPTURE_FAILS"))
        return CVY_OK;
    gpu_graph_close(*graph);
    *graph = NULL;
    return cvy_fail(CVY_FAILED, "the GPU's work cannot be captured: a test asked for that");
}

static void replay_graph(const void *data)
{
    const struct graph *graph;

    memcpy(&graph, data, sizeof graph);
    for (const struct entry *entry = graph->first; entry; entry = entry->next)
        entry->replay(entry->data);
}

cvy_status gpu_graph_launch(void *graph, void *stream)
{
    EMULATED_ALONE();
    CVY_TRY(emulated_refuse_in_capture(stream, "starting captured work"));
    emulated_do(stream, replay_graph, &graph, sizeof graph);
    return CVY_OK;
}

void gpu_graph_close(void *handle)
{
    EMULATED_ALONE();
    struct graph *graph = handle;

    if (!graph)
        return;
    emulated_drain(); /* it may be queued */
    free_entries(graph->first);
    cvy_free(graph);
}

/* ---- events: moments of the host's clock, or of the one that a test gave ---- */

cvy_status gpu_event_open(bool timing, void **event)
{
    (void)timing;
    *event = cvy_calloc(1, sizeof(struct event));
    return *event ? CVY_OK : cvy_fail_memory(sizeof(struct event), "an event");
}

void gpu_event_close(void *event)
{
    EMULATED_ALONE();
    if (event)
        emulated_drain(); /* somebody may wait for it */
    cvy_free(event);
}

cvy_status gpu_event_record(void *handle, void *stream)
{
    EMULATED_ALONE();
    struct event *event = handle;

    CVY_TRY(emulated_refuse_in_capture(stream, "an event"));
    event->stream = stream;
    event->recorded++;
    if (starts_at_once(stream))
        pass(event, event->recorded);
    else
        append(&event->stream->end, &(struct entry){.kind = PASS_EVENT, .event = event, .number = event->recorded});
    return CVY_OK;
}

cvy_status gpu_stream_wait_event(void *handle, void *event_handle)
{
    EMULATED_ALONE();
    struct stream *stream = handle;
    struct event *event = event_handle;

    CVY_TRY(emulated_refuse_in_capture(stream, "an event"));
    if (event->passed != event->recorded)
        append(&stream->end, &(struct entry){.kind = WAIT_FOR_EVENT, .event = event, .number = event->recorded});
    return CVY_OK;
}

cvy_status gpu_event_done(void *handle, bool *done)
{
    EMULATED_ALONE();
    struct event *event = handle;

    if (event->passed != event->recorded)
        progress(event->stream, event, event->recorded);
    *done = event->passed == event->recorded;
    return CVY_OK;
}

cvy_status gpu_event_wait(void *handle)
{
    EMULATED_ALONE();
    struct event *event = handle;

    while (event->passed != event->recorded) {
        progress(event->stream, event, event->recorded);
        if (event->passed != event->recorded)
            pause_shortly();
    }
    return CVY_OK;
}

cvy_status gpu_event_seconds(void *from, void *to, double *seconds)
{
    const struct event *a = from, *b = to;

    *seconds = (double)(b->time.tv_sec - a->time.tv_sec) + 1e-9 * (double)(b->time.tv_nsec - a->time.tv_nsec);
    return CVY_OK;
}
