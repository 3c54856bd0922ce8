/* A training from its options to its last checkpoint. */
#ifndef CVY_RUN_API_H
#define CVY_RUN_API_H

#include "run/run.h"

#endif
