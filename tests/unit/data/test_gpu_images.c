/* A GPU that decodes. Three things are compared: from the same pixels its kernels make the host's bytes; whole JPEGs,
 * before any crop, are libjpeg's pixels but for rounding and the chroma filter that it says it has (support_decoded.h);
 * and batches are the host's, of images whose chroma is so smooth that its filter hardly counts, so that they stand for
 * everything around decoding: which file, which crop, mirrored or not, at which place. What an emulated GPU decodes are
 * libjpeg's own pixels, and all is compared byte for byte there. Pixels of a damaged file are compared there alone:
 * what is missing is made up by each decoder in its own way.
 *
 *   test_gpu_images DEVICE     77: there is no such GPU, or no nvJPEG */
#include "backend/backend.h"
#include "data/image/resize.h"
#include "data/loader/loader.h"
#include "support_decoded.h"
#include "support_images.h"
#include "support_test.h"

enum { SIDE = 48, BATCH = 8, IMAGE_BYTES = SIDE * SIDE * 3 };

static cvy_device *device;
static bool emulated; /* its nvJPEG is libjpeg: batches are the same bytes */
static struct cvy_dataset set;

/* ---- the kernels ---- */

static struct cvy_image_decoder *open_decoder(void)
{
    const struct cvy_image_decoder_options options = {.side = SIDE, .lanes = 1, .threads = 1};
    struct cvy_image_decoder *decoder;

    if (device->backend->decoding->open(device, &options, &decoder) != CVY_OK)
        fail_msg("%s", cvy_error());
    return decoder;
}

static const enum cvy_filter filters[] = {CVY_FILTER_BILINEAR, CVY_FILTER_BICUBIC, CVY_FILTER_LINEAR};

/* A crop of noise as in training, or part of a resized one with a border as in evaluation; what the host makes of it
 * goes to `expected`. */
static struct cvy_device_image random_image(struct cvy_rng *rng, uint8_t *expected)
{
    const int32_t width = 1 + (int32_t)cvy_rng_below(rng, 300), height = 1 + (int32_t)cvy_rng_below(rng, 300);
    const bool training = cvy_rng_below(rng, 2);
    struct cvy_resizer resizer = {.filter = filters[cvy_rng_below(rng, 3)]};
    struct cvy_device_image image = {.width = width,
                                     .height = height,
                                     .cubic = resizer.filter == CVY_FILTER_BICUBIC,
                                     .antialiased = resizer.filter != CVY_FILTER_LINEAR,
                                     .flip = cvy_rng_below(rng, 2)};
    uint8_t *noise = support_noise(rng, width, height, 3), packed[IMAGE_BYTES];
    struct cvy_box window = {0, 0, SIDE, SIDE};
    int32_t full_width = SIDE, full_height = SIDE, at_x = 0, at_y = 0;

    for (int32_t i = 0; i < width * height * 3; i += 7) /* black and white, beyond which the cubic filter overshoots */
        noise[i] = cvy_rng_below(rng, 2) ? 255 : 0;
    image.pixels = noise;
    image.stride = (size_t)width * 3;
    image.across.size = width;
    image.down.size = height;
    if (training) {
        image.x = (int32_t)cvy_rng_below(rng, (uint32_t)width);
        image.y = (int32_t)cvy_rng_below(rng, (uint32_t)height);
        image.across.size = 1 + (int32_t)cvy_rng_below(rng, (uint32_t)(width - image.x));
        image.down.size = 1 + (int32_t)cvy_rng_below(rng, (uint32_t)(height - image.y));
    } else {
        full_width = 1 + (int32_t)cvy_rng_below(rng, 3 * SIDE);
        full_height = 1 + (int32_t)cvy_rng_below(rng, 3 * SIDE);
        window.width = full_width < SIDE ? full_width : SIDE;
        window.height = full_height < SIDE ? full_height : SIDE;
        window.x = (int32_t)cvy_rng_below(rng, (uint32_t)(full_width - window.width + 1));
        window.y = (int32_t)cvy_rng_below(rng, (uint32_t)(full_height - window.height + 1));
        at_x = (SIDE - window.width) / 2;
        at_y = (SIDE - window.height) / 2;
    }
    image.across =
        (struct cvy_resize_axis){0, image.across.size, image.across.size, full_width, window.x, window.width, at_x};
    image.down =
        (struct cvy_resize_axis){0, image.down.size, image.down.size, full_height, window.y, window.height, at_y};
    assert_int_equal(cvy_resize(&resizer, noise + (size_t)image.y * image.stride + (size_t)image.x * 3, image.stride,
                                image.across.size, image.down.size, full_width, full_height, &window, image.flip,
                                packed),
                     CVY_OK);
    cvy_resizer_release(&resizer);
    memset(expected, 0, IMAGE_BYTES);
    for (int32_t y = 0; y < window.height; y++)
        memcpy(expected + ((at_y + y) * SIDE + at_x) * 3, packed + y * window.width * 3, (size_t)window.width * 3);
    return image;
}

