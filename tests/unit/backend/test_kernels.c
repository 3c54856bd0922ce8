/* The kernel checker: every kernel of a backend, in every layout the planner can bring about, against the
 * reference over the shapes of tests/shapes.
 *
 * - (nothing): the whole suite on the CPU.
 * - --device cuda:0 [--from N]: on a GPU, in f32, f16 and bf16. Exits 77 where there is none, and 3 after a kernel that
 *   ended all work there, with the case that another process can continue from.
 * - --device cuda:0 --every N [--part K] [--from N]: of the odd shapes' cases each N-th, and nothing else.
 * - --device cuda:0 --rest: everything but those.
 * - --isa NAME: what depends on the instructions, with fewer of them: base, avx2, avx512. Exits 77 where the processor
 *   has no more.
 * - --networks: every shape of the networks, of which the suite has some.
 * - --time [--device cuda:0] [BATCH] [WORD]...: the shortest time of each case whose name holds all the words, with
 *   GFLOP/s and GB/s, in f32 and (the name ends with that word) in bf16; on a GPU in f16.
 *
 * Integers come first: their sums are exact in any order (of direct algorithms), so results must be equal bit for bit.
 * Then random floats, with a bound for each output. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/system.h"
#include "ops/ops.h"
#include "support_cases.h"
#include "support_elementwise.h"
#include "support_many.h"
#include "support_update.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define INSTRUMENTED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define INSTRUMENTED 1
#endif
#endif
#ifndef INSTRUMENTED
#define INSTRUMENTED 0
#endif

/* ---- shapes from files ---- */

static void check_norm_line(struct cvy_shape x, bool large)
{
    static const enum kernel_data data[] = {DATA_INTEGERS, DATA_FLOATS};
    for (int i = 0; i < 2; i++) {
        if (x.dim[0] * x.dim[2] * x.dim[3] > 1)
            check_norm_forward(x, data[i]);
        check_norm_backward(x, data[i]);
        check_mean(x, data[i]);
        check_elementwise(x, data[i]);
        check_scale_channels(x, data[i]);
    }
    check_elementwise(x, DATA_SPECIAL);
    check_scale_channels(x, DATA_SPECIAL);
    if (!large) {
        check_upsample(x, DATA_INTEGERS);
        check_upsample(x, DATA_FLOATS);
        check_levels(x, DATA_FLOATS);
        check_reorders(x);
        check_casts(x);
        if (x.dim[2] * x.dim[3] == 1) /* what follows a linear layer */
            check_norm_forward(cvy_shape2(x.dim[0], x.dim[1]), DATA_FLOATS);
    }
}

/* Squeeze and excitation: the mean of x (N,C,H,W), C -> hidden -> C, and the product. */
static void check_gate(struct cvy_shape x, int hidden)
{
    static const enum kernel_data data[] = {DATA_INTEGERS, DATA_FLOATS, DATA_SPECIAL};
    const int n = (int)x.dim[0], c = (int)x.dim[1];
    for (int i = 0; i < 3; i++) {
        check_scale_channels(x, data[i]);
        check_elementwise(cvy_shape2(n, c), data[i]);
        check_elementwise(cvy_shape2(n, hidden), data[i]);
        if (data[i] == DATA_SPECIAL)
            continue;
        check_mean(x, data[i]);
        check_linear(n, c, hidden, cvy_shape4(hidden, c, 1, 1), data[i]);
        check_linear(n, hidden, c, cvy_shape4(c, hidden, 1, 1), data[i]);
    }
}

/* Every edge is in the odd shapes. Of the shapes of networks, which the reference's convolutions take minutes for, a
 * sixth is compared, one image of each: all sizes, strides and groups. --networks, the time and a real GPU take all.
 * Of the odd ones half are enough for lesser instruction sets and other layouts, unless --whole is said. Sanitizers,
 * ten times slower, see a quarter of the large ones, and of the odd ones half, or a third: every kernel. */
static int stride_of(bool large)
{
    if (suite.time || suite.all_shapes || suite.cpu->gpu)
        return 1;
    if (large)
        return INSTRUMENTED ? 24 : 6;
    if (suite.lesser_isa && !suite.whole)
        return INSTRUMENTED ? 3 : 2;
    return INSTRUMENTED ? 2 : 1;
}

