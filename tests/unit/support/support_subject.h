/* Networks with drawn weights on a CPU of their own, for tests of plans that stand beside one another. */
#ifndef SUPPORT_SUBJECT_H
#define SUPPORT_SUBJECT_H

#include "network/network.h"

enum { SUBJECT_CLASSES = 5, SUBJECT_SIZE = 32 };
struct subject {
    cvy_device *device;
    struct cvy_model_options model;
    struct cvy_network network;
};

/* Fails the test with the sentence that was recorded. */
void must(cvy_status status);
/* Start values, drawn once for each network, which its numbers of values tell: every test opens one anew, and drawing
 * takes longer than computing. */
void subject_draw(struct cvy_network *network);
/* A network in integers. resnet18 gives its features, too. */
void subject_open_integers(struct subject *subject, const char *name, int32_t size, int threads, size_t cache_bytes);
/* A network in bf16; false where this processor has none. */
bool subject_open_halves(struct subject *subject, const char *name, int32_t size, int threads, size_t cache_bytes);
/* resnet18, whose batches two threads compute as two streams, in integers or in bf16. */
bool subject_open_divided(struct subject *subject, bool halves);
void subject_close(struct subject *subject);

#endif
