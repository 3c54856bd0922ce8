/* The suite of kernel cases: how one case is run, compared and timed. */
#include "support_checker.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/resources.h"
#include "base/system.h"
#include "ops/ops.h"
#include "support_executor.h"

struct kernel_suite suite;

static cvy_device *device_for(const struct kernel_case *kernel)
{
    return kernel->data == DATA_INTEGERS ? suite.direct : suite.cpu;
}

static bool same_layouts(const struct cvy_op_desc *a, const struct cvy_op_desc *b)
{
    for (int32_t i = 0; i < a->inputs; i++)
        if (cvy_tensor_present(&a->in[i]) && !cvy_layout_equal(&a->in[i].layout, &b->in[i].layout))
            return false;
    for (int32_t i = 0; i < a->outputs; i++)
        if (cvy_tensor_present(&a->out[i]) && !cvy_layout_equal(&a->out[i].layout, &b->out[i].layout))
            return false;
    return true;
}

/* A kernel that faulted takes the context of the GPU with it: every later case would fail. */
static void stop_if_broken(const struct kernel_case *kernel)
{
    uint32_t number = 0;
    void *memory = NULL;

    if (!suite.cpu->gpu)
        return;
    if (suite.backend->allocate(suite.cpu, sizeof number, &memory) == CVY_OK &&
        suite.backend->download(suite.cpu, &number, memory, sizeof number) == CVY_OK) {
        suite.backend->release(suite.cpu, memory);
        return;
    }
    fprintf(stderr, "case %d, %s, ended all work on the GPU: %s; continue with --from %d\n", suite.cases, kernel->name,
            cvy_error(), suite.cases + 1);
    exit(KERNELS_BROKEN);
}

static void report(const struct kernel_case *kernel, const struct kernel_run *run, const char *when)
{
    static const char *const data[] = {"integers", "floats", "special"};
    if (!run->failure[0])
        return;
    if (suite.failures++ < 40)
        fprintf(stderr, "%s, %s, %s, %s in, %s out, %s%s: %s\n", kernel->name, data[kernel->data],
                run->row ? run->row->name : "-", cvy_layout_name(&run->desc.in[0].layout),
                cvy_layout_name(&run->desc.out[0].layout), when, run->plan.implementation, run->failure);
    stop_if_broken(kernel);
}

static bool is_conv(enum cvy_op op)
{
    return op == CVY_OP_CONV2D || op == CVY_OP_CONV2D_BWD_DATA || op == CVY_OP_CONV2D_BWD_WEIGHTS;
}

static bool is_grouped(const struct cvy_kernel *row)
{
    return strncmp(row->name, "cpu.grouped_", strlen("cpu.grouped_")) == 0;
}

static void check_in_place(struct kernel_case *kernel, const struct kernel_run *first)
{
    for (int32_t output = 0; output < kernel->desc.outputs; output++) {
        if (first->plan.in_place[output] < 0)
            continue;
        struct kernel_run run = {.row = first->row, .variant = first->variant, .in_place = output};
        kernel_run(kernel, device_for(kernel), &run);
        kernel_compare(kernel, &run);
        report(kernel, &run, "in place ");
        kernel_run_release(&run);
        suite.runs++;
    }
}

bool suite_is_emulated(void)
{
    return strstr(suite.cpu->description, "emulated") != NULL;
}

/* Those of a GPU that leave cuDNN's sums, which it adds up in no fixed order. */
static bool sums_in_any_order(const struct cvy_kernel *row)
{
    return strcmp(row->name, "cuda.conv2d_statistics") == 0 || strcmp(row->name, "cuda.conv2d_prologue") == 0 ||
           strcmp(row->name, "cuda.conv2d_bwd_data_sums") == 0;
}

/* Our own kernels promise the same bits for any number of threads; most matrix products are oneDNN's. */
static bool thread_promise(const struct cvy_kernel *row)
{
    const enum cvy_op op = row->op;
    if (suite.cpu->gpu) /* has none, but must do the same again and again */
        return suite_is_emulated() || !sums_in_any_order(row);
    return is_grouped(row) || strcmp(row->name, "cpu.conv2d_bwd_weights_bf16") == 0 ||
           (is_conv(op) && strstr(row->name, "_tiles")) ||
           (!is_conv(op) && op != CVY_OP_LINEAR_BWD_DATA && op != CVY_OP_LINEAR_BWD_WEIGHTS);
}

