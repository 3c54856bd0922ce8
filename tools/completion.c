/* convoy completion: scripts for bash, zsh and fish, from the option tables. */
#include <stdio.h>
#include <string.h>

#include "convoy/program/program.h"
#include "tables.h"
#include "terminal.h"

enum { WORDS_MAX = 2048 };

/* "bench infer" */
static const char *command_name(const struct command *command, char buffer[64])
{
    snprintf(buffer, 64, "%s%s%s", command->verb->name, *command->kind ? " " : "", command->kind);
    return buffer;
}

static void print_verbs(const char *separator)
{
    for (size_t i = 0; verb_at(i); i++)
        printf("%s%s", i ? separator : "", verb_at(i)->name);
    printf("%shelp%sversion", separator, separator);
}

/* The words of "a|b|c", with blanks between them. */
static void print_kinds(const char *kinds)
{
    for (; *kinds; kinds++)
        putchar(*kinds == '|' ? ' ' : *kinds);
}

/* ---- bash ---- */

/* A line for each option that has words of its own, so that after all others files are offered. */
static void bash_values(void *context, const struct command *command)
{
    char name[64], words[WORDS_MAX];
    const struct option *option;

    (void)context;
    command_name(command, name);
    for (size_t i = 0; (option = options_at(command->table, i)) != NULL; i++) {
        if (!option->help || !options_take_value(option) || !*option_words(option, words, sizeof(words)))
            continue;
        printf("    \"%s --%s\"", name, option->name);
        if (option->alias)
            printf("|\"%s --%s\"", name, option->alias);
        if (option->letter)
            printf("|\"%s -%c\"", name, option->letter);
        printf(") words=\"%s\" ;;\n", words);
    }
}

static void bash_options(void *context, const struct command *command)
{
    char name[64];
    const struct option *option;

    (void)context;
    printf("    \"%s\") words=\"", command_name(command, name));
    for (size_t i = 0; (option = options_at(command->table, i)) != NULL; i++)
        if (option->help)
            printf("%s--%s", i ? " " : "", option->name);
    printf("%s\" ;;\n", command->table->groups ? " --help-all" : "");
}

static cvy_status print_bash(void)
{
    cvy_status status;

    printf("# Completion of convoy for bash, by `convoy completion bash`.\n"
           "_convoy()\n{\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb= words= word i\n"
           "    COMPREPLY=()\n"
           "    if [ \"$cur\" = = ]; then cur=\n"
           "    elif [ \"$prev\" = = ]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
           "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
           "        word=${COMP_WORDS[i]}\n"
           "        case \"$verb $word\" in\n"
           "        ' '-*) ;;\n"
           "        ' '*) verb=$word ;;\n");
    for (size_t i = 0; verb_at(i); i++) {
        if (!verb_at(i)->kinds)
            continue;
        for (const char *at = verb_at(i)->kinds; *at; at += strcspn(at, "|"), at += *at == '|')
            printf("%s\"%s %.*s\"", at == verb_at(i)->kinds ? "        " : "|", verb_at(i)->name, (int)strcspn(at, "|"),
                   at);
        printf(") verb=\"$verb $word\" ;;\n");
    }
    printf("        esac\n    done\n"
           "    case \"$verb $prev\" in\n");
    status = tables_walk(NULL, bash_values, NULL);
    printf("    esac\n"
           "    if [ -z \"$words\" ] && [ \"${prev#-}\" = \"$prev\" ] || [ \"${cur#-}\" != \"$cur\" ]; then\n"
           "    case \"$verb\" in\n    '') words=\"");
    print_verbs(" ");
    printf(" --help --version\" ;;\n");
    for (size_t i = 0; verb_at(i); i++) {
        if (!verb_at(i)->kinds)
            continue;
        printf("    %s) words=\"", verb_at(i)->name);
        print_kinds(verb_at(i)->kinds);
        printf("\" ;;\n");
    }
    printf("    completion) words=\"bash zsh fish\" ;;\n    man|help) words=\"");
    print_verbs(" ");
    printf("\" ;;\n    esac\n    fi\n"
           "    case \"$cur\" in\n    -*)\n    case \"$verb\" in\n");
    if (status == CVY_OK)
        status = tables_walk(NULL, bash_options, NULL);
    printf("    esac ;;\n    esac\n"
           "    [ -z \"$words\" ] || COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
           "}\n"
           "complete -o bashdefault -o default -F _convoy convoy\n");
    return status;
}

/* ---- zsh ---- */

/* A help text inside '...[text]...'. */
static void zsh_text(const char *text)
{
    for (; *text; text++) {
        if (*text == '\'')
            printf("'\\''");
        else if (strchr("[]:\\", *text))
            printf("\\%c", *text);
        else
            putchar(*text);
    }
}

static void zsh_option(const struct option *option, bool letter)
{
    char words[WORDS_MAX];
    const bool value = options_take_value(option);

    if (letter)
        printf("        '-%c%s[", option->letter, value ? "+" : "");
    else
        printf("        '--%s%s[", option->name, value ? "=" : "");
    zsh_text(option->help);
    putchar(']');
    if (value) {
        putchar(':');
        zsh_text(option->argument ? option->argument : "value");
        if (*option_words(option, words, sizeof(words)))
            printf(":(%s)", words);
        else
            printf("%s", option->argument && is_file_argument(option->argument) ? ":_files" : ": ");
    }
    printf("' \\\n");
}

