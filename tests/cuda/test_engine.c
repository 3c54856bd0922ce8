/* The engine of convolutions, what needs no cuDNN of it: finding libraries, the file of choices, the epilogue. On an
 * emulated CUDA runtime. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "backend/cuda/cudnn/cudnn_engine.h"
#include "backend/cuda/find_library.h"
#include "backend/cuda/kernels/kernels.h"
#include "base/cache.h"
#include "base/file.h"
#include "emulate.h"
#include "support_engine.h"

/* ---- finding libraries ---- */

static bool accept_none(void *object, char found[32])
{
    (void)object;
    snprintf(found, 32, "9.1.0");
    return false;
}

static void a_missing_library_is_named(void **state)
{
    static const char *const files[] = {"libconvoy-has-none.so.9", NULL};
    const struct gpu_library library = {"cuDNN 9.8 or newer", "CONVOY_TEST_LIBRARY", files, NULL};
    char text[300];
    void *object = &text;

    (void)state;
    unsetenv("CONVOY_TEST_LIBRARY");
    assert_int_equal(gpu_library_find(&library, &object), CVY_UNAVAILABLE);
    assert_null(object);
    must_say("cuDNN 9.8 or newer is not to be found: looked for libconvoy-has-none.so.9");
    must_say("CONVOY_TEST_LIBRARY");

    setenv("CONVOY_TEST_LIBRARY", "/no/such/file", 1);
    assert_int_equal(gpu_library_find(&library, &object), CVY_UNAVAILABLE);
    must_say("CONVOY_TEST_LIBRARY names \"/no/such/file\"");

    snprintf(text, sizeof text, "%s/text.so", folder);
    must(cvy_file_replace(text, "no library", 10));
    setenv("CONVOY_TEST_LIBRARY", text, 1);
    assert_int_equal(gpu_library_find(&library, &object), CVY_UNAVAILABLE);
    must_say("cannot be loaded");
    unsetenv("CONVOY_TEST_LIBRARY");
}

static void an_old_library_is_refused(void **state)
{
    static const char *const files[] = {"libm.so.6", NULL};
    struct gpu_library library = {"cuDNN 9.8 or newer", "CONVOY_TEST_LIBRARY", files, accept_none};
    void *object = &library;

    (void)state;
    assert_int_equal(gpu_library_find(&library, &object), CVY_UNAVAILABLE);
    assert_null(object);
    must_say("\"libm.so.6\" is 9.1.0");
    library.accept = NULL;
    must(gpu_library_find(&library, &object));
    assert_non_null(object);
}

/* Puts a file that is no library at `path`, which lies below the test's folder. The search tells that it met it. */
static void put_file(const char *format, char path[600])
{
    char command[1300];

    snprintf(path, 600, format, folder);
    snprintf(command, sizeof command, "mkdir -p \"$(dirname '%s')\" && echo nothing >'%s'", path, path);
    assert_int_equal(system(command), 0);
}

/* `python3` on PATH is a link to a virtual environment's, that to another Python; a home has one more environment. */
static void pythons_are_searched(void **state)
{
    static const char *const files[] = {"libconvoy-has-none.so.9", "libconvoy-has-none.*.so.9", NULL};
    static const char *const places[] = {
        "%s/venv/lib/python3.11/site-packages/torchvision.libs/libconvoy-has-none.1a2b3c4d.so.9",
        "%s/venv/lib/python3.11/site-packages/nvidia/cudnn/lib/libconvoy-has-none.so.9",
        "%s/base/lib/python3/dist-packages/nvidia/cu13/lib/libconvoy-has-none.so.9",
        "%s/home/.venv/lib/python3.12/site-packages/nvidia/nccl/lib/libconvoy-has-none.so.9",
        "%s/conda/lib/libconvoy-has-none.so.9",
        "%s/active/lib/python3.13/site-packages/nvidia/any/lib/libconvoy-has-none.so.9"};
    const struct gpu_library library = {"cuDNN 9.8 or newer", NULL, files, NULL};
    char *old_path = strdup(getenv("PATH")), *old_home = getenv("HOME") ? strdup(getenv("HOME")) : NULL;
    char path[600], command[2000];
    void *object;

    (void)state;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        put_file(places[i], path);
    snprintf(command, sizeof command,
             "cd '%s' && mkdir -p path venv/bin base/bin && echo >base/bin/python3 && chmod +x base/bin/python3 &&"
             " ln -s ../../base/bin/python3 venv/bin/python3 && ln -s '%s/venv/bin/python3' path/python3",
             folder, folder);
    assert_int_equal(system(command), 0);
    snprintf(command, sizeof command, "relative:/no/such:%s/path:/usr/bin", folder);
    setenv("PATH", command, 1);
    snprintf(path, sizeof path, "%s/home", folder);
    setenv("HOME", path, 1);
    snprintf(path, sizeof path, "%s/conda", folder);
    setenv("CONDA_PREFIX", path, 1);
    snprintf(path, sizeof path, "%s/active", folder);
    setenv("VIRTUAL_ENV", path, 1);
    assert_int_equal(gpu_library_find(&library, &object), CVY_UNAVAILABLE);
    setenv("PATH", old_path, 1);
    if (old_home)
        setenv("HOME", old_home, 1);
    unsetenv("CONDA_PREFIX");
    unsetenv("VIRTUAL_ENV");
    free(old_path);
    free(old_home);
    must_say("/active/lib/python3.13/site-packages/nvidia/any/lib, ");
    must_say("/active/lib/python3.13/site-packages/nvidia/any/lib/libconvoy-has-none.so.9\" cannot be loaded");
    must_say("/torchvision.libs/libconvoy-has-none.1a2b3c4d.so.9\" cannot be loaded");
    must_say("/conda/lib, ");
    must_say("/venv/lib/python3.11/site-packages/nvidia/cudnn/lib, ");
    must_say("/base/lib/python3/dist-packages/nvidia/cu13/lib, ");
    must_say("/home/.venv/lib/python3.12/site-packages/nvidia/nccl/lib, ");
}

