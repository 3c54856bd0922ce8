/* Classification of images of any sizes in batches, and of tensors. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/finite.h"
#include "base/parallel.h"
#include "base/sized.h"
#include "infer/predictor.h"

/* ---- what the caller gave ---- */

static cvy_status take_outputs(const struct cvy_predictor *predictor, const struct cvy_outputs *given,
                               struct cvy_outputs *outputs)
{
    *outputs = CVY_SIZED(cvy_outputs);
    CVY_TRY(cvy_sized_take(outputs, sizeof *outputs, given, "cvy_outputs"));
    if (outputs->features && !predictor->network.model.features)
        return cvy_fail(CVY_USAGE, "there are no features: the classifier was opened without the option for them");
    return CVY_OK;
}

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

static cvy_status take_tensor(const struct cvy_predictor *predictor, const struct cvy_input_tensor *given,
                              struct cvy_input_tensor *tensor)
{
    const int side = predictor->preprocessing.image_size;

    *tensor = CVY_SIZED(cvy_input_tensor);
    CVY_TRY(cvy_sized_take(tensor, sizeof *tensor, given, "cvy_input_tensor"));
    if (!tensor->data || tensor->images < 1)
        return cvy_fail(CVY_USAGE, "the tensor has no images");
    if (tensor->order != CVY_ORDER_NCHW && tensor->order != CVY_ORDER_NHWC)
        return cvy_fail(CVY_USAGE, "there is no order of a tensor %d", (int)tensor->order);
    if (tensor->height != side || tensor->width != side)
        return cvy_fail(CVY_USAGE, "the tensor's images have %d x %d pixels, and the network's %d x %d", tensor->width,
                        tensor->height, side, side);
    return CVY_OK;
}

/* ---- evaluators ---- */

static int32_t largest_batch(const struct cvy_predictor *predictor)
{
    const int32_t most = 1 << (CVY_BATCH_SIZES - 1);

    if (predictor->batch_size <= 0)
        return cvy_evaluation_batch(predictor->network.architecture);
    return predictor->batch_size < most ? predictor->batch_size : most;
}

/* The images of the smallest evaluator for `count` of them, up to the largest batch, and its index. */
static int32_t padded_batch(const struct cvy_predictor *predictor, int64_t count, int *index)
{
    const int32_t largest = largest_batch(predictor);
    int32_t batch = 1;

    for (*index = 0; batch < count && batch < largest; ++*index)
        batch *= 2;
    return batch < largest ? batch : largest;
}

static cvy_status find_evaluator(struct cvy_predictor *predictor, struct cvy_batch_evaluators *evaluators,
                                 struct cvy_network *network, int64_t count, struct cvy_evaluator **found)
{
    int index;
    const int32_t batch = padded_batch(predictor, count, &index);

    *found = &evaluators->of[index];
    if ((*found)->network && (*found)->batch == batch)
        return CVY_OK;
    cvy_evaluator_close(*found); /* --batch-size auto has been chosen since */
    CVY_TRY(cvy_predictor_open_single(predictor));
    CVY_TRY(cvy_predictor_check_batch(predictor, network, batch));
    return cvy_evaluator_open_beside(*found, network, batch, &predictor->one);
}

/* The network that takes images which are normalised already, opened when first used. */
static cvy_status open_tensor_network(struct cvy_predictor *predictor)
{
    struct cvy_model_options model = predictor->network.model;

    if (predictor->tensors.network.architecture)
        return CVY_OK;
    model.float_images = true;
    for (int i = 0; i < 3; i++) {
        model.mean[i] = 0;
        model.std[i] = 1;
    }
    return cvy_network_open_beside(&predictor->tensors.network, predictor->device, &model, &predictor->network);
}

static void put_rows(float *to, const float *from, int64_t first, int64_t count, int64_t columns)
{
    if (to && from)
        memcpy(to + first * columns, from, (size_t)(count * columns) * sizeof *to);
}

