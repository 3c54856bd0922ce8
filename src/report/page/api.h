/* The page that a run leaves: one HTML file with its curves, settings and results. */
#ifndef CVY_REPORT_PAGE_API_H
#define CVY_REPORT_PAGE_API_H

#include "report/page/page.h"

#endif