static void crops_are_the_hosts(void **state)
{
    enum { ROUNDS = 12, COUNT = 20 };
    static uint8_t expected[COUNT][IMAGE_BYTES], found[COUNT][IMAGE_BYTES];
    const struct cvy_image_decoding *decoding = device->backend->decoding;
    struct cvy_image_decoder *decoder = open_decoder();
    struct cvy_device_image images[COUNT];
    struct cvy_rng rng = cvy_rng_new(5, CVY_RNG_BENCH, 0, 0);
    void *memory;

    assert_int_equal(device->backend->allocate(device, sizeof found, &memory), CVY_OK);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < COUNT; i++) {
            images[i] = random_image(&rng, expected[i]);
            images[i].to = (uint8_t *)memory + (size_t)i * IMAGE_BYTES;
        }
        if (decoding->decode(decoder, 0, images, COUNT) != CVY_OK || decoding->wait(decoder, 0) != CVY_OK)
            fail_msg("%s", cvy_error());
        assert_int_equal(device->backend->download(device, found, memory, sizeof found), CVY_OK);
        for (int i = 0; i < COUNT; i++) {
            assert_memory_equal(found[i], expected[i], IMAGE_BYTES);
            free((void *)(uintptr_t)images[i].pixels);
        }
    }
    device->backend->release(device, memory);
    decoding->close(decoder);
}

static size_t free_memory(void)
{
    size_t bytes = 0;

    assert_int_equal(device->backend->available(device, &bytes), CVY_OK);
    return bytes;
}

/* What two lanes take for whole squares; of larger ones no more at a time than a lane decodes at once. */
static void memory_of_lanes_is_estimated(void **state)
{
    enum { COUNT = 20, SOURCE = 300 };
    const struct cvy_image_decoding *decoding = device->backend->decoding;
    const struct cvy_resize_axis axis = {.extent = SOURCE, .size = SOURCE, .out = SIDE, .count = SIDE};
    struct cvy_image_lanes lanes = {
        .decoding = decoding, .options = {.side = SIDE, .lanes = 2, .threads = 1}, .pixels = SOURCE * SOURCE};
    struct cvy_device_image images[COUNT];
    struct cvy_image_decoder *decoder;
    struct cvy_rng rng = cvy_rng_new(9, CVY_RNG_BENCH, 0, 0);
    uint8_t *noise = support_noise(&rng, SOURCE, SOURCE, 3);
    void *memory;
    size_t before;

    if (!emulated)
        skip(); /* a GPU hands out memory in pieces, and nvJPEG takes some of it */
    assert_int_equal(decoding->open(device, &lanes.options, &decoder), CVY_OK);
    assert_int_equal(device->backend->allocate(device, (size_t)COUNT * IMAGE_BYTES, &memory), CVY_OK);
    for (int i = 0; i < COUNT; i++)
        images[i] = (struct cvy_device_image){.pixels = noise,
                                              .stride = SOURCE * 3,
                                              .width = SOURCE,
                                              .height = SOURCE,
                                              .across = axis,
                                              .down = axis,
                                              .antialiased = true,
                                              .to = (uint8_t *)memory + (size_t)i * IMAGE_BYTES};
    before = free_memory();
    for (int32_t lane = 0; lane < 2; lane++) {
        assert_int_equal(decoding->decode(decoder, lane, images, COUNT), CVY_OK);
        assert_int_equal(decoding->wait(decoder, lane), CVY_OK);
    }
    assert_int_equal(before - free_memory(), cvy_image_lane_bytes(&lanes, COUNT));
    device->backend->release(device, memory);
    decoding->close(decoder);
    free(noise);
    assert_int_equal(cvy_image_lane_bytes(&lanes, 0), 0);
    lanes.pixels = 24 << 20; /* 72 MiB each: ten of them at a time */
    assert_int_equal(cvy_image_lane_bytes(&lanes, 256), cvy_image_lane_bytes(&lanes, 10));
    assert_true(cvy_image_lane_bytes(&lanes, 5) < cvy_image_lane_bytes(&lanes, 10));
    lanes.decoding = NULL;
    assert_int_equal(cvy_image_lane_bytes(&lanes, 256), 0);
}