/* Whether the run gave the bits of the first one. */
static void compare_with(const struct kernel_case *kernel, const struct kernel_run *first, struct kernel_run *run)
{
    for (int32_t i = 0; i < kernel->desc.outputs && !run->failure[0]; i++) {
        const struct cvy_tensor *tensor = &kernel->desc.out[i];
        const size_t bytes = (size_t)cvy_shape_elements(&tensor->shape) * cvy_dtype_size(tensor->dtype);
        if (cvy_tensor_present(tensor) && memcmp(run->got[i], first->got[i], bytes) != 0)
            snprintf(run->failure, sizeof(run->failure), "output %d depends on the number of threads", (int)i);
    }
}

static void check_threads(struct kernel_case *kernel, const struct kernel_run *first)
{
    if (!thread_promise(first->row))
        return;
    struct kernel_run run = {.row = first->row, .variant = first->variant, .in_place = -1};
    kernel_run(kernel, suite.single, &run);
    compare_with(kernel, first, &run);
    report(kernel, &run, "one thread ");
    kernel_run_release(&run);
    suite.runs++;
}

/* oneDNN's, whose threads wait for each other. */
static bool needs_all_threads(const struct cvy_kernel *row)
{
    return strcmp(row->name, "cpu.conv2d_bwd_weights") == 0 ||
           strcmp(row->name, "cpu.conv2d_winograd_bwd_weights") == 0;
}

/* Planned for several threads, of which OpenMP gives one: the same bits, of oneDNN's what is near enough, or refused.
 */
static void check_few_threads(struct kernel_case *kernel, const struct kernel_run *first)
{
    struct kernel_run run = {.row = first->row, .variant = first->variant, .in_place = -1, .few_threads = true};
    if (suite.cpu->gpu || kernel->data != DATA_FLOATS)
        return;
    kernel_run(kernel, device_for(kernel), &run);
    if (needs_all_threads(first->row)) {
        const bool refused = strstr(run.failure, "parallel region") != NULL;
        snprintf(run.failure, sizeof(run.failure), "%s", refused ? "" : "runs with fewer threads than it needs");
    } else if (thread_promise(first->row)) {
        compare_with(kernel, first, &run);
    } else {
        kernel_compare(kernel, &run);
    }
    report(kernel, &run, "fewer threads than planned for ");
    kernel_run_release(&run);
    suite.runs++;
}

static void time_row(struct kernel_case *kernel, const struct cvy_kernel *row)
{
    struct kernel_run run = {.row = row, .variant = VARIANT_BLOCKED16, .in_place = -1, .seconds = 0.2};
    if (!kernel_prepare_only(kernel, device_for(kernel), &run))
        return;
    run = (struct kernel_run){.row = row, .variant = VARIANT_BLOCKED16, .in_place = -1, .seconds = 0.2};
    kernel_run(kernel, device_for(kernel), &run);
    printf("%-64s %-32s %-8s %-28s %9.3f ms", kernel->name, row->name, cvy_layout_name(&run.desc.out[0].layout),
           run.plan.implementation, run.seconds * 1e3);
    if (kernel->flops > 0)
        printf(" %8.1f GFLOP/s", kernel->flops / run.seconds * 1e-9);
    if (kernel->bytes > 0)
        printf(" %8.1f GB/s", kernel->bytes / run.seconds * 1e-9);
    printf("%s\n", run.failure);
    fflush(stdout);
    kernel_run_release(&run);
}

static bool narrows(const struct kernel_case *kernel)
{
    const enum cvy_op op = kernel->desc.op;
    return (kernel->data == DATA_FLOATS || (kernel->data == DATA_SPECIAL && is_conv(op) && suite.convolutions)) &&
           (!kernel->fixed || op == CVY_OP_NORMALIZE) && (cvy_ops[op].f32_inputs & cvy_ops[op].f32_outputs) != ~0U;
}

