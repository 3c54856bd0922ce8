/* What a run writes. */
#ifndef CVY_RUN_OUTPUT_API_H
#define CVY_RUN_OUTPUT_API_H

#include "run/output/output.h"

#endif
