/* Status codes and error text shared by every public function of libconvoy. */
#ifndef CONVOY_STATUS_H
#define CONVOY_STATUS_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define CVY_API
#else
#define CVY_API __attribute__((visibility("default")))
#endif
/* A caller that ignores a status gets a warning. */
#define CVY_CHECKED __attribute__((warn_unused_result))
/* Structs that programs fill in begin with their size, by which the library sees which fields the program knows: those
 * that came later have their defaults then. This is such a struct with everything else 0; the CVY_..._DEFAULTS of the
 * headers have it. A size of 0 is CVY_USAGE; so is a field that a program sets and this library does not know. */
#ifdef __cplusplus
#define CVY_SIZED(type)                                                                                                \
    ([] {                                                                                                              \
        struct type cvy_options_ = type();                                                                             \
        cvy_options_.size = sizeof(cvy_options_);                                                                      \
        return cvy_options_;                                                                                           \
    }())
#else
#define CVY_SIZED(type) ((struct type){.size = sizeof(struct type)})
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The values are the exit codes of the `convoy` program, so that a caller may pass them on. */
typedef enum cvy_status {
    CVY_OK = 0,
    CVY_FAILED = 1,         /* the run failed for a reason of its own */
    CVY_USAGE = 2,          /* an option or argument is unknown, impossible or NULL */
    CVY_BAD_DATA = 65,      /* a file is damaged or does not fit (wrong architecture, class count, empty set) */
    CVY_NO_INPUT = 66,      /* a file or folder is missing or cannot be read */
    CVY_UNAVAILABLE = 69,   /* a device, backend or kernel is not available here */
    CVY_NO_MEMORY = 71,     /* memory ran out */
    CVY_CANNOT_CREATE = 73, /* an output file or folder cannot be created */
    CVY_CANNOT_WRITE = 74,  /* writing failed half way (disk full, I/O error) */
    CVY_STOPPED = 75        /* stopped as asked, by a call or a signal; a training has saved a checkpoint */
} cvy_status;

/* The sentence recorded by the last failing call of this thread ("" if none), valid until this thread's next call.
 * After a call that succeeded it says nothing: it may be about something that was tried on the way. */
CVY_API const char *cvy_error(void);

/* The library's version, "major.minor.patch". */
CVY_API const char *cvy_version(void);

/* A batch size that stands for the largest one that is of use and that memory allows (--batch-size auto). */
#define CVY_BATCH_AUTO (-1)

/* Sides of the square input that a network may have, pixels. */
#define CVY_MIN_IMAGE_SIZE 32
#define CVY_MAX_IMAGE_SIZE 4096

/* FATAL: in a run of several processes, MPI's start or NCCL's end has not returned within its time limit, and nothing
 * can call it back. The thread in that call hangs for good; a program has its handler end the process here. */
enum cvy_log_level { CVY_LOG_FATAL, CVY_LOG_ERROR, CVY_LOG_WARNING, CVY_LOG_INFO, CVY_LOG_DEBUG };

/* Where the library's messages go; NULL (the default) drops them. The library itself never writes to the terminal.
 * The handler may be called from any thread, one call at a time; `text` has no newline at its end. */
typedef void (*cvy_log_handler)(void *context, enum cvy_log_level level, const char *text);
CVY_API void cvy_set_log_handler(cvy_log_handler handler, void *context);

#ifdef __cplusplus
}
#endif
#endif