static void decoded_pixels_are_libjpegs(void **state)
{
    support_check_decoded(device, emulated);
}

/* ---- batches ---- */

static void write_jpeg(const char *name, const struct jpeg_kind *kind, uint64_t seed, int width, int height)
{
    struct cvy_rng rng = cvy_rng_new(seed, CVY_RNG_BENCH, 0, 1);
    uint8_t *pixels = support_tinted_noise(&rng, width, height, kind->components);
    struct bytes file = support_jpeg(kind, pixels, width, height);

    support_write(support_folder, name, file.data, file.size);
    free(file.data);
    free(pixels);
}

/* An Exif segment after the start, which says that the image is to be turned. */
static void write_turned(const char *name)
{
    static const uint8_t exif[] = {0xFF, 0xE1, 0,    34,   'E', 'x', 'i', 'f', 0, 0, 'M', 'M', 0, '*', 0, 0, 0, 8,
                                   0,    1,    0x01, 0x12, 0,   3,   0,   0,   0, 1, 0,   6,   0, 0,   0, 0, 0, 0};
    struct bytes file = support_any_jpeg(77, 170, 150);
    uint8_t *turned = malloc(file.size + sizeof exif);

    assert_non_null(turned);
    memcpy(turned, file.data, 2);
    memcpy(turned + 2, exif, sizeof exif);
    memcpy(turned + 2 + sizeof exif, file.data + 2, file.size - 2);
    support_write(support_folder, name, turned, file.size + sizeof exif);
    free(turned);
    free(file.data);
}

/* Every kind of JPEG, sizes among them that are not left to the GPU, a PNG, and files that are spoilt: cut off, and
 * with a marker within its data that nvJPEG cannot know. */
static void write_files(void)
{
    struct cvy_rng rng = cvy_rng_new(1, CVY_RNG_BENCH, 0, 2);
    uint8_t *pixels = support_noise(&rng, 60, 44, 3);
    struct bytes png = support_png(pixels, 60, 44, 3), cut = support_any_jpeg(5, 164, 164), odd;
    char name[64];

    for (int i = 0; i < SUPPORT_JPEG_KINDS; i++) {
        snprintf(name, sizeof name, "a/%02d.jpg", i);
        write_jpeg(name, &support_jpeg_kinds[i], (uint64_t)i, 150 + 9 * i, 330 - 7 * i);
    }
    for (int i = 0; i < 9; i++) {
        snprintf(name, sizeof name, "b/%02d.jpg", i);
        write_jpeg(name, &support_jpeg_kinds[i % 3], (uint64_t)(40 + i), 110 + 30 * i, 350 - 20 * i);
    }
    support_write(support_folder, "b/png.png", png.data, png.size);
    write_turned("b/turned.jpg");
    support_write(support_folder, "c/cut.jpg", cut.data, cut.size / 2);
    support_write(support_folder, "c/none.jpg", "no image", 8);
    odd = support_any_jpeg(6, 160, 160);
    odd.data[odd.size / 2] = 0xFF;
    odd.data[odd.size / 2 + 1] = 0xD3; /* a restart that nobody has announced */
    support_write(support_folder, "c/odd.jpg", odd.data, odd.size);
    free(odd.data);
    free(cut.data);
    free(png.data);
    free(pixels);
}

static struct cvy_loader_options options_of(bool training)
{
    return (struct cvy_loader_options){
        .dataset = &set,
        .transform = {.training = training, .size = SIDE, .resize = SIDE + 8, .exif_orientation = true},
        .batch_size = BATCH,
        .workers = 3,
        .prefetch = 2,
        .seed = 4,
        .sampler = training ? CVY_SAMPLE_SHUFFLED : CVY_SAMPLE_IN_ORDER,
        .drop_last = training,
        .replace_bad = training,
        .world = 1};
}

static const uint8_t *images_of(const struct cvy_batch *batch, uint8_t *room)
{
    if (!batch->on_device)
        return batch->images;
    assert_int_equal(device->backend->download(device, room, batch->images, (size_t)BATCH * IMAGE_BYTES), CVY_OK);
    return room;
}

/* Whether two pictures of it are of one crop; else it is named. The noise of a crop that begins at the next pixel is
 * off by four levels or more, that of another image by far more; another chroma filter makes less than one. */
