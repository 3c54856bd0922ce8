/* Carrying out a run. */
#ifndef CVY_RUN_TRAINING_API_H
#define CVY_RUN_TRAINING_API_H

#include "run/training/training.h"

#endif
