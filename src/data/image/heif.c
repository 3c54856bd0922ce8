/* HEIC, AVIF and their relatives by libheif, which is loaded when the first image of that kind comes. It applies what
 * the file says about rotation, mirroring and cropping itself; an EXIF orientation beside that counts for nothing
 * (ISO/IEC 23008-12). */
#include <pthread.h>
#include <string.h>

#include <libheif/heif.h>

#include "base/error.h"
#include "base/library.h"
#include "base/memory.h"
#include "data/image/codec.h"

enum {
    /* An image of one colour takes next to nothing. One of more pixels than most cameras' in so few bytes is a bomb. */
    LARGE = 1 << 24,
    MAX_PIXELS_PER_BYTE = 4096,
    /* Sides of what the file holds inside: tiles, the image before it is cropped. The square is 1.5 times
     * CVY_MAX_PIXELS. */
    MAX_SIDE = 16384
};

static struct {
    struct heif_context *(*context_alloc)(void);
    void (*context_free)(struct heif_context *context);
    void (*set_limit)(struct heif_context *context, int side);
    void (*set_threads)(struct heif_context *context, int threads);
    struct heif_error (*read)(struct heif_context *context, const void *data, size_t size, const void *options);
    struct heif_error (*primary)(struct heif_context *context, struct heif_image_handle **handle);
    void (*handle_release)(const struct heif_image_handle *handle);
    int (*handle_width)(const struct heif_image_handle *handle);
    int (*handle_height)(const struct heif_image_handle *handle);
    struct heif_decoding_options *(*options_alloc)(void);
    void (*options_free)(struct heif_decoding_options *options);
    struct heif_error (*decode)(const struct heif_image_handle *handle, struct heif_image **image,
                                enum heif_colorspace space, enum heif_chroma chroma,
                                const struct heif_decoding_options *options);
    const uint8_t *(*plane)(const struct heif_image *image, enum heif_channel channel, int *stride);
    int (*width)(const struct heif_image *image, enum heif_channel channel);
    int (*height)(const struct heif_image *image, enum heif_channel channel);
    void (*release)(const struct heif_image *image);
} heif;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char reason[CVY_LIBRARY_REASON]; /* "": it is loaded */

static void load(void)
{
    static const char *const libraries[] = {"libheif.so.1", NULL};
    static const struct cvy_library_function functions[] = {
        {"heif_context_alloc", &heif.context_alloc},
        {"heif_context_free", &heif.context_free},
        {"heif_context_set_maximum_image_size_limit", &heif.set_limit},
        {"heif_context_set_max_decoding_threads", &heif.set_threads},
        {"heif_context_read_from_memory_without_copy", &heif.read},
        {"heif_context_get_primary_image_handle", &heif.primary},
        {"heif_image_handle_release", &heif.handle_release},
        {"heif_image_handle_get_width", &heif.handle_width},
        {"heif_image_handle_get_height", &heif.handle_height},
        {"heif_decoding_options_alloc", &heif.options_alloc},
        {"heif_decoding_options_free", &heif.options_free},
        {"heif_decode_image", &heif.decode},
        {"heif_image_get_plane_readonly", &heif.plane},
        {"heif_image_get_width", &heif.width},
        {"heif_image_get_height", &heif.height},
        {"heif_image_release", &heif.release},
    };

    cvy_library_load(libraries, functions, sizeof functions / sizeof *functions, reason);
}

struct cvy_heif {
    struct heif_context *context; /* of the image started last; it reads the job's data */
    struct heif_image_handle *handle;
    struct heif_image *image; /* that was read last */
};

cvy_status cvy_heif_new(struct cvy_heif **out)
{
    *out = cvy_calloc(1, sizeof **out);
    return *out ? CVY_OK : cvy_fail_memory(sizeof **out, "an image decoder");
}

static void forget(struct cvy_heif *state)
{
    if (state->image)
        heif.release(state->image);
    if (state->handle)
        heif.handle_release(state->handle);
    if (state->context)
        heif.context_free(state->context);
    *state = (struct cvy_heif){0};
}

