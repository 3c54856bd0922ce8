/* Every field that a configuration of ssd320 may have, and what it means here (doc/reference-programs.md). The network
 * is built in: what describes it must say what it is. Where a field is left out, the schema's default counts. */
#include "options/pipeline_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json_out.h"
#include "formats/text_proto.h"
#include "options/options.h"

enum kind {
    NUMBER,  /* must be this number */
    WORD,    /* must be this word or text; words like true too */
    OPTION,  /* becomes this option */
    SPECIAL, /* read by a function of its own */
    NOTHING  /* changes nothing here, and mostly nothing there (doc/reference-programs.md) */
};

/* The field must be there: what the schema has for it is not what ssd320 is. */
enum { NEEDED = true };

struct row {
    const char *path; /* names joined by dots, below the part's prefix */
    enum kind kind;
    const char *value; /* what it must be; the option */
    bool needed;
};

struct part {
    const char *prefix;
    const struct row *rows;
    size_t count;
};

static const struct row network[] = {
    {"inplace_batchnorm_update", NOTHING, NULL, false},
    {"freeze_batchnorm", NOTHING, NULL, false}, /* an inner scope takes it back there */
    {"num_classes", SPECIAL, NULL, NEEDED},
    {"box_coder.faster_rcnn_box_coder.y_scale", NUMBER, "10", false},
    {"box_coder.faster_rcnn_box_coder.x_scale", NUMBER, "10", false},
    {"box_coder.faster_rcnn_box_coder.height_scale", NUMBER, "5", false},
    {"box_coder.faster_rcnn_box_coder.width_scale", NUMBER, "5", false},
    {"matcher.argmax_matcher.matched_threshold", NUMBER, "0.5", false},
    {"matcher.argmax_matcher.unmatched_threshold", NUMBER, "0.5", false},
    {"matcher.argmax_matcher.ignore_thresholds", WORD, "false", false},
    {"matcher.argmax_matcher.negatives_lower_than_unmatched", WORD, "true", false},
    {"matcher.argmax_matcher.force_match_for_each_row", WORD, "true", NEEDED},
    {"matcher.argmax_matcher.use_matmul_gather", NOTHING, NULL, false},
    {"similarity_calculator.iou_similarity", NOTHING, NULL, false},
    {"encode_background_as_zeros", WORD, "true", NEEDED},
    {"add_background_class", WORD, "true", false},
    {"negative_class_weight", NUMBER, "1", false},
    {"anchor_generator.multiscale_anchor_generator.min_level", NUMBER, "3", false},
    {"anchor_generator.multiscale_anchor_generator.max_level", NUMBER, "7", false},
    {"anchor_generator.multiscale_anchor_generator.anchor_scale", NUMBER, "4", false},
    {"anchor_generator.multiscale_anchor_generator.aspect_ratios", SPECIAL, NULL, NEEDED},
    {"anchor_generator.multiscale_anchor_generator.scales_per_octave", NUMBER, "2", false},
    {"anchor_generator.multiscale_anchor_generator.normalize_coordinates", WORD, "true", false},
    {"image_resizer.fixed_shape_resizer.height", SPECIAL, NULL, NEEDED},
    {"image_resizer.fixed_shape_resizer.width", OPTION, "image-size", NEEDED},
    {"image_resizer.fixed_shape_resizer.resize_method", WORD, "BILINEAR", false},
    {"feature_extractor.type", WORD, "ssd_resnet50_v1_fpn", NEEDED},
    {"feature_extractor.fpn.min_level", NUMBER, "3", false},
    {"feature_extractor.fpn.max_level", NUMBER, "7", false},
    {"feature_extractor.fpn.additional_layer_depth", NUMBER, "256", false},
    {"feature_extractor.min_depth", NOTHING, NULL, false},
    {"feature_extractor.depth_multiplier", NUMBER, "1", false},
    {"feature_extractor.override_base_feature_extractor_hyperparams", WORD, "true", NEEDED},
    {"loss.classification_loss.weighted_sigmoid_focal.alpha", NUMBER, "0.25", NEEDED},
    {"loss.classification_loss.weighted_sigmoid_focal.gamma", NUMBER, "2", false},
    {"loss.localization_loss.weighted_smooth_l1", NOTHING, NULL, NEEDED},
    {"loss.localization_loss.weighted_smooth_l1.delta", NUMBER, "1", false},
    {"loss.classification_weight", NUMBER, "1", false},
    {"loss.localization_weight", NUMBER, "1", false},
    {"normalize_loss_by_num_matches", WORD, "true", false},
    {"normalize_loc_loss_by_codesize", WORD, "true", NEEDED},
    {"post_processing.batch_non_max_suppression.score_threshold", NUMBER, "1e-8", NEEDED},
    {"post_processing.batch_non_max_suppression.iou_threshold", NUMBER, "0.6", false},
    {"post_processing.batch_non_max_suppression.max_detections_per_class", NUMBER, "100", false},
    {"post_processing.batch_non_max_suppression.max_total_detections", NUMBER, "100", false},
    {"post_processing.score_converter", WORD, "SIGMOID", NEEDED},
};