static bool is_same_crop(uint32_t sample, int place, const uint8_t *x, const uint8_t *y)
{
    const char *path = set.samples[sample].path, *name = path + strlen(support_folder);
    double mean = 0;
    int max = 0;

    if (!emulated && strstr(name, "odd.jpg"))
        return true;
    for (int i = 0; i < IMAGE_BYTES; i++) {
        const int off = abs(x[i] - y[i]);
        mean += off / (double)IMAGE_BYTES;
        max = off > max ? off : max;
    }
    if (mean <= (emulated ? 0 : 2))
        return true;
    print_error("%s, place %d of the batch: off by %.2f on average, %d at most\n", name, place, mean, max);
    return false;
}

static void compare_batches(const struct cvy_batch *a, const struct cvy_batch *b)
{
    static uint8_t room[2][BATCH * IMAGE_BYTES];
    const uint8_t *x = images_of(a, room[0]), *y = images_of(b, room[1]);
    int wrong = 0;

    assert_int_equal(a->count, b->count);
    assert_int_equal(a->index, b->index);
    assert_memory_equal(a->labels, b->labels, BATCH * sizeof *a->labels);
    assert_memory_equal(a->samples, b->samples, BATCH * sizeof *a->samples);
    assert_memory_equal(a->status, b->status, BATCH * sizeof *a->status);
    for (int i = 0; i < BATCH; i++) {
        assert_true(!a->errors[i] == !b->errors[i]);
        if (a->errors[i])
            assert_string_equal(a->errors[i], b->errors[i]);
    }
    for (int i = 0; i < BATCH; i++)
        wrong += !is_same_crop(a->samples[i], i, x + i * IMAGE_BYTES, y + i * IMAGE_BYTES);
    if (wrong > 0)
        fail_msg("%d of the %d images of a batch are not the host's", wrong, (int)BATCH);
}

/* Whoever decodes an image, it is counted once. */
static void compare_counts(struct cvy_loader *on_host, struct cvy_loader *on_device)
{
    struct cvy_loader_stats host, mixed;

    cvy_loader_get_stats(on_host, &host);
    cvy_loader_get_stats(on_device, &mixed);
    assert_int_equal(mixed.images, host.images);
    assert_in_range(mixed.left, 1, host.images);
}

/* Epochs of the device's batches beside the host's. */
static void compare_epochs(struct cvy_loader_options options, int64_t first)
{
    struct cvy_loader *on_device, *on_host;
    const struct cvy_batch *a, *b;

    if (cvy_loader_open(&options, &on_host) != CVY_OK)
        fail_msg("%s", cvy_error());
    options.device = device;
    options.device_decodes = true;
    if (cvy_loader_open(&options, &on_device) != CVY_OK)
        fail_msg("%s", cvy_error());
    for (uint32_t epoch = 0; epoch < 2; epoch++) {
        assert_int_equal(cvy_loader_start(on_host, epoch, first), CVY_OK);
        assert_int_equal(cvy_loader_start(on_device, epoch, first), CVY_OK);
        do {
            if (cvy_loader_next(on_device, &b) != CVY_OK)
                fail_msg("%s", cvy_error());
            assert_int_equal(cvy_loader_next(on_host, &a), CVY_OK);
            assert_true(!a == !b);
            if (a)
                compare_batches(a, b);
        } while (a);
        compare_counts(on_host, on_device);
    }
    assert_int_equal(cvy_loader_bad_samples(on_host), cvy_loader_bad_samples(on_device));
    cvy_loader_close(on_host);
    cvy_loader_close(on_device);
}

static void batches_are_the_hosts(void **state)
{
    struct cvy_loader_options options = options_of(true);

    compare_epochs(options, 0);
    compare_epochs(options, 2);
    options.transform.filter = CVY_FILTER_BICUBIC;
    options.lanes = 1;
    options.host_share = 0.4;
    compare_epochs(options, 0);
    options.transform.filter = CVY_FILTER_BILINEAR;
    options.transform.dali = true;
    options.lanes = 3;
    options.workers = 1;
    compare_epochs(options, 1);
    compare_epochs(options_of(false), 0);
    options = options_of(false);
    options.transform.dali = true;
    options.batch_size = BATCH;
    compare_epochs(options, 0);
}