/* The answers for the first `count` images of the evaluator's batch are those of images `first` and following. */
static void put_answers(const struct cvy_evaluator *evaluator, int64_t first, int64_t count,
                        const struct cvy_outputs *outputs)
{
    const int64_t classes = evaluator->network->model.num_classes;

    put_rows(outputs->logits, evaluator->logits, first, count, classes);
    put_rows(outputs->probabilities, evaluator->probabilities, first, count, classes);
    put_rows(outputs->features, evaluator->features, first, count, evaluator->feature_count);
}

static void put_nan(float *to, int64_t row, int64_t columns)
{
    for (int64_t i = 0; to && i < columns; i++)
        to[row * columns + i] = NAN;
}

/* The answers for an image that has none. */
static void put_no_answer(const struct cvy_evaluator *evaluator, int64_t row, const struct cvy_outputs *outputs)
{
    const int64_t classes = evaluator->network->model.num_classes;

    put_nan(outputs->logits, row, classes);
    put_nan(outputs->probabilities, row, classes);
    put_nan(outputs->features, row, evaluator->feature_count);
}

/* ---- images ---- */

/* The images of one batch, decoded by several threads. */
struct decoding {
    const struct cvy_predictor *predictor;
    struct cvy_transform transform;
    const struct cvy_image *images; /* from the first one of the batch on */
    int64_t first;                  /* the number of that one */
    uint8_t *pixels;
    size_t image_bytes;
    cvy_status *status; /* of each image */
    char *errors;       /* a sentence of each; NULL: a bad image ends the work */
};
enum { SENTENCE = 512 };

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

static cvy_status decode(const struct decoding *decoding, struct decoding_thread *thread, int64_t index)
{
    const struct cvy_image *image = &decoding->images[index];
    struct cvy_encoded encoded = {.name = image->name, .data = image->data, .size = image->bytes};
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
    return cvy_transform_image(&decoding->transform, thread->decoder, &thread->resizer, &encoded, NULL,
                               decoding->pixels + (size_t)index * decoding->image_bytes);
}

static cvy_status decode_one(void *context, void *state, int64_t index)
{
    const struct decoding *decoding = context;

    decoding->status[index] = decode(decoding, state, index);
    if (decoding->status[index] == CVY_OK)
        return CVY_OK;
    if (!decoding->errors)
        return decoding->status[index];
    cvy_error_get(decoding->errors + (size_t)index * SENTENCE, SENTENCE);
    memset(decoding->pixels + (size_t)index * decoding->image_bytes, 0, decoding->image_bytes);
    return CVY_OK;
}

/* What one image of a batch came to. The first bad one's sentence and status are kept. */
static void note_image(const struct decoding *decoding, const struct cvy_evaluator *evaluator, int64_t index,
                       const struct cvy_outputs *outputs, cvy_status *worst, char sentence[SENTENCE])
{
    const int64_t row = decoding->first + index;

    outputs->status[row] = decoding->status[index];
    if (decoding->status[index] == CVY_OK)
        return;
    put_no_answer(evaluator, row, outputs);
    if (*worst == CVY_OK) {
        *worst = decoding->status[index];
        snprintf(sentence, SENTENCE, "%s", decoding->errors + (size_t)index * SENTENCE);
    }
}

/* `decoding` has room for a whole batch. */
static cvy_status classify_batches(struct cvy_predictor *predictor, struct decoding *decoding, int64_t count,
                                   const struct cvy_outputs *outputs)
{
    const struct cvy_parallel work = {decoding, begin_thread, end_thread, decode_one};
    const int64_t largest = largest_batch(predictor);
    struct cvy_evaluator *evaluator;
    cvy_status worst = CVY_OK;
    char sentence[SENTENCE] = "";

    for (int64_t batch; decoding->first < count; decoding->first += batch, decoding->images += batch) {
        batch = count - decoding->first < largest ? count - decoding->first : largest;
        CVY_TRY(cvy_predictor_stopped(predictor));
        CVY_TRY(find_evaluator(predictor, &predictor->images, &predictor->network, batch, &evaluator));
        CVY_TRY(cvy_parallel_run(&work, batch, batch < predictor->workers ? (int)batch : predictor->workers));
        CVY_TRY(cvy_evaluator_run(evaluator, decoding->pixels, batch, true));
        put_answers(evaluator, decoding->first, batch, outputs);
        for (int64_t i = 0; outputs->status && i < batch; i++)
            note_image(decoding, evaluator, i, outputs, &worst, sentence);
    }
    if (worst != CVY_OK)
        cvy_error_put(sentence);
    return worst;
}

