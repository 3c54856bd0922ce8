/* Any bytes as what a person or a file says about a run. The first byte chooses: 'R' a recipe, 'O' lines of "name" or
 * "name=value" as flags, 'J' saved options as JSON, anything else a safetensors file with metadata. Refused with a
 * sentence, or the options can be written out and read back to the same text. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "formats/weights/safetensors.h"
#include "options/options.h"
#include "weights/checkpoint.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_sentence(cvy_status status, cvy_status expected)
{
    if (status == CVY_OK)
        return;
    if (status != expected || !cvy_error()[0] || strchr(cvy_error(), '\n'))
        abort();
}

static cvy_status read_saved(struct cvy_train_options *options, const char *text, size_t length)
{
    struct cvy_arena arena = {0};
    struct cvy_json_value *root;
    cvy_status status = cvy_json_parse("input", text, length, &arena, &root);

    if (status == CVY_OK)
        status = cvy_options_read_json(options, "input", CVY_OPTION_RESULT, root);
    cvy_arena_release(&arena);
    return status;
}

static void write_saved(const struct cvy_train_options *options, struct cvy_text *text)
{
    struct cvy_json json = {.text = text};

    cvy_options_write_json(options, CVY_OPTION_RESULT, &json);
}

/* Whatever was accepted must survive a checkpoint. */
static void check_round_trip(const struct cvy_train_options *options)
{
    static struct cvy_train_options back;
    struct cvy_text first = {0}, second = {0};

    write_saved(options, &first);
    cvy_train_options_init(&back);
    if (first.failed || read_saved(&back, first.text, first.length) != CVY_OK)
        abort();
    write_saved(&back, &second);
    if (second.failed || strcmp(first.text, second.text) != 0)
        abort();
    cvy_text_release(&first);
    cvy_text_release(&second);
}

static void set_flags(struct cvy_train_options *options, char *text)
{
    char *rest = text, *line;

    while ((line = strsep(&rest, "\n")) != NULL) {
        char *equals = strchr(line, '=');
        if (equals)
            *equals = '\0';
        check_sentence(cvy_train_options_set(options, line, equals ? equals + 1 : NULL, CVY_FROM_FLAG), CVY_USAGE);
    }
}

static void read_metadata(const uint8_t *data, size_t size)
{
    static struct cvy_train_options options;
    struct cvy_tensor_file file;
    struct cvy_checkpoint_info info;
    cvy_status status;

    if (cvy_st_open_memory(&file, "input", data, size) != CVY_OK)
        return;
    status = cvy_checkpoint_read(&file, "input", &info);
    check_sentence(status, CVY_BAD_DATA);
    if (status == CVY_OK) {
        cvy_train_options_init(&options);
        if (info.options)
            check_sentence(cvy_options_read_json(&options, "input", CVY_OPTION_RESULT, info.options), CVY_BAD_DATA);
        check_round_trip(&options);
        cvy_checkpoint_info_release(&info);
    }
    cvy_tensor_file_close(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct cvy_train_options options;
    char *text;

    if (size == 0)
        return 0;
    text = calloc(size, 1); /* the rest, terminated */
    if (!text)
        return 0;
    memcpy(text, data + 1, size - 1);
    cvy_train_options_init(&options);
    if (data[0] == 'R')
        check_sentence(cvy_recipe_apply(&options, "input", text, NULL, CVY_FROM_RECIPE), CVY_USAGE);
    else if (data[0] == 'O')
        set_flags(&options, text);
    else if (data[0] == 'J')
        check_sentence(read_saved(&options, text, size - 1), CVY_BAD_DATA);
    else
        read_metadata(data, size);
    check_round_trip(&options);
    free(text);
    return 0;
}
