/* JPEG through libjpeg-turbo's libjpeg interface, which can leave out what a crop does not need: rows above are only
 * entropy-decoded, rows below not at all, blocks beside are not transformed. The pixels stay those of a full decode:
 * - Chroma upsampling looks one sample to each side, so a cropped row keeps two spare columns on either side.
 * - Rows are skipped from the top in whole iMCU rows; the rest is read and dropped.
 * - Images in several scans and unusual sampling factors are decoded in full. */
#include <stdio.h> /* jpeglib.h needs FILE */

#include <jerror.h>
#include <jpeglib.h>
#include <setjmp.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "data/image/baseline.h"
#include "data/image/codec.h"

/* Cropped rows of older ones may be written at the image's full width. */
#if defined LIBJPEG_TURBO_VERSION_NUMBER && LIBJPEG_TURBO_VERSION_NUMBER >= 2001003
enum { CROPS_SAFELY = 1 };
#else
enum { CROPS_SAFELY = 0 };
#endif

/* More scans than any sensible progressive file has: each costs a pass over the whole image. The largest image may have
 * as many as encoders write (about 10) twice over; smaller ones more, as far as they cost no more than that. */
enum { MAX_SCANS = 200, MAX_SCANS_OF_LARGEST = 20 };

struct cvy_jpeg {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    struct cvy_baseline *baseline;
    jmp_buf jump;
    bool created, out_of_memory, ends_early;
    char message[JMSG_LENGTH_MAX];
    /* of the read in progress */
    struct cvy_codec_job *job;
    struct cvy_box need;
    size_t stride;
    int32_t first_column; /* of the decoded rows, in image columns */
    int32_t eighths;      /* of the image's size, to which it is decoded */
    int max_scans;
};

static void on_error(j_common_ptr common)
{
    struct cvy_jpeg *jpeg = common->client_data;
    jpeg->out_of_memory = common->err->msg_code == JERR_OUT_OF_MEMORY;
    common->err->format_message(common, jpeg->message);
    longjmp(jpeg->jump, 1);
}

/* level < 0: a warning. Only running out of data is an error: libjpeg would invent the rest. */
static void on_message(j_common_ptr common, int level)
{
    struct cvy_jpeg *jpeg = common->client_data;
    if (level >= 0)
        return;
    common->err->num_warnings++;
    if (common->err->msg_code == JWRN_JPEG_EOF) {
        jpeg->ends_early = true;
        longjmp(jpeg->jump, 1);
    }
}

static void on_output(j_common_ptr common)
{
    (void)common;
}

static void on_progress(j_common_ptr common)
{
    struct cvy_jpeg *jpeg = common->client_data;
    if (common->is_decompressor && jpeg->info.input_scan_number > jpeg->max_scans) {
        snprintf(jpeg->message, sizeof jpeg->message, "more than %d scans of %u x %u pixels", jpeg->max_scans,
                 jpeg->info.image_width, jpeg->info.image_height);
        longjmp(jpeg->jump, 1);
    }
}

/* Run `body`; a jump out of libjpeg becomes a status. */
static cvy_status guarded(struct cvy_jpeg *jpeg, void (*body)(struct cvy_jpeg *))
{
    jpeg->out_of_memory = jpeg->ends_early = false;
    jpeg->message[0] = 0;
    if (setjmp(jpeg->jump) == 0) {
        body(jpeg);
        return CVY_OK;
    }
    const char *name = cvy_quote(jpeg->job->name);
    if (jpeg->out_of_memory)
        return cvy_fail(CVY_NO_MEMORY, "out of memory while decoding %s", name);
    if (jpeg->ends_early)
        return cvy_fail(CVY_BAD_DATA, "%s is truncated: the JPEG data ends early", name);
    return cvy_fail(CVY_BAD_DATA, "%s cannot be decoded: %s", name, jpeg->message);
}

cvy_status cvy_jpeg_new(struct cvy_jpeg **out)
{
    cvy_status status = CVY_OK;
    struct cvy_jpeg *jpeg = cvy_calloc(1, sizeof *jpeg);

    *out = NULL;
    if (!jpeg)
        return cvy_fail_memory(sizeof *jpeg, "a JPEG decoder");
    CVY_GOTO(cvy_baseline_new(&jpeg->baseline));
    *out = jpeg;
    return CVY_OK;
fail:
    cvy_jpeg_free(jpeg);
    return status;
}

