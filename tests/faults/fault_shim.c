/* Loaded before the program by LD_PRELOAD: makes one call of the C library fail. Only calls from Convoy's own code and
 * from the libraries that read files for it are counted; OpenMP's and oneDNN's end the process by themselves.
 *
 * CONVOY_FAULT: the kind of call. alloc, open, read, write, sync, rename, mmap, thread, socket fail. short (reads and
 *     writes move half of the bytes) and interrupt (EINTR) must change nothing. cut: half of a file goes away as soon
 * as it is mapped; the file itself is changed. stop: the process stops itself when it ends.
 *
 * CONVOY_FAULT_AT: the number of the call of that kind that fails, from 1. 0: none.
 *
 * CONVOY_FAULT_RANK: the rank in which it fails; each process counts for itself, and without this it fails in all.
 *
 * CONVOY_FAULT_COUNT: a file to which each process appends a line with its number of calls.
 *
 * CONVOY_FAULT_RECORD: a folder, no fault. Its file "log" has a line for each fsync and rename, in their order, and the
 *     file N the bytes that the Nth fsync has made durable. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAX_RANGES = 64 };
static struct {
    uintptr_t begin, end;
} ranges[MAX_RANGES];
static int range_count;
static const char *kind = "";
static long at;
static bool ready, is_convoy, is_chosen;
static atomic_long calls;

static int add_object(struct dl_phdr_info *object, size_t size, void *unused)
{
    static const char *const names[] = {"convoy",  "libpng",  "libjpeg",     "libwebp", "libheif",
                                        "libtiff", "libyajl", "libprotobuf", "libz"};
    const char *name = object->dlpi_name;
    bool counted = !*name; /* the program itself */

    (void)size;
    (void)unused;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        counted |= strstr(name, names[i]) != NULL;
    is_convoy |= strstr(name, "libconvoy") != NULL;
    for (int i = 0; counted && i < object->dlpi_phnum && range_count < MAX_RANGES; i++) {
        if (object->dlpi_phdr[i].p_type != PT_LOAD || !(object->dlpi_phdr[i].p_flags & PF_X))
            continue;
        ranges[range_count].begin = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr;
        ranges[range_count].end = ranges[range_count].begin + object->dlpi_phdr[i].p_memsz;
        range_count++;
    }
    return 0;
}

__attribute__((constructor)) static void begin(void)
{
    const char *number = getenv("CONVOY_FAULT_AT"), *chosen = getenv("CONVOY_FAULT_RANK"), *rank = getenv("RANK");

    if (getenv("CONVOY_FAULT"))
        kind = getenv("CONVOY_FAULT");
    at = number ? atol(number) : 0;
    is_chosen = !chosen || (rank && strcmp(rank, chosen) == 0);
    dl_iterate_phdr(add_object, NULL);
    ready = true;
}

/* Only the program: not what starts it. */
__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("CONVOY_FAULT_COUNT");
    char text[32];
    const int length = snprintf(text, sizeof text, "%ld\n", atomic_load(&calls));
    const int file = path && is_convoy && is_chosen
                         ? (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND, 0666)
                         : -1;

    if (is_convoy && is_chosen && strcmp(kind, "stop") == 0)
        raise(SIGSTOP);
    if (file >= 0 && syscall(SYS_write, file, text, (size_t)length) != length)
        abort();
}

/* Whether this call is the one. */
static bool fails(const char *which, const void *caller)
{
    const uintptr_t from = (uintptr_t)caller;
    bool counted = false;
    long number;

    if (!ready || !is_chosen || strcmp(which, kind) != 0)
        return false;
    for (int i = 0; i < range_count && !counted; i++)
        counted = from >= ranges[i].begin && from < ranges[i].end;
    if (!counted)
        return false;
    number = atomic_fetch_add(&calls, 1) + 1;
    return at > 0 && number == at;
}

#define CALLER __builtin_return_address(0)
/* The function behind: `real` of its type. */
#define REAL(name)                                                                                                     \
    static __typeof__(&name) real;                                                                                     \
    if (!real)                                                                                                         \
        *(void **)&real = dlsym(RTLD_NEXT, #name);
#define FAIL(which, code, value)                                                                                       \
    if (fails(which, CALLER)) {                                                                                        \
        errno = code;                                                                                                  \
        return value;                                                                                                  \
    }

/* ---- memory: glibc's own names, for dlsym itself allocates; the address sanitizer's where its runtime is loaded ----
 */
#define WEAK __attribute__((weak))
extern void *__libc_malloc(size_t size), *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size), *__libc_memalign(size_t alignment, size_t size);
extern WEAK void *__interceptor_malloc(size_t size), *__interceptor_calloc(size_t count, size_t size);
extern WEAK void *__interceptor_realloc(void *old, size_t size), *__interceptor_memalign(size_t alignment, size_t size);

