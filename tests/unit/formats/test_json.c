/* JSON in: values, what is refused and how it is said, failing memory. */
#include "formats/json_in.h"
#include "support_test.h"

static struct cvy_json_value *parse(struct cvy_arena *arena, const char *text)
{
    struct cvy_json_value *root;
    cvy_status status = cvy_json_parse("test.json", text, strlen(text), arena, &root);
    if (status != CVY_OK)
        print_error("%s\n", cvy_error());
    assert_int_equal(status, CVY_OK);
    assert_non_null(root);
    return root;
}

static void refuse_bytes(const char *text, size_t length, const char *reason)
{
    struct cvy_arena arena = {0};
    struct cvy_json_value *root;
    cvy_status status = cvy_json_parse("test.json", text, length, &arena, &root);
    cvy_arena_release(&arena);
    if (status != CVY_BAD_DATA || !strstr(cvy_error(), reason) || !strstr(cvy_error(), "\"test.json\""))
        print_error("status %d, \"%s\" instead of \"%s\" for %.60s\n", (int)status, cvy_error(), reason, text);
    assert_fails(status, CVY_BAD_DATA, reason);
    assert_error("\"test.json\"");
    assert_null(strchr(cvy_error(), '\n'));
    assert_null(root);
}

static void refuse(const char *text, const char *reason)
{
    refuse_bytes(text, strlen(text), reason);
}

static void test_values(void **state)
{
    struct cvy_arena arena = {0};
    const struct cvy_json_value *root = parse(
        &arena,
        " {\"a\": [1, -2.5e1, \"x\\u00e9\\n\", null], \"b\": {\"c\": true, \"d\": false}, \"\": {} , \"e\": []} ");
    assert_int_equal(root->type, CVY_JSON_OBJECT);
    assert_int_equal(root->count, 4);
    const struct cvy_json_value *list = cvy_json_get(root, "a"), *item = list->first;
    assert_string_equal(list->key, "a");
    assert_int_equal(list->count, 4);
    assert_true(item->is_integer && item->integer == 1 && item->number == 1 && !item->key);
    item = item->next;
    assert_true(item->type == CVY_JSON_NUMBER && !item->is_integer && item->number == -25);
    item = item->next;
    assert_string_equal(item->text, "x\xc3\xa9\n");
    item = item->next;
    assert_int_equal(item->type, CVY_JSON_NULL);
    assert_null(item->next);
    const struct cvy_json_value *object = cvy_json_get(root, "b");
    assert_true(cvy_json_get_bool(object, "c", false));
    assert_false(cvy_json_get_bool(object, "d", true));
    assert_int_equal(cvy_json_get(root, "")->count, 0);
    assert_int_equal(cvy_json_get(root, "e")->type, CVY_JSON_ARRAY);
    cvy_arena_release(&arena);
}

