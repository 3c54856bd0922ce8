/* A stand-in for NCCL between emulated GPUs: processes of one machine that meet at a socket of rank 0, where the sums
 * are made. It is asynchronous as NCCL is: a thread does the sums, a few milliseconds late, and the stream continues
 * when they are there; of a rank that dies or does not come it says nothing. CONVOY_EMULATED_NCCL spoils it:
 *
 *   error R N      on rank R sum number N (from 0) fails, and NCCL knows
 *   clings R N     so it does, and ncclCommAbort does not return then
 *   lost R N       it never ends
 *   stall R N S    rank R comes to it S seconds late
 *   absent R N S   it comes S seconds late to the meeting (N: 0) */
#include <nccl.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "capture.h"
#include "emulate.h"

enum { MAX_RANKS = 16, DELAY_MILLISECONDS = 2 };

struct op {
    void *data;
    void *numbers; /* what the data were when the stream came to it; then the sum */
    size_t count;
    ncclDataType_t type;
    int number;
    struct ncclComm *comm;
    bool begun; /* the stream has come to it */
    atomic_bool done;
    struct op *next;
};

struct ncclComm {
    int rank, ranks;
    char name[64]; /* of the meeting place */
    int listener;  /* on rank 0 */
    int peers[MAX_RANKS];
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct op *first, **end;
    int posted;
    bool closing; /* no more sums come */
    atomic_bool given_up, clings;
    atomic_int state; /* ncclResult_t */
    char last_error[64];
    struct ncclComm *next; /* of all there ever were: streams may still come to sums of one that is gone */
};
static struct ncclComm *communicators;

static struct {
    char name[64];
    int listener;
} place = {.listener = -1}; /* of ncclGetUniqueId, until rank 0 joins */

static void sleep_seconds(double seconds)
{
    const struct timespec moment = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};

    (void)nanosleep(&moment, NULL);
}

/* Whether this is what CONVOY_EMULATED_NCCL spoils. */
static bool spoils(const char *how, int rank, int number, double *seconds)
{
    const char *text = getenv("CONVOY_EMULATED_NCCL");
    char word[16];
    int at_rank, at_number;

    double length = 0;
    const bool found = text && sscanf(text, "%15s %d %d %lf", word, &at_rank, &at_number, &length) >= 3 &&
                       strcmp(word, how) == 0 && at_rank == rank && at_number == number;

    *seconds = found ? length : 0;
    return found;
}

/* ---- sockets ---- */

static socklen_t address_of(const char *name, struct sockaddr_un *address)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "%.100s", name); /* of the kernel's own name space */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