int cvy_jpeg_components(const struct cvy_jpeg *jpeg)
{
    return jpeg->info.num_components;
}

static void destroy(struct cvy_jpeg *jpeg)
{
    if (jpeg->created)
        jpeg_destroy_decompress(&jpeg->info);
    jpeg->created = false;
}

void cvy_jpeg_free(struct cvy_jpeg *jpeg)
{
    if (!jpeg)
        return;
    destroy(jpeg);
    cvy_baseline_free(jpeg->baseline);
    cvy_free(jpeg);
}

static void read_header(struct cvy_jpeg *jpeg)
{
    jpeg_create_decompress(&jpeg->info);
    jpeg->created = true;
    jpeg->info.client_data = jpeg;
    jpeg->progress.progress_monitor = on_progress;
    jpeg->info.progress = &jpeg->progress;
    jpeg_mem_src(&jpeg->info, jpeg->job->data, jpeg->job->size);
    (void)jpeg_read_header(&jpeg->info, TRUE);
}

/* Whether an end-of-image marker follows the header. It cannot occur inside entropy-coded data, so a file that was cut
 * off has none; in a whole file it is found at once. */
static bool has_end_marker(const struct cvy_jpeg *jpeg)
{
    const uint8_t *p = jpeg->info.src->next_input_byte;
    size_t left = jpeg->info.src->bytes_in_buffer;
    for (const uint8_t *end; left > 1 && (end = memrchr(p, 0xD9, left)) != NULL && end > p; left = (size_t)(end - p))
        if (end[-1] == 0xFF)
            return true;
    return false;
}

/* libjpeg-turbo 3 decodes these too, but to the full size only and without cropping. It gives them units of one sample
 * where others have blocks of eight. */
static bool is_lossless(const struct jpeg_decompress_struct *info)
{
#if JPEG_LIB_VERSION >= 70
    return info->min_DCT_h_scaled_size != DCTSIZE;
#else
    return info->min_DCT_scaled_size != DCTSIZE;
#endif
}

/* A Huffman code takes at least one bit for the mean of a block of 8 x 8 pixels. Arithmetic codes may take less. */
static void set_limits(struct cvy_jpeg *jpeg, struct cvy_codec_job *job)
{
    const int64_t blocks = ((int64_t)job->width + 7) / 8 * (((int64_t)job->height + 7) / 8);
    const int64_t pixels = (int64_t)job->width * job->height;
    const int64_t scans = MAX_SCANS_OF_LARGEST * CVY_MAX_PIXELS / (pixels > 0 ? pixels : 1);

    job->min_size = jpeg->info.arith_code ? 0 : (size_t)(blocks / 8);
    jpeg->max_scans = scans < MAX_SCANS ? (int)scans : MAX_SCANS;
}

cvy_status cvy_jpeg_start(struct cvy_jpeg *jpeg, struct cvy_codec_job *job)
{
    destroy(jpeg);
    jpeg->job = job;
    memset(&jpeg->info, 0, sizeof jpeg->info);
    jpeg->info.err = jpeg_std_error(&jpeg->errors);
    jpeg->info.client_data = jpeg;
    jpeg->errors.error_exit = on_error;
    jpeg->errors.emit_message = on_message;
    jpeg->errors.output_message = on_output;
    CVY_TRY(guarded(jpeg, read_header));
    if (jpeg->info.num_components != 1 && jpeg->info.num_components != 3 && jpeg->info.num_components != 4)
        return cvy_fail(CVY_BAD_DATA, "%s is a JPEG with %d components; 1, 3 and 4 are known", cvy_quote(job->name),
                        jpeg->info.num_components);
    if (is_lossless(&jpeg->info))
        return cvy_fail(CVY_BAD_DATA, "%s is a lossless JPEG, which is not read", cvy_quote(job->name));
    if (!has_end_marker(jpeg))
        return cvy_fail(CVY_BAD_DATA, "%s is truncated: the JPEG data ends early", cvy_quote(job->name));
    jpeg->eighths = 8;
    job->width = (int32_t)jpeg->info.image_width; /* at most 65500 */
    job->height = (int32_t)jpeg->info.image_height;
    set_limits(jpeg, job);
    return CVY_OK;
}

