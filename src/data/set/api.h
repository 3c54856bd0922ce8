/* Data sets as lists of samples: folders of classes, list files, and files of records; opened alone, as a pair, or
 * split in two. Images are not read here. */
#ifndef CVY_DATA_SET_API_H
#define CVY_DATA_SET_API_H

#include "data/set/dataset.h"
#include "data/set/list.h"
#include "data/set/listing.h"
#include "data/set/other_files.h"
#include "data/set/pack_set.h"
#include "data/set/record_set.h"
#include "data/set/split.h"
#include "data/set/tfrecord_set.h"

#endif
