/* The convoy program: finds the verb and leaves the rest to it. */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "convoy/infer.h"
#include "convoy/program/program.h"
#include "options.h"
#include "terminal.h"
#include "verbs.h"

static void print_usage(FILE *stream)
{
    fprintf(stream, "usage: convoy VERB [arguments] [options]\n\n"
                    "Trains and runs convolutional networks.\n\nverbs:\n");
    for (size_t i = 0; verb_at(i); i++)
        fprintf(stream, "  %-10s %s\n", verb_at(i)->name, verb_at(i)->summary);
    fprintf(stream, "\noptions:\n"
                    "  -q, --quiet    results, warnings and errors only\n"
                    "  -v, --verbose  say more about what is done\n"
                    "  --version      print the version\n"
                    "  -h, --help     print this text; convoy VERB --help describes a verb\n\n"
                    "first steps:\n"
                    "  convoy check photos             photos/train/<class>/*.jpg, photos/val/<class>/*.jpg\n"
                    "  convoy train photos\n"
                    "  convoy classify picture.jpg --weights runs/.../model_best.safetensors\n");
}

/* "train, evaluate, ..." for messages. */
static const char *verb_list(void)
{
    static char list[256];
    size_t used = 0;
    for (size_t i = 0; verb_at(i) && used < sizeof(list); i++)
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "", verb_at(i)->name);
    return list;
}

static cvy_status fail_unknown_verb(const char *text)
{
    const char *names[32] = {"help", "version"}, *nearest;
    size_t count = 2;
    for (size_t i = 0; verb_at(i) && count < OPT_COUNT(names); i++)
        names[count++] = verb_at(i)->name;
    nearest = cvy_nearest_name(text, names, count);
    return terminal_fail(CVY_USAGE, "unknown verb %s%s%s; the verbs are: %s", quoted(text), nearest ? ", perhaps " : "",
                         nearest ? nearest : "", verb_list());
}

static cvy_status fail_unknown_option(const char *text)
{
    static const char *const names[] = {"--help", "--version", "--quiet", "--verbose"};
    const char *nearest = strlen(text) > 4 ? cvy_nearest_name(text, names, OPT_COUNT(names)) : NULL;

    return terminal_fail(CVY_USAGE, "unknown option %s before the verb%s%s (convoy --help says more)", quoted(text),
                         nearest ? ", perhaps " : "", nearest ? nearest : "");
}

/* The options before the verb. *at becomes the index of the verb. */
static cvy_status read_leading_options(int argc, char **argv, int *at, bool *help, bool *version)
{
    for (*at = 1; *at < argc && argv[*at][0] == '-'; (*at)++) {
        const char *text = argv[*at];
        if (!strcmp(text, "-h") || !strcmp(text, "--help"))
            *help = true;
        else if (!strcmp(text, "--version") || !strcmp(text, "-V"))
            *version = true;
        else if (!strcmp(text, "-q") || !strcmp(text, "--quiet"))
            terminal_set_verbosity(QUIET);
        else if (!strcmp(text, "-v") || !strcmp(text, "--verbose"))
            terminal_set_verbosity(VERBOSE);
        else
            return fail_unknown_option(text);
    }
    return CVY_OK;
}

/* Threads of GNU OpenMP spin for milliseconds at a barrier, which takes the cores from the decoding threads and from
 * every other process: on two shared cores a training step then takes three times as long. A short spin loses nothing
 * measurable when the cores are free (doc/worklog.md). The runtime reads its settings before main, so the program
 * starts itself again with them; settings of the user stay as they are. */
static void shorten_spinning(char **argv)
{
    /* Where the runtime has bound this thread to a core, the new program would inherit that one core for all threads.
     */
    static const char *const settings[] = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_PROC_BIND", "OMP_PLACES",
                                           "GOMP_CPU_AFFINITY"};

    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        if (getenv(settings[i]))
            return;
    }
    if (setenv("GOMP_SPINCOUNT", "1000", 1) == 0)
        (void)execv("/proc/self/exe", argv); /* returns only when it failed: then without */
}

int main(int argc, char **argv)
{
    static char help_option[] = "--help";
    bool help = false, version = false;
    int at = 1;
    size_t found = 0;

    shorten_spinning(argv);
    (void)prctl(PR_SET_NAME, "convoy"); /* for top and pgrep, where it was started by way of /proc/self/exe: "exe" */
    /* A file that may not grow further is a failed write like any other, not the end of the process. */
    signal(SIGXFSZ, SIG_IGN);
    cvy_guard_mapped_files();
    terminal_attach_log();
    cvy_status status = read_leading_options(argc, argv, &at, &help, &version);
    if (status != CVY_OK)
        return (int)status;
    if (at < argc && strcmp(argv[at], "version") == 0 && at + 1 == argc)
        version = true;
    if (version) {
        printf("convoy %s\n", cvy_version());
        return (int)finish_output(CVY_OK);
    }
    if (at < argc && strcmp(argv[at], "help") == 0) { /* convoy help [VERB] */
        help = true;
        at++;
    }
    if (at >= argc) {
        print_usage(help ? stdout : stderr);
        if (!help)
            return CVY_USAGE;
        return (int)finish_output(CVY_OK);
    }
    for (const struct verb *verb; (verb = verb_at(found)) != NULL; found++) {
        if (strcmp(argv[at], verb->name) != 0)
            continue;
        if (help) {
            char *only_help[] = {help_option, NULL};
            status = verb->run(1, only_help);
        } else {
            status = verb->run(argc - at - 1, argv + at + 1);
        }
        terminal_clear_progress();
        return (int)finish_output(status);
    }
    return (int)fail_unknown_verb(argv[at]);
}
