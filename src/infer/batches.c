#include "infer/batches.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/parallel.h"
#include "base/sized.h"
#include "base/utf8.h"

/* ---- evaluators ---- */

int32_t cvy_batches_largest(const struct cvy_predictor *predictor)
{
    const int32_t most = 1 << (CVY_BATCH_SIZES - 1);

    if (predictor->batch_size <= 0)
        return cvy_evaluation_batch(predictor->network.architecture);
    return predictor->batch_size < most ? predictor->batch_size : most;
}

static int32_t padded(const struct cvy_predictor *predictor, int64_t count, int *index)
{
    const int32_t largest = cvy_batches_largest(predictor);
    int32_t batch = 1;

    for (*index = 0; batch < count && batch < largest; ++*index)
        batch *= 2;
    return batch < largest ? batch : largest;
}

int32_t cvy_batches_padded(const struct cvy_predictor *predictor, int64_t count)
{
    int index;

    return padded(predictor, count, &index);
}

/* All of them: each may read what an older one has made of the weights. */
static void close_evaluators(struct cvy_predictor *predictor)
{
    for (int i = 0; i < CVY_BATCH_SIZES; i++) {
        cvy_evaluator_close(&predictor->images.of[i]);
        cvy_evaluator_close(&predictor->tensors.of[i]);
    }
    predictor->newest = NULL;
}

cvy_status cvy_batches_evaluator(struct cvy_predictor *predictor, struct cvy_batch_evaluators *evaluators,
                                 struct cvy_network *network, int64_t count, struct cvy_evaluator **found)
{
    int index;
    const int32_t batch = padded(predictor, count, &index);

    CVY_TRY(cvy_predictor_open_single(predictor));
    *found = &predictor->one;
    if (batch == 1 && network == &predictor->network)
        return CVY_OK;
    *found = &evaluators->of[index];
    if ((*found)->network && (*found)->batch == batch)
        return CVY_OK;
    if ((*found)->network)
        close_evaluators(predictor); /* --batch-size auto has been chosen since */
    CVY_TRY(cvy_predictor_check_batch(predictor, network, batch));
    CVY_TRY(cvy_evaluator_open_beside(*found, network, batch, predictor->newest ? predictor->newest : &predictor->one));
    predictor->newest = *found;
    return CVY_OK;
}

/* ---- bad images ---- */

cvy_status cvy_image_notes_begin(struct cvy_image_notes *notes, cvy_status *status, char *errors)
{
    *notes = (struct cvy_image_notes){.status = status, .errors = errors, .worst = CVY_OK};
    if (errors && !status)
        return cvy_fail(CVY_USAGE, "the outputs have errors without status: the first bad image would end the call");
    return CVY_OK;
}

void cvy_image_notes_put(struct cvy_image_notes *notes, int64_t number, cvy_status status, const char *sentence)
{
    if (notes->status)
        notes->status[number] = status;
    if (notes->errors)
        snprintf(notes->errors + number * CVY_ERROR_SIZE, CVY_ERROR_SIZE, "%s", status == CVY_OK ? "" : sentence);
    if (status != CVY_OK && notes->worst == CVY_OK) {
        notes->worst = status;
        snprintf(notes->sentence, sizeof notes->sentence, "%s", sentence);
    }
}

cvy_status cvy_image_notes_end(const struct cvy_image_notes *notes)
{
    if (notes->worst != CVY_OK)
        cvy_error_put(notes->sentence);
    return notes->worst;
}

void cvy_image_sentence(char sentence[CVY_ERROR_SIZE])
{
    size_t length, whole = 0, step = 1;
    uint32_t character;

    cvy_error_get(sentence, CVY_ERROR_SIZE);
    length = strlen(sentence);
    if (length < CVY_ERROR_SIZE - 1)
        return;
    for (; step > 0; whole += step)
        step = cvy_utf8_sequence(sentence + whole, length - whole, &character);
    sentence[whole] = 0;
}

/* ---- images ---- */

/* The program's structs, each of the size that its own header has, as ours: `images` has room for them. */
static cvy_status take_images(const struct cvy_image *given, int count, struct cvy_image *images)
{
    size_t size, first = 0;

    for (int i = 0; i < count; i++) {
        const void *at = (const char *)given + (size_t)i * first;
        memcpy(&size, at, sizeof size);
        if (i > 0 && size != first)
            return cvy_fail(CVY_USAGE, "struct cvy_image: the size of image 0 is %zu bytes, and that of image %d %zu",
                            first, i, size);
        first = size;
        images[i] = CVY_SIZED(cvy_image);
        CVY_TRY(cvy_sized_take(&images[i], sizeof images[i], at, "cvy_image"));
    }
    return CVY_OK;
}

/* What became of an image of the batch. */
struct decoded {
    cvy_status status;
    int32_t width, height;
    char sentence[CVY_ERROR_SIZE]; /* where the work continues without it */
};

/* The images of one batch, decoded by several threads. */
struct decoding {
    const struct cvy_predictor *predictor;
    struct cvy_transform transform;
    const struct cvy_image *images; /* from the first one of the batch on */
    int64_t first;                  /* the number of that one */
    bool continues;                 /* a bad image does not end the work */
    uint8_t *pixels;
    size_t image_bytes;
    struct decoded *decoded;
};

struct decoding_thread {
    struct cvy_decoder *decoder;
    struct cvy_resizer resizer;
    struct cvy_pixel_bytes buffer;
};

static void end_thread(void *state)
{
    struct decoding_thread *thread = state;

    cvy_decoder_free(thread->decoder);
    cvy_resizer_release(&thread->resizer);
    cvy_pixel_bytes_release(&thread->buffer);
    cvy_free(thread);
}

