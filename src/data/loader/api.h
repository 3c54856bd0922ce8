/* Batches for training and evaluation, made by threads from a data set; what a batch holds depends on seed, epoch and
 * position alone. */
#ifndef CVY_DATA_LOADER_API_H
#define CVY_DATA_LOADER_API_H

#include "data/loader/loader.h"
#include "data/loader/loader_stats.h"
#include "data/loader/source.h"

#endif
