/* MPI after non-blocking functions: messages of at most MESSAGE_BYTES, one at a time on each line and in each
 * direction. */
#include <mpi.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/link.h"
#include "comm/mpi_module.h"

enum { MESSAGE_BYTES = 256 * 1024, FIRST_TAG = 7 };

static MPI_Comm ranks = MPI_COMM_NULL;
static bool failed;
static char last_failure[512]; /* of bytes on a line */

/* What goes out on a line: a message on its way, out of the caller's memory. */
static struct departure {
    MPI_Request request;
    size_t bytes;
    bool in_flight;
} departures[CVY_LINES];

/* What comes in: a message on its way into the caller's memory, or (buffered) one longer than what the caller wants. */
static struct arrival {
    MPI_Request request;
    size_t bytes, taken;
    bool in_flight, buffered;
    char *buffer; /* (MESSAGE_BYTES), made when it is needed first, for as long as the process lives */
} arrivals[CVY_LINES];

static int explain(int code, const char *what, char *why, size_t size)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;

    if (code == MPI_SUCCESS)
        return 0;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS)
        snprintf(text, sizeof text, "error %d", code);
    for (char *c = text; *c; c++)
        *c = *c == '\n' ? ' ' : *c;
    snprintf(why, size, "%s: %s", what, text);
    return -1;
}

/* ---- the process among others ---- */

static void finalise(void)
{
    int done = 0;

    /* With a rank that failed it would wait for ever: the launcher is told by the exit code instead. */
    if (!failed && MPI_Finalized(&done) == MPI_SUCCESS && !done)
        MPI_Finalize();
}

