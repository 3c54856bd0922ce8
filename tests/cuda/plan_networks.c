/* plan_networks DESCRIPTION TABLE [all]
 *
 * Plans every network of the registry for a GPU that is not here, in every precision, for training and inference, and
 * looks at how each convolution would run: one line in TABLE for each that differs. Fails where a network has no plan,
 * where a convolution of f16 or bf16 or nearly all of TF32 do without tensor cores, or where one of strict f32 uses
 * them. Gradients of convolutions whose outputs are no multiple of 8 have no such engine: a detector's class predictor.
 * Training in 16 bits is planned a second time with statistics in the convolutions' own kernels, which must be found
 * for all of them: in f16 for resnet18 and resnet50, whose shapes are those of the deeper networks too; with "all" for
 * every network, and in bf16; under sanitizers for none. In f16 the batch norms before them are to be taken in
 * too, forward and backward; and a pass of resnet50 must not take more launches and bytes than were aimed at. 77: cuDNN
 * is not installed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/autotune.h"
#include "backend/plan.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/system.h"
#include "network/network.h"
#include "ops/ops.h"

enum { SKIPPED = 77, IMAGE_SIZE = 224, CLASSES = 1000 };

struct precision {
    const char *name;
    enum cvy_dtype dtype;
    bool tf32;
};
static const struct precision precisions[] = {
    {"fp32", CVY_F32, false}, {"tf32", CVY_F32, true}, {"fp16", CVY_F16, false}, {"bf16", CVY_BF16, false}};

/* A convolution as it would run. */
struct line {
    char *key; /* with the precision */
    char implementation[48], reason[160];
    size_t scratch;
};
static struct line *lines;
static size_t line_count, line_capacity;
static int failures, plans, convolutions, tf32, tf32_on_tensor_cores;
static int with_statistics, specialised; /* specialised: by engines that are there already */
static int with_norms;                   /* that take in a batch norm */

static bool is_convolution(enum cvy_op op)
{
    return op == CVY_OP_CONV2D || op == CVY_OP_CONV2D_BWD_DATA || op == CVY_OP_CONV2D_BWD_WEIGHTS;
}

static void out_of_memory(void)
{
    fprintf(stderr, "out of memory\n");
    exit(1);
}

/* Whether the step does the work of a batch norm before its convolution. */
static bool takes_norm(const struct cvy_op_desc *desc)
{
    return cvy_tensor_present(&desc->in[desc->op == CVY_OP_CONV2D ? 4 : 2]);
}

static void keep(const struct precision *precision, bool fused, const struct cvy_plan_step *step)
{
    struct cvy_text key = {0};

    if (fused && step->desc.op != CVY_OP_CONV2D && !takes_norm(&step->desc))
        return; /* as before */
    cvy_text_printf(&key, "%s%s ", precision->name, fused ? " fused" : "");
    cvy_autotune_key(&step->desc, 0, &key);
    if (key.failed)
        out_of_memory();
    for (size_t i = 0; i < line_count; i++) {
        if (strcmp(lines[i].key, key.text) == 0) {
            cvy_text_release(&key);
            return;
        }
    }
    if (line_count == line_capacity) {
        line_capacity = line_capacity ? 2 * line_capacity : 256;
        lines = cvy_realloc(lines, line_capacity, sizeof *lines);
        if (!lines)
            out_of_memory();
    }
    lines[line_count].key = key.text;
    memcpy(lines[line_count].implementation, step->kernel.implementation, sizeof lines->implementation);
    memcpy(lines[line_count].reason, step->kernel.reason, sizeof lines->reason);
    lines[line_count++].scratch = step->kernel.scratch_bytes;
}

/* The groups of 2 channels of its first stage: our plain kernel has them. */
static bool too_narrow(const char *network, const struct cvy_plan_step *step)
{
    return strcmp(network, "resnext101-32x8d-basic") == 0 && step->desc.attr.conv2d.groups == 32 &&
           strstr(step->kernel.reason, "groups of 2 channels is too narrow");
}

