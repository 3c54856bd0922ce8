/* PyTorch's format before 1.6: what is read, and each way in which a file can contradict itself. */
#include "formats/weights/pytorch.h"
#include "support_pickle.h"
#include "support_test.h"

#define MAGIC    "\200\2\212\12\154\374\234\106\371\40\152\250\120\31."
#define VERSION  PICKLE("M\351\3")
#define MACHINE  PICKLE(DICT(TEXT("\20", "protocol_version") "M\351\3" TEXT("\15", "little_endian") "\210"))
#define START    MAGIC VERSION MACHINE
#define KEY(key) TEXT("\1", key)
#define COUNT(n) n "\0\0\0\0\0\0\0"
/* A storage of the old format: a sixth item, which says what part of another it is. */
#define OLD(type, key, elements, part)                                                                                 \
    "(" TEXT("\7", "storage") GLOBAL("torch", type) TEXT("\1", key) TEXT("\3", "cpu") elements part "tQ"
#define FLOATS OLD("FloatStorage", "7", BYTE("\2"), "N")
#define BYTES  OLD("ByteStorage", "3", BYTE("\4"), "N")
#define ALL(storage, elements)                                                                                         \
    GLOBAL("torch._utils", "_rebuild_tensor_v2")                                                                       \
    "(" storage BYTE("\0") BYTE(elements) "\205" BYTE("\1") "\205\211" ORDERED_DICT "tR"
#define OBJECT     PICKLE(STATE(KEY("a") ALL(FLOATS, "\2") KEY("b") ALL(BYTES, "\4") KEY("c") ALL(FLOATS, "\1")))
#define KEYS       PICKLE("](" KEY("3") KEY("7") "e")
#define THREE      COUNT("\4") "wxyz"
#define SEVEN      COUNT("\2") "\0\0\200\77\0\0\0\100"
#define FILE_BYTES START OBJECT KEYS THREE SEVEN

static void check(const struct cvy_tensor_file *file, size_t i, const char *name, enum cvy_dtype dtype,
                  const void *data, size_t bytes)
{
    assert_string_equal(file->tensors[i].name, name);
    assert_int_equal(file->tensors[i].dtype, dtype);
    assert_int_equal(file->tensors[i].bytes, bytes);
    assert_memory_equal(file->tensors[i].data, data, bytes);
}

static void test_state(void **state)
{
    static const char content[] = FILE_BYTES;
    static const float values[2] = {1, 2};
    struct cvy_tensor_file file;

    (void)state;
    assert_true(cvy_pytorch_looks_like(content, sizeof content - 1));
    assert_int_equal(cvy_pytorch_open_memory(&file, "x.pth", content, sizeof content - 1), CVY_OK);
    assert_int_equal(file.tensor_count, 3);
    check(&file, 0, "a", CVY_F32, values, sizeof values);
    check(&file, 1, "b", CVY_U8, "wxyz", 4);
    check(&file, 2, "c", CVY_F32, values, sizeof values[0]);
    cvy_tensor_file_close(&file);
}

/* Python 2: texts are strings of bytes, and an ordered dictionary is made of pairs. */
static void test_python_2(void **state)
{
    static const char content[] = START PICKLE(GLOBAL("collections", "OrderedDict") "](](U\1a" ALL(
        FLOATS, "\2") "e](T\1\0\0\0b" ALL(BYTES, "\4") "ee\205R") PICKLE("](U\1"
                                                                         "3U\0017e") THREE SEVEN;
    struct cvy_tensor_file file;

    (void)state;
    assert_int_equal(cvy_pytorch_open_memory(&file, "x.pth", content, sizeof content - 1), CVY_OK);
    assert_int_equal(file.tensor_count, 2);
    check(&file, 1, "b", CVY_U8, "wxyz", 4);
    cvy_tensor_file_close(&file);
}

static void refuse(const void *data, size_t size, const char *reason)
{
    char *copy = malloc(size ? size : 1); /* so that a sanitizer sees the first byte after its end */
    struct cvy_tensor_file file;

    assert_non_null(copy);
    memcpy(copy, data, size);
    assert_int_equal(cvy_pytorch_open_memory(&file, "x.pth", copy, size), CVY_BAD_DATA);
    if (!strstr(cvy_error(), reason) || !strstr(cvy_error(), "\"x.pth\""))
        fail_msg("expected %s, but: %s", reason, cvy_error());
    assert_null(file.tensors);
    free(copy);
}
#define REFUSE(content, reason) refuse(content, sizeof(content) - 1, reason)

