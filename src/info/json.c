/* `convoy info --format json`. */
#include <stdio.h>
#include <string.h>

#include "base/resources.h"
#include "base/system.h"
#include "convoy/train.h"
#include "info/info_internal.h"
#include "ops/ops.h"

/* "name": {"available", "description" or "reason"} */
static void put_available(struct cvy_json *json, const struct cvy_info_device *one)
{
    cvy_json_key(json, one->name);
    cvy_json_begin_object(json);
    cvy_json_put_bool(json, "available", one->available);
    cvy_json_put_string(json, one->available ? "description" : "reason", one->text);
    cvy_json_end_object(json);
}

static void machine_json(const struct cvy_info_facts *facts, struct cvy_json *json)
{
    cvy_json_put_string(json, "version", cvy_version());
    cvy_json_put_string(json, "cpu", cvy_cpu_name());
    cvy_json_put_string(json, "isa", cvy_isa_name(cvy_cpu_isa()));
    cvy_json_put_string(json, "features", cvy_cpu_features());
    if (facts->peak.flops_f32 > 0) {
        cvy_json_put_number(json, "peak_gflops_f32", facts->peak.flops_f32 * 1e-9);
        cvy_json_put_number(json, "peak_gflops_bf16", facts->peak.flops_bf16 * 1e-9);
        cvy_json_put_number(json, "peak_gops_int8", facts->peak.ops_int8 * 1e-9);
    }
    cvy_json_put_int(json, "threads", cvy_default_threads());
    cvy_json_key(json, "devices");
    cvy_json_begin_array(json);
    for (int i = 0; i < CVY_INFO_DEVICES; i++) {
        cvy_json_begin_object(json);
        cvy_json_put_string(json, "name", facts->devices[i].name);
        cvy_json_put_bool(json, "available", facts->devices[i].available);
        cvy_json_put_string(json, facts->devices[i].available ? "description" : "reason", facts->devices[i].text);
        if (facts->devices[i].properties) {
            cvy_json_key(json, "properties");
            cvy_json_raw(json, facts->devices[i].properties);
        }
        cvy_json_end_object(json);
    }
    cvy_json_end_array(json);
    put_available(json, &facts->drawing);
    put_available(json, &facts->serving);
    cvy_json_key(json, "mpi");
    cvy_json_begin_array(json);
    for (int i = 0; i < CVY_INFO_MPIS; i++) {
        cvy_json_begin_object(json);
        cvy_json_put_string(json, "name", facts->mpis[i].name);
        cvy_json_put_bool(json, "available", facts->mpis[i].available);
        cvy_json_put_string(json, facts->mpis[i].available ? "description" : "reason", facts->mpis[i].text);
        cvy_json_end_object(json);
    }
    cvy_json_end_array(json);
    cvy_json_key(json, "architectures");
    cvy_json_begin_array(json);
    for (size_t i = 0; cvy_architecture_at(i); i++)
        cvy_json_string(json, cvy_architecture_at(i)->name);
    cvy_json_end_array(json);
    cvy_json_key(json, "recipes");
    cvy_json_begin_array(json);
    for (size_t i = 0; cvy_recipe_name(i); i++)
        cvy_json_string(json, cvy_recipe_name(i));
    cvy_json_end_array(json);
}

static void shape_json(struct cvy_json *json, const struct cvy_shape *shape)
{
    cvy_json_key(json, "shape");
    cvy_json_begin_array(json);
    for (int32_t i = 0; i < shape->rank; i++)
        cvy_json_int(json, shape->dim[i]);
    cvy_json_end_array(json);
}

/* Operands of a step; `tensors` are their indices in the list of tensors. */
static void operands_json(struct cvy_json *json, const char *key, const struct cvy_tensor *operands,
                          const cvy_val *tensors, int32_t count)
{
    cvy_json_key(json, key);
    cvy_json_begin_array(json);
    for (int32_t i = 0; i < count; i++) {
        if (!cvy_tensor_present(&operands[i]))
            continue;
        cvy_json_begin_object(json);
        cvy_json_put_int(json, "tensor", tensors[i]);
        shape_json(json, &operands[i].shape);
        cvy_json_put_string(json, "dtype", cvy_dtype_name(operands[i].dtype));
        cvy_json_put_string(json, "layout", cvy_layout_name(&operands[i].layout));
        cvy_json_end_object(json);
    }
    cvy_json_end_array(json);
}

