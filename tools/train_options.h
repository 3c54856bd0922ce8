/* The options of `convoy train`: the library's table as rows of the parser's, in the groups of its help. */
#ifndef TOOLS_TRAIN_OPTIONS_H
#define TOOLS_TRAIN_OPTIONS_H

#include "convoy/train.h"
#include "options.h"

#define TRAIN_OPTIONS_MAX 160

/* Fills at most TRAIN_OPTIONS_MAX rows; each help text with the default value goes to help[row]. Returns how many. */
size_t train_options_fill(struct option *rows, char (*help)[256], const struct cvy_train_options *defaults);
/* struct option.group of an option: 0 for those that matter first. */
int train_options_group(const char *name);
/* struct option_table.groups */
const char *const *train_options_headings(void);

#endif
