/* The records of a run: metrics by name for the report, rows of the tables, scalars of the events. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "run/records/log.h"

/* ---- the summary ---- */

static bool ends_with(const char *name, const char *end)
{
    const size_t a = strlen(name), b = strlen(end);

    return a >= b && strcmp(name + a - b, end) == 0;
}

static double merge(const char *name, double old, int64_t count, double value)
{
    if (ends_with(name, ".loss"))
        return value < old ? value : old;
    if (strstr(name, ".top") || strstr(name, "_at") || strstr(name, ".ap") || strstr(name, ".ar") ||
        strncmp(name, "Precision/", 10) == 0 || strncmp(name, "Recall/", 7) == 0)
        return value > old ? value : old;
    if (ends_with(name, "_ips") || ends_with(name, "_throughput") || ends_with(name, "_time") ||
        ends_with(name, "_latency") || ends_with(name, "_scale"))
        return old + (value - old) / (double)count;
    return value;
}

void cvy_run_summary_add(struct cvy_run_summary *summary, const char *name, double value)
{
    struct cvy_summary_entry *entry = summary->entries;
    struct cvy_summary_entry *const end = entry + summary->count;

    while (entry < end && strcmp(entry->name, name) != 0)
        entry++;
    if (entry == end) {
        if (summary->count == sizeof summary->entries / sizeof *summary->entries || strlen(name) >= sizeof entry->name)
            return;
        snprintf(entry->name, sizeof entry->name, "%s", name);
        entry->value = value;
        entry->count = 1;
        summary->count++;
        return;
    }
    entry->count++;
    entry->value = merge(name, entry->value, entry->count, value);
}

/* ---- metrics of one record ---- */

struct record {
    struct cvy_metric metrics[96];
    char names[96][48];
    size_t count;
};

/* name: of the metric inside its group, "val" and "loss". */
static void put(struct record *record, const char *group, const char *name, double value)
{
    char *whole = record->names[record->count];

    snprintf(whole, sizeof record->names[0], "%s.%s", group, name);
    record->metrics[record->count++] = (struct cvy_metric){whole, value};
}

/* name: as it stands in the record. */
static void put_named(struct record *record, const char *name, double value)
{
    char *whole = record->names[record->count];

    snprintf(whole, sizeof record->names[0], "%s", name);
    record->metrics[record->count++] = (struct cvy_metric){whole, value};
}

static double rate(int64_t count, double seconds)
{
    return seconds > 0 ? (double)count / seconds : 0;
}

static double share(double part, int64_t count)
{
    return count > 0 ? part / (double)count : 0;
}

/* Metrics of level 0, the reference program's word for what everyone sees. */
static void put_train(struct record *record, const struct cvy_run_window *w)
{
    put(record, "train", "loss", w->loss);
    put(record, "train", "compute_ips", rate(w->images, w->seconds - w->wait));
    put(record, "train", "total_ips", rate(w->images, w->seconds));
    put(record, "train", "lr", w->learning_rate);
    put(record, "train", "grad_scale", w->scale);
}

/* Those of level 1. */
static void put_train_times(struct record *record, const struct cvy_run_window *w)
{
    put(record, "train", "data_time", share(w->wait, w->steps));
    put(record, "train", "compute_time", share(w->seconds - w->wait, w->steps));
}

/* Times of the loader's threads, for each image. */
static void put_loading(struct record *record, const struct cvy_loader_stats *stats)
{
    put(record, "train", "read_time", share(stats->read, stats->images));
    put(record, "train", "decode_time", share(stats->decode, stats->images));
    put(record, "train", "transform_time", share(stats->transform, stats->images));
    put(record, "train", "loader_busy", cvy_loader_stats_busy(stats));
}

/* Runs of several processes, whose means these are. */
static void put_ranks(struct record *record, const struct cvy_run_epoch *epoch)
{
    const struct cvy_slowest slowest = cvy_rank_times_slowest(epoch->ranks, epoch->world);
    double wait = 0;

    for (int i = 0; i < epoch->world; i++)
        wait += epoch->ranks[i].wait / epoch->world;
    put(record, "train", "wait_time", share(wait, epoch->steps));
    put(record, "train", "slowest_rank", slowest.rank);
    put(record, "train", "slowest_excess", slowest.excess);
    put(record, "train", "comm_time", share(epoch->moved, epoch->steps));
    put(record, "train", "comm_exposed_time", share(epoch->exposed, epoch->steps));
}