/* The real one, where it is installed. */
static void nccl_is_found(void **state)
{
    static const char *const files[] = {"libnccl.so.2", NULL};
    const struct gpu_library library = {"NCCL", NULL, files, NULL};
    int (*get_version)(int *version);
    int version = 0;
    void *object;

    (void)state;
    if (gpu_library_find(&library, &object) != CVY_OK)
        skip();
    assert_true(gpu_library_function(object, "ncclGetVersion", &get_version));
    assert_false(gpu_library_function(object, "ncclHasNoSuchThing", &object));
    assert_int_equal(get_version(&version), 0);
    print_message("NCCL %d\n", version);
    assert_in_range(version, 20000, 40000);
}

/* nvJPEG too, which torchvision's wheel has under another name. */
static void nvjpeg_is_found(void **state)
{
    static const char *const files[] = {"libnvjpeg.so.13", "libnvjpeg.so.12", "libnvjpeg.*.so.1[23]", NULL};
    const struct gpu_library library = {"nvJPEG", NULL, files, NULL};
    int (*property)(int type, int *value);
    int version = 0;
    void *object;

    (void)state;
    if (gpu_library_find(&library, &object) != CVY_OK)
        skip();
    assert_true(gpu_library_function(object, "nvjpegGetProperty", &property));
    assert_int_equal(property(0, &version), 0);
    print_message("nvJPEG %d\n", version);
    assert_in_range(version, 12, 99);
}

static void a_device_without_its_libraries_says_so(void **state)
{
    struct gpu_device without = {.described = true, .description_json = (char *)"{}"};
    static const char *const variables[] = {"CONVOY_CUBLASLT", "CONVOY_CUDNN"};
    char sentence[128];

    (void)state;
    setenv(variables[0], "/no/such/libcublasLt.so", 1);
    assert_int_equal(gpu_libraries_open(&without), CVY_UNAVAILABLE);
    snprintf(sentence, sizeof sentence,
             "CONVOY_CUBLASLT names \"/no/such/libcublasLt.so\" for cuBLASLt %d, which is not there", CUBLAS_VER_MAJOR);
    must_say(sentence);
    gpu_libraries_close(&without);
    assert_null(without.libraries);
    unsetenv(variables[0]);

    setenv(variables[1], "/no/such/libcudnn_graph.so.9", 1);
    assert_int_equal(gpu_libraries_open(&without), CVY_UNAVAILABLE);
    if (!strstr(cvy_error(), "is not to be found")) /* there is a cuBLASLt */
        must_say("CONVOY_CUDNN names \"/no/such/libcudnn_graph.so.9\" for cuDNN 9.8 or newer, which is not there");
    gpu_libraries_close(&without);
    gpu_libraries_close(&without);
    unsetenv(variables[1]);
}

/* ---- the file of choices ---- */

static const char identity[] = "Emulated GPU, 4 processors; cuDNN 91900";

static struct cudnn_cache_entry record_of(const char *key, int64_t engine, bool compiled)
{
    return (struct cudnn_cache_entry){.key = key,
                                      .form = CUDNN_FORM_NARROW,
                                      .engine = engine,
                                      .tensor_cores = true,
                                      .compiled = compiled,
                                      .candidates = 7,
                                      .nanoseconds = 123456};
}