/* In one type, where the name with it holds all the words. */
static void time_type(struct kernel_case *kernel, enum cvy_dtype dtype)
{
    const struct cvy_op_info *info = &cvy_ops[kernel->desc.op];
    for (int i = 0; i < suite.word_count; i++)
        if (!strstr(kernel->name, suite.words[i]))
            return;
    kernel_fill_inputs(kernel, 7);
    if (dtype != CVY_F32 && kernel_narrow(kernel, NULL, dtype, info->f32_inputs, info->f32_outputs) != CVY_OK)
        return;
    if (kernel->desc.in[0].dtype != CVY_F32 && dtype != CVY_F32)
        kernel->bytes /= 2; /* they are counted in f32 */
    for (size_t i = 0; i < suite.backend->kernel_count; i++)
        if (suite.backend->kernels[i].op == kernel->desc.op)
            time_row(kernel, &suite.backend->kernels[i]);
}

static void time_case(struct kernel_case *kernel)
{
    const enum cvy_dtype half = suite.cpu->gpu ? CVY_F16 : CVY_BF16;
    const size_t length = strlen(kernel->name);
    const struct cvy_op_desc desc = kernel->desc;
    if (kernel->data != DATA_FLOATS)
        return;
    if (!suite.cpu->gpu || !narrows(kernel))
        time_type(kernel, CVY_F32);
    if (!narrows(kernel))
        return;
    kernel->desc = desc;
    snprintf(kernel->name + length, sizeof(kernel->name) - length, " %s", cvy_dtype_name(half));
    time_type(kernel, half);
}

/* One way through one row: as it is, in place, with one thread, with fewer threads than it was planned for. */
static void check_run(struct kernel_case *kernel, const struct cvy_kernel *row, enum kernel_variant variant)
{
    struct kernel_run run = {.row = row, .variant = variant, .in_place = -1};
    kernel_run(kernel, device_for(kernel), &run);
    kernel_compare(kernel, &run);
    report(kernel, &run, "");
    suite.runs++;
    if (!run.failure[0]) {
        if (!suite.exercised[row - suite.backend->kernels]) {
            const struct cvy_op_desc asked = kernel_asked(kernel, variant);
            executor_prepare_starved(device_for(kernel), row, &asked);
        }
        suite.exercised[row - suite.backend->kernels] = true;
        check_in_place(kernel, &run);
        check_threads(kernel, &run);
        check_few_threads(kernel, &run);
    }
    kernel_run_release(&run);
}

/* All ways through one row that differ in the layouts they come out with. Marks the variants that it accepts. */
static void check_row(struct kernel_case *kernel, const struct cvy_kernel *row, bool answered[VARIANT_COUNT])
{
    struct cvy_op_desc seen[VARIANT_COUNT];
    int seen_count = 0;
    for (int variant = 0; variant < (kernel->fixed ? 1 : VARIANT_COUNT); variant++) {
        struct kernel_run run = {.row = row, .variant = (enum kernel_variant)variant, .in_place = -1};
        bool known = false;
        if (!kernel_prepare_only(kernel, device_for(kernel), &run))
            continue;
        answered[variant] = true;
        if (kernel->data == DATA_SPECIAL && is_conv(row->op) && !is_grouped(row))
            continue; /* the ReLU of oneDNN and cuDNN makes 0 of NaN */
        for (int i = 0; i < seen_count; i++)
            known = known || same_layouts(&run.desc, &seen[i]);
        if (known)
            continue;
        seen[seen_count++] = run.desc;
        check_run(kernel, row, run.variant);
    }
}

/* Every row of the table that takes the case; each way of asking must find one. */
static void check_rows(struct kernel_case *kernel)
{
    bool answered[VARIANT_COUNT] = {false};
    for (size_t i = 0; i < suite.backend->kernel_count; i++)
        if (suite.backend->kernels[i].op == kernel->desc.op)
            check_row(kernel, &suite.backend->kernels[i], answered);
    for (int variant = 0; variant < (kernel->fixed ? 1 : VARIANT_COUNT) && !kernel->optional; variant++) {
        struct kernel_run run = {.variant = (enum kernel_variant)variant, .in_place = -1};
        if (!answered[variant] && !kernel_prepare_only(kernel, device_for(kernel), &run))
            report(kernel, &run, ""); /* with what every row said */
    }
}

