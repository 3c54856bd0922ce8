/* The GPUs that --gpus names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convoy/program/program.h"
#include "ranks.h"
#include "terminal.h"

/* A number from 0 on at *at, which moves after it; -1: there is none. */
static int take_number(const char **at)
{
    char *end;
    const long value = **at >= '0' && **at <= '9' ? strtol(*at, &end, 10) : -1;
    if (value < 0 || value >= RANKS_MAX)
        return -1;
    *at = end;
    return (int)value;
}

static bool take_list(const char *text, struct ranks_gpus *gpus)
{
    for (const char *at = text;; at++) {
        const int number = take_number(&at);
        if (number < 0 || gpus->count == RANKS_MAX)
            return false;
        for (int i = 0; i < gpus->count; i++) {
            if (gpus->number[i] == number)
                return false;
        }
        gpus->number[gpus->count++] = number;
        if (*at != ',')
            return *at == '\0';
    }
}

static void take_first(int count, struct ranks_gpus *gpus)
{
    gpus->count = count < RANKS_MAX ? count : RANKS_MAX;
    for (int i = 0; i < gpus->count; i++)
        gpus->number[i] = i;
}

cvy_status ranks_name_gpus(const char *text, struct ranks_gpus *gpus)
{
    const char *end = text;
    gpus->count = 0;
    if (strcmp(text, "all") == 0 || (strchr(text, ',') && take_list(text, gpus)))
        return CVY_OK;
    const int wanted = strchr(text, ',') ? 0 : take_number(&end);
    if (wanted < 1 || *end)
        return terminal_fail(CVY_USAGE,
                             "option --gpus is \"all\", how many (1 to %d), or a list of numbers that are not the same "
                             "as in 0,2,3",
                             RANKS_MAX);
    take_first(wanted, gpus);
    return CVY_OK;
}

cvy_status ranks_find_gpus(const char *text, struct ranks_gpus *gpus)
{
    int there = 0;
    cvy_status status = ranks_name_gpus(text, gpus);
    if (status != CVY_OK)
        return status;
    status = cvy_gpu_query(0, &gpus->gpu[0], &there);
    if (status != CVY_OK)
        return terminal_fail_library(status);
    if (gpus->count == 0)
        take_first(there, gpus);
    for (int i = 0; i < gpus->count; i++) {
        if (gpus->number[i] >= there)
            return terminal_fail(CVY_UNAVAILABLE, "option --gpus %s: this process sees %d GPU%s", text, there,
                                 there == 1 ? "" : "s");
        status = cvy_gpu_query(gpus->number[i], &gpus->gpu[i], &there);
        if (status != CVY_OK)
            return terminal_fail_library(status);
    }
    return CVY_OK;
}
