#ifndef CVY_PULL_PULL_H
#define CVY_PULL_PULL_H

#include "convoy/pull.h"

/* cvy_pull for a row that need not be in the table: for tests. */
CVY_CHECKED cvy_status cvy_pull_weights(const struct cvy_published_weights *weights,
                                        const struct cvy_pull_options *options, struct cvy_pull_result *result);

#endif
