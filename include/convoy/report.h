/* The page of a training run. */
#ifndef CONVOY_REPORT_H
#define CONVOY_REPORT_H

#include "convoy/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Write one self-contained HTML page about a run directory, finished or still running: curves, accuracy by class,
 * confusion matrix, the most wrong images, configuration. path NULL: "report.html" in the run directory.
 * CVY_NO_INPUT: the directory holds no run; CVY_BAD_DATA: its files are damaged. */
CVY_API CVY_CHECKED cvy_status cvy_report(const char *run_directory, const char *path);

#ifdef __cplusplus
}
#endif
#endif
