#include "dry_run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convoy/program/program.h"
#include "json.h"
#include "terminal.h"

/* Nothing, where there is nothing to say: an empty text. */
static bool is_known(const struct cvy_train_plan *plan, size_t index)
{
    return strcmp(cvy_train_plan_origin(plan, index), "unknown") != 0;
}

static void print_value(struct json *json, const struct cvy_option_info *info, const char *text, bool known)
{
    if (!known || !*text)
        json_string(json, "value", NULL);
    else if (info->type == CVY_OPTION_REAL)
        json_real(json, "value", strtod(text, NULL), 15);
    else if (info->type == CVY_OPTION_INT && strspn(text, "-0123456789") == strlen(text))
        json_int(json, "value", strtoll(text, NULL, 10));
    else /* flags too: the writer has no booleans, and "true" is what an option is given */
        json_string(json, "value", text);
}

static void print_json(const struct cvy_train_plan *plan)
{
    static char text[CVY_PATH_MAX];
    const struct cvy_train_options *options = cvy_train_plan_options(plan);
    const char *data = cvy_train_options_data(options);
    struct json json = {0};
    const struct cvy_option_info *info;

    json_open_object(&json, NULL);
    json_string(&json, "data", *data ? data : NULL);
    json_int(&json, "processes", cvy_train_plan_ranks(plan));
    if (cvy_train_plan_step_images(plan) > 0) {
        json_int(&json, "batches_of_a_step", cvy_train_plan_accumulate(plan));
        json_int(&json, "images_of_a_step", cvy_train_plan_step_images(plan));
    }
    json_open_object(&json, "options");
    for (size_t i = 0; (info = cvy_train_option_at(i)) != NULL; i++) {
        json_open_object(&json, info->name);
        print_value(&json, info, cvy_train_option_text(options, i, text, sizeof(text)), is_known(plan, i));
        json_string(&json, "from", cvy_train_plan_origin(plan, i));
        json_close_object(&json);
    }
    json_close_object(&json);
    json_close_object(&json);
    putchar('\n');
}

static void print_text(const struct cvy_train_plan *plan)
{
    static char text[CVY_PATH_MAX];
    const struct cvy_train_options *options = cvy_train_plan_options(plan);
    const char *data = cvy_train_options_data(options);
    const int64_t ranks = cvy_train_plan_ranks(plan), images = cvy_train_plan_step_images(plan);
    const struct cvy_option_info *info;

    printf("data %s\n", *data ? quoted(data) : "-");
    printf("processes %" PRId64 "\n", ranks);
    if (images > 0)
        printf("a step has %s: %" PRId64 " of each process in %s\n", cvy_counted(images, "image"), images / ranks,
               cvy_counted(cvy_train_plan_accumulate(plan), "batch"));
    for (size_t i = 0; (info = cvy_train_option_at(i)) != NULL; i++) {
        cvy_train_option_text(options, i, text, sizeof(text));
        printf("%-26s %-24s %s\n", info->name,
               !is_known(plan, i) ? "?"
               : *text            ? text
                                  : "-",
               cvy_train_plan_origin(plan, i));
    }
}

cvy_status dry_run(const struct cvy_train_options *options, int ranks, bool as_json)
{
    struct cvy_train_plan *plan;
    const cvy_status status = cvy_train_dry_run(options, ranks, &plan);

    if (status != CVY_OK)
        return terminal_fail_library(status);
    if (as_json)
        print_json(plan);
    else
        print_text(plan);
    cvy_train_plan_free(plan);
    return CVY_OK;
}