/* The k-th accuracy with k = 1 is the first one again. */
static bool is_new(const struct cvy_measures *measures, int index)
{
    for (int i = 0; i < index; i++) {
        if (strcmp(measures->list[i].name, measures->list[index].name) == 0)
            return false;
    }
    return true;
}

/* The scores, then the losses. */
static void put_measures(struct record *record, const struct cvy_run_validation *v)
{
    for (int losses = 0; losses <= 1; losses++) {
        for (int i = 0; i < v->measures.count; i++) {
            const struct cvy_measure *measure = &v->measures.list[i];

            if (ends_with(measure->name, "loss") == (losses == 1) && is_new(&v->measures, i))
                put(record, v->name, measure->name, measure->value);
        }
    }
}

double cvy_run_mean_latency(const struct cvy_run_validation *v)
{
    double sum = 0;

    for (int64_t i = 0; i < v->batches; i++)
        sum += v->latency[i];
    return share(sum, v->batches);
}

static void put_validation(struct record *record, const struct cvy_run_validation *v)
{
    put_measures(record, v);
    put(record, v->name, "compute_ips", rate(v->images + v->skipped, v->seconds - v->wait));
    put(record, v->name, "total_ips", rate(v->images + v->skipped, v->seconds));
    put(record, v->name, "compute_latency", cvy_run_mean_latency(v));
}

static void put_validation_times(struct record *record, const struct cvy_run_validation *v)
{
    put(record, v->name, "data_time", share(v->wait, v->batches));
    cvy_sort_values(v->latency, v->batches);
    put(record, v->name, "compute_latency_at100", cvy_quantile(v->latency, v->batches, 1));
    put(record, v->name, "compute_latency_at99", cvy_quantile(v->latency, v->batches, 0.99));
    put(record, v->name, "compute_latency_at95", cvy_quantile(v->latency, v->batches, 0.95));
}

/* ---- during an epoch ---- */

cvy_status cvy_run_log_step(struct cvy_run_log *log, int64_t epoch, int64_t step, double loss, double learning_rate)
{
    const double values[] = {(double)epoch, (double)step, loss, learning_rate};

    return cvy_csv_row(&log->steps, values, NULL);
}

enum { WINDOW_SCALARS = 5 };

static size_t window_scalars(const struct cvy_run_window *w, struct cvy_scalar scalars[WINDOW_SCALARS])
{
    scalars[0] = (struct cvy_scalar){"train/loss", w->loss};
    scalars[1] = (struct cvy_scalar){"train/lr", w->learning_rate};
    scalars[2] = (struct cvy_scalar){"train/images_per_second", rate(w->images, w->seconds)};
    scalars[3] = (struct cvy_scalar){"train/data_share", w->seconds > 0 ? w->wait / w->seconds : 0};
    scalars[4] = (struct cvy_scalar){"train/loss_scale", w->scale};
    return w->scaling ? 5 : 4;
}

cvy_status cvy_run_log_window(struct cvy_run_log *log, const struct cvy_run_window *w)
{
    const int64_t step[] = {w->epoch, w->position};
    struct cvy_scalar scalars[WINDOW_SCALARS];
    struct record level0 = {.count = 0}, level1 = {.count = 0};

    put_train(&level0, w);
    if (log->tensorflow) {
        put_named(&level0, "imgs_per_sec", rate(w->images, w->seconds));
        put_named(&level0, "cross_entropy", w->loss);
        put_named(&level0, "learning_rate", w->learning_rate);
    }
    put_train_times(&level1, w);
    CVY_TRY(cvy_dllogger_log(&log->report, step, 2, level0.metrics, level0.count));
    CVY_TRY(cvy_dllogger_log(&log->report, step, 2, level1.metrics, level1.count));
    return cvy_events_add(&log->events, w->step, scalars, window_scalars(w, scalars));
}

