/* TIFF by libtiff, which is loaded when the first image of that kind comes: its first page, converted to RGB by
 * libtiff's own rules, but for alpha, which is dropped: 16 bits are scaled to 8. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <tiffio.h>

#include "base/error.h"
#include "base/library.h"
#include "base/memory.h"
#include "data/image/codec.h"

enum {
    /* The densest of its codes for photographs; what is beyond is a bomb. */
    LARGE = 1 << 24,
    MAX_PIXELS_PER_BYTE = 4096
};

static struct {
    TIFF *(*open)(const char *name, const char *mode, thandle_t client, TIFFReadWriteProc read, TIFFReadWriteProc write,
                  TIFFSeekProc seek, TIFFCloseProc close, TIFFSizeProc size, TIFFMapFileProc map,
                  TIFFUnmapFileProc unmap, TIFFOpenOptions *options);
    void (*close)(TIFF *tiff);
    int (*get_field)(TIFF *tiff, uint32_t tag, ...);
    int (*get_defaulted)(TIFF *tiff, uint32_t tag, ...);
    int (*set_field)(TIFF *tiff, uint32_t tag, ...);
    int (*can_read)(TIFF *tiff, char reason[1024]);
    int (*read)(TIFF *tiff, uint32_t width, uint32_t height, uint32_t *pixels, int orientation, int stop);
    TIFFOpenOptions *(*options_alloc)(void);
    void (*options_free)(TIFFOpenOptions *options);
    void (*set_limit)(TIFFOpenOptions *options, tmsize_t bytes);
    void (*set_error)(TIFFOpenOptions *options, TIFFErrorHandlerExtR handler, void *context);
    void (*set_warning)(TIFFOpenOptions *options, TIFFErrorHandlerExtR handler, void *context);
} tiff;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char reason[CVY_LIBRARY_REASON]; /* "": it is loaded */

static void load(void)
{
    static const char *const libraries[] = {"libtiff.so.6", NULL}; /* 4.5: messages and limits of one file */
    static const struct cvy_library_function functions[] = {
        {"TIFFClientOpenExt", &tiff.open},
        {"TIFFClose", &tiff.close},
        {"TIFFGetField", &tiff.get_field},
        {"TIFFGetFieldDefaulted", &tiff.get_defaulted},
        {"TIFFSetField", &tiff.set_field},
        {"TIFFRGBAImageOK", &tiff.can_read},
        {"TIFFReadRGBAImageOriented", &tiff.read},
        {"TIFFOpenOptionsAlloc", &tiff.options_alloc},
        {"TIFFOpenOptionsFree", &tiff.options_free},
        {"TIFFOpenOptionsSetMaxSingleMemAlloc", &tiff.set_limit},
        {"TIFFOpenOptionsSetErrorHandlerExtR", &tiff.set_error},
        {"TIFFOpenOptionsSetWarningHandlerExtR", &tiff.set_warning},
    };

    cvy_library_load(libraries, functions, sizeof functions / sizeof *functions, reason);
}

/* ---- the file in memory ---- */

struct source {
    const struct cvy_codec_job *job;
    uint64_t at;
    char sentence[200]; /* libtiff's first complaint */
};

static tmsize_t read_bytes(thandle_t client, void *to, tmsize_t size)
{
    struct source *source = client;
    const uint64_t left = source->at < source->job->size ? source->job->size - source->at : 0;

    if ((uint64_t)size > left)
        size = (tmsize_t)left;
    memcpy(to, source->job->data + source->at, (size_t)size);
    source->at += (uint64_t)size;
    return size;
}

static tmsize_t write_bytes(thandle_t client, void *from, tmsize_t size)
{
    (void)client, (void)from, (void)size;
    return 0;
}

static toff_t seek(thandle_t client, toff_t offset, int whence)
{
    struct source *source = client;

    source->at = (whence == SEEK_CUR ? source->at : whence == SEEK_END ? source->job->size : 0) + offset;
    if (source->at > source->job->size)
        source->at = source->job->size;
    return source->at;
}

static int close_nothing(thandle_t client)
{
    (void)client;
    return 0;
}

static toff_t size_of(thandle_t client)
{
    const struct source *source = client;

    return source->job->size;
}

static int map_nothing(thandle_t client, void **base, toff_t *size)
{
    (void)client, (void)base, (void)size;
    return 0;
}

static void unmap_nothing(thandle_t client, void *base, toff_t size)
{
    (void)client, (void)base, (void)size;
}

static int keep_sentence(TIFF *file, void *context, const char *module, const char *format, va_list arguments)
{
    struct source *source = context;

    (void)file, (void)module;
    if (!source->sentence[0]) {
        vsnprintf(source->sentence, sizeof source->sentence, format, arguments);
        cvy_escape_controls(source->sentence);
        if (source->sentence[0] && source->sentence[strlen(source->sentence) - 1] == '.')
            source->sentence[strlen(source->sentence) - 1] = '\0';
    }
    return 1; /* it goes nowhere else */
}

static int drop_warning(TIFF *file, void *context, const char *module, const char *format, va_list arguments)
{
    (void)file, (void)context, (void)module, (void)format, (void)arguments;
    return 1;
}

/* NULL: `source` has a sentence, or memory ran out. */
static TIFF *open_source(struct source *source)
{
    TIFFOpenOptions *options = tiff.options_alloc();
    TIFF *file = NULL;

    if (options) {
        tiff.set_limit(options, (tmsize_t)(CVY_MAX_PIXELS * 4));
        tiff.set_error(options, keep_sentence, source);
        tiff.set_warning(options, drop_warning, NULL);
        file = tiff.open("image", "rm", source, read_bytes, write_bytes, seek, close_nothing, size_of, map_nothing,
                         unmap_nothing, options);
        tiff.options_free(options);
    }
    return file;
}

