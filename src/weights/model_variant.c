#include "weights/model_variant.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/nearest.h"
#include "data/transform/transform.h"
#include "options/options.h"

cvy_status cvy_model_choose(struct cvy_model_options *model, const char *padding, const char *squeeze_width)
{
    if (padding && !cvy_padding_parse(padding, &model->resnet.same_padding))
        return cvy_fail(CVY_USAGE, "option --padding is torch or same, not %s%s", cvy_quote(padding),
                        CVY_PERHAPS(padding, "torch", "same"));
    return squeeze_width ? cvy_squeeze_width_parse(squeeze_width, &model->resnet.squeeze_width) : CVY_OK;
}

cvy_status cvy_model_from_options(const struct cvy_train_options *options, struct cvy_model_options *model)
{
    const char *config = options->model_config;

    *model = cvy_model_options_make((int32_t)options->num_classes, (int32_t)options->image_size);
    /* grp-fanin and grp-fanout do what fanin and classic do: the reference's code has no difference. */
    model->resnet.fan_out_init =
        strcmp(config, "classic") == 0 || strcmp(config, "grp-fanout") == 0 || strcmp(config, "tf-fanout") == 0;
    model->resnet.tensorflow_init = strncmp(config, "tf-", 3) == 0;
    model->train_size = (int32_t)options->train_crop_size;
    if (strncmp(options->data_backend, "tensorflow", 10) == 0) { /* "tensorflow-dali" too, whose images are bytes */
        model->float_images = strcmp(options->data_backend, "tensorflow") == 0;
        memcpy(model->mean, cvy_tensorflow_mean, sizeof model->mean);
        memcpy(model->std, cvy_tensorflow_std, sizeof model->std);
    }
    cvy_model_options_adapt(model, cvy_architecture_find(options->arch));
    if (model->detector.regularization > 0)
        model->detector.regularization = (float)options->weight_decay;
    if (!cvy_strides_parse(options->backbone_strides, &model->detector.torchvision_backbone))
        return cvy_fail(CVY_USAGE, "option --backbone-strides is slim or torchvision, not %s%s",
                        cvy_quote(options->backbone_strides),
                        CVY_PERHAPS(options->backbone_strides, "slim", "torchvision"));
    model->resnet.last_bn_gamma_zero = options->last_bn_0_init;
    model->batch_norm_momentum = (float)options->bn_momentum;
    model->label_smoothing = (float)options->label_smoothing;
    model->mixup = options->mixup > 0;
    model->class_weights = cvy_has_class_weights(options);
    model->freeze = options->freeze;
    if (options->quantize && strcmp(options->quantize_rule, "tensorflow") == 0)
        model->quantize = options->symmetric ? CVY_QUANTIZE_FOLDED_SYMMETRIC : CVY_QUANTIZE_FOLDED_ASYMMETRIC;
    else if (options->quantize)
        model->quantize = options->per_channel ? CVY_QUANTIZE_CHANNELS
                          : options->symmetric ? CVY_QUANTIZE_SYMMETRIC
                                               : CVY_QUANTIZE_ASYMMETRIC;
    model->quant_delay = options->quant_delay;
    model->quantize_straight = options->use_qdq;
    model->freeze_norms = options->freeze_bn_delay;
    return cvy_model_choose(model, options->padding, options->squeeze_width);
}

/* Hidden units and channels of the first block of a stage; false when the file has none. */
static bool squeeze_shape(const struct cvy_tensor_file *file, int stage, int64_t *hidden, int64_t *channels)
{
    const struct cvy_named_tensor *tensor;
    char name[32];

    snprintf(name, sizeof name, "layer%d.0.se.fc1.weight", stage % 10);
    tensor = cvy_tensor_find(file, name);
    if (!tensor || tensor->shape.rank < 2)
        return false;
    *hidden = tensor->shape.dim[0];
    *channels = tensor->shape.dim[1];
    return *hidden >= 1 && *channels >= *hidden && *channels <= INT32_MAX;
}

