/* Messages for the handler set by cvy_set_log_handler(); formatted here, delivered one at a time. */
#ifndef CVY_BASE_LOG_H
#define CVY_BASE_LOG_H

#include "convoy/status.h"

void cvy_log(enum cvy_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
