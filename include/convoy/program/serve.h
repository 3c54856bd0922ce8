/* A server: networks that answer over HTTP, by the Open Inference Protocol (version 2) and in the words of `convoy
 * classify` and `convoy detect` (doc/serve.md). */
#ifndef CONVOY_PROGRAM_SERVE_H
#define CONVOY_PROGRAM_SERVE_H

#include <stdbool.h>

#include "convoy/infer.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cvy_server_options {
    const char *const *weights; /* (count) "FILE" or "NAME=FILE"; without a name the file's stem is it */
    int count;
    struct cvy_classifier_options network; /* of all of them, but for the weights; batch_size is not used */
    const char *bind;                      /* address to listen at: numbers or a name of this machine */
    int port;                              /* 0: any free one */
    int max_batch_size;                    /* images computed together at most */
    int max_queue_delay;                   /* microseconds that the first image of a batch waits for others at most */
    int max_queue_size;                    /* images that may wait, of each network */
    int max_request_mib;                   /* of a body; all bodies together have sixteen times as much */
};
#define CVY_SERVER_DEFAULT_PORT 8080
enum { CVY_SERVER_MAX_BATCH = 4096, CVY_SERVER_MAX_REQUEST_MIB = 4096 };
#ifdef __cplusplus
#define CVY_SERVER_DEFAULTS                                                                                            \
    ([] {                                                                                                              \
        struct cvy_server_options cvy_options_ = cvy_server_options();                                                 \
        cvy_options_.network = CVY_CLASSIFIER_DEFAULTS;                                                                \
        cvy_options_.bind = "127.0.0.1";                                                                               \
        cvy_options_.port = CVY_SERVER_DEFAULT_PORT;                                                                   \
        cvy_options_.max_batch_size = 8;                                                                               \
        cvy_options_.max_queue_size = 1024;                                                                            \
        cvy_options_.max_request_mib = 64;                                                                             \
        return cvy_options_;                                                                                           \
    }())
#else
#define CVY_SERVER_DEFAULTS                                                                                            \
    ((struct cvy_server_options){.network = CVY_CLASSIFIER_DEFAULTS,                                                   \
                                 .bind = "127.0.0.1",                                                                  \
                                 .port = CVY_SERVER_DEFAULT_PORT,                                                      \
                                 .max_batch_size = 8,                                                                  \
                                 .max_queue_size = 1024,                                                               \
                                 .max_request_mib = 64})
#endif

typedef struct cvy_server cvy_server;

/* Loads all networks, computes a batch of each size once, and listens. The options are the caller's again after the
 * call. CVY_UNAVAILABLE: no libmicrohttpd on this system or in this build, or the address is not to be had; and what
 * opening a network says. */
CVY_API CVY_CHECKED cvy_status cvy_server_open(const struct cvy_server_options *options, cvy_server **server);
/* Where it listens, "http://127.0.0.1:8080"; owned by the server. */
CVY_API const char *cvy_server_address(const cvy_server *server);
/* The names of its networks, in their order; NULL past the end. *detects (may be NULL): it is a detector. */
CVY_API const char *cvy_server_network(const cvy_server *server, int index, bool *detects);
/* Answers until cvy_server_stop: then takes no connection any more, and returns when everything that had come is
 * answered, or the clients have not taken their answers for five seconds. */
CVY_API CVY_CHECKED cvy_status cvy_server_run(cvy_server *server);
/* May be called from another thread or a signal handler. */
CVY_API void cvy_server_stop(cvy_server *server);
CVY_API void cvy_server_close(cvy_server *server); /* accepts NULL */

#ifdef __cplusplus
}
#endif
#endif
