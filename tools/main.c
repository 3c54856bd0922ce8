/* The convoy program: finds the verb and leaves the rest to it. */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "options.h"
#include "terminal.h"
#include "verbs.h"

static const struct {
    const char *name;
    cvy_status (*run)(int argc, char **argv);
    const char *summary;
} verbs[] = {
    {"train", verb_train, "train a network on a folder of images"},
    {"evaluate", verb_evaluate, "measure the accuracy of weights on the validation images"},
    {"classify", verb_classify, "say what is on images"},
    {"detect", verb_detect, "find objects on images and draw boxes around them"},
    {"convert", verb_convert, "write weights in another format, or under other names"},
    {"bench", verb_bench, "measure the speed of training, inference or data loading"},
    {"info", verb_info, "show this build and machine, a network, or a weights file"},
    {"check", verb_check, "look for problems in a data set before training"},
    {"dataset", verb_dataset, "write a data set"},
    {"report", verb_report, "write a page about a training run"},
};
#define VERB_COUNT (sizeof(verbs) / sizeof(verbs[0]))

static void print_usage(FILE *stream)
{
    fprintf(stream, "usage: convoy VERB [arguments] [options]\n\n"
                    "Trains and runs convolutional networks.\n\nverbs:\n");
    for (size_t i = 0; i < VERB_COUNT; i++)
        fprintf(stream, "  %-10s %s\n", verbs[i].name, verbs[i].summary);
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
    for (size_t i = 0; i < VERB_COUNT && used < sizeof(list); i++)
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "", verbs[i].name);
    return list;
}

static cvy_status fail_unknown_verb(const char *text)
{
    const char *names[VERB_COUNT], *nearest;
    for (size_t i = 0; i < VERB_COUNT; i++)
        names[i] = verbs[i].name;
    nearest = cvy_nearest_name(text, names, VERB_COUNT);
    return terminal_fail(CVY_USAGE, "unknown verb %s%s%s; the verbs are: %s", quoted(text), nearest ? ", perhaps " : "",
                         nearest ? nearest : "", verb_list());
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
            return terminal_fail(CVY_USAGE, "unknown option %s before the verb (convoy --help says more)",
                                 quoted(text));
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

    shorten_spinning(argv);
    (void)prctl(PR_SET_NAME, "convoy"); /* for top and pgrep, where it was started by way of /proc/self/exe: "exe" */
    /* A file that may not grow further is a failed write like any other, not the end of the process. */
    signal(SIGXFSZ, SIG_IGN);
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
    for (size_t i = 0; i < VERB_COUNT; i++) {
        if (strcmp(argv[at], verbs[i].name) != 0)
            continue;
        if (help) {
            char *only_help[] = {help_option, NULL};
            status = verbs[i].run(1, only_help);
        } else {
            status = verbs[i].run(argc - at - 1, argv + at + 1);
        }
        terminal_clear_progress();
        return (int)finish_output(status);
    }
    return (int)fail_unknown_verb(argv[at]);
}