cvy_status cvy_run_log_validation(struct cvy_run_log *log, int64_t epoch, int64_t iteration, int64_t batch,
                                  struct cvy_run_validation *v)
{
    const int64_t step[] = {epoch, iteration, batch};
    struct record level0 = {.count = 0}, level1 = {.count = 0};

    put_validation(&level0, v);
    put_validation_times(&level1, v);
    if (v->ranks > 1) /* these numbers are of rank 0's share alone */
        put(&level0, v->name, "rank", 0);
    CVY_TRY(cvy_dllogger_log(&log->report, step, 3, level0.metrics, level0.count));
    return cvy_dllogger_log(&log->report, step, 3, level1.metrics, level1.count);
}

cvy_status cvy_run_log_finding(struct cvy_run_log *log, int64_t epoch, int64_t position, enum cvy_finding finding,
                               const char *text)
{
    const int64_t step[] = {epoch, position};
    char name[64];

    snprintf(name, sizeof name, "diagnosis.%s", cvy_finding_name(finding));
    log->reported[finding] = true;
    return cvy_dllogger_text(&log->report, step, position > 0 ? 2 : 1, name, text);
}

/* ---- the end of an epoch ---- */

/* One event for all, so that the ends of epochs are cut back together; the steps after the last record too. */
static cvy_status add_epoch_event(struct cvy_run_log *log, const struct cvy_run_epoch *epoch)
{
    const struct cvy_train_epoch *e = &epoch->public;
    const double val_rate = rate(epoch->val.images + epoch->val.skipped, epoch->val.seconds);
    struct cvy_scalar scalars[WINDOW_SCALARS + 3 + CVY_LOSS_PARTS + 2 * CVY_MEASURES_MAX];
    char names[CVY_LOSS_PARTS + 2 * CVY_MEASURES_MAX][32];
    size_t count = epoch->rest.steps > 0 ? window_scalars(&epoch->rest, scalars) : 0, named = 0;

    scalars[count++] = (struct cvy_scalar){"epoch", (double)e->epoch};
    scalars[count++] = (struct cvy_scalar){"train/epoch_loss", e->train_loss};
    for (int i = 0; i < e->parts.count && i < CVY_LOSS_PARTS; i++) {
        snprintf(names[named], sizeof names[0], "train/%s", e->parts.list[i].name);
        scalars[count++] = (struct cvy_scalar){names[named++], e->parts.list[i].value};
    }
    for (int average = 0; average <= 1; average++) {
        const struct cvy_measures *measures = average ? &e->val_ema : &e->val;

        for (int i = 0; i < measures->count && (average ? e->averaged : e->validated); i++) {
            if (!is_new(measures, i))
                continue;
            snprintf(names[named], sizeof names[0], "%s/%s", average ? "val_ema" : "val", measures->list[i].name);
            scalars[count++] = (struct cvy_scalar){names[named++], measures->list[i].value};
        }
    }
    if (e->validated)
        scalars[count++] = (struct cvy_scalar){"val/images_per_second", val_rate};
    return cvy_events_add(&log->events, epoch->step, scalars, count);
}

/* The values of metrics.csv, in the order of its columns (run/records/log.c). */
static cvy_status add_row(struct cvy_run_log *log, const struct cvy_train_epoch *e)
{
    bool present[2 * CVY_MEASURES_MAX + CVY_LOSS_PARTS + 3];
    double row[2 * CVY_MEASURES_MAX + CVY_LOSS_PARTS + 3];
    size_t count = 0;

    row[count++] = (double)e->epoch;
    row[count++] = e->train_loss;
    for (int i = 0; log->parts && i < CVY_LOSS_PARTS; i++)
        row[count++] = e->parts.list[i].value;
    for (size_t i = 0; i < count; i++)
        present[i] = true;
    for (int average = 0; average <= (int)log->averaged; average++) {
        const struct cvy_measures *measures = average ? &e->val_ema : &e->val;

        for (int i = 0; i < log->measures.count; i++) {
            row[count] = i < measures->count ? measures->list[i].value : 0;
            present[count] = i < measures->count && (average ? e->averaged : e->validated) && !isnan(row[count]);
            count++;
        }
    }
    row[count] = e->learning_rate;
    present[count] = true;
    return cvy_csv_row(&log->metrics, row, present);
}

