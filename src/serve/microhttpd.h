/* libmicrohttpd, loaded by the first server: the other verbs work without it. */
#ifndef CVY_SERVE_MICROHTTPD_H
#define CVY_SERVE_MICROHTTPD_H

#include <microhttpd.h>

#include "convoy/status.h"

/* The functions that are used; cvy_mhd.start_daemon() is MHD_start_daemon(). */
#define CVY_MHD_FUNCTIONS(FUNCTION)                                                                                    \
    FUNCTION(add_response_header)                                                                                      \
    FUNCTION(create_response_from_buffer_with_free_callback)                                                           \
    FUNCTION(destroy_response)                                                                                         \
    FUNCTION(get_connection_values)                                                                                    \
    FUNCTION(get_version)                                                                                              \
    FUNCTION(lookup_connection_value)                                                                                  \
    FUNCTION(queue_response)                                                                                           \
    FUNCTION(quiesce_daemon)                                                                                           \
    FUNCTION(resume_connection)                                                                                        \
    FUNCTION(start_daemon)                                                                                             \
    FUNCTION(stop_daemon)                                                                                              \
    FUNCTION(suspend_connection)

struct cvy_mhd_api {
#define CVY_MHD_POINTER(name) __typeof__(MHD_##name) *name;
    CVY_MHD_FUNCTIONS(CVY_MHD_POINTER)
#undef CVY_MHD_POINTER
};
extern struct cvy_mhd_api cvy_mhd;

/* Fills cvy_mhd, once for the process. CVY_UNAVAILABLE: it is not there, or lacks a function. */
CVY_CHECKED cvy_status cvy_mhd_load(void);

#endif
