#include "support_decoded.h"

#include "backend/image_decoder.h"
#include "data/image/image.h"
#include "support_images.h"
#include "support_test.h"

/* Of a decoder that computes as libjpeg does, but rounds otherwise: each sample of the three components may be one off,
 * an interpolated one another one, and blue has luma once and chroma 1.772 times: 1 + 2 * 1.772, rounded. The smooth
 * images of the test keep all values far from the ends, so that nothing depends on where they are cut off. */
static const double mean_limit = 1;
static const int max_limit = 5;

enum { SIDE = 208, BYTES = SIDE * SIDE * 3, KINDS = 9, SIZES = 3, ROWS = KINDS * SIZES * 2 };
static const int kinds[KINDS] = {0, 1, 2, 3, 6, 9, 10, 11, 12}; /* of support_jpeg_kinds */
static const struct {
    int width, height;
} sizes[SIZES] = {{41, 47}, {109, 98}, {203, 171}}; /* no multiples of a block */

struct difference {
    double mean;
    int max;
};

/* One image, and what became of it. */
struct row {
    const struct jpeg_kind *kind;
    int width, height;
    bool tinted, taken; /* taken: Convoy leaves it to the device */
    struct bytes jpeg;
    uint8_t *pixels[2];                           /* libjpeg's: chroma interpolated, repeated */
    bool refused;                                 /* alone */
    struct difference alone[2], together, damage; /* of `alone`: to both; the others: to the nearer of them */
};

struct check {
    cvy_device *device;
    struct cvy_image_decoder *decoder;
    uint8_t *memory, *found; /* (ROWS + 1, SIDE, SIDE, 3) of the device's and of the host's */
    struct row rows[ROWS];
    struct bytes damaged;
};

/* ---- images ---- */

static void make(struct check *check, struct cvy_decoder *headers)
{
    struct row *row = check->rows;
    int32_t width, height;

    for (int i = 0; i < ROWS; i++, row++) {
        struct cvy_rng rng = cvy_rng_new(9, CVY_RNG_TEST, 0, (uint64_t)i);
        uint8_t *noise;

        *row = (struct row){.kind = &support_jpeg_kinds[kinds[i % KINDS]],
                            .width = sizes[i / KINDS % SIZES].width,
                            .height = sizes[i / KINDS % SIZES].height,
                            .tinted = i < ROWS / 2};
        noise =
            (row->tinted ? support_tinted_noise : support_noise)(&rng, row->width, row->height, row->kind->components);
        row->jpeg = support_jpeg(row->kind, noise, row->width, row->height);
        free(noise);
        for (int k = 0; k < 2; k++)
            row->pixels[k] = support_jpeg_pixels(&row->jpeg, k == 0);
        assert_int_equal(cvy_decoder_start(headers, row->kind->name, row->jpeg.data, row->jpeg.size, &width, &height),
                         CVY_OK);
        row->taken =
            cvy_decoder_is_usual_jpeg(headers) &&
            check->device->backend->decoding->takes(check->decoder, 0, row->jpeg.data, row->jpeg.size, width, height);
        assert_false(row->taken && row->kind->restart > 0);
    }
    check->damaged = support_any_jpeg(6, 160, 160);
    check->damaged.data[check->damaged.size / 2] = 0xFF;
    check->damaged.data[check->damaged.size / 2 + 1] = 0xD3; /* a restart that nobody has announced */
}

/* ---- decoding ---- */

static struct cvy_device_image whole(const struct bytes *jpeg, int width, int height, uint8_t *to)
{
    return (struct cvy_device_image){.data = jpeg->data,
                                     .bytes = jpeg->size,
                                     .width = width,
                                     .height = height,
                                     .across = {0, width, width, width, 0, width, 0},
                                     .down = {0, height, height, height, 0, height, 0},
                                     .antialiased = true,
                                     .to = to};
}

/* Whether the device has decoded them, by the second try at the latest (as Convoy has more than one too); then `found`
 * has the results, one behind the other. */
static bool decode(struct check *check, const struct cvy_device_image *images, int count)
{
    const struct cvy_backend *backend = check->device->backend;
    cvy_status status = CVY_BAD_DATA;

    for (int i = 0; i < 2 && status == CVY_BAD_DATA; i++) {
        status = backend->decoding->decode(check->decoder, 0, images, count);
        if (status == CVY_OK)
            status = backend->decoding->wait(check->decoder, 0);
    }
    if (status == CVY_BAD_DATA)
        return false;
    if (status != CVY_OK)
        fail_msg("%s", cvy_error());
    assert_int_equal(backend->download(check->device, check->found, check->memory, (size_t)count * BYTES), CVY_OK);
    return true;
}

static struct difference compare(const struct row *row, const uint8_t *found, const uint8_t *expected)
{
    struct difference difference = {0};

    for (int y = 0; y < row->height; y++) {
        for (int i = 0; i < row->width * 3; i++) {
            const int off = abs(found[y * SIDE * 3 + i] - expected[y * row->width * 3 + i]);
            difference.mean += off / (row->width * row->height * 3.0);
            difference.max = off > difference.max ? off : difference.max;
        }
    }
    return difference;
}

static struct difference nearest(const struct row *row, const uint8_t *found)
{
    const struct difference a = compare(row, found, row->pixels[0]), b = compare(row, found, row->pixels[1]);

    return a.mean <= b.mean ? a : b;
}

static void decode_alone(struct check *check, struct row *row)
{
    const struct cvy_device_image image = whole(&row->jpeg, row->width, row->height, check->memory);

    row->refused = !decode(check, &image, 1);
    for (int k = 0; k < 2 && !row->refused; k++)
        row->alone[k] = compare(row, check->found, row->pixels[k]);
}

