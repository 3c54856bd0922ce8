/* What every writer of files must stand: a disk that fills up, memory that runs out. */
#ifndef CVY_TEST_SUPPORT_WRITING_H
#define CVY_TEST_SUPPORT_WRITING_H

#include <stdint.h>

#include "convoy/status.h"

typedef cvy_status (*test_writer)(const char *path, void *context);

/* The disk is full at ever later bytes of the write, until it succeeds below 4096 bytes (a limit on file sizes stands
 * for the disk). Each failure is CVY_CANNOT_WRITE, the old file stays as it was, and nothing else is left in the
 * folder. Returns the number of failures; the new file is there. */
int test_full_disk_keeps_old(const char *folder, const char *name, test_writer write, void *context);
/* One allocation after the other fails, until the write succeeds; nothing is left in the folder. Returns how many
 * allocations there are, and one. */
int64_t test_writing_without_memory(const char *folder, const char *name, test_writer write, void *context);

#endif
