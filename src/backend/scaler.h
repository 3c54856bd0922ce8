/* Loss scaling: the gradient of the loss is multiplied by a scale, so that small gradients survive in 16 bits, and the
 * optimizer divides by it. Where a gradient is not finite, the step is skipped and the scale becomes smaller. The state
 * lives where the gradients are: no step waits for the host. */
#ifndef CVY_BACKEND_SCALER_H
#define CVY_BACKEND_SCALER_H

#include <stdbool.h>
#include <stdint.h>

/* In device memory. The graph's input "loss_scale" is bound to the first field. */
struct cvy_scaler {
    float scale;
    int32_t good;     /* steps taken since the scale last changed */
    int32_t overflow; /* a gradient of the current step is not finite */
    int32_t skipped;  /* steps skipped since the start */
};

/* After each step: grow by `growth` when `interval` steps in a row were taken (0: never), shrink by `backoff` when one
 * was skipped. */
struct cvy_scaler_rule {
    float growth, backoff, smallest, largest;
    int32_t interval;
    bool skips; /* false: the scale is fixed, and every step is taken */
};

#ifndef CVY_SCALER_FUNCTION
#define CVY_SCALER_FUNCTION static inline
#endif

/* The end of a step. */
CVY_SCALER_FUNCTION void cvy_scaler_update(struct cvy_scaler *scaler, const struct cvy_scaler_rule *rule)
{
    if (scaler->overflow) {
        const float smaller = scaler->scale * rule->backoff;
        scaler->scale = smaller < rule->smallest ? rule->smallest : smaller;
        scaler->good = 0;
        scaler->skipped++;
    } else if (rule->interval > 0 && ++scaler->good >= rule->interval) {
        const float larger = scaler->scale * rule->growth;
        scaler->scale = larger > rule->largest ? rule->largest : larger;
        scaler->good = 0;
    }
    scaler->overflow = 0;
}

#endif
