/* Errors, memory, JSON text, log, machine, shapes. */
#include <errno.h>
#include <float.h>
#include <locale.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json_out.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/resources.h"
#include "base/rng.h"
#include "base/system.h"
#include "base/types.h"
#include "support_folder.h"
#include "support_test.h"

/* ---- errors ---- */

static void test_counted(void **state)
{
    assert_string_equal(cvy_counted(2, "epoch"), "2 epochs");
    const char *first = cvy_counted(1, "image"); /* this one and seven more in one sentence */

    assert_string_equal(cvy_counted(0, "image"), "0 images");
    assert_string_equal(cvy_counted(2, "training image"), "2 training images");
    assert_string_equal(cvy_counted(1, "class"), "1 class");
    assert_string_equal(cvy_counted(3, "class"), "3 classes");
    assert_string_equal(cvy_counted(7, "box"), "7 boxes");
    assert_string_equal(cvy_counted(12, "batch"), "12 batches");
    assert_string_equal(cvy_counted(INT64_MIN, "path"), "-9223372036854775808 paths");
    assert_string_equal(first, "1 image");
}

static void *fail_in_thread(void *context)
{
    assert_string_equal(cvy_error(), "");
    assert_int_equal(cvy_fail(CVY_FAILED, "in the thread"), CVY_FAILED);
    return NULL;
}

static void test_error_text(void **state)
{
    assert_int_equal(cvy_fail(CVY_BAD_DATA, "number %d", 7), CVY_BAD_DATA);
    assert_string_equal(cvy_error(), "number 7");
    assert_int_equal(cvy_fail_context(CVY_BAD_DATA, "file %s", "x"), CVY_BAD_DATA);
    assert_string_equal(cvy_error(), "file x: number 7");
    /* The recorded sentence may be an argument of the next. */
    assert_int_equal(cvy_fail(CVY_FAILED, "again: %s", cvy_error()), CVY_FAILED);
    assert_string_equal(cvy_error(), "again: file x: number 7");
    errno = ENOENT;
    assert_int_equal(cvy_fail_errno(CVY_NO_INPUT, "cannot open"), CVY_NO_INPUT);
    assert_string_equal(cvy_error(), "cannot open: No such file or directory");
    assert_fails(cvy_fail_memory(123, "things"), CVY_NO_MEMORY, "123 bytes for things");

    char saved[64];
    cvy_error_get(saved, sizeof saved);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fail_in_thread, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(cvy_error(), saved);
    cvy_error_put("brought here");
    assert_string_equal(cvy_error(), "brought here");
}

static void test_error_cut(void **state)
{
    char *longest = malloc(10000);
    assert_non_null(longest);
    memset(longest, 'a', 9999);
    longest[9999] = 0;
    assert_int_equal(cvy_fail(CVY_FAILED, "%s", longest), CVY_FAILED);
    assert_true(strlen(cvy_error()) > 1000 && strlen(cvy_error()) < 9999);
    assert_int_equal(cvy_fail_context(CVY_FAILED, "%s", "front"), CVY_FAILED);
    assert_memory_equal(cvy_error(), "front: aaa", 10);
    free(longest);
}

