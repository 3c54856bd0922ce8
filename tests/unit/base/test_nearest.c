/* Names that a misspelt word may mean. */
#include "base/nearest.h"
#include "convoy/program/program.h"
#include "support_test.h"

static const char *const names[] = {"train", "evaluate", NULL, "classify", "detect", "lr", "end-lr", "label-smoothing"};

static const char *near(const char *text)
{
    return cvy_nearest_name(text, names, sizeof names / sizeof names[0]);
}

static void mistakes(void **state)
{
    assert_string_equal(near("train"), "train");
    assert_string_equal(near("trian"), "train"); /* two neighbours exchanged: one mistake */
    assert_string_equal(near("tain"), "train");
    assert_string_equal(near("trrain"), "train");
    assert_string_equal(near("TRAIN"), "train");
    assert_string_equal(near("clasify"), "classify");
    assert_string_equal(near("label_smothing"), "label-smoothing");
    assert_string_equal(near("detekt"), "detect");
}

/* Not everything has a meaning. */
static void far_away(void **state)
{
    assert_null(near("fly"));
    assert_null(near(""));
    assert_null(near("x"));
    assert_null(near("no-such-option"));
    assert_null(near("evaluate-and-classify-and-detect-everything-there-is-in-here"));
    assert_null(cvy_nearest_name("train", names, 0));
    assert_null(cvy_nearest_name(NULL, names, 2));
    assert_null(cvy_nearest_name("train", NULL, 2));
}

static void for_sentences(void **state)
{
    struct cvy_nearest nearest = cvy_nearest_begin("detekt");

    assert_string_equal(cvy_nearest_text(&nearest), "");
    cvy_nearest_offer(&nearest, NULL);
    for (int i = 3; i < 5; i++)
        cvy_nearest_offer(&nearest, names[i]);
    assert_string_equal(cvy_nearest_text(&nearest), ", perhaps detect");
}

RUN_TESTS(NULL, NULL, TEST(mistakes), TEST(far_away), TEST(for_sentences))
