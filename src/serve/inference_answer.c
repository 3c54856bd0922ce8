/* Answers of the Open Inference Protocol. */
#include <string.h>

#include "base/api.h"
#include "serve/inference.h"
#include "serve/inference_tensors.h"

/* One output tensor. Those of objects are made here, of each image CVY_DETECTED_OBJECTS_MAX, where there is none 0. */
struct tensor {
    const char *datatype;
    int rank;
    int64_t shape[3];
    const float *floats; /* one of the four has numbers */
    int64_t *ids;
    int32_t *counts;
    char **texts;
};

static int64_t tensor_count(const struct tensor *tensor)
{
    int64_t count = 1;

    for (int i = 0; i < tensor->rank; i++)
        count *= tensor->shape[i];
    return count;
}

/* ---- classes as texts ---- */

static char *class_text(const struct cvy_served *served, struct cvy_arena *arena, float value, int index)
{
    const char *name = cvy_classifier_class_name(served->classifier, index);
    char number[32];

    return cvy_arena_printf(arena, "%s:%d%s%s", cvy_digits_text((double)value, 9, number), index, name ? ":" : "",
                            name ? name : "");
}

static cvy_status make_classes(const struct cvy_served *served, const struct cvy_job *job, const float *values,
                               int classes, struct cvy_arena *arena, struct tensor *tensor)
{
    const size_t texts = (size_t)job->count * (size_t)classes;
    int *indices = cvy_arena_alloc(arena, (size_t)classes * sizeof *indices);
    size_t at = 0;

    *tensor = (struct tensor){.datatype = "BYTES", .rank = 2, .shape = {job->count, classes}};
    tensor->texts = cvy_arena_alloc(arena, texts * sizeof *tensor->texts);
    if (!indices || !tensor->texts)
        return cvy_fail_memory(texts * sizeof *tensor->texts, "an answer");
    for (int i = 0; i < job->count; i++) {
        const float *row = values + (size_t)i * (size_t)served->classes;

        cvy_top_k(row, served->classes, classes, indices);
        for (int k = 0; k < classes; k++, at++) {
            tensor->texts[at] = class_text(served, arena, row[indices[k]], indices[k]);
            if (!tensor->texts[at])
                return cvy_fail_memory(64, "an answer");
        }
    }
    return CVY_OK;
}

/* ---- objects ---- */

enum { BOXES, SCORES, CLASS_IDS, COUNT };

static cvy_status make_objects(const struct cvy_job *job, int index, struct cvy_arena *arena, struct tensor *tensor)
{
    const size_t size = index == CLASS_IDS ? sizeof(int64_t) : index == COUNT ? sizeof(int32_t) : sizeof(float);
    float *floats = NULL;
    void *numbers;

    *tensor = (struct tensor){.datatype = index == CLASS_IDS ? "INT64"
                                          : index == COUNT   ? "INT32"
                                                             : "FP32",
                              .rank = index == BOXES   ? 3
                                      : index == COUNT ? 1
                                                       : 2,
                              .shape = {job->count, CVY_DETECTED_OBJECTS_MAX, 4}};
    numbers = cvy_arena_alloc(arena, (size_t)tensor_count(tensor) * size);
    if (!numbers)
        return cvy_fail_memory((size_t)tensor_count(tensor) * size, "an answer");
    if (index == CLASS_IDS)
        tensor->ids = numbers;
    else if (index == COUNT)
        tensor->counts = numbers;
    else
        tensor->floats = floats = numbers;
    for (int i = 0; i < job->count; i++) {
        if (tensor->counts)
            tensor->counts[i] = job->object_count[i];
        for (int k = 0; k < job->object_count[i]; k++) {
            const size_t at = (size_t)i * CVY_DETECTED_OBJECTS_MAX + (size_t)k;
            if (index == BOXES)
                memcpy(floats + 4 * at, job->objects[at].box, sizeof job->objects[at].box);
            else if (index == SCORES)
                floats[at] = job->objects[at].score;
            else if (index == CLASS_IDS)
                tensor->ids[at] = job->objects[at].class_id;
        }
    }
    return CVY_OK;
}

/* ---- the text ---- */

static void put_little_endian(struct cvy_text *text, uint64_t value, int bytes)
{
    uint8_t lowest_first[8];

    for (int i = 0; i < bytes; i++)
        lowest_first[i] = (uint8_t)(value >> (8 * i));
    cvy_text_append(text, lowest_first, (size_t)bytes);
}