static int images_of(int images, bool large)
{
    return large && stride_of(large) > 1 ? 1 : images;
}

static void check_line(const char *line, bool large)
{
    struct conv_shape c;
    struct pool_shape p;
    int v[5];
    char rebatched[256], kind[16];
    int used = 0;
    if (suite.batch && sscanf(line, "%15s %*d%n", kind, &used) == 1 && used) {
        snprintf(rebatched, sizeof(rebatched), "%s %d%s", kind, suite.batch, line + used);
        line = rebatched;
    }
    if (sscanf(line, "conv %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d", &c.n, &c.c, &c.h, &c.w, &c.k, &c.r, &c.s,
               &c.stride[0], &c.stride[1], &c.pad[0], &c.pad[1], &c.pad[2], &c.pad[3], &c.dilation[0], &c.dilation[1],
               &c.groups) == 16) {
        c.n = images_of(c.n, large);
        if (!(large && INSTRUMENTED && c.c * c.k > 128 * 128))
            check_conv(&c, DATA_INTEGERS);
        if (!large && c.groups > 1)
            check_conv(&c, DATA_SPECIAL);
        if (large && !suite.time) /* the reference takes its time: floats on one image */
            c.n = 1;
        if (!(large && INSTRUMENTED))
            check_conv(&c, DATA_FLOATS);
    } else if (sscanf(line, "norm %d %d %d %d", &v[0], &v[1], &v[2], &v[3]) == 4) {
        if (!(large && INSTRUMENTED))
            check_norm_line(cvy_shape4(images_of(v[0], large), v[1], v[2], v[3]), large);
    } else if (sscanf(line, "pool %d %d %d %d %d %d %d %d %d %d %d %d", &p.n, &p.c, &p.h, &p.w, &p.r, &p.s,
                      &p.stride[0], &p.stride[1], &p.pad[0], &p.pad[1], &p.pad[2], &p.pad[3]) == 12) {
        check_pool(&p, DATA_INTEGERS);
        check_pool(&p, DATA_FLOATS);
        check_pool(&p, DATA_SPECIAL);
    } else if (sscanf(line, "gate %d %d %d %d %d", &v[0], &v[1], &v[2], &v[3], &v[4]) == 5) {
        check_gate(cvy_shape4(images_of(v[0], large), v[1], v[2], v[3]), v[4]);
    } else if (sscanf(line, "linear %d %d %d", &v[0], &v[1], &v[2]) == 3) {
        for (int rank = 2; rank <= 4; rank += 2) {
            const struct cvy_shape w = rank == 4 ? cvy_shape4(v[2], v[1], 1, 1) : cvy_shape2(v[2], v[1]);
            check_linear(v[0], v[1], v[2], w, DATA_INTEGERS);
            check_linear(v[0], v[1], v[2], w, DATA_FLOATS);
        }
        check_loss(v[0], v[2]);
    } else if (sscanf(line, "detection %d %d %d %d %d", &v[0], &v[1], &v[2], &v[3], &v[4]) == 5) {
        check_detection(&(struct detection_shape){v[0], v[1], v[2], v[3], v[4]});
    } else if (sscanf(line, "image %d %d %d %d", &v[0], &v[1], &v[2], &v[3]) == 4) {
        check_image(cvy_shape4(v[0], v[1], v[2], v[3]));
    } else {
        fail_msg("not a shape: %s", line);
    }
}

