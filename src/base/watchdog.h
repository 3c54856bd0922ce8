/* Guards calls into other libraries that may hang and cannot be cancelled. */
#ifndef CVY_BASE_WATCHDOG_H
#define CVY_BASE_WATCHDOG_H

struct cvy_watchdog;
/* Unless cvy_watchdog_stop is called within `seconds`, the sentence is logged once as CVY_LOG_FATAL, from a thread of
 * its own. NULL where there is no thread or memory for it: the call is unguarded then. */
struct cvy_watchdog *cvy_watchdog_start(double seconds, const char *sentence);
void cvy_watchdog_stop(struct cvy_watchdog *watchdog); /* accepts NULL */

#endif
