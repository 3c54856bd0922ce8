/* Reads the environment that launchers set for each process. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "comm/comm.h"

enum { MAX_RANKS = 65536, USUAL_PORT = 29500, PORTS = 1000 };

/* A number of the environment. *there: whether it is set. */
static cvy_status read_number(const char *name, long low, long high, int *value, bool *there)
{
    const char *text = getenv(name);
    char *end;
    long number;

    *there = text && *text;
    if (!*there)
        return CVY_OK;
    errno = 0;
    number = strtol(text, &end, 10);
    if (errno || end == text || *end || number < low || number > high)
        return cvy_fail(CVY_USAGE, "the environment variable %s is %s, not a number from %ld to %ld", name,
                        cvy_quote(text), low, high);
    *value = (int)number;
    return CVY_OK;
}

/* The first host of "node[03-07,12],other": "node03". */
static void first_host(const char *list, char *host, size_t size)
{
    const size_t prefix = strcspn(list, "[,");
    size_t digits = 0;

    if (list[prefix] == '[')
        digits = strcspn(list + prefix + 1, "-,]");
    snprintf(host, size, "%.*s%.*s", (int)prefix, list, (int)digits, digits ? list + prefix + 1 : "");
}

/* Two names that belong together. */
static cvy_status read_pair(struct cvy_comm_config *place, const char *rank, const char *world, bool *found)
{
    bool has_rank, has_world;

    CVY_TRY(read_number(world, 1, MAX_RANKS, &place->world, &has_world));
    CVY_TRY(read_number(rank, 0, MAX_RANKS - 1, &place->rank, &has_rank));
    *found = has_rank || (has_world && place->world > 1);
    if (!*found)
        return CVY_OK;
    if (!has_rank || !has_world)
        return cvy_fail(CVY_USAGE, "the environment variable %s is set, but %s is not: a launcher sets both",
                        has_rank ? rank : world, has_rank ? world : rank);
    return place->rank < place->world ? CVY_OK
                                      : cvy_fail(CVY_USAGE, "the environment says rank %d of %d: ranks count from 0",
                                                 place->rank, place->world);
}

/* ---- launchers ---- */

/* FNV-1a. */
static uint32_t hash(const char *text)
{
    uint32_t value = 0x811c9dc5;

    for (; *text; text++)
        value = (value ^ (unsigned char)*text) * 0x01000193;
    return value;
}

/* Whether srun itself started this process. What mpirun starts may lie in a job step whose numbers are others: that of
 * its daemons, or of a shell. */
static bool started_by_srun(void)
{
    const char *job = getenv("PMIX_NAMESPACE");

    return getenv("SLURM_STEP_ID") && getenv("SLURM_PROCID") && !getenv("OMPI_COMM_WORLD_RANK") &&
           !getenv("MPI_LOCALNRANKS") && (!getenv("PMIX_RANK") || (job && strncmp(job, "slurm.", 6) == 0));
}

/* What names a run under Slurm: the job, and of srun the step too, for steps of a job run beside each other. False:
 * not under Slurm. */
static bool name_job(char *text, size_t size)
{
    const char *job = getenv("SLURM_JOB_ID");

    if (!job)
        return false;
    snprintf(text, size, "%s%s%s", job, started_by_srun() ? "." : "", started_by_srun() ? getenv("SLURM_STEP_ID") : "");
    return true;
}

