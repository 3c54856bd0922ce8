/* convoy check: reads a whole data set before hours are spent on it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "convoy/program/check.h"
#include "convoy/program/program.h"
#include "json.h"
#include "names.h"
#include "options.h"
#include "terminal.h"
#include "verbs.h"

enum format { FORMAT_TEXT, FORMAT_JSON };
enum { UNBALANCED = 4 }; /* this many times as many images as in another class deserve a word */

/* Statistics of the training images. */
static void print_balance(const struct cvy_check_report *report)
{
    const struct cvy_check_class *max = &report->classes[report->largest_class];
    const struct cvy_check_class *min = &report->classes[report->smallest_class];
    if (report->class_count == 1)
        puts("one class: there is nothing to tell apart (each class is a folder of its own)");
    if (max->train < UNBALANCED * min->train || max->train == 0)
        return;
    printf("unbalanced: %s of %s, ", cvy_counted(max->train, "training image"), quoted(max->name));
    printf("%" PRId64 " of %s", min->train, quoted(min->name));
    if (min->train > 0)
        printf(" (%.1f times as many): convoy train --sampler balanced shows each class equally often,\n"
               "--class-weights balanced weighs the loss instead",
               (double)max->train / (double)min->train);
    putchar('\n');
}

/* ---- sets with boxes ---- */

static void print_box_classes(const struct cvy_check_report *report, int width)
{
    printf("%-*s %17s %17s\n", width, "", "train", "val");
    printf("%-*s %8s %8s %8s %8s\n", width, "class", "images", "boxes", "images", "boxes");
    for (size_t i = 0; i < report->class_count; i++) {
        const struct cvy_check_class *of = &report->classes[i];
        print_name(of->name, width);
        printf(" %8" PRId64 " %8" PRId64 " %8" PRId64 " %8" PRId64 "\n", of->train, of->train_boxes, of->val,
               of->val_boxes);
    }
    printf("%-*s %8" PRId64 " %8" PRId64 " %8" PRId64 " %8" PRId64 "\n", width, "all", report->train_images,
           report->train_boxes.boxes, report->val_images, report->val_boxes.boxes);
}

static void print_boxes(const char *part, const struct cvy_check_boxes *boxes, int32_t image_size)
{
    const int64_t matched = boxes->anchors;

    if (boxes->boxes == 0)
        return;
    printf("%s: %s: %" PRId64 " small, %" PRId64 " medium, %" PRId64
           " large (area up to 32 x 32 pixels, up to 96 x 96, more), %s;\n",
           part, cvy_counted(boxes->boxes, "box"), boxes->small, boxes->medium, boxes->large,
           cvy_counted(boxes->crowds, "crowd"));
    printf("    most on one image: %" PRId64 "; images without a box: %" PRId64
           ", with more than 100, of which training "
           "takes the first 100: %" PRId64 ";\n",
           boxes->most, boxes->images_without, boxes->images_over);
    printf("    anchors of ssd320 for a box, images of %" PRId32
           " pixels: %.1f; boxes that none overlaps by half: %" PRId64 ", that get none at all: %" PRId64 "\n",
           image_size, (double)matched / (double)boxes->boxes, boxes->forced + boxes->missed, boxes->missed);
    if (boxes->empty + boxes->outside + boxes->not_finite > 0)
        printf("    left out: %s without width or height, %" PRId64 " beyond their images, %" PRId64 " not finite\n",
               cvy_counted(boxes->empty, "box"), boxes->outside, boxes->not_finite);
}

static void json_boxes(struct json *json, const char *key, const struct cvy_check_boxes *boxes)
{
    json_open_object(json, key);
    json_int(json, "boxes", boxes->boxes);
    json_int(json, "crowds", boxes->crowds);
    json_int(json, "small", boxes->small);
    json_int(json, "medium", boxes->medium);
    json_int(json, "large", boxes->large);
    json_int(json, "without_size", boxes->empty);
    json_int(json, "outside", boxes->outside);
    json_int(json, "not_finite", boxes->not_finite);
    json_int(json, "images_without_boxes", boxes->images_without);
    json_int(json, "images_over_100_boxes", boxes->images_over);
    json_int(json, "most_on_one_image", boxes->most);
    json_int(json, "anchors_matched", boxes->anchors);
    json_int(json, "below_half_overlap", boxes->forced + boxes->missed);
    json_int(json, "without_anchor", boxes->missed);
    json_close_object(json);
}

