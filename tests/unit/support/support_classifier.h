/* Classifiers of random weights, and painted images for them. */
#ifndef SUPPORT_CLASSIFIER_H
#define SUPPORT_CLASSIFIER_H

#include "convoy/infer.h"
#include "support_network.h"

enum { SIDE = 32, CLASSES = 7, IMAGES = PAINTED_BATCH };
extern uint8_t painted[IMAGES][SIDE * SIDE * 3];
extern float nhwc[IMAGES][SIDE * SIDE][3], nchw[IMAGES][3][SIDE * SIDE]; /* the same, normalised */

/* Setup and teardown of a test: paints the images, and makes a folder of its own for weights (support_folder.h). */
int classifier_setup(void **state);
int classifier_teardown(void **state);
/* Random weights of a network for images of 32 pixels, which are seen as they are; of a detector for 64. Their file is
 * in the folder of the test. */
const char *make_weights(const char *arch);
/* With features. */
cvy_classifier *open_threads(const char *weights, const char *precision, int threads, int batch);
cvy_classifier *open_classifier(const char *weights, const char *precision); /* of one thread, batches of four */

struct cvy_pixels painted_pixels(int index);
void classify_painted(cvy_classifier *classifier, int index, float logits[CLASSES]);

struct answers {
    float logits[2 * IMAGES + 1][CLASSES], probabilities[2 * IMAGES + 1][CLASSES], features[2 * IMAGES + 1][512];
    cvy_status status[2 * IMAGES + 1];
};
struct cvy_outputs outputs_of(struct answers *answers);

#endif
