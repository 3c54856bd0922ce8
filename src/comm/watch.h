/* Failure detection: a thread beside the sums of a rank that knows whether the others are alive. Every rank has a
 * connection to rank 0 and sends it a heartbeat each second with the number of sums it has reached; rank 0 tells all
 * others. A failing rank sends its reason, which rank 0 forwards; a rank whose heartbeats stop is named by rank 0. So
 * all ranks end with the same reason. */
#ifndef CVY_COMM_WATCH_H
#define CVY_COMM_WATCH_H

#include "convoy/status.h"

struct cvy_watch;
struct cvy_watch_options {
    int rank, world;
    double timeout;
    /* On rank 0: the connection to each rank, by rank (its own is -1). On others: one, to rank 0. The watch takes
     * ownership, also on failure. */
    const int *sockets;
    /* The rank's name for messages, "rank 2 on host \"b\""; the texts are borrowed. */
    const char *const *names;
};
CVY_CHECKED cvy_status cvy_watch_open(struct cvy_watch **watch, const struct cvy_watch_options *options);
/* Signs off: missing heartbeats are no failure from now on. Accepts NULL. */
void cvy_watch_close(struct cvy_watch *watch);

/* A descriptor that becomes readable once some rank has failed. */
int cvy_watch_alarm(const struct cvy_watch *watch);
/* This rank has reached that sum. */
void cvy_watch_progress(struct cvy_watch *watch, uint64_t sequence);
/* Why the ranks fail: waits at most `seconds` for a rank to report it, then records the sentence and returns its
 * status; CVY_OK when no rank has reported a failure. */
CVY_CHECKED cvy_status cvy_watch_reason(struct cvy_watch *watch, double seconds);
/* This rank's time limit has expired: names the rank at fault. Always a failure. */
CVY_CHECKED cvy_status cvy_watch_timeout(struct cvy_watch *watch);
/* This rank fails. Returns when the others have been told, as far as they are reachable. */
void cvy_watch_abort(struct cvy_watch *watch, cvy_status status, const char *why);

#endif
