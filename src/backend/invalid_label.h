/* A device that cannot report errors from kernels returns this loss for a batch with a label that is not a class, where
 * others fail at once: no real cross-entropy is below zero by more than rounding. */
#ifndef CVY_BACKEND_INVALID_LABEL_H
#define CVY_BACKEND_INVALID_LABEL_H

#define CVY_INVALID_LABEL_LOSS (-1.0F)

#endif