static cvy_status begin_thread(void *context, void **state)
{
    const struct decoding *decoding = context;
    struct decoding_thread *thread = cvy_calloc(1, sizeof *thread);
    cvy_status status;

    if (!thread)
        return cvy_fail_memory(sizeof *thread, "a decoding thread");
    thread->resizer.filter = decoding->predictor->resizer.filter;
    status = cvy_decoder_new(&thread->decoder);
    if (status == CVY_OK)
        *state = thread;
    else
        end_thread(thread);
    return status;
}

static cvy_status decode(const struct decoding *decoding, struct decoding_thread *thread, int64_t index, void *pixels)
{
    const struct cvy_image *image = &decoding->images[index];
    struct cvy_encoded encoded = {.name = image->name, .data = image->data, .size = image->bytes};
    struct decoded *decoded = &decoding->decoded[index];
    char number[32];

    if (!image->name) {
        snprintf(number, sizeof number, "image %lld", (long long)(decoding->first + index));
        encoded.name = number;
    }
    if (!image->data) {
        if (!image->pixels)
            return cvy_fail(CVY_USAGE, "%s has neither bytes nor pixels", cvy_quote(encoded.name));
        CVY_TRY(cvy_pixels_encode(image->pixels, encoded.name, &thread->buffer, &encoded));
    }
    if (decoding->transform.detection)
        return cvy_predictor_read_detection(decoding->predictor, thread->decoder, &thread->resizer, &encoded, pixels,
                                            &decoded->width, &decoded->height);
    return cvy_transform_image(&decoding->transform, thread->decoder, &thread->resizer, &encoded, NULL, pixels);
}

static cvy_status decode_one(void *context, void *state, int64_t index)
{
    const struct decoding *decoding = context;
    struct decoded *decoded = &decoding->decoded[index];
    uint8_t *pixels = decoding->pixels + (size_t)index * decoding->image_bytes;

    decoded->status = decode(decoding, state, index, pixels);
    if (decoded->status == CVY_OK || !decoding->continues)
        return decoded->status;
    cvy_image_sentence(decoded->sentence);
    memset(pixels, 0, decoding->image_bytes);
    return CVY_OK;
}

static cvy_status compute_batch(struct cvy_predictor *predictor, struct decoding *decoding, int64_t batch,
                                const struct cvy_image_work *work, struct cvy_image_notes *notes)
{
    const struct cvy_parallel threads = {decoding, begin_thread, end_thread, decode_one};
    struct cvy_evaluator *evaluator;
    bool any = false;

    CVY_TRY(cvy_predictor_stopped(predictor));
    CVY_TRY(cvy_batches_evaluator(predictor, &predictor->images, &predictor->network, batch, &evaluator));
    CVY_TRY(cvy_parallel_run(&threads, batch, batch < predictor->workers ? (int)batch : predictor->workers));
    for (int64_t i = 0; i < batch; i++)
        any |= decoding->decoded[i].status == CVY_OK;
    if (any)
        CVY_TRY(cvy_evaluator_run(evaluator, decoding->pixels, batch, true));
    for (int32_t i = 0; i < batch; i++) {
        const struct decoded *decoded = &decoding->decoded[i];
        const struct cvy_image_result result = {
            .number = decoding->first + i,
            .index = i,
            .status = decoded->status,
            .width = decoded->width,
            .height = decoded->height,
        };
        cvy_image_notes_put(notes, result.number, decoded->status, decoded->sentence);
        work->take(work->context, evaluator, &result);
    }
    return CVY_OK;
}

/* `images` are those of the work, as ours. */
static cvy_status compute_images(struct cvy_predictor *predictor, const struct cvy_image *images,
                                 const struct cvy_image_work *work, struct cvy_image_notes *notes)
{
    const size_t room = (size_t)cvy_batches_padded(predictor, work->count);
    const int64_t largest = cvy_batches_largest(predictor);
    struct decoding decoding = {
        .predictor = predictor,
        .transform = cvy_predictor_transform(predictor),
        .images = images,
        .continues = notes->status != NULL,
        .image_bytes = cvy_model_image_bytes(&predictor->network.model, CVY_MODEL_INFER),
        .decoded = cvy_calloc(room, sizeof *decoding.decoded),
    };
    cvy_status status = CVY_OK;

    decoding.pixels = cvy_calloc_aligned(room * decoding.image_bytes);
    if (!decoding.pixels || !decoding.decoded)
        status = cvy_fail_memory(room * decoding.image_bytes, "a batch of images");
    for (int64_t batch; status == CVY_OK && decoding.first < work->count;
         decoding.first += batch, decoding.images += batch) {
        batch = work->count - decoding.first < largest ? work->count - decoding.first : largest;
        status = compute_batch(predictor, &decoding, batch, work, notes);
    }
    cvy_free_aligned(decoding.pixels);
    cvy_free(decoding.decoded);
    return status == CVY_OK ? cvy_image_notes_end(notes) : status;
}

cvy_status cvy_predictor_compute_images(struct cvy_predictor *predictor, const struct cvy_image_work *work)
{
    struct cvy_image_notes notes;
    struct cvy_image *known;
    cvy_status status;

    CVY_TRY(cvy_image_notes_begin(&notes, work->status, work->errors));
    if (work->count < 0)
        return cvy_fail(CVY_USAGE, "there cannot be %d images", work->count);
    known = cvy_calloc((size_t)work->count + 1, sizeof *known);
    if (!known)
        return cvy_fail_memory((size_t)work->count * sizeof *known, "the list of images");
    CVY_GOTO(take_images(work->images, work->count, known));
    CVY_GOTO(cvy_predictor_begin(predictor));
    atomic_store(&predictor->stop, false);
    status = cvy_predictor_end(predictor, compute_images(predictor, known, work, &notes));
fail:
    cvy_free(known);
    return status;
}
