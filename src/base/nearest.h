/* Suggestions for misspelt names. */
#ifndef CVY_BASE_NEAREST_H
#define CVY_BASE_NEAREST_H

#include <stddef.h>

#include "convoy/status.h"

/* The names are asked for one by one. Private to one search. */
struct cvy_nearest {
    const char *text; /* what was written, borrowed */
    const char *best; /* of those offered so far, borrowed: NULL where none is near */
    int distance;
};
struct cvy_nearest cvy_nearest_begin(const char *text);
/* NULL is no name. */
void cvy_nearest_offer(struct cvy_nearest *nearest, const char *name);
/* ", perhaps resnet50" or "" for the middle of a sentence; valid until the thread's next call. */
const char *cvy_nearest_text(const struct cvy_nearest *nearest);
/* The same for a list: CVY_PERHAPS(padding, "torch", "same"). */
const char *cvy_nearest_of(const char *text, const char *const *names, size_t count);
#define CVY_PERHAPS(text, ...)                                                                                         \
    cvy_nearest_of(text, (const char *const[]){__VA_ARGS__},                                                           \
                   sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

#endif
