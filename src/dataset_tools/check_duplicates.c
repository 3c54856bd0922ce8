#include "dataset_tools/check_duplicates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

uint64_t cvy_check_hash(const uint8_t *pixels, size_t stride, int32_t width, int32_t height)
{
    const uint64_t prime = UINT64_C(0x9FB21C651E98DF25);
    const size_t row = (size_t)width * 3;
    uint64_t hash = ((uint64_t)(uint32_t)width << 32 | (uint32_t)height) * prime;

    for (int32_t y = 0; y < height; y++) {
        const uint8_t *at = pixels + (size_t)y * stride;
        for (size_t i = 0; i < row; i += 8) {
            uint64_t word = 0;
            memcpy(&word, at + i, row - i < 8 ? row - i : 8);
            hash = (hash ^ word) * prime;
            hash ^= hash >> 29; /* so that high bits come down */
        }
    }
    return hash;
}

/* "file", or "file@offset" in records */
static const char *name_of(const struct cvy_sample *sample, char name[4200])
{
    if (!sample->shard)
        return sample->path;
    snprintf(name, 4200, "%s@%llu", sample->path, (unsigned long long)sample->record_offset);
    return name;
}

/* ---- sizes ---- */

static cvy_status add_name(struct cvy_check_names *names, const struct cvy_sample *sample)
{
    char name[4200];

    if (names->count == CVY_CHECK_LISTED)
        return CVY_OK;
    if (!names->list)
        names->list = cvy_calloc(CVY_CHECK_LISTED, sizeof *names->list);
    if (!names->list || !(names->list[names->count] = cvy_strdup(name_of(sample, name))))
        return cvy_fail_memory(CVY_CHECK_LISTED * sizeof *names->list, "the report");
    names->count++;
    return CVY_OK;
}

void cvy_check_names_release(struct cvy_check_names *names)
{
    for (size_t i = 0; i < names->count; i++)
        cvy_free(names->list[i]);
    cvy_free(names->list);
    *names = (struct cvy_check_names){0};
}

static cvy_status measure(struct cvy_check_report *report, const struct cvy_sample *sample,
                          const struct cvy_check_fingerprint *fingerprint)
{
    const int64_t pixels = (int64_t)fingerprint->width * fingerprint->height;
    const bool tiny = fingerprint->width < CVY_CHECK_TINY || fingerprint->height < CVY_CHECK_TINY,
               turned = fingerprint->orientation != 1;

    if (report->smallest_size[0] == 0 || pixels < (int64_t)report->smallest_size[0] * report->smallest_size[1]) {
        report->smallest_size[0] = fingerprint->width;
        report->smallest_size[1] = fingerprint->height;
    }
    if (pixels > (int64_t)report->largest_size[0] * report->largest_size[1]) {
        report->largest_size[0] = fingerprint->width;
        report->largest_size[1] = fingerprint->height;
    }
    report->tiny_images += tiny;
    report->turned_images += turned;
    if (tiny)
        CVY_TRY(add_name(&report->tiny, sample));
    return turned ? add_name(&report->turned, sample) : CVY_OK;
}

/* ---- the same image twice ---- */

struct duplicate {
    uint64_t hash;
    uint32_t index;
    uint32_t part;
};