static void check_file(const char *name, bool large)
{
    const char *source = getenv("CONVOY_TEST_SOURCE"); /* where a bundle has them */
    char path[4096], line[256];
    snprintf(path, sizeof(path), "%s/shapes/%s", source && source[0] ? source : CONVOY_TEST_SOURCE, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    const int stride = stride_of(large);
    int lines = 0;
    while (fgets(line, sizeof(line), file))
        if (line[0] != '#' && line[0] != '\n' && lines++ % stride == 0 &&
            (!suite.convolutions || strncmp(line, "conv ", 5) == 0))
            check_line(line, large);
    fclose(file);
    assert_true(lines > 0);
}

static void no_failures(void)
{
    if (suite.failures)
        fail_msg("%d of %d runs are wrong", suite.failures, suite.runs);
}

/* ---- tests ---- */

static void test_every_op_has_a_kernel(void **state)
{
    (void)state;
    for (int op = 0; op < CVY_OP_COUNT; op++) {
        bool found = false;
        for (size_t i = 0; i < suite.backend->kernel_count; i++)
            found = found || suite.backend->kernels[i].op == (enum cvy_op)op;
        if (!found && !((cvy_ops[op].int8 || cvy_ops[op].closed) && suite.cpu->gpu))
            fail_msg("the %s backend has no kernel for \"%s\"", suite.backend->name, cvy_ops[op].name);
    }
}

static void test_odd_shapes(void **state)
{
    (void)state;
    check_file("odd.txt", false);
    no_failures();
    assert_true(suite.narrow_runs > (suite.every > 0 ? 0 : 100)); /* bf16 was not left out */
}

static void test_network_shapes(void **state)
{
    (void)state;
    check_file("resnet.txt", true);
    check_file("resnext.txt", true);
    check_file("squeeze.txt", true);
    no_failures();
}

/* Plain loops for a GPU's libraries would take hours over the shapes of networks. */
static void test_network_shapes_on_gpu(void **state)
{
    if (suite_is_emulated())
        skip();
    check_file("walk.txt", false);
    test_network_shapes(state);
}

/* Our own Winograd kernels name their tiles, or that they are strided. oneDNN has some for AVX-512 only, and from
 * version 3 on none. */
static bool has_winograd(const struct cvy_kernel *kernel)
{
    const bool own = strstr(kernel->name, "_2x2") || strstr(kernel->name, "_4x4") || strstr(kernel->name, "_strided");
    return own || (cvy_cpu_isa() >= CVY_ISA_AVX512 && strstr(suite.cpu->description, "oneDNN 2"));
}

/* Direct convolutions: where oneDNN's are not better. */
static bool has_direct(void)
{
    return cvy_cpu_isa() <= CVY_ISA_AVX2;
}

/* Convolutions by tile products. */
static bool is_by_tiles(const struct cvy_kernel *kernel)
{
    const size_t length = strlen(kernel->name), end = strlen("_tiles");
    return length > end && strcmp(kernel->name + length - end, "_tiles") == 0;
}

/* Products by tiles: those of the processor, or those in memory. */
static bool has_tiles(void)
{
    const char *tiles = getenv("CONVOY_CPU_TILES");
    return cvy_cpu_isa() >= CVY_ISA_AMX_BF16 || (tiles && strcmp(tiles, "model") == 0);
}

/* Whether cases run a kernel by itself: weights are reordered around every convolution, test_int8 and test_sign have
 * their own, and what reads a mask of bits, which plain tensors have not, is for cuda.test_norms. */
static bool has_cases(const struct cvy_kernel *kernel)
{
    static const char *const others[] = {
        "cpu.reorder_int8", "cpu.reorder_tiles",    "cpu.reorder_weights", "cpu.unblock_weights",
        "cpu.reorder_sign", "cpu.reorder_winograd", "cpu.reorder_direct",  "cuda.conv2d_bwd_data_pointwise"};

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(kernel->name, others[i]) == 0)
            return false;
    return kernel->prepare && !cvy_ops[kernel->op].int8 &&
           (!strstr(kernel->name, "winograd") || has_winograd(kernel)) &&
           (!strstr(kernel->name, "_direct") || has_direct()) && (!is_by_tiles(kernel) || has_tiles());
}

static void test_every_kernel_was_run(void **state)
{
    (void)state;
    if (suite.from > 1) /* another process has run the first ones */
        skip();
    for (size_t i = 0; i < suite.backend->kernel_count; i++) {
        const struct cvy_kernel *kernel = &suite.backend->kernels[i];
        if (!has_cases(kernel))
            continue;
        if (!suite.exercised[i])
            fail_msg("no case runs \"%s\"", kernel->name);
        if (strncmp(kernel->name, "cpu.grouped_", strlen("cpu.grouped_")) == 0 && !suite.narrowed[i])
            fail_msg("no case runs \"%s\" in bf16", kernel->name);
    }
}