/* All rows that take the case in 16 bits, however the images come. */
static void check_narrow_rows(struct kernel_case *kernel)
{
    static const enum kernel_variant variants[] = {VARIANT_PLAIN, VARIANT_BLOCKED16};
    for (size_t v = 0; v < (kernel->fixed ? 1 : sizeof(variants) / sizeof(variants[0])); v++) {
        bool answered = false;
        for (size_t i = 0; i < suite.backend->kernel_count; i++) {
            struct kernel_run run = {.row = &suite.backend->kernels[i], .variant = variants[v], .in_place = -1};
            if (run.row->op != kernel->desc.op || !kernel_prepare_only(kernel, device_for(kernel), &run))
                continue;
            answered = true;
            if (kernel->data == DATA_SPECIAL && !is_grouped(run.row)) /* oneDNN's are not ours to judge */
                continue;
            check_run(kernel, run.row, variants[v]);
            suite.narrow_runs++;
            suite.narrowed[i] = true;
        }
        struct kernel_run run = {.variant = variants[v], .in_place = -1};
        /* oneDNN has convolutions in bf16 for AVX-512 only; weight gradients without groups are ours everywhere. */
        const bool must = suite.cpu->gpu || !is_conv(kernel->desc.op) || cvy_cpu_isa() >= CVY_ISA_AVX512 ||
                          (kernel->desc.op == CVY_OP_CONV2D_BWD_WEIGHTS && kernel->desc.attr.conv2d.groups == 1);
        if (!answered && must && !kernel->optional && !kernel_prepare_only(kernel, device_for(kernel), &run))
            report(kernel, &run, "");
    }
}

/* Bias, residual and activation of a convolution. cuDNN may round the sums to 16 bits before them, and where it has an
 * engine for that alone the bias: half a unit each of the largest numbers. */
static bool has_epilogue(const struct kernel_case *kernel)
{
    const struct cvy_op_desc *desc = &kernel->desc;
    return desc->op == CVY_OP_CONV2D && desc->inference;
}

/* The case once more with the types that its op has in a network of bf16, and on a GPU in one of f16. */
static void check_narrow(struct kernel_case *kernel)
{
    static const enum cvy_dtype types[] = {CVY_BF16, CVY_F16};
    const struct cvy_op_info *info = &cvy_ops[kernel->desc.op];
    const struct cvy_op_desc desc = kernel->desc;
    const size_t length = strlen(kernel->name);
    for (int i = 0; i < (suite.cpu->gpu ? 2 : 1); i++) {
        snprintf(kernel->name + length, sizeof(kernel->name) - length, " %s", cvy_dtype_name(types[i]));
        kernel->desc = desc;
        kernel->rounded_weights = suite.cpu->gpu;
        if (has_epilogue(kernel) && suite.cpu->gpu && !suite_is_emulated())
            kernel->inner_roundings = 2;
        kernel_fill_inputs(kernel, (uint64_t)suite.cases);
        if (kernel_narrow(kernel, suite.ref, types[i], info->f32_inputs, info->f32_outputs) == CVY_OK) {
            check_narrow_rows(kernel);
            continue;
        }
        struct kernel_run run = {.desc = kernel->desc};
        snprintf(run.failure, sizeof(run.failure), "%s", cvy_error());
        report(kernel, &run, "");
    }
}

void kernel_check(struct kernel_case *kernel)
{

    if (suite.time) {
        time_case(kernel);
        kernel_case_release(kernel);
        return;
    }
    suite.cases++;
    if (suite.cases < suite.from || (suite.every > 0 && suite.cases % suite.every != suite.part)) {
        kernel_case_release(kernel);
        return;
    }
    kernel_fill_inputs(kernel, (uint64_t)suite.cases);
    if (kernel_reference(kernel, suite.ref) != CVY_OK) {
        struct kernel_run run = {.desc = kernel->desc};
        snprintf(run.failure, sizeof(run.failure), "%s", cvy_error());
        report(kernel, &run, "");
        kernel_case_release(kernel);
        return;
    }
    check_rows(kernel);
    if (narrows(kernel))
        check_narrow(kernel);
    kernel_case_release(kernel);
}

