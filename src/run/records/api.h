/* The files of a run directory, line by line, and what may be wrong in a training. */
#ifndef CVY_RUN_RECORDS_API_H
#define CVY_RUN_RECORDS_API_H

#include "run/records/diagnosis.h"
#include "run/records/directory.h"
#include "run/records/divergence.h"
#include "run/records/log.h"
#include "run/records/rank_times.h"
#include "run/records/summary.h"

#endif
