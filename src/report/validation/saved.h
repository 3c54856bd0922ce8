/* Validations as JSON files: shared by the two kinds. */
#ifndef CVY_REPORT_VALIDATION_SAVED_H
#define CVY_REPORT_VALIDATION_SAVED_H

#include "base/memory.h"
#include "convoy/status.h"
#include "formats/json_in.h"

/* Write the text and a newline, whole or not at all; the text is released in any case. */
CVY_CHECKED cvy_status cvy_saved_write(struct cvy_text *text, const char *path);
/* Read and parse; *root lives in the arena. */
CVY_CHECKED cvy_status cvy_saved_read(const char *path, struct cvy_arena *arena, struct cvy_json_value **root);
/* CVY_BAD_DATA: "<path>: <what> damaged". */
cvy_status cvy_saved_damaged(const char *path, const char *what);

/* A whole number of an object that must be there, from low to high. */
bool cvy_saved_count(const struct cvy_json_value *object, const char *key, int64_t low, int64_t high, int64_t *out);
bool cvy_saved_is_array(const struct cvy_json_value *value); /* false for NULL */

#endif