static cvy_status classify_images(struct cvy_predictor *predictor, const struct cvy_image *images, int count,
                                  const struct cvy_outputs *outputs)
{
    cvy_status status;
    int index;

    CVY_TRY(cvy_predictor_begin(predictor));
    const size_t room = (size_t)padded_batch(predictor, count, &index);
    struct decoding decoding = {
        .predictor = predictor,
        .transform = cvy_predictor_transform(predictor),
        .images = images,
        .image_bytes = cvy_model_image_bytes(&predictor->network.model, CVY_MODEL_INFER),
        .status = cvy_calloc(room, sizeof(cvy_status)),
        .errors = outputs->status ? cvy_calloc(room, SENTENCE) : NULL,
    };
    atomic_store(&predictor->stop, false);
    decoding.pixels = cvy_calloc_aligned(room * decoding.image_bytes);
    if (!decoding.pixels || !decoding.status || (outputs->status && !decoding.errors))
        status = cvy_fail_memory(room * decoding.image_bytes, "a batch of images");
    else
        status = classify_batches(predictor, &decoding, count, outputs);
    cvy_free_aligned(decoding.pixels);
    cvy_free(decoding.status);
    cvy_free(decoding.errors);
    return cvy_predictor_end(predictor, status);
}

cvy_status cvy_classify_images(cvy_classifier *classifier, const struct cvy_image *images, int count,
                               const struct cvy_outputs *outputs)
{
    CVY_REQUIRE(classifier);
    CVY_REQUIRE(images || count == 0);
    CVY_REQUIRE(outputs);
    struct cvy_predictor *predictor = cvy_classifier_predictor(classifier);
    struct cvy_outputs where;
    struct cvy_image *known;
    cvy_status status;

    CVY_TRY(cvy_predictor_expect_classifier(predictor));
    CVY_TRY(take_outputs(predictor, outputs, &where));
    if (count < 0)
        return cvy_fail(CVY_USAGE, "there cannot be %d images", count);
    known = cvy_calloc((size_t)count + 1, sizeof *known);
    if (!known)
        return cvy_fail_memory((size_t)count * sizeof *known, "the list of images");
    status = take_images(images, count, known);
    if (status == CVY_OK)
        status = classify_images(predictor, known, count, &where);
    cvy_free(known);
    return status;
}

/* ---- tensors ---- */

/* One image as the network reads it: NHWC. */
static void copy_image(const struct cvy_input_tensor *tensor, int64_t index, float *to)
{
    const size_t plane = (size_t)tensor->height * (size_t)tensor->width;
    const float *from = tensor->data + (size_t)index * 3 * plane;

    if (tensor->order == CVY_ORDER_NHWC) {
        memcpy(to, from, 3 * plane * sizeof *to);
        return;
    }
    for (size_t i = 0; i < plane; i++) {
        for (size_t c = 0; c < 3; c++)
            to[3 * i + c] = from[c * plane + i];
    }
}

/* The same for one that may be computed: kernels make numbers of NaN, and so answers. Another is left black. */
static cvy_status take_image(const struct cvy_input_tensor *tensor, int64_t index, float *to)
{
    const size_t floats = 3 * (size_t)tensor->height * (size_t)tensor->width;
    size_t bad;

    copy_image(tensor, index, to);
    bad = cvy_count_not_finite(to, floats);
    if (bad == 0)
        return CVY_OK;
    memset(to, 0, floats * sizeof *to);
    return cvy_fail(CVY_BAD_DATA, "image %lld of the tensor: %zu of its %zu numbers are NaN or infinite",
                    (long long)index, bad, floats);
}

