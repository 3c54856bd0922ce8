/* The engine of convolutions over a real cuDNN and an emulated CUDA runtime: plans for a GPU from its description, a
 * cudnnBackendExecute that only notes what it is called with, and the host's clock. Without cuDNN it is skipped (77).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "backend/cuda/cudnn/cudnn_engine.h"
#include "backend/cuda/gemm.h"
#include "base/file.h"
#include "emulate.h"
#include "support_engine.h"

/* Every pass in every type, with all that a convolution can have. */
static void odd_geometries_have_plans(void **state)
{
    static const enum cvy_dtype types[] = {CVY_F32, CVY_F16, CVY_BF16};

    (void)state;
    assert_true(open_device(false));
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        for (int pass = GPU_CONV_FORWARD; pass <= GPU_CONV_WEIGHTS; pass++) {
            struct gpu_conv_problem problem = usual;
            struct gpu_conv *conv;
            problem.pass = (enum gpu_conv_pass)pass;
            problem.dtype = types[t];
            /* 31 x 29, 3 x 5 taps two apart, strides 2 and 1, padded below and left more than above and right. */
            problem.h = 31;
            problem.w = 29;
            problem.s = 5;
            problem.dilation[0] = problem.dilation[1] = 2;
            problem.stride[0] = 2;
            problem.pad[1] = 2;
            problem.pad[2] = 3;
            problem.p = (31 + 3 - 5) / 2 + 1;
            problem.q = 29 + 4 - 9 + 1;
            must(gpu_conv_open(&device, &problem, &conv));
            gpu_conv_close(conv);
            problem = usual;
            problem.pass = (enum gpu_conv_pass)pass;
            problem.dtype = types[t];
            problem.groups = 32;
            problem.c = 128;
            must(gpu_conv_open(&device, &problem, &conv));
            gpu_conv_close(conv);
            /* One row more than there is: cuDNN itself says so. */
            problem.p++;
            assert_int_not_equal(gpu_conv_open(&device, &problem, &conv), CVY_OK);
            assert_null(conv);
        }
    }
    close_device();
}

static void groups_must_divide(void **state)
{
    struct gpu_conv_problem problem = usual;
    struct gpu_conv *conv;

    (void)state;
    assert_true(open_device(false));
    problem.groups = 3;
    assert_int_not_equal(gpu_conv_open(&device, &problem, &conv), CVY_OK);
    must_say("has no 3 groups");
    close_device();
}

static void f32_is_strict_unless_tf32_is_allowed(void **state)
{
    struct gpu_conv_problem problem = usual;
    struct gpu_conv *conv;
    char text[48], why[160];

    (void)state;
    assert_true(open_device(false));
    problem.dtype = CVY_F32;
    must(gpu_conv_open(&device, &problem, &conv));
    gpu_conv_text(conv, text, why);
    assert_null(strstr(why, "tensor cores"));
    gpu_conv_close(conv);
    problem.tf32 = true;
    must(gpu_conv_open(&device, &problem, &conv));
    expect_text(conv, "cudnn engine", "tensor cores, first of");
    gpu_conv_close(conv);
    close_device();
}

static void what_follows_is_fused(void **state)
{
    static const enum cvy_dtype types[] = {CVY_F32, CVY_F16, CVY_BF16};

    (void)state;
    assert_true(open_device(false));
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        for (int residual = 0; residual < 2; residual++) {
            struct gpu_conv_problem problem = usual;
            struct gpu_conv *conv;
            problem.dtype = types[t];
            problem.tf32 = problem.bias = true;
            problem.activation = CVY_ACTIVATION_RELU;
            problem.residual = residual;
            must(gpu_conv_open(&device, &problem, &conv));
            expect_text(conv, ", fused", types[t] == CVY_F32 ? "tensor cores" : "bias in 16 bits");
            gpu_conv_close(conv);
        }
    }
    close_device();
}

