/* Protocol buffers as text: values, messages, lists, and what is refused by its line. */
#include <stdlib.h>

#include "base/error.h"
#include "formats/text_proto.h"
#include "support_test.h"

static struct cvy_arena arena;
static struct cvy_text_field *first;

static cvy_status parse(const char *text)
{
    cvy_arena_release(&arena);
    arena = (struct cvy_arena){0};
    return cvy_text_proto_parse("a.config", text, strlen(text), &arena, &first);
}

static void values_messages_and_lists(void **state)
{
    (void)state;
    assert_int_equal(parse("# nothing\n"), CVY_OK);
    assert_null(first);
    assert_int_equal(parse("a: -1.5e3, b { c: \"x\\\"y\" 'z' } d: [1, 2];\nd: 3 e < f: true >"), CVY_OK);
    assert_string_equal(first->name, "a");
    assert_string_equal(first->value, "-1.5e3");
    assert_false(first->quoted);
    const struct cvy_text_field *b = first->next, *d = b->next;
    assert_null(b->value);
    assert_string_equal(b->first->value, "x\"yz");
    assert_true(b->first->quoted);
    for (int i = 1; i <= 3; i++, d = d->next) {
        assert_string_equal(d->name, "d");
        assert_int_equal(atoi(d->value), i);
        assert_int_equal(d->line, i == 3 ? 2 : 1);
    }
    assert_string_equal(d->first->name, "f");
    assert_null(d->next);
    cvy_arena_release(&arena);
    arena = (struct cvy_arena){0};
}

static void mistakes_have_a_line(void **state)
{
    static const char *const wrong[][2] = {{"a: 1\nb", "line 2"},
                                           {"a {\n\n", "line 3 of \"a.config\": a message does not end"},
                                           {"a: \"x", "does not end"},
                                           {"a: \"x\ny\"", "does not end"},
                                           {"a:", "a field has no value"},
                                           {"a: [1 2]", "a list does not end"},
                                           {"}", "line 1"},
                                           {"a > 3", "followed neither"}};
    char deep[256] = "";

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(parse(wrong[i][0]), CVY_BAD_DATA);
        assert_non_null(strstr(cvy_error(), wrong[i][1]));
    }
    for (int i = 0; i < 33; i++)
        strcat(deep, "a{");
    assert_int_equal(parse(deep), CVY_BAD_DATA);
    assert_non_null(strstr(cvy_error(), "32 messages"));
    cvy_arena_release(&arena);
    arena = (struct cvy_arena){0};
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_messages_and_lists),
        cmocka_unit_test(mistakes_have_a_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
