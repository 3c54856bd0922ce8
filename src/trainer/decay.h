/* Which parameters decay. */
#ifndef CVY_TRAINER_DECAY_H
#define CVY_TRAINER_DECAY_H

#include "graph/graph.h"

/* Which parameters have no weight decay. */
enum cvy_decay_rule {
    CVY_DECAY_NAME,  /* those with "bn" in their names: not the batch norm of a projection ("downsample.1.weight"); the
                      * published accuracies were reached that way */
    CVY_DECAY_EXACT, /* every batch norm's: what the TensorFlow program does */
    CVY_DECAY_WEIGHTS, /* everything that is not a matrix: biases too */
    CVY_DECAY_ALL      /* none: all decay */
};
/* "name", "exact", "weights" or "all" -> rule; false when it is none of them. */
bool cvy_decay_rule_find(const char *name, enum cvy_decay_rule *rule);
/* Whether a parameter (its number in the table) is exempt from weight decay. */
bool cvy_decay_exempt(const struct cvy_graph *table, int32_t param, enum cvy_decay_rule rule);

#endif