/* ---- the reference programs' names ---- */

/* Between the two values around it, as numpy has it, in milliseconds. */
static double percentile(const struct cvy_run_validation *v, double q)
{
    const double place = q * (double)(v->batches - 1);
    const int64_t low = (int64_t)place, high = low + 1 < v->batches ? low + 1 : low;

    return v->batches > 0 ? 1000 * (v->latency[low] + (v->latency[high] - v->latency[low]) * (place - (double)low)) : 0;
}

/* The times of a validation, after they were put into order. names: how the mean and the three percentiles are called.
 */
static void put_latencies(struct record *record, const struct cvy_run_validation *v, const char *const names[4])
{
    static const double shares[] = {0.90, 0.95, 0.99};

    put_named(record, names[0], 1000 * cvy_run_mean_latency(v));
    for (int i = 0; i < 3; i++)
        put_named(record, names[i + 1], percentile(v, shares[i]));
}

/* A detector's numbers, as fractions; the speed of the training, or that of an evaluation. */
static void put_detection_names(struct record *record, const struct cvy_run_epoch *epoch, bool training)
{
    static const char *const latencies[] = {"eval_avg_latency", "eval_90%_latency", "eval_95%_latency",
                                            "eval_99%_latency"};
    const struct cvy_run_validation *v = &epoch->val;

    for (int i = 0; i < v->measures.count && i < CVY_COCO_STATS; i++) {
        const double value = v->measures.list[i].value;
        put_named(record, cvy_coco_stat_name(i), isnan(value) ? -1 : value / 100);
    }
    if (training && epoch->images > 0)
        put_named(record, "train_throughput", rate(epoch->images, epoch->public.seconds));
    if (!training) {
        put_named(record, "infer_throughput", rate(v->images + v->skipped, v->seconds));
        put_latencies(record, v, latencies);
    }
}

/* Those of TensorFlow's program for classification, whose accuracies are fractions too. */
static void put_tensorflow_names(struct record *record, const struct cvy_run_epoch *epoch, bool training)
{
    static const char *const latencies[] = {"eval_latency_avg", "eval_latency_p90", "eval_latency_p95",
                                            "eval_latency_p99"};
    const struct cvy_run_validation *v = &epoch->val;
    char name[48];

    if (training) {
        put_named(record, "cross_entropy", epoch->public.train_loss);
        for (int i = 0; i < epoch->public.parts.count; i++)
            put_named(record, epoch->public.parts.list[i].name, epoch->public.parts.list[i].value);
        put_named(record, "learning_rate", epoch->public.learning_rate);
        if (epoch->images > 0)
            put_named(record, "train_throughput", rate(epoch->images, epoch->public.seconds));
    }
    if (v->batches == 0)
        return;
    for (int i = 0; i < v->measures.count; i++) {
        if (strncmp(v->measures.list[i].name, "top", 3) != 0 || !is_new(&v->measures, i))
            continue;
        snprintf(name, sizeof name, "%s_accuracy", v->measures.list[i].name);
        put_named(record, name, v->measures.list[i].value / 100);
    }
    put_named(record, "eval_throughput", rate(v->images + v->skipped, v->seconds));
    put_latencies(record, v, latencies);
}

/* What is in the record once more, under the names of the program whose network this is. */
static void put_reference(const struct cvy_run_log *log, struct record *record, const struct cvy_run_epoch *epoch,
                          bool training)
{
    if (log->parts)
        put_detection_names(record, epoch, training);
    else if (log->tensorflow)
        put_tensorflow_names(record, epoch, training);
}

/* The record of an epoch, which the summary of the run takes in. */
static cvy_status write_record(struct cvy_run_log *log, int64_t epoch, const struct record *record)
{
    const int64_t step[] = {epoch};

    for (size_t i = 0; i < record->count; i++)
        cvy_run_summary_add(&log->summary, record->metrics[i].name, record->metrics[i].value);
    return cvy_dllogger_log(&log->report, step, 1, record->metrics, record->count);
}

