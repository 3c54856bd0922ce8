/* A thread beside the sums of a rank that knows whether the others are alive. Every rank has a connection to rank 0 and
 * tells it each second how many sums it has come to; rank 0 tells all others. Whoever fails says why, and rank 0 passes
 * the sentence on; who falls silent is named by rank 0. So all ranks end with the same reason. */
#ifndef CVY_COMM_WATCH_H
#define CVY_COMM_WATCH_H

#include "convoy/status.h"

struct cvy_watch;
struct cvy_watch_options {
    int rank, world;
    double timeout;
    /* Of rank 0: the connection to each rank, by rank (its own is -1). Of others: one, to rank 0. Taken over, also on
     * failure. */
    const int *sockets;
    /* The rank's name for messages, "rank 2 on host \"b\""; the texts are borrowed. */
    const char *const *names;
};
CVY_CHECKED cvy_status cvy_watch_open(struct cvy_watch **watch, const struct cvy_watch_options *options);
/* Says goodbye: to be silent from now on is no failure. Accepts NULL. */
void cvy_watch_close(struct cvy_watch *watch);

/* A descriptor that can be read once some rank has failed. */
int cvy_watch_alarm(const struct cvy_watch *watch);
/* This rank has come to that sum. */
void cvy_watch_progress(struct cvy_watch *watch, uint64_t sequence);
/* Why the ranks fail: waits `seconds` at most for somebody to say so, then records the sentence and returns its status;
 * CVY_OK when nobody has said anything. */
CVY_CHECKED cvy_status cvy_watch_reason(struct cvy_watch *watch, double seconds);
/* This rank has waited for its time limit: whose fault it is. Always a failure. */
CVY_CHECKED cvy_status cvy_watch_late(struct cvy_watch *watch);
/* This rank fails. Returns when the others have been told, as far as they listen. */
void cvy_watch_abort(struct cvy_watch *watch, cvy_status status, const char *why);

#endif
