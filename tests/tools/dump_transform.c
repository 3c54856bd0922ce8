/* Writes what the data path makes of images, for comparison with other programs (tests/parity/preprocess.py).
 *
 *   dump_transform OUT decode FILE...
 *   dump_transform OUT eval RESIZE SIZE [exif] [bicubic|dali|dali-rounded|dali-bicubic|dali-triangular] FILE...
 *   dump_transform OUT train SIZE SEED [bicubic] FILE...
 *   dump_transform OUT tf-decode|tf-eval|tf-train ...   the same by TensorFlow's rules
 *   dump_transform OUT operations SIZE FILE...
 *   dump_transform OUT autoaugment SIZE SEED FILE...
 *   dump_transform OUT hue SIZE FILE...
 *
 * Prints one line a file, "ok WIDTH HEIGHT BOX.X BOX.Y BOX.WIDTH BOX.HEIGHT FLIP" (of the decoded image, or of the crop
 * that training took) or "bad SENTENCE"; the RGB bytes (by TensorFlow's rules: floats) of the good ones go to OUT one
 * after another.
 *
 * "operations" applies every operation of the augmentation, at every level and with both signs, to images of SIZE x
 * SIZE pixels and prints a line "FILE NAME LEVEL SIGN MAGNITUDE" for each; "hue" turns the hue and prints "FILE TURN".
 * "autoaugment" prints the pair that it drew for each image as "NAME LEVEL SIGN APPLIED NAME LEVEL SIGN APPLIED". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "data/transform/augment.h"
#include "data/transform/augment_ops.h"
#include "data/transform/tensorflow.h"
#include "data/transform/transform.h"

struct dump {
    struct cvy_decoder *decoder;
    struct cvy_resizer resizer;
    FILE *out;
    struct cvy_transform transform;
    uint64_t seed;
    bool decode_only;
};

static cvy_status decode(struct dump *dump, const char *path, const void *data, size_t size, struct cvy_box *box)
{
    const uint8_t *pixels;
    size_t stride;
    cvy_status status = cvy_decoder_start(dump->decoder, path, data, size, &box->width, &box->height);
    if (status == CVY_OK)
        status = cvy_decoder_read(dump->decoder, box, &pixels, &stride);
    for (int32_t y = 0; status == CVY_OK && y < box->height; y++)
        fwrite(pixels + (size_t)y * stride, 3, (size_t)box->width, dump->out);
    return status;
}

static cvy_status transform(struct dump *dump, const char *path, const void *data, size_t size, uint32_t index,
                            struct cvy_box *box, bool *flip)
{
    const struct cvy_encoded encoded = {.name = path, .data = data, .size = size};
    const size_t bytes = cvy_transform_bytes(&dump->transform);
    struct cvy_rng rng = cvy_rng_new(dump->seed, CVY_RNG_AUGMENT, 0, index), same = rng;
    uint8_t *out = malloc(bytes);
    cvy_status status = out ? CVY_OK : CVY_NO_MEMORY;

    if (status == CVY_OK)
        status = cvy_decoder_start(dump->decoder, path, data, size, &box->width, &box->height);
    if (status == CVY_OK)
        status = cvy_transform_image(&dump->transform, dump->decoder, &dump->resizer, &encoded, &rng, out);
    if (status == CVY_OK && dump->transform.training) {
        *box = dump->transform.tensorflow
                   ? cvy_tensorflow_crop(&same, box->width, box->height, (float)CVY_TENSORFLOW_MIN_AREA, NULL, 0)
                   : cvy_random_resized_crop(&same, 0.08, box->width, box->height);
        *flip = cvy_rng_uniform(&same) < 0.5;
    }
    if (status == CVY_OK)
        fwrite(out, 1, bytes, dump->out);
    free(out);
    return status;
}

static void dump_file(struct dump *dump, const char *path, uint32_t index)
{
    struct cvy_box box = {0};
    bool flip = false;
    void *data = NULL;
    size_t size = 0;
    cvy_status status = cvy_file_read(path, (size_t)1 << 30, &data, &size);

    if (status == CVY_OK && dump->decode_only)
        status = decode(dump, path, data, size, &box);
    else if (status == CVY_OK)
        status = transform(dump, path, data, size, index, &box, &flip);
    if (status == CVY_OK)
        printf("ok %d %d %d %d %d %d %d\n", box.width, box.height, box.x, box.y, box.width, box.height, flip);
    else
        printf("bad %s\n", cvy_error());
    cvy_free(data);
}

/* A square image into `image` (size, size, 3). */
static cvy_status read_square(struct dump *dump, const char *path, uint8_t *image)
{
    const int32_t size = dump->transform.size;
    const size_t row = (size_t)size * 3;
    struct cvy_box box = {0};
    const uint8_t *pixels;
    size_t bytes, stride;
    void *data = NULL;
    cvy_status status = cvy_file_read(path, (size_t)1 << 30, &data, &bytes);

    if (status == CVY_OK)
        status = cvy_decoder_start(dump->decoder, path, data, bytes, &box.width, &box.height);
    if (status == CVY_OK && (box.width != size || box.height != size))
        status = CVY_BAD_DATA;
    if (status == CVY_OK)
        status = cvy_decoder_read(dump->decoder, &box, &pixels, &stride);
    for (int32_t y = 0; status == CVY_OK && y < size; y++)
        memcpy(image + (size_t)y * row, pixels + (size_t)y * stride, row);
    cvy_free(data);
    return status;
}

