/* Options as programs have them: on the heap, set and read by name. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "options/options.h"

struct cvy_train_options *cvy_train_options_new(void)
{
    struct cvy_train_options *options = malloc(sizeof(*options));

    cvy_train_options_init(options);
    return options;
}

struct cvy_train_options *cvy_train_options_copy(const struct cvy_train_options *options)
{
    struct cvy_train_options *copy = options ? malloc(sizeof(*copy)) : NULL;

    if (copy)
        *copy = *options;
    return copy;
}

void cvy_train_options_free(struct cvy_train_options *options)
{
    free(options);
}

cvy_status cvy_train_options_set_data(struct cvy_train_options *options, const char *path)
{
    CVY_REQUIRE(options);
    CVY_REQUIRE(path);
    const size_t length = strlen(path);

    if (length == 0 || length >= sizeof(options->data))
        return cvy_fail(CVY_USAGE, "the folder of the data set needs a name of 1 to %zu bytes",
                        sizeof(options->data) - 1);
    memcpy(options->data, path, length + 1);
    return CVY_OK;
}

const char *cvy_train_options_data(const struct cvy_train_options *options)
{
    return options ? options->data : "";
}

cvy_status cvy_train_options_get(const struct cvy_train_options *options, const char *name, char *text, size_t size)
{
    CVY_REQUIRE(options);
    CVY_REQUIRE(name);
    CVY_REQUIRE(text);
    const int index = cvy_train_option_find(name);
    char whole[CVY_PATH_MAX]; /* no field is longer */

    if (index < 0)
        return CVY_USAGE;
    cvy_train_option_text(options, (size_t)index, whole, sizeof(whole));
    if (strlen(whole) >= size)
        return cvy_fail(CVY_USAGE, "the value of option --%s needs %zu bytes, and there are %zu",
                        cvy_train_option_at((size_t)index)->name, strlen(whole) + 1, size);
    strcpy(text, whole);
    return CVY_OK;
}

enum cvy_option_source cvy_train_options_source(const struct cvy_train_options *options, const char *name)
{
    const int index = options && name ? cvy_train_option_find(name) : -1;

    return index < 0 ? CVY_FROM_DEFAULT : (enum cvy_option_source)options->source[index];
}

cvy_status cvy_train_options_reset(struct cvy_train_options *options, const char *name, enum cvy_option_source source)
{
    CVY_REQUIRE(options);
    CVY_REQUIRE(name);
    const int index = cvy_train_option_find(name);
    struct cvy_train_options *defaults;

    if (index < 0)
        return CVY_USAGE;
    if ((int)source < CVY_FROM_DEFAULT || source > CVY_FROM_FLAG)
        return cvy_fail(CVY_USAGE, "option --%s cannot have the source %d", cvy_train_option_at((size_t)index)->name,
                        (int)source);
    if ((defaults = cvy_train_options_new()) == NULL)
        return cvy_fail_memory(sizeof(*defaults), "the options");
    cvy_options_take(options, defaults, (const char *const[]){cvy_train_option_at((size_t)index)->name, NULL});
    options->source[index] = (unsigned char)source;
    cvy_train_options_free(defaults);
    return CVY_OK;
}
