/* convoy check: every image of a data set is read in full. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/resources.h"
#include "convoy/program/check.h"
#include "data/detection/detection_set.h"
#include "data/image/image.h"
#include "data/set/dataset.h"
#include "data/set/list.h"
#include "data/set/record_set.h"
#include "dataset_tools/check_boxes.h"
#include "dataset_tools/check_duplicates.h"
#include "models/models.h"

/* What was found out about one image. */
struct finding {
    cvy_status status;
    char *text; /* NULL: nothing wrong */
    struct cvy_check_fingerprint fingerprint;
    struct cvy_box_finding boxes;
};

/* What a thread has for itself. */
struct tools {
    struct cvy_decoder *decoder;
    struct cvy_box_matching matching; /* detection sets only */
};

struct reading {
    const struct cvy_dataset *dataset;
    const struct cvy_box_matcher *matcher; /* detection sets only */
    struct finding *findings;
};

/* Percent of the pixels of a PNG of 16-bit grey that have become white: what is above 255 is (doc/data.md). */
static int whitened(const struct cvy_encoded *encoded, const uint8_t *pixels, size_t stride, int32_t width,
                    int32_t height)
{
    enum { DEPTH_AT = 24, COLOUR_AT = 25 }; /* in the header, which the decoder has accepted */
    const uint8_t *file = encoded->data;
    int64_t white = 0;

    if (encoded->size <= COLOUR_AT || file[DEPTH_AT] != 16 || file[COLOUR_AT] != 0)
        return 0;
    for (int32_t y = 0; y < height; y++)
        for (int32_t x = 0; x < width; x++)
            white += pixels[(size_t)y * stride + 3 * (size_t)x] == 255;
    return (int)(100 * white / ((int64_t)width * height));
}

static cvy_status read_image(struct cvy_decoder *decoder, const struct cvy_sample *sample,
                             struct cvy_check_fingerprint *fingerprint, int *white)
{
    struct cvy_encoded encoded;
    int32_t width, height;
    const uint8_t *pixels;
    size_t stride;

    *fingerprint = (struct cvy_check_fingerprint){.orientation = 1};
    *white = 0;
    CVY_TRY(cvy_sample_read(sample, &encoded));
    cvy_status status = cvy_decoder_start(decoder, encoded.name, encoded.data, encoded.size, &width, &height);
    if (status == CVY_OK)
        status = cvy_decoder_read(decoder, &(struct cvy_box){0, 0, width, height}, &pixels, &stride);
    if (status == CVY_OK && cvy_decoder_format(decoder) == CVY_IMAGE_PNG)
        *white = whitened(&encoded, pixels, stride, width, height);
    if (status == CVY_OK)
        *fingerprint = (struct cvy_check_fingerprint){.hash = cvy_check_hash(pixels, stride, width, height),
                                                      .width = width,
                                                      .height = height,
                                                      .orientation = (uint8_t)cvy_decoder_orientation(decoder)};
    cvy_encoded_release(&encoded);
    return status;
}

/* A readable image whose name promises another format. Those in records have no name of their own, and names in lists
 * need not promise anything. */
static bool is_mislabelled(const struct cvy_decoder *decoder, const struct cvy_sample *sample)
{
    static const struct {
        const char *ending;
        enum cvy_image_format format;
    } promises[] = {{".jpg", CVY_IMAGE_JPEG},  {".jpeg", CVY_IMAGE_JPEG}, {".png", CVY_IMAGE_PNG},
                    {".webp", CVY_IMAGE_WEBP}, {".heic", CVY_IMAGE_HEIF}, {".heif", CVY_IMAGE_HEIF},
                    {".avif", CVY_IMAGE_HEIF}, {".tif", CVY_IMAGE_TIFF},  {".tiff", CVY_IMAGE_TIFF},
                    {".bmp", CVY_IMAGE_BMP},   {".gif", CVY_IMAGE_GIF},   {".ppm", CVY_IMAGE_PPM}};
    const char *ending = strrchr(sample->path, '.');

    for (size_t i = 0; !sample->shard && ending && i < sizeof promises / sizeof *promises; i++)
        if (strcasecmp(ending, promises[i].ending) == 0)
            return cvy_decoder_format(decoder) != promises[i].format;
    return false;
}

