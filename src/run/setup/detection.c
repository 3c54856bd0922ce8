/* What is different in a run whose network is a detector: its data, its options, its validation. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "data/detection/detection_set.h"
#include "options/options.h"
#include "run/setup/stages.h"

/* ---- the network ---- */

cvy_status cvy_run_choose_task(struct cvy_run *run)
{
    struct cvy_train_options *o = &run->resolving->options;

    if (run->resume.found || cvy_run_is_synthetic(run->config) || !o->data[0] ||
        cvy_option_source_of(o, "arch") > CVY_FROM_DEFAULT || !cvy_holds_detection(o->data))
        return CVY_OK;
    return cvy_train_options_set(o, "arch", "ssd320", CVY_FROM_AUTO);
}

/* ---- data ---- */

cvy_status cvy_run_open_detection(struct cvy_run *run)
{
    const struct cvy_train_options *o = &run->config->options;
    const struct cvy_category_rule rule = {.coco = o->coco_slots};

    if (cvy_path_exists(o->data) && !cvy_holds_detection(o->data))
        return cvy_fail(CVY_BAD_DATA,
                        "%s has no boxes, which %s learns from: neither COCO's annotations nor records of them",
                        cvy_quote(o->data), o->arch);
    if (o->training_only)
        return cvy_dataset_open_detection(&run->data.train, o->data, CVY_DETECTION_TRAIN, &rule);
    return cvy_dataset_open_detection_pair(o->data, o->coco_slots, o->val_split, o->seed, &run->data.train,
                                           &run->data.val);
}

/* ---- options ---- */

static const char *first_of_classifiers(const struct cvy_train_options *o)
{
    static const char *const places[] = {
        "train-list",    "val-list", "data-idx-dir", "eval-resize",    "train-crop-size", "min-crop-area",
        "squeeze-width", "padding",  "model-config", "last-bn-0-init", "val-loss",        "interpolation",
        "topk",          NULL};

    if (o->mixup > 0)
        return "mixup";
    if (o->label_smoothing > 0 && cvy_option_source_of(o, "label-smoothing") > CVY_FROM_AUTO)
        return "label-smoothing";
    if (cvy_has_class_weights(o))
        return "class-weights";
    if (o->quantize)
        return "quantize";
    if (strcmp(o->sampler, "balanced") == 0)
        return "sampler";
    if (strcmp(o->augmentation, "autoaugment") == 0)
        return "augmentation";
    return cvy_option_first_given(o, places);
}

cvy_status cvy_run_resolve_detection(struct cvy_train_options *o)
{
    static const char *const own[] = {"area-rule", "coco-slots", "backbone-strides", NULL};
    const char *name = cvy_run_is_detection(o) ? first_of_classifiers(o) : cvy_option_first_given(o, own);

    if (name)
        return cvy_fail(CVY_USAGE, "option --%s is for %s, and %s is a %s", name,
                        cvy_run_is_detection(o) ? "classifiers" : "detectors", o->arch,
                        cvy_run_is_detection(o) ? "detector" : "classifier");
    if (!cvy_run_is_detection(o))
        return CVY_OK;
    if (strcmp(o->data_backend, "pytorch") == 0) {
        if (cvy_option_source_of(o, "data-backend") == CVY_FROM_FLAG)
            return cvy_fail(CVY_USAGE,
                            "option --data-backend pytorch is for classifiers: %s has images by TensorFlow's rules",
                            o->arch);
        snprintf(o->data_backend, sizeof o->data_backend, "tensorflow");
    }
    if (cvy_run_has_dali_rules(o))
        return cvy_fail(CVY_USAGE, "option --data-backend %s is for classifiers: %s has images by TensorFlow's rules",
                        o->data_backend, o->arch);
    o->label_smoothing = 0;
    o->eval_resize = o->image_size;
    return CVY_OK;
}
