/* What devices do with whole arenas, compared with the reference: tests of the suite in test_kernels.c. */
#ifndef SUPPORT_UPDATE_H
#define SUPPORT_UPDATE_H

void test_update_steps(void **state);
void test_loss_scale(void **state);
void test_combine(void **state);
void test_put(void **state);

#endif