static void *aligned(size_t alignment, size_t size)
{
    return __interceptor_memalign ? __interceptor_memalign(alignment, size) : __libc_memalign(alignment, size);
}

void *malloc(size_t size)
{
    FAIL("alloc", ENOMEM, NULL)
    return __interceptor_malloc ? __interceptor_malloc(size) : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    FAIL("alloc", ENOMEM, NULL)
    return __interceptor_calloc ? __interceptor_calloc(count, size) : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    FAIL("alloc", ENOMEM, NULL)
    return __interceptor_realloc ? __interceptor_realloc(old, size) : __libc_realloc(old, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    FAIL("alloc", ENOMEM, NULL)
    return aligned(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    if (fails("alloc", CALLER))
        return ENOMEM;
    *out = aligned(alignment, size);
    return *out ? 0 : ENOMEM;
}

/* Another program takes half of the file away. */
static void cut_off(int file, size_t size)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (truncate(path, (off_t)(size / 2)) != 0)
        abort();
}

void *mmap(void *where, size_t size, int protection, int flags, int file, off_t offset)
{
    FAIL("mmap", ENOMEM, MAP_FAILED)
    REAL(mmap)
    void *mapped = real(where, size, protection, flags, file, offset);
    if (file >= 0 && !(flags & MAP_SHARED) && fails("cut", CALLER))
        cut_off(file, size);
    return mapped;
}

/* ---- files ---- */

static mode_t mode_of(int flags, va_list arguments)
{
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
}

int open(const char *path, int flags, ...)
{
    va_list arguments;

    FAIL("open", EMFILE, -1)
    va_start(arguments, flags);
    const mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...)
{
    va_list arguments;

    FAIL("open", EMFILE, -1)
    va_start(arguments, flags);
    const mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return (int)syscall(SYS_openat, folder, path, flags, mode);
}

int __open_2(const char *path, int flags);
int __open_2(const char *path, int flags)
{
    FAIL("open", EMFILE, -1)
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0);
}

FILE *fopen(const char *path, const char *mode)
{
    FAIL("open", EMFILE, NULL)
    REAL(fopen)
    return real(path, mode);
}

FILE *fdopen(int file, const char *mode)
{
    FAIL("open", ENOMEM, NULL)
    REAL(fdopen)
    return real(file, mode);
}

/* "short" moves half of the bytes, "interrupt" none; a number of bytes, or -1. */
#define TRANSFER(which, code)                                                                                          \
    FAIL(which, code, -1)                                                                                              \
    FAIL("interrupt", EINTR, -1)                                                                                       \
    if (size > 1 && fails("short", CALLER))                                                                            \
        size /= 2;

ssize_t read(int file, void *data, size_t size)
{
    TRANSFER("read", EIO)
    return syscall(SYS_read, file, data, size);
}

ssize_t __read_chk(int file, void *data, size_t size, size_t capacity);
ssize_t __read_chk(int file, void *data, size_t size, size_t capacity)
{
    (void)capacity;
    TRANSFER("read", EIO)
    return syscall(SYS_read, file, data, size);
}

ssize_t pread(int file, void *data, size_t size, off_t offset)
{
    TRANSFER("read", EIO)
    return syscall(SYS_pread64, file, data, size, offset);
}

ssize_t __pread_chk(int file, void *data, size_t size, off_t offset, size_t capacity);
ssize_t __pread_chk(int file, void *data, size_t size, off_t offset, size_t capacity)
{
    (void)capacity;
    TRANSFER("read", EIO)
    return syscall(SYS_pread64, file, data, size, offset);
}

ssize_t write(int file, const void *data, size_t size)
{
    if (file != STDOUT_FILENO && file != STDERR_FILENO) {
        TRANSFER("write", ENOSPC)
    }
    return syscall(SYS_write, file, data, size);
}

#define STREAM_ERROR 0x20 /* glibc's _IO_ERR_SEEN */

size_t fread(void *data, size_t unit, size_t count, FILE *stream)
{
    if (fails("read", CALLER)) {
        stream->_flags |= STREAM_ERROR;
        errno = EIO;
        return 0;
    }
    REAL(fread)
    return real(data, unit, count, stream);
}

size_t fwrite(const void *data, size_t unit, size_t count, FILE *stream)
{
    if (stream != stdout && stream != stderr && fails("write", CALLER)) {
        stream->_flags |= STREAM_ERROR;
        errno = ENOSPC;
        return 0;
    }
    REAL(fwrite)
    return real(data, unit, count, stream);
}

int fflush(FILE *stream)
{
    if (stream && stream != stdout && stream != stderr && fails("write", CALLER)) {
        stream->_flags |= STREAM_ERROR;
        errno = ENOSPC;
        return EOF;
    }
    REAL(fflush)
    return real(stream);
}

