/* Files that hold many smaller ones or many records: tar, zip, TFRecords with their index files and messages, packed
 * data sets. */
#ifndef CVY_FORMATS_CONTAINER_API_H
#define CVY_FORMATS_CONTAINER_API_H

#include "formats/container/example.h"
#include "formats/container/pack.h"
#include "formats/container/tar.h"
#include "formats/container/tfrecord.h"
#include "formats/container/tfrecord_index.h"
#include "formats/container/zip.h"

#endif
