/* Published weights to start from: which there are, and getting them into the cache. */
#ifndef CONVOY_PULL_H
#define CONVOY_PULL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "convoy/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A weights file that somebody publishes and that Convoy reads. The facts are its publisher's; what he does not state
 * is not filled in. */
struct cvy_published_weights {
    const char *name;    /* "resnet50.tv_in1k": what --weights and --pretrained-weights take once it is pulled */
    const char *arch;    /* "resnet50" */
    const char *trained; /* on which data, and how: "ImageNet-1k" */
    const char *licence; /* SPDX's name; "" where the publisher names none for the file */
    const char *page;    /* where it is described */
    const char *url;     /* https://... */
    const char *file;    /* its name in the cache and on a mirror: "resnet50.tv_in1k.pth" */
    /* Hexadecimal digits, as many as are known from the beginning of the file's SHA-256: 64, or those that its
     * published name carries; "": none. */
    const char *sha256;
    int64_t bytes; /* of the download, rounded to KiB; 0: unknown */
    double top1;   /* percent on ImageNet, single crop, by the publisher; 0: unknown, or no classifier */
    bool backbone; /* of a detector alone: training may start with it, by its own name */
};
/* In the table's order, of each network the recommended one first; NULL past the end. */
CVY_API const struct cvy_published_weights *cvy_published_at(size_t index);
/* By its name, or by the name of a network: the first one of it. NULL: there is none. */
CVY_API const struct cvy_published_weights *cvy_published_find(const char *name);
/* The file that cvy_pull makes of it, whether it is there or not. *pulled (may be NULL): it is. CVY_NO_INPUT: the
 * environment names no folder for caches; CVY_USAGE: `size` is too small. */
CVY_API CVY_CHECKED cvy_status cvy_published_path(const struct cvy_published_weights *weights, char *path, size_t size,
                                                  bool *pulled);

/* Called now and then: `done` bytes are there, of `total` (0: the server does not say). False stops: CVY_STOPPED. */
typedef bool (*cvy_pull_progress)(void *context, int64_t done, int64_t total);

struct cvy_pull_options {
    size_t size;                /* sizeof(struct cvy_pull_options) */
    const char *name;           /* of published weights or of a network (required) */
    bool again;                 /* also where it is there already */
    cvy_pull_progress progress; /* NULL: none */
    void *context;              /* of progress */
};
#define CVY_PULL_DEFAULTS CVY_SIZED(cvy_pull_options)

struct cvy_pull_result {
    char name[128];
    char path[4096]; /* of the weights file */
    int64_t bytes;   /* that came over the network; 0: nothing was needed */
    bool there;      /* it was in the cache already */
    /* What the file was compared with: its whole SHA-256 (from the table, or stated by the server), or as many digits
     * as its published name carries. 0: nobody states one. */
    int sha256_digits;
};

/* Downloads published weights into the cache: "weights" in CONVOY_CACHE_DIR, else in $XDG_CACHE_HOME/convoy, else in
 * ~/.cache/convoy. The file appears whole, compared with its SHA-256 and opened once, or not at all. What came of an
 * interrupted download stays beside it, and the next call continues where the server can and the file is the same.
 * CONVOY_WEIGHTS_URL (http://, https:// or file://) names a folder that is asked instead of the publisher, for `file`;
 * proxies are those of the environment (https_proxy, no_proxy, ...). Nothing else in the library opens a connection for
 * weights.
 *
 * CVY_USAGE: unknown name or a mirror that is no such address. CVY_UNAVAILABLE: libcurl is not on this system.
 * CVY_NO_INPUT: it cannot be reached, or is not there. CVY_BAD_DATA: another SHA-256, larger than published, or no
 * weights of its network; then nothing stays. CVY_CANNOT_CREATE, CVY_CANNOT_WRITE, CVY_NO_MEMORY, CVY_STOPPED. */
CVY_API CVY_CHECKED cvy_status cvy_pull(const struct cvy_pull_options *options, struct cvy_pull_result *result);

#ifdef __cplusplus
}
#endif
#endif