static void test_contradictions(void **state)
{
    (void)state;
    REFUSE(MAGIC PICKLE("M\352\3") MACHINE OBJECT KEYS THREE SEVEN, "a version");
    REFUSE(MAGIC VERSION PICKLE(DICT(TEXT("\15", "little_endian") "\211")) OBJECT KEYS THREE SEVEN, "byte order");
    REFUSE(MAGIC VERSION PICKLE("}") OBJECT KEYS THREE SEVEN, "byte order");
    REFUSE(START OBJECT PICKLE("N") THREE SEVEN, "no list of its storages");
    REFUSE(START OBJECT PICKLE("](NNe") THREE SEVEN, "no proper name");
    REFUSE(START OBJECT PICKLE("](" KEY("3") "e") THREE, "needs the storage \"7\", which is missing");
    REFUSE(START OBJECT PICKLE("](" KEY("3") KEY("3") "e") THREE THREE, "the storage \"3\" twice");
    REFUSE(START OBJECT PICKLE("](" KEY("3") KEY("8") "e") THREE SEVEN, "\"8\" that nothing names");
    REFUSE(START OBJECT KEYS COUNT("\5") "wxyz" SEVEN, "should have 4 elements and says 5");
    REFUSE(START OBJECT KEYS THREE COUNT("\10") "\0\0\200\77\0\0\0\100", "should have 2 elements and says 8");
    REFUSE(FILE_BYTES "\0", "continues after its last storage, by 1 byte");
    REFUSE(START PICKLE(STATE(KEY("a") ALL(FLOATS, "\3"))) PICKLE("](" KEY("7") "e") SEVEN, "reaches to element 2");
}

static void test_storages(void **state)
{
    (void)state;
    REFUSE(START PICKLE(STATE(KEY("a") ALL(FLOATS, "\2") KEY("b") ALL(OLD("FloatStorage", "7", BYTE("\3"), "N"), "\3")))
               PICKLE("](" KEY("7") "e") SEVEN,
           "two sizes");
    REFUSE(START PICKLE(STATE(KEY("a") ALL(FLOATS, "\2") KEY("b") ALL(OLD("LongStorage", "7", BYTE("\1"), "N"), "\1")))
               PICKLE("](" KEY("7") "e") SEVEN,
           "two sizes");
    REFUSE(START PICKLE(STATE(KEY("a") ALL(OLD("FloatStorage", "7", BYTE("\2"), "(" KEY("8") BYTE("\0") BYTE("\1") "t"),
                                           "\1"))) PICKLE("](" KEY("7") "e") SEVEN,
           "only a part of one");
    REFUSE(START PICKLE(STATE(KEY("a") ALL(OLD("ComplexFloatStorage", "7", BYTE("\1"), "N"), "\1")))
               PICKLE("](" KEY("7") "e") SEVEN,
           "\"torch.ComplexFloatStorage\", which is not supported");
    REFUSE(START PICKLE(STATE(KEY("a") ALL(OLD("DoubleStorage", "7", "\212\10\377\377\377\377\377\377\377\177", "N"),
                                           "\1"))) PICKLE("](" KEY("7") "e") SEVEN,
           "impossible size");
    REFUSE(START PICKLE(STATE(KEY("a") GLOBAL("__main__", "Net"))) KEYS THREE SEVEN, "names \"__main__.Net\"");
    REFUSE(START PICKLE(GLOBAL("collections", "OrderedDict") "](](" KEY("a") "ee\205R") KEYS THREE SEVEN,
           "a key has no value");
}

/* Cut off anywhere. */
static void test_cut(void **state)
{
    static const char content[] = FILE_BYTES;

    (void)state;
    for (size_t size = sizeof MAGIC - 1; size < sizeof content - 1; size++)
        refuse(content, size, size >= sizeof START OBJECT KEYS - 1 ? "ends too early" : "damaged pickle");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_state),    cmocka_unit_test(test_python_2), cmocka_unit_test(test_contradictions),
        cmocka_unit_test(test_storages), cmocka_unit_test(test_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
