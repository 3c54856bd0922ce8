/* The file of a quantised network: the weights under their names, the state of the quantizers, and what the file of the
 * network in floats says about itself. */
#include <string.h>

#include "base/error.h"
#include "formats/weights/safetensors.h"
#include "infer/quantize/ptq.h"

enum { OWN_FORMAT, OWN_ARCH, OWN_PREPROCESSING, OWN_MODEL, OWN_QUANTIZATION, OWN_COUNT };
static const char *const own_keys[OWN_COUNT] = {"convoy.format", "convoy.arch", "convoy.preprocessing", "convoy.model",
                                                "convoy.quantization"};

/* How the ranges were found, and which layers have none. */
static void write_quantization(struct cvy_json *json, const struct cvy_ptq *ptq)
{
    cvy_json_begin_object(json);
    cvy_json_put_string(json, "calibration", cvy_calibration_name((int)ptq->calibration));
    cvy_json_put_int(json, "images", ptq->calibration_images);
    cvy_json_put_bool(json, "bias_correction", ptq->options->bias_correction);
    cvy_json_key(json, "floats");
    cvy_json_begin_array(json);
    for (int32_t i = 0; i < ptq->parts.part_count; i++) {
        if (!ptq->parts.parts[i].quantized)
            cvy_json_string(json, ptq->parts.parts[i].name);
    }
    cvy_json_end_array(json);
    cvy_json_end_object(json);
}

static void write_own(const struct cvy_ptq *ptq, struct cvy_text texts[OWN_COUNT])
{
    struct cvy_json json[OWN_COUNT] = {{0}};

    for (int i = 0; i < OWN_COUNT; i++)
        json[i].text = &texts[i];
    cvy_json_int(&json[OWN_FORMAT], CVY_CHECKPOINT_FORMAT);
    cvy_json_string(&json[OWN_ARCH], ptq->network.architecture->name);
    cvy_preprocessing_write(&json[OWN_PREPROCESSING], &ptq->plain.preprocessing);
    cvy_model_write(&json[OWN_MODEL], &ptq->network.model);
    write_quantization(&json[OWN_QUANTIZATION], ptq);
}

/* Whether an entry of the input is left out: written anew, or of a training. */
static bool is_replaced(const char *key)
{
    static const char *const dropped[] = {"convoy.state", "convoy.plan", "pytorch."};

    for (int i = 0; i < OWN_COUNT; i++) {
        if (strcmp(key, own_keys[i]) == 0)
            return true;
    }
    for (size_t i = 0; i < sizeof dropped / sizeof *dropped; i++) {
        if (strncmp(key, dropped[i], strlen(dropped[i])) == 0)
            return true;
    }
    return false;
}

cvy_status cvy_ptq_write(struct cvy_ptq *ptq)
{
    struct cvy_text texts[OWN_COUNT] = {{0}};
    struct cvy_tensor_meta *metadata = NULL;
    struct cvy_weights_view view = {0};
    struct cvy_tensor_file file = {0};
    size_t count = 0;
    cvy_status status;

    CVY_GOTO(cvy_predictor_open_weights(&file, ptq->options->network));
    metadata = cvy_calloc(file.metadata_count + OWN_COUNT, sizeof *metadata);
    write_own(ptq, texts);
    for (int i = 0; i < OWN_COUNT && metadata; i++) {
        metadata[count++] = (struct cvy_tensor_meta){own_keys[i], texts[i].text};
        if (texts[i].failed) {
            cvy_free(metadata);
            metadata = NULL;
        }
    }
    if (!metadata) {
        status = cvy_fail_memory(OWN_COUNT * sizeof *metadata, "the metadata of a file");
        goto fail;
    }
    for (size_t i = 0; i < file.metadata_count; i++) {
        if (!is_replaced(file.metadata[i].key))
            metadata[count++] = file.metadata[i];
    }
    CVY_GOTO(cvy_weights_collect(&ptq->network, CVY_PART_WEIGHTS, &view));
    CVY_GOTO(cvy_st_write(ptq->options->output, view.tensors, view.count, metadata, count));
fail:
    cvy_weights_view_release(&view);
    cvy_tensor_file_close(&file);
    cvy_free(metadata);
    for (int i = 0; i < OWN_COUNT; i++)
        cvy_text_release(&texts[i]);
    return status;
}
