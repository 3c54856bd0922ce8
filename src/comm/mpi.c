/* Loading the MPI module, the rendezvous of its ranks, and the link over MPI. */
#include "comm/mpi.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/module_file.h"
#include "base/system.h"
#include "base/watchdog.h"
#include "comm/mpi_module.h"

/* MPI cannot sleep until bytes arrive: it is asked again and again, soon after something has moved, then more rarely,
 * so that a rank that waits leaves the cores to those that compute. */
enum {
    EAGER_POLLS = 50,      /* without a pause */
    FIRST_PAUSE = 20000,   /* nanoseconds, */
    LONGEST_PAUSE = 500000 /* twice as many each time up to this */
};
/* A failed rank other than 0 stays this long, or until the launcher ends it: rank 0 is to say why first, and at the
 * first end of a rank the launcher kills the others. */
enum { LINGER_SECONDS = 15 };

static const struct cvy_mpi_module *module; /* one for a process, as MPI itself */
static enum cvy_comm_transport loaded;

/* ---- the module ---- */

static const char *name_of(enum cvy_comm_transport over)
{
    return over == CVY_TRANSPORT_MPICH ? "MPICH" : "Open MPI";
}

/* *library is to be closed where the module is not kept. NULL: none, with the reason. */
static const struct cvy_mpi_module *find(enum cvy_comm_transport over, void **library, char *reason, size_t size)
{
    char file[64], path[PATH_MAX];
    const struct cvy_mpi_module *found;
    cvy_mpi_module_entry entry;

    *library = NULL;
    snprintf(file, sizeof file, "libconvoy_mpi_%s.so", cvy_comm_transport_name(over));
    if (!cvy_module_find(file, path)) {
        snprintf(reason, size, "this build has no module for %s (%s)", name_of(over), file);
        return NULL;
    }
    *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!*library) {
        snprintf(reason, size, "the module for %s cannot be loaded: %s", name_of(over), dlerror());
        return NULL;
    }
    *(void **)&entry = dlsym(*library, CVY_MPI_MODULE_ENTRY);
    found = entry ? entry() : NULL;
    if (found && found->version == CVY_MPI_MODULE_VERSION)
        return found;
    snprintf(reason, size, "the module for %s, %s, belongs to another build of Convoy", name_of(over), path);
    return NULL;
}

cvy_status cvy_mpi_load(enum cvy_comm_transport over)
{
    char reason[PATH_MAX + 256];
    void *library;

    if (module && loaded == over)
        return CVY_OK;
    if (module)
        return cvy_fail(CVY_UNAVAILABLE, "this process has begun with another MPI than %s", name_of(over));
    module = find(over, &library, reason, sizeof reason);
    loaded = over;
    if (module)
        return CVY_OK;
    if (library)
        dlclose(library);
    return cvy_fail(CVY_UNAVAILABLE, "%s", reason);
}

bool cvy_mpi_probe(enum cvy_comm_transport over, char *text, size_t size)
{
    void *library;
    const struct cvy_mpi_module *found = find(over, &library, text, size);

    if (found)
        snprintf(text, size, "%s", found->library);
    if (library)
        dlclose(library);
    return found != NULL;
}

/* ---- the link ---- */

struct lines {
    int rank;
    int ranks[CVY_LINES];
    int polls; /* in vain, since something moved */
};

static int kind_of(int line)
{
    return line == CVY_LINE_NEXT || line == CVY_LINE_PREVIOUS ? 0 : 1;
}

static long mpi_try_send(struct cvy_link *link, int line, const void *data, size_t bytes)
{
    struct lines *lines = link->state;
    const long moved = module->try_send(line, kind_of(line), lines->ranks[line], data, bytes);

    lines->polls = moved > 0 ? 0 : lines->polls;
    return moved;
}

static long mpi_try_receive(struct cvy_link *link, int line, void *data, size_t bytes)
{
    struct lines *lines = link->state;
    const long moved = module->try_receive(line, kind_of(line), lines->ranks[line], data, bytes);

    lines->polls = moved > 0 ? 0 : lines->polls;
    return moved;
}

static enum cvy_socket_result mpi_wait(struct cvy_link *link, int out, int in, double deadline, int alarm)
{
    struct lines *lines = link->state;
    struct pollfd fd = {alarm, POLLIN, 0};
    struct timespec pause = {0};

    (void)out, (void)in;
    if (lines->polls >= EAGER_POLLS) {
        const int doublings = lines->polls - EAGER_POLLS;
        pause.tv_nsec = doublings > 4 ? LONGEST_PAUSE : FIRST_PAUSE << doublings;
    }
    lines->polls++;
    if (ppoll(&fd, 1, &pause, NULL) > 0)
        return CVY_SOCKET_ALARM;
    return cvy_clock() < deadline ? CVY_SOCKET_DONE : CVY_SOCKET_TIMEOUT;
}

static const char *mpi_reason(const struct cvy_link *link)
{
    (void)link;
    return module->last();
}

static void mpi_close(struct cvy_link *link, bool failed)
{
    struct lines *lines = link->state;

    module->leave(failed);
    if (failed && lines->rank != 0) /* a signal ends it, such as the launcher's */
        nanosleep(&(struct timespec){.tv_sec = LINGER_SECONDS}, NULL);
    cvy_free(lines);
    link->state = NULL;
}