/* The same number in each stage is a number of units; else it is C / n, and n is the largest that does not give a stage
 * fewer than it has. Damaged files get some width: loading names the tensors that do not fit. */
int32_t cvy_weights_squeeze_width(const struct cvy_tensor_file *file)
{
    int64_t hidden, channels, first = 0, share = INT32_MAX;
    bool equal = true;

    for (int stage = 1; stage <= 4 && squeeze_shape(file, stage, &hidden, &channels); stage++) {
        first = first ? first : hidden;
        equal = equal && hidden == first;
        share = channels / hidden < share ? channels / hidden : share;
    }
    return (int32_t)(equal ? first : -share);
}

/* What the quantizers of weights in a file look like. */
struct forms {
    int32_t symmetric, channels, asymmetric; /* that are on */
    int32_t count;
};

/* Symmetric ranges reach as far on one side of zero as on the other; the state of a scale for each channel has none
 * below it, as no range of a layer's weights has. Of weights that are all zero a range says nothing. */
static struct forms find_forms(const struct cvy_tensor_file *file)
{
    static const char suffix[] = ".weight" CVY_QUANTIZER_SUFFIX;
    struct forms forms = {0};

    for (size_t i = 0; i < file->tensor_count; i++) {
        const struct cvy_named_tensor *tensor = &file->tensors[i];
        const size_t length = strlen(tensor->name), end = strlen(suffix);
        float observed[3];

        if (!cvy_weights_is_model(tensor->name) || length < end || strcmp(tensor->name + length - end, suffix) != 0 ||
            !cvy_dtype_is_float(tensor->dtype) || tensor->shape.rank != 1 || tensor->shape.dim[0] != 3)
            continue;
        forms.count++;
        cvy_tensor_floats(tensor, observed);
        if (!(observed[2] > 0) || (observed[0] == 0 && observed[1] == 0))
            continue;
        if (observed[0] == -observed[1])
            forms.symmetric++;
        else if (observed[0] == 0)
            forms.channels++;
        else
            forms.asymmetric++;
    }
    return forms;
}

/* An asymmetric range may have any ends, so one that can be nothing else decides. */
enum cvy_quantize cvy_weights_quantize(const struct cvy_tensor_file *file)
{
    const struct forms forms = find_forms(file);

    if (forms.count == 0)
        return CVY_QUANTIZE_NONE;
    if (forms.asymmetric > 0)
        return CVY_QUANTIZE_ASYMMETRIC;
    return forms.channels > 0 ? CVY_QUANTIZE_CHANNELS : CVY_QUANTIZE_SYMMETRIC;
}

/* Whether the tensors alone tell how the network is quantised. */
static cvy_status check_forms(const struct cvy_tensor_file *file, const char *what)
{
    const struct forms forms = find_forms(file);

    if (forms.asymmetric == 0 && forms.symmetric > 0 && forms.channels > 0)
        return cvy_fail(CVY_BAD_DATA,
                        "%s does not say how it is quantised, and its tensors do not agree: quantizers of weights with "
                        "one scale: %d, with a scale for each channel: %d",
                        cvy_quote(what), (int)forms.symmetric, (int)forms.channels);
    if (forms.asymmetric + forms.symmetric + forms.channels == 0)
        cvy_log(CVY_LOG_WARNING, "%s has quantizers of weights, and all of them are off: its layers compute in floats",
                cvy_quote(what));
    return CVY_OK;
}

cvy_status cvy_model_choose_padding(struct cvy_model_options *model, const struct cvy_checkpoint_info *info,
                                    const char *what, const char *padding)
{
    CVY_TRY(cvy_model_choose(model, padding, NULL));
    if (info->padding && padding && info->same_padding != model->resnet.same_padding)
        return cvy_fail(CVY_BAD_DATA, "%s was made with --padding %s, not %s", cvy_quote(what), info->padding, padding);
    if (info->padding)
        model->resnet.same_padding = info->same_padding;
    return CVY_OK;
}