static const struct row predictor[] = {
    {"depth", NUMBER, "256", NEEDED},
    {"class_prediction_bias_init", NUMBER, "-4.6", NEEDED},
    {"num_layers_before_predictor", NUMBER, "4", NEEDED},
    {"kernel_size", NUMBER, "3", false},
    {"share_prediction_tower", WORD, "false", false},
    {"use_dropout", WORD, "false", false},
    {"use_depthwise", WORD, "false", false},
    {"conv_hyperparams.initializer.random_normal_initializer.stddev", NUMBER, "0.01", NEEDED},
    {"conv_hyperparams.initializer.random_normal_initializer.mean", NUMBER, "0", false},
};

static const struct row extractor[] = {
    {"initializer.truncated_normal_initializer.stddev", NUMBER, "0.03", NEEDED},
    {"initializer.truncated_normal_initializer.mean", NUMBER, "0", false},
};

/* What the predictor and the feature extractor have in common. */
static const struct row convolutions[] = {
    {"activation", WORD, "RELU_6", NEEDED},         {"regularizer.l2_regularizer.weight", SPECIAL, NULL, NEEDED},
    {"batch_norm.scale", WORD, "true", NEEDED},     {"batch_norm.center", WORD, "true", false},
    {"batch_norm.train", WORD, "true", false},      {"batch_norm.decay", NUMBER, "0.997", NEEDED},
    {"batch_norm.epsilon", NUMBER, "0.001", false},
};

static const struct row training[] = {
    {"fine_tune_checkpoint", OPTION, "pretrained-weights", false},
    {"fine_tune_checkpoint_type", NOTHING, NULL, false}, /* the file says it */
    {"from_detection_checkpoint", NOTHING, NULL, false},
    {"load_all_detection_checkpoint_vars", NOTHING, NULL, false},
    {"batch_size", OPTION, "batch-size", NEEDED},
    {"num_steps", OPTION, "steps", NEEDED},
    {"sync_replicas", NOTHING, NULL, false},
    {"startup_delay_steps", NOTHING, NULL, false},
    {"replicas_to_aggregate", NOTHING, NULL, false},
    {"max_number_of_boxes", NOTHING, NULL, false}, /* the reader has 100 there */
    {"unpad_groundtruth_tensors", NOTHING, NULL, false},
    {"keep_checkpoint_every_n_hours", NOTHING, NULL, false},
    {"gradient_clipping_by_norm", NUMBER, "0", false},
    {"data_augmentation_options.random_horizontal_flip", SPECIAL, NULL, false},
    {"data_augmentation_options.random_crop_image", SPECIAL, NULL, false},
    {"data_augmentation_options.random_crop_image.min_object_covered", NUMBER, "0", false},
    {"data_augmentation_options.random_crop_image.min_aspect_ratio", NUMBER, "0.75", false},
    {"data_augmentation_options.random_crop_image.max_aspect_ratio", NUMBER, "3", false},
    {"data_augmentation_options.random_crop_image.min_area", NUMBER, "0.75", false},
    {"data_augmentation_options.random_crop_image.max_area", NUMBER, "1", false},
    {"data_augmentation_options.random_crop_image.overlap_thresh", NUMBER, "0", false},
    {"data_augmentation_options.random_crop_image.clip_boxes", WORD, "true", false},
    {"data_augmentation_options.random_crop_image.random_coef", NUMBER, "0", false},
    {"optimizer.momentum_optimizer.momentum_optimizer_value", OPTION, "momentum", false},
    {"optimizer.use_moving_average", WORD, "false", NEEDED},
    {"optimizer.momentum_optimizer.learning_rate.cosine_decay_learning_rate.learning_rate_base", OPTION, "lr", NEEDED},
    {"optimizer.momentum_optimizer.learning_rate.cosine_decay_learning_rate.total_steps", OPTION, "schedule-steps",
     NEEDED},
    {"optimizer.momentum_optimizer.learning_rate.cosine_decay_learning_rate.warmup_learning_rate", OPTION, "warmup-lr",
     NEEDED},
    {"optimizer.momentum_optimizer.learning_rate.cosine_decay_learning_rate.warmup_steps", OPTION, "warmup-steps",
     NEEDED},
    {"optimizer.momentum_optimizer.learning_rate.cosine_decay_learning_rate.hold_base_rate_steps", NUMBER, "0", false},
};