int fclose(FILE *stream)
{
    const bool failed = stream != stdout && stream != stderr && fails("write", CALLER);

    REAL(fclose)
    const int result = real(stream);
    if (!failed)
        return result;
    errno = ENOSPC;
    return EOF;
}

/* ---- what a loss of power would leave ---- */
static pthread_mutex_t recording = PTHREAD_MUTEX_INITIALIZER;
static int synced;

static void record_line(const char *first, const char *second, const char *third)
{
    char path[PATH_MAX], line[3 * PATH_MAX];
    const int length = snprintf(line, sizeof line, "%s\t%s\t%s\n", first, second, third);

    snprintf(path, sizeof path, "%s/log", getenv("CONVOY_FAULT_RECORD"));
    const int log = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (log < 0 || syscall(SYS_write, log, line, (size_t)length) != length)
        abort();
    close(log);
}

/* The copy has the bytes that the system holds for the file at this moment. */
static void copy_bytes(const char *path, const char *copy)
{
    const int from = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY, 0);
    const int to = (int)syscall(SYS_openat, AT_FDCWD, copy, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    char block[65536];
    ssize_t got;

    while ((got = syscall(SYS_read, from, block, sizeof block)) > 0) {
        if (syscall(SYS_write, to, block, (size_t)got) != got)
            abort();
    }
    if (got < 0)
        abort();
    close(from);
    close(to);
}

static void record_sync(int file)
{
    char link[64], path[PATH_MAX] = "", copy[PATH_MAX + 16], number[16];
    struct stat about;

    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    if (readlink(link, path, sizeof path - 1) < 0 || fstat(file, &about) != 0)
        abort();
    pthread_mutex_lock(&recording);
    if (S_ISDIR(about.st_mode)) {
        record_line("folder", path, "");
    } else {
        snprintf(number, sizeof number, "%d", ++synced);
        snprintf(copy, sizeof copy, "%s/%s", getenv("CONVOY_FAULT_RECORD"), number);
        copy_bytes(path, copy);
        record_line("sync", path, number);
    }
    pthread_mutex_unlock(&recording);
}

int fsync(int file)
{
    FAIL("sync", EIO, -1)
    if (is_convoy && getenv("CONVOY_FAULT_RECORD"))
        record_sync(file);
    return (int)syscall(SYS_fsync, file);
}

int rename(const char *from, const char *to)
{
    FAIL("rename", EIO, -1)
    REAL(rename)
    const int result = real(from, to);
    char *whole = result == 0 && is_convoy && getenv("CONVOY_FAULT_RECORD") ? realpath(to, NULL) : NULL;
    if (whole) {
        const char *name = strrchr(from, '/');
        char source[2 * PATH_MAX];
        snprintf(source, sizeof source, "%.*s/%s", (int)(strrchr(whole, '/') - whole), whole, name ? name + 1 : from);
        pthread_mutex_lock(&recording);
        record_line("rename", source, whole);
        pthread_mutex_unlock(&recording);
        free(whole);
    }
    return result;
}

int mkdir(const char *path, mode_t mode)
{
    FAIL("rename", ENOSPC, -1)
    REAL(mkdir)
    return real(path, mode);
}

/* ---- threads and sockets ---- */

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*work)(void *), void *argument)
{
    if (fails("thread", CALLER))
        return EAGAIN;
    REAL(pthread_create)
    return real(thread, attributes, work, argument);
}

int socket(int family, int type, int protocol)
{
    FAIL("socket", EMFILE, -1)
    REAL(socket)
    return real(family, type, protocol);
}

int bind(int file, const struct sockaddr *name, socklen_t size)
{
    FAIL("socket", EADDRINUSE, -1)
    REAL(bind)
    return real(file, name, size);
}

int listen(int file, int backlog)
{
    FAIL("socket", EADDRINUSE, -1)
    REAL(listen)
    return real(file, backlog);
}

int connect(int file, const struct sockaddr *name, socklen_t size)
{
    FAIL("socket", ENETUNREACH, -1)
    REAL(connect)
    return real(file, name, size);
}

int accept4(int file, struct sockaddr *name, socklen_t *size, int flags)
{
    FAIL("socket", EMFILE, -1)
    REAL(accept4)
    return real(file, name, size, flags);
}

ssize_t send(int file, const void *data, size_t size, int flags)
{
    TRANSFER("socket", ECONNRESET)
    REAL(send)
    return real(file, data, size, flags);
}

ssize_t recv(int file, void *data, size_t size, int flags)
{
    TRANSFER("socket", ECONNRESET)
    REAL(recv)
    return real(file, data, size, flags);
}

int poll(struct pollfd *polled, nfds_t count, int milliseconds)
{
    FAIL("interrupt", EINTR, -1)
    REAL(poll)
    return real(polled, count, milliseconds);
}
