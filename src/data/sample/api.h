/* One sample of a data set: where it lies, alone or in a larger file, how its bytes are read, and what is known of the
 * objects on it. */
#ifndef CVY_DATA_SAMPLE_API_H
#define CVY_DATA_SAMPLE_API_H

#include "data/sample/image_record.h"
#include "data/sample/objects.h"
#include "data/sample/sample.h"
#include "data/sample/shard.h"

#endif
