/* What the processes of a run agree on. */
#ifndef CVY_RUN_RANKS_API_H
#define CVY_RUN_RANKS_API_H

#include "run/ranks/ranks.h"

#endif
