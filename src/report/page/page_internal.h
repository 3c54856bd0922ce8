/* Shared by the parts of a page. */
#ifndef CVY_REPORT_PAGE_PAGE_INTERNAL_H
#define CVY_REPORT_PAGE_PAGE_INTERNAL_H

#include "report/drawing/chart.h"
#include "report/page/run_view.h"
#include "report/validation/validation.h"

/* page.css and page.js, embedded at build time. */
extern const char cvy_page_style[], cvy_page_script[];

/* The line of a picture's caption that names its file; nothing for NULL. */
void cvy_page_file(struct cvy_text *page, const char *file);
/* Accuracy by class, confusion matrix and the most wrong images (page_validation.c). */
void cvy_page_validation(struct cvy_text *page, const struct cvy_validation *validation);
/* A detector's: precision by class, precision and recall, pictures (page_detection.c). */
void cvy_page_detection(struct cvy_text *page, const struct cvy_detection_validation *validation);
/* One chart in a panel of its own; the place and size of its plotting area are set here. */
void cvy_page_chart(struct cvy_text *page, const struct cvy_chart *chart);
/* What to do next with the run in `folder` (page_next.c). */
void cvy_page_next(struct cvy_text *page, const struct cvy_run_view *view, const char *folder);
/* Curves (page_charts.c); long series are thinned out in place. */
void cvy_page_charts(struct cvy_text *page, struct cvy_run_view *view);

#endif
