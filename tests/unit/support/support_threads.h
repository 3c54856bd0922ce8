/* Threads of a test, in which assertions may fail. */
#ifndef CVY_TESTS_SUPPORT_THREADS_H
#define CVY_TESTS_SUPPORT_THREADS_H

#include <pthread.h>

/* Until the last of them is joined, an assertion that fails, here or there, prints its text and aborts the program:
 * cmocka can end a test in the thread that runs it alone, and elsewhere would exit without a word, or wait for ever. */
void start_thread(pthread_t *thread, void *(*work)(void *), void *argument);
void join_thread(pthread_t thread);

#endif