static void test_quote(void **state)
{
    assert_string_equal(cvy_quote("plain name.jpg"), "\"plain name.jpg\"");
    assert_string_equal(cvy_quote("a\"b\\c"), "\"a\\\"b\\\\c\"");
    assert_string_equal(cvy_quote("\n\r\t\x1b[31m\x7f"), "\"\\n\\r\\t\\x1B[31m\\x7F\"");
    assert_string_equal(cvy_quote("\xc3\xa9"), "\"\xc3\xa9\"");            /* e with acute accent */
    assert_string_equal(cvy_quote("\xc3("), "\"\\xC3(\"");                 /* cut sequence */
    assert_string_equal(cvy_quote("\xc0\xaf"), "\"\\xC0\\xAF\"");          /* overlong */
    assert_string_equal(cvy_quote("\xed\xa0\x80"), "\"\\xED\\xA0\\x80\""); /* surrogate */
    assert_string_equal(cvy_quote("\xc2\x9b"
                                  "31m"),
                        "\"\\u009B31m\""); /* C1: a terminal's escape */
    assert_string_equal(cvy_quote("\xe2\x80\xae"
                                  "gpj"),
                        "\"\\u202Egpj\"");                                      /* turns text around */
    assert_string_equal(cvy_quote("\xf0\x9f\x98\x80"), "\"\xf0\x9f\x98\x80\""); /* four bytes */
    assert_string_equal(cvy_quote(NULL), "(null)");
    assert_string_equal(cvy_quote(""), "\"\"");

    char longest[5000];
    memset(longest, '\n', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    const char *quoted = cvy_quote(longest);
    size_t length = strlen(quoted);
    assert_true(length < 1000);
    assert_string_equal(quoted + length - 6, "\\n...\"");

    /* Eight at a time. */
    const char *texts[8];
    char name[2] = "a";
    for (int i = 0; i < 8; i++, name[0]++)
        texts[i] = cvy_quote(name);
    for (int i = 0; i < 8; i++)
        assert_int_equal(texts[i][1], 'a' + i);
}

/* ---- memory ---- */

static void test_allocation(void **state)
{
    /* volatile: the compiler must not see the impossible size */
    volatile size_t huge = SIZE_MAX / 2 + 2;
    assert_null(cvy_calloc(huge, 2));
    assert_null(cvy_realloc(NULL, huge, 2));
    void *empty = cvy_calloc(0, 8);
    assert_non_null(empty);
    cvy_free(empty);
    unsigned char *block = cvy_calloc(3, 5);
    for (int i = 0; i < 15; i++)
        assert_int_equal(block[i], 0);
    block[14] = 9;
    block = cvy_realloc(block, 100, 5);
    assert_int_equal(block[14], 9);
    cvy_free(block);
    cvy_free(NULL);

    const size_t sizes[] = {0, 1, 64, 1000, ((size_t)2 << 20) - 1, (size_t)2 << 20, ((size_t)5 << 20) + 3};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *aligned = cvy_calloc_aligned(sizes[i]);
        assert_non_null(aligned);
        assert_int_equal((uintptr_t)aligned % (sizes[i] >= (size_t)2 << 20 ? (size_t)2 << 20 : 64), 0);
        for (size_t b = 0; b < sizes[i]; b += 997)
            assert_int_equal(aligned[b], 0);
        if (sizes[i] > 0)
            assert_int_equal(aligned[sizes[i] - 1], 0);
        cvy_free_aligned(aligned);
    }
    assert_null(cvy_calloc_aligned(huge));
    cvy_free_aligned(NULL);
}

static void test_injected_failures(void **state)
{
    void *blocks[4];
    cvy_memory_fail_after(2, false);
    for (int i = 0; i < 4; i++)
        blocks[i] = cvy_calloc(1, 1);
    assert_true(blocks[0] && !blocks[1] && blocks[2] && blocks[3]);
    for (int i = 0; i < 4; i++)
        cvy_free(blocks[i]);

    cvy_memory_fail_after(2, true);
    for (int i = 0; i < 4; i++)
        blocks[i] = i % 2 ? cvy_calloc(1, 1) : cvy_calloc_aligned(1);
    cvy_memory_fail_after(0, false);
    assert_true(blocks[0] && !blocks[1] && !blocks[2] && !blocks[3]);
    cvy_free(blocks[0]);
    char *copy = cvy_strdup("x");
    assert_string_equal(copy, "x");
    cvy_free(copy);
}

static void test_arena(void **state)
{
    struct cvy_arena arena = {0};
    unsigned char *before = NULL;
    for (size_t i = 0; i < 2000; i++) {
        unsigned char *block = cvy_arena_alloc(&arena, i);
        assert_non_null(block);
        assert_ptr_not_equal(block, before);
        assert_int_equal((uintptr_t)block % 16, 0);
        for (size_t b = 0; b < i; b++)
            assert_int_equal(block[b], 0);
        memset(block, 0xEE, i);
        before = block;
    }
    unsigned char *large = cvy_arena_alloc(&arena, (size_t)3 << 20);
    assert_non_null(large);
    large[((size_t)3 << 20) - 1] = 1;
    assert_string_equal(cvy_arena_strdup(&arena, "text"), "text");
    assert_string_equal(cvy_arena_printf(&arena, "%d-%s", 5, "x"), "5-x");
    volatile size_t impossible = SIZE_MAX - 3;
    assert_null(cvy_arena_alloc(&arena, impossible));
    cvy_arena_release(&arena);
    assert_null(arena.head);
    cvy_arena_release(&arena);
}

