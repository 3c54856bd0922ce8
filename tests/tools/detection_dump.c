/* The detector's ops on given numbers, for comparisons:
 *
 *   detection_dump FOLDER IMAGES HEIGHT WIDTH CLASSES ROWS [DEVICE]
 *
 * FOLDER holds raw f32 and i32: boxes (N, R, 4), labels (N, R), codes (N, A, 4), logits (N, A, CLASSES + 1). It
 * receives anchors (A, 4), classes (N, A), targets (N, A, 4), positives, the losses focal and smooth_l1 with their
 * gradients dlogits and dcodes (of the sum, times 1), and found_boxes (N, 100, 4), found_scores, found_classes,
 * found_count. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/error.h"
#include "ops/anchors.h"

static const char *folder;

static FILE *open_file(const char *name, const char *mode)
{
    char path[4096];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, mode);
    if (!file) {
        perror(path);
        exit(1);
    }
    return file;
}

/* `count` numbers of four bytes; from the file where it has a name. */
static void *numbers(const char *name, int64_t count)
{
    void *memory = cvy_calloc_aligned((size_t)count * 4);
    FILE *file;

    if (!memory)
        exit(1);
    if (!name)
        return memory;
    file = open_file(name, "rb");
    if (fread(memory, 4, (size_t)count, file) != (size_t)count) {
        fprintf(stderr, "%s is too short\n", name);
        exit(1);
    }
    fclose(file);
    return memory;
}

static void put(const char *name, const void *memory, int64_t count)
{
    FILE *file = open_file(name, "wb");

    if (fwrite(memory, 4, (size_t)count, file) != (size_t)count || fclose(file) != 0) {
        perror(name);
        exit(1);
    }
}

static struct cvy_tensor tensor(enum cvy_dtype dtype, struct cvy_shape shape)
{
    return (struct cvy_tensor){.shape = shape, .dtype = dtype};
}

static void run(cvy_device *device, struct cvy_op_desc *desc, void *const *in, void *const *out)
{
    struct cvy_kernel_plan plan;
    void *scratch = NULL;
    cvy_status status = cvy_kernel_select(device, desc, &plan);

    if (status == CVY_OK) {
        scratch = cvy_calloc_aligned(plan.scratch_bytes + 1);
        status = scratch ? plan.kernel->run(device, &plan, in, out, scratch) : CVY_NO_MEMORY;
        cvy_kernel_release(device, &plan);
    }
    if (status != CVY_OK) {
        fprintf(stderr, "detection_dump: %s\n", cvy_error());
        exit(1);
    }
    cvy_free_aligned(scratch);
}