static const struct row reader[] = {
    {"tf_record_input_reader.input_path", SPECIAL, NULL, NEEDED},
    {"label_map_path", SPECIAL, NULL, NEEDED},
    {"shuffle", NOTHING, NULL, false},
    {"num_readers", NOTHING, NULL, false},
    {"num_epochs", NOTHING, NULL, false},
    {"shuffle_buffer_size", NOTHING, NULL, false},
    {"filenames_shuffle_buffer_size", NOTHING, NULL, false},
    {"load_instance_masks", WORD, "false", false},
};

static const struct row evaluation[] = {
    {"metrics_set", WORD, "coco_detection_metrics", NEEDED},
    {"use_moving_averages", WORD, "false", false},
    {"num_examples", NOTHING, NULL, false}, /* all images are evaluated there */
    {"num_visualizations", NOTHING, NULL, false},
    {"max_evals", NOTHING, NULL, false},
    {"eval_interval_secs", NOTHING, NULL, false},
    {"batch_size", NOTHING, NULL, false},
};

#define PART(prefix, rows)                                                                                             \
    {                                                                                                                  \
        prefix, rows, sizeof(rows) / sizeof((rows)[0])                                                                 \
    }
#define PREDICTOR "model.ssd.box_predictor.weight_shared_convolutional_box_predictor."
#define EXTRACTOR "model.ssd.feature_extractor.conv_hyperparams."
static const struct part parts[] = {
    PART("model.ssd.", network),
    PART(PREDICTOR, predictor),
    PART(PREDICTOR "conv_hyperparams.", convolutions),
    PART(EXTRACTOR, convolutions),
    PART(EXTRACTOR, extractor),
    PART("train_config.", training),
    PART("train_input_reader.", reader),
    PART("eval_input_reader.", reader),
    PART("eval_config.", evaluation),
};
enum { PARTS = sizeof parts / sizeof parts[0], ROWS_MAX = 64, PATH_LIMIT = 256 };

struct config {
    struct cvy_train_options *options;
    const char *what;
    int seen[PARTS][ROWS_MAX];   /* the line where the field stands; 0: not said yet */
    double height, width, decay; /* 0: not said yet */
    int ratios, flips, crops;
    char folder[CVY_PATH_MAX]; /* of the records; "": not said yet */
};

static cvy_status fail_field(const struct config *config, const struct cvy_text_field *field, const char *path,
                             const char *instead)
{
    const char *value = !field->value ? "" : field->quoted ? cvy_quote(field->value) : field->value;

    return cvy_fail(CVY_USAGE, "line %d of %s: %s%s%.100s is not supported: %s", field->line, cvy_quote(config->what),
                    path, field->value ? " " : "", value, instead);
}

/* ---- values ---- */

static bool read_number(const struct cvy_text_field *field, double *number)
{
    char *end = NULL;

    if (!field->value || field->quoted)
        return false;
    *number = cvy_double_parse(field->value, &end);
    if (end && *end == 'f' && end != field->value) /* 0.5f is a number there */
        end++;
    return end && end != field->value && !*end && isfinite(*number);
}

