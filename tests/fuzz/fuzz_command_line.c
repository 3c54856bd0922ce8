/* Any bytes as a command line, one argument a line: every kind of option of the program's parser, and the training
 * options of the library after it. The answer is success or CVY_USAGE, and nothing that was refused leaves a value out
 * of range. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options/train_options.h"

/* The parser belongs to the program, which a fuzz target does not link: its files are compiled in. */
#include "../../tools/names.c"
#include "../../tools/options.c"
#include "../../tools/terminal.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_ARGUMENTS = 64 };

static cvy_status forward_option(void *context, const char *name, const char *value)
{
    return cvy_train_options_set(context, name, value, CVY_FROM_FLAG);
}

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void parse(int argc, char **argv, struct cvy_train_options *training)
{
    bool flag = false;
    const char *text = "unset";
    int choice = 0, number = 5;
    uint64_t seed = 0;
    double real = 0.5;
    struct int_list list = {{1}, 1};
    struct arguments arguments;
    const struct option options[] = {
        {"flag", "alias-of-flag", 'x', false, OPTION_FLAG, &flag, NULL, "", 0, 0, 0, NULL},
        {"text", NULL, 't', false, OPTION_TEXT, &text, "TEXT", "", 0, 0, 0, NULL},
        {"choice", NULL, 'c', false, OPTION_CHOICE, &choice, "one|two|three", "", 0, 0, 0, NULL},
        {"number", NULL, 'n', false, OPTION_INT, &number, "N", "", -3, 2147483647.0, 0, NULL},
        {"seed", NULL, 0, false, OPTION_UINT64, &seed, "N", "", 0, 0, 0, NULL},
        {"real", NULL, 0, false, OPTION_REAL, &real, "X", "", -1, 1, 0, NULL},
        {"list", NULL, 'l', false, OPTION_BATCH_LIST, &list, "N,...", "", 1, 100, 0, NULL},
        {"batch-size", NULL, 'b', false, OPTION_FORWARD, NULL, "N", "", 0, 0, 0, NULL},
        {"lr", "learning-rate", 0, false, OPTION_FORWARD, NULL, "X", "", 0, 0, 0, NULL},
        {"lr-schedule", NULL, 0, false, OPTION_FORWARD, NULL, "NAME", "", 0, 0, 0, NULL},
        {"arch", NULL, 'a', false, OPTION_FORWARD, NULL, "NAME", "", 0, 0, 0, NULL},
        {"workspace", NULL, 0, false, OPTION_FORWARD, NULL, "DIR", "", 0, 0, 0, NULL},
        {"nesterov", NULL, 0, true, OPTION_FORWARD, NULL, NULL, "", 0, 0, 0, option_follows_python},
        {"gather-checkpoints", NULL, 0, false, OPTION_FORWARD, NULL, "N", "", 0, 0, 0, option_follows_number},
    };
    const struct option_table table = {
        .verb = "fuzz",
        .arguments = "A",
        .summary = "",
        .options = options,
        .count = sizeof(options) / sizeof(options[0]),
        .max_arguments = -1,
        .forward = forward_option,
        .context = training,
    };
    const cvy_status status = options_parse(&table, argc, argv, &arguments);
    require(status == CVY_OK || status == CVY_USAGE);
    require(arguments.count >= 0 && arguments.count <= argc);
    for (int i = 0; i < arguments.count; i++)
        require(strlen(arguments.value[i]) < SIZE_MAX);
    require(choice >= 0 && choice <= 2 && number >= -3 && real >= -1 && real <= 1);
    require(strlen(text) > 0);
    require(list.count >= 0 && list.count <= INT_LIST_MAX);
    for (int i = 0; status == CVY_OK && i < list.count; i++)
        require(list.value[i] == CVY_BATCH_AUTO || (list.value[i] >= 1 && list.value[i] <= 100));
    require((training->batch_size == CVY_BATCH_AUTO || training->batch_size >= 1) && training->lr >= 0 &&
            training->arch[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct cvy_train_options training;
    static bool silenced;
    char *argv[MAX_ARGUMENTS + 1];
    int argc = 0;

    if (!silenced) {
        /* The sentences are not of interest; a sanitizer writes to the descriptor, not to this stream. */
        FILE *nowhere = fopen("/dev/null", "w");
        if (nowhere)
            stderr = nowhere;
        silenced = true;
    }
    char *copy = malloc(size + 1);
    if (!copy)
        return 0;
    if (size > 0)
        memcpy(copy, data, size);
    copy[size] = 0;
    for (char *line = copy; argc < MAX_ARGUMENTS && line < copy + size;) {
        char *end = memchr(line, '\n', (size_t)(copy + size - line));
        if (end)
            *end = 0;
        argv[argc++] = line;
        line = end ? end + 1 : copy + size;
    }
    argv[argc] = NULL;
    cvy_train_options_init(&training);
    parse(argc, argv, &training);
    free(copy);
    return 0;
}
