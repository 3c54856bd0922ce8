/* convoy train --dry-run */
#ifndef TOOLS_DRY_RUN_H
#define TOOLS_DRY_RUN_H

#include <stdbool.h>

#include "convoy/train.h"

/* Print what a run of that many processes would do, as a table or as JSON. */
cvy_status dry_run(const struct cvy_train_options *options, int ranks, bool as_json);

#endif
