/* `convoy info` as text. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/resources.h"
#include "base/system.h"
#include "convoy/train.h"
#include "info/info_internal.h"
#include "ops/ops.h"

const char *cvy_info_phase(const struct cvy_plan_step *step)
{
    return step->setup ? "setup" : step->backward ? "backward" : "forward";
}

const char *cvy_info_storage(enum cvy_storage storage)
{
    static const char *const names[] = {"activation", "constant", "input", "weight", "gradient", "state"};

    return names[storage];
}

static double mebibytes(size_t bytes)
{
    return (double)bytes / (1024.0 * 1024.0);
}

/* A word of a list that is broken before column 100; `column` is where the line stands. */
static void add_word(const char *word, size_t *column, struct cvy_text *text)
{
    const size_t length = strlen(word) + 1;

    if (*column + length > 100) {
        cvy_text_puts(text, "\n         ");
        *column = 9;
    }
    cvy_text_printf(text, " %s", word);
    *column += length;
}

/* Those that are alone in their files together, then a paragraph for each file. */
static void recipes_text(struct cvy_text *text)
{
    const char *last = "";
    size_t column = 9;

    cvy_text_puts(text, "\nrecipes  ");
    for (size_t i = 0; cvy_recipe_name(i); i++) {
        if (strcmp(cvy_recipe_name(i), cvy_recipe_file(i)) == 0)
            add_word(cvy_recipe_name(i), &column, text);
    }
    for (size_t i = 0; cvy_recipe_name(i); i++) {
        if (strcmp(cvy_recipe_name(i), cvy_recipe_file(i)) == 0)
            continue;
        if (strcmp(cvy_recipe_file(i), last) != 0)
            column = 100;
        last = cvy_recipe_file(i);
        add_word(cvy_recipe_name(i), &column, text);
    }
}

/* Without the ones that the processor has no instructions for. */
static void peaks_text(const struct cvy_info_facts *facts, struct cvy_text *text)
{
    const struct cvy_device_peak *peak = &facts->peak;

    if (!(peak->flops_f32 > 0))
        return;
    cvy_text_printf(text, "peak      %.0f GFLOP/s in fp32", peak->flops_f32 * 1e-9);
    if (peak->flops_bf16 > 0)
        cvy_text_printf(text, ", %.0f in bf16", peak->flops_bf16 * 1e-9);
    if (peak->ops_int8 > 0)
        cvy_text_printf(text, ", %.0f Gop/s in int8", peak->ops_int8 * 1e-9);
    cvy_text_puts(text, "\n");
}

static void available_text(const struct cvy_info_device *one, struct cvy_text *text)
{
    cvy_text_printf(text, "%-8s  %s%s\n", one->name, one->available ? "" : "missing: ", one->text);
}

static void machine_text(const struct cvy_info_facts *facts, struct cvy_text *text)
{
    cvy_text_printf(text, "convoy %s\n", cvy_version());
    cvy_text_printf(text, "CPU       %s, %s, %s\n", cvy_cpu_name(), cvy_counted(cvy_default_threads(), "thread"),
                    cvy_cpu_features());
    peaks_text(facts, text);
    for (int i = 0; i < CVY_INFO_DEVICES; i++)
        available_text(&facts->devices[i], text);
    available_text(&facts->drawing, text);
    available_text(&facts->serving, text);
    for (int i = 0; i < CVY_INFO_MPIS; i++)
        available_text(&facts->mpis[i], text);
    cvy_text_puts(text, "networks ");
    for (size_t i = 0; cvy_architecture_at(i); i++)
        cvy_text_printf(text, " %s", cvy_architecture_at(i)->name);
    recipes_text(text);
}

static void add_tensor(struct cvy_text *text, const struct cvy_tensor *tensor)
{
    char shape[96];

    cvy_text_printf(text, " %s:%s:%s", cvy_shape_text(&tensor->shape, shape), cvy_dtype_name(tensor->dtype),
                    cvy_layout_name(&tensor->layout));
}

/* "   3.214 ms  210.3 GFLOP/s" */
static void add_speed(double seconds, double flops, double bytes, bool product, struct cvy_text *text)
{
    const double rate = seconds > 0 ? (product ? flops : bytes) / seconds * 1e-9 : 0;

    cvy_text_printf(text, " %9.3f ms %7.1f %-7s", seconds * 1e3, rate, product ? "GFLOP/s" : "GB/s");
}

/* What is said of a step that is run part by part. */
static void chain_text(const struct cvy_plan_chain *chain, bool first, struct cvy_text *text)
{
    if (first)
        cvy_text_printf(text, "  [with the next %s, %d pixels at a time]", chain->chain.count == 2 ? "one" : "ones",
                        (int)chain->chain.part);
    else
        cvy_text_puts(text, "  [with the one before]");
}

