/* A network with its weights as an ONNX file. */
#include "export/onnx.h"
#include "base/error.h"
#include "convert/convert.h"

/* The parameters in fp32, without the counters of training steps, which an ONNX file has no use for. Refuses what no
 * network of ours would answer with: runtimes do not look. */
static cvy_status make_constants(struct cvy_conversion *c)
{
    size_t count = 0;

    for (size_t i = 0; i < c->weights.count; i++) {
        struct cvy_named_tensor tensor = c->weights.tensors[i];

        if (!cvy_dtype_is_float(tensor.dtype))
            continue;
        if (tensor.dtype != CVY_F32) {
            const size_t bytes = (size_t)cvy_shape_elements(&tensor.shape) * sizeof(float);
            float *values = cvy_arena_alloc(&c->arena, bytes);

            if (!values)
                return cvy_fail_memory(bytes, tensor.name);
            cvy_tensor_floats(&tensor, values);
            tensor.dtype = CVY_F32;
            tensor.data = values;
            tensor.bytes = bytes;
        }
        CVY_TRY(cvy_weights_check_numbers(&tensor, tensor.data, c->options->input));
        cvy_file_forget(&c->file.mapping, tensor.data, tensor.bytes);
        c->weights.tensors[count++] = tensor;
    }
    c->weights.count = count;
    c->average.count = c->momentum.count = 0;
    return CVY_OK;
}

cvy_status cvy_convert_onnx(struct cvy_conversion *c)
{
    const char *classes = cvy_tensor_metadata(&c->file, "convoy.classes");
    const char *ids = cvy_tensor_metadata(&c->file, "convoy.category_ids");
    struct cvy_text arch = {0}, preprocessing = {0};
    struct cvy_json arch_json = {.text = &arch}, preprocessing_json = {.text = &preprocessing};
    struct cvy_onnx_options options = {
        .name = c->architecture->name, .source = &c->file, .source_name = c->options->input};
    struct cvy_tensor_meta metadata[4];
    cvy_status status;

    CVY_TRY(make_constants(c));
    cvy_json_string(&arch_json, c->architecture->name);
    cvy_preprocessing_write(&preprocessing_json, &c->preprocessing);
    if (arch.failed || preprocessing.failed) {
        status = cvy_fail_memory(preprocessing.capacity, "the metadata of an ONNX file");
        goto fail;
    }
    metadata[options.metadata_count++] = (struct cvy_tensor_meta){"convoy.arch", arch.text};
    metadata[options.metadata_count++] = (struct cvy_tensor_meta){"convoy.preprocessing", preprocessing.text};
    if (classes)
        metadata[options.metadata_count++] = (struct cvy_tensor_meta){"convoy.classes", classes};
    if (ids) /* detectors only */
        metadata[options.metadata_count++] = (struct cvy_tensor_meta){"convoy.category_ids", ids};
    options.metadata = metadata;
    status = cvy_onnx_write(c->options->output, &c->table, c->weights.tensors, c->weights.count, &options);
fail:
    cvy_text_release(&arch);
    cvy_text_release(&preprocessing);
    return status;
}
