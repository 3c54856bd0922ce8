/* A device that cannot fail while it computes gives this for a loss whose batch has a label that is no class, where
 * others fail at once: no cross-entropy is below zero by more than roundings. */
#ifndef CVY_BACKEND_WRONG_LABEL_H
#define CVY_BACKEND_WRONG_LABEL_H

#define CVY_LOSS_OF_WRONG_LABEL (-1.0F)

#endif