static void put_rates(struct cvy_json *json, double seconds, double flops, double bytes)
{
    cvy_json_put_number(json, "seconds", seconds);
    cvy_json_put_number(json, "gflops", seconds > 0 ? flops / seconds * 1e-9 : 0);
    cvy_json_put_number(json, "gbps", seconds > 0 ? bytes / seconds * 1e-9 : 0);
}

static void step_json(struct cvy_json *json, const struct cvy_info_facts *facts, const struct cvy_plan_step *step)
{
    const int64_t bytes = cvy_plan_step_bytes(facts->plan, step);

    cvy_json_begin_object(json);
    cvy_json_put_string(json, "op", cvy_ops[step->desc.op].name);
    cvy_json_put_string(json, "scope", step->scope);
    cvy_json_put_string(json, "phase", cvy_info_phase(step));
    cvy_json_put_string(json, "kernel", step->kernel.kernel->name);
    cvy_json_put_string(json, "implementation", step->kernel.implementation);
    cvy_json_put_string(json, "reason", step->kernel.reason);
    operands_json(json, "inputs", step->desc.in, step->in, step->desc.inputs);
    operands_json(json, "outputs", step->desc.out, step->out, step->desc.outputs);
    cvy_json_put_number(json, "flops", step->flops);
    cvy_json_put_int(json, "bytes", (int64_t)bytes);
    cvy_json_put_int(json, "scratch_bytes", (int64_t)step->kernel.scratch_bytes);
    if (step->chain >= 0) {
        cvy_json_put_int(json, "chain", step->chain);
        cvy_json_put_int(json, "chain_pixels", facts->plan->chains[step->chain].chain.part);
    }
    if (facts->runs > 0)
        put_rates(json, step->seconds, step->flops, (double)bytes);
    cvy_json_end_object(json);
}

/* "measured": the sums over the steps, by op, and what the machine can do. */
static void measured_json(struct cvy_json *json, const struct cvy_info_facts *facts)
{
    const struct cvy_device_peak *limits = &facts->limits;
    struct cvy_info_sums sums;

    cvy_info_sum(facts, &sums);
    cvy_json_key(json, "measured");
    cvy_json_begin_object(json);
    cvy_json_put_int(json, "runs", facts->runs);
    cvy_json_put_number(json, "iteration_seconds", facts->iteration_seconds);
    cvy_json_put_number(json, "seconds", sums.seconds);
    cvy_json_key(json, "kinds");
    cvy_json_begin_array(json);
    for (int op = 0; op < CVY_OP_COUNT; op++) {
        const struct cvy_info_kind *kind = &sums.kinds[op];
        if (kind->steps == 0)
            continue;
        cvy_json_begin_object(json);
        cvy_json_put_string(json, "op", cvy_ops[op].name);
        cvy_json_put_int(json, "steps", kind->steps);
        put_rates(json, kind->seconds, kind->flops, kind->bytes);
        if (limits->flops_f32 > 0)
            cvy_json_put_number(json, "limit_seconds", kind->min_seconds);
        cvy_json_end_object(json);
    }
    cvy_json_end_array(json);
    if (limits->flops_f32 > 0) {
        cvy_json_put_number(json, "limit_seconds", sums.min_seconds);
        cvy_json_put_number(json, "gflops_f32", limits->flops_f32 * 1e-9);
        cvy_json_put_number(json, "gflops_bf16", limits->flops_bf16 * 1e-9);
        cvy_json_put_number(json, "gops_int8", limits->ops_int8 * 1e-9);
        cvy_json_put_number(json, "gbps_read", limits->read * 1e-9);
        cvy_json_put_number(json, "gbps_copy", limits->copy * 1e-9);
        cvy_json_put_number(json, "gbps_triad", limits->triad * 1e-9);
    }
    cvy_json_end_object(json);
}

