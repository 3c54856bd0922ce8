/* What the tests of the engine of convolutions share: a folder for its file of choices, and the warnings that came. */
#ifndef SUPPORT_ENGINE_H
#define SUPPORT_ENGINE_H

#include "base/error.h"

extern char folder[256]; /* CONVOY_CACHE_DIR of a test */
extern char warnings[4096];

int make_folder(void **state); /* clears the warnings too */
int remove_folder(void **state);
void note_warnings(void); /* from now on, in `warnings` */

void must(cvy_status status);
void must_say(const char *part); /* of the last error */

#endif