static int start(char *why, size_t size)
{
    int running = 0, level = MPI_THREAD_SERIALIZED;

    if (explain(MPI_Initialized(&running), "MPI_Initialized", why, size) != 0)
        return -1;
    if (running) { /* by the program that uses the library, and ended by it */
        if (explain(MPI_Query_thread(&level), "MPI_Query_thread", why, size) != 0)
            return -1;
        if (level >= MPI_THREAD_SERIALIZED)
            return 0;
        snprintf(why, size, "the program began it without MPI_THREAD_SERIALIZED");
        return -1;
    }
    if (explain(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread", why, size) != 0)
        return -1;
    if (atexit(finalise) != 0) {
        snprintf(why, size, "no function can be registered for the end of the process");
        return -1;
    }
    if (level >= MPI_THREAD_SERIALIZED)
        return 0;
    snprintf(why, size, "this MPI was built without support for threads");
    return -1;
}

static int join(int *rank, int *world, char *why, size_t size)
{
    if (failed) { /* messages may be in progress still */
        snprintf(why, size, "its ranks have failed in this process before");
        return -1;
    }
    if (ranks == MPI_COMM_NULL) {
        if (start(why, size) != 0 || explain(MPI_Comm_dup(MPI_COMM_WORLD, &ranks), "MPI_Comm_dup", why, size) != 0)
            return -1;
        if (explain(MPI_Comm_set_errhandler(ranks, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler", why, size) != 0)
            return -1;
    }
    if (explain(MPI_Comm_rank(ranks, rank), "MPI_Comm_rank", why, size) != 0)
        return -1;
    return explain(MPI_Comm_size(ranks, world), "MPI_Comm_size", why, size);
}

static int gather(const void *mine, void *all, size_t bytes, int (*go_on)(void *context), void *context, char *why,
                  size_t size)
{
    MPI_Request request;
    int done = 0;

    if (explain(MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, ranks, &request),
                "MPI_Iallgather", why, size) != 0)
        return -1;
    while (!done) {
        if (explain(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test", why, size) != 0)
            return -1;
        if (!done && !go_on(context)) {
            snprintf(why, size, "not all ranks came in time");
            return -1;
        }
        if (!done)
            nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    return 0;
}

static void leave(int ranks_failed)
{
    failed = failed || ranks_failed;
}

/* ---- bytes ---- */

static bool works(int code, const char *what)
{
    return explain(code, what, last_failure, sizeof last_failure) == 0;
}

static const char *last(void)
{
    return last_failure;
}

static long try_send(int line, int kind, int rank, const void *data, size_t bytes)
{
    struct departure *out = &departures[line];
    int done = 0;

    if (!out->in_flight) {
        out->bytes = bytes < MESSAGE_BYTES ? bytes : MESSAGE_BYTES;
        if (!works(MPI_Isend(data, (int)out->bytes, MPI_BYTE, rank, FIRST_TAG + kind, ranks, &out->request),
                   "MPI_Isend"))
            return -1;
        out->in_flight = true;
    }
    if (!works(MPI_Test(&out->request, &done, MPI_STATUS_IGNORE), "MPI_Test"))
        return -1;
    if (!done)
        return 0;
    out->in_flight = false;
    return (long)out->bytes;
}

/* Begin to receive the next message, where there is one: 1; 0: none; -1: failed. */
static int begin_arrival(struct arrival *in, int kind, int rank, void *data, size_t bytes)
{
    MPI_Message message;
    MPI_Status status;
    int there = 0, count = 0;

    if (!works(MPI_Improbe(rank, FIRST_TAG + kind, ranks, &there, &message, &status), "MPI_Improbe"))
        return -1;
    if (!there)
        return 0;
    if (!works(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count"))
        return -1;
    if (count < 1 || count > MESSAGE_BYTES) {
        snprintf(last_failure, sizeof last_failure, "a message of %d bytes", count);
        return -1;
    }
    in->bytes = (size_t)count;
    in->buffered = in->bytes > bytes;
    if (in->buffered && !in->buffer && !(in->buffer = malloc(MESSAGE_BYTES))) {
        snprintf(last_failure, sizeof last_failure, "no memory for a message");
        return -1;
    }
    if (!works(MPI_Imrecv(in->buffered ? in->buffer : data, count, MPI_BYTE, &message, &in->request), "MPI_Imrecv"))
        return -1;
    in->in_flight = true;
    return 1;
}

static long take_buffered(struct arrival *in, void *data, size_t bytes)
{
    const size_t left = in->bytes - in->taken, now = bytes < left ? bytes : left;

    memcpy(data, in->buffer + in->taken, now);
    in->taken += now;
    in->buffered = in->taken < in->bytes;
    return (long)now;
}

static long try_receive(int line, int kind, int rank, void *data, size_t bytes)
{
    struct arrival *in = &arrivals[line];
    int done = 0;

    if (!in->in_flight && in->buffered)
        return take_buffered(in, data, bytes);
    if (!in->in_flight) {
        const int begun = begin_arrival(in, kind, rank, data, bytes);
        if (begun <= 0)
            return begun;
    }
    if (!works(MPI_Test(&in->request, &done, MPI_STATUS_IGNORE), "MPI_Test"))
        return -1;
    if (!done)
        return 0;
    in->in_flight = false;
    if (!in->buffered)
        return (long)in->bytes;
    in->taken = 0;
    return take_buffered(in, data, bytes);
}

/* ---- the door ---- */

#define TEXT(x)  #x
#define VALUE(x) TEXT(x)
#ifdef OPEN_MPI
#define LIBRARY "Open MPI " VALUE(OMPI_MAJOR_VERSION) "." VALUE(OMPI_MINOR_VERSION) "." VALUE(OMPI_RELEASE_VERSION)
#else
#define LIBRARY "MPICH " MPICH_VERSION
#endif

static const struct cvy_mpi_module module = {
    .version = CVY_MPI_MODULE_VERSION,
    .library = LIBRARY,
    .join = join,
    .gather = gather,
    .try_send = try_send,
    .try_receive = try_receive,
    .last = last,
    .leave = leave,
};

CVY_API const struct cvy_mpi_module *convoy_mpi_module(void);
const struct cvy_mpi_module *convoy_mpi_module(void)
{
    return &module;
}
