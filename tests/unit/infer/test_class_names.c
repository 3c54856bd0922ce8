/* Names of classes: the built-in ones, the forms of a file, and files that are none. */
#include "infer/class_names.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "convoy/infer.h"
#include "support_test.h"

static char path[64];

static cvy_status read_names(struct cvy_class_names *names, const char *text, int32_t count)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    return cvy_class_names_read(names, path, count);
}

static void expect_names(const char *text, const char *first, const char *second)
{
    struct cvy_class_names names;

    assert_int_equal(read_names(&names, text, 2), CVY_OK);
    assert_string_equal(cvy_class_names_get(&names, 0), first);
    assert_string_equal(cvy_class_names_get(&names, 1), second);
    assert_null(cvy_class_names_get(&names, 2));
    assert_null(cvy_class_names_get(&names, -1));
    cvy_class_names_release(&names);
}

static void usual(void **state)
{
    assert_string_equal(cvy_class_name_usual(false, 1000, 0), "tench");
    assert_string_equal(cvy_class_name_usual(false, 1000, 207), "golden retriever");
    assert_string_equal(cvy_class_name_usual(false, 1000, 281), "tabby");
    assert_string_equal(cvy_class_name_usual(false, 1000, 999), "toilet tissue");
    assert_null(cvy_class_name_usual(false, 1000, 1000));
    assert_null(cvy_class_name_usual(false, 10, 0));
    assert_string_equal(cvy_class_name_usual(true, 90, 0), "person");
    assert_string_equal(cvy_class_name_usual(true, 90, 89), "toothbrush");
    assert_null(cvy_class_name_usual(true, 90, 11)); /* number 12 is none of COCO's */
    assert_null(cvy_class_name_usual(true, 80, 0));
}

static void forms(void **state)
{
    expect_names("tench\nnew car\n", "tench", "new car");
    expect_names("n01440764 tench, Tinca tinca\r\nn01443537 goldfish, Carassius auratus", "tench, Tinca tinca",
                 "goldfish, Carassius auratus");
    expect_names("n0144 a\n\nn01443537\n", "n0144 a", "n01443537"); /* no ids with a name */
    expect_names(" [\"a\",\n\"b, c\"]\n", "a", "b, c");
}

static void refused(void **state)
{
    static const char *const texts[] = {"",           "one\n",  "a\nb\nc\n", "[\"a\"]",
                                        "[\"a\", 1]", "[\"a\"", "\xff\nb\n", "[\"a\", \"b\", \"c\"]"};
    struct cvy_class_names names;

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_int_equal(read_names(&names, texts[i], 2), CVY_BAD_DATA);
        assert_int_equal(names.count, 0);
    }
    assert_int_equal(cvy_class_names_read(&names, "/nowhere/names.txt", 2), CVY_NO_INPUT);
}

static int make_path(void **state)
{
    snprintf(path, sizeof path, "/tmp/convoy-names-%d.txt", (int)getpid());
    return 0;
}

static int remove_file(void **state)
{
    return remove(path);
}

/* TensorFlow's networks have 1001 outputs for ImageNet's 1000 names. */
static void the_last_output(void **state)
{
    struct cvy_class_names names;
    char text[2001];

    for (int i = 0; i < 1000; i++)
        memcpy(text + (ptrdiff_t)2 * i, "x\n", 3);
    assert_int_equal(read_names(&names, text, 1001), CVY_OK);
    assert_non_null(cvy_class_names_get(&names, 999));
    assert_null(cvy_class_names_get(&names, 1000));
    cvy_class_names_release(&names);
    assert_int_equal(read_names(&names, text, 1002), CVY_BAD_DATA);
    assert_non_null(cvy_class_name_usual(false, 1001, 999));
    assert_null(cvy_class_name_usual(false, 1001, 1000));
}

/* Of values, one for each class. */
static void best_of(void **state)
{
    const float values[] = {1, NAN, 3, -2, 3, 0};
    int indices[8];

    assert_int_equal(cvy_top_k(values, 6, 3, indices), 3);
    assert_true(indices[0] == 2 && indices[1] == 4 && indices[2] == 0);
    assert_int_equal(cvy_top_k(values, 6, 8, indices), 6);
    assert_true(indices[3] == 5 && indices[4] == 3 && indices[5] == 1);
    assert_int_equal(cvy_top_k(values, 6, 0, indices), 0);
    assert_int_equal(cvy_top_k(values, 0, 3, indices), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(usual), cmocka_unit_test(forms), cmocka_unit_test(refused),
                                       cmocka_unit_test(the_last_output), cmocka_unit_test(best_of)};

    return cmocka_run_group_tests(tests, make_path, remove_file);
}
