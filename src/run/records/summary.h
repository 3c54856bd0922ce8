/* The values of a run from those of its epochs. */
#ifndef CVY_RUN_SUMMARY_H
#define CVY_RUN_SUMMARY_H

#include <stddef.h>
#include <stdint.h>

/* Summary values of the run over its epochs: minimum losses, maximum accuracies, mean times and rates, the last of
 * everything else. */
struct cvy_run_summary {
    struct cvy_summary_entry {
        char name[48];
        double value;
        int64_t count;
    } entries[96];
    size_t count;
};

/* Adds an epoch's value of a metric: losses are summarised by their minimum, accuracies and latency quantiles by their
 * maximum, other times, rates and scales by their mean over the epochs, everything else by the last one. */
void cvy_run_summary_add(struct cvy_run_summary *summary, const char *name, double value);

#endif
