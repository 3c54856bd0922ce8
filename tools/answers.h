/* What the verbs that answer for files share: the good answers come first; then each bad file gets a sentence. */
#ifndef TOOLS_ANSWERS_H
#define TOOLS_ANSWERS_H

#include <stdbool.h>
#include <stddef.h>

#include "convoy/status.h"

/* Zero-initialise. */
struct bad_files {
    char **errors;
    size_t count, capacity;
    cvy_status first; /* of the first one */
    bool out_of_memory;
};
/* Keep the sentence about a file; NULL: there is none. */
void bad_files_add(struct bad_files *bad, cvy_status status, const char *error);
/* Tell about them, and about a failure of the whole work that had `status`; returns the exit code. `doing`:
 * "classifying". Frees what was kept. */
cvy_status bad_files_end(struct bad_files *bad, cvy_status status, const char *doing);

/* A CSV field on stdout: quoted where it must be (RFC 4180). A text that a spreadsheet would take for a formula, which
 * begins with = + - @ or a control character, gets an apostrophe before it. */
void print_csv_field(const char *text);

#endif
