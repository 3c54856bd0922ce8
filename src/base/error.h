/* The sentence that explains a failure: thread-local, set at the place that fails, read by cvy_error(). */
#ifndef CVY_BASE_ERROR_H
#define CVY_BASE_ERROR_H

#include <stdint.h>

#include "convoy/program/program.h" /* cvy_counted */
#include "convoy/status.h"

/* Record one sentence (no newline, no trailing dot) and return `status`, so that callers write `return cvy_fail(...)`.
 */
cvy_status cvy_fail(cvy_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same with ": <strerror(errno)>" appended; errno is read on entry. */
cvy_status cvy_fail_errno(cvy_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* cvy_fail(CVY_NO_MEMORY, ...) with the number of bytes that could not be allocated. */
cvy_status cvy_fail_memory(size_t bytes, const char *what);

/* Put `what` before the recorded sentence ("what: sentence"); returns `status`. */
cvy_status cvy_fail_context(cvy_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Copy the recorded sentence to another thread: take in the failing thread, put in the reporting one. */
void cvy_error_get(char *text, size_t size);
void cvy_error_put(const char *text);
/* For a module with its own copy of this file: errors are recorded in the library's copy instead. */
void cvy_error_share(void (*put)(const char *text), void (*get)(char *text, size_t size));

/* `text` in double quotes, with control characters, quotes, backslashes and invalid UTF-8 escaped, for use inside a
 * message: cvy_fail(CVY_NO_INPUT, "cannot open %s", cvy_quote(path)). One of eight thread-local buffers; valid until
 * the eighth call after this one. Long texts are cut with "...". NULL gives "(null)" without quotes. */
const char *cvy_quote(const char *text);
/* In a sentence that another process sent: control characters, which a terminal would obey, become question marks. */
void cvy_escape_controls(char *text);

/* Return the status of an expression to the caller unless it is CVY_OK. */
#define CVY_TRY(expression)                                                                                            \
    do {                                                                                                               \
        cvy_status try_status_ = (expression);                                                                         \
        if (try_status_ != CVY_OK)                                                                                     \
            return try_status_;                                                                                        \
    } while (0)

/* What begins a public function: an argument that must not be NULL (or another condition on them) is. */
#define CVY_REQUIRE(condition)                                                                                         \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            return cvy_fail(CVY_USAGE, "%s needs an argument that is not given: %s", __func__, #condition);            \
    } while (0)

/* The same for functions with a `fail:` label and a local `cvy_status status`. */
#define CVY_GOTO(expression)                                                                                           \
    do {                                                                                                               \
        status = (expression);                                                                                         \
        if (status != CVY_OK)                                                                                          \
            goto fail;                                                                                                 \
    } while (0)

#endif