static void test_tiles_were_run(void **state)
{
    (void)state;
    for (size_t i = 0; i < suite.backend->kernel_count; i++)
        if (is_by_tiles(&suite.backend->kernels[i]) && has_cases(&suite.backend->kernels[i]) &&
            !(suite.exercised[i] && suite.narrowed[i]))
            fail_msg("no case runs \"%s\" in bf16", suite.backend->kernels[i].name);
}

/* Of several processes that have a part of the cases each some one must have run every kernel. */
static void test_what_is_left_is_said(void **state)
{
    (void)state;
    for (size_t i = 0; i < suite.backend->kernel_count; i++)
        if (has_cases(&suite.backend->kernels[i]) && !suite.exercised[i])
            printf("left to other parts: %s\n", suite.backend->kernels[i].name);
}

static void test_wrong_labels_are_refused(void **state)
{
    (void)state;
    float logits[8] = {0}, probabilities[8], loss;
    int32_t labels[2] = {1, 4};
    struct cvy_op_desc desc = kernel_begin(CVY_OP_SOFTMAX_CROSS_ENTROPY, DATA_FLOATS, "labels").desc;
    desc.inputs = desc.outputs = 2;
    desc.out[0].shape = cvy_shape0();
    desc.in[0].shape = desc.out[1].shape = cvy_shape2(2, 4);
    desc.in[1].shape = cvy_shape1(2);
    desc.in[1].dtype = CVY_I32;
    struct cvy_kernel_plan plan;
    double scratch[2];
    assert_int_equal(cvy_kernel_select(suite.cpu, &desc, &plan), CVY_OK);
    assert_true(plan.scratch_bytes <= sizeof(scratch));
    void *in[CVY_MAX_INPUTS] = {logits, labels}, *out[CVY_MAX_OUTPUTS] = {&loss, probabilities};
    assert_int_equal(plan.kernel->run(suite.cpu, &plan, in, out, scratch), CVY_FAILED);
    labels[1] = -1;
    assert_int_equal(plan.kernel->run(suite.cpu, &plan, in, out, scratch), CVY_FAILED);
    labels[1] = 3;
    assert_int_equal(plan.kernel->run(suite.cpu, &plan, in, out, scratch), CVY_OK);
    cvy_kernel_release(suite.cpu, &plan);
}

static void test_wrong_partners_are_refused(void **state)
{
    (void)state;
    const uint8_t images[2 * 3] = {0, 1, 2, 3, 4, 5};
    const float coefficients[2] = {0.5f, 0.25f};
    int32_t partners[2] = {1, 0};
    float y[2 * 3];
    struct cvy_op_desc desc = kernel_begin(CVY_OP_NORMALIZE, DATA_FLOATS, "partners").desc;
    desc.inputs = 3;
    desc.outputs = 1;
    desc.attr.normalize = (struct cvy_normalize_attr){.std = {1, 1, 1, 1}};
    desc.in[0] = (struct cvy_tensor){cvy_shape4(2, 3, 1, 1), CVY_U8, {CVY_LAYOUT_NHWC, NULL, 0}};
    desc.in[1] = (struct cvy_tensor){.shape = cvy_shape1(2), .dtype = CVY_I32};
    desc.in[2] = (struct cvy_tensor){.shape = cvy_shape1(2), .dtype = CVY_F32};
    desc.out[0] = (struct cvy_tensor){.shape = cvy_shape4(2, 3, 1, 1), .dtype = CVY_F32};
    struct cvy_kernel_plan plan;
    assert_int_equal(cvy_kernel_select(suite.cpu, &desc, &plan), CVY_OK);
    void *in[CVY_MAX_INPUTS] = {(void *)(uintptr_t)images, partners, (void *)(uintptr_t)coefficients};
    void *out[CVY_MAX_OUTPUTS] = {y};
    for (int32_t wrong = -1; wrong <= 2; wrong += 3) {
        partners[1] = wrong;
        assert_int_equal(plan.kernel->run(suite.cpu, &plan, in, out, NULL), CVY_FAILED);
        assert_non_null(strstr(cvy_error(), "partner"));
    }
    partners[1] = 0;
    assert_int_equal(plan.kernel->run(suite.cpu, &plan, in, out, NULL), CVY_OK);
    assert_true(y[0] == 1.5f && y[3] == 0.75f);
    cvy_kernel_release(suite.cpu, &plan);
}

