/* How the factor of a loss in 16 bits moves: rules with the constants of the programs that users come from. */
#ifndef CVY_TRAINER_LOSS_SCALE_H
#define CVY_TRAINER_LOSS_SCALE_H

#include "backend/scaler.h"

/* *rule and *start (its usual first scale) by name. After a step whose gradients overflow the scale is multiplied by
 * the backoff and the step is skipped; after so many good steps it doubles:
 *
 *   "torch"        GradScaler as the PyTorch program sets it: after 100 good steps
 *   "torch-fixed"  the same program without dynamic scaling: halved on overflow, never doubled
 *   "tensorflow"   starts at 2^15, after 2000, at least 1
 *   "apex"         starts at 2^16, after 2000, at most 2^24
 *   "fp16-utils"   starts at 2^32, after 1000, at least 1
 *   "static"       never moves, and no step is skipped
 *
 * False when there is none of that name. */
bool cvy_scaler_rule_find(const char *name, struct cvy_scaler_rule *rule, float *start);

#endif
