/* Whether this build and machine can serve. */
#ifndef CVY_SERVE_LIBRARY_H
#define CVY_SERVE_LIBRARY_H

#include <stdbool.h>

/* The library that takes requests, or why there is none. Returns buffer. */
const char *cvy_server_text(char buffer[512], bool *available);

#endif
