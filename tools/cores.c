/* Cores, their neighbours and their shares. */
#include "cores.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A number from a file about a core; 0 when there is none. */
static int core_number(int core, const char *name)
{
    char path[128];
    int value = 0;
    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/%s", core, name);
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%d", &value) != 1)
        value = 0;
    if (file)
        fclose(file);
    return value;
}

static int by_place(const void *a, const void *b)
{
    const int x = *(const int *)a, y = *(const int *)b;
    const int sockets = core_number(x, "physical_package_id") - core_number(y, "physical_package_id");
    const int cores = core_number(x, "core_id") - core_number(y, "core_id");
    return sockets ? sockets : cores ? cores : x - y;
}

void cores_find(struct cores *cores)
{
    cpu_set_t *allowed = CPU_ALLOC(CORES_MAX);
    const size_t bytes = CPU_ALLOC_SIZE(CORES_MAX);
    cores->count = 0;
    if (allowed && sched_getaffinity(0, bytes, allowed) == 0) {
        for (int i = 0; i < CORES_MAX; i++) {
            if (CPU_ISSET_S((size_t)i, bytes, allowed))
                cores->number[cores->count++] = i;
        }
        qsort(cores->number, (size_t)cores->count, sizeof(cores->number[0]), by_place);
    }
    if (allowed)
        CPU_FREE(allowed);
}

/* Whether "0-3,8-11" has this core. */
static bool lists(const char *list, int core)
{
    for (const char *at = list; *at;) {
        char *end;
        const long first = strtol(at, &end, 10);
        long last = first;
        if (end == at)
            return false;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        if (core >= first && core <= last)
            return true;
        at = *end == ',' ? end + 1 : "";
    }
    return false;
}

/* Those of all cores that are near; false where the list is empty. */
static bool pick(const struct cores *all, const char *near, struct cores *picked)
{
    picked->count = 0;
    for (int i = 0; i < all->count; i++) {
        if (lists(near, all->number[i]))
            picked->number[picked->count++] = all->number[i];
    }
    return picked->count > 0;
}

void cores_share(const struct cores *all, const char *const *near, int rank, int count, struct cores *share)
{
    static struct cores picked, others;
    const bool local = pick(all, near[rank], &picked);
    int place = 0, sharing = 0;
    if (!local)
        picked = *all;
    for (int i = 0; i < count; i++) {
        const bool same = local ? strcmp(near[i], near[rank]) == 0 : !pick(all, near[i], &others);
        place += same && i < rank;
        sharing += same;
    }
    *share = picked;
    if (picked.count < sharing)
        return;
    const int first = place * picked.count / sharing, end = (place + 1) * picked.count / sharing;
    share->count = end - first;
    memmove(share->number, share->number + first, (size_t)share->count * sizeof(share->number[0]));
}

void cores_bind(const struct cores *cores)
{
    cpu_set_t *own = CPU_ALLOC(CORES_MAX);
    const size_t bytes = CPU_ALLOC_SIZE(CORES_MAX);
    if (own && cores->count > 0) {
        CPU_ZERO_S(bytes, own);
        for (int i = 0; i < cores->count; i++)
            CPU_SET_S((size_t)cores->number[i], bytes, own);
        (void)sched_setaffinity(0, bytes, own);
    }
    if (own)
        CPU_FREE(own);
}