static cvy_status fail_needed(const struct config *config, const struct cvy_text_field *field, const char *path,
                              const char *needed)
{
    char instead[96];

    snprintf(instead, sizeof instead, "ssd320 has %s", needed);
    return fail_field(config, field, path, instead);
}

/* Numbers are compared as the floats that they become there. */
static cvy_status check_number(const struct config *config, const struct cvy_text_field *field, const char *path,
                               const char *needed)
{
    double number, wanted = cvy_double_parse(needed, NULL);

    return read_number(field, &number) && (float)number == (float)wanted ? CVY_OK
                                                                         : fail_needed(config, field, path, needed);
}

static cvy_status set_option(struct config *config, const struct cvy_text_field *field, const char *path,
                             const char *option)
{
    if (!field->value)
        return fail_field(config, field, path, "it is a value");
    if (cvy_train_options_set(config->options, option, field->value, CVY_FROM_RECIPE) != CVY_OK)
        return cvy_fail_context(CVY_USAGE, "line %d of %s: %s", field->line, cvy_quote(config->what), path);
    return CVY_OK;
}

/* ---- what is more than one value ---- */

/* Both directions are resized alike. */
static cvy_status take_side(struct config *config, const struct cvy_text_field *field, const char *path, double *side)
{
    if (!read_number(field, side) || *side < 1)
        return fail_field(config, field, path, "it is a number of pixels");
    if (config->height > 0 && config->width > 0 && config->height != config->width)
        return fail_field(config, field, path, "the images of ssd320 are square");
    return CVY_OK;
}

static cvy_status take_ratio(struct config *config, const struct cvy_text_field *field, const char *path)
{
    static const char *const ratios[] = {"1", "2", "0.5"};

    if (config->ratios == 3)
        return fail_needed(config, field, path, "the three of 1, 2 and 0.5");
    return check_number(config, field, path, ratios[config->ratios++]);
}

static cvy_status take_decay(struct config *config, const struct cvy_text_field *field, const char *path)
{
    double decay;

    if (!read_number(field, &decay) || (config->decay > 0 && decay != config->decay))
        return fail_field(config, field, path, "ssd320 has one weight decay for all convolutions");
    config->decay = decay;
    return set_option(config, field, path, "weight-decay");
}

/* COCO's 90 ids are slots of which ten are never used; another map has as many outputs as it says. */
static cvy_status take_classes(struct config *config, const struct cvy_text_field *field, const char *path)
{
    const bool coco = field->value && strcmp(field->value, "90") == 0;

    CVY_TRY(cvy_train_options_set(config->options, "coco-slots", coco ? "true" : "false", CVY_FROM_RECIPE));
    return coco ? CVY_OK : set_option(config, field, path, "num-classes");
}

/* "/data/records/coco_train*": the folder is the data set, and its own rules find the files of the part. */
static cvy_status take_records(struct config *config, const struct cvy_text_field *field, const char *path)
{
    const char *value = field->value ? field->value : "", *slash = strrchr(value, '/');
    const size_t length = slash ? (slash == value ? 1 : (size_t)(slash - value)) : 0;
    const bool for_training = strncmp(path, "train", 5) == 0;
    char folder[CVY_PATH_MAX];

    if (length >= sizeof folder || length == 0 || memchr(value, '*', length) || memchr(value, '?', length))
        return fail_field(config, field, path, "the records of both parts are files of one folder");
    snprintf(folder, sizeof folder, "%.*s", (int)length, value);
    if (!strstr(slash, for_training ? "train" : "val"))
        return fail_field(config, field, path,
                          for_training ? "files of training have \"train\" in their names"
                                       : "files of validation have \"val\" in their names");
    if (config->folder[0] && strcmp(config->folder, folder) != 0)
        return fail_field(config, field, path, "the records of both parts are files of one folder");
    snprintf(config->folder, sizeof config->folder, "%s", folder);
    return CVY_OK;
}