static cvy_status open_link(struct cvy_link *link, const struct cvy_group *group, double deadline)
{
    struct lines *lines = cvy_calloc(1, sizeof *lines);

    (void)deadline;
    if (!lines)
        return cvy_fail_memory(sizeof *lines, "the connections to other ranks");
    lines->rank = group->rank;
    memcpy(lines->ranks, group->ranks, sizeof lines->ranks);
    *link = (struct cvy_link){.state = lines,
                              .reason = mpi_reason,
                              .try_send = mpi_try_send,
                              .try_receive = mpi_try_receive,
                              .wait = mpi_wait,
                              .closing_barrier = true,
                              .close = mpi_close};
    snprintf(link->name, sizeof link->name, "MPI (%.40s)", module->library);
    return CVY_OK;
}

/* ---- meeting ---- */

/* What the ranks tell one another over MPI so that they can meet over TCP. */
struct news {
    char host[64], address[64];
    int32_t port; /* rank 0's */
    char key[33]; /* likewise */
};

static int is_in_time(void *deadline)
{
    return cvy_clock() < *(const double *)deadline;
}

static cvy_status all_gather_news(const struct news *mine, struct news *all, double deadline)
{
    char why[512];

    if (module->gather(mine, all, sizeof *mine, is_in_time, &deadline, why, sizeof why) == 0)
        return CVY_OK;
    return cvy_fail(CVY_FAILED, "the ranks cannot meet over %s: %s", module->library, why);
}

/* Rank 0's, for ranks on other hosts. */
static const char *address_of(const struct news *first)
{
    const char *said = getenv("MASTER_ADDR");

    if (said && *said)
        return said;
    return first->address[0] && !cvy_socket_knows(first->host) ? first->address : first->host;
}

/* Rank 0 listens, on the loopback alone where all are on one host, and everybody gets to know where. */
static cvy_status find_rank_0(struct cvy_comm_config *place, struct news *all, double deadline)
{
    struct news mine = {.port = 0};
    bool local = true;

    if (gethostname(mine.host, sizeof mine.host - 1) != 0)
        return cvy_fail_errno(CVY_FAILED, "the name of this host is not known");
    CVY_TRY(all_gather_news(&mine, all, deadline));
    for (int i = 1; i < place->world; i++)
        local = local && strcmp(all[i].host, all[0].host) == 0;
    if (place->rank == 0) {
        int port = 0;

        CVY_TRY(cvy_socket_listen(local ? "127.0.0.1" : "", &port, &place->listener));
        mine.port = port;
        cvy_socket_own_address(mine.address, sizeof mine.address);
        CVY_TRY(cvy_key_draw(mine.key));
    }
    CVY_TRY(all_gather_news(&mine, all, deadline));
    snprintf(place->address, sizeof place->address, "%.255s", local ? "127.0.0.1" : address_of(&all[0]));
    place->port = all[0].port;
    all[0].key[sizeof all[0].key - 1] = '\0';
    snprintf(place->key, sizeof place->key, "%s", all[0].key);
    place->secret = true;
    place->key_file[0] = '\0';
    return CVY_OK;
}

static cvy_status join(struct cvy_comm_config *place, double timeout)
{
    const int expected = place->world;
    struct cvy_watchdog *watchdog;
    char why[512];
    int joined;

    snprintf(
        why, sizeof why,
        "the ranks cannot meet over %s: it has not started within %g s: not all ranks came, or this is not the MPI "
        "of the launcher",
        module->library, timeout);
    watchdog = cvy_watchdog_start(timeout, why); /* MPI_Init waits for ever */
    joined = module->join(&place->rank, &place->world, why, sizeof why);
    cvy_watchdog_stop(watchdog);
    if (joined != 0)
        return cvy_fail(CVY_FAILED, "%s cannot be started: %s", module->library, why);
    if (expected == 0 || place->world == expected)
        return CVY_OK;
    return cvy_fail(CVY_FAILED,
                    "%s knows of %s where the launcher speaks of %d: it is not the MPI of this launcher; "
                    "CONVOY_COMM=tcp goes without",
                    module->library, cvy_counted(place->world, "rank"), expected);
}

cvy_status cvy_mpi_open(struct cvy_comm *comm, const struct cvy_comm_config *given, double timeout)
{
    struct cvy_comm_config place = *given;
    struct news *all = NULL;
    cvy_status status;

    place.listener = -1;
    CVY_GOTO(join(&place, timeout));
    if (place.world == 1) {
        cvy_comm_single(comm);
        return CVY_OK;
    }
    all = cvy_calloc((size_t)place.world, sizeof *all);
    status = all ? find_rank_0(&place, all, cvy_clock() + timeout)
                 : cvy_fail_memory((size_t)place.world * sizeof *all, "the other ranks");
    if (status != CVY_OK && place.listener >= 0)
        close(place.listener);
    if (status == CVY_OK)
        status = cvy_group_open(comm, &place, timeout, open_link);
fail:
    cvy_free(all);
    if (status != CVY_OK)
        module->leave(1);
    return status;
}