/* One pixel of images so large that the last one is more than 2^31 numbers from the first; nothing else of them is
 * touched, so that they take no memory. */
static void test_images_far_apart(void **state)
{
    (void)state;
    enum { IMAGES = 6, CHANNELS = 16, SIDE = 5700 };
    const size_t image = (size_t)CHANNELS * SIDE * SIDE, bytes = IMAGES * image * sizeof(uint16_t);
    uint16_t *const x = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (x == MAP_FAILED) /* a limit of the system's */
        skip();
    uint16_t dy[IMAGES * CHANNELS];
    float dw[CHANNELS * CHANNELS];
    for (int n = 0; n < IMAGES; n++)
        for (int c = 0; c < CHANNELS; c++) {
            x[(size_t)n * image + (size_t)c] = (uint16_t[]){0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0}[n];
            dy[n * CHANNELS + c] = 0x3f80; /* 1; x: n + 1 */
        }
    struct cvy_op_desc desc = kernel_begin(CVY_OP_CONV2D_BWD_WEIGHTS, DATA_FLOATS, "far").desc;
    desc.inputs = 2;
    desc.outputs = 1;
    desc.images = CVY_IMAGES_NHWC;
    desc.attr.conv2d =
        (struct cvy_conv2d_attr){.kernel = {1, 1}, .stride = {SIDE, SIDE}, .dilation = {1, 1}, .groups = 1};
    desc.in[0] = (struct cvy_tensor){cvy_shape4(IMAGES, CHANNELS, SIDE, SIDE), CVY_BF16, {CVY_LAYOUT_NHWC, NULL, 0}};
    desc.in[1] = (struct cvy_tensor){cvy_shape4(IMAGES, CHANNELS, 1, 1), CVY_BF16, {CVY_LAYOUT_NHWC, NULL, 0}};
    desc.out[0] = (struct cvy_tensor){.shape = cvy_shape4(CHANNELS, CHANNELS, 1, 1), .dtype = CVY_F32};
    struct cvy_kernel_plan plan;
    assert_int_equal(cvy_kernel_select(suite.cpu, &desc, &plan), CVY_OK);
    void *const scratch = aligned_alloc(64, plan.scratch_bytes / 64 * 64 + 64);
    assert_non_null(scratch);
    void *in[CVY_MAX_INPUTS] = {x, dy}, *out[CVY_MAX_OUTPUTS] = {dw};
    assert_int_equal(plan.kernel->run(suite.cpu, &plan, in, out, scratch), CVY_OK);
    for (int i = 0; i < CHANNELS * CHANNELS; i++)
        assert_true(dw[i] == 21);
    free(scratch);
    cvy_kernel_release(suite.cpu, &plan);
    munmap(x, bytes);
}

/* What the device makes of a case of f32, or of another type. */
static void run_case(struct kernel_case *kernel, enum cvy_dtype dtype, struct kernel_run *run)
{
    const struct cvy_op_info *info = &cvy_ops[kernel->desc.op];
    if (dtype != CVY_F32)
        assert_int_equal(kernel_narrow(kernel, suite.ref, dtype, info->f32_inputs, info->f32_outputs), CVY_OK);
    *run = (struct kernel_run){.in_place = -1};
    kernel_run(kernel, suite.cpu, run);
    assert_string_equal(run->failure, "");
}

