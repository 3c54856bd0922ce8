/* Files: whole-file reads with a limit, outputs that appear whole or not at all, folders. */
#ifndef CVY_BASE_FILE_H
#define CVY_BASE_FILE_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "convoy/status.h"

/* The status for an errno from an input file: CVY_NO_INPUT, unless the system is at fault (no memory, no more open
 * files, a disk error): then the file must not be skipped as a bad one. */
cvy_status cvy_input_status(int code);
/* The sentence about a file or folder that cannot be opened, by errno; `what` comes before its name ("the folder ",
 * ""). An address on a network is called one. */
CVY_CHECKED cvy_status cvy_fail_open(const char *path, const char *what);

/* Open a regular file for reading: CVY_NO_INPUT, CVY_BAD_DATA for what is none, with a sentence. */
CVY_CHECKED cvy_status cvy_file_open_regular(const char *path, int *file, struct stat *about);

/* Read a whole file of at most `limit` bytes into memory the caller frees with cvy_free. Missing or unreadable:
 * CVY_NO_INPUT; a folder or a file over the limit: CVY_BAD_DATA. A 0 byte follows the content. */
CVY_CHECKED cvy_status cvy_file_read(const char *path, size_t limit, void **data, size_t *size);

/* Up to `size` bytes from `offset` on of an open file, whose own position stays; *got is less where the file ends.
 * `what` names it in errors. */
CVY_CHECKED cvy_status cvy_file_read_at(const char *what, int file, uint64_t offset, void *bytes, size_t size,
                                        size_t *got);

/* An output file that appears whole or not at all: written to "<path>.tmp.<pid>", then fsync, rename, fsync of the
 * folder. Abort (or a crash) leaves the old file as it was. Errors name the final path; CVY_CANNOT_CREATE on open,
 * CVY_CANNOT_WRITE afterwards. */
struct cvy_output {
    FILE *stream;
    char *path, *temporary;
};
CVY_CHECKED cvy_status cvy_output_open(struct cvy_output *output, const char *path);
CVY_CHECKED cvy_status cvy_output_write(struct cvy_output *output, const void *data, size_t size);
/* What is written is on the disk, still under the temporary name: for files that must appear together. */
CVY_CHECKED cvy_status cvy_output_sync(struct cvy_output *output);
CVY_CHECKED cvy_status cvy_output_commit(struct cvy_output *output); /* closes in any case; aborts on failure */
void cvy_output_abort(struct cvy_output *output);                    /* accepts a zeroed or finished one */
/* A finished file, synchronised already, under its final name, for good. CVY_CANNOT_WRITE. */
CVY_CHECKED cvy_status cvy_file_rename(const char *from, const char *to);
/* open + write + commit */
CVY_CHECKED cvy_status cvy_file_replace(const char *path, const void *data, size_t size);

bool cvy_path_exists(const char *path);
bool cvy_path_is_directory(const char *path);
bool cvy_path_is_file(const char *path); /* links followed; pipes and devices are none */
/* "a/b" from "a" and "b"; NULL when memory runs out. Freed with cvy_free. */
char *cvy_path_join(const char *folder, const char *name);
/* Make a folder and its parents; fine if it exists. CVY_CANNOT_CREATE otherwise. */
CVY_CHECKED cvy_status cvy_make_directories(const char *path);
/* Checks a folder for new output: fine if it is missing or empty; CVY_CANNOT_CREATE otherwise. */
CVY_CHECKED cvy_status cvy_folder_check_new(const char *folder);
/* Remove temporary files "<path>.tmp.*" that a killed run left beside `path`. */
void cvy_output_clean(const char *path);

#endif