static cvy_status dump_operations(struct dump *dump, const char *path, uint8_t *image, uint8_t *scratch)
{
    const size_t bytes = (size_t)dump->transform.size * (size_t)dump->transform.size * 3;
    struct cvy_augmentation one = {0};
    cvy_status status = CVY_OK;

    for (one.op = 0; status == CVY_OK && one.op < CVY_AUGMENT_OPS; one.op++)
        for (one.level = 0; one.level < CVY_AUGMENT_LEVELS; one.level++)
            for (one.sign = -1; status == CVY_OK && one.sign <= 1; one.sign += 2) {
                status = read_square(dump, path, image);
                cvy_augment_apply(&one, image, dump->transform.size, scratch);
                fwrite(image, 1, bytes, dump->out);
                printf("%s %s %d %d %.17g\n", path, cvy_augment_name(one.op), one.level, one.sign,
                       cvy_augment_magnitude(one.op, one.level));
            }
    return status;
}

static cvy_status dump_autoaugment(struct dump *dump, const char *path, uint32_t index, uint8_t *image,
                                   uint8_t *scratch)
{
    const size_t bytes = (size_t)dump->transform.size * (size_t)dump->transform.size * 3;
    struct cvy_rng rng = cvy_rng_new(dump->seed, CVY_RNG_AUGMENT, 0, index), same = rng;
    struct cvy_augmentation pair[2];
    const cvy_status status = read_square(dump, path, image);

    cvy_autoaugment(&rng, image, dump->transform.size, scratch);
    cvy_autoaugment_draw(&same, pair);
    fwrite(image, 1, bytes, dump->out);
    for (int i = 0; i < 2; i++)
        printf("%s %d %d %d%c", cvy_augment_name(pair[i].op), pair[i].level, pair[i].sign, pair[i].applied,
               i ? '\n' : ' ');
    return status;
}

static cvy_status dump_hue(struct dump *dump, const char *path, uint8_t *image)
{
    static const double turns[] = {-0.5, -0.37, -0.1, -0.002, 0, 0.0041, 0.05, 0.25, 0.5};
    const size_t bytes = (size_t)dump->transform.size * (size_t)dump->transform.size * 3;
    cvy_status status = CVY_OK;

    for (size_t i = 0; status == CVY_OK && i < sizeof turns / sizeof *turns; i++) {
        status = read_square(dump, path, image);
        cvy_turn_hue(image, dump->transform.size, turns[i]);
        fwrite(image, 1, bytes, dump->out);
        printf("%s %.17g\n", path, turns[i]);
    }
    return status;
}

