/* TensorBoard's event files: scalars over steps, framed as TFRecords. */
#ifndef CVY_REPORT_RECORDS_EVENTS_H
#define CVY_REPORT_RECORDS_EVENTS_H

#include "report/records/line_file.h"

struct cvy_scalar {
    const char *tag;
    double value; /* stored as a float */
};
/* Zero-initialise before opening. Scalars to a file that is not open are dropped without an error. */
struct cvy_events {
    struct cvy_line_file file;
};
/* Which events of an earlier run are kept: those up to `step`, and of the ends of epochs (events with the scalar
 * "epoch") those before `epoch`. What follows the first one that is not kept is cut off. */
struct cvy_events_keep {
    int64_t step, epoch;
};
/* The file of the run in `folder`: "events.out.tfevents.<time>.<host>.<process>.convoy", or the one that an earlier run
 * began there, cut back to `keep`; with keep NULL it starts over. CVY_CANNOT_CREATE, CVY_CANNOT_WRITE, CVY_NO_MEMORY.
 */
CVY_CHECKED cvy_status cvy_events_open(struct cvy_events *events, const char *folder,
                                       const struct cvy_events_keep *keep);
/* One event with all scalars; values that are not finite are written as they are, TensorBoard marks them. */
CVY_CHECKED cvy_status cvy_events_add(struct cvy_events *events, int64_t step, const struct cvy_scalar *scalars,
                                      size_t count);
void cvy_events_close(struct cvy_events *events); /* accepts a zeroed one */

#endif
