/* Requests of the Open Inference Protocol: JSON, read as a stream, since tensors are long. */
#include <inttypes.h>
#include <string.h>

#include "base/api.h"
#include "formats/json_stream.h"
#include "serve/inference.h"
#include "serve/inference_tensors.h"

enum { MAX_LEVELS = 64, MAX_RANK = 4 };

/* What an open array or object of the request is. */
enum place {
    IGNORED,
    REQUEST,
    REQUEST_PARAMETERS,
    INPUTS,
    INPUT,
    INPUT_SHAPE,
    INPUT_PARAMETERS,
    INPUT_DATA,
    OUTPUTS,
    OUTPUT,
    OUTPUT_PARAMETERS
};

struct reader {
    struct cvy_inference *inference;
    const struct cvy_served *served;
    const uint8_t *binary; /* what is left of it */
    size_t binary_size;
    struct cvy_job *job;

    enum place places[MAX_LEVELS];
    int depth;
    char key[32]; /* of the value that comes; "" of a longer one */
    int input_count;
    /* of the input that is open */
    char name[32], datatype[16];
    int64_t shape[MAX_RANK];
    int rank;
    int64_t binary_bytes; /* -1: its data are in the JSON text */
    float *numbers;
    size_t number_count, number_capacity;
    struct cvy_encoded_image *texts; /* decoded from base64, in the arena */
    size_t text_count, text_capacity;
    /* of the output that is open */
    struct cvy_inference_output output;
    bool binary_output; /* of outputs that do not say it */
    bool binary_said[CVY_INFERENCE_OUTPUTS];
    bool said;
};

/* ---- values ---- */

static void copy_text(const struct cvy_json_event *event, char *to, size_t size)
{
    const size_t length = event->length < size ? event->length : 0; /* no name that is known is longer */

    memcpy(to, event->text, length);
    to[length] = '\0';
}

static cvy_status read_int(const struct cvy_json_stream *stream, const struct cvy_json_event *event, int64_t low,
                           int64_t high, int64_t *value)
{
    struct cvy_json_number number = {0};

    if (event->kind == CVY_JSON_HAS_NUMBER)
        CVY_TRY(cvy_json_read_number(stream, event, &number));
    if (event->kind != CVY_JSON_HAS_NUMBER || !number.is_integer || number.integer < low || number.integer > high)
        return cvy_json_refuse(stream, "this is no such number");
    *value = number.integer;
    return CVY_OK;
}

static cvy_status read_bool(const struct cvy_json_stream *stream, const struct cvy_json_event *event, bool *value)
{
    if (event->kind != CVY_JSON_HAS_BOOL)
        return cvy_json_refuse(stream, "this is neither true nor false");
    *value = event->boolean;
    return CVY_OK;
}

static cvy_status add_number(struct reader *reader, const struct cvy_json_stream *stream,
                             const struct cvy_json_event *event)
{
    const size_t side = (size_t)reader->served->image_size;
    struct cvy_json_number number;

    CVY_TRY(cvy_json_read_number(stream, event, &number));
    if (reader->served->detects)
        return CVY_OK; /* its input will be refused */
    if (reader->number_count == CVY_INFERENCE_IMAGES * 3 * side * side)
        return cvy_json_refuse(stream, "no input has so many numbers");
    if (reader->number_count == reader->number_capacity) {
        const size_t capacity = 2 * reader->number_capacity + 1024;
        float *numbers = cvy_realloc(reader->numbers, capacity, sizeof *numbers);
        if (!numbers)
            return cvy_fail_memory(capacity * sizeof *numbers, "a tensor");
        reader->numbers = numbers;
        reader->number_capacity = capacity;
    }
    reader->numbers[reader->number_count++] = (float)number.number;
    return CVY_OK;
}