static void zsh_command(void *context, const struct command *command)
{
    char name[64];
    const struct option *option;

    (void)context;
    printf("    '%s')\n        _arguments -s \\\n", command_name(command, name));
    for (size_t i = 0; (option = options_at(command->table, i)) != NULL; i++) {
        if (!option->help)
            continue;
        zsh_option(option, false);
        if (option->letter)
            zsh_option(option, true);
    }
    if (command->table->groups)
        printf("        '--help-all[print all options]' \\\n");
    printf("        '*:file:_files' ;;\n");
}

static cvy_status print_zsh(void)
{
    cvy_status status;

    printf("#compdef convoy\n# Completion of convoy for zsh, by `convoy completion zsh`.\n"
           "_convoy() {\n"
           "    local command=${words[2]}\n"
           "    if (( CURRENT == 2 )); then\n"
           "        compadd ");
    print_verbs(" ");
    printf("\n        return\n    fi\n    case $command in\n");
    for (size_t i = 0; verb_at(i); i++) {
        if (!verb_at(i)->kinds)
            continue;
        printf("    %s)\n        if (( CURRENT == 3 )); then\n            compadd ", verb_at(i)->name);
        print_kinds(verb_at(i)->kinds);
        printf("\n            return\n        fi\n        command=\"$command ${words[3]}\"\n        shift words; (( "
               "CURRENT-- )) ;;\n");
    }
    printf("    completion) (( CURRENT > 3 )) || compadd bash zsh fish; return ;;\n    man|help) compadd ");
    print_verbs(" ");
    printf("; return ;;\n    esac\n    shift words; (( CURRENT-- ))\n    case $command in\n");
    status = tables_walk(NULL, zsh_command, NULL);
    printf("    esac\n}\n_convoy \"$@\"\n");
    return status;
}

/* ---- fish ---- */

static void fish_text(const char *text)
{
    putchar('\'');
    for (; *text; text++)
        printf(*text == '\'' || *text == '\\' ? "\\%c" : "%c", *text);
    putchar('\'');
}

static void fish_command(void *context, const struct command *command)
{
    char words[WORDS_MAX];
    const struct option *option;

    (void)context;
    for (size_t i = 0; (option = options_at(command->table, i)) != NULL; i++) {
        if (!option->help)
            continue;
        printf("complete -c convoy -n '__convoy_is %s%s%s' -l %s", command->verb->name, *command->kind ? " " : "",
               command->kind, option->name);
        if (option->letter)
            printf(" -s %c", option->letter);
        if (options_take_value(option) && *option_words(option, words, sizeof(words)))
            printf(" -x -a '%s'", words);
        else if (options_take_value(option))
            printf("%s", option->argument && is_file_argument(option->argument) ? " -r -F" : " -x");
        printf(" -d ");
        fish_text(option->help);
        putchar('\n');
    }
    if (command->table->groups)
        printf("complete -c convoy -n '__convoy_is %s' -l help-all -d 'print all options'\n", command->verb->name);
}

static cvy_status print_fish(void)
{
    printf("# Completion of convoy for fish, by `convoy completion fish`.\n"
           "# Whether the words so far are these: the verb, and the kind where there is one.\n"
           "function __convoy_is\n"
           "    set -l words (commandline -opc)\n"
           "    test (count $words) -gt (count $argv); or return 1\n"
           "    for i in (seq (count $argv))\n"
           "        test \"$words[(math $i + 1)]\" = \"$argv[$i]\"; or return 1\n"
           "    end\nend\n"
           "function __convoy_count\n    test (count (commandline -opc)) -eq $argv[1]\nend\n"
           "complete -c convoy -n '__convoy_count 1' -f -a 'help version'\n");
    for (size_t i = 0; verb_at(i); i++) {
        printf("complete -c convoy -n '__convoy_count 1' -f -a %s -d ", verb_at(i)->name);
        fish_text(verb_at(i)->summary);
        putchar('\n');
        if (!verb_at(i)->kinds)
            continue;
        printf("complete -c convoy -n '__convoy_is %s; and __convoy_count 2' -f -a '", verb_at(i)->name);
        print_kinds(verb_at(i)->kinds);
        printf("'\n");
    }
    printf("complete -c convoy -n '__convoy_is completion' -f -a 'bash zsh fish'\n"
           "complete -c convoy -n '__convoy_is man' -f -a '");
    print_verbs(" ");
    printf("'\n");
    return tables_walk(NULL, fish_command, NULL);
}

cvy_status verb_completion(int argc, char **argv)
{
    static const struct {
        const char *name;
        cvy_status (*print)(void);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    static const char *const names[] = {"bash", "zsh", "fish"};
    const struct option_table table = {
        .verb = "completion",
        .arguments = "bash|zsh|fish",
        .summary = "Prints a script with which the shell completes verbs, options and their values. Installed\n"
                   "programs have them already; else: source <(convoy completion bash)",
        .min_arguments = 1,
        .max_arguments = 1,
    };
    struct arguments arguments;
    cvy_status status;

    if (!options_begin(&table, argc, argv, &arguments, &status))
        return status;
    for (size_t i = 0; i < OPT_COUNT(shells); i++)
        if (strcmp(arguments.value[0], shells[i].name) == 0)
            return shells[i].print();
    const char *nearest = cvy_nearest_name(arguments.value[0], names, OPT_COUNT(names));
    return terminal_fail(CVY_USAGE, "completion is for bash, zsh or fish, not %s%s%s", quoted(arguments.value[0]),
                         nearest ? ", perhaps " : "", nearest ? nearest : "");
}