/* One sequential scan, chroma stored at the whole or half the width and height. */
static bool is_simple(const struct jpeg_decompress_struct *info)
{
    const jpeg_component_info *c = info->comp_info;
    if (jpeg_has_multiple_scans((j_decompress_ptr)info) || info->Ss != 0 || info->Se != DCTSIZE2 - 1 || info->Ah != 0 ||
        info->Al != 0)
        return false;
    if (info->num_components == 1)
        return c[0].h_samp_factor == 1 && c[0].v_samp_factor == 1;
    return info->num_components == 3 && c[0].h_samp_factor <= 2 && c[0].v_samp_factor <= 2 && c[1].h_samp_factor == 1 &&
           c[1].v_samp_factor == 1 && c[2].h_samp_factor == 1 && c[2].v_samp_factor == 1;
}

/* The layouts for which leaving out columns and rows is known to keep the pixels. */
static bool can_crop(const struct jpeg_decompress_struct *info)
{
    return CROPS_SAFELY && is_simple(info);
}

/* Without restart markers: they are the likeliest reason why batches with such images came out wrong on a GPU
 * (doc/cuda.md, "Images"). */
bool cvy_jpeg_is_usual(const struct cvy_jpeg *jpeg)
{
    const struct jpeg_decompress_struct *info = &jpeg->info;
    const jpeg_component_info *c = info->comp_info;

    return is_simple(info) && !info->arith_code && info->data_precision == 8 && info->restart_interval == 0 &&
           c[0].v_samp_factor <= c[0].h_samp_factor && /* not 4:4:0 */
           info->jpeg_color_space == (info->num_components == 1 ? JCS_GRAYSCALE : JCS_YCbCr);
}

/* Where chroma is stored at half the width or half the height alone, libjpeg scales it like luma, which leaves too
 * little of it. */
bool cvy_jpeg_can_scale(const struct cvy_jpeg *jpeg)
{
    const jpeg_component_info *c = jpeg->info.comp_info;
    return can_crop(&jpeg->info) && c[0].h_samp_factor == c[0].v_samp_factor;
}

void cvy_jpeg_scale(struct cvy_jpeg *jpeg, struct cvy_codec_job *job, int32_t eighths)
{
    jpeg->eighths = eighths;
    job->width = (int32_t)((jpeg->info.image_width * (JDIMENSION)eighths + 7) / 8);
    job->height = (int32_t)((jpeg->info.image_height * (JDIMENSION)eighths + 7) / 8);
}

/* CMYK as Pillow has it: samples are stored inverted (Adobe's way), then RGB = (255 - K) * (255 - C) / 255, rounded. */
static void cmyk_to_rgb(const uint8_t *in, uint8_t *out, int32_t count)
{
    for (int32_t i = 0; i < count; i++, in += 4, out += 3)
        for (int c = 0; c < 3; c++) {
            const int white = in[3], ink = 255 - in[c]; /* in[3] is already 255 - K */
            const int t = ink * white + 128, product = ((t >> 8) + t) >> 8;
            out[c] = (uint8_t)(white - product < 0 ? 0 : white - product);
        }
}