/* COCO's is built in, and a folder of records may hold its own. */
static cvy_status take_label_map(struct config *config, const struct cvy_text_field *field, const char *path)
{
    const char *value = field->value ? field->value : "", *slash = strrchr(value, '/');
    const char *name = slash ? slash + 1 : value;

    if (strcmp(name, "mscoco_label_map.pbtxt") != 0 && strcmp(name, "label_map.pbtxt") != 0)
        return fail_field(config, field, path,
                          "a map is COCO's mscoco_label_map.pbtxt, or label_map.pbtxt in the folder of the records");
    return CVY_OK;
}

static cvy_status take_special(struct config *config, const struct cvy_text_field *field, const char *path)
{
    const char *name = strrchr(path, '.') + 1;

    if (strcmp(name, "num_classes") == 0)
        return take_classes(config, field, path);
    if (strcmp(name, "aspect_ratios") == 0)
        return take_ratio(config, field, path);
    if (strcmp(name, "height") == 0)
        return take_side(config, field, path, &config->height);
    if (strcmp(name, "weight") == 0)
        return take_decay(config, field, path);
    if (strcmp(name, "input_path") == 0)
        return take_records(config, field, path);
    if (strcmp(name, "label_map_path") == 0)
        return take_label_map(config, field, path);
    config->flips += strcmp(name, "random_horizontal_flip") == 0;
    config->crops += strcmp(name, "random_crop_image") == 0;
    return CVY_OK;
}

/* ---- the walk ---- */

/* The row of a path; *part: where it stands. */
static const struct row *find_row(const char *path, size_t *part, size_t *index)
{
    for (size_t p = 0; p < PARTS; p++) {
        const size_t length = strlen(parts[p].prefix);
        for (size_t i = 0; strncmp(path, parts[p].prefix, length) == 0 && i < parts[p].count; i++) {
            if (strcmp(path + length, parts[p].rows[i].path) == 0) {
                *part = p;
                *index = i;
                return &parts[p].rows[i];
            }
        }
    }
    return NULL;
}

/* Whether rows stand below this path: a message that only holds others. */
static bool holds_rows(const char *path)
{
    const size_t length = strlen(path);

    for (size_t p = 0; p < PARTS; p++) {
        const size_t prefix = strlen(parts[p].prefix);
        if (prefix > length ? strncmp(parts[p].prefix, path, length) == 0 && parts[p].prefix[length] == '.' : false)
            return true;
        for (size_t i = 0; prefix <= length && strncmp(path, parts[p].prefix, prefix) == 0 && i < parts[p].count; i++) {
            const char *row = parts[p].rows[i].path;
            if (strncmp(row, path + prefix, length - prefix) == 0 && row[length - prefix] == '.')
                return true;
        }
    }
    return false;
}

/* Several values are a list for these; all others the schema has once, and which one was meant is not ours to say. */
static bool is_list(const char *path)
{
    static const char *const lists[] = {"aspect_ratios", "input_path", "metrics_set"};
    const char *name = strrchr(path, '.');
    bool found = false;

    for (size_t i = 0; name && i < sizeof lists / sizeof lists[0]; i++)
        found |= strcmp(name + 1, lists[i]) == 0;
    return found;
}

static cvy_status mark_seen(struct config *config, const struct cvy_text_field *field, const char *path, int *seen)
{
    char instead[64];

    if (*seen > 0 && field->value && !is_list(path)) {
        snprintf(instead, sizeof instead, "it is one value, and line %d has it already", *seen);
        return fail_field(config, field, path, instead);
    }
    *seen = field->line;
    return CVY_OK;
}

static cvy_status take_field(struct config *config, const struct cvy_text_field *field, const char *path)
{
    size_t part = 0, index = 0;
    const struct row *row = find_row(path, &part, &index);

    if (!row)
        return !field->value && holds_rows(path)
                   ? CVY_OK
                   : fail_field(config, field, path, "the configurations of ssd320 have no such field");
    CVY_TRY(mark_seen(config, field, path, &config->seen[part][index]));
    if (strcmp(path, "model.ssd.image_resizer.fixed_shape_resizer.width") == 0)
        CVY_TRY(take_side(config, field, path, &config->width));
    switch (row->kind) {
    case NUMBER:
        return check_number(config, field, path, row->value);
    case WORD:
        return field->value && strcmp(field->value, row->value) == 0 ? CVY_OK
                                                                     : fail_needed(config, field, path, row->value);
    case OPTION:
        return set_option(config, field, path, row->value);
    case SPECIAL:
        return take_special(config, field, path);
    case NOTHING:
        break;
    }
    return CVY_OK;
}