/* first and last: the steps between which the tensor must keep its values; alias: the tensor whose memory it took. */
static void tensor_json(struct cvy_json *json, const struct cvy_plan_tensor *tensor)
{
    cvy_json_begin_object(json);
    cvy_json_put_int(json, "value", tensor->value);
    cvy_json_put_string(json, "storage", cvy_info_storage(tensor->storage));
    shape_json(json, &tensor->tensor.shape);
    cvy_json_put_string(json, "dtype", cvy_dtype_name(tensor->tensor.dtype));
    cvy_json_put_string(json, "layout", cvy_layout_name(&tensor->tensor.layout));
    cvy_json_put_int(json, "first", tensor->first);
    cvy_json_put_int(json, "last", tensor->last);
    cvy_json_put_int(json, "alias", tensor->alias);
    cvy_json_put_int(json, "bytes", (int64_t)tensor->bytes);
    cvy_json_put_int(json, "offset", (int64_t)tensor->offset);
    cvy_json_end_object(json);
}

/* What a pass costs by what its kernels say; a GPU's optimizer is not part of the plan. */
static void totals_json(struct cvy_json *json, const struct cvy_info_facts *facts)
{
    struct cvy_plan_totals totals;

    cvy_plan_sum(facts->plan, &totals);
    cvy_json_key(json, "pass");
    cvy_json_begin_object(json);
    if (facts->device->gpu)
        cvy_json_put_int(json, "launches", totals.launches);
    cvy_json_put_int(json, "bytes", totals.bytes);
    cvy_json_put_number(json, "flops", totals.flops);
    cvy_json_end_object(json);
}

static void plan_json(struct cvy_json *json, const struct cvy_info_facts *facts)
{
    const struct cvy_plan *plan = facts->plan;

    cvy_json_put_string(json, "mode", facts->training ? "train" : "infer");
    cvy_json_put_int(json, "batch_size", facts->batch);
    cvy_json_put_int(json, "images_at_once", plan->batch);
    cvy_json_put_int(json, "streams", facts->streams);
    cvy_json_put_string(json, "precision", cvy_info_precision(facts));
    cvy_json_put_string(json, "device", facts->device->backend->name);
    cvy_json_put_string(json, "device_description", facts->device->description);
    cvy_json_put_int(json, "threads", facts->device->threads);
    if (plan->images != CVY_IMAGES_DEVICE) {
        cvy_json_put_string(json, "images", cvy_images_name(plan->images));
        cvy_json_put_string(json, "images_reason", plan->images_reason);
    }
    cvy_json_key(json, "memory");
    cvy_json_begin_object(json);
    cvy_json_put_int(json, "activation_bytes", (int64_t)plan->activation_bytes);
    cvy_json_put_int(json, "live_bytes", (int64_t)cvy_plan_live_bytes(plan));
    cvy_json_put_int(json, "constant_bytes", (int64_t)plan->constant_bytes);
    cvy_json_put_int(json, "scratch_bytes", (int64_t)plan->scratch_bytes);
    cvy_json_put_number(json, "activation_mib", (double)plan->activation_bytes / 1048576.0);
    cvy_json_put_number(json, "constant_mib", (double)plan->constant_bytes / 1048576.0);
    cvy_json_put_number(json, "scratch_mib", (double)plan->scratch_bytes / 1048576.0);
    cvy_json_end_object(json);
    cvy_json_put_int(json, "step_count", plan->step_count);
    totals_json(json, facts);
    if (!facts->steps)
        return;
    cvy_json_key(json, "steps");
    cvy_json_begin_array(json);
    for (int32_t s = 0; s < plan->step_count; s++)
        step_json(json, facts, &plan->steps[s]);
    cvy_json_end_array(json);
    cvy_json_key(json, "tensors");
    cvy_json_begin_array(json);
    for (int32_t t = 0; t < plan->tensor_count; t++)
        tensor_json(json, &plan->tensors[t]);
    cvy_json_end_array(json);
    if (facts->runs > 0)
        measured_json(json, facts);
}

