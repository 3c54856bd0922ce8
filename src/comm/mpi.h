/* Ranks started and connected by MPI. The failure watch still uses TCP sockets, whose addresses are exchanged over MPI.
 */
#ifndef CVY_COMM_MPI_H
#define CVY_COMM_MPI_H

#include "comm/group.h"

/* Load the module for Open MPI or MPICH, once for a process. CVY_UNAVAILABLE with the reason where there is none. */
CVY_CHECKED cvy_status cvy_mpi_load(enum cvy_comm_transport over);
/* Whether that would succeed: "Open MPI 4.1.4", or why not. Nothing is started. */
bool cvy_mpi_probe(enum cvy_comm_transport over, char *text, size_t size);
/* After cvy_mpi_load: joins as one of the launcher's ranks. */
CVY_CHECKED cvy_status cvy_mpi_open(struct cvy_comm *comm, const struct cvy_comm_config *place, double timeout);

#endif
