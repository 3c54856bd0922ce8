/* The processes of a training: how they meet, and sums and broadcasts over them. comm.h describes a communicator,
 * worker.h sums beside the computation. */
#ifndef CVY_COMM_API_H
#define CVY_COMM_API_H

#include "comm/mpi.h"
#include "comm/worker.h"

#endif