static void the_fastest_is_chosen_and_kept(void **state)
{
    struct gpu_conv_problem other = usual;
    struct gpu_conv *conv, *again;
    char text[48], why[160], next_text[48], next_why[160];
    int calls;

    (void)state;
    other.k = 64;
    assert_true(open_device(true));
    ran.fastest = 3;
    must(gpu_conv_open(&device, &usual, &conv));
    gpu_conv_text(conv, text, why);
    expect_text(conv, "cudnn engine", "fastest of 16: "); /* 12, and 4 that the other heuristics alone name */
    assert_int_equal(ran.plan_count, 16);
    /* A second one of the kind shares what was found. */
    calls = ran.calls;
    must(gpu_conv_open(&device, &usual, &again));
    assert_int_equal(ran.calls, calls);
    gpu_conv_close(again);
    gpu_conv_close(conv);
    close_device();

    /* a dry run takes what is known; what is not, it does not time for later ones either. */
    assert_true(open_device(true));
    device.base.dry_run = true;
    must(gpu_conv_open(&device, &usual, &conv));
    expect_text(conv, "cudnn engine", "in an earlier run");
    gpu_conv_close(conv);
    must(gpu_conv_open(&device, &other, &conv));
    must(gpu_conv_open(&device, &other, &again));
    expect_text(again, "cudnn engine", "first of");
    assert_int_equal(ran.calls, 0);
    device.base.dry_run = false;
    gpu_conv_close(again);
    must(gpu_conv_open(&device, &other, &again));
    expect_text(again, "cudnn engine", "fastest of");
    expect_text(conv, "cudnn engine", "first of");
    gpu_conv_close(again);
    gpu_conv_close(conv);
    close_device();

    /* The next process does not time it. */
    assert_true(open_device(true));
    must(gpu_conv_open(&device, &usual, &conv));
    assert_int_equal(ran.calls, 0);
    gpu_conv_text(conv, next_text, next_why);
    assert_string_equal(text, next_text);
    assert_non_null(strstr(next_why, "fastest of 16 in an earlier run: "));
    gpu_conv_close(conv);
    close_device();

    /* CONVOY_KERNELS=first does not look at what is kept. */
    assert_true(open_device(false));
    must(gpu_conv_open(&device, &usual, &conv));
    expect_text(conv, "cudnn engine", "first of");
    gpu_conv_close(conv);
    close_device();
    assert_string_equal(warnings, "");
}

/* Specialists are one engine in more variants than those of other engines that are timed. */
static void variants_of_specialists_are_timed(void **state)
{
    struct gpu_conv_problem problem = usual;
    struct gpu_conv *conv;

    (void)state;
    problem.statistics = GPU_STATISTICS_FUSED;
    assert_true(open_device(true));
    must(gpu_conv_open(&device, &problem, &conv));
    expect_text(conv, "cudnn engine 2, statistics fused", "fastest of ");
    assert_true(ran.plan_count > 4);
    gpu_conv_close(conv);
    close_device();
}

static int proposed(const struct gpu_conv_problem *problem)
{
    struct gpu_conv *conv;
    char text[48], why[160];
    const char *count;

    must(gpu_conv_open(&device, problem, &conv));
    gpu_conv_text(conv, text, why);
    count = strstr(why, "first of ");
    assert_non_null(count);
    gpu_conv_close(conv);
    return atoi(count + strlen("first of "));
}

/* Some gradients of f32 are summed in no fixed order: only who asks for them gets them, and what is kept of one setting
 * is not taken for the other. */
static void an_order_of_sums_is_kept_unless_told_otherwise(void **state)
{
    struct gpu_conv_problem problem = usual;
    struct cvy_text keys[2] = {{0}, {0}};
    int fixed, any;

    (void)state;
    problem.pass = GPU_CONV_DATA;
    problem.dtype = CVY_F32;
    assert_true(open_device(false));
    fixed = proposed(&problem);
    device.order = GPU_ORDER_ANY;
    any = proposed(&problem);
    device.order = GPU_ORDER_FIXED;
    assert_true(any > fixed);
    for (int part = 0; part < 2; part++) { /* what adds up as it writes */
        struct gpu_conv_problem sums = usual;
        struct gpu_conv *conv;
        sums.pass = part ? GPU_CONV_DATA : GPU_CONV_FORWARD;
        sums.statistics = part ? GPU_STATISTICS_NONE : GPU_STATISTICS_FUSED;
        sums.gradient_sums = part ? GPU_PART_FUSED : GPU_PART_NONE;
        assert_int_equal(gpu_conv_open(&device, &sums, &conv), CVY_UNAVAILABLE);
        assert_null(conv);
        must_say("in no fixed order");
    }
    close_device();
    cudnn_problem_key(&problem, &keys[0]);
    problem.any_order = true;
    cudnn_problem_key(&problem, &keys[1]);
    assert_string_not_equal(keys[0].text, keys[1].text);
    cvy_text_release(&keys[0]);
    cvy_text_release(&keys[1]);
}

static int candidate_runs;