/* A job step of Slurm's; in the batch script itself nobody else is waiting. */
static cvy_status read_slurm(struct cvy_comm_config *place, bool *found)
{
    *found = false;
    if (!started_by_srun())
        return CVY_OK;
    return read_pair(place, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", found);
}

/* One that knows MPI: mpirun, or Slurm with --mpi. */
static cvy_status read_mpi(struct cvy_comm_config *place, bool *found)
{
    bool slurm;

    place->over = CVY_TRANSPORT_OPENMPI;
    CVY_TRY(read_pair(place, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", found));
    if (*found)
        return CVY_OK;
    place->over = CVY_TRANSPORT_MPICH;
    CVY_TRY(read_pair(place, "PMI_RANK", "PMI_SIZE", found));
    if (*found)
        return CVY_OK;
    place->over = CVY_TRANSPORT_OPENMPI; /* PMIx, which does not tell how many there are */
    CVY_TRY(read_number("PMIX_RANK", 0, MAX_RANKS - 1, &place->rank, found));
    if (!*found)
        return CVY_OK;
    CVY_TRY(read_slurm(place, &slurm));
    place->world = slurm ? place->world : 0;
    return CVY_OK;
}

const char *cvy_comm_transport_name(enum cvy_comm_transport over)
{
    static const char *const names[CVY_TRANSPORT_COUNT] = {"tcp", "openmpi", "mpich"};

    return names[over];
}

/* CONVOY_COMM: one of enum cvy_comm_transport, or */
enum { WISH_ANY = -2, WISH_MPI = -1 };
static cvy_status read_wish(int *wish)
{
    const char *text = getenv("CONVOY_COMM");

    *wish = WISH_ANY;
    if (!text || !*text)
        return CVY_OK;
    *wish = WISH_MPI;
    if (strcmp(text, "mpi") == 0)
        return CVY_OK;
    for (*wish = 0; *wish < CVY_TRANSPORT_COUNT; ++*wish) {
        if (strcmp(text, cvy_comm_transport_name((enum cvy_comm_transport) * wish)) == 0)
            return CVY_OK;
    }
    return cvy_fail(CVY_USAGE, "the environment variable CONVOY_COMM is %s, not tcp, mpi, openmpi or mpich",
                    cvy_quote(text));
}

static cvy_status find_launcher(struct cvy_comm_config *place, bool *found)
{
    struct cvy_comm_config by_mpi = *place;
    int wish;

    CVY_TRY(read_wish(&wish));
    *found = false;
    place->asked = by_mpi.asked = wish != WISH_ANY;
    if (wish == WISH_ANY || wish == CVY_TRANSPORT_TCP)
        CVY_TRY(read_pair(place, "RANK", "WORLD_SIZE", found));
    if (!*found &&
        (wish == WISH_ANY || wish == CVY_TRANSPORT_TCP)) /* many clusters set up MPI's start for every step */
        CVY_TRY(read_slurm(place, found));
    if (*found)
        return CVY_OK;
    CVY_TRY(read_mpi(&by_mpi, found));
    if (*found) {
        *place = by_mpi;
        if (wish >= 0)
            place->over = (enum cvy_comm_transport)wish;
        return CVY_OK;
    }
    if (wish == WISH_ANY || wish == CVY_TRANSPORT_TCP)
        return CVY_OK;
    return cvy_fail(CVY_USAGE,
                    "the environment variable CONVOY_COMM is %s, but it was not an MPI that started this "
                    "process: start it with mpirun",
                    cvy_quote(getenv("CONVOY_COMM")));
}

/* ---- where rank 0 is ---- */

/* mpirun's ranks on one host, which agree on a port by what they know of their launcher. */
static cvy_status find_local(struct cvy_comm_config *place, bool *found)
{
    const char *job = getenv("PMIX_NAMESPACE");
    char launcher[sizeof place->key];
    int local = 0;
    bool there;

    CVY_TRY(read_number("OMPI_COMM_WORLD_LOCAL_SIZE", 1, MAX_RANKS, &local, &there));
    if (!there)
        CVY_TRY(read_number("MPI_LOCALNRANKS", 1, MAX_RANKS, &local, &there));
    *found = there && local == place->world;
    if (!*found)
        return CVY_OK;
    snprintf(place->address, sizeof place->address, "127.0.0.1");
    if (job)
        snprintf(launcher, sizeof launcher, "%s", job);
    else
        snprintf(launcher, sizeof launcher, "process %ld", (long)getppid());
    place->port += (int)(hash(launcher) % PORTS);
    if (!place->key[0])
        memcpy(place->key, launcher, sizeof place->key);
    return CVY_OK;
}

/* torchrun itself listens on MASTER_PORT. */
static cvy_status find_port(struct cvy_comm_config *place)
{
    const char *torchrun = getenv("TORCHELASTIC_USE_AGENT_STORE");
    bool there;

    CVY_TRY(read_number("MASTER_PORT", 1, 65535, &place->port, &there));
    if (there && torchrun && strcmp(torchrun, "True") == 0)
        place->port += place->port < 65535 ? 1 : -1;
    return read_number("CONVOY_COMM_PORT", 1, 65535, &place->port, &there);
}

cvy_status cvy_comm_config_for_tcp(struct cvy_comm_config *place)
{
    const char *address = getenv("MASTER_ADDR");
    const char *list = getenv(started_by_srun() ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST");
    char job[sizeof place->key];
    bool found = true;

    place->over = CVY_TRANSPORT_TCP;
    if (place->world == 0)
        return cvy_fail(CVY_USAGE, "the environment says that this is rank %d, but not of how many", place->rank);
    if (address && strlen(address) >= sizeof place->address)
        return cvy_fail(CVY_USAGE, "the environment variable MASTER_ADDR is too long for the name of a host");
    if (name_job(job, sizeof job))
        place->port += (int)(hash(job) % PORTS);
    if (address && *address)
        snprintf(place->address, sizeof place->address, "%s", address);
    else
        CVY_TRY(find_local(place, &found));
    if (!found && list && *list)
        first_host(list, place->address, sizeof place->address);
    else if (!found)
        return cvy_fail(CVY_USAGE,
                        "the environment says that there are %d ranks, but not where rank 0 is: set "
                        "MASTER_ADDR and MASTER_PORT",
                        place->world);
    return find_port(place);
}

cvy_status cvy_comm_find_config(struct cvy_comm_config *place)
{
    const char *key = getenv("CONVOY_COMM_KEY");
    bool found, there;

    *place = (struct cvy_comm_config){.world = 1, .port = USUAL_PORT, .listener = -1};
    CVY_TRY(find_launcher(place, &found));
    if (!found || place->world == 1) {
        place->world = 1;
        place->rank = 0;
        return CVY_OK;
    }
    if (key && strlen(key) >= sizeof place->key)
        return cvy_fail(CVY_USAGE, "the environment variable CONVOY_COMM_KEY is longer than %zu bytes",
                        sizeof place->key - 1);
    place->secret = key && *key;
    if (key)
        snprintf(place->key, sizeof place->key, "%s", key);
    else if (!name_job(place->key, sizeof place->key))
        place->key[0] = '\0';
    CVY_TRY(read_number("CONVOY_COMM_LISTENER", 3, 1 << 20, &place->listener, &there));
    if (place->rank != 0)
        place->listener = -1;
    return place->over == CVY_TRANSPORT_TCP ? cvy_comm_config_for_tcp(place) : CVY_OK;
}
