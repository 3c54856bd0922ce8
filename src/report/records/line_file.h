/* A file that grows line by line (or record by record) while the run continues and survives its end: each one is
 * flushed, and a resumed run cuts off what the checkpoint does not know and continues after it. */
#ifndef CVY_REPORT_RECORDS_LINE_FILE_H
#define CVY_REPORT_RECORDS_LINE_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "convoy/status.h"

/* Zero-initialise before opening. */
struct cvy_line_file {
    FILE *stream; /* NULL: not open; lines are then dropped without an error */
    char *path;
};
/* `offset` 0 starts an empty file; more keeps that many bytes of an existing one (what a checkpoint stored from
 * cvy_line_file_offset). A file that is shorter than that is kept up to its last whole line.
 * CVY_CANNOT_CREATE, CVY_NO_MEMORY. */
CVY_CHECKED cvy_status cvy_line_file_open(struct cvy_line_file *file, const char *path, int64_t offset);
/* `text` and a newline, flushed to the system. CVY_CANNOT_WRITE. */
CVY_CHECKED cvy_status cvy_line_file_add(struct cvy_line_file *file, const char *text);
/* Bytes instead of a line. */
CVY_CHECKED cvy_status cvy_line_file_append(struct cvy_line_file *file, const void *data, size_t size);
/* Bring the lines to the disk; pipes and terminals have none. CVY_CANNOT_WRITE. */
CVY_CHECKED cvy_status cvy_line_file_sync(struct cvy_line_file *file);
/* Bytes written so far, for the checkpoint; 0 when not open or not a regular file. */
int64_t cvy_line_file_offset(const struct cvy_line_file *file);
void cvy_line_file_close(struct cvy_line_file *file); /* accepts a zeroed one */

#endif