static void test_text(void **state)
{
    struct cvy_text text = {0};
    for (int i = 0; i < 1000; i++)
        cvy_text_printf(&text, "%d,", i);
    assert_false(text.failed);
    assert_int_equal(text.length, 10 * 2 + 90 * 3 + 900 * 4);
    assert_int_equal(strlen(text.text), text.length);
    assert_memory_equal(text.text, "0,1,2,", 6);
    cvy_memory_fail_after(1, true);
    for (int i = 0; i < 10000; i++)
        cvy_text_puts(&text, "more");
    cvy_memory_fail_after(0, false);
    assert_true(text.failed);
    cvy_text_puts(&text, "x"); /* the failure stays */
    assert_true(text.failed);
    cvy_text_release(&text);
    assert_null(text.text);
    assert_false(text.failed);
}

/* ---- JSON text ---- */

static void test_json(void **state)
{
    struct cvy_text text = {0};
    struct cvy_json json = {.text = &text};
    cvy_json_begin_object(&json);
    cvy_json_key(&json, "a\"\n\x01");
    cvy_json_begin_array(&json);
    cvy_json_int(&json, INT64_MIN);
    cvy_json_number(&json, 0.1);
    cvy_json_number(&json, NAN);
    cvy_json_float(&json, 0.1f);
    cvy_json_float(&json, INFINITY);
    cvy_json_fixed(&json, 2.0 / 3, 3);
    cvy_json_fixed(&json, -INFINITY, 3);
    cvy_json_begin_object(&json);
    cvy_json_end_object(&json);
    cvy_json_bool(&json, true);
    cvy_json_bool(&json, false);
    cvy_json_end_array(&json);
    cvy_json_key(&json, "s");
    cvy_json_string(&json, "\xc3\xa9\xff\\");
    cvy_json_key(&json, "n");
    cvy_json_string(&json, NULL);
    cvy_json_key(&json, "r");
    cvy_json_raw(&json, "[1]");
    cvy_json_end_object(&json);
    assert_false(text.failed);
    assert_string_equal(text.text,
                        "{\"a\\\"\\n\\u0001\": [-9223372036854775808, 0.1, null, 0.100000001, null, 0.667, null, "
                        "{}, true, false], \"s\": \"\xc3\xa9\xef\xbf\xbd\\\\\", \"n\": null, \"r\": [1]}");
    cvy_text_release(&text);

    json = (struct cvy_json){.text = &text};
    for (int i = 0; i < 100; i++)
        cvy_json_begin_array(&json);
    assert_true(text.failed); /* too deep: no text rather than a wrong one */
    cvy_text_release(&text);
}

static void assert_reads_back(double value)
{
    char text[32], *end;
    cvy_double_text(value, text);
    double back = cvy_double_parse(text, &end);
    assert_int_equal(*end, 0);
    assert_memory_equal(&back, &value, sizeof value);
}

static void test_doubles(void **state)
{
    static const struct {
        double value;
        const char *text;
    } known[] = {
        {0, "0"},
        {-0.0, "-0"},
        {1, "1"},
        {0.1, "0.1"},
        {1.0 / 3, "0.3333333333333333"},
        {5e-324, "5e-324"},
        {1e22, "1e+22"},
        {0.1 + 0.2, "0.30000000000000004"},
        {DBL_MAX, "1.7976931348623157e+308"},
        {123456789, "123456789"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char text[32];
        assert_string_equal(cvy_double_text(known[i].value, text), known[i].text);
        assert_reads_back(known[i].value);
    }
    struct cvy_rng rng = cvy_rng_new(0, CVY_RNG_TEST, 0, 0);
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = cvy_rng_u64(&rng);
        double value;
        memcpy(&value, &bits, sizeof value);
        if (isfinite(value))
            assert_reads_back(value);
    }
    char text[32];
    assert_string_equal(cvy_digits_text(2.0 / 3, 9, text), "0.666666667");
}