static cvy_status classify_tensor(struct cvy_predictor *predictor, const struct cvy_input_tensor *tensor, float *images,
                                  const struct cvy_outputs *outputs)
{
    const size_t floats = 3 * (size_t)tensor->height * (size_t)tensor->width;
    const int32_t largest = largest_batch(predictor);
    struct cvy_evaluator *evaluator;
    cvy_status worst = CVY_OK;
    char sentence[SENTENCE] = "";

    for (int32_t first = 0, batch; first < tensor->images; first += batch) {
        batch = tensor->images - first < largest ? tensor->images - first : largest;
        CVY_TRY(find_evaluator(predictor, &predictor->tensors, &predictor->tensors.network, batch, &evaluator));
        for (int32_t i = 0; i < batch; i++) {
            const cvy_status status = take_image(tensor, first + i, images + (size_t)i * floats);

            if (outputs->status)
                outputs->status[first + i] = status;
            else if (status != CVY_OK)
                return status;
            if (status != CVY_OK && worst == CVY_OK) {
                worst = status;
                cvy_error_get(sentence, sizeof sentence);
            }
        }
        CVY_TRY(cvy_evaluator_run(evaluator, (const uint8_t *)images, batch, true));
        put_answers(evaluator, first, batch, outputs);
        for (int32_t i = 0; i < batch; i++)
            if (outputs->status && outputs->status[first + i] != CVY_OK)
                put_no_answer(evaluator, first + i, outputs);
    }
    if (worst != CVY_OK)
        cvy_error_put(sentence);
    return worst;
}

static cvy_status classify_checked(struct cvy_predictor *predictor, const struct cvy_input_tensor *tensor,
                                   const struct cvy_outputs *outputs)
{
    cvy_status status;
    int index;

    CVY_TRY(open_tensor_network(predictor));
    const size_t bytes = (size_t)padded_batch(predictor, tensor->images, &index) *
                         cvy_model_image_bytes(&predictor->tensors.network.model, CVY_MODEL_INFER);
    float *images = cvy_calloc_aligned(bytes);
    status = images ? classify_tensor(predictor, tensor, images, outputs) : cvy_fail_memory(bytes, "a batch of images");
    cvy_free_aligned(images);
    return status;
}

cvy_status cvy_classify_tensor(cvy_classifier *classifier, const struct cvy_input_tensor *tensor,
                               const struct cvy_outputs *outputs)
{
    CVY_REQUIRE(classifier);
    CVY_REQUIRE(tensor);
    CVY_REQUIRE(outputs);
    struct cvy_predictor *predictor = cvy_classifier_predictor(classifier);
    struct cvy_input_tensor known;
    struct cvy_outputs where;

    CVY_TRY(cvy_predictor_expect_classifier(predictor));
    CVY_TRY(take_outputs(predictor, outputs, &where));
    CVY_TRY(take_tensor(predictor, tensor, &known));
    CVY_TRY(cvy_predictor_begin(predictor));
    return cvy_predictor_end(predictor, classify_checked(predictor, &known, &where));
}

/* ---- answers ---- */

static bool is_better(const float *values, int a, int b)
{
    if (isnan(values[a]) || isnan(values[b]))
        return isnan(values[a]) != isnan(values[b]) ? isnan(values[b]) : a < b;
    return values[a] > values[b] || (values[a] >= values[b] && a < b);
}

int cvy_top_k(const float *values, int count, int k, int *indices)
{
    int found = 0;

    if (!values || !indices)
        return 0;
    for (int i = 0; i < count && k > 0; i++) {
        int at = found < k ? found++ : k;

        for (; at > 0 && is_better(values, i, indices[at - 1]); at--) {
            if (at < k)
                indices[at] = indices[at - 1];
        }
        if (at < k)
            indices[at] = i;
    }
    return found;
}
