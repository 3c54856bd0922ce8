/* Calls into other libraries that may never return and that nothing can call back. */
#ifndef CVY_BASE_GUARD_H
#define CVY_BASE_GUARD_H

struct cvy_guard;
/* From now on, until cvy_guard_stop: after so many seconds the sentence goes to the log as CVY_LOG_FATAL, once, from a
 * thread of its own. NULL where there is no thread or memory for it: nobody watches then. */
struct cvy_guard *cvy_guard_start(double seconds, const char *sentence);
void cvy_guard_stop(struct cvy_guard *guard); /* accepts NULL */

#endif
