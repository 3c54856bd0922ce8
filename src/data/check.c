/* convoy check: every image of a data set is read in full. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/memory.h"
#include "convoy/dataset.h"
#include "data/dataset.h"
#include "data/image.h"
#include "data/list.h"

enum { MAX_THREADS = 256 };

/* What was found out about one image. */
struct finding {
    cvy_status status;
    char *text;   /* NULL: nothing wrong */
    int32_t side; /* the shorter one; 0: unknown */
};

/* Images read by several threads, each taking the next one. */
struct reading {
    const struct cvy_dataset *dataset;
    struct finding *findings;
    atomic_uint next;
    atomic_bool failed;
    /* of the thread that failed first */
    pthread_mutex_t mutex;
    cvy_status status;
    char text[1024];
};

/* What is not an image's fault ends the reading. */
static void record_failure(struct reading *reading, cvy_status status)
{
    pthread_mutex_lock(&reading->mutex);
    if (reading->status == CVY_OK) {
        reading->status = status;
        cvy_error_get(reading->text, sizeof reading->text);
    }
    reading->failed = true;
    pthread_mutex_unlock(&reading->mutex);
}

static cvy_status read_image(struct cvy_decoder *decoder, const struct cvy_sample *sample, int32_t *side)
{
    struct cvy_encoded encoded;
    int32_t width, height;
    const uint8_t *pixels;
    size_t stride;

    CVY_TRY(cvy_sample_read(sample, &encoded));
    cvy_status status = cvy_decoder_start(decoder, encoded.name, encoded.data, encoded.size, &width, &height);
    if (status == CVY_OK)
        status = cvy_decoder_read(decoder, &(struct cvy_box){0, 0, width, height}, &pixels, &stride);
    if (status == CVY_OK)
        *side = width < height ? width : height;
    cvy_encoded_release(&encoded);
    return status;
}

/* A readable image whose name promises the other format. */
static bool is_mislabelled(const struct cvy_decoder *decoder, const char *path)
{
    const char *ending = strrchr(path, '.');
    const bool says_png = ending && strcasecmp(ending, ".png") == 0;
    return says_png != (cvy_decoder_format(decoder) == CVY_IMAGE_PNG);
}

static void find(struct reading *reading, struct cvy_decoder *decoder, uint32_t index)
{
    struct finding *finding = &reading->findings[index];
    const struct cvy_sample *sample = &reading->dataset->samples[index];
    bool wrong = false;

    finding->status = read_image(decoder, sample, &finding->side);
    if (finding->status != CVY_OK && finding->status != CVY_BAD_DATA && finding->status != CVY_NO_INPUT) {
        record_failure(reading, finding->status);
    } else if (finding->status != CVY_OK) {
        finding->text = cvy_strdup(cvy_error());
        wrong = true;
    } else if (is_mislabelled(decoder, sample->path)) {
        const bool png = cvy_decoder_format(decoder) == CVY_IMAGE_PNG;
        (void)cvy_fail(CVY_BAD_DATA, "%s is a %s image under another ending; it can be used", cvy_quote(sample->path),
                       png ? "PNG" : "JPEG");
        finding->text = cvy_strdup(cvy_error());
        wrong = true;
    }
    if (wrong && !finding->text)
        record_failure(reading, cvy_fail_memory(strlen(cvy_error()) + 1, "a message"));
}

static void *work(void *argument)
{
    struct reading *reading = argument;
    struct cvy_decoder *decoder;

    const cvy_status status = cvy_decoder_new(&decoder);
    if (status != CVY_OK) {
        record_failure(reading, status);
        return NULL;
    }
    while (!reading->failed) {
        const unsigned index = atomic_fetch_add(&reading->next, 1);
        if (index >= reading->dataset->sample_count)
            break;
        find(reading, decoder, index);
    }
    cvy_decoder_free(decoder);
    return NULL;
}

/* Read all images; this thread works too, so that none more is needed. */
static cvy_status read_all(const struct cvy_dataset *dataset, int threads, struct finding *findings)
{
    struct reading reading = {.dataset = dataset, .findings = findings, .mutex = PTHREAD_MUTEX_INITIALIZER};
    pthread_t started[MAX_THREADS];
    int count = 0;
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (count + 1 < threads && count < MAX_THREADS && pthread_create(&started[count], NULL, work, &reading) == 0)
        count++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    work(&reading);
    for (int i = 0; i < count; i++)
        pthread_join(started[i], NULL);
    pthread_mutex_destroy(&reading.mutex);
    return reading.status == CVY_OK ? CVY_OK : cvy_fail(reading.status, "%s", reading.text);
}