void cvy_heif_free(struct cvy_heif *state)
{
    if (state)
        forget(state);
    cvy_free(state);
}

bool cvy_is_heif(const uint8_t *data, size_t size)
{
    static const char *const brands[] = {"heic", "heix", "heim", "heis", "hevc", "hevx",
                                         "mif1", "msf1", "mif2", "avif", "avis"};

    for (size_t i = 0; size >= 12 && memcmp(data + 4, "ftyp", 4) == 0 && i < sizeof brands / sizeof *brands; i++) {
        if (memcmp(data + 8, brands[i], 4) == 0)
            return true;
    }
    return false;
}

/* libheif's sentence about what it was given. */
static cvy_status refuse(const struct cvy_codec_job *job, struct heif_error error)
{
    char text[256];

    if (error.code == heif_error_Memory_allocation_error && error.subcode != heif_suberror_Security_limit_exceeded)
        return cvy_fail_memory(job->size, "the pixels of an image");
    strncpy(text, error.message ? error.message : "", sizeof text - 1);
    text[sizeof text - 1] = '\0';
    text[strcspn(text, "\n")] = '\0';
    cvy_escape_controls(text);
    return cvy_fail(CVY_BAD_DATA, "%s is a HEIC or AVIF image that libheif cannot read: %s", cvy_quote(job->name),
                    text);
}

cvy_status cvy_heif_start(struct cvy_heif *state, struct cvy_codec_job *job)
{
    struct heif_error error;

    pthread_once(&once, load);
    if (reason[0])
        return cvy_fail(CVY_BAD_DATA,
                        "%s is a HEIC or AVIF image, which takes libheif (Debian: apt install libheif1): %s",
                        cvy_quote(job->name), reason);
    forget(state);
    state->context = heif.context_alloc();
    if (!state->context)
        return cvy_fail_memory(job->size, "an image decoder");
    heif.set_limit(state->context, MAX_SIDE);
    heif.set_threads(state->context, 0); /* the loader has its own */
    error = heif.read(state->context, job->data, job->size, NULL);
    if (error.code == heif_error_Ok)
        error = heif.primary(state->context, &state->handle);
    if (error.code != heif_error_Ok)
        return refuse(job, error);
    job->width = heif.handle_width(state->handle);
    job->height = heif.handle_height(state->handle);
    if (job->width < 1 || job->height < 1)
        return cvy_fail(CVY_BAD_DATA, "%s is a HEIC or AVIF image with a damaged header", cvy_quote(job->name));
    if ((int64_t)job->width * job->height > LARGE)
        job->min_size = (size_t)((int64_t)job->width * job->height / MAX_PIXELS_PER_BYTE);
    return CVY_OK;
}

cvy_status cvy_heif_read(struct cvy_heif *state, const struct cvy_codec_job *job, const struct cvy_box *need,
                         const uint8_t **pixels, size_t *stride)
{
    struct heif_decoding_options *options = heif.options_alloc();
    const uint8_t *plane;
    struct heif_error error;
    int bytes = 0;

    if (!options)
        return cvy_fail_memory(sizeof *options, "an image decoder");
    options->convert_hdr_to_8bit = 1; /* 10 and 12 bits become 8 */
    if (options->version >= 3)
        options->strict_decoding = 1; /* what is cut off is bad */
    error = heif.decode(state->handle, &state->image, heif_colorspace_RGB, heif_chroma_interleaved_RGB, options);
    heif.options_free(options);
    if (error.code != heif_error_Ok)
        return refuse(job, error);
    plane = heif.plane(state->image, heif_channel_interleaved, &bytes);
    if (!plane || heif.width(state->image, heif_channel_interleaved) != job->width ||
        heif.height(state->image, heif_channel_interleaved) != job->height || bytes < job->width * 3)
        return cvy_fail(CVY_BAD_DATA, "%s is a HEIC or AVIF image of another size inside than its header says",
                        cvy_quote(job->name));
    *stride = (size_t)bytes;
    *pixels = plane + (size_t)need->y * *stride + (size_t)need->x * 3;
    return CVY_OK;
}