/* The y of a batch norm, and the same made again from the statistics that it gave. */
static void check_made_again(struct cvy_shape x, enum cvy_dtype dtype, bool residual, enum cvy_activation activation)
{
    struct kernel_case norm[2] = {kernel_begin(CVY_OP_BATCH_NORM, DATA_FLOATS, "first"),
                                  kernel_begin(CVY_OP_BATCH_NORM_APPLY, DATA_FLOATS, "again")};
    struct kernel_run run[2];
    const struct cvy_shape c = cvy_shape1(x.dim[1]);
    for (int i = 0; i < 2; i++) {
        norm[i].desc.attr.batch_norm =
            (struct cvy_batch_norm_attr){.eps = 1e-5f, .momentum = 0.1f, .activation = activation};
        kernel_input(&norm[i], x, FILL_SMALL);
        kernel_input(&norm[i], c, FILL_SMALL);
        kernel_input(&norm[i], c, FILL_SMALL);
        kernel_input(&norm[i], c, i ? FILL_GIVEN : FILL_SMALL);
        kernel_input(&norm[i], c, i ? FILL_GIVEN : FILL_POSITIVE);
        if (residual)
            kernel_input(&norm[i], x, FILL_SMALL);
        kernel_output(&norm[i], x, kernel_exact);
        for (int k = 0; !i && k < 4; k++)
            kernel_output(&norm[i], c, kernel_exact);
        kernel_fill_inputs(&norm[i], 11);
        for (int k = 3; i && k < 5; k++) {
            norm[1].in[k] = run[0].got[k - 2]; /* mean, rstd */
            run[0].got[k - 2] = NULL;
        }
        run_case(&norm[i], dtype, &run[i]);
    }
    assert_memory_equal(run[0].got[0], run[1].got[0], (size_t)cvy_shape_elements(&x) * cvy_dtype_size(dtype));
    for (int i = 0; i < 2; i++) {
        kernel_run_release(&run[i]);
        kernel_case_release(&norm[i]);
    }
}

static void test_batch_norm_made_again(void **state)
{
    (void)state;
    static const enum cvy_dtype types[] = {CVY_F32, CVY_BF16, CVY_F16};
    for (int t = 0; t < (suite.cpu->gpu ? 3 : 2); t++)
        for (int form = 0; form < 6; form++) {
            check_made_again(cvy_shape4(2, 48, 9, 7), types[t], form & 1, (enum cvy_activation)(form / 2));
            check_made_again(cvy_shape4(3, 21, 5, 3), types[t], form & 1, (enum cvy_activation)(form / 2));
        }
}

/* From here on the backend has no more than these instructions. False: they are all that the processor has. */
static bool lower_isa(const char *name)
{
    unsetenv("CONVOY_CPU_ISA");
    const enum cvy_isa whole = cvy_cpu_isa();
    setenv("CONVOY_CPU_ISA", name, 1);
    suite.lesser_isa = true;
    return cvy_cpu_isa() < whole;
}

static int time_kernels(int words, char **word)
{
    suite.time = true;
    if (words > 1 && strcmp(word[0], "--device") == 0) {
        suite_take_device(word[1]);
        words -= 2;
        word += 2;
    }
    suite.batch = words > 0 ? atoi(word[0]) : 0;
    if (suite.batch > 0) {
        words--;
        word++;
    }
    suite.words = word;
    suite.word_count = words;
    if (suite_open(NULL) != 0)
        return 1;
    printf("%s\n", suite.cpu->description);
    check_file("resnet.txt", true);
    check_file("resnext.txt", true);
    check_file("squeeze.txt", true);
    check_file("detection.txt", true);
    return suite_close(NULL);
}

/* What a GPU is asked beside the odd shapes, of which several processes may take a part each. */
#define GPU_REST                                                                                                       \
    cmocka_unit_test(test_update_steps), cmocka_unit_test(test_odd_addresses), cmocka_unit_test(test_loss_scale),      \
        cmocka_unit_test(test_batch_norm_made_again), cmocka_unit_test(test_network_shapes_on_gpu),                    \
        cmocka_unit_test(test_put), cmocka_unit_test(test_many_at_once), cmocka_unit_test(test_combine)