/* Sums in the precision that was asked for, on the units that are fast at it. */
static void inspect(const char *network, const struct precision *precision, const struct cvy_plan_step *step)
{
    const bool tensor_cores = strstr(step->kernel.reason, "tensor cores") != NULL;
    const bool strict = precision->dtype == CVY_F32 && !precision->tf32;

    if (too_narrow(network, step))
        return;
    convolutions++;
    tf32 += precision->tf32;
    tf32_on_tensor_cores += precision->tf32 && tensor_cores;
    if (strncmp(step->kernel.implementation, "cudnn engine ", 13) == 0 && (precision->tf32 || tensor_cores == !strict))
        return;
    fprintf(stderr, "%s %s, %s: %s runs on %s (%s)\n", network, precision->name, step->scope,
            cvy_ops[step->desc.op].name, step->kernel.implementation, step->kernel.reason);
    failures++;
}

/* A convolution before a batch norm, where its kernel is to make the statistics too. */
static void inspect_statistics(const char *network, const struct precision *precision, const struct cvy_plan_step *step)
{
    const bool compiled = strstr(step->kernel.reason, "runtime-compiled") != NULL;

    if (too_narrow(network, step))
        return;
    with_statistics++;
    specialised += !compiled;
    if (strncmp(step->kernel.implementation, "cudnn engine ", 13) == 0 &&
        strstr(step->kernel.implementation, ", statistics fused") &&
        (!compiled || strstr(step->kernel.reason, "tensor cores")))
        return;
    fprintf(stderr, "%s %s, %s: its statistics are not fused, %s (%s)\n", network, precision->name, step->scope,
            step->kernel.implementation, step->kernel.reason);
    failures++;
}

/* A convolution, or a gradient of it, that takes in the preceding batch norm. */
static void inspect_norm(const char *network, const struct cvy_plan_step *step)
{
    const bool ours = strcmp(step->kernel.kernel->name, "cuda.conv2d_bwd_data_pointwise") == 0;

    with_norms++;
    if (ours || (strstr(step->kernel.implementation, " fused") && !strstr(step->kernel.reason, "runtime-compiled")))
        return;
    fprintf(stderr, "%s, %s: %s with a batch norm runs on %s (%s)\n", network, step->scope, cvy_ops[step->desc.op].name,
            step->kernel.implementation, step->kernel.reason);
    failures++;
}

/* For 256 images in f16. 75 GB were aimed at; without the gradients that end blocks it is more than 73. */
enum { MOST_LAUNCHES = 330 };
static const double most_bytes = 71e9;

static void inspect_totals(const char *network, const struct precision *precision, const struct cvy_plan *plan)
{
    struct cvy_plan_totals totals;

    if (strcmp(network, "resnet50") != 0 || precision->dtype != CVY_F16)
        return;
    cvy_plan_sum(plan, &totals);
    printf("%s %s, everything fused: %" PRId64 " launches, %.2f GB; %.2f GB of memory\n", network, precision->name,
           totals.launches, (double)totals.bytes * 1e-9, (double)cvy_plan_bytes(plan) * 1e-9);
    if (totals.launches <= MOST_LAUNCHES && (double)totals.bytes <= most_bytes)
        return;
    fprintf(stderr, "%s %s: a pass takes more than %d launches and %.0f GB\n", network, precision->name, MOST_LAUNCHES,
            most_bytes * 1e-9);
    failures++;
}

static void plan_network(cvy_device *device, const struct cvy_architecture *architecture,
                         const struct precision *precision, enum cvy_model_mode mode, int64_t batch, bool fused)
{
    const struct cvy_model_options model = cvy_model_options_make(CLASSES, IMAGE_SIZE);
    struct cvy_plan plan = {0};
    struct cvy_graph graph;

    device->tf32 = precision->tf32;
    if (cvy_network_graph(architecture, &model, device, precision->dtype, mode, NULL, &graph) != CVY_OK ||
        cvy_plan_prepare(&plan, device, NULL, &graph, batch) != CVY_OK) {
        fprintf(stderr, "%s %s, batch %" PRId64 ": %s\n", architecture->name, precision->name, batch, cvy_error());
        failures++;
        return;
    }
    for (int32_t i = 0; i < plan.step_count; i++) {
        if (!is_convolution(plan.steps[i].desc.op))
            continue;
        if (takes_norm(&plan.steps[i].desc))
            inspect_norm(architecture->name, &plan.steps[i]);
        else if (plan.steps[i].desc.op == CVY_OP_CONV2D && fused && cvy_tensor_present(&plan.steps[i].desc.out[1]))
            inspect_statistics(architecture->name, precision, &plan.steps[i]);
        else
            inspect(architecture->name, precision, &plan.steps[i]);
        keep(precision, fused, &plan.steps[i]);
    }
    if (fused)
        inspect_totals(architecture->name, precision, &plan);
    plans++;
    cvy_plan_close(&plan);
}