static void step_text(const struct cvy_info_facts *facts, const struct cvy_plan_step *step, struct cvy_text *text)
{
    cvy_text_printf(text, "%-8s %-26s %-22s", cvy_info_phase(step), cvy_ops[step->desc.op].name,
                    step->scope[0] ? step->scope : "-");
    if (facts->runs > 0)
        add_speed(step->seconds, step->flops, (double)cvy_plan_step_bytes(facts->plan, step), cvy_info_is_product(step),
                  text);
    cvy_text_printf(text, " %s", step->kernel.kernel->name);
    if (step->kernel.implementation[0])
        cvy_text_printf(text, " (%s)", step->kernel.implementation);
    for (int i = 0; i < step->desc.inputs; i++) {
        if (cvy_tensor_present(&step->desc.in[i]))
            add_tensor(text, &step->desc.in[i]);
    }
    cvy_text_puts(text, " ->");
    for (int i = 0; i < step->desc.outputs; i++) {
        if (cvy_tensor_present(&step->desc.out[i]))
            add_tensor(text, &step->desc.out[i]);
    }
    if (strcmp(step->kernel.reason, CVY_REASON_FIRST) != 0)
        cvy_text_printf(text, "  [%s]", step->kernel.reason);
    if (step->chain >= 0)
        chain_text(&facts->plan->chains[step->chain],
                   step == &facts->plan->steps[facts->plan->chains[step->chain].from], text);
    cvy_text_puts(text, "\n");
}

const char *cvy_info_squeeze(const struct cvy_info_facts *facts, char buffer[16])
{
    const int32_t chosen = facts->model.resnet.squeeze_width;

    return cvy_squeeze_width_text(chosen ? chosen : facts->architecture->squeeze_width, buffer);
}

static void memory_text(const struct cvy_info_facts *facts, enum cvy_model_mode mode, struct cvy_text *text)
{
    const struct cvy_info_memory *memory = &facts->memory[mode];
    const char *what = mode == CVY_MODEL_TRAIN ? "training" : "inference";

    if (memory->refused[0])
        cvy_text_printf(text, "memory       %s, batch of %d: %s\n", what, (int)memory->batch, memory->refused);
    else
        cvy_text_printf(text, "memory       %s, batch of %d: about %.0f MiB (%.1f of it parameters, %.1f plan)\n", what,
                        (int)memory->batch, mebibytes(memory->estimate.total), mebibytes(memory->estimate.parameters),
                        mebibytes(memory->estimate.workspace));
}

/* What the file says about its post-training quantisation. */
static void calibration_text(const struct cvy_json_value *quantization, struct cvy_text *text)
{
    const struct cvy_json_value *floats = cvy_json_get(quantization, "floats");

    cvy_text_printf(text, "calibration  %s, %s", cvy_quote(cvy_json_get_string(quantization, "calibration", "")),
                    cvy_counted(cvy_json_get_int(quantization, "images", 0), "image"));
    for (const struct cvy_json_value *name = floats ? floats->first : NULL; name; name = name->next) {
        cvy_text_puts(text, name == floats->first ? "; in floats stay " : ", ");
        cvy_text_puts(text, cvy_quote(name->text ? name->text : ""));
    }
    cvy_text_puts(text, "\n");
}

static double percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

/* The kinds of steps, what they take, and how much of the machine that is. */
static void sums_text(const struct cvy_info_facts *facts, struct cvy_text *text)
{
    const struct cvy_device_peak *limits = &facts->limits;
    const bool known = limits->flops_f32 > 0;
    const int parts = (int)(facts->batch / facts->plan->batch), passes = (parts + facts->streams - 1) / facts->streams;
    struct cvy_info_sums sums;

    cvy_info_sum(facts, &sums);
    cvy_text_printf(text, "\n%-26s %5s %12s %15s %8s%s\n", "shortest of runs", "steps", "time", "", "share",
                    known ? "  of the limit" : "");
    for (int op = 0; op < CVY_OP_COUNT; op++) {
        const struct cvy_info_kind *kind = &sums.kinds[op];
        if (kind->steps == 0)
            continue;
        cvy_text_printf(text, "%-26s %5d", cvy_ops[op].name, (int)kind->steps);
        add_speed(kind->seconds, kind->flops, kind->bytes, kind->product, text);
        cvy_text_printf(text, " %6.1f %%", percent(kind->seconds, sums.seconds));
        if (known)
            cvy_text_printf(text, " %12.1f %%", percent(kind->min_seconds, kind->seconds));
        cvy_text_puts(text, "\n");
    }
    cvy_text_printf(text, "all steps %.1f ms", sums.seconds * 1e3);
    if (passes > 1)
        cvy_text_printf(text, ", %d times", passes);
    if (facts->streams > 1)
        cvy_text_printf(text, " in each of %d streams", facts->streams);
    cvy_text_printf(text, "; with what is around them %.1f ms, %.2f images/s\n", facts->iteration_seconds * 1e3,
                    (double)facts->batch / facts->iteration_seconds);
    if (!known)
        return;
    if (facts->device->gpu)
        cvy_text_printf(text, "the limit of this GPU: %.0f TFLOP/s in %s, %.0f in 16 bits; a copy %.0f GB/s\n",
                        limits->flops_f32 * 1e-12, facts->device->tf32 ? "tf32" : "fp32", limits->flops_bf16 * 1e-12,
                        limits->copy * 1e-9);
    else
        cvy_text_printf(
            text,
            "the limit of this machine: %.0f GFLOP/s in fp32, %.0f in bf16, %.0f Gop/s in int8; memory: read "
            "%.1f, copy %.1f, triad %.1f GB/s\n",
            limits->flops_f32 * 1e-9, limits->flops_bf16 * 1e-9, limits->ops_int8 * 1e-9, limits->read * 1e-9,
            limits->copy * 1e-9, limits->triad * 1e-9);
    cvy_text_printf(text, "operations at that rate, else bytes at that rate: %.1f ms, %.1f %% of the steps' time\n",
                    sums.min_seconds * 1e3, percent(sums.min_seconds, sums.seconds));
}

