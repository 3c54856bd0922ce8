/* Writes what the data path makes of images, for comparison with other programs (tests/parity/preprocess.py).
 *
 *   dump_transform OUT decode FILE...
 *   dump_transform OUT eval RESIZE SIZE [exif] FILE...
 *   dump_transform OUT train SIZE SEED FILE...
 *
 * Prints one line a file, "ok WIDTH HEIGHT BOX.X BOX.Y BOX.WIDTH BOX.HEIGHT FLIP" (of the decoded image, or of the crop
 * that training took) or "bad SENTENCE"; the RGB bytes of the good ones go to OUT one after another. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "data/transform.h"

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
    const size_t bytes = (size_t)dump->transform.size * (size_t)dump->transform.size * 3;
    struct cvy_rng rng = cvy_rng_new(dump->seed, CVY_RNG_AUGMENT, 0, index), same = rng;
    uint8_t *out = malloc(bytes);
    cvy_status status = out ? CVY_OK : CVY_NO_MEMORY;

    if (status == CVY_OK)
        status = cvy_decoder_start(dump->decoder, path, data, size, &box->width, &box->height);
    if (status == CVY_OK)
        status = cvy_transform_image(&dump->transform, dump->decoder, &dump->resizer, path, data, size, &rng, out);
    if (status == CVY_OK && dump->transform.training) {
        *box = cvy_random_resized_crop(&same, 0.08, box->width, box->height);
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

int main(int argc, char **argv)
{
    struct dump dump = {0};
    int at = 3;

    if (argc < 4)
        return 2;
    if (strcmp(argv[2], "decode") == 0) {
        dump.decode_only = true;
    } else if (strcmp(argv[2], "eval") == 0 && argc > 5) {
        dump.transform.resize = atoi(argv[at++]);
        dump.transform.size = atoi(argv[at++]);
        dump.transform.exif_orientation = strcmp(argv[at], "exif") == 0;
        at += dump.transform.exif_orientation;
    } else if (strcmp(argv[2], "train") == 0 && argc > 5) {
        dump.transform.training = true;
        dump.transform.size = atoi(argv[at++]);
        dump.seed = strtoull(argv[at++], NULL, 10);
    } else {
        return 2;
    }
    dump.out = fopen(argv[1], "wb");
    if (!dump.out || cvy_decoder_new(&dump.decoder) != CVY_OK)
        return 1;
    for (uint32_t index = 0; at < argc; at++, index++)
        dump_file(&dump, argv[at], index);
    cvy_decoder_free(dump.decoder);
    cvy_resizer_release(&dump.resizer);
    return fclose(dump.out) == 0 ? 0 : 1;
}
