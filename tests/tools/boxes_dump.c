/* What the loader makes of the images of a detection set, for tests/parity/boxes.py.
 * boxes_dump COCO_FILE OUT SIZE DRAWS: for each image DRAWS training transforms, then its evaluation, each as
 *   int32  sample, width, height, training, mirrored, crop x, y, width, height
 *   u8     the decoded image (height, width, 3), where training is 0
 *   f32    the result (SIZE, SIZE, 3), boxes (100, 4)
 *   int32  labels (100) */
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "data/detection/detection_set.h"
#include "data/transform/transform.h"

struct dump {
    FILE *out;
    struct cvy_dataset set;
    struct cvy_decoder *decoder;
    struct cvy_resizer resizer;
    struct cvy_transform transform;
    float *pixels;
};

static cvy_status write_decoded(struct dump *dump, const struct cvy_encoded *encoded, int32_t width, int32_t height)
{
    const uint8_t *pixels;
    size_t stride;

    cvy_decoder_set_speed(dump->decoder, CVY_JPEG_FAST_DCT);
    cvy_status status = cvy_decoder_start(dump->decoder, encoded->name, encoded->data, encoded->size, &width, &height);
    if (status == CVY_OK)
        status = cvy_decoder_read(dump->decoder, &(struct cvy_box){0, 0, width, height}, &pixels, &stride);
    for (int32_t y = 0; status == CVY_OK && y < height; y++)
        fwrite(pixels + (size_t)y * stride, 3, (size_t)width, dump->out);
    return status;
}

static cvy_status dump_one(struct dump *dump, uint32_t sample, uint32_t draw, bool training)
{
    float boxes[CVY_MAX_BOXES][4];
    int32_t labels[CVY_MAX_BOXES];
    struct cvy_target_boxes targets = {boxes, labels};
    struct cvy_truth truth = {.image = &dump->set.images[sample]};
    struct cvy_rng rng = cvy_rng_new(1, CVY_RNG_AUGMENT, draw, sample), same = rng;
    struct cvy_detection_crop crop = {false, {0, 0, truth.image->width, truth.image->height}};
    struct cvy_encoded encoded;
    const size_t count = (size_t)dump->transform.size * (size_t)dump->transform.size * 3;

    cvy_dataset_objects(&dump->set, sample, &truth.objects, &truth.count);
    dump->transform.training = training;
    cvy_status status = cvy_sample_read(&dump->set.samples[sample], &encoded);
    if (status != CVY_OK)
        return status;
    if (training)
        status = cvy_detection_draw(&same, truth.image->width, truth.image->height, &truth, &crop);
    if (status == CVY_OK)
        status = cvy_transform_detection(&dump->transform, dump->decoder, &dump->resizer, &encoded, &truth, &rng,
                                         dump->pixels, &targets);
    if (status == CVY_OK) {
        const int32_t head[] = {(int32_t)sample, truth.image->width, truth.image->height,
                                training,        crop.mirrored,      crop.window.x,
                                crop.window.y,   crop.window.width,  crop.window.height};
        fwrite(head, sizeof head, 1, dump->out);
        if (!training)
            status = write_decoded(dump, &encoded, head[1], head[2]);
        fwrite(dump->pixels, sizeof(float), count, dump->out);
        fwrite(boxes, sizeof boxes, 1, dump->out);
        fwrite(labels, sizeof labels, 1, dump->out);
    }
    cvy_encoded_release(&encoded);
    return status;
}

int main(int argc, char **argv)
{
    const struct cvy_category_rule rule = {0};
    struct dump dump = {0};

    if (argc != 5) {
        fprintf(stderr, "usage: boxes_dump COCO_FILE OUT SIZE DRAWS\n");
        return 2;
    }
    const int size = atoi(argv[3]), draws = atoi(argv[4]);
    dump.transform = (struct cvy_transform){.detection = true, .size = size};
    dump.out = fopen(argv[2], "wb");
    dump.pixels = cvy_calloc((size_t)size * (size_t)size, 3 * sizeof *dump.pixels);
    cvy_status status = dump.out && dump.pixels ? cvy_decoder_new(&dump.decoder) : CVY_FAILED;
    if (status == CVY_OK)
        status = cvy_dataset_open_detection(&dump.set, argv[1], CVY_DETECTION_TRAIN, &rule);
    for (uint32_t i = 0; status == CVY_OK && i < dump.set.sample_count; i++)
        for (int draw = 0; status == CVY_OK && draw <= draws; draw++)
            status = dump_one(&dump, i, (uint32_t)draw, draw < draws);
    if (status != CVY_OK)
        fprintf(stderr, "%s\n", cvy_error());
    if (dump.out && fclose(dump.out) != 0)
        status = CVY_CANNOT_WRITE;
    cvy_dataset_close(&dump.set);
    cvy_decoder_free(dump.decoder);
    cvy_resizer_release(&dump.resizer);
    cvy_free(dump.pixels);
    return (int)status;
}
