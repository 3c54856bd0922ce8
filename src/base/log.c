#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

/* Recursive, so that a handler that logs does not stop the program. */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static cvy_log_handler handler;
static void *handler_context;

void cvy_set_log_handler(cvy_log_handler new_handler, void *context)
{
    pthread_mutex_lock(&lock);
    handler = new_handler;
    handler_context = context;
    pthread_mutex_unlock(&lock);
}

void cvy_log(enum cvy_log_level level, const char *format, ...)
{
    char text[4096]; /* longer messages are cut: no memory is asked for here */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&lock);
    if (handler)
        handler(handler_context, level, text);
    pthread_mutex_unlock(&lock);
}
