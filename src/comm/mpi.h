/* Ranks that an MPI's launcher started, and that it connects. The failure watch stays on TCP sockets, whose addresses
 * are told over MPI. */
#ifndef CVY_COMM_MPI_H
#define CVY_COMM_MPI_H

#include "comm/group.h"

/* Load the module for Open MPI or MPICH, once for a process. CVY_UNAVAILABLE with the reason where there is none. */
CVY_CHECKED cvy_status cvy_mpi_load(enum cvy_comm_over over);
/* Whether that can be done: "Open MPI 4.1.4", or why not. Nothing is started. */
bool cvy_mpi_look(enum cvy_comm_over over, char *text, size_t size);
/* After cvy_mpi_load: be one of the launcher's ranks. */
CVY_CHECKED cvy_status cvy_mpi_open(struct cvy_comm *comm, const struct cvy_comm_place *place, double timeout);

#endif