static void write_cache(const char *key, int64_t engine, bool compiled, const char *plan, char path[512])
{
    const struct cudnn_cache_entry record = record_of(key, engine, compiled);
    struct cvy_cache cache;

    must(cudnn_cache_open(&cache, identity));
    snprintf(path, 512, "%s", cache.path);
    cudnn_cache_add(&cache, &record, plan);
    cvy_cache_save(&cache);
    cvy_cache_close(&cache);
    assert_string_equal(warnings, "");
}

static void expect_kept(const char *key, int64_t engine, const char *plan)
{
    struct cudnn_cache_entry record;
    struct cvy_cache cache;
    char *text;

    must(cudnn_cache_open(&cache, identity));
    assert_true(cudnn_cache_find(&cache, key, &record));
    assert_int_equal(record.engine, engine);
    assert_int_equal(record.form, CUDNN_FORM_NARROW);
    assert_true(record.tensor_cores);
    assert_int_equal(record.candidates, 7);
    assert_int_equal(record.nanoseconds, 123456);
    text = cudnn_cache_plan(&cache, &record);
    assert_non_null(text);
    assert_string_equal(text, plan);
    cvy_free(text);
    assert_false(cudnn_cache_find(&cache, "data f16 n1", &record));
    cvy_cache_close(&cache);
}

static void choices_are_kept(void **state)
{
    char path[512];

    (void)state;
    write_cache("forward f16 n1", 62, false, "{\"a\": \"b c\",\n\t\"d\": 1}", path);
    expect_kept("forward f16 n1", 62, "{\"a\": \"b c\",  \"d\": 1}");
    /* Another process's choices stay, and of one problem the last counts. */
    write_cache("weights f16 n1", 65, false, "{}", path);
    write_cache("forward f16 n1", 45, false, "{1}", path);
    expect_kept("weights f16 n1", 65, "{}");
    expect_kept("forward f16 n1", 45, "{1}");
}

static void plans_with_code_have_a_file_of_their_own(void **state)
{
    char path[512], own[600];
    struct cudnn_cache_entry record;
    struct cvy_cache cache;

    (void)state;
    write_cache("forward f16 n1", 7, true, "{\"code\": 1}", path);
    expect_kept("forward f16 n1", 7, "{\"code\": 1}");
    path[strlen(path) - 4] = '\0';
    snprintf(own, sizeof own, "%s-%016llx.plan", path, (unsigned long long)cvy_hash("forward f16 n1", 14));
    assert_true(cvy_path_exists(own));

    must(cvy_file_replace(own, "{\"code\": 2}", 11));
    must(cudnn_cache_open(&cache, identity));
    assert_true(cudnn_cache_find(&cache, "forward f16 n1", &record));
    assert_null(cudnn_cache_plan(&cache, &record));
    assert_non_null(strstr(warnings, "is damaged"));
    assert_int_equal(unlink(own), 0);
    assert_null(cudnn_cache_plan(&cache, &record)); /* lost: timed again without a word */
    cvy_cache_close(&cache);
}

static void damaged_files_are_passed_over(void **state)
{
    char path[512], *text;
    size_t size, head;
    void *data;

    (void)state;
    write_cache("forward f16 n1", 62, false, "{\"tile\": 4}", path);
    must(cvy_file_read(path, 1 << 16, &data, &size));
    text = data;
    head = (size_t)(strchr(strchr(text, '\n') + 1, '\n') + 1 - text);
    /* Cut off anywhere, or with one other character anywhere: never believed, never a crash. */
    for (size_t at = 0; at < 2 * size; at++) {
        const size_t length = at < size ? at : size;
        struct cvy_cache cache;
        char *damaged = malloc(size);
        assert_non_null(damaged);
        memcpy(damaged, text, size);
        if (at >= size)
            damaged[at - size] ^= 1;
        must(cvy_file_replace(path, damaged, length));
        free(damaged);
        warnings[0] = '\0';
        must(cudnn_cache_open(&cache, identity));
        if (cache.table.count == 0) {
            if (at != head) /* cut after its head it is a file without choices */
                assert_non_null(strstr(warnings, "is damaged"));
        } else { /* the change was in what is only told, or made another problem of it: the plan is as it was */
            struct cudnn_cache_entry kept;
            char *plan;
            assert_true(cudnn_cache_find(&cache, cache.table.lines[0].key, &kept));
            plan = cudnn_cache_plan(&cache, &kept);
            assert_string_equal(plan, "{\"tile\": 4}");
            cvy_free(plan);
        }
        cvy_cache_close(&cache);
    }
    cvy_free(data);
    /* And it can be written again. */
    warnings[0] = '\0';
    must(cvy_file_replace(path, "nonsense", 8));
    {
        const struct cudnn_cache_entry record = record_of("forward f16 n1", 62, false);
        struct cvy_cache cache;
        must(cudnn_cache_open(&cache, identity));
        cudnn_cache_add(&cache, &record, "{}");
        cvy_cache_save(&cache);
        cvy_cache_close(&cache);
    }
    expect_kept("forward f16 n1", 62, "{}");
}

