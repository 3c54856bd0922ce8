/* The rows of the option table (option_table.c), for what sets, finds and prints options (options.c). */
#ifndef CVY_OPTIONS_OPTION_TABLE_H
#define CVY_OPTIONS_OPTION_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "options/option_kinds.h"
#include "options/train_options.h"

/* One option: what the public table shows, where the value lives, and what it may be. */
struct cvy_option_row {
    struct cvy_option_info info;
    size_t offset, size;        /* of the field */
    double low, high;           /* numbers: low <= value <= high */
    bool above_low, below_high; /* numbers: low or high itself is not allowed */
    bool has_special;           /* numbers: `special` is allowed too ("chosen", "all", "off") */
    double special;
    const char *word;           /* numbers: a word that is allowed too, and stands for `special`; NULL */
    const char *const *choices; /* texts: the allowed values, ended by NULL; NULL: any */
    enum cvy_option_group group;
};
/* NULL past the end. */
const struct cvy_option_row *cvy_option_row_at(size_t index);

#endif
