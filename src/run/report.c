/* What a run reports besides its metrics: parameters, diagnoses, validation.json, plot and page. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/system.h"
#include "options/options.h"
#include "report/page/page.h"
#include "run/run.h"

/* ---- opening ---- */

cvy_status cvy_run_report_open(struct cvy_run *run)
{
    const struct cvy_dataset *train = &run->train;
    const int32_t classes = run->network.model.num_classes;
    const int64_t batches = run->options.training_only ? 0 : cvy_source_batches(&run->val_source);
    const bool detector = cvy_run_is_detection(&run->options);
    const bool known = train->sample_count > 0, equal = strcmp(run->options.sampler, "balanced") == 0;
    double *counts = cvy_calloc((size_t)classes, sizeof *counts);

    if (!counts)
        return cvy_fail_memory((size_t)classes * sizeof *counts, "the images of each class");
    for (uint32_t i = 0; i < train->sample_count; i++)
        counts[train->samples[i].label]++;
    for (int32_t i = 0; i < classes; i++) {
        counts[i] = !known || (equal && counts[i] > 0) ? 1 : counts[i];
        counts[i] *= run->class_weights ? (double)run->class_weights[i] : 1;
    }
    if (detector) /* what guessing costs there is not known */
        cvy_diagnosis_init(&run->diagnosis, NULL, 1, 0);
    else
        cvy_diagnosis_init(&run->diagnosis, counts, classes, run->options.label_smoothing);
    cvy_free(counts);
    memcpy(run->diagnosis.reported, run->log.reported, sizeof run->diagnosis.reported);
    if (batches < 1)
        return CVY_OK;
    run->latency = cvy_calloc(2 * (size_t)batches, sizeof *run->latency);
    if (!run->latency)
        return cvy_fail_memory(2 * (size_t)batches * sizeof *run->latency, "the times of the validation");
    run->latency_average = run->latency + batches;
    if (detector)
        cvy_pictures_open(&run->pictures, run->val.sample_count);
    return detector ? CVY_OK : cvy_collector_open(&run->collector, classes, (int32_t)run->options.topk);
}

/* ---- parameters ---- */

static cvy_status write_record(struct cvy_run *run, struct cvy_text *text)
{
    const cvy_status status = text->failed ? cvy_fail_memory(text->length, "the report")
                                           : cvy_dllogger_parameters(&run->log.report, text->text);

    cvy_text_release(text);
    return status;
}

static cvy_status write_model(struct cvy_run *run)
{
    const struct cvy_train_options *o = &run->options;
    struct cvy_text text = {0};
    struct cvy_json json = {.text = &text};
    const bool fan_out = strcmp(o->model_config, "classic") == 0 || strstr(o->model_config, "fanout") != NULL;

    cvy_json_begin_object(&json);
    cvy_json_put_int(&json, "model.num_classes", run->network.model.num_classes);
    if (!cvy_run_is_detection(o)) { /* detectors have an initialisation of their own */
        cvy_json_key(&json, "model.last_bn_0_init");
        cvy_json_bool(&json, o->last_bn_0_init);
        cvy_json_put_string(&json, "model.conv_init", fan_out ? "fan_out" : "fan_in");
    }
    cvy_json_put_int(&json, "model.parameters", cvy_network_parameters(&run->network));
    cvy_json_key(&json, "model.gmac");
    cvy_json_number(&json, cvy_network_macs(&run->network.table) / 1e9);
    cvy_json_end_object(&json);
    return write_record(run, &text);
}

/* The data and the machine: what an epoch is, and what computes it. */
static cvy_status write_environment(struct cvy_run *run)
{
    struct cvy_text text = {0};
    struct cvy_json json = {.text = &text};
    char host[65] = "";

    if (gethostname(host, sizeof host - 1) != 0)
        host[0] = '\0';
    cvy_json_begin_object(&json);
    cvy_json_put_int(&json, "data.train_images", run->train.sample_count);
    cvy_json_put_int(&json, "data.val_images", run->val.sample_count);
    cvy_json_put_int(&json, "data.steps_per_epoch", run->steps_per_epoch);
    cvy_json_put_string(&json, "environment.version", cvy_version());
    cvy_json_put_string(&json, "environment.host", host);
    cvy_json_put_string(&json, "environment.cpu", cvy_cpu_name());
    cvy_json_put_string(&json, "environment.device", run->device->backend->name);
    cvy_json_put_string(&json, "environment.description", run->device->description);
    cvy_json_put_string(&json, "environment.precision", cvy_precision_name(run->network.dtype, run->device));
    cvy_json_put_int(&json, "environment.threads", run->device->threads);
    cvy_json_put_int(&json, "environment.processes", run->comm.world);
    cvy_json_put_int(&json, "environment.planned_memory_mib", (int64_t)(run->memory.total >> 20));
    if (run->resume.found) {
        cvy_json_put_string(&json, "resumed.from", run->resume.file);
        cvy_json_put_int(&json, "resumed.epoch", run->state.epoch);
        cvy_json_put_int(&json, "resumed.position", run->state.position);
    }
    cvy_json_end_object(&json);
    return write_record(run, &text);
}