static void test_numbers(void **state)
{
    static const struct {
        const char *text;
        bool is_integer;
        int64_t integer;
        double number;
    } cases[] = {
        {"0", true, 0, 0},
        {"-0", true, 0, -0.0},
        {"9223372036854775807", true, INT64_MAX, 9223372036854775807.0},
        {"-9223372036854775808", true, INT64_MIN, -9223372036854775808.0},
        {"9223372036854775808", false, 0, 9223372036854775808.0},
        {"1.0", false, 0, 1},
        {"1e3", false, 0, 1000},
        {"1E+3", false, 0, 1000},
        {"0.1", false, 0, 0.1},
        {"5e-324", false, 0, 5e-324},
        {"1e-999", false, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cvy_arena arena = {0};
        const struct cvy_json_value *root = parse(&arena, cases[i].text);
        assert_int_equal(root->type, CVY_JSON_NUMBER);
        assert_int_equal(root->is_integer, cases[i].is_integer);
        assert_true(root->integer == cases[i].integer);
        assert_memory_equal(&root->number, &cases[i].number, sizeof(double));
        cvy_arena_release(&arena);
    }
    refuse("1e999", "bad JSON near byte 5: a number is too large");
    refuse("[-1e999]", "bad JSON near byte 7: a number is too large");
    char *longest = malloc(2000);
    assert_non_null(longest);
    memset(longest, '1', 1999);
    longest[1999] = 0;
    refuse(longest, "too many digits");
    free(longest);
}

static void test_lookup_defaults(void **state)
{
    struct cvy_arena arena = {0};
    const struct cvy_json_value *root = parse(&arena, "{\"n\": 1.5, \"i\": 3, \"s\": \"t\", \"b\": true}");
    assert_true(cvy_json_get_number(root, "n", 9) == 1.5);
    assert_true(cvy_json_get_number(root, "i", 9) == 3);
    assert_true(cvy_json_get_number(root, "s", 9) == 9);
    assert_true(cvy_json_get_number(root, "x", 9) == 9);
    assert_int_equal(cvy_json_get_int(root, "i", 9), 3);
    assert_int_equal(cvy_json_get_int(root, "n", 9), 9); /* not a whole number */
    assert_string_equal(cvy_json_get_string(root, "s", "d"), "t");
    assert_string_equal(cvy_json_get_string(root, "b", "d"), "d");
    assert_true(cvy_json_get_bool(root, "n", true));
    assert_null(cvy_json_get(NULL, "x"));
    assert_null(cvy_json_get(cvy_json_get(root, "n"), "x"));
    cvy_arena_release(&arena);
}

static void test_refused(void **state)
{
    refuse("", "bad JSON");
    refuse("   ", "bad JSON");
    refuse("{", "bad JSON");
    refuse("[1,", "bad JSON");
    refuse("[1,]", "bad JSON");
    refuse("{\"a\" 1}", "bad JSON");
    refuse("{a: 1}", "bad JSON");
    refuse("[1] x", "bad JSON");
    refuse("[1] [2]", "bad JSON");
    refuse("'x'", "bad JSON");
    refuse("[01]", "bad JSON");
    refuse("[NaN]", "bad JSON");
    refuse("nul", "bad JSON");
    refuse("\"abc", "bad JSON");
    refuse("\"\\x\"", "bad JSON");
    refuse("\"\n\"", "bad JSON");
    refuse("/* c */ 1", "bad JSON");
    refuse("\"\xff\"", "bad JSON");
    refuse("\"\xc0\xaf\"", "not UTF-8");
    refuse("\"\\udc00\"", "not UTF-8");
    refuse_bytes("[1]\0", 4, "bad JSON");
    refuse("\"a\\u0000b\"", "zero byte");
    refuse("{\"a\\u0000b\": 1}", "zero byte");
    refuse("{\"a\": 1, \"b\": 2, \"a\": 3}", "the key \"a\" stands twice");
    refuse("[{\"x\": {\"a\\u0062\": 1, \"ab\": 2}}]", "the key \"ab\" stands twice");
}

static void test_depth(void **state)
{
    char text[200];
    memset(text, '[', 64);
    memset(text + 64, ']', 64);
    text[128] = 0;
    struct cvy_arena arena = {0};
    parse(&arena, text);
    cvy_arena_release(&arena);
    memset(text, '[', 65);
    memset(text + 65, ']', 65);
    text[130] = 0;
    refuse(text, "64 levels");
    char *deep = malloc(100001);
    assert_non_null(deep);
    memset(deep, '[', 100000);
    deep[100000] = 0;
    refuse(deep, "64 levels");
    free(deep);
}

/* Five million values in ten million bytes: refused before they fill the memory. */
static void test_too_many_values(void **state)
{
    const size_t count = 5000000;
    char *text = malloc(2 * count + 1);
    assert_non_null(text);
    for (size_t i = 0; i < count; i++)
        memcpy(text + 2 * i, i == 0 ? "[1" : ",1", 2);
    text[2 * count] = ']';
    refuse_bytes(text, 2 * count + 1, "too many values");
    free(text);
}

/* Many keys in one object must not take quadratic time: 200,000 of them, alike in their first bytes. */
static void test_many_keys(void **state)
{
    struct cvy_text text = {0};
    for (int i = 0; i < 200000; i++)
        cvy_text_printf(&text, "%s\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa%d\":0", i == 0 ? "{" : ",", i);
    cvy_text_puts(&text, "}");
    assert_false(text.failed);
    struct cvy_arena arena = {0};
    assert_int_equal(parse(&arena, text.text)->count, 200000);
    cvy_arena_release(&arena);
    cvy_text_release(&text);
}

/* Cut at every byte: refused every time, never read past the end (the copy ends where its allocation ends). */
static void test_truncated(void **state)
{
    static const char text[] =
        "{\"a\": [1, -2.5e+1, \"x\\u00e9\\ud83d\\ude00\\n\", null], \"\xc3\xa9\": {\"c\": true, \"d\": false}}";
    for (size_t length = 0; length < sizeof text - 1; length++) {
        char *copy = malloc(length > 0 ? length : 1);
        assert_non_null(copy);
        memcpy(copy, text, length);
        refuse_bytes(copy, length, "bad JSON");
        free(copy);
    }
}

static void test_failing_memory(void **state)
{
    struct cvy_text text = {0};
    for (int i = 0; i < 300; i++) /* long enough for several arena blocks, with escapes so that yajl's buffers grow */
        cvy_text_printf(&text, "%s\"key %d\": [1, \"a\\n\\u00e9 %0100d\"]", i == 0 ? "{" : ",", i, i);
    cvy_text_puts(&text, "}");
    for (int sticky = 0; sticky < 2; sticky++) {
        int64_t n = 1;
        for (;; n++) {
            struct cvy_arena arena = {0};
            struct cvy_json_value *root;
            cvy_memory_fail_after(n, sticky);
            cvy_status status = cvy_json_parse("test.json", text.text, text.length, &arena, &root);
            cvy_memory_fail_after(0, false);
            cvy_arena_release(&arena);
            if (status == CVY_OK)
                break;
            assert_int_equal(status, CVY_NO_MEMORY);
            assert_null(root);
        }
        assert_true(n > 8); /* the loop did reach the parser's own allocations */
    }
    cvy_text_release(&text);
}

RUN_TESTS(NULL, NULL, TEST(test_values), TEST(test_numbers), TEST(test_lookup_defaults), TEST(test_refused),
          TEST(test_depth), TEST(test_too_many_values), TEST(test_many_keys), TEST(test_truncated),
          TEST(test_failing_memory))
