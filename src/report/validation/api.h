/* A validation in detail: what a network took for what, and which images it got wrong. */
#ifndef CVY_REPORT_VALIDATION_API_H
#define CVY_REPORT_VALIDATION_API_H

#include "report/validation/detection.h"
#include "report/validation/validation.h"

#endif