cvy_status cvy_run_report_parameters(struct cvy_run *run)
{
    struct cvy_text text = {0};
    struct cvy_json json = {.text = &text};
    struct cvy_measures parts = {.count = run->log.parts ? CVY_LOSS_PARTS : 0};

    if (!run->log.fresh)
        return write_environment(run);
    cvy_options_write_parameters(&run->options, &json);
    CVY_TRY(write_record(run, &text));
    CVY_TRY(write_model(run));
    CVY_TRY(write_environment(run));
    for (int i = 0; i < parts.count; i++)
        snprintf(parts.list[i].name, sizeof parts.list[i].name, "%s", cvy_loss_part_names[i]);
    return cvy_dllogger_standard_metadata(&run->log.report, &parts, &run->log.measures, run->log.averaged);
}

/* ---- diagnoses ---- */

enum { SCALE_STEPS = 10 }; /* between two looks at the loss scale */

static cvy_status report_finding(struct cvy_run *run, int64_t epoch, int64_t position, enum cvy_finding finding,
                                 const char *text)
{
    if (finding == CVY_FINDING_NONE)
        return CVY_OK;
    cvy_log(CVY_LOG_WARNING, "%s", text);
    return cvy_run_log_finding(&run->log, epoch, position, finding, text);
}

cvy_status cvy_run_report_step(struct cvy_run *run, int64_t position, int64_t step, double loss,
                               const struct cvy_scaler *scaler)
{
    const struct cvy_scaler_rule *rule = &run->trainer.optimizer.options.scaler;
    const int64_t epoch = run->state.epoch;
    char text[CVY_FINDING_TEXT];

    if (run->comm.rank != 0) /* rank 0 finds the same */
        return CVY_OK;
    CVY_TRY(report_finding(run, epoch, position, cvy_diagnose_loss(&run->diagnosis, epoch, step, loss, text), text));
    if (!run->trainer.scaling || step % SCALE_STEPS != 0)
        return CVY_OK;
    return report_finding(run, epoch, position, cvy_diagnose_scale(&run->diagnosis, scaler, rule, SCALE_STEPS, text),
                          text);
}

/* ---- the end of an epoch ---- */

/* What harms nobody when it is missing. */
static void log_if_failed(cvy_status status)
{
    if (status != CVY_OK)
        cvy_log(CVY_LOG_WARNING, "%s", cvy_error());
}

static cvy_status report_validation(struct cvy_run *run, const struct cvy_run_epoch *epoch)
{
    const struct cvy_measures *measures = &epoch->val.measures; /* cvy_metrics_measures */
    struct cvy_validation validation;
    char text[CVY_FINDING_TEXT];
    cvy_status status;

    CVY_TRY(cvy_collector_finish(&run->collector, run->train.classes, run->train.class_count, &validation));
    validation.epoch = epoch->public.epoch;
    validation.images = epoch->val.images;
    validation.skipped = epoch->val.skipped;
    validation.loss = measures->list[0].value;
    validation.top1 = measures->list[1].value;
    validation.topk = measures->list[2].value;
    log_if_failed(cvy_validation_write(&validation, run->paths.validation));
    status = report_finding(
        run, epoch->public.epoch, 0,
        cvy_diagnose_validation(&run->diagnosis, &validation, epoch->step, epoch->public.train_loss, text), text);
    cvy_validation_release(&validation);
    return status;
}

static cvy_status report_detection(struct cvy_run *run, const struct cvy_run_epoch *epoch)
{
    struct cvy_detection_validation validation;

    if (run->val.sample_count == 0) /* synthetic images have no names and nothing on them */
        return CVY_OK;
    CVY_TRY(cvy_detections_validation(&run->coco_result, &run->val, &run->pictures, &validation));
    validation.epoch = epoch->public.epoch;
    validation.skipped = epoch->val.skipped;
    log_if_failed(cvy_detection_validation_write(&validation, run->paths.validation));
    cvy_detection_validation_release(&validation);
    return CVY_OK;
}

cvy_status cvy_run_report_epoch(struct cvy_run *run, const struct cvy_run_epoch *epoch)
{
    char text[CVY_FINDING_TEXT];

    if (run->comm.rank != 0)
        return CVY_OK;
    CVY_TRY(report_finding(
        run, epoch->public.epoch, 0,
        cvy_diagnose_epoch(&run->diagnosis, epoch->public.epoch, epoch->step, epoch->public.train_loss, text), text));
    if (run->train_source.loader) {
        char advice[CVY_ADVICE_TEXT];
        cvy_loader_advise(run->train_source.loader, &epoch->loading, advice);
        CVY_TRY(report_finding(run, epoch->public.epoch, 0,
                               cvy_diagnose_data(&run->diagnosis, &epoch->loading, advice, text), text));
    }
    if (epoch->public.validated)
        CVY_TRY(cvy_run_is_detection(&run->options) ? report_detection(run, epoch) : report_validation(run, epoch));
    log_if_failed(cvy_run_log_plot(&run->log));
    return CVY_OK;
}

void cvy_run_report_page(const struct cvy_run *run)
{
    char sentence[1024];

    if (run->comm.rank != 0)
        return;
    cvy_error_get(sentence, sizeof sentence); /* of a run that failed */
    log_if_failed(cvy_report(run->paths.folder, NULL));
    cvy_error_put(sentence);
}