/* What the file says about its post-training quantisation. */
static void calibration_json(struct cvy_json *json, const struct cvy_json_value *quantization)
{
    const struct cvy_json_value *floats = cvy_json_get(quantization, "floats");

    cvy_json_put_string(json, "calibration", cvy_json_get_string(quantization, "calibration", NULL));
    cvy_json_put_int(json, "calibration_images", cvy_json_get_int(quantization, "images", 0));
    cvy_json_key(json, "floats");
    cvy_json_begin_array(json);
    for (const struct cvy_json_value *name = floats ? floats->first : NULL; name; name = name->next)
        cvy_json_string(json, name->text);
    cvy_json_end_array(json);
}

static void weights_json(struct cvy_json *json, const struct cvy_info_facts *facts)
{
    cvy_json_put_string(json, "file", facts->file);
    if (facts->weights.class_count > 0) {
        cvy_json_key(json, "classes");
        cvy_json_begin_array(json);
        for (int32_t i = 0; i < facts->weights.class_count; i++)
            cvy_json_string(json, facts->weights.classes[i][0] ? facts->weights.classes[i] : NULL);
        cvy_json_end_array(json);
    }
    if (facts->weights.has_preprocessing)
        cvy_json_put_int(json, "eval_resize", facts->weights.preprocessing.resize);
    if (facts->weights.quantization)
        calibration_json(json, facts->weights.quantization);
    if (facts->weights.has_state) {
        cvy_json_put_int(json, "epoch", facts->weights.state.epoch);
        cvy_json_put_int(json, "best_epoch", facts->weights.state.best_epoch);
        cvy_json_put_number(json, facts->architecture->task == CVY_TASK_DETECT ? "best_ap" : "best_top1",
                            facts->weights.state.best_score);
    }
}

/* Null where there is no such plan. */
static void memory_json(struct cvy_json *json, const char *key, const struct cvy_info_memory *memory)
{
    cvy_json_key(json, key);
    if (memory->refused[0]) {
        cvy_json_raw(json, "null");
        return;
    }
    cvy_json_begin_object(json);
    cvy_json_put_int(json, "batch_size", memory->batch);
    cvy_json_put_number(json, "mib", (double)memory->estimate.total / 1048576.0);
    cvy_json_put_number(json, "parameters_mib", (double)memory->estimate.parameters / 1048576.0);
    cvy_json_put_number(json, "plan_mib", (double)memory->estimate.workspace / 1048576.0);
    cvy_json_put_number(json, "streams_mib", (double)memory->estimate.streams / 1048576.0);
    cvy_json_put_number(json, "data_mib", (double)memory->estimate.data / 1048576.0);
    cvy_json_put_number(json, "program_mib", (double)memory->estimate.program / 1048576.0);
    cvy_json_end_object(json);
}

void cvy_info_json(const struct cvy_info_facts *facts, struct cvy_json *json)
{
    char squeeze[16];

    cvy_json_begin_object(json);
    if (facts->machine) {
        machine_json(facts, json);
    } else {
        cvy_json_put_string(json, "arch", facts->architecture->name);
        cvy_json_put_int(json, "parameters", facts->parameters);
        cvy_json_put_number(json, "gmac", facts->macs / 1e9);
        cvy_json_put_int(json, "num_classes", facts->model.num_classes);
        cvy_json_put_int(json, "image_size", facts->model.image_size);
        cvy_json_put_string(json, "padding", cvy_padding_name(facts->model.resnet.same_padding));
        if (facts->model.quantize != CVY_QUANTIZE_NONE)
            cvy_json_put_string(json, "quantize", cvy_quantize_name(facts->model.quantize));
        if (facts->architecture->squeeze_width != 0)
            cvy_json_put_string(json, "squeeze_width", cvy_info_squeeze(facts, squeeze));
        memory_json(json, "inference_memory", &facts->memory[CVY_MODEL_INFER]);
        memory_json(json, "training_memory", &facts->memory[CVY_MODEL_TRAIN]);
        if (facts->file)
            weights_json(json, facts);
        plan_json(json, facts);
    }
    cvy_json_end_object(json);
}