static void end(void *state)
{
    struct tools *tools = state;

    cvy_decoder_free(tools->decoder);
    cvy_box_matching_release(&tools->matching);
    cvy_free(tools);
}

static cvy_status begin(void *context, void **state)
{
    const struct reading *reading = context;
    struct tools *tools = *state = cvy_calloc(1, sizeof *tools);

    if (!tools)
        return cvy_fail_memory(sizeof *tools, "an image decoder");
    cvy_status status = cvy_decoder_new(&tools->decoder);
    if (status == CVY_OK && reading->dataset->detection)
        status = cvy_box_matching_open(&tools->matching, reading->matcher);
    if (status != CVY_OK)
        end(tools);
    return status;
}

/* What is odd about a readable image; false: nothing. The sentence is recorded. */
static bool is_odd(const struct reading *reading, const struct tools *tools, uint32_t index, const int32_t size[2],
                   int white)
{
    enum { WHITE_PERCENT = 10 }; /* from here on not a bright photograph */
    const struct cvy_sample *sample = &reading->dataset->samples[index];
    const struct cvy_coco_image *said = reading->dataset->detection ? &reading->dataset->images[index] : NULL;

    if (is_mislabelled(tools->decoder, sample)) {
        static const char *const formats[] = {
            [CVY_IMAGE_JPEG] = "JPEG",         [CVY_IMAGE_PNG] = "PNG",   [CVY_IMAGE_WEBP] = "WebP",
            [CVY_IMAGE_HEIF] = "HEIC or AVIF", [CVY_IMAGE_TIFF] = "TIFF", [CVY_IMAGE_BMP] = "BMP",
            [CVY_IMAGE_GIF] = "GIF",           [CVY_IMAGE_PPM] = "PPM"};
        (void)cvy_fail(CVY_BAD_DATA, "%s is a %s image under another ending; it can be used", cvy_quote(sample->path),
                       formats[cvy_decoder_format(tools->decoder)]);
        return true;
    }
    if (white >= WHITE_PERCENT) {
        (void)cvy_fail(
            CVY_BAD_DATA,
            "%s has 16 bits of grey, and all values above 255 become white, %d %% of the image: save it with "
            "8 bits, or as a TIFF",
            cvy_quote(sample->path), white);
        return true;
    }
    if (said && (said->width != size[0] || said->height != size[1])) {
        (void)cvy_fail(CVY_BAD_DATA, "%s has %d x %d pixels, but its boxes are for %d x %d; they are scaled",
                       cvy_quote(sample->path), size[0], size[1], said->width, said->height);
        return true;
    }
    return false;
}

/* Fails only for what is not the image's fault. */
static cvy_status find(void *context, void *state, int64_t index)
{
    const struct reading *reading = context;
    struct finding *finding = &reading->findings[index];
    struct tools *tools = state;
    int white;

    finding->status = read_image(tools->decoder, &reading->dataset->samples[index], &finding->fingerprint, &white);
    const int32_t size[2] = {finding->fingerprint.width, finding->fingerprint.height};
    if (reading->dataset->detection)
        CVY_TRY(cvy_box_matcher_match(reading->matcher, &tools->matching, reading->dataset, (uint32_t)index,
                                      &finding->boxes));
    if (finding->status == CVY_OK && !is_odd(reading, tools, (uint32_t)index, size, white))
        return CVY_OK;
    if (finding->status != CVY_OK && finding->status != CVY_BAD_DATA && finding->status != CVY_NO_INPUT)
        return finding->status;
    finding->text = cvy_strdup(cvy_error());
    return finding->text ? CVY_OK : cvy_fail_memory(strlen(cvy_error()) + 1, "a message");
}