cvy_status cvy_model_choose_strides(struct cvy_model_options *model, const struct cvy_checkpoint_info *info,
                                    const struct cvy_architecture *architecture, const char *what, const char *strides)
{
    const bool detects = architecture->task == CVY_TASK_DETECT, known = info->padding != NULL; /* written with them */

    model->detector.torchvision_backbone = info->torchvision_backbone;
    if (strides && !detects)
        return cvy_fail(CVY_USAGE, "option --backbone-strides is for detectors, and %s is a classifier",
                        architecture->name);
    if (detects && model->resnet.same_padding)
        return cvy_fail(CVY_USAGE, "option --padding same is for classifiers, and %s is a detector",
                        architecture->name);
    if (strides && !cvy_strides_parse(strides, &model->detector.torchvision_backbone))
        return cvy_fail(CVY_USAGE, "option --backbone-strides is slim or torchvision, not %s%s", cvy_quote(strides),
                        CVY_PERHAPS(strides, "slim", "torchvision"));
    if (strides && known && model->detector.torchvision_backbone != info->torchvision_backbone)
        return cvy_fail(CVY_BAD_DATA, "%s was made with --backbone-strides %s, not %s", cvy_quote(what),
                        cvy_strides_name(info->torchvision_backbone), strides);
    if (detects && !strides && !known)
        cvy_log(CVY_LOG_WARNING,
                "%s does not say where its backbone halves the maps: --backbone-strides slim, as TensorFlow's program "
                "does, is taken",
                cvy_quote(what));
    return CVY_OK;
}

/* What a file that says nothing about it has. */
static void default_preprocessing(const struct cvy_model_options *model, const struct cvy_architecture *architecture,
                                  struct cvy_preprocessing *p)
{
    struct cvy_model_options own = *model;

    *p = (struct cvy_preprocessing){.image_size = architecture->default_image_size};
    memcpy(p->mean, cvy_imagenet_mean, sizeof p->mean);
    memcpy(p->std, cvy_imagenet_std, sizeof p->std);
    if (architecture->task != CVY_TASK_DETECT)
        return;
    cvy_model_options_adapt(&own, architecture);
    p->tensorflow = own.float_images;
    memcpy(p->mean, own.mean, sizeof p->mean);
    memcpy(p->std, own.std, sizeof p->std);
}

static cvy_status choose_backend(const char *backend, const struct cvy_architecture *architecture, bool own_mean,
                                 struct cvy_preprocessing *p)
{
    const bool tensorflow = strcmp(backend, "tensorflow") == 0, pytorch = strcmp(backend, "pytorch") == 0;
    const bool triangular = strcmp(backend, "tensorflow-dali") == 0;
    const bool dali = triangular || strcmp(backend, "dali-cpu") == 0 || strcmp(backend, "dali-gpu") == 0;

    if (architecture->task == CVY_TASK_DETECT)
        return cvy_fail(CVY_USAGE, "option --data-backend is for classification: a detector has its own rules");
    if (!tensorflow && !pytorch && !dali)
        return cvy_fail(CVY_USAGE,
                        "option --data-backend is pytorch, tensorflow, dali-cpu, dali-gpu or tensorflow-dali, not %s%s",
                        cvy_quote(backend),
                        CVY_PERHAPS(backend, "pytorch", "tensorflow", "dali-cpu", "dali-gpu", "tensorflow-dali"));
    p->tensorflow = tensorflow;
    p->dali = dali;
    p->triangular = triangular;
    p->rounded_scale = p->rounded_scale && dali;
    if (tensorflow || triangular)
        p->filter = CVY_FILTER_BILINEAR; /* bicubic is torchvision's and DALI's */
    if ((tensorflow || triangular) && own_mean) {
        memcpy(p->mean, cvy_tensorflow_mean, sizeof p->mean);
        memcpy(p->std, cvy_tensorflow_std, sizeof p->std);
    }
    return CVY_OK;
}

static cvy_status choose_filter(const char *name, const struct cvy_architecture *architecture,
                                struct cvy_preprocessing *p)
{
    const bool bicubic = strcmp(name, "bicubic") == 0;