static int compare_lines(const void *a, const void *b)
{
    return strcmp(((const struct line *)a)->key, ((const struct line *)b)->key);
}

static void write_table(const char *path, const char *device)
{
    FILE *file = fopen(path, "w");

    if (!file) {
        fprintf(stderr, "cannot write %s\n", path);
        failures++;
        return;
    }
    qsort(lines, line_count, sizeof *lines, compare_lines);
    fprintf(file, "# %s\n# convolution\tkernel\twhy\tscratch bytes\n", device);
    for (size_t i = 0; i < line_count; i++)
        fprintf(file, "%s\t%s\t%s\t%zu\n", lines[i].key, lines[i].implementation, lines[i].reason, lines[i].scratch);
    if (fclose(file) != 0)
        failures++;
}

#ifdef __SANITIZE_ADDRESS__
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* Whether its plans with fused statistics are made where not all are: cuDNN takes a fifth of a second for each
 * convolution. */
static bool is_quick(const struct cvy_architecture *architecture, const struct precision *precision)
{
    return !SANITIZED && precision->dtype == CVY_F16 &&
           (strcmp(architecture->name, "resnet18") == 0 || strcmp(architecture->name, "resnet50") == 0);
}

/* Under sanitizers one network of each kind has to do. */
static bool is_inspected(const struct cvy_architecture *architecture)
{
    return !SANITIZED || strcmp(architecture->name, "resnet18") == 0 ||
           strcmp(architecture->name, "se-resnext101-32x4d") == 0 || strcmp(architecture->name, "ssd320") == 0;
}

int main(int argc, char **argv)
{
    const double start = cvy_clock();
    const struct cvy_architecture *architecture;
    cvy_device *device = NULL, *fused = NULL;
    char name[4200];
    cvy_status status;

    if (argc != 3 && !(argc == 4 && strcmp(argv[3], "all") == 0))
        return 2;
    snprintf(name, sizeof name, "cuda:describe=%s", argv[1]);
    status = cvy_device_open(name, 0, &device);
    if (status == CVY_UNAVAILABLE && strstr(cvy_error(), "is not to be found")) {
        printf("skipped: %s\n", cvy_error());
        return SKIPPED;
    }
    setenv("CONVOY_CUDA_STATISTICS", "fused", 1);
    setenv("CONVOY_CUDA_PATTERNS", "fused", 1);
    setenv("CONVOY_CUDA_DETERMINISTIC", "sums", 1);
    if (status == CVY_OK)
        status = cvy_device_open(name, 0, &fused);
    if (status != CVY_OK) {
        fprintf(stderr, "%s\n", cvy_error());
        return 1;
    }
    for (size_t i = 0; (architecture = cvy_architecture_at(i)); i++) {
        /* As they are trained: what is deeper has the smaller batch. */
        if (!is_inspected(architecture))
            continue;
        const int64_t batch = strstr(architecture->name, "101") || strstr(architecture->name, "152") ? 128 : 256;
        for (size_t p = 0; p < sizeof precisions / sizeof *precisions; p++) {
            plan_network(device, architecture, &precisions[p], CVY_MODEL_TRAIN, batch, false);
            plan_network(device, architecture, &precisions[p], CVY_MODEL_INFER, 1, false);
            plan_network(device, architecture, &precisions[p], CVY_MODEL_INFER, 128, false);
            if (cvy_dtype_size(precisions[p].dtype) == 2 && (argc == 4 || is_quick(architecture, &precisions[p])))
                plan_network(fused, architecture, &precisions[p], CVY_MODEL_TRAIN, batch, true);
        }
    }
    /* Small ones that memory holds up are as fast without, and cuDNN may say so. */
    if (tf32_on_tensor_cores < 0.9 * tf32) {
        fprintf(stderr, "only %d of %d convolutions of tf32 use tensor cores\n", tf32_on_tensor_cores, tf32);
        failures++;
    }
    write_table(argv[2], device->description);
    cvy_device_close(device);
    cvy_device_close(fused);
    printf("%d plans, %d convolutions, %zu different ones; %d more with their statistics, %d of them by specialised "
           "engines, and %d with a batch norm; %.1f s\n",
           plans, convolutions, line_count, with_statistics, specialised, with_norms, cvy_clock() - start);
    for (size_t i = 0; i < line_count; i++)
        cvy_free(lines[i].key);
    cvy_free(lines);
    return failures ? 1 : 0;
}
