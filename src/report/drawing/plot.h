/* The curves of a run as one self-contained SVG: loss (train, val) and accuracy (top-1, top-5) over the epochs. */
#ifndef CVY_REPORT_DRAWING_PLOT_H
#define CVY_REPORT_DRAWING_PLOT_H

#include <stddef.h>
#include <stdint.h>

#include "convoy/status.h"

/* One epoch; NAN where a value was not measured (a gap in the curve). */
struct cvy_plot_point {
    double epoch; /* from 0, shown as written */
    double train_loss, val_loss;
    double top1, topk; /* percent; of a detector AP and AP50 */
};
enum { CVY_PLOT_DETECTION = 0 };
/* top_k: the k of the second accuracy; 1: there is none; CVY_PLOT_DETECTION: a detector's. Written whole or not at all.
 * CVY_CANNOT_CREATE, CVY_CANNOT_WRITE, CVY_NO_MEMORY. */
CVY_CHECKED cvy_status cvy_plot_write(const char *path, const char *title, const struct cvy_plot_point *points,
                                      size_t count, int32_t top_k);
/* The same from the columns epoch, train.loss, val.loss, val.top1 and val.top<k>, or of a detector val.ap and val.ap50,
 * of a metrics.csv: what the trainer calls after each epoch, resumed or not. */
CVY_CHECKED cvy_status cvy_plot_metrics(const char *path, const char *title, int32_t top_k, const char *csv_path);

#endif
