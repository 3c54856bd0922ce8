/* --class-weights: balanced, named on the command line, from a file; and what is wrong with others. */
#include "options/class_weights.h"
#include "support_test.h"

/* 6 images of "a, b", 3 of "cat", none of "cow", 1 of "dog=1". */
static const char *names[] = {"a, b", "cat", "cow", "dog=1"};
enum { CLASSES = 4, OUTPUTS = 5 };
static struct cvy_sample samples[10];
static const struct cvy_dataset data = {
    .classes = names, .class_count = CLASSES, .samples = samples, .sample_count = 10};
static char path[] = "/tmp/convoy-weights-XXXXXX";

static int setup(void **state)
{
    const int file = mkstemp(path);

    for (int i = 0; i < 10; i++)
        samples[i].label = i < 6 ? 0 : i < 9 ? 1 : 3;
    return file < 0 || close(file) != 0;
}

static int teardown(void **state)
{
    return remove(path);
}

static void write_file(const char *text)
{
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void test_what_is_a_file(void **state)
{
    assert_true(cvy_class_weights_is_file("weights.tsv")); /* whether it is there or not */
    assert_true(cvy_class_weights_is_file(path));
    assert_false(cvy_class_weights_is_file("balanced"));
    assert_false(cvy_class_weights_is_file("cat=2,cow=3"));
}

static void expect(const char *text, float a, float b, float c, float d)
{
    const float wanted[OUTPUTS] = {a, b, c, d, 1};
    float weights[OUTPUTS];

    if (cvy_class_weights_make(text, &data, OUTPUTS, weights) != CVY_OK)
        fail_msg("%s: %s", text, cvy_error());
    for (int k = 0; k < OUTPUTS; k++) {
        if (weights[k] != wanted[k])
            fail_msg("%s: weight %d is %g, not %g", text, k, (double)weights[k], (double)wanted[k]);
    }
}

/* N / (K n_k), as scikit-learn's "balanced": three classes are there. */
static void balanced(void **state)
{
    expect("balanced", 10.0f / (3 * 6), 10.0f / (3 * 3), 1, 10.0f / 3);
}

static void named(void **state)
{
    expect("cat=2.5", 1, 2.5f, 1, 1);
    expect("cat=2,a, b=0.5,cow=3", 0.5f, 2, 3, 1);
    expect(" cat = 2 , cow=1e-3,", 1, 2, 1e-3f, 1);
}

static void from_a_file(void **state)
{
    write_file("# more of the rare ones\n\na, b\t0.5\ncat,2\r\ndog=1 = 7\n  cow\t 3  ");
    expect(path, 0.5f, 2, 3, 7);
}

static void refuse(const char *text, cvy_status status, const char *part)
{
    float weights[OUTPUTS];

    assert_int_equal(cvy_class_weights_make(text, &data, OUTPUTS, weights), status);
    if (!strstr(cvy_error(), part))
        fail_msg("%s: \"%s\" does not say \"%s\"", text, cvy_error(), part);
}

static void refuse_file(const char *text, cvy_status status, const char *part)
{
    write_file(text);
    refuse(path, status, part);
}

static void wrong_ones(void **state)
{
    refuse("horse=2", CVY_USAGE, "option --class-weights: there is no class \"horse\"");
    refuse("cat=2,cat=3", CVY_USAGE, "there are two weights for class \"cat\"");
    refuse("cat=", CVY_USAGE, "a weight is a number above 0 and at most 1e6, not \"\"");
    refuse("cat=0", CVY_USAGE, "not \"0\"");
    refuse("cat=-1", CVY_USAGE, "not \"-1\"");
    refuse("cat=nan", CVY_USAGE, "not \"nan\"");
    refuse("cat=inf", CVY_USAGE, "not \"inf\"");
    refuse("cat=1e-60", CVY_USAGE, "not \"1e-60\"");
    refuse("cat=2x", CVY_USAGE, "not \"2x\"");
    refuse("cat=2,dog", CVY_USAGE, "there is no weight in \"dog\"");
    refuse("=2", CVY_USAGE, "there is no class \"\"");
    refuse("/nowhere/weights.tsv", CVY_NO_INPUT, "weights.tsv");
    refuse_file("cat\t2\nhorse\t3\n", CVY_BAD_DATA, "line 2: there is no class \"horse\"");
    refuse_file("cat\t2\n\ncat,3\n", CVY_BAD_DATA, "line 3: there are two weights for class \"cat\"");
    refuse_file("cat 2\n", CVY_BAD_DATA, "line 1: there is no weight in \"cat 2\"");
    refuse_file("# nothing\n", CVY_BAD_DATA, "holds no class weights");
    refuse("/tmp", CVY_BAD_DATA, "\"/tmp\"");
}

RUN_TESTS(setup, teardown, TEST(test_what_is_a_file), TEST(balanced), TEST(named), TEST(from_a_file), TEST(wrong_ones))
