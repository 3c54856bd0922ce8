/* Steps a rule of the loss scale through overflows, for a comparison with PyTorch's GradScaler:
 *
 *   scaler_dump RULE START < STEPS
 *
 * START 0: the rule's own. STEPS holds a character for each step, "x" where a gradient overflows and "." where none
 * does. One line for each step: the scale after it, and how many steps were skipped so far. */
#include <stdio.h>
#include <stdlib.h>

#include "backend/scaler.h"
#include "trainer/loss_scale.h"

int main(int argc, char **argv)
{
    struct cvy_scaler scaler = {0};
    struct cvy_scaler_rule rule;
    float usual;
    int step;

    if (argc != 3 || !cvy_scaler_rule_find(argv[1], &rule, &usual)) {
        fprintf(stderr, "usage: scaler_dump RULE START < STEPS\n");
        return 2;
    }
    scaler.scale = strtof(argv[2], NULL) > 0 ? strtof(argv[2], NULL) : usual;
    while ((step = getchar()) == 'x' || step == '.') {
        scaler.overflow = rule.skips && step == 'x';
        cvy_scaler_update(&scaler, &rule);
        printf("%.17g %d\n", (double)scaler.scale, scaler.skipped);
    }
    return step == EOF || step == '\n' ? 0 : 2;
}