/* ---- the report ---- */

static void print_classes(const struct cvy_check_report *report, int width)
{
    printf("%-*s %8s %8s\n", width, "class", "train", "val");
    for (size_t i = 0; i < report->class_count; i++) {
        print_name(report->classes[i].name, width);
        printf(" %8" PRId64 " %8" PRId64 "\n", report->classes[i].train, report->classes[i].val);
    }
    printf("%-*s %8" PRId64 " %8" PRId64 "\n", width, "all", report->train_images, report->val_images);
}

/* `all` of them, of which the first are named. */
static void print_names(const struct cvy_check_names *names, int64_t all)
{
    for (size_t i = 0; i < names->count; i++)
        printf("    %s\n", quoted(names->list[i]));
    if (all > (int64_t)names->count)
        printf("    and %" PRId64 " more\n", all - (int64_t)names->count);
}

/* Sizes, and what is no fault but good to know. */
static void print_sizes(const struct cvy_check_report *report)
{
    if (report->largest_size[0] > 0)
        printf("smallest image: %" PRId32 " x %" PRId32 " pixels, largest: %" PRId32 " x %" PRId32 "\n",
               report->smallest_size[0], report->smallest_size[1], report->largest_size[0], report->largest_size[1]);
    if (report->tiny_images > 0)
        printf("tiny: %s %s a side of less than %d pixels:\n", cvy_counted(report->tiny_images, "image"),
               report->tiny_images == 1 ? "has" : "have", CVY_CHECK_TINY);
    print_names(&report->tiny, report->tiny_images);
    if (report->turned_images > 0)
        printf("turned: %s %s EXIF orientation; --exif-orientation turns them, and the\n"
               "automatic recipe does where it meets one:\n",
               cvy_counted(report->turned_images, "image"),
               report->turned_images == 1 ? "is shown turned by its" : "are shown turned by their");
    print_names(&report->turned, report->turned_images);
    if (report->duplicates > 0)
        printf("repeated: %s the same as others; of them %" PRId64 " in another class, %" PRId64
               " in validation and in training\n",
               cvy_counted(report->duplicates, "image"), report->in_two_classes, report->in_both_parts);
}

static void print_text(const struct cvy_check_report *report)
{
    int width = 5;
    for (size_t i = 0; i < report->class_count; i++) {
        const int length = name_columns(report->classes[i].name);
        width = length > width ? length : width;
    }
    width = width > 40 ? 40 : width;
    if (report->detection)
        print_box_classes(report, width);
    else
        print_classes(report, width);
    printf("%s; shorter side of the images: smallest %" PRId32 ", median %" PRId32 ", largest %" PRId32 " pixels\n",
           cvy_counted((int64_t)report->class_count, "class"), report->min_side, report->median_side, report->max_side);
    if (report->set_aside > 0)
        printf("no folder val: training keeps %" PRId64 " of the images for validation, by a hash of their paths\n",
               report->set_aside);
    print_sizes(report);
    if (report->detection) {
        print_boxes("train", &report->train_boxes, report->anchor_image_size);
        print_boxes("val", &report->val_boxes, report->anchor_image_size);
    } else if (report->class_count > 0) {
        print_balance(report);
    }
    for (size_t i = 0; i < report->problem_count; i++)
        printf("problem: %s\n", report->problems[i].text);
    if (report->problem_count == 0)
        printf("no problems found\n");
}

static void json_size(struct json *json, const char *key, const int32_t size[2])
{
    json_open_array(json, key);
    json_int(json, NULL, size[0]);
    json_int(json, NULL, size[1]);
    json_close_array(json);
}

static void json_names(struct json *json, const char *key, const struct cvy_check_names *names)
{
    json_open_array(json, key);
    for (size_t i = 0; i < names->count; i++)
        json_string(json, NULL, names->list[i]);
    json_close_array(json);
}