static cvy_status read_all(const struct cvy_dataset *dataset, const struct cvy_box_matcher *matcher, int threads,
                           struct finding *findings)
{
    struct reading reading = {dataset, matcher, findings};
    const struct cvy_parallel work = {.context = &reading, .begin = begin, .end = end, .each = find};

    return cvy_parallel_run(&work, dataset->sample_count, threads);
}

/* ---- the report ---- */

struct sides {
    int32_t *values;
    size_t count;
};

static cvy_status add_problems(struct cvy_check_report *report, const struct cvy_dataset *dataset,
                               const struct finding *findings)
{
    size_t count = report->problem_count + dataset->odd.listed_count + (dataset->others.count > 0);
    for (uint32_t i = 0; i < dataset->sample_count; i++)
        count += findings[i].text != NULL;
    if (count == report->problem_count)
        return CVY_OK;
    struct cvy_check_problem *grown = cvy_realloc(report->problems, count, sizeof *grown);
    if (!grown)
        return cvy_fail_memory(count * sizeof *grown, "the report");
    report->problems = grown;
    for (uint32_t i = 0; i < dataset->sample_count; i++)
        if (findings[i].text) {
            struct cvy_check_problem *problem = &report->problems[report->problem_count++];
            snprintf(problem->path, sizeof problem->path, "%s", dataset->samples[i].path);
            snprintf(problem->text, sizeof problem->text, "%s", findings[i].text);
            report->bad_images += findings[i].status != CVY_OK;
        }
    for (uint32_t i = 0; i < dataset->odd.listed_count; i++) {
        struct cvy_check_problem *problem = &report->problems[report->problem_count++];
        const struct cvy_odd_box *box = &dataset->odd.listed[i];
        snprintf(problem->path, sizeof problem->path, "%s", box->file ? box->file : dataset->source);
        cvy_check_describe_odd(box, dataset->source, problem->text, sizeof problem->text);
    }
    if (dataset->others.count > 0) {
        struct cvy_check_problem *problem = &report->problems[report->problem_count++];
        snprintf(problem->path, sizeof problem->path, "%s", dataset->others.first);
        cvy_other_files_describe(&dataset->others, problem->text, sizeof problem->text);
        report->other_files += dataset->others.count;
    }
    return CVY_OK;
}

static cvy_status add_classes(struct cvy_check_report *report, const struct cvy_dataset *dataset, bool val)
{
    if (!report->classes) {
        report->classes = cvy_calloc((size_t)dataset->class_count, sizeof *report->classes);
        if (!report->classes)
            return cvy_fail_memory((size_t)dataset->class_count * sizeof *report->classes, "the report");
        report->class_count = (size_t)dataset->class_count;
        for (size_t c = 0; c < report->class_count; c++)
            snprintf(report->classes[c].name, sizeof report->classes[c].name, "%s", dataset->classes[c]);
    }
    for (uint32_t i = 0; i < dataset->sample_count && !dataset->detection; i++) {
        struct cvy_check_class *of = &report->classes[dataset->samples[i].label];
        *(val ? &of->val : &of->train) += 1;
    }
    *(val ? &report->val_images : &report->train_images) += dataset->sample_count;
    return CVY_OK;
}

static cvy_status count_boxes(struct cvy_check_report *report, const struct cvy_dataset *dataset, bool val,
                              const struct finding *findings)
{
    struct cvy_box_finding *boxes = cvy_calloc(dataset->sample_count, sizeof *boxes);

    if (!boxes)
        return cvy_fail_memory(dataset->sample_count * sizeof *boxes, "the report");
    for (uint32_t i = 0; i < dataset->sample_count; i++)
        boxes[i] = findings[i].boxes;
    cvy_status status = cvy_check_count_boxes(report, dataset, val, boxes);
    cvy_free(boxes);
    return status;
}

