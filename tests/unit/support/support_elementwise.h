/* Vectors at odd addresses, and how exact sigmoids are: tests of the suite in test_kernels.c. */
#ifndef SUPPORT_ELEMENTWISE_H
#define SUPPORT_ELEMENTWISE_H

void test_odd_addresses(void **state);
void test_sigmoid_accuracy(void **state);
void test_sigmoid_ends(void **state);
void test_focal_accuracy(void **state);

#endif