static void print_json(const struct cvy_check_report *report)
{
    struct json json = {0};
    json_open_object(&json, NULL);
    json_int(&json, "train_images", report->train_images);
    json_int(&json, "val_images", report->val_images);
    json_int(&json, "bad_images", report->bad_images);
    json_int(&json, "set_aside", report->set_aside);
    json_int(&json, "other_files", report->other_files);
    json_int(&json, "min_side", report->min_side);
    json_int(&json, "median_side", report->median_side);
    json_int(&json, "max_side", report->max_side);
    json_size(&json, "smallest_size", report->smallest_size);
    json_size(&json, "largest_size", report->largest_size);
    json_int(&json, "tiny_images", report->tiny_images);
    json_int(&json, "turned_images", report->turned_images);
    json_names(&json, "tiny", &report->tiny);
    json_names(&json, "turned", &report->turned);
    json_int(&json, "duplicates", report->duplicates);
    json_int(&json, "in_two_classes", report->in_two_classes);
    json_int(&json, "in_both_parts", report->in_both_parts);
    if (report->class_count > 0) {
        json_string(&json, "smallest_class", report->classes[report->smallest_class].name);
        json_string(&json, "largest_class", report->classes[report->largest_class].name);
    }
    json_open_array(&json, "classes");
    for (size_t i = 0; i < report->class_count; i++) {
        json_open_object(&json, NULL);
        json_string(&json, "class", report->classes[i].name);
        json_int(&json, "train", report->classes[i].train);
        json_int(&json, "val", report->classes[i].val);
        if (report->detection) {
            json_int(&json, "train_boxes", report->classes[i].train_boxes);
            json_int(&json, "val_boxes", report->classes[i].val_boxes);
        }
        json_close_object(&json);
    }
    json_close_array(&json);
    if (report->detection) {
        json_int(&json, "anchor_image_size", report->anchor_image_size);
        json_boxes(&json, "train_boxes", &report->train_boxes);
        json_boxes(&json, "val_boxes", &report->val_boxes);
    }
    json_open_array(&json, "problems");
    for (size_t i = 0; i < report->problem_count; i++) {
        json_open_object(&json, NULL);
        json_string(&json, "file", report->problems[i].path);
        json_string(&json, "problem", report->problems[i].text);
        json_close_object(&json);
    }
    json_close_array(&json);
    json_close_object(&json);
}

cvy_status verb_check(int argc, char **argv)
{
    struct cvy_check_options check = CVY_CHECK_DEFAULTS;
    struct cvy_check_report report = {0};
    struct arguments arguments;
    int format = FORMAT_TEXT;
    const struct option options[] = {
        OPT_INT("threads", 'j', &check.threads, "N", "threads that read images (default: all cores)", 1, 1024),
        OPT_TEXT("val-list", 0, &check.val_list, "FILE", "validation images from a list of path<TAB>label lines"),
        OPT_INT("image-size", 0, &check.image_size, "S",
                "of sets with boxes: side of the detector's images, which decides about anchors (default: 320)", 1,
                4096),
        OPT_CHOICE("format", 'f', &format, "text|json", "how to print (default: text)"),
    };
    const struct option_table table = {
        .verb = "check",
        .arguments = "DIR",
        .summary =
            "Reads every image of DIR/train and DIR/val (or DIR/<class>, or a list): counts, classes, damaged files;\n"
            "of sets with boxes (COCO files, TFRecords) the boxes too: sizes, anchors, what is odd about them.\n"
            "Ends with 65 when a file is bad.",
        .options = options,
        .count = OPT_COUNT(options),
        .min_arguments = 1,
        .max_arguments = 1,
    };
    cvy_status status;
    if (!options_begin(&table, argc, argv, &arguments, &status))
        return status;
    status = cvy_check_dataset(arguments.value[0], &check, &report);
    if (status == CVY_OK) {
        if (format == FORMAT_JSON)
            print_json(&report);
        else
            print_text(&report);
        if (report.bad_images > 0)
            status = terminal_fail(CVY_BAD_DATA, "%" PRId64 " of %s in %s %s bad", report.bad_images,
                                   cvy_counted(report.train_images + report.val_images, "image"),
                                   quoted(arguments.value[0]), report.bad_images == 1 ? "is" : "are");
    } else {
        terminal_fail_library(status);
    }
    cvy_check_report_release(&report);
    return status;
}
