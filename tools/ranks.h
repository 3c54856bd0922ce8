/* Several processes of one training on this machine ("ranks"): starting them, and being one of them. */
#ifndef TOOLS_RANKS_H
#define TOOLS_RANKS_H

#include <stdbool.h>

#include "convoy/program/program.h"
#include "convoy/train.h"

enum { RANKS_MAX = 1024 };

/* The GPUs of --gpus. */
struct ranks_gpus {
    int number[RANKS_MAX]; /* among those that this process sees */
    struct cvy_gpu gpu[RANKS_MAX];
    int count;
};
/* The numbers of "all" (count 0), of so many from the first on, or of a list "0,2,3", without asking for the GPUs. Says
 * why on failure. */
CVY_CHECKED cvy_status ranks_name_gpus(const char *text, struct ranks_gpus *gpus);
/* The same with the GPUs, which must be there. */
CVY_CHECKED cvy_status ranks_find_gpus(const char *text, struct ranks_gpus *gpus);

/* Start this program's command line `count` times, each with a share of the cores, of those near its GPU where there
 * are GPUs (else NULL), and wait. What rank 0 says goes to the terminal, what the others say to WORKSPACE/rank-1.log
 * and so on. When one fails all end. */
CVY_CHECKED cvy_status ranks_run(int count, const struct ranks_gpus *gpus);

/* Says why where another program has started this process as one of several, or another way of connecting them is asked
 * for. option: "gpus". */
CVY_CHECKED cvy_status ranks_refuse_other_launchers(const char *option);

/* Whether this process was started by ranks_run. */
bool ranks_launched(void);
/* A rank with a log: from now on it is in the run directory. */
void ranks_move_log(const char *run_directory, int rank);
/* In a signal handler: whether the signal is one that the whole group got and that was passed on as well. */
bool ranks_same_signal(void);

#endif
