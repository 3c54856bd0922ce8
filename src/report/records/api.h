/* What a run writes for other programs while it continues: CSV tables, DLLogger lines, TensorBoard events. */
#ifndef CVY_REPORT_RECORDS_API_H
#define CVY_REPORT_RECORDS_API_H

#include "report/records/csv.h"
#include "report/records/dllogger.h"
#include "report/records/events.h"

#endif