static cvy_status add_text(struct reader *reader, const struct cvy_json_stream *stream,
                           const struct cvy_json_event *event)
{
    struct cvy_encoded_image image;

    if (reader->text_count == CVY_INFERENCE_IMAGES)
        return cvy_json_refuse(stream, "there are too many images");
    if (reader->text_count == reader->text_capacity) {
        const size_t capacity = 2 * reader->text_capacity + 16;
        struct cvy_encoded_image *texts = cvy_realloc(reader->texts, capacity, sizeof *texts);
        if (!texts)
            return cvy_fail_memory(capacity * sizeof *texts, "the images of a request");
        reader->texts = texts;
        reader->text_capacity = capacity;
    }
    CVY_TRY(cvy_base64_decode(event->text, event->length, &reader->inference->arena, &image));
    reader->texts[reader->text_count++] = image;
    return CVY_OK;
}

static cvy_status take_threshold(struct reader *reader, const struct cvy_json_stream *stream,
                                 const struct cvy_json_event *event)
{
    struct cvy_json_number number = {.number = -1};

    if (event->kind == CVY_JSON_HAS_NUMBER)
        CVY_TRY(cvy_json_read_number(stream, event, &number));
    if (!(number.number >= 0 && number.number <= 1))
        return cvy_json_refuse(stream, "a threshold lies between 0 and 1");
    reader->job->threshold = number.number;
    return CVY_OK;
}

/* A number, text or the like, where `place` is open. */
static cvy_status take_value(struct reader *reader, enum place place, const struct cvy_json_stream *stream,
                             const struct cvy_json_event *event)
{
    const bool text = event->kind == CVY_JSON_HAS_STRING;
    const char *key = reader->key;
    int64_t number = 0;

    switch (place) {
    case REQUEST:
        if (strcmp(key, "id") == 0 && text) {
            CVY_TRY(cvy_json_check_text(stream, event));
            reader->inference->id =
                cvy_arena_printf(&reader->inference->arena, "%.*s", (int)event->length, event->text);
            return reader->inference->id ? CVY_OK : cvy_fail_memory(event->length, "the id of a request");
        }
        return strcmp(key, "inputs") == 0 || strcmp(key, "outputs") == 0
                   ? cvy_json_refuse(stream, "inputs and outputs are arrays")
                   : CVY_OK;
    case REQUEST_PARAMETERS:
        if (strcmp(key, "binary_data_output") == 0)
            return read_bool(stream, event, &reader->binary_output);
        return strcmp(key, "threshold") == 0 ? take_threshold(reader, stream, event) : CVY_OK;
    case INPUT:
        if (strcmp(key, "name") == 0 && text)
            copy_text(event, reader->name, sizeof reader->name);
        else if (strcmp(key, "datatype") == 0 && text)
            copy_text(event, reader->datatype, sizeof reader->datatype);
        return CVY_OK;
    case INPUT_SHAPE:
        if (reader->rank == MAX_RANK)
            return cvy_json_refuse(stream, "the shape has too many dimensions");
        CVY_TRY(read_int(stream, event, 0, INT32_MAX, &number));
        reader->shape[reader->rank++] = number;
        return CVY_OK;
    case INPUT_PARAMETERS:
        return strcmp(key, "binary_data_size") == 0 ? read_int(stream, event, 0, INT64_MAX, &reader->binary_bytes)
                                                    : CVY_OK;
    case INPUT_DATA:
        if (event->kind == CVY_JSON_HAS_NUMBER)
            return add_number(reader, stream, event);
        return text ? add_text(reader, stream, event) : cvy_json_refuse(stream, "data are numbers or texts");
    case OUTPUT:
        if (strcmp(key, "name") == 0 && text)
            copy_text(event, reader->name, sizeof reader->name);
        return CVY_OK;
    case OUTPUT_PARAMETERS:
        if (strcmp(key, "classification") == 0) {
            CVY_TRY(read_int(stream, event, 1, INT32_MAX, &number));
            reader->output.classes = (int)number;
        } else if (strcmp(key, "binary_data") == 0) {
            CVY_TRY(read_bool(stream, event, &reader->output.binary));
            reader->said = true;
        }
        return CVY_OK;
    case INPUTS:
    case OUTPUTS:
        return cvy_json_refuse(stream, "inputs and outputs are objects");
    default:
        return CVY_OK;
    }
}