/* A row of ranks.csv for each rank, and a record of lists. */
static cvy_status write_ranks(struct cvy_run_log *log, const struct cvy_run_epoch *epoch)
{
    static const char *const names[] = {"train.rank_compute_time", "train.rank_data_time", "train.rank_wait_time"};
    const size_t world = (size_t)epoch->world;
    double *lists = cvy_calloc(3 * world, sizeof *lists); /* (3, world) seconds of an iteration */
    cvy_status status = CVY_OK;

    if (!lists)
        return cvy_fail_memory(3 * world * sizeof *lists, "the times of the ranks");
    for (size_t i = 0; i < world && status == CVY_OK; i++) {
        const struct cvy_rank_times *times = &epoch->ranks[i];
        const double row[] = {
            (double)epoch->public.epoch, (double)i, (double)epoch->steps, times->compute, times->data, times->wait};

        lists[i] = share(times->compute, epoch->steps);
        lists[world + i] = share(times->data, epoch->steps);
        lists[2 * world + i] = share(times->wait, epoch->steps);
        status = cvy_csv_row(&log->ranks, row, NULL);
    }
    if (status == CVY_OK)
        status = cvy_dllogger_lists(&log->report, &epoch->public.epoch, 1, names, 3, lists, world);
    cvy_free(lists);
    return status;
}

cvy_status cvy_run_log_evaluation(struct cvy_run_log *log, struct cvy_run_epoch *epoch)
{
    struct record record = {.count = 0};

    put_validation(&record, &epoch->val);
    put_validation_times(&record, &epoch->val);
    put(&record, "val", "skipped", (double)epoch->val.skipped);
    if (epoch->public.averaged) {
        put_validation(&record, &epoch->val_ema);
        put_validation_times(&record, &epoch->val_ema);
    }
    put_reference(log, &record, epoch, false);
    return write_record(log, epoch->public.epoch, &record);
}

cvy_status cvy_run_log_epoch(struct cvy_run_log *log, struct cvy_run_epoch *epoch)
{
    const struct cvy_train_epoch *e = &epoch->public;
    const bool v = e->validated;
    const struct cvy_run_window whole = {
        .steps = epoch->steps,
        .images = epoch->images,
        .loss = e->train_loss,
        .learning_rate = e->learning_rate,
        .seconds = e->seconds,
        .wait = epoch->wait,
        .scale = epoch->scale,
    };
    struct record record = {.count = 0};

    put_train(&record, &whole);
    put_train_times(&record, &whole);
    if (epoch->loading.images > 0)
        put_loading(&record, &epoch->loading);
    for (int i = 0; i < e->parts.count; i++)
        put(&record, "train", e->parts.list[i].name, e->parts.list[i].value);
    put(&record, "train", "bad_images", (double)e->bad_images);
    if (epoch->ranks)
        put_ranks(&record, epoch);
    if (v) {
        put_validation(&record, &epoch->val);
        put_validation_times(&record, &epoch->val);
        put(&record, "val", "skipped", (double)epoch->val.skipped);
    }
    if (e->averaged) {
        put_validation(&record, &epoch->val_ema);
        put_validation_times(&record, &epoch->val_ema);
    }
    put_reference(log, &record, epoch, true);
    CVY_TRY(add_row(log, e));
    if (epoch->ranks)
        CVY_TRY(write_ranks(log, epoch));
    CVY_TRY(write_record(log, e->epoch, &record));
    return add_epoch_event(log, epoch);
}

cvy_status cvy_run_log_summary(struct cvy_run_log *log)
{
    const struct cvy_run_summary *summary = &log->summary;
    struct cvy_metric metrics[sizeof summary->entries / sizeof *summary->entries];

    for (size_t i = 0; i < summary->count; i++)
        metrics[i] = (struct cvy_metric){summary->entries[i].name, summary->entries[i].value};
    return cvy_dllogger_log(&log->report, NULL, 0, metrics, summary->count);
}