/* "operations", "autoaugment" and "hue". Returns the exit code. */
static int augment(struct dump *dump, const char *what, int count, char **files)
{
    const size_t bytes = (size_t)dump->transform.size * (size_t)dump->transform.size * 3;
    uint8_t *image = calloc(bytes, 1), *scratch = calloc(bytes, 1);
    cvy_status status = image && scratch ? CVY_OK : CVY_NO_MEMORY;

    for (int i = 0; status == CVY_OK && i < count; i++)
        status = strcmp(what, "hue") == 0           ? dump_hue(dump, files[i], image)
                 : strcmp(what, "autoaugment") == 0 ? dump_autoaugment(dump, files[i], (uint32_t)i, image, scratch)
                                                    : dump_operations(dump, files[i], image, scratch);
    free(image);
    free(scratch);
    cvy_decoder_free(dump->decoder);
    return fclose(dump->out) == 0 && status == CVY_OK ? 0 : 1;
}

static bool choose_filter(struct dump *dump, const char *word)
{
    if (!word)
        return false;
    if (strcmp(word, "bicubic") == 0)
        dump->transform.filter = CVY_FILTER_BICUBIC;
    dump->transform.rounded_scale = strcmp(word, "dali-rounded") == 0;
    dump->transform.dali = strncmp(word, "dali", 4) == 0;
    dump->transform.triangular = strcmp(word, "dali-triangular") == 0;
    if (strcmp(word, "dali-bicubic") == 0)
        dump->transform.filter = CVY_FILTER_BICUBIC;
    return dump->transform.filter == CVY_FILTER_BICUBIC || dump->transform.dali;
}

int main(int argc, char **argv)
{
    struct dump dump = {0};
    bool augmenting = false;
    int at = 3;

    if (argc < 4)
        return 2;
    if (strncmp(argv[2], "tf-", 3) == 0) {
        dump.transform.tensorflow = true;
        argv[2] += 3;
    }
    if (strcmp(argv[2], "decode") == 0) {
        dump.decode_only = true;
    } else if (strcmp(argv[2], "eval") == 0 && argc > 5) {
        dump.transform.resize = atoi(argv[at++]);
        dump.transform.size = atoi(argv[at++]);
        dump.transform.exif_orientation = strcmp(argv[at], "exif") == 0;
        at += dump.transform.exif_orientation;
        at += choose_filter(&dump, argv[at]);
    } else if (strcmp(argv[2], "train") == 0 && argc > 5) {
        dump.transform.training = true;
        dump.transform.size = atoi(argv[at++]);
        dump.seed = strtoull(argv[at++], NULL, 10);
        at += choose_filter(&dump, argv[at]);
    } else if ((strcmp(argv[2], "operations") == 0 || strcmp(argv[2], "hue") == 0) && argc > 4) {
        augmenting = true;
        dump.transform.size = atoi(argv[at++]);
    } else if (strcmp(argv[2], "autoaugment") == 0 && argc > 5) {
        augmenting = true;
        dump.transform.size = atoi(argv[at++]);
        dump.seed = strtoull(argv[at++], NULL, 10);
    } else {
        return 2;
    }
    dump.out = fopen(argv[1], "wb");
    if (!dump.out || cvy_decoder_new(&dump.decoder) != CVY_OK)
        return 1;
    if (augmenting)
        return augment(&dump, argv[2], argc - at, argv + at);
    cvy_decoder_set_speed(dump.decoder, dump.transform.tensorflow ? CVY_JPEG_FAST : CVY_JPEG_EXACT);
    for (uint32_t index = 0; at < argc; at++, index++)
        dump_file(&dump, argv[at], index);
    cvy_decoder_free(dump.decoder);
    cvy_resizer_release(&dump.resizer);
    return fclose(dump.out) == 0 ? 0 : 1;
}