/* ---- inputs and outputs, at their end ---- */

static cvy_status take_tensor(struct reader *reader, int64_t images)
{
    const int64_t side = reader->served->image_size, floats = 3 * side * side;

    if (strcmp(reader->datatype, "FP32") != 0)
        return cvy_fail(CVY_BAD_DATA, "input \"input\" is of FP32, not of %s", cvy_quote(reader->datatype));
    if (reader->rank != 4 || reader->shape[1] != 3 || reader->shape[2] != side || reader->shape[3] != side)
        return cvy_fail(CVY_BAD_DATA, "input \"input\" has the shape [N, 3, %" PRId64 ", %" PRId64 "]", side, side);

    if (reader->binary_bytes >= 0) {
        if (reader->binary_bytes != images * floats * (int64_t)sizeof(float))
            return cvy_fail(CVY_BAD_DATA, "the bytes of input %s are not as many as its shape says",
                            cvy_quote(reader->name));
        reader->inference->tensor = cvy_calloc((size_t)(images * floats), sizeof(float));
        if (!reader->inference->tensor)
            return cvy_fail_memory((size_t)reader->binary_bytes, "a tensor");
        memcpy(reader->inference->tensor, reader->binary, (size_t)reader->binary_bytes);
    } else {
        if (reader->number_count != (size_t)(images * floats) || reader->text_count > 0)
            return cvy_fail(CVY_BAD_DATA, "the data of input %s are not as many numbers as its shape says",
                            cvy_quote(reader->name));
        /* Without the room for more: the request may wait for a while. Where that fails it stays as it is. */
        float *numbers = cvy_realloc(reader->numbers, reader->number_count, sizeof *numbers);
        reader->inference->tensor = numbers ? numbers : reader->numbers;
        reader->numbers = NULL;
        reader->number_count = reader->number_capacity = 0;
    }
    reader->job->tensor = reader->inference->tensor;
    return CVY_OK;
}

/* Images of the binary part: each has its length before it, 32 bits, the lowest byte first. */
static cvy_status take_binary_images(struct reader *reader, int64_t images)
{
    const uint8_t *at = reader->binary, *end = at + reader->binary_bytes;

    for (int64_t i = 0; i < images; i++) {
        uint32_t size = 0;
        for (int k = 0; k < 4 && end - at >= 4; k++)
            size |= (uint32_t)at[k] << (8 * k);
        if (end - at < 4 || size > (size_t)(end - at) - 4)
            return cvy_fail(CVY_BAD_DATA, "the bytes of input %s end within an image", cvy_quote(reader->name));
        reader->inference->images[i].data = at + 4;
        reader->inference->images[i].bytes = size;
        at += 4 + size;
    }
    return at == end ? CVY_OK
                     : cvy_fail(CVY_BAD_DATA, "input %s has bytes after its last image", cvy_quote(reader->name));
}

static cvy_status take_images(struct reader *reader, int64_t images)
{
    const size_t size = (size_t)images * sizeof *reader->inference->images;

    if (strcmp(reader->datatype, "BYTES") != 0)
        return cvy_fail(CVY_BAD_DATA, "input \"images\" is of BYTES, not of %s", cvy_quote(reader->datatype));
    if (reader->rank != 1 && !(reader->rank == 2 && reader->shape[1] == 1))
        return cvy_fail(CVY_BAD_DATA, "input \"images\" has the shape [N]");
    reader->inference->images = cvy_arena_alloc(&reader->inference->arena, size);
    if (!reader->inference->images)
        return cvy_fail_memory(size, "the images of a request");
    for (int64_t i = 0; i < images; i++)
        reader->inference->images[i] = CVY_SIZED(cvy_image);
    if (reader->binary_bytes >= 0) {
        CVY_TRY(take_binary_images(reader, images));
    } else {
        if (reader->text_count != (size_t)images || reader->number_count > 0)
            return cvy_fail(CVY_BAD_DATA, "the data of input %s are not as many texts as its shape says",
                            cvy_quote(reader->name));
        for (int64_t i = 0; i < images; i++) {
            reader->inference->images[i].data = reader->texts[i].data;
            reader->inference->images[i].bytes = reader->texts[i].size;
        }
    }
    reader->job->images = reader->inference->images;
    return CVY_OK;
}

