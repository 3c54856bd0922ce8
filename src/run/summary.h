/* The values of a run from those of its epochs. */
#ifndef CVY_RUN_SUMMARY_H
#define CVY_RUN_SUMMARY_H

#include <stddef.h>
#include <stdint.h>

/* The values of the whole run, from those of its epochs: least losses, largest accuracies, mean times and rates, the
 * last of everything else. */
struct cvy_run_summary {
    struct cvy_summary_entry {
        char name[48];
        double value;
        int64_t count;
    } entries[96];
    size_t count;
};

/* Take in the value that an epoch has for a metric: losses count by their least, accuracies and latencies at a quantile
 * by their largest, other times, rates and scales by their mean over the epochs, everything else by the last one. */
void cvy_run_summary_add(struct cvy_run_summary *summary, const char *name, double value);

#endif
