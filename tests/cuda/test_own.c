/* Kernels of our own beside the engine's plans: what is believed of them, and what is kept. Over a real cuDNN and an
 * emulated CUDA runtime; see test_cudnn.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../emulated_cuda/capture.h"
#include "backend/cuda/kernels/launch.h"
#include "support_engine.h"

enum { PIXELS = 25, CHANNELS = 16, OUTPUTS = 8 };
static float gradient_factor;

static cudnnStatus_t gradient_of_data(int plan)
{
    const uint16_t *dy = pointer_of(CUDNN_Y), *w = pointer_of(CUDNN_W);
    uint16_t *dx = pointer_of(CUDNN_X);

    (void)plan;
    for (int i = 0; i < PIXELS * CHANNELS; i++) {
        float sum = 0;

        for (int k = 0; k < OUTPUTS; k++)
            sum += gpu_from_f16(dy[i / CHANNELS * OUTPUTS + k]) * gpu_from_f16(w[k * CHANNELS + i % CHANNELS]);
        dx[i] = gpu_to_f16(gradient_factor * sum);
    }
    return CUDNN_STATUS_SUCCESS;
}

static struct gpu_conv_problem ending(void)
{
    struct gpu_conv_problem problem = usual;

    problem.pass = GPU_CONV_DATA;
    problem.n = 1;
    problem.h = problem.w = problem.p = problem.q = 5;
    problem.r = problem.s = 1;
    memset(problem.pad, 0, sizeof problem.pad);
    problem.c = CHANNELS;
    problem.k = OUTPUTS;
    problem.gradient_sums = GPU_PART_SEPARATE;
    problem.residual = true;
    return problem;
}

/* Whether the kernel that ends a block is taken, beside a gradient of data that is `factor` times the right one. */
static bool is_taken(float factor, bool compares)
{
    const struct gpu_conv_problem problem = ending();
    double seconds;
    bool taken;

    open_comparing(gradient_of_data);
    device.compares = compares;
    gradient_factor = factor;
    warnings[0] = '\0';
    taken = gpu_pointwise_backward_ask(&device, &problem, &seconds) == CVY_OK;
    assert_true(taken == (seconds > 0));
    close_comparing();
    return taken;
}

/* What ends a block is held against a gradient of data and batch norm's kernel; where they differ it is not taken, then
 * and later. */
static void a_kernel_of_ours_that_differs_is_left_out(void **state)
{
    (void)state;
    assert_false(is_taken(0.5F, true));
    assert_non_null(
        strstr(warnings, "a kernel of ours is left out: the gradient of x differs from that of separate kernels"));
    assert_false(is_taken(1, true)); /* it is remembered */
    assert_int_equal(ran.calls, 0);
    assert_string_equal(warnings, "");
}

static void a_kernel_of_ours_is_compared_once(void **state)
{
    (void)state;
    assert_true(is_taken(0.5F, false)); /* taken for its speed */
    assert_true(is_taken(1, true));     /* and not believed by a run that compares */
    assert_true(ran.calls > 0);
    assert_true(is_taken(0.5F, true)); /* which is kept */
    assert_int_equal(ran.calls, 0);
    assert_string_equal(warnings, "");
}

static void a_time_without_a_comparison_is_not_believed(void **state)
{
    (void)state;
    assert_true(is_taken(0.5F, false));
    assert_false(is_taken(0.5F, true));
    assert_non_null(strstr(warnings, "a kernel of ours is left out"));
}

static int broken; /* runs that have ended all work */

static cvy_status break_context(struct gpu_device *which, const void *context, const struct gpu_conv_memory *memory)
{
    (void)which, (void)context, (void)memory;
    broken++;
    emulated_broken = true;
    return cvy_fail(CVY_FAILED, "an illegal address");
}

static void a_kernel_of_ours_that_breaks_the_context_is_left_out(void **state)
{
    const struct gpu_conv_problem problem = ending();
    double seconds;

    (void)state;
    open_comparing(gradient_of_data);
    assert_int_equal(gpu_conv_measure(&device, &problem, "ours 1", break_context, NULL, 0, &seconds), CVY_FAILED);
    must_say("ended all work on the GPU; start again: it will be left out");
    emulated_broken = false;
    close_comparing();

    open_comparing(gradient_of_data);
    must(gpu_conv_measure(&device, &problem, "ours 1", break_context, NULL, 0, &seconds));
    assert_true(seconds == 0);
    assert_int_equal(broken, 1);
    close_comparing();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_kernel_of_ours_that_differs_is_left_out, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_kernel_of_ours_is_compared_once, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_time_without_a_comparison_is_not_believed, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_kernel_of_ours_that_breaks_the_context_is_left_out, make_folder,
                                        remove_folder),
    };

    if (!cudnn_is_there())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
