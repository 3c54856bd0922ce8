/* Pickles as C strings, put together from the pieces that torch.save writes, and files of them. Octal escapes only: a
 * hexadecimal one would swallow letters that follow. */
#ifndef CVY_TEST_SUPPORT_PICKLE_H
#define CVY_TEST_SUPPORT_PICKLE_H

#include <stddef.h>

#define PICKLE(object) "\200\2" object "."
/* A text of `length` (an octal escape) bytes. */
#define TEXT(length, text)   "X" length "\0\0\0" text
#define BYTE(octal)          "K" octal
#define GLOBAL(module, name) "c" module "\n" name "\n"
#define ORDERED_DICT         GLOBAL("collections", "OrderedDict") ")R"
#define DICT(items)          "}(" items "u"
#define STATE(items)         ORDERED_DICT "(" items "u"
#define STORAGE(type, key, elements)                                                                                   \
    "(" TEXT("\7", "storage") GLOBAL("torch", type) TEXT("\1", key) TEXT("\3", "cpu") elements "tQ"
/* offset, shape and strides are pickled numbers and tuples */
#define VIEW(storage, offset, shape, strides)                                                                          \
    GLOBAL("torch._utils", "_rebuild_tensor_v2") "(" storage offset shape strides "\211" ORDERED_DICT "tR"
/* A vector of the first `elements` of the storage "0", which has two floats. */
#define TWO    STORAGE("FloatStorage", "0", BYTE("\2"))
#define VECTOR VIEW(TWO, BYTE("\0"), BYTE("\2") "\205", BYTE("\1") "\205")

struct test_member {
    const char *name; /* NULL ends a list */
    const void *data;
    size_t size;
};

/* Writes a zip file of members with the library's writer; `wide` with 64-bit numbers everywhere. Fails the test if it
 * cannot. */
void test_zip_write(const char *path, const struct test_member *members, int wide);
/* A PyTorch file in memory: a pickle and the storages "0" (floats 1 and 2) and "1" (the bytes 0 to 63). Freed with
 * free(). */
unsigned char *test_pth(const void *pickle, size_t size, size_t *bytes);
/* Fails the test unless a file of the pickle is refused as bad data, in one sentence with `reason` in it. */
void test_pth_refuse(const void *pickle, size_t size, const char *reason);

#endif
