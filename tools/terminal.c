/* Messages and the progress line on stderr. The library may log from any thread while the main thread draws the line:
 * the lock of stderr (flockfile) keeps them apart. */
#include "terminal.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "names.h"

static enum verbosity verbosity = NORMAL;
static bool progress_shown; /* the cursor stands after a progress line */
static double progress_time;

void terminal_set_verbosity(enum verbosity value)
{
    verbosity = value;
}

static bool interactive(void)
{
    static int answer = -1; /* not asked yet */
    if (answer < 0) {
        const char *term = getenv("TERM");
        answer = isatty(STDERR_FILENO) && !(term && strcmp(term, "dumb") == 0);
    }
    return answer;
}

static bool coloured(void)
{
    const char *no_color = getenv("NO_COLOR");
    return interactive() && !(no_color && *no_color);
}

static int terminal_width(void)
{
    struct winsize window;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0)
        return window.ws_col;
    const char *columns = getenv("COLUMNS");
    const int width = columns ? atoi(columns) : 0;
    return width > 0 ? width : 80;
}

int terminal_columns(void)
{
    return interactive() ? terminal_width() : INT_MAX;
}

static void erase_progress(void)
{
    if (progress_shown)
        fputs("\r\033[K", stderr);
    progress_shown = false;
}

void terminal_clear_progress(void)
{
    flockfile(stderr);
    erase_progress();
    funlockfile(stderr);
}

/* One line that begins with the program's name; `mark` ("warning: ", "") comes between the two. */
static void print_message(const char *colour, const char *mark, const char *text)
{
    flockfile(stderr);
    erase_progress();
    if (coloured() && colour)
        fprintf(stderr, "\033[%smconvoy: %s\033[0m%s\n", colour, mark, text);
    else
        fprintf(stderr, "convoy: %s%s\n", mark, text);
    funlockfile(stderr);
}

static void handle_log(void *context, enum cvy_log_level level, const char *text)
{
    (void)context;
    if (level == CVY_LOG_FATAL) {
        print_message("31", "", text);
        _exit(CVY_FAILED);
    }
    if (level == CVY_LOG_ERROR)
        print_message("31", "", text);
    else if (level == CVY_LOG_WARNING)
        print_message("33", "warning: ", text);
    else if (level == CVY_LOG_INFO ? verbosity >= NORMAL : verbosity >= VERBOSE)
        print_message(NULL, "", text);
}

void terminal_attach_log(void)
{
    cvy_set_log_handler(handle_log, NULL);
}

cvy_status terminal_fail(cvy_status status, const char *format, ...)
{
    char text[8192];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    fflush(stdout); /* what is good comes before what went wrong */
    print_message("31", "", text);
    return status;
}

cvy_status terminal_fail_library(cvy_status status)
{
    const char *sentence = cvy_error();
    return terminal_fail(status, "%s", *sentence ? sentence : "failed without a recorded reason");
}

void terminal_note(const char *format, ...)
{
    if (verbosity == QUIET)
        return;
    va_list arguments;
    flockfile(stderr);
    erase_progress();
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    funlockfile(stderr);
}

/* Bytes of `text` that fill at most `columns` columns. The text is ours: each character of it is one column wide. */
static size_t bytes_in_columns(const char *text, int columns)
{
    size_t i = 0;
    for (; text[i]; i++) {
        const bool starts_character = ((unsigned char)text[i] & 0xc0) != 0x80;
        if (starts_character && columns-- == 0)
            break;
    }
    return i;
}

void terminal_progress(const char *format, ...)
{
    if (verbosity == QUIET || !interactive())
        return;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const double seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    if (progress_shown && seconds - progress_time < 0.1)
        return;
    progress_time = seconds;

    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    flockfile(stderr);
    /* One column stays free: a full line would make some terminals wrap. */
    fprintf(stderr, "\r%.*s\033[K", (int)bytes_in_columns(text, terminal_width() - 1), text);
    fflush(stderr);
    progress_shown = true;
    funlockfile(stderr);
}

const char *quoted(const char *text)
{
    static char buffers[4][512];
    static unsigned turn;
    char *out = buffers[turn++ % 4];
    size_t used = 0;

    out[used++] = '"';
    while (*text) {
        char shown[SHOWN_MAX];
        if (used > sizeof(buffers[0]) - SHOWN_MAX - 8) {
            memcpy(out + used, "...", 3);
            used += 3;
            break;
        }
        if (*text == '"' || *text == '\\')
            out[used++] = '\\';
        (void)next_shown(&text, shown);
        used += (size_t)snprintf(out + used, SHOWN_MAX, "%s", shown);
    }
    out[used++] = '"';
    out[used] = 0;
    return out;
}

const char *duration_text(double seconds, char *buffer, size_t size)
{
    if (!(seconds >= 0) || seconds > 1e9) {
        snprintf(buffer, size, "?");
        return buffer;
    }
    const long long total = llround(seconds);
    const long long hours = total / 3600, minutes = total / 60 % 60, rest = total % 60;
    if (hours > 0)
        snprintf(buffer, size, "%lld:%02lld:%02lld", hours, minutes, rest);
    else
        snprintf(buffer, size, "%lld:%02lld", minutes, rest);
    return buffer;
}

double unsigned_nan(double value)
{
    return isnan(value) ? (double)NAN : value;
}

void print_shell_word(FILE *to, const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+=:,@%";
    if (*text && text[strspn(text, plain)] == 0) {
        fputs(text, to);
        return;
    }
    fputc('\'', to);
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", to);
        else
            fputc(*text, to);
    }
    fputc('\'', to);
}

cvy_status finish_output(cvy_status status)
{
    const bool lost = ferror(stdout) != 0;
    errno = 0;
    if (fflush(stdout) == 0 && !lost)
        return status;
    const int reason = errno;
    terminal_fail(CVY_CANNOT_WRITE, "cannot write the results to the standard output%s%s", reason ? ": " : "",
                  reason ? strerror(reason) : "");
    return CVY_CANNOT_WRITE;
}