/* A program that uses the library may have set a locale with a comma. */
static void test_doubles_in_other_locale(void **state)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "de_DE", "fr_FR.UTF-8", "fr_FR.utf8"};
    bool found = false;
    for (size_t i = 0; i < sizeof names / sizeof *names && !found; i++)
        found = setlocale(LC_NUMERIC, names[i]) != NULL;
    if (!found)
        skip();
    char text[32];
    cvy_double_text(0.5, text);
    double back = cvy_double_parse("0.5", NULL);
    setlocale(LC_NUMERIC, "C");
    assert_string_equal(text, "0.5");
    assert_true(back == 0.5);
}

/* ---- log, machine, shapes ---- */

static void keep_message(void *context, enum cvy_log_level level, const char *text)
{
    struct cvy_text *kept = context;
    cvy_text_printf(kept, "%d:%s;", (int)level, text);
    if (level == CVY_LOG_ERROR)
        cvy_log(CVY_LOG_INFO, "inside"); /* must not lock up */
}

static void test_log(void **state)
{
    struct cvy_text kept = {0};
    cvy_log(CVY_LOG_INFO, "dropped");
    cvy_set_log_handler(keep_message, &kept);
    cvy_log(CVY_LOG_WARNING, "n = %d", 3);
    cvy_log(CVY_LOG_ERROR, "x");
    cvy_set_log_handler(NULL, NULL);
    cvy_log(CVY_LOG_INFO, "dropped");
    assert_string_equal(kept.text, "2:n = 3;1:x;3:inside;");
    cvy_text_release(&kept);
}

static void test_threads(void **state)
{
    cpu_set_t all, one;
    setenv("OMP_NUM_THREADS", "1,2", 1); /* the first number counts */
    assert_int_equal(cvy_default_threads(), 1);
    setenv("OMP_NUM_THREADS", "65536", 1); /* more than there are: as many as there are */
    assert_int_equal(cvy_default_threads(), cvy_allowed_threads());
    setenv("OMP_NUM_THREADS", "nonsense", 1);
    int threads = cvy_default_threads();
    unsetenv("OMP_NUM_THREADS");
    assert_int_equal(cvy_default_threads(), threads);
    assert_true(threads >= 1 && threads <= sysconf(_SC_NPROCESSORS_ONLN));
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all)) {
            CPU_SET(i, &one);
            break;
        }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    int bound = cvy_default_threads();
    setenv("OMP_NUM_THREADS", "2", 1);
    int wanted = cvy_default_threads();
    unsetenv("OMP_NUM_THREADS");
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_int_equal(bound, 1);
    assert_int_equal(wanted, 1);
}

enum { ITEMS = 64, FAILING = 40 };

static atomic_int done[ITEMS];

/* The later ones fail at once, the first of them only after it has waited for another to fail. */
static cvy_status fail_late(void *context, void *state, int64_t index)
{
    atomic_int *failures = context;

    atomic_fetch_add(&done[index], 1);
    if (index < FAILING)
        return CVY_OK;
    for (int wait = 0; index == FAILING && atomic_load(failures) == 0 && wait < 1000; wait++)
        usleep(1000);
    cvy_status status = cvy_fail(index == FAILING ? CVY_NO_INPUT : CVY_BAD_DATA, "item %d", (int)index);
    atomic_fetch_add(failures, 1);
    return status;
}

static void test_parallel_failures(void **state)
{
    for (int repeat = 0; repeat < 20; repeat++) {
        atomic_int failures = 0;
        const struct cvy_parallel work = {.context = &failures, .each = fail_late};

        memset(done, 0, sizeof done);
        assert_int_equal(cvy_parallel_run(&work, ITEMS, 4), CVY_NO_INPUT);
        assert_string_equal(cvy_error(), "item 40");
        for (int i = 0; i <= FAILING; i++)
            assert_int_equal(done[i], 1);
    }
}

