/* What every other folder stands on: errors, memory, files, numbers, threads and the machine. It knows nothing of
 * networks or images. */
#ifndef CVY_BASE_API_H
#define CVY_BASE_API_H

#include "base/cache.h"
#include "base/error.h"
#include "base/file.h"
#include "base/finite.h"
#include "base/json_out.h"
#include "base/library.h"
#include "base/log.h"
#include "base/mapping.h"
#include "base/memory.h"
#include "base/module_file.h"
#include "base/nearest.h"
#include "base/parallel.h"
#include "base/resources.h"
#include "base/rng.h"
#include "base/sha256.h"
#include "base/sized.h"
#include "base/system.h"
#include "base/types.h"
#include "base/utf8.h"
#include "base/watchdog.h"

#endif