/* ---- the report ---- */

struct sides {
    int32_t *values;
    size_t count;
};

static cvy_status add_problems(struct cvy_check_report *report, const struct cvy_dataset *dataset,
                               const struct finding *findings)
{
    size_t count = report->problem_count;
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
    for (uint32_t i = 0; i < dataset->sample_count; i++) {
        struct cvy_check_class *of = &report->classes[dataset->samples[i].label];
        *(val ? &of->val : &of->train) += 1;
    }
    *(val ? &report->val_images : &report->train_images) += dataset->sample_count;
    return CVY_OK;
}

static cvy_status add_part(struct cvy_check_report *report, const struct cvy_dataset *dataset, bool val, int threads,
                           struct sides *sides)
{
    cvy_status status = CVY_OK;
    struct finding *findings = cvy_calloc(dataset->sample_count, sizeof *findings);
    int32_t *grown = cvy_realloc(sides->values, sides->count + dataset->sample_count, sizeof *grown);

    if (grown)
        sides->values = grown;
    if (!findings || !grown) {
        status = cvy_fail_memory(dataset->sample_count * sizeof *findings, "the report");
        goto fail;
    }
    CVY_GOTO(add_classes(report, dataset, val));
    CVY_GOTO(read_all(dataset, threads, findings));
    for (uint32_t i = 0; i < dataset->sample_count; i++)
        if (findings[i].side > 0)
            sides->values[sides->count++] = findings[i].side;
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
    return strcmp(((const struct cvy_check_problem *)a)->path, ((const struct cvy_check_problem *)b)->path);
}

static void finish(struct cvy_check_report *report, struct sides *sides)
{
    if (report->problem_count > 1)
        qsort(report->problems, report->problem_count, sizeof *report->problems, compare_problems);
    if (sides->count == 0)
        return;
    qsort(sides->values, sides->count, sizeof *sides->values, compare_sides);
    report->min_side = sides->values[0];
    report->median_side = sides->values[sides->count / 2];
    report->max_side = sides->values[sides->count - 1];
}

/* The training set of DIR, and the validation set where there is one: a list, or DIR/val. */
static cvy_status open_sets(const char *folder, const char *train_folder, const char *val_folder, const char *val_list,
                            struct cvy_dataset *train, struct cvy_dataset *val)
{
    const bool has_train = cvy_path_is_directory(train_folder), has_val = cvy_path_is_directory(val_folder);

    if (has_val && !has_train)
        return cvy_fail(CVY_NO_INPUT, "the folder %s does not exist", cvy_quote(train_folder));
    CVY_TRY(cvy_dataset_open(train, has_train ? train_folder : folder, NULL, 0));
    if (val_list)
        return cvy_dataset_open_list(val, val_list, train->classes, train->class_count);
    return has_val ? cvy_dataset_open(val, val_folder, train->classes, train->class_count) : CVY_OK;
}

static cvy_status check(const char *folder, const char *train_folder, const char *val_folder,
                        const struct cvy_check_options *options, struct cvy_check_report *report)
{
    cvy_status status = CVY_OK;
    struct cvy_dataset train = {0}, val = {0};
    struct sides sides = {0};
    const int threads = options->threads > 0 ? options->threads : cvy_default_threads();

    CVY_GOTO(open_sets(folder, train_folder, val_folder, options->val_list, &train, &val));
    CVY_GOTO(add_part(report, &train, false, threads, &sides));
    if (val.sample_count > 0)
        CVY_GOTO(add_part(report, &val, true, threads, &sides));
    finish(report, &sides);
fail:
    cvy_free(sides.values);
    cvy_dataset_close(&train);
    cvy_dataset_close(&val);
    return status;
}

cvy_status cvy_check_dataset(const char *folder, const struct cvy_check_options *options,
                             struct cvy_check_report *report)
{
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
    cvy_free(report->classes);
    cvy_free(report->problems);
    *report = (struct cvy_check_report){0};
}
