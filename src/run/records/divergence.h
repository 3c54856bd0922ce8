/* Whether a training diverges, by the losses of its last steps. Pure rules over the state of a run, which a checkpoint
 * keeps: a run that continues decides as one that was never stopped. */
#ifndef CVY_RUN_DIVERGENCE_H
#define CVY_RUN_DIVERGENCE_H

#include "weights/checkpoint.h"

/* With random weights a deep network's loss rises in its first steps at rates that it learns best with, and is back
 * after this many of them. */
enum { CVY_FIRST_STEPS = 32 };

enum cvy_beginning {
    CVY_BEGINS_SHORT,  /* with random weights, in epochs of less than twice CVY_FIRST_STEPS */
    CVY_BEGINS_LONG,   /* with random weights: up to CVY_FIRST_STEPS of the first epoch, to whose begin it can go back,
                        * the means of several losses say nothing, and only a single one does, that is not finite or
                        * beyond the limit of one */
    CVY_BEGINS_TRAINED /* with weights that may be worse than guessing, as those of other classes are: nothing has risen
                        * that was there with the first step */
};

/* Adds the loss of a step to the recent ones. When the training diverges with it, diverged_step and diverged_loss say
 * so, and later losses change nothing any more. guess: loss of the best answer that ignores the image; 0: not known,
 * then only numbers that are not finite count. scaled: a loss that is not finite is an overflow, which the loss scale
 * answers, unless CVY_RECENT_STEPS of them follow one another. */
void cvy_divergence_add(struct cvy_train_state *state, int64_t step, double loss, double guess, bool scaled,
                        enum cvy_beginning beginning);
/* Whether the losses of the last steps are those of a training that goes well: a state to go back to. */
bool cvy_divergence_is_calm(const struct cvy_train_state *state, double guess);

#endif
