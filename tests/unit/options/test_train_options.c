/* Options as a program has them, which does not know what the struct holds. */
#include "convoy/train.h"
#include "support_test.h"

static void options_on_the_heap(void **state)
{
    struct cvy_train_options *options = cvy_train_options_new();
    char longest[CVY_PATH_MAX + 1], text[32];

    (void)state;
    assert_non_null(options);
    assert_int_equal(cvy_train_options_set(options, "epochs", "7", CVY_FROM_FLAG), CVY_OK);
    assert_string_equal(cvy_train_option_text(options, (size_t)cvy_train_option_find("epochs"), text, sizeof(text)),
                        "7");
    memset(longest, 'a', CVY_PATH_MAX);
    longest[CVY_PATH_MAX] = '\0';
    assert_int_equal(cvy_train_options_set_data(options, longest), CVY_USAGE);
    assert_int_equal(cvy_train_options_set_data(options, ""), CVY_USAGE);
    longest[CVY_PATH_MAX - 1] = '\0';
    assert_int_equal(cvy_train_options_set_data(options, longest), CVY_OK);
    assert_string_equal(cvy_train_options_data(options), longest);
    cvy_train_options_free(options);
}

/* What a program without the struct can do: read values and their sources, take them back, copy. */
static void read_and_reset(void **state)
{
    struct cvy_train_options *options = cvy_train_options_new(), *copy;
    char text[8], longer[64];

    (void)state;
    assert_int_equal(cvy_train_options_set(options, "nesterov", NULL, CVY_FROM_RECIPE), CVY_OK);
    assert_int_equal(cvy_train_options_set(options, "batch_size", "auto", CVY_FROM_FLAG), CVY_OK);
    assert_int_equal(cvy_train_options_set(options, "workspace", "runs/seven", CVY_FROM_FLAG), CVY_OK);
    copy = cvy_train_options_copy(options);
    assert_int_equal(cvy_train_options_get(options, "nest", text, sizeof text), CVY_OK);
    assert_string_equal(text, "true");
    assert_int_equal(cvy_train_options_source(options, "nesterov"), CVY_FROM_RECIPE);
    assert_int_equal(cvy_train_options_get(options, "b", text, sizeof text), CVY_OK);
    assert_string_equal(text, "auto");
    assert_int_equal(cvy_train_options_get(options, "workspace", text, sizeof text), CVY_USAGE); /* 11 bytes */
    assert_non_null(strstr(cvy_error(), "11 bytes"));
    assert_string_equal(text, "auto");
    assert_int_equal(cvy_train_options_get(options, "wd-", text, sizeof text), CVY_USAGE);
    /* Taken back for good: a recipe does not set it again; taken back as if it had not been: a recipe does. */
    assert_int_equal(cvy_train_options_reset(options, "workspace", CVY_FROM_FLAG), CVY_OK);
    assert_int_equal(cvy_train_options_set(options, "workspace", "other", CVY_FROM_RECIPE), CVY_OK);
    assert_int_equal(cvy_train_options_get(options, "workspace", longer, sizeof longer), CVY_OK);
    assert_string_equal(longer, "");
    assert_int_equal(cvy_train_options_reset(options, "nesterov", CVY_FROM_DEFAULT), CVY_OK);
    assert_int_equal(cvy_train_options_source(options, "nesterov"), CVY_FROM_DEFAULT);
    assert_int_equal(cvy_train_options_get(options, "nesterov", text, sizeof text), CVY_OK);
    assert_string_equal(text, "false");
    assert_int_equal(cvy_train_options_reset(options, "nesterov", (enum cvy_option_source)99), CVY_USAGE);
    assert_int_equal(cvy_train_options_reset(options, "no-such", CVY_FROM_FLAG), CVY_USAGE);
    cvy_train_options_free(options);
    assert_int_equal(cvy_train_options_get(copy, "workspace", longer, sizeof longer), CVY_OK);
    assert_string_equal(longer, "runs/seven");
    assert_int_equal(cvy_train_options_source(copy, "nesterov"), CVY_FROM_RECIPE);
    cvy_train_options_free(copy);
}

RUN_TESTS(NULL, NULL, TEST(options_on_the_heap), TEST(read_and_reset))
