/* The options of `convoy train`: the library's table as rows of the parser's, in the groups of its help. */
#ifndef TOOLS_TRAIN_OPTIONS_H
#define TOOLS_TRAIN_OPTIONS_H

#include "convoy/train.h"
#include "options.h"

#define TRAIN_OPTIONS_MAX 160

/* Fills at most TRAIN_OPTIONS_MAX rows; each help text with the default value goes to help[row]. Returns how many. */
size_t train_options_fill(struct option *rows, char (*help)[256], const struct cvy_train_options *defaults);
/* The value of an option of the table, as text; valid until the next call. */
const char *train_option(const struct cvy_train_options *options, const char *name);
bool train_option_is(const struct cvy_train_options *options, const char *name, const char *value);
/* Whether a flag is set, or there is a text. */
bool train_option_has(const struct cvy_train_options *options, const char *name);
/* struct option.group of an option: 0 for those that matter first. */
int train_options_group(const char *name);
/* struct option_table.groups */
const char *const *train_options_headings(void);

#endif