/* All that Convoy would leave to the device; with `damaged` a file in their middle that no decoder can make much of. */
static bool decode_together(struct check *check, bool damaged)
{
    struct cvy_device_image images[ROWS + 1];
    struct row *rows[ROWS + 1];
    int count = 0;

    for (int i = 0; i < ROWS; i++) {
        struct row *row = &check->rows[i];
        uint8_t *to = check->memory + (size_t)count * BYTES;
        if (damaged && i == ROWS / 2) {
            images[count] = whole(&check->damaged, 160, 160, to);
            rows[count++] = NULL;
            to += BYTES;
        }
        if (!row->taken)
            continue;
        images[count] = whole(&row->jpeg, row->width, row->height, to);
        rows[count++] = row;
    }
    if (count > 0 && !decode(check, images, count))
        return false;
    for (int i = 0; i < count; i++) {
        if (rows[i])
            *(damaged ? &rows[i]->damage : &rows[i]->together) = nearest(rows[i], check->found + (size_t)i * BYTES);
    }
    return true;
}

/* ---- what is demanded ---- */

static bool is_within(struct difference difference, bool exactly)
{
    return difference.mean <= (exactly ? 0 : mean_limit) && difference.max <= (exactly ? 0 : max_limit);
}

static bool is_right(const struct row *row, bool repeats, bool exactly)
{
    const struct difference wanted = row->alone[repeats];

    if (exactly)
        return !row->refused && is_within(wanted, true) && is_within(row->together, true) &&
               is_within(row->damage, true);
    if (!row->taken)
        return true; /* for the table alone */
    if (row->refused)
        return false;
    if (!row->tinted) /* where values are cut off, and at borders, single pixels may be far off */
        return wanted.mean <= mean_limit;
    return is_within(wanted, false) && is_within(row->together, false) && is_within(row->damage, false);
}

static const char *text_of(struct difference difference, char text[32])
{
    snprintf(text, 32, "%6.2f (%3d)", difference.mean, difference.max);
    return text;
}

static void print_row(const struct row *row, bool right)
{
    char text[4][32];

    printf("%-14s %3d x %3d  %-6s  ", row->kind->name, row->width, row->height, row->tinted ? "tint" : "colour");
    if (row->refused)
        printf("refused");
    else
        printf("%s  %s", text_of(row->alone[0], text[0]), text_of(row->alone[1], text[1]));
    if (row->taken)
        printf("  %s  %s", text_of(row->together, text[2]), text_of(row->damage, text[3]));
    printf("%s%s\n", row->taken ? "" : "  not left to the device", right ? "" : "  WRONG");
}

static int judge(const struct check *check, bool repeats, bool exactly, bool print)
{
    int wrong = 0;

    if (print)
        printf("Decoded pixels beside libjpeg's, mean (largest): alone, to interpolated and to repeated chroma; all at "
               "once; the same with a damaged file among them\n");
    for (int i = 0; i < ROWS; i++) {
        const bool right = is_right(&check->rows[i], repeats, exactly);
        wrong += !right;
        if (print)
            print_row(&check->rows[i], right);
    }
    return wrong;
}

static void open_check(struct check *check)
{
    const struct cvy_image_decoder_options options = {.side = SIDE, .lanes = 1, .threads = 1};
    const size_t bytes = (size_t)(ROWS + 1) * BYTES;
    struct cvy_decoder *headers;
    void *memory;

    if (check->device->backend->decoding->open(check->device, &options, &check->decoder) != CVY_OK)
        fail_msg("%s", cvy_error());
    assert_int_equal(check->device->backend->allocate(check->device, bytes, &memory), CVY_OK);
    check->memory = memory;
    check->found = malloc(bytes);
    assert_non_null(check->found);
    assert_int_equal(cvy_decoder_new(&headers), CVY_OK);
    make(check, headers);
    cvy_decoder_free(headers);
}

static void close_check(struct check *check)
{
    for (int i = 0; i < ROWS; i++) {
        free(check->rows[i].jpeg.data);
        free(check->rows[i].pixels[0]);
        free(check->rows[i].pixels[1]);
    }
    free(check->damaged.data);
    free(check->found);
    check->device->backend->release(check->device, check->memory);
    check->device->backend->decoding->close(check->decoder);
}

void support_check_decoded(cvy_device *device, bool exactly)
{
    struct check check = {.device = device};
    bool repeats, all, beside;
    int wrong, taken = 0;

    open_check(&check);
    for (int i = 0; i < ROWS; i++)
        taken += check.rows[i].taken;
    assert_true(exactly || taken > 0); /* the emulated one may be told to take none; of a GPU nothing would be shown */
    repeats = strstr(device->backend->decoding->description(check.decoder), "chroma repeated") != NULL && !exactly;
    all = decode_together(&check, false);
    beside = decode_together(&check, true);
    for (int i = 0; i < ROWS; i++)
        decode_alone(&check, &check.rows[i]);
    wrong = judge(&check, repeats, exactly, !exactly);
    if (wrong > 0 && exactly)
        (void)judge(&check, repeats, exactly, true);
    printf("the batch %s, with a damaged file in it %s\n", all ? "is decoded" : "is refused",
           beside ? "too" : "it is refused");
    close_check(&check);
    if (wrong > 0 || !all)
        fail_msg("%d of %d images are not decoded as they should be%s", wrong, (int)ROWS,
                 all ? "" : ", and their batch is refused");
}
