/* PyTorch files that ask for more memory or time than their size allows. */
#include <sys/resource.h>
#include <time.h>

#include "formats/weights/pytorch.h"
#include "support_pickle.h"
#include "support_test.h"

static void test_deep_and_large(void **state)
{
    enum { SIZE = 8 << 20 };
    char *pickle = malloc(SIZE);
    struct rusage before, after;

    assert_non_null(pickle);
    memset(pickle, '(', SIZE); /* brackets in brackets */
    memcpy(pickle, "\200\2", 2);
    test_pth_refuse(pickle, SIZE, "nested too deeply");
    memset(pickle + 2, ']', SIZE - 2); /* one byte of the file makes an object */
    getrusage(RUSAGE_SELF, &before);
    test_pth_refuse(pickle, SIZE, "more objects than such a file needs");
    memset(pickle + 2, 'N', SIZE - 2); /* the same object again and again */
    test_pth_refuse(pickle, SIZE, "more objects than such a file needs");
    getrusage(RUSAGE_SELF, &after);
    /* KiB: three times the file and 64 MiB, and the copies of the file that the test itself makes */
    assert_true(after.ru_maxrss - before.ru_maxrss < (3 * SIZE + (64 << 20) + 4 * SIZE) / 1024);
    free(pickle);
}

/* ---- a few bytes that ask for much: parts of a pickle may be shared ---- */

static void put_number(struct cvy_text *text, const char *code, uint32_t number)
{
    const unsigned char bytes[] = {(unsigned char)number, (unsigned char)(number >> 8), (unsigned char)(number >> 16),
                                   (unsigned char)(number >> 24)};

    cvy_text_puts(text, code);
    cvy_text_append(text, bytes, sizeof bytes);
}

/* A megabyte of name, and 100,000 tensors that have it: 100 GB of names, or as many bytes to pass over. */
static void shared_name(const char *front)
{
    enum { LENGTH = 1 << 20, TENSORS = 100000 };
    struct cvy_text pickle = {0};

    cvy_text_append(&pickle, "\200\2", 2);
    cvy_text_puts(&pickle, ORDERED_DICT "(");
    put_number(&pickle, "X", LENGTH);
    for (size_t i = 0; i < LENGTH; i++)
        cvy_text_append(&pickle, &front[i % strlen(front)], 1);
    cvy_text_append(&pickle, "q\0", 2);
    cvy_text_append(&pickle, VECTOR, sizeof VECTOR - 1);
    cvy_text_puts(&pickle, "q\1");
    for (int i = 1; i < TENSORS; i++)
        cvy_text_append(&pickle, "h\0h\1", 4);
    cvy_text_puts(&pickle, "u.");
    assert_false(pickle.failed);
    test_pth_refuse(pickle.text, pickle.length, "names and tensors would take more memory");
    cvy_text_release(&pickle);
}

static void test_shared_names(void **state)
{
    shared_name("a");
    shared_name("module.a"); /* a short name once the wrappers are gone */
}

/* As many states of the optimizer as parameters, in the opposite order: looked up one by one, that is 3e9 steps, and
 * the test ends by its time limit. */
static void test_many_states(void **state)
{
    enum { TENSORS = 50000 };
    struct cvy_text pickle = {0};
    struct cvy_tensor_file file;
    unsigned char *data;
    size_t bytes;
    clock_t start;
    char name[16];

    cvy_text_append(&pickle, "\200\2", 2);
    cvy_text_puts(&pickle, "}(");
    put_number(&pickle, "X", 5);
    cvy_text_puts(&pickle, "model" ORDERED_DICT "(");
    for (uint32_t i = 0; i < TENSORS; i++) {
        snprintf(name, sizeof name, "%05u", (unsigned)i);
        put_number(&pickle, "X", 5);
        cvy_text_puts(&pickle, name);
        if (i == 0) {
            cvy_text_append(&pickle, VECTOR, sizeof VECTOR - 1);
            cvy_text_append(&pickle, "q\0", 2);
        } else {
            cvy_text_append(&pickle, "h\0", 2);
        }
    }
    cvy_text_puts(&pickle, "u");
    put_number(&pickle, "X", 9);
    cvy_text_puts(&pickle, "optimizer}(");
    put_number(&pickle, "X", 5);
    cvy_text_puts(&pickle, "state}(");
    for (uint32_t i = TENSORS; i-- > 0;) {
        put_number(&pickle, "J", i);
        if (i + 1 == TENSORS) {
            cvy_text_puts(&pickle, "}(");
            put_number(&pickle, "X", 15);
            cvy_text_append(&pickle, "momentum_bufferh\0uq\1", 20);
        } else {
            cvy_text_append(&pickle, "h\1", 2);
        }
    }
    cvy_text_puts(&pickle, "u");
    put_number(&pickle, "X", 12);
    cvy_text_puts(&pickle, "param_groups](}euu.");
    assert_false(pickle.failed);
    data = test_pth(pickle.text, pickle.length, &bytes);
    start = clock();
    assert_int_equal(cvy_pytorch_open_memory(&file, "x.pth", data, bytes), CVY_OK);
    assert_true(clock() - start < 2 * CLOCKS_PER_SEC);
    assert_int_equal(file.tensor_count, 2 * TENSORS);
    assert_string_equal(file.tensors[TENSORS].name, "optimizer.momentum_buffer.00000");
    cvy_tensor_file_close(&file);
    free(data);
    cvy_text_release(&pickle);
}

RUN_TESTS(NULL, NULL, TEST(test_deep_and_large), TEST(test_shared_names), TEST(test_many_states))