/* Start decompression and leave out the columns and rows that are not needed. */
static void start_and_skip(struct cvy_jpeg *jpeg)
{
    struct jpeg_decompress_struct *info = &jpeg->info;
    const struct cvy_box *need = &jpeg->need;
    const bool crop = can_crop(info);

    info->out_color_space = info->num_components == 4 ? JCS_CMYK : JCS_RGB;
    info->dct_method = jpeg->job->speed <= CVY_JPEG_LIBRARY ? JDCT_ISLOW : JDCT_IFAST;
    info->do_fancy_upsampling = jpeg->job->speed != CVY_JPEG_FAST;
    info->scale_num = (unsigned)jpeg->eighths;
    info->scale_denom = 8;
    (void)jpeg_start_decompress(info);
    if (info->output_width != (JDIMENSION)jpeg->job->width || info->output_height != (JDIMENSION)jpeg->job->height) {
        snprintf(jpeg->message, sizeof jpeg->message, "libjpeg gives %u x %u pixels where there should be %d x %d",
                 info->output_width, info->output_height, (int)jpeg->job->width, (int)jpeg->job->height);
        longjmp(jpeg->jump, 1); /* the buffers are made for the latter */
    }
    jpeg->first_column = 0;
    if (!crop)
        return;
    if (need->width < jpeg->job->width) {
        JDIMENSION x = (JDIMENSION)(need->x > 2 ? need->x - 2 : 0);
        JDIMENSION end = (JDIMENSION)(need->x + need->width) + 2;
        if (end > info->output_width)
            end = info->output_width;
        JDIMENSION width = end - x;
        jpeg_crop_scanline(info, &x, &width);
        jpeg->first_column = (int32_t)x;
    }
    const JDIMENSION rows = (JDIMENSION)(jpeg->eighths * info->max_v_samp_factor);
    const JDIMENSION skip = (JDIMENSION)need->y / rows * rows;
    if (skip > 0)
        (void)jpeg_skip_scanlines(info, skip);
}

static void read_rows(struct cvy_jpeg *jpeg)
{
    struct jpeg_decompress_struct *info = &jpeg->info;
    const struct cvy_box *need = &jpeg->need;
    struct cvy_codec_job *job = jpeg->job;
    const JDIMENSION first = (JDIMENSION)need->y, end = (JDIMENSION)(need->y + need->height);
    const bool cmyk = info->num_components == 4;

    start_and_skip(jpeg);
    while (info->output_scanline < end) {
        const JDIMENSION y = info->output_scanline;
        /* A row group gives up to max_v_samp_factor (<= 4) rows at a time. */
        JSAMPROW rows[4];
        JDIMENSION count = 1;
        if (y < first || cmyk) {
            rows[0] = job->rows.data;
        } else {
            count = end - y < 4 ? end - y : 4;
            for (JDIMENSION i = 0; i < count; i++)
                rows[i] = job->pixels.data + (y - first + i) * jpeg->stride;
        }
        (void)jpeg_read_scanlines(info, rows, count);
        if (cmyk && y >= first)
            cmyk_to_rgb(job->rows.data, job->pixels.data + (y - first) * jpeg->stride, job->width);
    }
    if (end == info->output_height)
        (void)jpeg_finish_decompress(info);
}

cvy_status cvy_jpeg_read(struct cvy_jpeg *jpeg, struct cvy_codec_job *job, const struct cvy_box *need,
                         const uint8_t **pixels, size_t *stride)
{
    /* A cropped row begins up to an iMCU (32 columns) early and ends two columns late. */
    const int32_t spare = 32 + 4;
    bool done = false;

    if (job->speed == CVY_JPEG_EXACT)
        CVY_TRY(cvy_baseline_read(jpeg->baseline, &jpeg->info, job, need, jpeg->eighths, &done));
    if (done) {
        *pixels = job->pixels.data;
        *stride = (size_t)need->width * 3;
        destroy(jpeg);
        return CVY_OK;
    }
    const bool cropped = can_crop(&jpeg->info) && need->width < job->width - spare;
    const size_t columns = (size_t)(cropped ? need->width + spare : job->width);
    size_t bytes;

    jpeg->need = *need;
    jpeg->stride = columns * 3;
    if (!cvy_size_mul(jpeg->stride, (size_t)need->height, &bytes))
        return cvy_fail(CVY_BAD_DATA, "%s is too large", cvy_quote(job->name));
    CVY_TRY(cvy_pixel_buffer_reserve(&job->pixels, bytes + 64));
    CVY_TRY(cvy_pixel_buffer_reserve(&job->rows, (size_t)job->width * 4 + 64));
    CVY_TRY(guarded(jpeg, read_rows));
    *pixels = job->pixels.data + (size_t)(need->x - jpeg->first_column) * 3;
    *stride = jpeg->stride;
    destroy(jpeg);
    return CVY_OK;
}
