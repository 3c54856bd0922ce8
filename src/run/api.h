/* A training run: what its rooms know of it. */
#ifndef CVY_RUN_API_H
#define CVY_RUN_API_H

#include "run/run.h"

#endif
