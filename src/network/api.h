/* A network on a device: its graphs as plans, its parameters, and how much memory they take together. */
#ifndef CVY_NETWORK_API_H
#define CVY_NETWORK_API_H

#include "network/batch_upload.h"
#include "network/memory.h"
#include "network/network.h"
#include "network/precision.h"
#include "network/snapshot.h"
#include "network/split.h"
#include "network/statistics.h"
#include "network/streams.h"

#endif
