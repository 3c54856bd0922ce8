/* The environment that launchers set for each process. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/comm.h"

enum { MOST_RANKS = 65536, USUAL_PORT = 29500, SLURM_PORTS = 1000 };

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

static cvy_status find_address(struct cvy_comm_place *place)
{
    const char *address = getenv("MASTER_ADDR"), *list = getenv("SLURM_STEP_NODELIST");
    bool there;

    if (address && *address) {
        if (strlen(address) >= sizeof place->address)
            return cvy_fail(CVY_USAGE, "the environment variable MASTER_ADDR is too long for the name of a host");
        snprintf(place->address, sizeof place->address, "%s", address);
    } else if (list && *list) {
        first_host(list, place->address, sizeof place->address);
    } else {
        return cvy_fail(CVY_USAGE,
                        "the environment says that there are %d ranks, but not where rank 0 is: set "
                        "MASTER_ADDR and MASTER_PORT",
                        place->world);
    }
    return read_number("MASTER_PORT", 1, 65535, &place->port, &there);
}

/* Two names that belong together. */
static cvy_status read_pair(struct cvy_comm_place *place, const char *rank, const char *world, const char *local,
                            bool *found)
{
    bool has_rank, has_world, has_local;

    CVY_TRY(read_number(world, 1, MOST_RANKS, &place->world, &has_world));
    CVY_TRY(read_number(rank, 0, MOST_RANKS - 1, &place->rank, &has_rank));
    CVY_TRY(read_number(local, 0, MOST_RANKS - 1, &place->local_rank, &has_local));
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

cvy_status cvy_comm_find_place(struct cvy_comm_place *place)
{
    const char *key = getenv("CONVOY_COMM_KEY"), *job = getenv("SLURM_JOB_ID");
    bool found, there;

    *place = (struct cvy_comm_place){.world = 1, .local_rank = -1, .port = USUAL_PORT, .listener = -1};
    CVY_TRY(read_pair(place, "RANK", "WORLD_SIZE", "LOCAL_RANK", &found));
    if (!found && getenv("SLURM_STEP_ID")) { /* started by srun; in the batch script itself nobody else is waiting */
        CVY_TRY(read_pair(place, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", &found));
        if (job)
            place->port += (int)(strtoul(job, NULL, 10) % SLURM_PORTS);
    }
    if (!found || place->world == 1) {
        place->world = 1;
        place->rank = 0;
        return CVY_OK;
    }
    snprintf(place->key, sizeof place->key, "%s", key ? key : job ? job : "");
    CVY_TRY(read_number("CONVOY_COMM_LISTENER", 3, 1 << 20, &place->listener, &there));
    if (place->rank != 0)
        place->listener = -1;
    return find_address(place);
}