/* Pixels first, then as the parts have them: training before validation. */
static int compare_duplicates(const void *a, const void *b)
{
    const struct duplicate *x = a, *y = b;

    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    if (x->part != y->part)
        return x->part < y->part ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

struct comparison {
    struct cvy_check_report *report;
    const struct cvy_check_part *parts;
    int64_t listed[3]; /* of each kind, below */
};
enum kind { SAME_IMAGE, SAME_IN_BOTH_PARTS, SAME_IN_TWO_CLASSES };

static const struct cvy_sample *sample_of(const struct comparison *comparison, const struct duplicate *duplicate)
{
    return &comparison->parts[duplicate->part].dataset->samples[duplicate->index];
}

static cvy_status add_problem(struct comparison *comparison, enum kind kind, const struct duplicate *first,
                              const struct duplicate *other)
{
    struct cvy_check_report *report = comparison->report;
    const struct cvy_sample *a = sample_of(comparison, first), *b = sample_of(comparison, other);
    const char *const *classes = comparison->parts[0].dataset->classes;
    char names[2][4200];

    if (comparison->listed[kind]++ >= CVY_CHECK_LISTED)
        return CVY_OK;
    struct cvy_check_problem *grown = cvy_realloc(report->problems, report->problem_count + 1, sizeof *grown);
    if (!grown)
        return cvy_fail_memory((report->problem_count + 1) * sizeof *grown, "the report");
    report->problems = grown;
    struct cvy_check_problem *problem = &grown[report->problem_count++];
    snprintf(problem->path, sizeof problem->path, "%s", b->path);
    const char *x = cvy_quote(name_of(a, names[0])), *y = cvy_quote(name_of(b, names[1]));
    if (kind == SAME_IN_TWO_CLASSES)
        snprintf(problem->text, sizeof problem->text, "%s and %s are the same image under two classes, %s and %s", x, y,
                 cvy_quote(classes[a->label]), cvy_quote(classes[b->label]));
    else
        snprintf(problem->text, sizeof problem->text, "%s and %s are the same image%s", x, y,
                 kind == SAME_IN_BOTH_PARTS ? ", in training and in validation" : "");
    return CVY_OK;
}

/* Images with the pixels of the first one. */
static cvy_status add_group(struct comparison *comparison, const struct duplicate *duplicates_list, size_t count)
{
    struct cvy_check_report *report = comparison->report;

    for (size_t i = 1; i < count; i++) {
        const bool classes =
            sample_of(comparison, &duplicates_list[i])->label != sample_of(comparison, &duplicates_list[0])->label;
        const bool parts = duplicates_list[i].part != duplicates_list[0].part;
        report->duplicates++;
        report->in_both_parts += parts;
        report->in_two_classes += classes;
        CVY_TRY(add_problem(comparison,
                            classes ? SAME_IN_TWO_CLASSES
                            : parts ? SAME_IN_BOTH_PARTS
                                    : SAME_IMAGE,
                            &duplicates_list[0], &duplicates_list[i]));
    }
    return CVY_OK;
}

cvy_status cvy_check_compare(struct cvy_check_report *report, const struct cvy_check_part parts[2])
{
    struct comparison comparison = {.report = report, .parts = parts};
    cvy_status status = CVY_OK;
    size_t total = 0, count = 0, end;

    for (int p = 0; p < 2; p++)
        total += parts[p].fingerprints ? parts[p].dataset->sample_count : 0;
    struct duplicate *duplicates_list = cvy_calloc(total + 1, sizeof *duplicates_list);
    if (!duplicates_list)
        return cvy_fail_memory(total * sizeof *duplicates_list, "the report");
    for (uint32_t p = 0; p < 2; p++)
        for (uint32_t i = 0; parts[p].fingerprints && i < parts[p].dataset->sample_count; i++) {
            const struct cvy_check_fingerprint *fingerprint = &parts[p].fingerprints[i];
            if (fingerprint->width == 0)
                continue;
            CVY_GOTO(measure(report, &parts[p].dataset->samples[i], fingerprint));
            duplicates_list[count++] = (struct duplicate){fingerprint->hash, i, p};
        }
    qsort(duplicates_list, count, sizeof *duplicates_list, compare_duplicates);
    for (size_t from = 0; from < count; from = end) {
        for (end = from + 1; end < count && duplicates_list[end].hash == duplicates_list[from].hash;)
            end++;
        CVY_GOTO(add_group(&comparison, duplicates_list + from, end - from));
    }
fail:
    cvy_free(duplicates_list);
    return status;
}
