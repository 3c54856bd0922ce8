/* Networks on small painted images, for tests that compare devices. */
#ifndef SUPPORT_NETWORK_H
#define SUPPORT_NETWORK_H

#include "eval/evaluate.h"

enum { PAINTED_BATCH = 4, PAINTED_CLASSES = 3, PAINTED_LARGEST = 97 };
extern const int32_t painted_labels[PAINTED_BATCH];
/* Waves of other lengths and directions in each image, and noise: with noise alone all images look the same to a
 * network, and batch norms over few values make much of little differences. pixels: (PAINTED_BATCH, size, size, 3). */
void paint_images(uint8_t *pixels, int32_t size);
/* A scale of 0.2 in the last batch norm of each block: with 1, a deep network at random weights is so steep that no
 * small step is small enough. */
cvy_status calm_network(struct cvy_network *network);

#endif
