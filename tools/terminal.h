/* What a person sees on stderr: the progress line, messages around it, and failures as one sentence. Results go to
 * stdout and are no business of this file, except for finding out whether they arrived. */
#ifndef TOOLS_TERMINAL_H
#define TOOLS_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "convoy/status.h"

enum verbosity { QUIET, NORMAL, VERBOSE };
void terminal_set_verbosity(enum verbosity value);

/* Routes the library's messages to stderr: errors and warnings always, information unless quiet, the rest if verbose.
 */
void terminal_attach_log(void);

/* Print "convoy: <sentence>" and return `status`, so that callers write `return terminal_fail(...)`. */
cvy_status terminal_fail(cvy_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same with the sentence the library recorded. */
cvy_status terminal_fail_library(cvy_status status);

/* Information on stderr, unless quiet; brings its own newlines. */
void terminal_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Columns that a line of stderr has; INT_MAX where it is no terminal. */
int terminal_columns(void);

/* Replace the progress line; does nothing unless stderr is a terminal, and not more often than ten times a second.
 * The text is cut to the width of the terminal. */
void terminal_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
void terminal_clear_progress(void);

/* `text` in double quotes, shown as names are (names.h), with quotes escaped, for use inside a sentence. One of four
 * buffers; valid until the fourth call after this one; the main thread's. Long texts are cut with "...". */
const char *quoted(const char *text);

/* "2:05" or "1:02:05". Returns buffer. */
const char *duration_text(double seconds, char *buffer, size_t size);

/* For printf: what is no number has no sign, which printf would show as that of the bits, "-nan". */
double unsigned_nan(double value);

/* Print `text` as one word of a POSIX shell. */
void print_shell_word(FILE *to, const char *text);

/* Flush stdout; CVY_CANNOT_WRITE with a sentence if anything was lost, else `status`. */
cvy_status finish_output(cvy_status status);

#endif