/* What is in progress when an epoch is given up, or the loader closed, is let go. */
static void epochs_are_given_up(void **state)
{
    struct cvy_loader_options options = options_of(true);
    struct cvy_loader *loader, *host;
    const struct cvy_batch *a, *b;

    assert_int_equal(cvy_loader_open(&options, &host), CVY_OK);
    options.device = device;
    options.device_decodes = true;
    assert_int_equal(cvy_loader_open(&options, &loader), CVY_OK);
    for (uint32_t epoch = 0; epoch < 20; epoch++) {
        assert_int_equal(cvy_loader_start(loader, epoch, 0), CVY_OK);
        assert_int_equal(cvy_loader_start(host, epoch, 0), CVY_OK);
        for (uint32_t i = 0; i < epoch % 3; i++) {
            assert_int_equal(cvy_loader_next(loader, &b), CVY_OK);
            assert_int_equal(cvy_loader_next(host, &a), CVY_OK);
            compare_batches(a, b);
        }
    }
    cvy_loader_close(loader);
    cvy_loader_close(host);
}

/* Memory of the device's that copies begin at, which only the host decodes into. */
static void pinned_batches_are_the_same(void **state)
{
    struct cvy_loader_options options = options_of(true);
    struct cvy_loader *pinned, *plain;
    const struct cvy_batch *a, *b;

    assert_int_equal(cvy_loader_open(&options, &plain), CVY_OK);
    options.device = device;
    assert_int_equal(cvy_loader_open(&options, &pinned), CVY_OK);
    assert_int_equal(cvy_loader_start(plain, 0, 0), CVY_OK);
    assert_int_equal(cvy_loader_start(pinned, 0, 0), CVY_OK);
    do {
        assert_int_equal(cvy_loader_next(plain, &a), CVY_OK);
        assert_int_equal(cvy_loader_next(pinned, &b), CVY_OK);
        assert_true(!a == !b);
        if (a) {
            assert_false(b->on_device);
            assert_int_equal((uintptr_t)b->images % 64, 0);
            assert_memory_equal(a->images, b->images, BATCH * IMAGE_BYTES);
        }
    } while (a);
    cvy_loader_close(plain);
    cvy_loader_close(pinned);
}

static void hosts_transforms_are_refused(void **state)
{
    struct cvy_loader_options options = options_of(true);
    struct cvy_loader *loader;

    options.device = device;
    options.device_decodes = true;
    options.autoaugment = true;
    assert_fails(cvy_loader_open(&options, &loader), CVY_USAGE, "images are augmented by the processor");
    options = options_of(true);
    options.device_decodes = true;
    assert_fails(cvy_loader_open(&options, &loader), CVY_UNAVAILABLE, "device cpu decodes no images");
    options.device = device;
    options.transform.tensorflow = true;
    assert_fails(cvy_loader_open(&options, &loader), CVY_USAGE, "TensorFlow's transforms");
    options.transform.tensorflow = false;
    options.transform.color.hue = 0.1;
    assert_fails(cvy_loader_open(&options, &loader), CVY_USAGE, "colours are changed by the processor");
    options = options_of(true);
    options.device = device;
    options.device_decodes = true;
    options.transform.dali = true;
    options.transform.filter = CVY_FILTER_BICUBIC;
    assert_fails(cvy_loader_open(&options, &loader), CVY_USAGE, "DALI's bicubic");
}

static int set_up(void **state)
{
    if (test_folder_setup(state) != 0)
        return -1;
    write_files();
    return cvy_dataset_open(&set, support_folder, NULL, 0) == CVY_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    cvy_dataset_close(&set);
    return test_folder_teardown(state);
}

static bool skips(const char *name)
{
    const struct cvy_image_decoder_options options = {.side = 1, .lanes = 1, .threads = 1};
    struct cvy_image_decoder *decoder = NULL;
    cvy_status status = cvy_device_open(name, 1, &device);

    if (status == CVY_OK && !device->backend->decoding)
        status = cvy_fail(CVY_UNAVAILABLE, "device %s decodes no images", name);
    if (status == CVY_OK)
        status = device->backend->decoding->open(device, &options, &decoder);
    if (status != CVY_OK) {
        printf("skipped: %s\n", cvy_error());
        return true;
    }
    printf("%s: %s\n", device->description, device->backend->decoding->description(decoder));
    emulated = strstr(device->backend->decoding->description(decoder), "13.0.99") != NULL;
    device->backend->decoding->close(decoder);
    return false;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(crops_are_the_hosts),          TEST(memory_of_lanes_is_estimated), TEST(decoded_pixels_are_libjpegs),
        TEST(batches_are_the_hosts),        TEST(epochs_are_given_up),          TEST(pinned_batches_are_the_same),
        TEST(hosts_transforms_are_refused),
    };
    int failed;

    if (skips(argc > 1 ? argv[1] : "cuda")) {
        cvy_device_close(device);
        return 77;
    }
    failed = cmocka_run_group_tests(tests, set_up, tear_down);
    cvy_device_close(device);
    return failed;
}
