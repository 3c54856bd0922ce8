/* What the verbs about data sets do: writing other formats of them, checking them, and measuring how fast they are
 * read. */
#ifndef CVY_DATASET_TOOLS_API_H
#define CVY_DATASET_TOOLS_API_H

#include "dataset_tools/bench_data.h"

#endif
