#include "serve/inference_tensors.h"

#include <string.h>

#include "base/api.h"
#include "serve/inference.h"

/* ---- base64 ---- */

static int sextet(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

cvy_status cvy_base64_decode(const char *text, size_t length, struct cvy_arena *arena, struct cvy_encoded_image *image)
{
    size_t padding = 0, bytes = 0;
    uint32_t bits = 0;
    uint8_t *data;

    while (padding < 2 && padding < length && text[length - padding - 1] == '=')
        padding++;
    length -= padding;
    if (length % 4 == 1 || (padding > 0 && (length + padding) % 4 != 0))
        return cvy_fail(CVY_BAD_DATA, "an image is no base64 text: there are too few or too many characters");
    data = cvy_arena_alloc(arena, length / 4 * 3 + 3);
    if (!data)
        return cvy_fail_memory(length, "an image");
    for (size_t i = 0; i < length; i++) {
        const int value = sextet(text[i]);

        if (value < 0)
            return cvy_fail(CVY_BAD_DATA, "an image is no base64 text: its character %zu is none of it", i + 1);
        bits = bits << 6 | (uint32_t)value;
        if (i % 4 != 0)
            data[bytes++] = (uint8_t)(bits >> (6 - 2 * (i % 4)));
    }
    *image = (struct cvy_encoded_image){data, bytes};
    return CVY_OK;
}

/* ---- what a network takes and gives ---- */

/* A -1 stands for the number of images, a -2 for that of classes, a -3 for the side of an image. */
struct tensor_row {
    const char *name, *datatype;
    int rank, shape[4];
};
static const struct tensor_row classifier_inputs[] = {{"input", "FP32", 4, {-1, 3, -3, -3}},
                                                      {"images", "BYTES", 1, {-1}}};
static const struct tensor_row classifier_outputs[] = {{"logits", "FP32", 2, {-1, -2}},
                                                       {"probabilities", "FP32", 2, {-1, -2}}};
static const struct tensor_row detector_inputs[] = {{"images", "BYTES", 1, {-1}}};
static const struct tensor_row detector_outputs[] = {{"boxes", "FP32", 3, {-1, CVY_DETECTED_OBJECTS_MAX, 4}},
                                                     {"scores", "FP32", 2, {-1, CVY_DETECTED_OBJECTS_MAX}},
                                                     {"class_ids", "INT64", 2, {-1, CVY_DETECTED_OBJECTS_MAX}},
                                                     {"count", "INT32", 1, {-1}}};
#define ROWS(table) ((int)(sizeof(table) / sizeof *(table)))

const char *cvy_inference_output_name(const struct cvy_served *served, int index)
{
    if (served->detects)
        return index < ROWS(detector_outputs) ? detector_outputs[index].name : NULL;
    return index < ROWS(classifier_outputs) ? classifier_outputs[index].name : NULL;
}

int cvy_inference_output_find(const struct cvy_served *served, const char *name)
{
    const char *other;

    for (int i = 0; (other = cvy_inference_output_name(served, i)); i++) {
        if (strcmp(other, name) == 0)
            return i;
    }
    return -1;
}

static void put_shape(struct cvy_json *json, const struct tensor_row *row, const struct cvy_served *served)
{
    cvy_json_key(json, "shape");
    cvy_json_begin_array(json);
    for (int i = 0; i < row->rank; i++)
        cvy_json_int(json, row->shape[i] == -2   ? served->classes
                           : row->shape[i] == -3 ? served->image_size
                                                 : row->shape[i]);
    cvy_json_end_array(json);
}

static void put_rows(struct cvy_json *json, const char *key, const struct tensor_row *rows, int count,
                     const struct cvy_served *served)
{
    cvy_json_key(json, key);
    cvy_json_begin_array(json);
    for (int i = 0; i < count; i++) {
        cvy_json_begin_object(json);
        cvy_json_put_string(json, "name", rows[i].name);
        cvy_json_put_string(json, "datatype", rows[i].datatype);
        put_shape(json, &rows[i], served);
        cvy_json_end_object(json);
    }
    cvy_json_end_array(json);
}

void cvy_inference_describe(const struct cvy_served *served, struct cvy_text *text)
{
    struct cvy_json json = {.text = text};

    cvy_json_begin_object(&json);
    cvy_json_put_string(&json, "name", served->name);
    cvy_json_key(&json, "versions");
    cvy_json_begin_array(&json);
    cvy_json_string(&json, "1");
    cvy_json_end_array(&json);
    cvy_json_put_string(&json, "platform", "convoy");
    if (served->detects) {
        put_rows(&json, "inputs", detector_inputs, ROWS(detector_inputs), served);
        put_rows(&json, "outputs", detector_outputs, ROWS(detector_outputs), served);
    } else {
        put_rows(&json, "inputs", classifier_inputs, ROWS(classifier_inputs), served);
        put_rows(&json, "outputs", classifier_outputs, ROWS(classifier_outputs), served);
    }
    cvy_json_key(&json, "parameters");
    cvy_json_begin_object(&json);
    cvy_json_put_string(&json, "arch", served->arch);
    cvy_json_put_int(&json, "classes", served->classes);
    cvy_json_put_int(&json, "max_batch_size", served->max_batch);
    cvy_json_end_object(&json);
    cvy_json_end_object(&json);
}
