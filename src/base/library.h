/* Libraries of others that are loaded when they are first needed: a program that does not need one runs without it. */
#ifndef CVY_BASE_LIBRARY_H
#define CVY_BASE_LIBRARY_H

#include <stddef.h>

/* A function of the library, and the pointer to a function that it is put into. */
struct cvy_library_function {
    const char *name;
    void *to;
};
enum { CVY_LIBRARY_REASON = 256 };
/* Loads the first of the libraries (ended by NULL) that is there; it stays loaded. `reason` becomes "" or says what is
 * missing. Called once for each library, by pthread_once. */
void cvy_library_load(const char *const *libraries, const struct cvy_library_function *functions, size_t count,
                      char reason[CVY_LIBRARY_REASON]);

#endif