struct kernel_case kernel_begin(enum cvy_op op, enum kernel_data data, const char *format, ...)
{
    struct kernel_case kernel = {.desc = {.op = op}, .data = data};
    for (int i = 0; i < CVY_MAX_INPUTS; i++)
        kernel.desc.in[i].shape.rank = -1;
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
        kernel.desc.out[i].shape.rank = -1;
    const int length = snprintf(kernel.name, sizeof(kernel.name), "%s ", cvy_ops[op].name);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(kernel.name + length, sizeof(kernel.name) - (size_t)length, format, arguments);
    va_end(arguments);
    return kernel;
}

struct kernel_bound kernel_sum_bound(enum kernel_data data, double terms, double deviation)
{
    if (data == DATA_INTEGERS)
        return (struct kernel_bound){0};
    return (struct kernel_bound){.ulps = 8 + 2 * sqrt(terms), .scale = sqrt(terms) * deviation};
}

/* A GPU has neither Winograd's algorithm nor threads. 77: it is not here. */
static int open_gpu(void)
{
    const cvy_status status = cvy_device_open(suite.name, 0, &suite.cpu);
    if (status == CVY_UNAVAILABLE) {
        fprintf(stderr, "skipped: %s\n", cvy_error());
        exit(77);
    }
    suite.direct = suite.single = suite.cpu;
    return status == CVY_OK && cvy_device_open("ref", 0, &suite.ref) == CVY_OK;
}

static bool open_cpu(void)
{
    const int threads = suite.threads > 0 ? suite.threads : cvy_default_threads() > 1 || suite.time ? 0 : 2;
    bool open =
        cvy_device_open("cpu", 1, &suite.single) == CVY_OK && cvy_device_open("ref", threads, &suite.ref) == CVY_OK;
    open = open && setenv("CONVOY_CPU_WINOGRAD", "1", 1) == 0 && cvy_device_open("cpu", threads, &suite.cpu) == CVY_OK;
    open =
        open && setenv("CONVOY_CPU_WINOGRAD", "0", 1) == 0 && cvy_device_open("cpu", threads, &suite.direct) == CVY_OK;
    return unsetenv("CONVOY_CPU_WINOGRAD") == 0 && open;
}

void suite_take_device(const char *name)
{
    suite.name = name;
    setenv("CONVOY_CUDA_DETERMINISTIC", "sums", 1);
    setenv("CONVOY_CUDA_STATISTICS", "fused", 1);
    setenv("CONVOY_CUDA_GROUPED", "own", 1);
    setenv("CONVOY_CUDA_FIRST", "own", 1);
    setenv("CONVOY_CUDA_POINTWISE", "own", 1);
}

bool suite_take_numbers(int words, char **word)
{
    static const char *const names[] = {"--from", "--every", "--part"};
    int *const numbers[] = {&suite.from, &suite.every, &suite.part};

    for (; words > 0; words -= 2, word += 2) {
        int i = 0;
        while (i < 3 && strcmp(word[0], names[i]) != 0)
            i++;
        if (i == 3 || words == 1)
            return false;
        *numbers[i] = atoi(word[1]);
    }
    return true;
}

int suite_open(void **state)
{
    (void)state;
    if (suite.name ? open_gpu() : open_cpu()) {
        suite.backend = suite.cpu->backend;
        if (suite.backend->kernel_count <= MAX_ROWS)
            return 0;
        fprintf(stderr, "MAX_ROWS is too small for %zu rows\n", suite.backend->kernel_count);
        return -1;
    }
    fprintf(stderr, "%s\n", cvy_error());
    return -1;
}

int suite_close(void **state)
{
    (void)state;
    cvy_device_close(suite.cpu);
    if (suite.direct != suite.cpu) {
        cvy_device_close(suite.direct);
        cvy_device_close(suite.single);
    }
    cvy_device_close(suite.ref);
    return 0;
}
