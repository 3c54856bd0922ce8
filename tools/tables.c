#include "tables.h"

#include <stdio.h>
#include <string.h>

#include "convoy/train.h"

struct walk {
    struct command command;
    command_handler handler;
    void *context;
};

static void take_table(void *context, const struct option_table *table)
{
    struct walk *walk = context;
    walk->command.table = table;
    walk->handler(walk->context, &walk->command);
}

/* A verb fills its table and asks for its help, which comes here. `kind`: "" for none. */
static cvy_status describe(struct walk *walk, const struct verb *verb, const char *kind)
{
    static char help[] = "--help";
    char name[32];
    char *argv[] = {name, help, NULL};
    cvy_status status;

    snprintf(name, sizeof(name), "%s", kind);
    walk->command = (struct command){verb, kind, NULL};
    options_set_describe(take_table, walk);
    status = *kind ? verb->run(2, argv) : verb->run(1, argv + 1);
    options_set_describe(NULL, NULL);
    return status;
}

cvy_status tables_walk(const char *only, command_handler handler, void *context)
{
    struct walk walk = {.handler = handler, .context = context};
    const struct verb *verb;
    cvy_status status = CVY_OK;

    for (size_t i = 0; (verb = verb_at(i)) != NULL && status == CVY_OK; i++) {
        if (only && strcmp(only, verb->name) != 0)
            continue;
        if (!verb->kinds)
            status = describe(&walk, verb, "");
        for (const char *at = verb->kinds; at && *at && status == CVY_OK;) {
            char kind[32];
            const size_t width = strcspn(at, "|");
            snprintf(kind, sizeof(kind), "%.*s", (int)width, at);
            status = describe(&walk, verb, kind);
            at += width + (at[width] ? 1 : 0);
        }
    }
    return status;
}

static void add_word(char *buffer, size_t size, const char *word)
{
    const size_t used = strlen(buffer);
    snprintf(buffer + used, size - used, "%s%s", used ? " " : "", word);
}

/* "torch|same" and not "N|c/N" or "FILE": lower-case words. */
static bool are_words(const char *argument)
{
    return strchr(argument, '|') && argument[strspn(argument, "abcdefghijklmnopqrstuvwxyz0123456789-|")] == '\0';
}

const char *option_words(const struct option *option, char *buffer, size_t size)
{
    const char *const *choices = NULL;

    *buffer = '\0';
    if (option->kind == OPTION_FORWARD) {
        const struct cvy_option_info *info;
        for (size_t i = 0; (info = cvy_train_option_at(i)) != NULL; i++)
            if (strcmp(info->name, option->name) == 0)
                choices = cvy_train_option_choices(i);
    }
    for (; choices && *choices; choices++)
        add_word(buffer, size, *choices);
    if (*buffer || !option->argument)
        return buffer;
    if (option->kind == OPTION_CHOICE || are_words(option->argument)) {
        snprintf(buffer, size, "%s", option->argument);
        for (char *at = buffer; (at = strchr(at, '|')) != NULL;)
            *at = ' ';
    } else if (strcmp(option->name, "recipe") == 0) {
        for (size_t i = 0; cvy_recipe_name(i); i++)
            add_word(buffer, size, cvy_recipe_name(i));
    } else if (strcmp(option->name, "arch") == 0) {
        for (size_t i = 0; cvy_network_name(i); i++)
            add_word(buffer, size, cvy_network_name(i));
    } else if (strcmp(option->name, "device") == 0) {
        add_word(buffer, size, "auto cpu cuda ref");
    }
    return buffer;
}

bool is_file_argument(const char *argument)
{
    return strstr(argument, "FILE") || strstr(argument, "DIR") || strstr(argument, "IMAGE") || strstr(argument, "LIST");
}