static cvy_status end_input(struct reader *reader)
{
    const int64_t images = reader->rank > 0 ? reader->shape[0] : 0;
    const bool tensor = !reader->served->detects && strcmp(reader->name, "input") == 0;

    if (!tensor && strcmp(reader->name, "images") != 0)
        return cvy_fail(CVY_BAD_DATA, "%s has no input %s", reader->served->name, cvy_quote(reader->name));
    if (reader->input_count++ > 0)
        return cvy_fail(CVY_BAD_DATA, "%s takes one input", reader->served->name);
    if (images < 1 || images > CVY_INFERENCE_IMAGES)
        return cvy_fail(CVY_BAD_DATA, "input %s has %" PRId64 " images, and 1 to %d are possible",
                        cvy_quote(reader->name), images, (int)CVY_INFERENCE_IMAGES);
    if (reader->binary_bytes > 0 && (uint64_t)reader->binary_bytes > reader->binary_size)
        return cvy_fail(CVY_BAD_DATA, "the request has not as many bytes after its JSON text as input %s says",
                        cvy_quote(reader->name));
    reader->job->count = (int)images;
    CVY_TRY(tensor ? take_tensor(reader, images) : take_images(reader, images));
    if (reader->binary_bytes > 0) {
        reader->binary += reader->binary_bytes;
        reader->binary_size -= (size_t)reader->binary_bytes;
    }
    return CVY_OK;
}

static cvy_status end_output(struct reader *reader)
{
    struct cvy_inference *inference = reader->inference;

    reader->output.index = cvy_inference_output_find(reader->served, reader->name);
    if (reader->output.index < 0)
        return cvy_fail(CVY_BAD_DATA, "%s has no output %s", reader->served->name, cvy_quote(reader->name));
    for (int i = 0; i < inference->output_count; i++) {
        if (inference->outputs[i].index == reader->output.index)
            return cvy_fail(CVY_BAD_DATA, "output %s is asked for twice", cvy_quote(reader->name));
    }
    if (reader->output.classes > 0 && reader->served->detects)
        return cvy_fail(CVY_BAD_DATA, "output %s has no classification: its network detects", cvy_quote(reader->name));
    if (reader->output.classes > reader->served->classes)
        reader->output.classes = reader->served->classes;
    reader->binary_said[inference->output_count] = reader->said;
    inference->outputs[inference->output_count++] = reader->output;
    return CVY_OK;
}

/* ---- arrays and objects ---- */

/* What begins where `outer` is open. */
static enum place inner_place(const struct reader *reader, enum place outer, bool object)
{
    static const struct {
        enum place outer;
        const char *key; /* NULL: an entry of an array */
        bool object;
        enum place inner;
    } rows[] = {{REQUEST, "parameters", true, REQUEST_PARAMETERS},
                {REQUEST, "inputs", false, INPUTS},
                {REQUEST, "outputs", false, OUTPUTS},
                {INPUTS, NULL, true, INPUT},
                {INPUT, "shape", false, INPUT_SHAPE},
                {INPUT, "parameters", true, INPUT_PARAMETERS},
                {INPUT, "data", false, INPUT_DATA},
                {INPUT_DATA, NULL, false, INPUT_DATA},
                {OUTPUTS, NULL, true, OUTPUT},
                {OUTPUT, "parameters", true, OUTPUT_PARAMETERS}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].outer == outer && rows[i].object == object &&
            (!rows[i].key || strcmp(rows[i].key, reader->key) == 0))
            return rows[i].inner;
    }
    return IGNORED;
}

