/* For tests of single kernels by tile products: whole numbers, so that every result is exact. */
#ifndef CVY_TEST_SUPPORT_TILES_H
#define CVY_TEST_SUPPORT_TILES_H

#include "backend/backend.h"
#include "base/rng.h"

enum { TILES_THREADS = 7 };
/* By their threads, 1 to TILES_THREADS; opened and closed by a group's setup and teardown. */
extern cvy_device *tiles_devices[TILES_THREADS + 1];
int tiles_open(void **state);
int tiles_close(void **state);
/* Skips the test where the processor has no tiles, or with `model` not the vectors that those in memory need; which of
 * them kernels take is set for the process. */
void tiles_need(bool model);

/* To the nearest bf16, and back. */
uint16_t tiles_narrow(float value);
float tiles_widen(uint16_t value);
size_t tiles_count(const struct cvy_tensor *tensor);                                           /* elements */
struct cvy_tensor tiles_image(int64_t batch, int64_t channels, int64_t rows, int64_t columns); /* bf16, channels-last */
/* Zeros, aligned to 64 bytes, whose last line ends where memory must not be touched: what reads or writes further ends
 * the test. Under the address sanitizer its own. Freed with tiles_release, which accepts NULL. */
void *tiles_memory(size_t bytes);
void tiles_release(void *memory);
/* Whole numbers of at most `limit`, freed with tiles_release. */
uint16_t *tiles_draw(struct cvy_rng *rng, size_t elements, int limit);

#endif