static bool send_all(int socket, const void *data, size_t bytes)
{
    for (const char *at = data; bytes > 0;) {
        const ssize_t sent = send(socket, at, bytes, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        at += sent;
        bytes -= (size_t)sent;
    }
    return true;
}

static bool receive_all(int socket, void *data, size_t bytes)
{
    return bytes == 0 || recv(socket, data, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

/* Rank 0 waits for the others, the others for rank 0. */
static bool meet(struct ncclComm *comm)
{
    struct sockaddr_un address;
    const socklen_t length = address_of(comm->name, &address);

    for (int i = 1; comm->rank == 0 && i < comm->ranks; i++) {
        const int peer = accept4(comm->listener, NULL, NULL, SOCK_CLOEXEC);
        int32_t rank;
        if (peer < 0 || !receive_all(peer, &rank, sizeof rank) || rank < 1 || rank >= comm->ranks)
            return false;
        comm->peers[rank] = peer;
    }
    if (comm->rank > 0) {
        const int32_t rank = comm->rank;
        comm->peers[0] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        return connect(comm->peers[0], (const struct sockaddr *)&address, length) == 0 &&
               send_all(comm->peers[0], &rank, sizeof rank);
    }
    return true;
}

/* ---- the thread ---- */

static size_t bytes_of(const struct op *op)
{
    return op->count * (op->type == ncclFloat32 ? sizeof(float) : sizeof(uint16_t));
}

/* In floats, rounded to the type. */
static void add(const struct op *op, const void *theirs)
{
    for (size_t i = 0; i < op->count; i++) {
        if (op->type == ncclFloat32) {
            ((float *)op->numbers)[i] += ((const float *)theirs)[i];
        } else {
            uint16_t *x = (uint16_t *)op->numbers + i;
            const uint16_t y = ((const uint16_t *)theirs)[i];
            *x = op->type == ncclFloat16 ? gpu_to_f16(gpu_from_f16(*x) + gpu_from_f16(y))
                                         : gpu_to_bf16(gpu_from_bf16(*x) + gpu_from_bf16(y));
        }
    }
}

static bool sum_at_root(struct ncclComm *comm, const struct op *op)
{
    const size_t bytes = bytes_of(op);
    void *theirs = malloc(bytes);
    bool good = theirs != NULL;

    for (int r = 1; r < comm->ranks && good; r++) {
        uint64_t count = 0;
        good = receive_all(comm->peers[r], &count, sizeof count) && count == op->count &&
               receive_all(comm->peers[r], theirs, bytes);
        if (good)
            add(op, theirs);
    }
    for (int r = 1; r < comm->ranks && good; r++)
        good = send_all(comm->peers[r], op->numbers, bytes);
    free(theirs);
    return good;
}

static bool sum(struct ncclComm *comm, const struct op *op)
{
    const uint64_t count = op->count;

    if (comm->rank == 0)
        return sum_at_root(comm, op);
    return send_all(comm->peers[0], &count, sizeof count) && send_all(comm->peers[0], op->numbers, bytes_of(op)) &&
           receive_all(comm->peers[0], op->numbers, bytes_of(op));
}

static void hang(struct ncclComm *comm)
{
    while (!atomic_load(&comm->given_up))
        sleep_seconds(0.01);
}

static void carry_out(struct ncclComm *comm, struct op *op)
{
    double unused;

    sleep_seconds(1e-3 * DELAY_MILLISECONDS);
    if (spoils("clings", comm->rank, op->number, &unused))
        atomic_store(&comm->clings, true);
    if (atomic_load(&comm->clings) || spoils("error", comm->rank, op->number, &unused)) {
        snprintf(comm->last_error, sizeof comm->last_error, "the cable was cut by a test");
        atomic_store(&comm->state, ncclRemoteError);
        hang(comm);
    } else if (spoils("lost", comm->rank, op->number, &unused) || !sum(comm, op)) {
        hang(comm);
    }
    if (op->number == 0 && atomic_load(&comm->state) == ncclInProgress)
        atomic_store(&comm->state, ncclSuccess);
}

static void *work(void *argument)
{
    struct ncclComm *comm = argument;
    double seconds;

    for ((void)spoils("absent", comm->rank, 0, &seconds); seconds > 0 && !atomic_load(&comm->given_up); seconds -= 0.05)
        sleep_seconds(0.05);
    if (!meet(comm))
        hang(comm);
    atomic_store(&comm->state, ncclSuccess);
    for (;;) {
        pthread_mutex_lock(&comm->lock);
        while (!comm->first && !comm->closing)
            pthread_cond_wait(&comm->work, &comm->lock);
        struct op *op = comm->first;
        if (op && !(comm->first = op->next))
            comm->end = &comm->first;
        comm->next = communicators;
        communicators = comm;
        pthread_mutex_unlock(&comm->lock);
        if (!op)
            return NULL;
        if (!atomic_load(&comm->given_up))
            carry_out(comm, op);
        atomic_store(&op->done, true); /* given up or not: kernels end, and streams go on. The stream frees it */
    }
}

/* ---- NCCL ---- */

ncclResult_t ncclGetVersion(int *version)
{
    *version = 22809;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    struct sockaddr_un address;
    unsigned random[4];

    memset(id, 0, sizeof *id);
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return ncclSystemError;
    snprintf(place.name, sizeof place.name, "convoy-%08x%08x%08x%08x", random[0], random[1], random[2], random[3]);
    const socklen_t length = address_of(place.name, &address);
    place.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (place.listener < 0 || bind(place.listener, (const struct sockaddr *)&address, length) != 0 ||
        listen(place.listener, MAX_RANKS) != 0)
        return ncclSystemError;
    memcpy(id->internal, place.name, strlen(place.name));
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    struct ncclComm *comm = calloc(1, sizeof *comm);
    sigset_t all, before;

    *out = comm;
    if (!comm || ranks > MAX_RANKS || config->magic != 0xcafebeef || config->blocking != 0)
        return ncclInvalidArgument;
    comm->rank = rank;
    comm->ranks = ranks;
    comm->listener = -1;
    for (int i = 0; i < MAX_RANKS; i++)
        comm->peers[i] = -1;
    memcpy(comm->name, id.internal, sizeof comm->name - 1);
    if (rank == 0 && strcmp(place.name, comm->name) == 0) {
        comm->listener = place.listener;
        place.listener = -1;
    }
    comm->end = &comm->first;
    atomic_store(&comm->state, ncclInProgress);
    pthread_mutex_init(&comm->lock, NULL);
    pthread_cond_init(&comm->work, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&comm->thread, NULL, work, comm);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed ? ncclSystemError : ncclInProgress;
}

/* For the thread. */
static void begin(struct op *op)
{
    struct ncclComm *comm = op->comm;

    op->begun = true;
    op->numbers = malloc(bytes_of(op));
    if (!op->numbers)
        abort();
    memcpy(op->numbers, op->data, bytes_of(op));
    if (comm->closing) {
        atomic_store(&op->done, true);
        return;
    }
    pthread_mutex_lock(&comm->lock);
    *comm->end = op;
    comm->end = &op->next;
    pthread_cond_signal(&comm->work);
    pthread_mutex_unlock(&comm->lock);
}

/* Asked from when the stream has come to it; once it says true nobody asks again. */
static bool is_done(void *handle)
{
    struct op *op = handle;

    if (!op->begun)
        begin(op);
    if (!atomic_load(&op->done))
        return false;
    memcpy(op->data, op->numbers, bytes_of(op));
    free(op->numbers);
    free(op);
    return true;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream)
{
    struct op *made = calloc(1, sizeof *made);
    double seconds;

    if (!made || from != to || (type != ncclFloat32 && type != ncclFloat16 && type != ncclBfloat16) || op != ncclSum)
        return ncclInvalidArgument;
    *made = (struct op){.data = to, .count = count, .type = type, .number = comm->posted++, .comm = comm};
    const bool first = made->number == 0; /* connections are made with it */
    if (spoils("stall", comm->rank, made->number, &seconds))
        sleep_seconds(seconds);
    if (first)
        atomic_store(&comm->state, ncclInProgress);
    ((struct emulated_stream_door *)(void *)stream)->attach(stream, is_done, made);
    return first ? ncclInProgress : ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result)
{
    *result = (ncclResult_t)atomic_load(&comm->state);
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    (void)comm;
    return ncclSuccess;
}

static ncclResult_t end(struct ncclComm *comm)
{
    pthread_mutex_lock(&comm->lock);
    comm->closing = true;
    pthread_cond_signal(&comm->work);
    pthread_mutex_unlock(&comm->lock);
    pthread_join(comm->thread, NULL);
    for (int i = 0; i < MAX_RANKS; i++) {
        if (comm->peers[i] >= 0)
            close(comm->peers[i]);
    }
    if (comm->listener >= 0)
        close(comm->listener);
    pthread_mutex_destroy(&comm->lock);
    pthread_cond_destroy(&comm->work);
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    return end(comm);
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    while (atomic_load(&comm->clings))
        sleep_seconds(60);
    atomic_store(&comm->given_up, true);
    for (int i = 0; i < MAX_RANKS; i++) {
        if (comm->peers[i] >= 0)
            shutdown(comm->peers[i], SHUT_RDWR);
    }
    if (comm->listener >= 0)
        shutdown(comm->listener, SHUT_RDWR);
    return end(comm);
}

const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclRemoteError ? "remote process exited or there was a network error" : "an error of a stand-in";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    return comm ? comm->last_error : "";
}
