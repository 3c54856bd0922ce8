/* Steps that a device runs at once: a test of the suite in test_kernels.c. */
#ifndef SUPPORT_MANY_H
#define SUPPORT_MANY_H

void test_many_at_once(void **state);

#endif
