/* The Open Inference Protocol, version 2 (https://github.com/kserve/open-inference-protocol), with two extensions that
 * NVIDIA's Triton has: tensors as bytes after the JSON text, and classes instead of numbers.
 *
 * A classifier takes one input: "input", FP32 (N, 3, S, S), normalised, or "images", BYTES (N), encoded images; a
 * detector "images". It gives "logits" and "probabilities", FP32 (N, classes); a detector "boxes", FP32 (N, 100, 4) of
 * x, y, width and height in pixels, "scores", FP32 (N, 100), "class_ids", INT64 (N, 100), and "count", INT32 (N), of
 * those that are objects. */
#ifndef CVY_SERVE_INFERENCE_H
#define CVY_SERVE_INFERENCE_H

#include <stdbool.h>

#include "base/memory.h"
#include "serve/served.h"

enum {
    CVY_INFERENCE_OUTPUTS = 4, /* of a network at most */
    CVY_INFERENCE_IMAGES = 1024
};

struct cvy_inference_output {
    int index; /* among the network's */
    bool binary;
    int classes; /* > 0: this many best ones as texts "score:index:name" */
};

/* One request. The job is filled in, but for its answers. */
struct cvy_inference {
    struct cvy_arena arena; /* of everything here */
    char *id;               /* NULL: none was given */
    struct cvy_inference_output outputs[CVY_INFERENCE_OUTPUTS];
    int output_count;
    struct cvy_image *images;
    float *tensor;
};

/* `binary` are the bytes after the JSON text, which the job's images may lie in. CVY_BAD_DATA with a sentence about
 * what is wrong, CVY_NO_MEMORY. */
CVY_CHECKED cvy_status cvy_inference_read(struct cvy_inference *inference, const struct cvy_served *served,
                                          const char *json, size_t json_size, const void *binary, size_t binary_size,
                                          struct cvy_job *job);
/* Appends the answer; *json_size: of its JSON text where bytes follow, else 0. CVY_NO_MEMORY. */
CVY_CHECKED cvy_status cvy_inference_answer(struct cvy_inference *inference, const struct cvy_served *served,
                                            const struct cvy_job *job, struct cvy_text *text, size_t *json_size);
void cvy_inference_release(struct cvy_inference *inference);

/* What the protocol says of a network ("inputs", "outputs"). */
void cvy_inference_describe(const struct cvy_served *served, struct cvy_text *text);

#endif