static cvy_status begin(struct reader *reader, struct cvy_json_stream *stream, bool object)
{
    enum place place = reader->depth > 0 ? inner_place(reader, reader->places[reader->depth - 1], object)
                       : object          ? REQUEST
                                         : IGNORED;

    if (reader->depth == 0 && !object)
        return cvy_json_refuse(stream, "a request is an object");
    if (place == IGNORED) {
        cvy_json_skip(stream);
        return CVY_OK;
    }
    if (place == INPUT) {
        reader->name[0] = reader->datatype[0] = '\0';
        reader->rank = 0;
        reader->binary_bytes = -1;
        reader->number_count = reader->text_count = 0;
    } else if (place == OUTPUT) {
        reader->name[0] = '\0';
        reader->output = (struct cvy_inference_output){0};
        reader->said = false;
    }
    reader->places[reader->depth++] = place;
    return CVY_OK;
}

static cvy_status end(struct reader *reader)
{
    const enum place place = reader->places[--reader->depth];

    reader->key[0] = '\0';
    if (place == INPUT)
        return end_input(reader);
    return place == OUTPUT ? end_output(reader) : CVY_OK;
}

static cvy_status handle(void *context, struct cvy_json_stream *stream, const struct cvy_json_event *event)
{
    struct reader *reader = context;

    switch (event->kind) {
    case CVY_JSON_HAS_KEY:
        copy_text(event, reader->key, sizeof reader->key);
        return CVY_OK;
    case CVY_JSON_BEGIN_OBJECT:
        return begin(reader, stream, true);
    case CVY_JSON_BEGIN_ARRAY:
        return begin(reader, stream, false);
    case CVY_JSON_END_OBJECT:
    case CVY_JSON_END_ARRAY:
        return end(reader);
    default:
        if (reader->depth == 0)
            return cvy_json_refuse(stream, "a request is an object");
        return take_value(reader, reader->places[reader->depth - 1], stream, event);
    }
}

/* All outputs where none is asked for. */
static void choose_outputs(struct reader *reader)
{
    struct cvy_inference *inference = reader->inference;

    if (inference->output_count == 0) {
        while (cvy_inference_output_name(reader->served, inference->output_count)) {
            inference->outputs[inference->output_count].index = inference->output_count;
            inference->output_count++;
        }
    }
    for (int i = 0; i < inference->output_count; i++) {
        if (!reader->binary_said[i])
            inference->outputs[i].binary = reader->binary_output;
    }
}

cvy_status cvy_inference_read(struct cvy_inference *inference, const struct cvy_served *served, const char *json,
                              size_t json_size, const void *binary, size_t binary_size, struct cvy_job *job)
{
    struct reader reader = {
        .inference = inference, .served = served, .binary = binary, .binary_size = binary_size, .job = job};
    cvy_status status;

    job->threshold = 0.5;
    status = cvy_json_stream_text("the request", json, json_size, handle, &reader);
    if (status == CVY_OK && reader.input_count == 0)
        status = cvy_fail(CVY_BAD_DATA, "the request has no inputs");
    if (status == CVY_OK && reader.binary_size > 0)
        status = cvy_fail(CVY_BAD_DATA, "the request has bytes that no input has told of");
    if (status == CVY_OK)
        choose_outputs(&reader);
    cvy_free(reader.numbers);
    cvy_free(reader.texts);
    return status;
}

void cvy_inference_release(struct cvy_inference *inference)
{
    cvy_free(inference->tensor);
    cvy_arena_release(&inference->arena);
    *inference = (struct cvy_inference){0};
}
