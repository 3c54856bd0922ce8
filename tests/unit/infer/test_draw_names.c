/* Where copies of images go. */
#include "infer/draw_names.h"
#include "support_folder.h"
#include "support_test.h"

static void names_below_folders(void **state)
{
    static const char *const inputs[] = {"photos/", "photos/sea", "/tmp/one.jpg", "a.jpg", "other/a.jpg", "phot"};
    static const char *const files[] = {
        "photos/sea/b.jpg",  /* of two folders, the one that says more */
        "photos/a.jpg",      /* the first of its name */
        "/tmp/one.jpg",      /* a file of its own */
        "a.jpg",             /* the second one */
        "other/a.jpg",       /* the third */
        "photos/sea/x/a-2",  /* no ending */
        "photos/a-2.jpg",    /* a name that is also made */
        "photos/sea/x/a-2",  /* given twice */
        "photos//sea/c.d/e", /* a dot in a folder */
    };
    static const char *const expected[] = {"sea/b.jpg", "a.jpg",     "one.jpg",     "a-2.jpg",  "a-3.jpg",
                                           "sea/x/a-2", "a-2-2.jpg", "sea/x/a-2-2", "sea/c.d/e"};
    enum { COUNT = sizeof files / sizeof *files };
    struct cvy_arena arena = {0};
    const char **names;

    assert_int_equal(cvy_draw_names("/nonexistent", inputs, 6, files, COUNT, &arena, &names), CVY_OK);
    for (size_t i = 0; i < COUNT; i++) {
        assert_memory_equal(names[i], "/nonexistent/", 13);
        assert_string_equal(names[i] + 13, expected[i]);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(names[i], names[k]);
    }
    cvy_arena_release(&arena);
}

/* A copy never takes the place of an image that was given, whatever the paths look like. */
static void images_stay(void **state)
{
    const char *one = test_path(*state, "one.png"), *two = test_path(*state, "two.png");
    char dotted[600];
    struct cvy_arena arena = {0};
    const char **names, *inputs[] = {*state}, *files[] = {one, two};

    snprintf(dotted, sizeof dotted, "%s/../%s", (const char *)*state, strrchr(*state, '/') + 1);
    test_file_write(one, "1", 1);
    test_file_write(two, "2", 1);
    assert_fails(cvy_draw_names(*state, inputs, 1, files, 2, &arena, &names), CVY_USAGE, "one.png");
    assert_int_equal(cvy_draw_names(dotted, inputs, 1, files, 2, &arena, &names), CVY_USAGE);
    /* Another image of the same name in the folder of the copies is in the way too. */
    const char *other[] = {"elsewhere/two.png", two};
    assert_fails(cvy_draw_names(*state, NULL, 0, other, 2, &arena, &names), CVY_USAGE, "two.png");
    /* A copy of an earlier call is not. */
    assert_int_equal(cvy_draw_names(*state, NULL, 0, other, 1, &arena, &names), CVY_OK);
    cvy_arena_release(&arena);
}

static void no_memory(void **state)
{
    static const char *const files[] = {"x/a.png", "y/a.png"};
    cvy_status status = CVY_NO_MEMORY;

    for (int64_t n = 1; status != CVY_OK; n++) {
        struct cvy_arena arena = {0};
        const char **names;
        status = WITH_FAILURE(n, true, cvy_draw_names("/nonexistent", NULL, 0, files, 2, &arena, &names));
        assert_true(status == CVY_OK || status == CVY_NO_MEMORY);
        assert_true(n > 2 || status != CVY_OK);
        cvy_arena_release(&arena);
    }
}

RUN_TESTS(NULL, NULL, TEST(names_below_folders), IN_FOLDER(images_stay), TEST(no_memory))