const char *cvy_info_precision(const struct cvy_info_facts *facts)
{
    return cvy_info_int8_states(facts, facts->training ? CVY_MODEL_TRAIN : CVY_MODEL_INFER)
               ? "int8"
               : cvy_precision_name(facts->dtype, facts->device);
}

/* What a pass costs by what its kernels say. */
static void totals_text(const struct cvy_info_facts *facts, struct cvy_text *text)
{
    struct cvy_plan_totals totals;

    cvy_plan_sum(facts->plan, &totals);
    cvy_text_puts(text, "\nplan pass    ");
    if (facts->device->gpu)
        cvy_text_printf(text, "%lld launches, ", (long long)totals.launches);
    cvy_text_printf(text, "%.2f GB read and written, %.3f TFLOP%s", (double)totals.bytes * 1e-9, totals.flops * 1e-12,
                    facts->plan->batch < facts->batch ? ", of one part" : "");
}

void cvy_info_text(const struct cvy_info_facts *facts, struct cvy_text *text)
{
    const struct cvy_plan *plan = facts->plan;
    char squeeze[16], at_once[64] = "", streams[32] = "";

    if (facts->machine) {
        machine_text(facts, text);
        return;
    }
    if (facts->file)
        cvy_text_printf(text, "file         %s\n", facts->file);
    if (facts->weights.has_state && facts->weights.state.best_epoch >= 0) {
        cvy_text_puts(text, "trained      ");
        cvy_text_count(text, facts->weights.state.epoch, "epoch");
        cvy_text_printf(text, ", best validation %s %.2f %%\n",
                        facts->architecture->task == CVY_TASK_DETECT ? "AP" : "top-1", facts->weights.state.best_score);
    }
    cvy_text_printf(text, "network      %s\nclasses      %d\nimage size   %d\n", facts->architecture->name,
                    (int)facts->model.num_classes, (int)facts->model.image_size);
    if (facts->model.resnet.same_padding)
        cvy_text_puts(text, "padding      same\n");
    if (facts->model.quantize != CVY_QUANTIZE_NONE)
        cvy_text_printf(text, "quantized    %s\n", cvy_quantize_name(facts->model.quantize));
    if (facts->quantizer_states)
        cvy_text_printf(text, "inference    %s\n",
                        facts->int8
                            ? "in 8-bit integers"
                            : "in floats with rounded values: no integers for this form, device or --precision");
    if (facts->file && facts->weights.quantization)
        calibration_text(facts->weights.quantization, text);
    if (facts->architecture->squeeze_width != 0)
        cvy_text_printf(text, "squeeze      %s\n", cvy_info_squeeze(facts, squeeze));
    cvy_text_printf(text, "parameters   %lld\nGMAC         %.3f for an image\n", (long long)facts->parameters,
                    facts->macs / 1e9);
    memory_text(facts, CVY_MODEL_INFER, text);
    memory_text(facts, CVY_MODEL_TRAIN, text);
    if (facts->streams > 1)
        snprintf(streams, sizeof streams, " in each of %d streams", facts->streams);
    if (plan->batch < facts->batch)
        snprintf(at_once, sizeof at_once, ", %d at a time%s", (int)plan->batch, streams);
    cvy_text_printf(text, "plan         %s of %s%s, %s, on %s (%s), %s: %s\n",
                    facts->training ? "training" : "inference", cvy_counted(facts->batch, "image"), at_once,
                    cvy_info_precision(facts), facts->device->backend->name, facts->device->description,
                    cvy_counted(facts->device->threads, "thread"), cvy_counted(plan->step_count, "step"));
    if (plan->images != CVY_IMAGES_DEVICE)
        cvy_text_printf(text, "plan images  %s: %s\n", cvy_images_name(plan->images), plan->images_reason);
    cvy_text_printf(
        text, "plan memory  activations %.2f MiB%s (%.2f live at once; scratch of a step up to %.2f), constants %.2f",
        mebibytes(plan->activation_bytes), facts->streams > 1 ? " of each stream" : "",
        mebibytes(cvy_plan_live_bytes(plan)), mebibytes(plan->scratch_bytes), mebibytes(plan->constant_bytes));
    totals_text(facts, text);
    if (!facts->steps)
        return;
    cvy_text_puts(text, "\n\n");
    for (int32_t s = 0; s < plan->step_count; s++)
        step_text(facts, &plan->steps[s], text);
    if (facts->runs > 0)
        sums_text(facts, text);
    text->text[--text->length] = '\0'; /* the caller ends the last line */
}
