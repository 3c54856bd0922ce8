/* Opening a run. */
#ifndef CVY_RUN_SETUP_API_H
#define CVY_RUN_SETUP_API_H

#include "run/setup/setup.h"

#endif