int main(int argc, char **argv)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(test_every_op_has_a_kernel),    cmocka_unit_test(test_odd_shapes),
        cmocka_unit_test(test_every_kernel_was_run),     cmocka_unit_test(test_network_shapes),
        cmocka_unit_test(test_wrong_labels_are_refused), cmocka_unit_test(test_update_steps),
        cmocka_unit_test(test_sigmoid_accuracy),         cmocka_unit_test(test_sigmoid_ends),
        cmocka_unit_test(test_focal_accuracy),           cmocka_unit_test(test_loss_scale),
        cmocka_unit_test(test_batch_norm_made_again),    cmocka_unit_test(test_combine),
        cmocka_unit_test(test_images_far_apart),         cmocka_unit_test(test_wrong_partners_are_refused)};
    const struct CMUnitTest gpu[] = {cmocka_unit_test(test_every_op_has_a_kernel), cmocka_unit_test(test_odd_shapes),
                                     cmocka_unit_test(test_every_kernel_was_run), GPU_REST};
    const struct CMUnitTest rest[] = {cmocka_unit_test(test_every_op_has_a_kernel), GPU_REST};
    const struct CMUnitTest networks[] = {cmocka_unit_test(test_network_shapes)};
    const struct CMUnitTest lesser[] = {
        cmocka_unit_test(test_odd_shapes),   cmocka_unit_test(test_every_kernel_was_run),
        cmocka_unit_test(test_update_steps), cmocka_unit_test(test_sigmoid_accuracy),
        cmocka_unit_test(test_sigmoid_ends), cmocka_unit_test(test_batch_norm_made_again),
        cmocka_unit_test(test_combine),      cmocka_unit_test(test_focal_accuracy)};
    const struct CMUnitTest tiles[] = {cmocka_unit_test(test_odd_shapes), cmocka_unit_test(test_tiles_were_run),
                                       cmocka_unit_test(test_images_far_apart)};
    const struct CMUnitTest part[] = {cmocka_unit_test(test_odd_shapes), cmocka_unit_test(test_what_is_left_is_said)};
    const struct CMUnitTest layouts[] = {cmocka_unit_test(test_odd_shapes),
                                         cmocka_unit_test(test_batch_norm_made_again)};
    if (argc > 1 && strcmp(argv[1], "--time") == 0)
        return time_kernels(argc - 2, argv + 2);
    if (argc > 2 && strcmp(argv[1], "--device") == 0) {
        suite_take_device(argv[2]);
        if (argc == 4 && strcmp(argv[3], "--rest") == 0)
            return cmocka_run_group_tests(rest, suite_open, suite_close);
        if (!suite_take_numbers(argc - 3, argv + 3)) {
            fprintf(stderr, "usage: test_kernels --device NAME [--rest] [--every N] [--part K] [--from N]\n");
            return 2;
        }
        return suite.every > 0 ? cmocka_run_group_tests(part, suite_open, suite_close)
                               : cmocka_run_group_tests(gpu, suite_open, suite_close);
    }
    if (argc > 1 && strcmp(argv[1], "--networks") == 0) {
        suite.all_shapes = true;
        return cmocka_run_group_tests(networks, suite_open, suite_close);
    }
    suite.whole = argc > 3 && strcmp(argv[3], "--whole") == 0;
    if (argc > 2 && strcmp(argv[1], "--isa") == 0) {
        if (!lower_isa(argv[2])) {
            fprintf(stderr, "skipped: this processor has no more than %s\n", cvy_isa_name(cvy_cpu_isa()));
            return 77;
        }
        return cmocka_run_group_tests(lesser, suite_open, suite_close);
    }
    if (argc > 1 && strcmp(argv[1], "--tiles") == 0) {
        if (cvy_cpu_isa() < CVY_ISA_AVX512_BF16) {
            fprintf(stderr, "skipped: this processor has no instructions for bf16\n");
            return 77;
        }
        setenv("CONVOY_CPU_LAYOUT", "nhwc", 1); /* tiles read no blocked ones */
        setenv("CONVOY_CPU_TILES", "model", 1);
        suite.lesser_isa = suite.convolutions = true;
        suite.whole = !INSTRUMENTED;
        return cmocka_run_group_tests(tiles, suite_open, suite_close);
    }
    if (argc > 2 && strcmp(argv[1], "--layout") == 0) {
        setenv("CONVOY_CPU_LAYOUT", argv[2], 1);
        suite.threads = 5; /* more than there are images, so that these are divided */
        suite.lesser_isa = true;
        return cmocka_run_group_tests(layouts, suite_open, suite_close);
    }
    return cmocka_run_group_tests(all, suite_open, suite_close);
}
