/* Recipes: "name = value" files that set options between the automatic choice and the flags. */
#include "options/recipe.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "options/options.h"
#include "options/pipeline_config.h"

enum { RECIPE_LIMIT = 1 << 20 }; /* bytes of a recipe file */

static const struct cvy_recipe *recipe_at(size_t index)
{
    for (size_t i = 0; cvy_recipes[i].name; i++) {
        if (i == index)
            return &cvy_recipes[i];
    }
    return NULL;
}

const char *cvy_recipe_name(size_t index)
{
    const struct cvy_recipe *recipe = recipe_at(index);

    return recipe ? recipe->name : NULL;
}

const char *cvy_recipe_file(size_t index)
{
    const struct cvy_recipe *recipe = recipe_at(index);

    return recipe ? recipe->file : NULL;
}

const char *cvy_recipe_text(const char *name)
{
    for (size_t i = 0; name && cvy_recipes[i].name; i++) {
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

/* One line without its comment and the white space around it; not empty. */
static cvy_status apply_line(struct cvy_train_options *options, char *line, enum cvy_option_source source)
{
    /* A recipe says how to train, not where: these would make it depend on one run. */
    static const char *const refused[] = {"recipe", "resume", "workspace", "pretrained-weights"};
    char *equals = strchr(line, '='), *name, *value;
    int index;

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

/* Whether a trimmed line is "[name]"; then its name is cut out of it. */
static bool is_header(char *line, char **name)
{
    const size_t length = strlen(line);

    if (length < 3 || line[0] != '[' || line[length - 1] != ']')
        return false;
    line[length - 1] = '\0';
    *name = trim(line + 1);
    return true;
}

/* Where the reader of a recipe file is. */
struct recipe_reader {
    const char *what, *wanted;   /* wanted: the recipe of a file with several; NULL: none is named */
    bool several, found, inside; /* a header was met; the wanted one was; its lines (or those of all) are being read */
    char names[512];             /* of all headers so far, for a sentence */
};

static void rendezvous_header(struct recipe_reader *reader, const char *name)
{
    const size_t used = strlen(reader->names);

    snprintf(reader->names + used, sizeof reader->names - used, "%s%s", used ? ", " : "", name);
    reader->several = true;
    reader->inside = reader->wanted && strcmp(name, reader->wanted) == 0;
    reader->found = reader->found || reader->inside;
}

static cvy_status finish(const struct recipe_reader *reader)
{
    if (reader->wanted && !reader->found)
        return cvy_fail(CVY_USAGE, "%s has no recipe %s%s%s", cvy_quote(reader->what), cvy_quote(reader->wanted),
                        reader->several ? "; it has " : "", reader->names);
    if (!reader->wanted && reader->several)
        return cvy_fail(CVY_USAGE, "%s has several recipes: name one as FILE#NAME (%s)", cvy_quote(reader->what),
                        reader->names);
    return CVY_OK;
}

cvy_status cvy_recipe_apply(struct cvy_train_options *options, const char *what, const char *text, const char *wanted,
                            enum cvy_option_source source)
{
    struct recipe_reader reader = {.what = what, .wanted = wanted, .inside = true};
    int number = 0;

    while (*text) {
        const char *end = strchr(text, '\n');
        const size_t length = end ? (size_t)(end - text) : strlen(text);
        char buffer[CVY_PATH_MAX + 128], *line, *name;

        number++;
        if (length >= sizeof buffer)
            return cvy_fail(CVY_USAGE, "%s line %d is too long", cvy_quote(what), number);
        memcpy(buffer, text, length);
        buffer[length] = '\0';
        text += length + (end ? 1 : 0);
        buffer[strcspn(buffer, "#")] = '\0';
        line = trim(buffer);
        if (is_header(line, &name))
            rendezvous_header(&reader, name);
        else if (line[0] && reader.inside && apply_line(options, line, source) != CVY_OK)
            return cvy_fail_context(CVY_USAGE, "%s line %d", cvy_quote(what), number);
    }
    return finish(&reader);
}

static size_t common_prefix(const char *a, const char *b)
{
    size_t length = 0;

    while (a[length] && a[length] == b[length])
        length++;
    return length;
}

/* Names the built-in recipes that begin most like the one asked for. */
static cvy_status unknown_recipe(const char *name)
{
    char names[256] = "";
    size_t used = 0, longest = 0;

    for (size_t i = 0; cvy_recipe_name(i); i++) {
        const size_t length = common_prefix(name, cvy_recipe_name(i));
        longest = length > longest ? length : longest;
    }
    for (size_t i = 0; longest > 0 && cvy_recipe_name(i); i++) {
        const size_t more = strlen(cvy_recipe_name(i)) + 2;
        if (common_prefix(name, cvy_recipe_name(i)) < longest || used + more + 8 >= sizeof names)
            continue;
        used +=
            (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "; near: ", cvy_recipe_name(i));
    }
    return cvy_fail(CVY_USAGE, "option --recipe: %s is neither a file nor a built-in recipe (convoy info lists them%s)",
                    cvy_quote(name), names);
}

/* "FILE#NAME" in two; a file of that very name goes before. */
static const char *split_name(char *file)
{
    char *hash = strrchr(file, '#');

    if (!hash || cvy_path_exists(file))
        return NULL;
    *hash = '\0';
    return hash + 1;
}

static cvy_status apply_named(struct cvy_train_options *options)
{
    char file[CVY_PATH_MAX];
    const char *wanted, *text = cvy_recipe_text(options->recipe);
    void *data = NULL;
    size_t size = 0;
    cvy_status status;

    if (options->recipe[0] == '\0')
        return CVY_OK;
    if (text)
        return cvy_recipe_apply(options, options->recipe, text, NULL, CVY_FROM_RECIPE);
    snprintf(file, sizeof file, "%s", options->recipe);
    wanted = split_name(file);
    if (!cvy_path_exists(file))
        return unknown_recipe(options->recipe);
    CVY_TRY(cvy_file_read(file, RECIPE_LIMIT, &data, &size));
    if (cvy_is_pipeline_config(file))
        status = cvy_pipeline_config_apply(options, file, data, size);
    else
        status = memchr(data, '\0', size) ? cvy_fail(CVY_USAGE, "%s is not a text file", cvy_quote(file))
                                          : cvy_recipe_apply(options, file, data, wanted, CVY_FROM_RECIPE);
    cvy_free(data);
    return status;
}

/* With another image size than the recipe's, its validation keeps the margin around the central crop: 256 for 224 is 32
 * more than the image, as PyTorch's program has it for every size. */
static cvy_status keep_margin(struct cvy_train_options *options)
{
    struct cvy_train_options *alone;
    cvy_status status;

    if (cvy_option_source_of(options, "eval-resize") != CVY_FROM_RECIPE ||
        cvy_option_source_of(options, "image-size") <= CVY_FROM_RECIPE)
        return CVY_OK;
    alone = cvy_calloc(1, sizeof *alone);
    if (!alone)
        return cvy_fail_memory(sizeof *alone, "a recipe");
    cvy_train_options_init(alone);
    snprintf(alone->recipe, sizeof alone->recipe, "%s", options->recipe);
    status = apply_named(alone);
    if (status == CVY_OK && alone->image_size > 0)
        options->eval_resize = options->image_size + alone->eval_resize - alone->image_size;
    cvy_free(alone);
    return status;
}

cvy_status cvy_recipe_apply_named(struct cvy_train_options *options)
{
    CVY_TRY(apply_named(options));
    return keep_margin(options);
}
