/* Determines the variant of an architecture from options and from a file's metadata and shapes. */
#ifndef CVY_WEIGHTS_MODEL_VARIANT_H
#define CVY_WEIGHTS_MODEL_VARIANT_H

#include "weights/checkpoint.h"

/* Options as text; NULL leaves the field as it is. CVY_USAGE names the option. */
CVY_CHECKED cvy_status cvy_model_choose(struct cvy_model_options *model, const char *padding,
                                        const char *squeeze_width);
/* The model of a training run whose options are resolved (num_classes and image_size are known). */
CVY_CHECKED cvy_status cvy_model_from_options(const struct cvy_train_options *options, struct cvy_model_options *model);
/* A file's metadata decides the padding; where it does not say it, `padding` does (NULL: torch), and otherwise it must
 * agree (CVY_BAD_DATA). `what` names the file. */
CVY_CHECKED cvy_status cvy_model_choose_padding(struct cvy_model_options *model, const struct cvy_checkpoint_info *info,
                                                const char *what, const char *padding);
/* The same for the strides of a detector's backbone; where neither says them (NULL) they are TF-slim's, with a warning.
 */
CVY_CHECKED cvy_status cvy_model_choose_strides(struct cvy_model_options *model, const struct cvy_checkpoint_info *info,
                                                const struct cvy_architecture *architecture, const char *what,
                                                const char *strides);
/* What options say about it; zero-initialised: nothing. */
struct cvy_preprocessing_request {
    int32_t image_size, resize; /* 0: not given */
    const char *data_backend;   /* whose rules, as in struct cvy_classifier_options; NULL: not given */
    const char *interpolation;  /* likewise */
};
/* How images become the input: as the file's metadata says, else by the architecture's size, torchvision's rules and
 * ImageNet's mean and deviation; `request` has the last word. A backend for a file that says nothing brings its own
 * mean and deviation. Without a resize it is image_size * 256 / 224. Size, mean and deviation go into *model too.
 * CVY_USAGE for impossible sizes and unknown backends. */
CVY_CHECKED cvy_status cvy_model_choose_preprocessing(struct cvy_model_options *model,
                                                      const struct cvy_checkpoint_info *info,
                                                      const struct cvy_architecture *architecture,
                                                      const struct cvy_preprocessing_request *request,
                                                      struct cvy_preprocessing *preprocessing);
/* cvy_weights_identify with what the file's metadata say: `arch` (NULL: not given) must agree with them. */
CVY_CHECKED cvy_status cvy_model_identify(const struct cvy_tensor_file *file, const struct cvy_checkpoint_info *info,
                                          const char *what, const char *arch,
                                          const struct cvy_architecture **architecture,
                                          struct cvy_model_options *model);
/* Hidden units of a file's squeeze-and-excitation layers, as struct cvy_model_options has them; 0 without such layers.
 */
int32_t cvy_weights_squeeze_width(const struct cvy_tensor_file *file);
/* Whether a file's network is quantised, and how, from its tensors alone. */
enum cvy_quantize cvy_weights_quantize(const struct cvy_tensor_file *file);

#endif
