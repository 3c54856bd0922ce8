/* Batches of JPEGs to bytes of the network's input: nvJPEG decodes, kernels of our own crop and resize. Each lane has a
 * stream, a state of nvJPEG's and memory of its own. */
#include "backend/image_decoder.h"

#include <math.h>
#include <string.h>

#include "backend/cuda/gpu.h"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/nvjpeg.h"

/* Decoded pixels of a lane at a time, unless one image has more: what takes() accepts is below it. Memory grows in
 * steps. */
#define PIXELS_MAX ((size_t)768 << 20)
#define IMAGE_MAX  ((size_t)384 << 20)
#define STEP       ((size_t)16 << 20)
enum { ALIGNMENT = 256, IMAGES_MAX = 65535 /* blocks of a launch, downwards */ };

struct room {
    void *memory;
    size_t bytes;
};

struct lane {
    void *stream;
    nvjpeg_state state;
    int32_t initialized; /* for batches of so many; 0: for none */
    struct room pixels;  /* decoded */
    struct room work;    /* tables of weights, rows between the passes, descriptions */
    struct room staged;  /* pinned: descriptions, pixels of the host */
    /* (capacity) of what is decoded at once */
    const unsigned char **data;
    size_t *lengths;
    struct nvjpeg_image *outputs;
    int32_t capacity;
};

struct cvy_image_decoder {
    struct gpu_device *device;
    struct cvy_image_decoder_options options;
    struct gpu_nvjpeg nvjpeg;
    struct lane *lanes;
    nvjpeg_stream *headers; /* (threads) */
};

