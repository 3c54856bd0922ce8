/* The page of a run (cvy_report of the public API) and of a validation alone: self-contained HTML. */
#ifndef CVY_REPORT_PAGE_PAGE_H
#define CVY_REPORT_PAGE_PAGE_H

#include "convoy/report.h"
#include "report/validation/detection.h"
#include "report/validation/validation.h"

/* A page about one validation. title: "resnet50". Written whole or not at all. */
CVY_CHECKED cvy_status cvy_page_of_validation(const char *path, const char *title,
                                              const struct cvy_validation *validation);
CVY_CHECKED cvy_status cvy_page_of_detection(const char *path, const char *title,
                                             const struct cvy_detection_validation *validation);

#endif