static cvy_status refuse(const struct cvy_codec_job *job, const struct source *source, const char *why)
{
    return cvy_fail(CVY_BAD_DATA, "%s is a TIFF image that libtiff cannot read: %s", cvy_quote(job->name),
                    source->sentence[0] ? source->sentence : why);
}

bool cvy_is_tiff(const uint8_t *data, size_t size)
{
    return size >= 8 && (memcmp(data, "II*\0", 4) == 0 || memcmp(data, "MM\0*", 4) == 0 ||
                         memcmp(data, "II+\0", 4) == 0 || memcmp(data, "MM\0+", 4) == 0);
}

cvy_status cvy_tiff_start(struct cvy_codec_job *job)
{
    struct source source = {.job = job};
    char why[1024] = "a damaged header";
    uint32_t width = 0, height = 0;
    TIFF *file;
    int can;

    pthread_once(&once, load);
    if (reason[0])
        return cvy_fail(CVY_BAD_DATA, "%s is a TIFF image, which takes libtiff 4.5 (Debian: apt install libtiff6): %s",
                        cvy_quote(job->name), reason);
    file = open_source(&source);
    if (!file)
        return refuse(job, &source, why);
    can = tiff.get_field(file, TIFFTAG_IMAGEWIDTH, &width) && tiff.get_field(file, TIFFTAG_IMAGELENGTH, &height) &&
          width > 0 && height > 0 && width <= INT32_MAX && height <= INT32_MAX;
    if (can)
        can = tiff.can_read(file, why);
    tiff.close(file);
    if (!can)
        return refuse(job, &source, why);
    job->width = (int32_t)width;
    job->height = (int32_t)height;
    if ((int64_t)width * height > LARGE)
        job->min_size = (size_t)((int64_t)width * height / MAX_PIXELS_PER_BYTE);
    return CVY_OK;
}

/* libtiff multiplies colours by an alpha that they are not multiplied by already: it is told that they are. *divide:
 * they were. */
static cvy_status keep_colours(TIFF *file, const struct source *source, bool *divide)
{
    const uint16_t *kinds = NULL;
    uint16_t count = 0, *copy;
    int done;

    *divide = false;
    if (!tiff.get_field(file, TIFFTAG_EXTRASAMPLES, &count, &kinds) || count == 0)
        return CVY_OK;
    *divide = kinds[0] == EXTRASAMPLE_ASSOCALPHA;
    if (kinds[0] != EXTRASAMPLE_UNASSALPHA)
        return CVY_OK;
    copy = cvy_calloc(count, sizeof *copy);
    if (!copy)
        return cvy_fail_memory(count * sizeof *copy, "the samples of a TIFF image");
    memcpy(copy, kinds, count * sizeof *copy);
    copy[0] = EXTRASAMPLE_ASSOCALPHA;
    done = tiff.set_field(file, TIFFTAG_EXTRASAMPLES, (int)count, copy);
    cvy_free(copy);
    return done ? CVY_OK : refuse(source->job, source, "its alpha cannot be dropped");
}

/* A colour that was multiplied by alpha, as Pillow takes that back. */
static uint8_t divided(uint32_t colour, uint32_t alpha)
{
    const uint32_t value = alpha > 0 ? 255 * colour / alpha : colour;

    return (uint8_t)(value > 255 ? 255 : value);
}

static void copy_pixels(const struct cvy_codec_job *job, const struct cvy_box *need, bool divide)
{
    const uint32_t *from = (const uint32_t *)(const void *)job->rows.data;
    uint8_t *to = job->pixels.data;

    for (int32_t y = 0; y < need->height; y++)
        for (int32_t x = 0; x < need->width; x++, to += 3) {
            const uint32_t pixel = from[(size_t)(need->y + y) * (size_t)job->width + (size_t)(need->x + x)];
            const uint32_t alpha = divide ? TIFFGetA(pixel) : 255;
            to[0] = divided(TIFFGetR(pixel), alpha);
            to[1] = divided(TIFFGetG(pixel), alpha);
            to[2] = divided(TIFFGetB(pixel), alpha);
        }
}

cvy_status cvy_tiff_read(struct cvy_codec_job *job, const struct cvy_box *need, const uint8_t **pixels, size_t *stride)
{
    const size_t count = (size_t)job->width * (size_t)job->height;
    struct source source = {.job = job};
    uint16_t orientation = ORIENTATION_TOPLEFT;
    cvy_status status;
    bool divide;
    TIFF *file;
    int done;

    CVY_TRY(cvy_pixel_buffer_reserve(&job->rows, count * 4 + 64));
    CVY_TRY(cvy_pixel_buffer_reserve(&job->pixels, (size_t)need->width * (size_t)need->height * 3 + 64));
    file = open_source(&source);
    if (!file)
        return refuse(job, &source, "a damaged header");
    /* As it is stored: whether it is turned is decided elsewhere, by the same tag. */
    (void)tiff.get_defaulted(file, TIFFTAG_ORIENTATION, &orientation);
    status = keep_colours(file, &source, &divide);
    done = status == CVY_OK && tiff.read(file, (uint32_t)job->width, (uint32_t)job->height,
                                         (uint32_t *)(void *)job->rows.data, orientation, 1);
    tiff.close(file);
    CVY_TRY(status);
    if (!done)
        return refuse(job, &source, "it is damaged or ends early");
    copy_pixels(job, need, divide);
    *pixels = job->pixels.data;
    *stride = (size_t)need->width * 3;
    return CVY_OK;
}
