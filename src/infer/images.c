/* Classification of images of any sizes in batches, and of tensors. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/finite.h"
#include "base/sized.h"
#include "infer/batches.h"

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

/* ---- rows of answers ---- */

static void put_row(float *to, const float *from, int64_t row, int64_t index, int64_t columns)
{
    if (to && from)
        memcpy(to + row * columns, from + index * columns, (size_t)columns * sizeof *to);
}

static void put_nan(float *to, int64_t row, int64_t columns)
{
    for (int64_t i = 0; to && i < columns; i++)
        to[row * columns + i] = NAN;
}

/* The answer for image `index` of the evaluator's batch is that of the caller's image `row`. */
static void put_answer(const struct cvy_evaluator *evaluator, int64_t index, int64_t row,
                       const struct cvy_outputs *outputs)
{
    const int64_t classes = evaluator->network->model.num_classes;

    put_row(outputs->logits, evaluator->logits, row, index, classes);
    put_row(outputs->probabilities, evaluator->probabilities, row, index, classes);
    put_row(outputs->features, evaluator->features, row, index, evaluator->feature_count);
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

static void take_result(void *context, const struct cvy_evaluator *evaluator, const struct cvy_image_result *result)
{
    const struct cvy_outputs *outputs = context;

    if (result->status == CVY_OK)
        put_answer(evaluator, result->index, result->number, outputs);
    else
        put_no_answer(evaluator, result->number, outputs);
}

cvy_status cvy_classify_images(cvy_classifier *classifier, const struct cvy_image *images, int count,
                               const struct cvy_outputs *outputs)
{
    CVY_REQUIRE(classifier);
    CVY_REQUIRE(images || count == 0);
    CVY_REQUIRE(outputs);
    struct cvy_predictor *predictor = cvy_classifier_predictor(classifier);
    struct cvy_outputs where;

    CVY_TRY(cvy_predictor_expect_classifier(predictor));
    CVY_TRY(take_outputs(predictor, outputs, &where));
    return cvy_predictor_compute_images(predictor, &(struct cvy_image_work){
                                                       .images = images,
                                                       .count = count,
                                                       .status = where.status,
                                                       .errors = where.errors,
                                                       .take = take_result,
                                                       .context = &where,
                                                   });
}

/* ---- tensors ---- */

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

/* Images `first` and following: what they are is noted, and what can be computed is. */
static cvy_status classify_batch(struct cvy_predictor *predictor, const struct cvy_input_tensor *tensor, int32_t first,
                                 int32_t batch, float *images, struct cvy_image_notes *notes,
                                 const struct cvy_outputs *outputs)
{
    const size_t floats = 3 * (size_t)tensor->height * (size_t)tensor->width;
    char sentence[CVY_ERROR_SIZE] = "";
    struct cvy_evaluator *evaluator;

    CVY_TRY(cvy_batches_evaluator(predictor, &predictor->tensors, &predictor->tensors.network, batch, &evaluator));
    for (int32_t i = 0; i < batch; i++) {
        const cvy_status status = take_image(tensor, first + i, images + (size_t)i * floats);

        if (status != CVY_OK && !notes->status)
            return status;
        if (status != CVY_OK)
            cvy_image_sentence(sentence);
        cvy_image_notes_put(notes, first + i, status, sentence);
    }
    CVY_TRY(cvy_evaluator_run(evaluator, (const uint8_t *)images, batch, true));
    for (int32_t i = 0; i < batch; i++) {
        if (notes->status && notes->status[first + i] != CVY_OK)
            put_no_answer(evaluator, first + i, outputs);
        else
            put_answer(evaluator, i, first + i, outputs);
    }
    return CVY_OK;
}

static cvy_status classify_tensor(struct cvy_predictor *predictor, const struct cvy_input_tensor *tensor, float *images,
                                  const struct cvy_outputs *outputs)
{
    const int32_t largest = cvy_batches_largest(predictor);
    struct cvy_image_notes notes;

    CVY_TRY(cvy_image_notes_begin(&notes, outputs->status, outputs->errors));
    for (int32_t first = 0, batch; first < tensor->images; first += batch) {
        batch = tensor->images - first < largest ? tensor->images - first : largest;
        CVY_TRY(classify_batch(predictor, tensor, first, batch, images, &notes, outputs));
    }
    return cvy_image_notes_end(&notes);
}

static cvy_status classify_checked(struct cvy_predictor *predictor, const struct cvy_input_tensor *tensor,
                                   const struct cvy_outputs *outputs)
{
    cvy_status status;

    CVY_TRY(open_tensor_network(predictor));
    const size_t bytes = (size_t)cvy_batches_padded(predictor, tensor->images) *
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

/* ---- the best classes ---- */

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