/* Takes as many milliseconds as it is told. */
static cvy_status run_candidate(struct gpu_device *gpu, const void *context, const struct gpu_conv_memory *memory)
{
    (void)gpu;
    assert_non_null(memory->x);
    assert_non_null(memory->w);
    assert_non_null(memory->y);
    assert_non_null(memory->scratch);
    candidate_runs++;
    pass_milliseconds(*(const int *)context);
    return CVY_OK;
}

/* Our own kernels next to cuDNN's. */
static void a_candidate_is_timed_and_kept(void **state)
{
    struct gpu_conv_problem groups = usual, wide = usual;
    const int quick = 1, slow = 200;
    double seconds, gain;

    (void)state;
    groups.statistics = wide.statistics = GPU_STATISTICS_SEPARATE; /* as training has it */
    groups.k = groups.c;
    groups.groups = 8;
    wide.k = wide.c;
    wide.groups = 16;
    assert_true(open_device(true));
    ran.fastest = -1; /* cuDNN's all take 20 ms */
    must(gpu_allocate(device.stream, GPU_TICKETS * sizeof *device.tickets, (void **)&device.tickets));
    device.grouped = GPU_OWN_NEVER; /* what is measured here stands for our own kernels */
    device.base.dry_run = true;
    must(gpu_conv_measure(&device, &groups, "grouped 3", run_candidate, &quick, 256, &seconds));
    assert_true(seconds == 0 && candidate_runs == 0);
    device.base.dry_run = false;
    must(gpu_conv_measure(&device, &groups, "grouped 3", run_candidate, &quick, 256, &seconds));
    assert_true(seconds >= 0.001 && candidate_runs > 0);
    must(gpu_conv_measure(&device, &wide, "grouped 3", run_candidate, &slow, 256, &seconds));
    assert_true(seconds >= 0.2);
    candidate_runs = 0;
    must(gpu_conv_measure(&device, &groups, "grouped 3", run_candidate, &slow, 256, &seconds));
    assert_true(seconds < 0.1 && candidate_runs == 0);
    must(gpu_conv_measure(&device, &groups, "other", run_candidate, &quick, 256, &seconds));
    assert_true(candidate_runs > 0);

    must(gpu_grouped_gain(&device, groups, &gain));
    assert_true(gain == 0); /* as asked for */
    device.grouped = GPU_OWN_TIMED;
    must(gpu_grouped_gain(&device, groups, &gain));
    assert_true(gain > 0 && gain < 0.2);
    must(gpu_grouped_gain(&device, wide, &gain));
    assert_true(gain == 0);
    must(gpu_grouped_gain(&device, usual, &gain));
    assert_true(gain == 0);
    device.grouped = GPU_OWN_ALWAYS;
    assert_int_equal(gpu_grouped_gain(&device, groups, &gain), CVY_UNAVAILABLE);
    must(gpu_grouped_gain(&device, usual, &gain));
    gpu_release(device.tickets);
    close_device();

    /* The next process does not time it; where nothing is timed, it is not known either. */
    candidate_runs = 0;
    assert_true(open_device(true));
    must(gpu_conv_measure(&device, &groups, "grouped 3", run_candidate, &slow, 256, &seconds));
    assert_true(seconds >= 0.001 && seconds < 0.1 && candidate_runs == 0);
    close_device();
    assert_true(open_device(false));
    must(gpu_conv_measure(&device, &groups, "grouped 3", run_candidate, &slow, 256, &seconds));
    assert_true(seconds == 0 && candidate_runs == 0);
    close_device();
    assert_string_equal(warnings, "");
}

/* The preferred form comes first, the separate kernel last: each wins when it is the fastest. */
static void all_forms_are_timed(void **state)
{
    struct gpu_conv_problem problem = usual;
    struct gpu_conv *conv;
    int last = 0;

    (void)state;
    problem.bias = problem.residual = true;
    problem.activation = CVY_ACTIVATION_RELU;
    problem.n = 1;
    problem.h = problem.w = problem.p = problem.q = 8;
    setenv("CONVOY_CACHE_DIR", "/dev/null/none", 1); /* each time anew */
    for (int turn = 0; turn < 2; turn++) {
        assert_true(open_device(true));
        ran.fastest = last;
        must(gpu_conv_open(&device, &problem, &conv));
        expect_text(conv, turn ? ", epilogue separate" : ", fused",
                    turn ? "fastest of" : "bias in 16 bits, fastest of");
        last = ran.plan_count - 1;
        gpu_conv_close(conv);
        close_device();
    }
    setenv("CONVOY_CACHE_DIR", folder, 1);
    assert_non_null(strstr(warnings, "not kept"));
}

