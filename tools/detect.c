/* convoy detect: the objects on images, as text, JSON, CSV or COCO's results, and drawn. Good files come first; then
 * each bad one gets a sentence on stderr. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answers.h"
#include "convoy/detect.h"
#include "convoy/program/program.h"
#include "json.h"
#include "names.h"
#include "network_options.h"
#include "terminal.h"
#include "verbs.h"

enum format { FORMAT_TEXT, FORMAT_JSON, FORMAT_CSV, FORMAT_COCO };

/* A float as the double of the same value: what reads COCO's results then counts with the network's own numbers. */
enum { EXACT_DIGITS = 17, FLOAT_DIGITS = 9 };

struct detection {
    int format;
    struct json json;
    struct bad_files bad;
    size_t file_count;
};

static void print_text(const struct cvy_detect_answer *answer)
{
    print_name(answer->file, 0);
    putchar('\n');
    for (int i = 0; i < answer->count; i++) {
        const struct cvy_detected_object *object = &answer->objects[i];
        printf("  %6.2f %%  ", 100.0 * (double)object->score);
        if (object->class_name)
            print_name(object->class_name, 0);
        else
            printf("class %" PRId64, object->class_id);
        printf("  at %.0f,%.0f, %.0f x %.0f\n", (double)object->box[0], (double)object->box[1], (double)object->box[2],
               (double)object->box[3]);
    }
}

static void print_box(struct json *json, const struct cvy_detected_object *object, int digits)
{
    json_open_array(json, "bbox");
    for (int i = 0; i < 4; i++)
        json_real(json, NULL, (double)object->box[i], digits);
    json_close_array(json);
}

static void print_json(struct json *json, const struct cvy_detect_answer *answer)
{
    json_open_object(json, NULL);
    json_string(json, "file", answer->file);
    json_int(json, "width", answer->width);
    json_int(json, "height", answer->height);
    json_open_array(json, "detections");
    for (int i = 0; i < answer->count; i++) {
        const struct cvy_detected_object *object = &answer->objects[i];
        json_open_object(json, NULL);
        json_int(json, "class_id", object->class_id);
        json_string(json, "class", object->class_name);
        json_real(json, "score", (double)object->score, FLOAT_DIGITS);
        print_box(json, object, FLOAT_DIGITS);
        json_close_object(json);
    }
    json_close_array(json);
    json_close_object(json);
}

static void print_csv(const struct cvy_detect_answer *answer)
{
    for (int i = 0; i < answer->count; i++) {
        const struct cvy_detected_object *object = &answer->objects[i];
        print_csv_field(answer->file);
        printf(",%d,%" PRId64 ",", i + 1, object->class_id);
        print_csv_field(object->class_name ? object->class_name : "");
        printf(",%.9g", (double)object->score);
        for (int k = 0; k < 4; k++)
            printf(",%.9g", (double)object->box[k]);
        putchar('\n');
    }
}

/* "val2017/000000010764.jpg" -> 10764: the id of an image of COCO. */
static bool read_image_id(const char *file, int64_t *id)
{
    const char *slash = strrchr(file, '/'), *stem = slash ? slash + 1 : file;
    const size_t digits = strspn(stem, "0123456789");

    if (digits == 0 || digits > 18 || stem[digits] != '.' || strchr(stem + digits + 1, '.'))
        return false;
    *id = strtoll(stem, NULL, 10);
    return true;
}

/* Entries of a COCO results list, which pycocotools' loadRes reads. False where the file has no number. */
static bool print_coco(struct json *json, const struct cvy_detect_answer *answer)
{
    int64_t id;

    if (!read_image_id(answer->file, &id))
        return false;
    for (int i = 0; i < answer->count; i++) {
        const struct cvy_detected_object *object = &answer->objects[i];
        json_open_object(json, NULL);
        json_int(json, "image_id", id);
        json_int(json, "category_id", object->class_id);
        print_box(json, object, EXACT_DIGITS);
        json_real(json, "score", (double)object->score, EXACT_DIGITS);
        json_close_object(json);
    }
    return true;
}

static void print_answer(struct detection *d, const struct cvy_detect_answer *answer)
{
    char sentence[512];

    if (d->format == FORMAT_JSON) {
        print_json(&d->json, answer);
    } else if (d->format == FORMAT_CSV) {
        print_csv(answer);
    } else if (d->format == FORMAT_TEXT) {
        print_text(answer);
    } else if (!print_coco(&d->json, answer)) {
        snprintf(sentence, sizeof sentence, "--format coco names images by number, which %s is not",
                 quoted(answer->file));
        bad_files_add(&d->bad, CVY_BAD_DATA, sentence);
    }
}

static void handle_answer(void *context, const struct cvy_detect_answer *answer)
{
    struct detection *d = context;

    d->file_count++;
    if (answer->status != CVY_OK)
        bad_files_add(&d->bad, answer->status, answer->error);
    else
        print_answer(d, answer);
    terminal_progress("%s", cvy_counted((int64_t)d->file_count, "image"));
}

static cvy_status detect_all(struct detection *d, cvy_detector *detector, const struct cvy_detect_options *options,
                             const struct arguments *arguments)
{
    const bool json = d->format == FORMAT_JSON || d->format == FORMAT_COCO;
    cvy_status status;

    if (json)
        json_open_array(&d->json, NULL);
    else if (d->format == FORMAT_CSV)
        printf("file,rank,class_id,class,score,x,y,width,height\n");
    status = cvy_detect_paths(detector, (const char *const *)arguments->value, (size_t)arguments->count, options,
                              handle_answer, d);
    if (json)
        json_close_array(&d->json);
    if (status == CVY_OK)
        status = d->bad.first; /* of a file without a number */
    return bad_files_end(&d->bad, status, "detecting");
}

cvy_status verb_detect(int argc, char **argv)
{
    struct cvy_classifier_options network = CVY_CLASSIFIER_DEFAULTS;
    struct cvy_detect_options detect = CVY_DETECT_DEFAULTS;
    struct detection d = {.format = FORMAT_TEXT};
    struct arguments arguments;
    const struct option options[] = {
        DETECTOR_OPTIONS(network),
        STRIDES_OPTION(network),
        OPT_REAL("threshold", 't', &detect.threshold, "SCORE", "leave out objects that score less (default: 0.5)", 0,
                 1),
        OPT_TEXT("draw", 0, &detect.draw, "OUTDIR", "write copies of the images with the objects drawn on them"),
        OPT_CHOICE("format", 'f', &d.format, "text|json|csv|coco",
                   "how to print (default: text); coco: a list of results for COCO's evaluation"),
    };
    const struct option_table table = {
        .verb = "detect",
        .arguments = "IMAGE|DIR...",
        .summary = "Finds objects on images (JPEG, PNG, WebP, HEIC, AVIF, TIFF, BMP, GIF). Folders are read "
                   "recursively, in bytewise order of the "
                   "names.",
        .options = options,
        .count = OPT_COUNT(options),
        .min_arguments = 1,
        .max_arguments = -1,
    };
    cvy_detector *detector = NULL;
    cvy_status status;

    if (!options_begin(&table, argc, argv, &arguments, &status))
        return status;
    if (!network.weights)
        return terminal_fail(CVY_USAGE, "detect needs --weights FILE");
    status = cvy_detector_open(&network, &detector);
    if (status != CVY_OK)
        return terminal_fail_library(status);
    status = detect_all(&d, detector, &detect, &arguments);
    cvy_detector_close(detector);
    return status;
}
