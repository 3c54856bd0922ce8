/* Between the library and its MPI modules, shared objects of which one is loaded where an MPI launcher started the
 * process: the program itself needs no MPI. One is built with each MPI that the build finds (src/comm/mpi/). */
#ifndef CVY_COMM_MPI_MODULE_H
#define CVY_COMM_MPI_MODULE_H

#include <stddef.h>
#include <stdint.h>

#define CVY_MPI_MODULE_ENTRY   "convoy_mpi_module"
#define CVY_MPI_MODULE_VERSION 2 /* of this file */

/* No two threads call at the same time. Functions that can fail return 0, or -1 with the reason in `why` (`size`). */
struct cvy_mpi_module {
    uint32_t version;    /* CVY_MPI_MODULE_VERSION */
    const char *library; /* "Open MPI 4.1.4", which the module was built with */
    /* Joins as one of the launcher's ranks; may be called again, but not once they have failed. MPI is finalised when
     * the process ends, unless `leave` was told that the ranks failed. */
    int (*join)(int *rank, int *world, char *why, size_t size);
    /* All-gather: `bytes` of each rank to all of them: all (world, bytes). go_on() is polled; false ends the call. */
    int (*gather)(const void *mine, void *all, size_t bytes, int (*go_on)(void *context), void *context, char *why,
                  size_t size);
    /* A stream of bytes on one of a rank's lines (below CVY_LINES) with another rank: what cvy_link's functions do.
     * `kind` is the same at both ends of a line. */
    long (*try_send)(int line, int kind, int rank, const void *data, size_t bytes);
    long (*try_receive)(int line, int kind, int rank, void *data, size_t bytes);
    /* What MPI says of the last of these that returned -1; "": nothing. */
    const char *(*last)(void);
    void (*leave)(int failed);
};
typedef const struct cvy_mpi_module *(*cvy_mpi_module_entry)(void);

#endif