/* *fingerprints, one for each image, are freed by the caller. */
static cvy_status add_part(struct cvy_check_report *report, const struct cvy_dataset *dataset, bool val,
                           const struct cvy_box_matcher *matcher, int threads, struct sides *sides,
                           struct cvy_check_fingerprint **fingerprints)
{
    cvy_status status = CVY_OK;
    struct finding *findings = cvy_calloc(dataset->sample_count, sizeof *findings);
    int32_t *grown = cvy_realloc(sides->values, sides->count + dataset->sample_count, sizeof *grown);

    *fingerprints = cvy_calloc((size_t)dataset->sample_count + 1, sizeof **fingerprints);
    if (grown)
        sides->values = grown;
    if (!findings || !grown || !*fingerprints) {
        status = cvy_fail_memory(dataset->sample_count * sizeof *findings, "the report");
        goto fail;
    }
    CVY_GOTO(add_classes(report, dataset, val));
    CVY_GOTO(read_all(dataset, matcher, threads, findings));
    for (uint32_t i = 0; i < dataset->sample_count; i++) {
        const struct cvy_check_fingerprint *fingerprint = &findings[i].fingerprint;
        (*fingerprints)[i] = *fingerprint;
        if (fingerprint->width > 0)
            sides->values[sides->count++] =
                fingerprint->width < fingerprint->height ? fingerprint->width : fingerprint->height;
    }
    if (dataset->detection)
        CVY_GOTO(count_boxes(report, dataset, val, findings));
    CVY_GOTO(add_problems(report, dataset, findings));
fail:
    for (uint32_t i = 0; findings && i < dataset->sample_count; i++)
        cvy_free(findings[i].text);
    cvy_free(findings);
    return status;
}

