/* Any bytes as a request of the Open Inference Protocol: refused with a sentence, or a job whose images lie in what was
 * given, and whose answer is JSON with as many bytes behind it as it says. The first byte chooses a classifier ('c') or
 * a detector; what follows a zero byte is the binary part. */
#include <math.h>

#include "base/memory.h"
#include "formats/json_in.h"
#include "serve/inference.h"
#include "support_input.h"

enum { SIDE = 2, CLASSES = 3 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The images' bytes are read, as a decoder does. */
static void touch_images(const struct cvy_job *job)
{
    uint64_t sum = 0, bytes = 0;

    for (int i = 0; i < job->count; i++) {
        must(job->images[i].data != NULL);
        for (size_t k = 0; k < job->images[i].bytes; k++)
            sum += ((const uint8_t *)job->images[i].data)[k];
        bytes += job->images[i].bytes;
    }
    must(sum <= 255 * bytes);
}

static void check_answer(const struct cvy_text *text, size_t json_size)
{
    struct cvy_arena arena = {0};
    struct cvy_json_value *root;
    int64_t bytes = 0;

    must(cvy_json_parse("the answer", text->text, json_size ? json_size : text->length, &arena, &root) == CVY_OK);
    for (const struct cvy_json_value *output = cvy_json_get(root, "outputs")->first; output; output = output->next) {
        const struct cvy_json_value *parameters = cvy_json_get(output, "parameters");
        must(!parameters == (cvy_json_get(output, "data") != NULL));
        bytes += parameters ? cvy_json_get_int(parameters, "binary_data_size", -1) : 0;
    }
    must(bytes == (json_size ? (int64_t)(text->length - json_size) : 0));
    cvy_arena_release(&arena);
}

/* Some numbers as a network might make them, not finite ones among them. */
static void fill_answers(const struct cvy_served *served, struct cvy_job *job)
{
    for (int i = 0; i < job->count; i++) {
        for (int k = 0; !served->detects && k < CLASSES; k++) {
            job->logits[i * CLASSES + k] = k == 1 ? NAN : (float)(i - k);
            job->probabilities[i * CLASSES + k] = 1.0F / (float)(k + 1);
        }
        if (served->detects)
            job->object_count[i] = i % (CVY_DETECTED_OBJECTS_MAX + 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cvy_served served = {.name = (char[]){"input"}, .classes = CLASSES, .image_size = SIDE};
    struct cvy_inference inference = {0};
    struct cvy_text text = {0};
    struct cvy_job job = {0};
    size_t json_size;

    if (size == 0)
        return 0;
    served.detects = data[0] != 'c';
    const uint8_t *json = data + 1, *zero = memchr(json, 0, size - 1);
    const size_t length = zero ? (size_t)(zero - json) : size - 1;
    const uint8_t *binary = zero ? zero + 1 : data + size;
    const cvy_status status = cvy_inference_read(&inference, &served, (const char *)json, length, binary,
                                                 (size_t)(data + size - binary), &job);
    if (status != CVY_OK) {
        must(status == CVY_BAD_DATA && cvy_error()[0] && !strchr(cvy_error(), '\n'));
    } else {
        must(job.count >= 1 && job.count <= CVY_INFERENCE_IMAGES && !job.images == (job.tensor != NULL));
        must(job.threshold >= 0 && job.threshold <= 1 && inference.output_count >= 1);
        if (job.images)
            touch_images(&job);
        must(cvy_job_prepare(&job, &served) == CVY_OK);
        fill_answers(&served, &job);
        must(cvy_inference_answer(&inference, &served, &job, &text, &json_size) == CVY_OK);
        check_answer(&text, json_size);
    }
    cvy_text_release(&text);
    cvy_job_release(&job);
    cvy_inference_release(&inference);
    return 0;
}