/* The processor's own name is the kernel's: checkpoints and kept times of kernels hold it. */
static void test_cpu_name(void **state)
{
    char line[512] = "";
    FILE *stream = fopen("/proc/cpuinfo", "r");

    (void)state;
    while (stream && fgets(line, sizeof line, stream) && strncmp(line, "model name", 10) != 0)
        ;
    if (stream)
        fclose(stream);
    if (strncmp(line, "model name", 10) != 0)
        skip();
    line[strcspn(line, "\n")] = '\0';
    assert_string_equal(cvy_cpu_name(), strchr(line, ':') + 2);
}

static void test_machine(void **state)
{
    double before = cvy_clock();
    assert_true(cvy_clock() >= before);
    assert_true(cvy_wall_clock() > 1.6e9);
    assert_true(strlen(cvy_cpu_name()) > 0);
    assert_string_equal(cvy_isa_name(CVY_ISA_AVX512), "avx512");
    enum cvy_isa best = cvy_cpu_isa();
#if defined(__x86_64__)
    /* The compiler's own detection as the second opinion. */
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    const enum cvy_isa wide = __builtin_cpu_supports("avx512bf16") ? CVY_ISA_AVX512_BF16 : CVY_ISA_AVX512;
    if (best == CVY_ISA_AMX_BF16) /* granted by the system, which the compiler does not ask */
        assert_true(wide == CVY_ISA_AVX512_BF16);
    else
        assert_int_equal(best, avx512 && avx2 ? wide : avx2 ? CVY_ISA_AVX2 : CVY_ISA_BASE);
#endif
    const unsigned int8 = cvy_cpu_int8();

    setenv("CONVOY_CPU_ISA", "base", 1);
    assert_int_equal(cvy_cpu_isa(), CVY_ISA_BASE);
    setenv("CONVOY_CPU_ISA", "avx512", 1);
    assert_int_equal(cvy_cpu_isa(), best > CVY_ISA_AVX512 ? CVY_ISA_AVX512 : best);
    setenv("CONVOY_CPU_ISA", "avx512_bf16", 1);
    assert_int_equal(cvy_cpu_isa(), best > CVY_ISA_AVX512_BF16 ? CVY_ISA_AVX512_BF16 : best);
    setenv("CONVOY_CPU_ISA", "amx_bf16", 1); /* never more than there is */
    assert_int_equal(cvy_cpu_isa(), best);
    setenv("CONVOY_CPU_ISA", "nonsense", 1);
    assert_int_equal(cvy_cpu_isa(), best);
    setenv("CONVOY_CPU_ISA", "avx_vnni", 1); /* AVX2 and these, where they are */
    assert_int_equal(cvy_cpu_isa(), int8 & CVY_INT8_AVX_VNNI ? CVY_ISA_AVX2 : best);
    assert_int_equal(cvy_cpu_int8(), int8 & CVY_INT8_AVX_VNNI ? CVY_INT8_AVX_VNNI : int8);
    unsetenv("CONVOY_CPU_ISA");

    size_t peak = cvy_peak_memory(), more = (size_t)64 << 20;
    char *block = cvy_calloc_aligned(more); /* zeroing touches it */
    assert_non_null(block);
    assert_true(cvy_peak_memory() >= peak + more / 2); /* the peak may have been higher than what is in use now */
    cvy_free_aligned(block);
    assert_true(cvy_peak_memory() >= more);
}