static size_t align_up(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* ---- opening and closing ---- */

static void close_lane(struct cvy_image_decoder *decoder, struct lane *lane)
{
    if (lane->state)
        (void)decoder->nvjpeg.f.nvjpegJpegStateDestroy(lane->state);
    gpu_release(lane->pixels.memory);
    gpu_release(lane->work.memory);
    gpu_release_pinned(lane->staged.memory);
    gpu_stream_close(lane->stream);
    cvy_free(lane->data);
    cvy_free(lane->lengths);
    cvy_free(lane->outputs);
}

static void decoder_close(struct cvy_image_decoder *decoder)
{
    if (!decoder)
        return;
    if (gpu_enter_of(decoder->device) != CVY_OK) {
        /* Then nothing below can be given back. */
    }
    for (int32_t i = 0; decoder->lanes && i < decoder->options.lanes; i++)
        close_lane(decoder, &decoder->lanes[i]);
    for (int32_t i = 0; decoder->headers && i < decoder->options.threads; i++) {
        if (decoder->headers[i])
            (void)decoder->nvjpeg.f.nvjpegJpegStreamDestroy(decoder->headers[i]);
    }
    gpu_nvjpeg_close(&decoder->nvjpeg);
    cvy_free(decoder->lanes);
    cvy_free(decoder->headers);
    cvy_free(decoder);
}

static cvy_status open_parts(struct cvy_image_decoder *decoder)
{
    const struct nvjpeg_functions *f = &decoder->nvjpeg.f;

    for (int32_t i = 0; i < decoder->options.lanes; i++) {
        CVY_TRY(gpu_stream_open(&decoder->lanes[i].stream));
        CVY_TRY(gpu_nvjpeg_check(f->nvjpegJpegStateCreate(decoder->nvjpeg.handle, &decoder->lanes[i].state),
                                 "a decoder of JPEGs"));
    }
    for (int32_t i = 0; i < decoder->options.threads; i++)
        CVY_TRY(gpu_nvjpeg_check(f->nvjpegJpegStreamCreate(decoder->nvjpeg.handle, &decoder->headers[i]),
                                 "a reader of JPEG headers"));
    return CVY_OK;
}

static cvy_status decoder_open(cvy_device *device, const struct cvy_image_decoder_options *options,
                               struct cvy_image_decoder **out)
{
    struct cvy_image_decoder *decoder;
    cvy_status status;

    *out = NULL;
    if (gpu_of(device)->described)
        return cvy_fail(CVY_UNAVAILABLE, "this GPU is only described: nothing can run on it");
    CVY_TRY(gpu_enter_of(gpu_of(device)));
    decoder = cvy_calloc(1, sizeof *decoder);
    if (!decoder)
        return cvy_fail_memory(sizeof *decoder, "the GPU's image decoder");
    decoder->device = gpu_of(device);
    decoder->options = *options;
    decoder->lanes = cvy_calloc((size_t)options->lanes, sizeof *decoder->lanes);
    decoder->headers = cvy_calloc((size_t)options->threads, sizeof *decoder->headers);
    if (!decoder->lanes || !decoder->headers) {
        decoder_close(decoder);
        return cvy_fail_memory((size_t)options->threads * sizeof *decoder->headers, "the GPU's image decoder");
    }
    CVY_GOTO(gpu_nvjpeg_open(&decoder->nvjpeg));
    CVY_GOTO(open_parts(decoder));
    *out = decoder;
    return CVY_OK;
fail:
    decoder_close(decoder);
    return status;
}

static const char *decoder_description(const struct cvy_image_decoder *decoder)
{
    return decoder->nvjpeg.description;
}

/* ---- what it takes ---- */

static size_t stride_of(int32_t width)
{
    return align_up((size_t)width * 3);
}

static bool decoder_takes(struct cvy_image_decoder *decoder, int32_t thread, const uint8_t *data, size_t bytes,
                          int32_t width, int32_t height)
{
    const struct nvjpeg_functions *f = &decoder->nvjpeg.f;
    const nvjpeg_stream header = decoder->headers[thread];
    int refusal = 1;

    if (stride_of(width) * (size_t)height > IMAGE_MAX || width < decoder->nvjpeg.smallest ||
        height < decoder->nvjpeg.smallest)
        return false;
    if (decoder->nvjpeg.backend != NVJPEG_BACKEND_HARDWARE)
        return true;
    return f->nvjpegJpegStreamParseHeader(decoder->nvjpeg.handle, data, bytes, header) == NVJPEG_SUCCESS &&
           f->nvjpegDecodeBatchedSupported(decoder->nvjpeg.handle, header, &refusal) == NVJPEG_SUCCESS && refusal == 0;
}

/* ---- decoding ---- */

/* A room for so many grows in steps, and a little ahead. */
static size_t room_bytes(size_t bytes)
{
    return (bytes + bytes / 4 + STEP - 1) / STEP * STEP;
}

static cvy_status reserve(struct lane *lane, struct room *room, size_t bytes, bool pinned)
{
    if (bytes <= room->bytes)
        return CVY_OK;
    (pinned ? gpu_release_pinned : gpu_release)(room->memory);
    *room = (struct room){0};
    bytes = room_bytes(bytes);
    CVY_TRY(pinned ? gpu_allocate_pinned(bytes, &room->memory) : gpu_allocate(lane->stream, bytes, &room->memory));
    room->bytes = bytes;
    return CVY_OK;
}

static cvy_status reserve_lists(struct lane *lane, int32_t count)
{
    const size_t n = (size_t)count;

    if (count <= lane->capacity)
        return CVY_OK;
    lane->capacity = 0;
    cvy_free(lane->data);
    cvy_free(lane->lengths);
    cvy_free(lane->outputs);
    lane->data = cvy_calloc(n, sizeof *lane->data);
    lane->lengths = cvy_calloc(n, sizeof *lane->lengths);
    lane->outputs = cvy_calloc(n, sizeof *lane->outputs);
    if (!lane->data || !lane->lengths || !lane->outputs)
        return cvy_fail_memory(n * sizeof *lane->outputs, "a batch of JPEGs");
    lane->capacity = count;
    return CVY_OK;
}

/* Bytes of each room. */
struct extent {
    size_t pixels, work, staged;
};

static struct gpu_crop_axis axis_of(const struct cvy_resize_axis *from, const struct cvy_device_image *image)
{
    struct gpu_crop_axis axis = {.origin = from->origin,
                                 .extent = from->extent,
                                 .size = from->size,
                                 .out = from->out,
                                 .first = from->first,
                                 .count = from->count,
                                 .at = from->at};

    gpu_crop_measure(&axis, image->cubic, image->antialiased);
    return axis;
}

static size_t take(size_t *used, size_t bytes)
{
    const size_t at = *used;

    *used += align_up(bytes);
    return at;
}

static void *at(void *memory, size_t offset)
{
    return memory ? (char *)memory + offset : NULL;
}

static size_t table_bytes(const struct gpu_crop_axis *axis)
{
    return (size_t)axis->count * ((size_t)axis->most + 2) * sizeof *axis->table;
}

/* Where an image's parts lie; `used` moves past them. Pixels of the host are staged at *staged. */
static struct gpu_crop lay_out(const struct lane *lane, const struct cvy_device_image *image, struct extent *used,
                               size_t *pixels, size_t *staged)
{
    const size_t stride = stride_of(image->width), all = stride * (size_t)image->height;
    struct gpu_crop crop = {.stride = (int64_t)stride,
                            .to = image->to,
                            .across = axis_of(&image->across, image),
                            .down = axis_of(&image->down, image),
                            .cubic = image->cubic,
                            .antialiased = image->antialiased,
                            .flip = image->flip};
    const size_t rows = (size_t)crop.down.lines * (size_t)crop.across.count * 3;

    *pixels = take(&used->pixels, all);
    *staged = image->data ? 0 : take(&used->staged, all);
    crop.source = at(lane->pixels.memory, *pixels + (size_t)image->y * stride + (size_t)image->x * 3);
    crop.across.table = at(lane->work.memory, take(&used->work, table_bytes(&crop.across)));
    crop.down.table = at(lane->work.memory, take(&used->work, table_bytes(&crop.down)));
    crop.rows = at(lane->work.memory, take(&used->work, rows));
    return crop;
}

/* What `count` images take, the descriptions first. */
static struct extent begin(int32_t count)
{
    const size_t descriptions = align_up((size_t)count * sizeof(struct gpu_crop));

    return (struct extent){.work = descriptions, .staged = descriptions};
}

static cvy_status stage_pixels(struct lane *lane, const struct cvy_device_image *image, size_t to, size_t staged)
{
    const size_t stride = stride_of(image->width), row = (size_t)image->width * 3;
    char *host = at(lane->staged.memory, staged);

    for (int32_t y = 0; y < image->height; y++)
        memcpy(host + (size_t)y * stride, image->pixels + (size_t)y * image->stride, row);
    return gpu_upload(lane->stream, at(lane->pixels.memory, to), host, stride * (size_t)image->height);
}

static cvy_status decode_jpegs(struct cvy_image_decoder *decoder, struct lane *lane, int32_t count)
{
    const struct nvjpeg_functions *f = &decoder->nvjpeg.f;
    const int threads = decoder->nvjpeg.backend == NVJPEG_BACKEND_HARDWARE ? 1 : 4;
    int result;

    if (count == 0)
        return CVY_OK;
    if (lane->initialized != count)
        CVY_TRY(gpu_nvjpeg_check(
            f->nvjpegDecodeBatchedInitialize(decoder->nvjpeg.handle, lane->state, count, threads, NVJPEG_OUTPUT_RGBI),
            "a batch of JPEGs"));
    lane->initialized = count;
    result = f->nvjpegDecodeBatched(decoder->nvjpeg.handle, lane->state, lane->data, lane->lengths, lane->outputs,
                                    lane->stream);
    if (result == NVJPEG_SUCCESS)
        return CVY_OK;
    /* Whatever it says, and it says little, the images may be at fault. */
    lane->initialized = 0;
    return cvy_fail(CVY_BAD_DATA, "nvJPEG cannot decode a batch: its status is %d", result);
}

/* As many images as there is room for. */
static cvy_status decode_part(struct cvy_image_decoder *decoder, struct lane *lane,
                              const struct cvy_device_image *images, int32_t count)
{
    const size_t descriptions = (size_t)count * sizeof(struct gpu_crop);
    struct extent need = begin(count), used = need;
    struct gpu_crop *crops;
    int64_t rows = 1;
    int32_t jpegs = 0;
    size_t pixels, staged;

    for (int32_t i = 0; i < count; i++)
        (void)lay_out(&(struct lane){0}, &images[i], &need, &pixels, &staged);
    CVY_TRY(gpu_stream_wait(lane->stream)); /* what was staged last may still be read */
    CVY_TRY(reserve(lane, &lane->pixels, need.pixels, false));
    CVY_TRY(reserve(lane, &lane->work, need.work, false));
    CVY_TRY(reserve(lane, &lane->staged, need.staged, true));
    CVY_TRY(reserve_lists(lane, count));
    crops = lane->staged.memory;
    for (int32_t i = 0; i < count; i++) {
        crops[i] = lay_out(lane, &images[i], &used, &pixels, &staged);
        if ((int64_t)crops[i].down.lines * crops[i].across.count > rows)
            rows = (int64_t)crops[i].down.lines * crops[i].across.count;
        if (!images[i].data) {
            CVY_TRY(stage_pixels(lane, &images[i], pixels, staged));
            continue;
        }
        lane->data[jpegs] = images[i].data;
        lane->lengths[jpegs] = images[i].bytes;
        lane->outputs[jpegs++] =
            (struct nvjpeg_image){.channel = {at(lane->pixels.memory, pixels)}, .pitch = {(size_t)crops[i].stride}};
    }
    CVY_TRY(decode_jpegs(decoder, lane, jpegs));
    CVY_TRY(gpu_upload(lane->stream, lane->work.memory, crops, descriptions));
    gpu_crop(lane->stream, lane->work.memory, count, decoder->options.side, rows);
    return gpu_last_error();
}

static cvy_status decoder_decode(struct cvy_image_decoder *decoder, int32_t number,
                                 const struct cvy_device_image *images, int32_t count)
{
    struct lane *lane = &decoder->lanes[number];

    CVY_TRY(gpu_enter_of(decoder->device));
    for (int32_t from = 0, to; from < count; from = to) {
        size_t bytes = 0;
        for (to = from; to < count; to++) {
            bytes += stride_of(images[to].width) * (size_t)images[to].height;
            if (to > from && (bytes > PIXELS_MAX || to - from == IMAGES_MAX))
                break;
        }
        CVY_TRY(decode_part(decoder, lane, images + from, to - from));
    }
    return CVY_OK;
}

static cvy_status decoder_upload(struct cvy_image_decoder *decoder, int32_t lane, void *to, const void *host,
                                 size_t bytes)
{
    CVY_TRY(gpu_enter_of(decoder->device));
    return gpu_upload(decoder->lanes[lane].stream, to, host, bytes);
}

static cvy_status decoder_wait(struct cvy_image_decoder *decoder, int32_t lane)
{
    CVY_TRY(gpu_enter_of(decoder->device));
    return gpu_stream_wait(decoder->lanes[lane].stream);
}

static size_t decoder_lane_bytes(const struct cvy_image_lanes *lanes, int64_t count)
{
    const int32_t side = (int32_t)ceil(sqrt((double)lanes->pixels)), out = lanes->options.side;
    const struct cvy_resize_axis axis = {.extent = side, .size = side, .out = out, .count = out};
    const struct cvy_device_image image = {
        .width = side, .height = side, .across = axis, .down = axis, .antialiased = true};
    struct extent need, one = {0};
    size_t pixels, staged, part;

    if (lanes->pixels <= 0 || count <= 0)
        return 0;
    (void)lay_out(&(struct lane){0}, &image, &one, &pixels, &staged);
    part = PIXELS_MAX / one.pixels > 0 ? PIXELS_MAX / one.pixels : 1; /* decoded at once, as decoder_decode has it */
    part = part > IMAGES_MAX ? IMAGES_MAX : part;
    part = part > (uint64_t)count ? (size_t)count : part;
    need = begin((int32_t)part);
    return (size_t)lanes->options.lanes * (room_bytes(part * one.pixels) + room_bytes(need.work + part * one.work));
}

const struct cvy_image_decoding gpu_image_decoding = {
    .name = "nvJPEG",
    .open = decoder_open,
    .close = decoder_close,
    .description = decoder_description,
    .takes = decoder_takes,
    .decode = decoder_decode,
    .upload = decoder_upload,
    .wait = decoder_wait,
    .lane_bytes = decoder_lane_bytes,
};