static int compare_sides(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static int compare_problems(const void *a, const void *b)
{
    const struct cvy_check_problem *x = a, *y = b;
    const int order = strcmp(x->path, y->path);
    return order ? order : strcmp(x->text, y->text); /* several in one file of records */
}

static void finish(struct cvy_check_report *report, struct sides *sides)
{
    if (report->problem_count > 1)
        qsort(report->problems, report->problem_count, sizeof *report->problems, compare_problems);
    for (size_t c = 1; c < report->class_count; c++) {
        const int64_t images = report->classes[c].train;
        if (images < report->classes[report->smallest_class].train)
            report->smallest_class = c;
        if (images > report->classes[report->largest_class].train)
            report->largest_class = c;
    }
    if (sides->count == 0)
        return;
    qsort(sides->values, sides->count, sizeof *sides->values, compare_sides);
    report->min_side = sides->values[0];
    report->median_side = sides->values[sides->count / 2];
    report->max_side = sides->values[sides->count - 1];
}

/* What training would keep for validation, by itself; nothing where it can keep none (each class has one image). What
 * else is wrong with the images is found when they are opened for the check. */
static cvy_status count_set_aside(const char *folder, struct cvy_check_report *report)
{
    struct cvy_dataset train = {0}, val = {0};
    cvy_status status;
    bool lacks;

    CVY_TRY(cvy_dataset_lacks_validation(folder, &lacks));
    if (!lacks)
        return CVY_OK;
    status = cvy_dataset_open_split(folder, CVY_AUTOMATIC_SPLIT, &train, &val);
    if (status != CVY_OK)
        return status == CVY_BAD_DATA ? CVY_OK : status;
    report->set_aside = val.sample_count;
    cvy_dataset_close(&train);
    cvy_dataset_close(&val);
    return CVY_OK;
}

/* The training set of DIR, and the validation set where there is one: a list, or DIR/val. */
static cvy_status open_sets(const char *folder, const char *train_folder, const char *val_folder, const char *val_list,
                            struct cvy_check_report *report, struct cvy_dataset *train, struct cvy_dataset *val)
{
    const bool has_train = cvy_path_is_directory(train_folder), has_val = cvy_path_is_directory(val_folder);

    bool boxes = false;

    if (!val_list)
        CVY_TRY(cvy_find_detection(folder, &boxes));
    if (boxes)
        return cvy_dataset_open_detection_parts(folder, train, val);
    if (has_val && !has_train)
        return cvy_fail(CVY_NO_INPUT, "the folder %s does not exist", cvy_quote(train_folder));
    if (!val_list && !has_val)
        CVY_TRY(count_set_aside(folder, report));
    CVY_TRY(cvy_dataset_open(train, has_train ? train_folder : folder, NULL, 0));
    if (val_list)
        return cvy_dataset_open_list(val, val_list, train->classes, train->class_count);
    if (has_val)
        return cvy_dataset_open(val, val_folder, train->classes, train->class_count);
    if (!has_train && cvy_holds_records(folder, true))
        return cvy_dataset_open_records(val, folder, true, train->classes, train->class_count);
    return CVY_OK;
}

/* For sets with boxes: what matches them. */
static cvy_status open_matcher(const struct cvy_dataset *dataset, const struct cvy_check_options *options,
                               struct cvy_box_matcher *matcher, struct cvy_check_report *report)
{
    const struct cvy_architecture *architecture = cvy_architecture_find("ssd320");
    const int32_t size = options->image_size ? options->image_size : architecture->default_image_size;

    if (!dataset->detection)
        return options->image_size
                   ? cvy_fail(CVY_USAGE, "option --image-size is for sets with boxes: it decides about their anchors")
                   : CVY_OK;
    CVY_TRY(cvy_detector_check_size(architecture, size));
    report->anchor_image_size = size;
    return cvy_box_matcher_open(matcher, size);
}

static cvy_status check(const char *folder, const char *train_folder, const char *val_folder,
                        const struct cvy_check_options *options, struct cvy_check_report *report)
{
    cvy_status status = CVY_OK;
    struct cvy_dataset train = {0}, val = {0};
    struct cvy_box_matcher matcher = {0};
    struct sides sides = {0};
    struct cvy_check_fingerprint *fingerprints[2] = {0};
    const int threads = options->threads > 0 ? options->threads : cvy_default_threads();

    CVY_GOTO(open_sets(folder, train_folder, val_folder, options->val_list, report, &train, &val));
    CVY_GOTO(open_matcher(&train, options, &matcher, report));
    CVY_GOTO(add_part(report, &train, false, &matcher, threads, &sides, &fingerprints[0]));
    if (val.sample_count > 0)
        CVY_GOTO(add_part(report, &val, true, &matcher, threads, &sides, &fingerprints[1]));
    CVY_GOTO(cvy_check_compare(report,
                               (const struct cvy_check_part[2]){{&train, fingerprints[0]}, {&val, fingerprints[1]}}));
    finish(report, &sides);
fail:
    cvy_box_matcher_release(&matcher);
    cvy_free(sides.values);
    cvy_free(fingerprints[0]);
    cvy_free(fingerprints[1]);
    cvy_dataset_close(&train);
    cvy_dataset_close(&val);
    return status;
}

cvy_status cvy_check_dataset(const char *folder, const struct cvy_check_options *options,
                             struct cvy_check_report *report)
{
    CVY_REQUIRE(folder);
    CVY_REQUIRE(report);
    char *train_folder = cvy_path_join(folder, "train"), *val_folder = cvy_path_join(folder, "val");
    cvy_status status;

    *report = (struct cvy_check_report){0};
    if (train_folder && val_folder)
        status = check(folder, train_folder, val_folder, options ? options : &CVY_CHECK_DEFAULTS, report);
    else
        status = cvy_fail_memory(strlen(folder) + 8, "a path");
    cvy_free(train_folder);
    cvy_free(val_folder);
    return status;
}

void cvy_check_report_release(struct cvy_check_report *report)
{
    if (!report)
        return;
    cvy_free(report->classes);
    cvy_free(report->problems);
    cvy_check_names_release(&report->tiny);
    cvy_check_names_release(&report->turned);
    *report = (struct cvy_check_report){0};
}