/* As the protocol's machines have numbers: the lowest byte first. */
static void put_bytes(struct cvy_text *binary, const struct tensor *tensor)
{
    const int64_t count = tensor_count(tensor);
    uint32_t bits;

    for (int64_t i = 0; i < count; i++) {
        if (tensor->floats) {
            memcpy(&bits, &tensor->floats[i], sizeof bits);
            put_little_endian(binary, bits, 4);
        } else if (tensor->texts) {
            put_little_endian(binary, strlen(tensor->texts[i]), 4);
            cvy_text_puts(binary, tensor->texts[i]);
        } else {
            put_little_endian(binary, (uint64_t)(tensor->ids ? tensor->ids[i] : tensor->counts[i]),
                              tensor->ids ? 8 : 4);
        }
    }
}

static void put_data(struct cvy_json *json, const struct tensor *tensor)
{
    const int64_t count = tensor_count(tensor);

    cvy_json_key(json, "data");
    cvy_json_begin_array(json);
    for (int64_t i = 0; i < count; i++) {
        if (tensor->floats)
            cvy_json_float(json, tensor->floats[i]);
        else if (tensor->texts)
            cvy_json_string(json, tensor->texts[i]);
        else
            cvy_json_int(json, tensor->ids ? tensor->ids[i] : tensor->counts[i]);
    }
    cvy_json_end_array(json);
}

static void put_output(struct cvy_json *json, struct cvy_text *binary, const struct cvy_served *served,
                       const struct cvy_inference_output *output, const struct tensor *tensor)
{
    const size_t before = binary->length;

    cvy_json_begin_object(json);
    cvy_json_put_string(json, "name", cvy_inference_output_name(served, output->index));
    cvy_json_put_string(json, "datatype", tensor->datatype);
    cvy_json_key(json, "shape");
    cvy_json_begin_array(json);
    for (int i = 0; i < tensor->rank; i++)
        cvy_json_int(json, tensor->shape[i]);
    cvy_json_end_array(json);
    if (output->binary) {
        put_bytes(binary, tensor);
        cvy_json_key(json, "parameters");
        cvy_json_begin_object(json);
        cvy_json_put_int(json, "binary_data_size", (int64_t)(binary->length - before));
        cvy_json_end_object(json);
    } else {
        put_data(json, tensor);
    }
    cvy_json_end_object(json);
}

static cvy_status put_outputs(struct cvy_inference *inference, const struct cvy_served *served,
                              const struct cvy_job *job, struct cvy_json *json, struct cvy_text *binary)
{
    struct tensor tensor;

    for (int i = 0; i < inference->output_count; i++) {
        const struct cvy_inference_output *output = &inference->outputs[i];
        const float *values = output->index == 0 ? job->logits : job->probabilities;

        if (served->detects)
            CVY_TRY(make_objects(job, output->index, &inference->arena, &tensor));
        else if (output->classes > 0)
            CVY_TRY(make_classes(served, job, values, output->classes, &inference->arena, &tensor));
        else
            tensor = (struct tensor){
                .datatype = "FP32", .rank = 2, .shape = {job->count, served->classes}, .floats = values};
        put_output(json, binary, served, output, &tensor);
    }
    return CVY_OK;
}

cvy_status cvy_inference_answer(struct cvy_inference *inference, const struct cvy_served *served,
                                const struct cvy_job *job, struct cvy_text *text, size_t *json_size)
{
    struct cvy_json json = {.text = text};
    struct cvy_text binary = {0};
    cvy_status status;

    cvy_json_begin_object(&json);
    cvy_json_put_string(&json, "model_name", served->name);
    cvy_json_put_string(&json, "model_version", "1");
    if (inference->id)
        cvy_json_put_string(&json, "id", inference->id);
    cvy_json_key(&json, "outputs");
    cvy_json_begin_array(&json);
    status = put_outputs(inference, served, job, &json, &binary);
    cvy_json_end_array(&json);
    cvy_json_end_object(&json);
    *json_size = binary.length > 0 ? text->length : 0;
    cvy_text_append(text, binary.text ? binary.text : "", binary.length);
    if (status == CVY_OK && (text->failed || binary.failed))
        status = cvy_fail_memory(text->capacity + binary.capacity, "an answer");
    cvy_text_release(&binary);
    return status;
}
