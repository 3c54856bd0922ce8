/* Libraries of codecs that are loaded when the first image of their kind comes: few data sets have one. */
#ifndef CVY_DATA_IMAGE_CODEC_LIBRARY_H
#define CVY_DATA_IMAGE_CODEC_LIBRARY_H

#include <stddef.h>

/* A function of the library, and the pointer to a function that it is put into. */
struct cvy_codec_function {
    const char *name;
    void *to;
};
enum { CVY_CODEC_REASON = 256 };
/* Loads the first of the libraries (ended by NULL) that is there; it stays loaded. `reason` becomes "" or says what is
 * missing. Called once for each library, by pthread_once. */
void cvy_codec_library_load(const char *const *libraries, const struct cvy_codec_function *functions, size_t count,
                            char reason[CVY_CODEC_REASON]);

#endif