int main(int argc, char **argv)
{
    const int64_t n = argc > 6 ? atoi(argv[2]) : 0, k = argc > 6 ? atoi(argv[5]) + 1 : 0;
    const int64_t rows = argc > 6 ? atoi(argv[6]) : 0;
    struct cvy_anchors anchors;
    cvy_device *device;

    if (argc < 7)
        return 2;
    folder = argv[1];
    anchors = cvy_anchors_ssd(atoi(argv[3]), atoi(argv[4]));
    if (cvy_anchors_check(&anchors) != CVY_OK || cvy_device_open(argc > 7 ? argv[7] : "cpu", 0, &device) != CVY_OK) {
        fprintf(stderr, "detection_dump: %s\n", cvy_error());
        return 1;
    }
    const int64_t a = cvy_anchors_count(&anchors), max_boxes = 100;
    const struct cvy_tensor scalar = tensor(CVY_F32, cvy_shape0()), codes = tensor(CVY_F32, cvy_shape3(n, a, 4));
    const struct cvy_tensor logits = tensor(CVY_F32, cvy_shape3(n, a, k)), classes = tensor(CVY_I32, cvy_shape2(n, a));
    void *boxes_ = numbers("boxes", n * rows * 4), *labels_ = numbers("labels", n * rows);
    void *codes_ = numbers("codes", n * a * 4), *logits_ = numbers("logits", n * a * k);
    void *classes_ = numbers(NULL, n * a), *targets_ = numbers(NULL, n * a * 4), *dcodes_ = numbers(NULL, n * a * 4);
    void *dlogits_ = numbers(NULL, n * a * k), *anchors_ = numbers(NULL, a * 4), *found_[4];
    float positives, focal, smooth, one = 1;

    cvy_anchors_fill(&anchors, anchors_);
    put("anchors", anchors_, a * 4);
    struct cvy_op_desc match = {.op = CVY_OP_DETECTION_MATCH, .inputs = 2, .outputs = 3, .attr.anchors = anchors};
    match.in[0] = tensor(CVY_F32, cvy_shape3(n, rows, 4));
    match.in[1] = tensor(CVY_I32, cvy_shape2(n, rows));
    match.out[0] = classes;
    match.out[1] = codes;
    match.out[2] = scalar;
    run(device, &match, (void *[CVY_MAX_INPUTS]){boxes_, labels_},
        (void *[CVY_MAX_OUTPUTS]){classes_, targets_, &positives});
    put("classes", classes_, n * a);
    put("targets", targets_, n * a * 4);
    put("positives", &positives, 1);

    struct cvy_op_desc loss = {.op = CVY_OP_FOCAL_LOSS, .inputs = 3, .outputs = 1};
    loss.in[0] = logits;
    loss.in[1] = classes;
    loss.in[2] = loss.in[3] = loss.out[0] = scalar;
    run(device, &loss, (void *[CVY_MAX_INPUTS]){logits_, classes_, &positives}, (void *[CVY_MAX_OUTPUTS]){&focal});
    put("focal", &focal, 1);
    loss.op = CVY_OP_FOCAL_LOSS_BWD;
    loss.inputs = 4;
    loss.out[0] = logits;
    run(device, &loss, (void *[CVY_MAX_INPUTS]){logits_, classes_, &positives, &one},
        (void *[CVY_MAX_OUTPUTS]){dlogits_});
    put("dlogits", dlogits_, n * a * k);

    struct cvy_op_desc huber = {.op = CVY_OP_SMOOTH_L1_LOSS, .inputs = 4, .outputs = 1};
    huber.in[0] = huber.in[1] = codes;
    huber.in[2] = classes;
    huber.in[3] = huber.in[4] = huber.out[0] = scalar;
    run(device, &huber, (void *[CVY_MAX_INPUTS]){codes_, targets_, classes_, &positives},
        (void *[CVY_MAX_OUTPUTS]){&smooth});
    put("smooth_l1", &smooth, 1);
    huber.op = CVY_OP_SMOOTH_L1_LOSS_BWD;
    huber.inputs = 5;
    huber.out[0] = codes;
    run(device, &huber, (void *[CVY_MAX_INPUTS]){codes_, targets_, classes_, &positives, &one},
        (void *[CVY_MAX_OUTPUTS]){dcodes_});
    put("dcodes", dcodes_, n * a * 4);

    struct cvy_op_desc detect = {.op = CVY_OP_DETECT, .inputs = 2, .outputs = 4};
    detect.attr.detect = (struct cvy_detect_attr){anchors, 0.6F, 1e-8F, 100, (int32_t)max_boxes};
    detect.in[0] = codes;
    detect.in[1] = logits;
    detect.out[0] = tensor(CVY_F32, cvy_shape3(n, max_boxes, 4));
    detect.out[1] = tensor(CVY_F32, cvy_shape2(n, max_boxes));
    detect.out[2] = tensor(CVY_I32, cvy_shape2(n, max_boxes));
    detect.out[3] = tensor(CVY_I32, cvy_shape1(n));
    for (int i = 0; i < 4; i++)
        found_[i] = numbers(NULL, n * max_boxes * (i == 0 ? 4 : 1));
    run(device, &detect, (void *[CVY_MAX_INPUTS]){codes_, logits_},
        (void *[CVY_MAX_OUTPUTS]){found_[0], found_[1], found_[2], found_[3]});
    put("found_boxes", found_[0], n * max_boxes * 4);
    put("found_scores", found_[1], n * max_boxes);
    put("found_classes", found_[2], n * max_boxes);
    put("found_count", found_[3], n);
    return 0;
}
