/* Recipes: "name = value" files that set options between the automatic choice and the flags. */
#include "train/recipe.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "train/options.h"

enum { RECIPE_LIMIT = 1 << 20 }; /* bytes of a recipe file */

const char *cvy_recipe_name(size_t index)
{
    for (size_t i = 0; cvy_recipes[i].name; i++) {
        if (i == index)
            return cvy_recipes[i].name;
    }
    return NULL;
}

const char *cvy_recipe_text(const char *name)
{
    for (size_t i = 0; cvy_recipes[i].name; i++) {
        if (strcmp(cvy_recipes[i].name, name) == 0)
            return cvy_recipes[i].text;
    }
    return NULL;
}

/* Cut white space off both ends, in place. */
static char *trim(char *text)
{
    size_t length;

    while (isspace((unsigned char)*text))
        text++;
    length = strlen(text);
    while (length > 0 && isspace((unsigned char)text[length - 1]))
        text[--length] = '\0';
    return text;
}

static cvy_status apply_line(struct cvy_train_options *options, char *line, enum cvy_option_source source)
{
    /* A recipe says how to train, not where: these would make it depend on one run. */
    static const char *const refused[] = {"recipe", "resume", "workspace", "pretrained-weights"};
    char *comment = strchr(line, '#'), *equals, *name, *value;
    int index;

    if (comment)
        *comment = '\0';
    line = trim(line);
    if (line[0] == '\0')
        return CVY_OK;
    equals = strchr(line, '=');
    if (!equals)
        return cvy_fail(CVY_USAGE, "%s is not \"name = value\"", cvy_quote(line));
    *equals = '\0';
    name = trim(line);
    value = trim(equals + 1);
    index = cvy_train_option_find(name);
    if (index < 0)
        return CVY_USAGE;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        if (strcmp(cvy_train_option_at((size_t)index)->name, refused[i]) == 0)
            return cvy_fail(CVY_USAGE, "option --%s cannot be set by a recipe", refused[i]);
    }
    return cvy_train_options_set(options, name, value, source);
}

cvy_status cvy_recipe_apply(struct cvy_train_options *options, const char *what, const char *text,
                            enum cvy_option_source source)
{
    int number = 0;

    while (*text) {
        const char *end = strchr(text, '\n');
        const size_t length = end ? (size_t)(end - text) : strlen(text);
        char line[CVY_PATH_MAX + 128];

        number++;
        if (length >= sizeof line)
            return cvy_fail(CVY_USAGE, "%s line %d is too long", cvy_quote(what), number);
        memcpy(line, text, length);
        line[length] = '\0';
        if (apply_line(options, line, source) != CVY_OK)
            return cvy_fail_context(CVY_USAGE, "%s line %d", cvy_quote(what), number);
        text += length + (end ? 1 : 0);
    }
    return CVY_OK;
}

static cvy_status unknown_recipe(const char *name)
{
    char names[256] = "";
    size_t used = 0;

    for (size_t i = 0; cvy_recipe_name(i) && used < sizeof names; i++) {
        const int length = snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", cvy_recipe_name(i));
        used += length > 0 ? (size_t)length : 0;
    }
    return cvy_fail(CVY_USAGE, "option --recipe: %s is neither a file nor a built-in recipe (%s)", cvy_quote(name),
                    names);
}

cvy_status cvy_recipe_apply_named(struct cvy_train_options *options)
{
    char name[CVY_PATH_MAX];
    void *data = NULL;
    size_t size = 0;
    cvy_status status;

    if (options->recipe[0] == '\0')
        return CVY_OK;
    snprintf(name, sizeof name, "%s", options->recipe);
    if (cvy_recipe_text(name))
        return cvy_recipe_apply(options, name, cvy_recipe_text(name), CVY_FROM_RECIPE);
    if (!cvy_path_exists(name))
        return unknown_recipe(name);
    CVY_TRY(cvy_file_read(name, RECIPE_LIMIT, &data, &size));
    status = memchr(data, '\0', size) ? cvy_fail(CVY_USAGE, "%s is not a text file", cvy_quote(name))
                                      : cvy_recipe_apply(options, name, data, CVY_FROM_RECIPE);
    cvy_free(data);
    return status;
}