    if (architecture->task == CVY_TASK_DETECT)
        return cvy_fail(CVY_USAGE, "option --interpolation is for classification: a detector has its own rules");
    if (!bicubic && strcmp(name, "bilinear") != 0)
        return cvy_fail(CVY_USAGE, "option --interpolation is bilinear or bicubic, not %s%s", cvy_quote(name),
                        CVY_PERHAPS(name, "bilinear", "bicubic"));
    if (bicubic && (p->tensorflow || p->triangular))
        return cvy_fail(CVY_USAGE,
                        "option --interpolation bicubic is for --data-backend pytorch, dali-cpu and dali-gpu");
    p->filter = bicubic ? CVY_FILTER_BICUBIC : CVY_FILTER_BILINEAR;
    return CVY_OK;
}

static cvy_status choose_size(const struct cvy_preprocessing_request *request,
                              const struct cvy_architecture *architecture, struct cvy_preprocessing *p)
{
    const int32_t size = request->image_size;

    if (request->resize > 0 && architecture->task == CVY_TASK_DETECT)
        return cvy_fail(CVY_USAGE, "option --eval-resize is for classification: detection takes the whole image");
    if (size != 0) {
        if (size < 32 || size > 4096)
            return cvy_fail(CVY_USAGE, "option --image-size: %d is not at least 32 and at most 4096", (int)size);
        if (size != p->image_size)
            p->resize = 0;
        p->image_size = size;
    }
    if (request->resize > 0)
        p->resize = request->resize;
    if (architecture->task == CVY_TASK_DETECT) /* the whole image, whatever its shape */
        p->resize = p->image_size;
    if (p->resize == 0)
        p->resize = cvy_usual_resize(p->image_size);
    if (p->resize < p->image_size)
        return cvy_fail(CVY_USAGE, "option --eval-resize %d is below the image size %d", (int)p->resize,
                        (int)p->image_size);
    return CVY_OK;
}

cvy_status cvy_model_choose_preprocessing(struct cvy_model_options *model, const struct cvy_checkpoint_info *info,
                                          const struct cvy_architecture *architecture,
                                          const struct cvy_preprocessing_request *request,
                                          struct cvy_preprocessing *preprocessing)
{
    struct cvy_preprocessing *p = preprocessing;

    if (info->has_preprocessing)
        *p = info->preprocessing;
    else
        default_preprocessing(model, architecture, p);
    CVY_TRY(choose_size(request, architecture, p));
    if (request->data_backend)
        CVY_TRY(choose_backend(request->data_backend, architecture, !info->has_preprocessing, p));
    if (request->interpolation)
        CVY_TRY(choose_filter(request->interpolation, architecture, p));
    model->image_size = p->image_size;
    model->float_images = p->tensorflow;
    memcpy(model->mean, p->mean, sizeof model->mean);
    memcpy(model->std, p->std, sizeof model->std);
    return CVY_OK;
}

cvy_status cvy_model_identify(const struct cvy_tensor_file *file, const struct cvy_checkpoint_info *info,
                              const char *what, const char *arch, const struct cvy_architecture **architecture,
                              struct cvy_model_options *model)
{
    if (!arch && info->arch && !cvy_architecture_find(info->arch))
        return cvy_fail(CVY_BAD_DATA, "unknown network %s in %s", cvy_quote(info->arch), cvy_quote(what));
    CVY_TRY(cvy_weights_identify(file, what, arch ? arch : info->arch, architecture, model));
    if (model->quantize != CVY_QUANTIZE_NONE && info->quantize != CVY_QUANTIZE_NONE) {
        model->quantize = info->quantize;
        model->quant_delay = info->quant_delay;
    } else if (model->quantize != CVY_QUANTIZE_NONE) {
        CVY_TRY(check_forms(file, what));
    }
    if (info->arch && strcmp(info->arch, (*architecture)->name) != 0)
        return cvy_fail(CVY_BAD_DATA, "%s holds %s, not %s", cvy_quote(what), cvy_quote(info->arch),
                        (*architecture)->name);
    return CVY_OK;
}