static cvy_status run(const struct gpu_conv *conv, void *x, void *w, void *y, const float *bias, const void *residual,
                      void *scratch)
{
    const struct gpu_conv_memory memory = {
        .x = x, .w = w, .y = y, .scratch = scratch, .bias = bias, .residual = residual};

    return gpu_conv_run(&device, conv, &memory);
}

static void a_run_passes_the_tensors(void **state)
{
    static uint16_t x[8] __attribute__((aligned(256))), w[8] __attribute__((aligned(256))),
        y[8] __attribute__((aligned(256))), z[8] __attribute__((aligned(256)));
    static float bias[129] __attribute__((aligned(256)));
    struct gpu_conv_problem problem = usual;
    struct gpu_conv *conv;
    void *scratch;

    (void)state;
    assert_true(open_device(false));
    problem.bias = problem.residual = true;
    problem.activation = CVY_ACTIVATION_RELU;
    must(gpu_conv_open(&device, &problem, &conv));
    assert_true(gpu_conv_scratch(conv) >= 128 * sizeof(float));
    must(gpu_allocate(device.stream, gpu_conv_scratch(conv), &scratch));
    for (int i = 0; i < 129; i++)
        bias[i] = (float)i;
    /* A bias from anywhere in the arena; it is rounded into the scratch. */
    must(run(conv, x, w, y, bias + 1, z, scratch));
    assert_int_equal(ran.calls, 1);
    assert_int_equal(ran.count, 5);
    assert_ptr_equal(pointer_of(CUDNN_X), x);
    assert_ptr_equal(pointer_of(CUDNN_W), w);
    assert_ptr_equal(pointer_of(CUDNN_Y), y);
    assert_ptr_equal(pointer_of(CUDNN_RESIDUAL), z);
    assert_ptr_equal(pointer_of(CUDNN_BIAS), scratch);
    assert_int_equal(((const uint16_t *)scratch)[127], gpu_to_f16(128));
    /* Where memory lies wrong it says so instead of cuDNN. */
    assert_int_equal(run(conv, x + 1, w, y, bias, z, scratch), CVY_FAILED);
    must_say("16 bytes");
    assert_int_equal(ran.calls, 1);
    gpu_conv_close(conv);

    /* f32: as it is where it is aligned, else moved. */
    problem.dtype = CVY_F32;
    problem.tf32 = true;
    gpu_release(scratch);
    must(gpu_conv_open(&device, &problem, &conv));
    must(gpu_allocate(device.stream, gpu_conv_scratch(conv), &scratch));
    must(run(conv, x, w, y, bias, z, scratch));
    assert_ptr_equal(pointer_of(CUDNN_BIAS), bias);
    must(run(conv, x, w, y, bias + 1, z, scratch));
    assert_ptr_equal(pointer_of(CUDNN_BIAS), scratch);
    assert_true(((const float *)scratch)[127] == 128);
    gpu_conv_close(conv);
    gpu_release(scratch);
    close_device();
}

static void products_are_described(void **state)
{
    (void)state;
    assert_true(open_device(false));
    for (int what = 0; what < 8; what++) {
        const struct gpu_gemm_problem problem = {.m = 7,
                                                 .n = 10,
                                                 .k = 33,
                                                 .transpose_a = what & 1,
                                                 .transpose_b = what & 2,
                                                 .bias = what & 4,
                                                 .tf32 = what & 1};
        struct gpu_gemm *gemm;
        must(gpu_gemm_open(&device, &problem, &gemm));
        assert_int_equal(gpu_gemm_scratch(gemm), 0);
        gpu_gemm_close(gemm);
    }
    gpu_gemm_close(NULL);
    close_device();
}

static void a_bad_description_is_refused(void **state)
{
    (void)state;
    device = (struct gpu_device){.described = true, .description_json = (char *)"{\"deviceName\": 7}"};
    assert_int_equal(gpu_libraries_open(&device), CVY_BAD_DATA);
    must_say("the description of the GPU is none that cuDNN understands");
    gpu_libraries_close(&device);
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_geometries_have_plans),
        cmocka_unit_test(groups_must_divide),
        cmocka_unit_test(f32_is_strict_unless_tf32_is_allowed),
        cmocka_unit_test(what_follows_is_fused),
        cmocka_unit_test_setup_teardown(the_fastest_is_chosen_and_kept, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_candidate_is_timed_and_kept, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(all_forms_are_timed, make_folder, remove_folder),
        cmocka_unit_test(a_run_passes_the_tensors),
        cmocka_unit_test(products_are_described),
        cmocka_unit_test(a_bad_description_is_refused),
    };

    if (!cudnn_is_there())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