static void without_a_place_nothing_is_kept(void **state)
{
    const struct cudnn_cache_entry record = record_of("forward f16 n1", 62, true);
    char home[256], cache_home[256];
    struct cvy_cache cache;
    struct cudnn_cache_entry found;
    char *plan;

    (void)state;
    snprintf(home, sizeof home, "%s", getenv("HOME") ? getenv("HOME") : "");
    snprintf(cache_home, sizeof cache_home, "%s", getenv("XDG_CACHE_HOME") ? getenv("XDG_CACHE_HOME") : "");
    unsetenv("HOME");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("CONVOY_CACHE_DIR");
    must(cudnn_cache_open(&cache, identity));
    assert_null(cache.path);
    cudnn_cache_add(&cache, &record, "{}");
    assert_true(cudnn_cache_find(&cache, "forward f16 n1", &found));
    plan = cudnn_cache_plan(&cache, &found);
    assert_string_equal(plan, "{}");
    cvy_free(plan);
    cvy_cache_close(&cache);
    if (home[0])
        setenv("HOME", home, 1);
    if (cache_home[0])
        setenv("XDG_CACHE_HOME", cache_home, 1);
}

/* ---- the epilogue ---- */

static float get(enum cvy_dtype dtype, const void *x, int i)
{
    return dtype == CVY_F16    ? gpu_from_f16(((const uint16_t *)x)[i])
           : dtype == CVY_BF16 ? gpu_from_bf16(((const uint16_t *)x)[i])
                               : ((const float *)x)[i];
}

static void put(enum cvy_dtype dtype, void *x, int i, float value)
{
    if (dtype == CVY_F16)
        ((uint16_t *)x)[i] = gpu_to_f16(value);
    else if (dtype == CVY_BF16)
        ((uint16_t *)x)[i] = gpu_to_bf16(value);
    else
        ((float *)x)[i] = value;
}

/* Small integers: exact in every type. */
static void try_epilogue(enum cvy_dtype dtype, int rows, int channels, bool with_bias, bool with_residual,
                         enum cvy_activation activation)
{
    enum { MOST = 1024 };
    static float y[MOST] __attribute__((aligned(16))), residual[MOST] __attribute__((aligned(16))), bias[MOST];
    float expected[MOST];

    for (int i = 0; i < rows * channels; i++) {
        const float value = (float)(i * 7 % 23 - 11), more = with_residual ? (float)(i * 5 % 17 - 8) : 0;
        const float shift = with_bias ? (float)(i % channels % 9 - 4) : 0, sum = value + more + shift;
        put(dtype, y, i, value);
        put(dtype, residual, i, more);
        bias[i % channels] = shift;
        expected[i] = activation != CVY_ACTIVATION_NONE && sum < 0    ? 0
                      : activation == CVY_ACTIVATION_RELU6 && sum > 6 ? 6
                                                                      : sum;
    }
    gpu_epilogue(NULL, dtype, y, with_bias ? bias : NULL, with_residual ? residual : NULL, activation, rows, channels);
    for (int i = 0; i < rows * channels; i++)
        assert_true(get(dtype, y, i) == expected[i]);
}

static void the_epilogue_adds_and_cuts(void **state)
{
    static const enum cvy_dtype types[] = {CVY_F32, CVY_F16, CVY_BF16};
    static const int shapes[][2] = {{1, 1}, {3, 4}, {5, 7}, {9, 13}, {4, 64}, {1, 1000}};

    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            for (int what = 0; what < 12; what++)
                try_epilogue(types[t], shapes[s][0], shapes[s][1], what & 1, what & 2, (enum cvy_activation)(what / 4));
        }
    }
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_missing_library_is_named, make_folder, remove_folder),
        cmocka_unit_test(an_old_library_is_refused),
        cmocka_unit_test_setup_teardown(pythons_are_searched, make_folder, remove_folder),
        cmocka_unit_test(nccl_is_found),
        cmocka_unit_test(nvjpeg_is_found),
        cmocka_unit_test(a_device_without_its_libraries_says_so),
        cmocka_unit_test_setup_teardown(choices_are_kept, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(plans_with_code_have_a_file_of_their_own, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(damaged_files_are_passed_over, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(without_a_place_nothing_is_kept, make_folder, remove_folder),
        cmocka_unit_test(the_epilogue_adds_and_cuts),
    };

    note_warnings();
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