static void test_peak_memory(void **state)
{
    enum { LARGE = 64 << 20, NOISE = 4 << 20 }; /* the kernel counts pages in batches for each thread */
#if defined(__SANITIZE_ADDRESS__)
    enum { SHADOW = LARGE / 8 }; /* the sanitizer marks a freed block in its shadow: one byte for eight */
#else
    enum { SHADOW = 0 };
#endif
    char *large = cvy_calloc(LARGE, 1);
    assert_non_null(large);
    memset(large, 1, LARGE);
    const size_t before = cvy_peak_memory();
    assert_true(before > LARGE - NOISE);
    cvy_free(large); /* so large a block goes back to the system, unless a sanitizer keeps it */
    assert_true(cvy_peak_memory() + NOISE > before);
    cvy_peak_memory_reset();
    assert_true(cvy_peak_memory() > 0 && cvy_peak_memory() < before + SHADOW + NOISE);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    if (access("/proc/self/clear_refs", W_OK) == 0)
        assert_true(cvy_peak_memory() < before - LARGE + NOISE);
#endif
}

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* Pages that are in memory, in bytes, as they are: cvy_resident_memory() gives back what it can beforehand. */
static size_t resident(void)
{
    long pages = 0;
    FILE *stream = fopen("/proc/self/statm", "re");

    assert_non_null(stream);
    assert_int_equal(fscanf(stream, "%*s %ld", &pages), 1);
    fclose(stream);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Blocks that the C library has from its heap, which cannot become shorter because of the last one. */
static void test_giving_back(void **state)
{
    enum { BLOCKS = 400, BYTES = 64 << 10 };
    static char *blocks[BLOCKS + 1];
    size_t kept;

    for (int i = 0; i <= BLOCKS; i++) {
        blocks[i] = cvy_calloc(1, BYTES);
        assert_non_null(blocks[i]);
        memset(blocks[i], 1, BYTES);
    }
    for (int i = 0; i < BLOCKS; i++)
        cvy_free(blocks[i]);
    kept = resident();
    cvy_memory_give_back();
    assert_true(resident() + (size_t)BLOCKS * BYTES / 2 < kept);
    cvy_free(blocks[BLOCKS]);
}
#else
static void test_giving_back(void **state)
{
    cvy_memory_give_back();
}
#endif

static void test_types(void **state)
{
    char text[96];
    struct cvy_shape batch = cvy_shape4(CVY_BATCH, 64, 56, 56), scalar = cvy_shape0();
    assert_string_equal(cvy_shape_text(&batch, text), "Nx64x56x56");
    assert_string_equal(cvy_shape_text(&scalar, text), "scalar");
    assert_int_equal(cvy_shape_elements(&batch), -1);
    assert_int_equal(cvy_shape_elements(&scalar), 1);
    struct cvy_shape bound = cvy_shape_bind(&batch, 32);
    assert_string_equal(cvy_shape_text(&bound, text), "32x64x56x56");
    assert_int_equal(cvy_shape_elements(&bound), 32 * 64 * 56 * 56);
    assert_false(cvy_shape_equal(&batch, &bound));
    assert_true(cvy_shape_equal(&bound, &bound));
    struct cvy_shape huge = cvy_shape2(INT64_C(1) << 32, INT64_C(1) << 32),
                     empty = cvy_shape4(INT64_MAX, INT64_MAX, 0, 1);
    assert_int_equal(cvy_shape_elements(&huge), -1);
    assert_int_equal(cvy_shape_elements(&empty), 0);
    struct cvy_shape widest = {5, {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX}};
    assert_true(strlen(cvy_shape_text(&widest, text)) <= 95);
    for (int i = 0; i < CVY_DTYPE_COUNT; i++) {
        assert_true(cvy_dtype_size((enum cvy_dtype)i) >= 1);
        assert_non_null(cvy_dtype_name((enum cvy_dtype)i));
    }
    assert_string_equal(cvy_dtype_name(CVY_BF16), "bf16");
    assert_string_equal(cvy_version(), CONVOY_VERSION);
}

RUN_TESTS(NULL, NULL, TEST(test_error_text), TEST(test_error_cut), TEST(test_quote), TEST(test_counted),
          TEST(test_allocation), TEST(test_injected_failures), TEST(test_arena), TEST(test_text), TEST(test_json),
          TEST(test_doubles), TEST(test_doubles_in_other_locale), TEST(test_log), TEST(test_threads),
          TEST(test_parallel_failures), TEST(test_machine), TEST(test_cpu_name), TEST(test_peak_memory),
          TEST(test_giving_back), TEST(test_types))
