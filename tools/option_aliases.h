/* Options of the reference programs that have another name or no meaning in convoy train (doc/reference-programs.md).
 */
#ifndef TOOLS_OPTION_ALIASES_H
#define TOOLS_OPTION_ALIASES_H

#include "convoy/train.h"
#include "options.h"

/* Add a hidden row for each of them; at most `capacity`. Returns how many. */
size_t option_aliases_fill(struct option *rows, size_t capacity);
/* Set what a forwarded option means. *known is false, and nothing done, for names that are none of them. What has no
 * effect is said on stderr. */
CVY_CHECKED cvy_status option_aliases_apply(struct cvy_train_options *options, const char *name, const char *value,
                                            bool *known);

#endif
