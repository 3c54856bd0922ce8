/* One file from an address to the disk, by libcurl, which is loaded when the first one is asked for. */
#ifndef CVY_PULL_DOWNLOAD_H
#define CVY_PULL_DOWNLOAD_H

#include "convoy/pull.h"

struct cvy_download {
    const char *url;
    const char *path; /* of the file in the end; written is "<path>.part", and "<path>.part.from" says what of */
    int64_t max_bytes;
    bool https_only; /* also where it is redirected to */
    cvy_pull_progress progress;
    void *context;
    int64_t bytes;    /* out: that came now */
    char sha256[65];  /* out: of the whole file, as the server states it (X-Linked-ETag); "": it does not */
    const char *part; /* out: "<path>.part" */
    char part_path[4104];
};

/* Leaves the whole file in download->part, on the disk. What an earlier call left there is continued, if the server
 * says that it is still the same file (ETag or Last-Modified, by If-Range), and replaced otherwise. A connection that
 * ends early is tried again while it brings more than the tries before. Errors as cvy_pull has them; after
 * CVY_NO_INPUT and CVY_STOPPED what came stays for the next call. */
CVY_CHECKED cvy_status cvy_download(struct cvy_download *download);
/* Removes the part and what is noted about it. */
void cvy_download_discard(const struct cvy_download *download);
/* Only the note, once the part has been renamed. */
void cvy_download_finish(const struct cvy_download *download);

#endif
