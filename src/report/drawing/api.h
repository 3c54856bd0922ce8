/* Charts and the elements of a page: SVG and HTML as text, pictures by cairo where it is installed. */
#ifndef CVY_REPORT_DRAWING_API_H
#define CVY_REPORT_DRAWING_API_H

#include "report/drawing/chart.h"
#include "report/drawing/draw.h"
#include "report/drawing/html.h"
#include "report/drawing/plot.h"

#endif
