/* convoy man: manual pages, from the option tables. */
#include <stdio.h>
#include <string.h>

#include "convoy/program/program.h"
#include "tables.h"
#include "terminal.h"

/* Text of a page. Hyphens are minus signs, so that options can be copied; a line that begins with a dot is no
 * request. */
static void print_text(const char *text)
{
    bool begins = true;

    for (; *text; text++) {
        if (begins && (*text == '.' || *text == '\''))
            printf("\\&");
        begins = *text == '\n';
        if (*text == '-')
            printf("\\-");
        else if (*text == '\\')
            printf("\\e");
        else
            putchar(*text);
    }
}

static void print_option(const struct option *option)
{
    printf(".TP\n");
    if (option->letter)
        printf("\\fB\\-%c\\fR, ", option->letter);
    printf("\\fB\\-\\-");
    print_text(option->name);
    printf("\\fR");
    if (option->alias) {
        printf(", \\fB\\-\\-");
        print_text(option->alias);
        printf("\\fR");
    }
    if (option->argument && options_take_value(option)) {
        printf(" \\fI");
        print_text(option->argument);
        printf("\\fR");
    }
    putchar('\n');
    print_text(option->help);
    putchar('\n');
}

static void print_group(const struct option_table *table, int group, const char *heading)
{
    const struct option *option;

    for (size_t i = 0; (option = options_at(table, i)) != NULL; i++) {
        if (!option->help || option->group != group)
            continue;
        if (heading) {
            printf(".SS ");
            print_text(heading);
            putchar('\n');
        }
        heading = NULL;
        print_option(option);
    }
}

/* .TH with the name in capital letters. */
static void print_head(const char *verb)
{
    char title[64];

    snprintf(title, sizeof(title), "CONVOY%s%s", *verb ? "-" : "", verb);
    for (char *at = title; *at; at++)
        *at = *at >= 'a' && *at <= 'z' ? (char)(*at - 'a' + 'A') : *at;
    printf(".\\\" Made by convoy man from the program's option tables.\n.TH %s 1 \"\" \"Convoy %s\"\n", title,
           cvy_version());
}

/* One command of a verb. `context`: whether it is the first one. */
static void print_command(void *context, const struct command *command)
{
    bool *first = context;
    const struct option_table *table = command->table;

    if (*first) {
        print_head(command->verb->name);
        printf(".SH NAME\nconvoy\\-%s \\- %s\n", command->verb->name, command->verb->summary);
    }
    *first = false;
    printf(".SH %s\n\\fBconvoy %s\\fR ", *command->kind ? "" : "SYNOPSIS", table->verb);
    print_text(table->arguments);
    printf(" [options]\n");
    printf(*command->kind ? ".PP\n" : ".SH DESCRIPTION\n");
    print_text(table->summary);
    printf("\n%s\n", *command->kind ? ".PP" : ".SH OPTIONS");
    print_group(table, 0, NULL);
    for (int group = 1; table->groups && table->groups[group - 1]; group++)
        print_group(table, group, table->groups[group - 1]);
}

static void print_see_also(const char *except)
{
    printf(".SH SEE ALSO\n");
    if (*except)
        printf("\\fBconvoy\\fR(1)\n");
    for (size_t i = 0; verb_at(i); i++)
        if (strcmp(verb_at(i)->name, except) != 0)
            printf("%s\\fBconvoy\\-%s\\fR(1)\n", i || *except ? ", " : "", verb_at(i)->name);
}

/* The page of the program itself. */
static void print_program(void)
{
    static const struct {
        cvy_status code;
        const char *meaning;
    } codes[] = {{CVY_OK, "done"},
                 {CVY_FAILED, "failed for a reason of its own"},
                 {CVY_USAGE, "the command line is wrong"},
                 {CVY_BAD_DATA, "a file is damaged or does not fit"},
                 {CVY_NO_INPUT, "a file or folder is missing or cannot be read"},
                 {CVY_UNAVAILABLE, "a device or library is not available here"},
                 {CVY_NO_MEMORY, "memory ran out"},
                 {CVY_CANNOT_CREATE, "an output file or folder cannot be created"},
                 {CVY_CANNOT_WRITE, "writing failed half way"},
                 {CVY_STOPPED, "stopped by a signal; a checkpoint is saved"}};

    print_head("");
    printf(".SH NAME\nconvoy \\- trains and runs convolutional networks\n"
           ".SH SYNOPSIS\n\\fBconvoy\\fR \\fIVERB\\fR [arguments] [options]\n.SH VERBS\n");
    for (size_t i = 0; verb_at(i); i++) {
        printf(".TP\n\\fBconvoy\\-%s\\fR(1)\n", verb_at(i)->name);
        print_text(verb_at(i)->summary);
        putchar('\n');
    }
    printf(".SH EXIT STATUS\n");
    for (size_t i = 0; i < OPT_COUNT(codes); i++)
        printf(".TP\n%d\n%s\n", (int)codes[i].code, codes[i].meaning);
    print_see_also("");
}

cvy_status verb_man(int argc, char **argv)
{
    const struct option_table table = {
        .verb = "man",
        .arguments = "[VERB]",
        .summary = "Prints the manual page of the program or of a verb, for man: convoy man train | man -l -\n"
                   "Installed programs have them already: man convoy-train",
        .min_arguments = 0,
        .max_arguments = 1,
    };
    const char *names[32], *nearest;
    struct arguments arguments;
    size_t count = 0;
    bool first = true;
    cvy_status status;

    if (!options_begin(&table, argc, argv, &arguments, &status))
        return status;
    if (arguments.count == 0) {
        print_program();
        return CVY_OK;
    }
    for (; verb_at(count) && count < OPT_COUNT(names); count++)
        names[count] = verb_at(count)->name;
    status = tables_walk(arguments.value[0], print_command, &first);
    if (status == CVY_OK && !first)
        print_see_also(arguments.value[0]);
    if (status != CVY_OK || !first)
        return status;
    nearest = cvy_nearest_name(arguments.value[0], names, count);
    return terminal_fail(CVY_USAGE, "there is no verb %s%s%s", quoted(arguments.value[0]), nearest ? ", perhaps " : "",
                         nearest ? nearest : "");
}