static cvy_status walk(struct config *config, const struct cvy_text_field *first, const char *prefix)
{
    char path[PATH_LIMIT];

    for (const struct cvy_text_field *field = first; field; field = field->next) {
        if (snprintf(path, sizeof path, "%s%s%s", prefix, prefix[0] ? "." : "", field->name) >= PATH_LIMIT)
            return fail_field(config, field, prefix, "a name below it is too long");
        CVY_TRY(take_field(config, field, path));
        CVY_TRY(walk(config, field->first, path));
    }
    return CVY_OK;
}

static cvy_status check_needed(const struct config *config)
{
    for (size_t p = 0; p < PARTS; p++) {
        for (size_t i = 0; i < parts[p].count; i++) {
            const struct row *row = &parts[p].rows[i];
            if (row->needed && !config->seen[p][i])
                return cvy_fail(CVY_USAGE, "%s lacks %s%s%s%s", cvy_quote(config->what), parts[p].prefix, row->path,
                                row->kind == NUMBER || row->kind == WORD ? ", which is not what ssd320 has without it: "
                                                                         : "",
                                row->kind == NUMBER || row->kind == WORD ? row->value : "");
        }
    }
    return CVY_OK;
}

/* Flip and crop are ssd320's pair; none of them is --augmentation off. The crop's numbers have other defaults. */
static cvy_status check_augmentation(struct config *config)
{
    static const char *const needed[] = {"min_object_covered", "max_aspect_ratio", "min_area", "overlap_thresh"};
    size_t part, index;
    char path[PATH_LIMIT];

    if (config->flips == 0 && config->crops == 0)
        return cvy_train_options_set(config->options, "augmentation", "off", CVY_FROM_RECIPE);
    if (config->flips != 1 || config->crops != 1)
        return cvy_fail(CVY_USAGE,
                        "%s: train_config.data_augmentation_options are not supported: ssd320 has one "
                        "random_horizontal_flip and one random_crop_image, or nothing",
                        cvy_quote(config->what));
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        snprintf(path, sizeof path, "train_config.data_augmentation_options.random_crop_image.%s", needed[i]);
        if (find_row(path, &part, &index) && !config->seen[part][index])
            return cvy_fail(CVY_USAGE, "%s lacks %s, which is not what ssd320 has without it: %s",
                            cvy_quote(config->what), path, parts[part].rows[index].value);
    }
    return CVY_OK;
}

static cvy_status finish(struct config *config)
{
    struct cvy_train_options *o = config->options;

    CVY_TRY(check_needed(config));
    CVY_TRY(check_augmentation(config));
    if (config->ratios != 3)
        return cvy_fail(CVY_USAGE, "%s has %d aspect_ratios: ssd320 has 1, 2 and 0.5", cvy_quote(config->what),
                        config->ratios);
    if (o->data[0] == '\0')
        snprintf(o->data, sizeof o->data, "%s", config->folder);
    return CVY_OK;
}

bool cvy_is_pipeline_config(const char *path)
{
    const size_t length = strlen(path), end = strlen(".config");

    return length > end && strcmp(path + length - end, ".config") == 0;
}

cvy_status cvy_pipeline_config_apply(struct cvy_train_options *options, const char *what, const char *text, size_t size)
{
    struct config config = {.options = options, .what = what};
    struct cvy_arena arena = {0};
    struct cvy_text_field *first;
    cvy_status status;

    CVY_GOTO(cvy_text_proto_parse(what, text, size, &arena, &first));
    /* What the configurations do not say is in the recipes of ssd320: rules, and what has no effect there. */
    CVY_GOTO(cvy_recipe_apply(options, "ssd320-1gpu", cvy_recipe_text("ssd320-1gpu"), NULL, CVY_FROM_RECIPE));
    CVY_GOTO(cvy_train_options_set(options, "optimizer-batch-size", "-1", CVY_FROM_RECIPE));
    CVY_GOTO(walk(&config, first, ""));
    CVY_GOTO(finish(&config));
fail:
    cvy_arena_release(&arena);
    return status;
}
