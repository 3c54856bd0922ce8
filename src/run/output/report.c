/* What a run reports besides its metrics: parameters, diagnoses, validation.json, plot and page. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/system.h"
#include "ops/ops.h"
#include "options/options.h"
#include "report/page/page.h"
#include "run/output/output.h"

/* ---- opening ---- */

cvy_status cvy_run_report_open(struct cvy_run *run)
{
    const struct cvy_dataset *train = &run->data.train;
    const int32_t classes = run->state.network.model.num_classes;
    const int64_t batches = run->config->options.training_only ? 0 : cvy_source_batches(&run->data.val_source);
    const bool detector = cvy_run_is_detection(&run->config->options);
    const bool known = train->sample_count > 0, equal = strcmp(run->config->options.sampler, "balanced") == 0;
    double *counts = cvy_calloc((size_t)classes, sizeof *counts);

    if (!counts)
        return cvy_fail_memory((size_t)classes * sizeof *counts, "the images of each class");
    for (uint32_t i = 0; i < train->sample_count; i++)
        counts[train->samples[i].label]++;
    for (int32_t i = 0; i < classes; i++) {
        counts[i] = !known || (equal && counts[i] > 0) ? 1 : counts[i];
        counts[i] *= run->config->class_weights ? (double)run->config->class_weights[i] : 1;
    }
    if (detector) /* what guessing costs there is not known */
        cvy_diagnosis_init(&run->state.diagnosis, NULL, 1, 0);
    else
        cvy_diagnosis_init(&run->state.diagnosis, counts, classes, run->config->options.label_smoothing);
    cvy_free(counts);
    run->state.diagnosis.fresh = !run->config->options.pretrained_weights[0];
    memcpy(run->state.diagnosis.reported, run->state.log.reported, sizeof run->state.diagnosis.reported);
    if (batches < 1)
        return CVY_OK;
    run->state.latency = cvy_calloc(2 * (size_t)batches, sizeof *run->state.latency);
    if (!run->state.latency)
        return cvy_fail_memory(2 * (size_t)batches * sizeof *run->state.latency, "the times of the validation");
    run->state.latency_average = run->state.latency + batches;
    if (detector)
        cvy_pictures_open(&run->state.pictures, run->data.val.sample_count);
    return detector ? CVY_OK : cvy_collector_open(&run->state.collector, classes, (int32_t)run->config->options.topk);
}

/* ---- parameters ---- */

static cvy_status write_record(struct cvy_run_state *state, struct cvy_text *text)
{
    const cvy_status status = text->failed ? cvy_fail_memory(text->length, "the report")
                                           : cvy_dllogger_parameters(&state->log.report, text->text);

    cvy_text_release(text);
    return status;
}

static cvy_status write_model(struct cvy_run *run)
{
    const struct cvy_train_options *o = &run->config->options;
    struct cvy_text text = {0};
    struct cvy_json json = {.text = &text};
    const bool fan_out = strcmp(o->model_config, "classic") == 0 || strstr(o->model_config, "fanout") != NULL;

    cvy_json_begin_object(&json);
    cvy_json_put_int(&json, "model.num_classes", run->state.network.model.num_classes);
    if (!cvy_run_is_detection(o)) { /* detectors have an initialisation of their own */
        cvy_json_key(&json, "model.last_bn_0_init");
        cvy_json_bool(&json, o->last_bn_0_init);
        cvy_json_put_string(&json, "model.conv_init", fan_out ? "fan_out" : "fan_in");
    }
    cvy_json_put_int(&json, "model.parameters", cvy_network_parameters(&run->state.network));
    cvy_json_key(&json, "model.gmac");
    cvy_json_number(&json, cvy_graph_macs(&run->state.network.table) / 1e9);
    cvy_json_end_object(&json);
    return write_record(&run->state, &text);
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
    cvy_json_put_int(&json, "data.train_images", run->data.train.sample_count);
    cvy_json_put_int(&json, "data.val_images", run->data.val.sample_count);
    cvy_json_put_int(&json, "data.steps_per_epoch", run->config->steps_per_epoch);
    cvy_json_put_string(&json, "environment.version", cvy_version());
    cvy_json_put_string(&json, "environment.host", host);
    cvy_json_put_string(&json, "environment.cpu", cvy_cpu_name());
    cvy_json_put_string(&json, "environment.device", run->state.device->backend->name);
    cvy_json_put_string(&json, "environment.description", run->state.device->description);
    cvy_json_put_string(&json, "environment.precision",
                        cvy_precision_name(run->state.network.dtype, run->state.device));
    cvy_json_put_int(&json, "environment.threads", run->state.device->threads);
    cvy_json_put_int(&json, "environment.processes", run->ranks.comm.world);
    cvy_json_put_int(&json, "environment.planned_memory_mib", (int64_t)(run->config->memory.total >> 20));
    if (run->resume.found) {
        cvy_json_put_string(&json, "resumed.from", run->resume.file);
        cvy_json_put_int(&json, "resumed.epoch", run->state.progress.epoch);
        cvy_json_put_int(&json, "resumed.position", run->state.progress.position);
    }
    cvy_json_end_object(&json);
    return write_record(&run->state, &text);
}

cvy_status cvy_run_report_parameters(struct cvy_run *run)
{
    struct cvy_text text = {0};
    struct cvy_json json = {.text = &text};
    struct cvy_measures parts = {.count = run->state.log.parts ? CVY_LOSS_PARTS : 0};
    static const char *const speeds[] = {"train_throughput", "infer_throughput"}; /* of a detector, in its program */

    if (!run->state.log.fresh)
        return write_environment(run);
    cvy_options_write_parameters(&run->config->options, &json);
    CVY_TRY(write_record(&run->state, &text));
    CVY_TRY(write_model(run));
    CVY_TRY(write_environment(run));
    for (int i = 0; i < parts.count; i++)
        snprintf(parts.list[i].name, sizeof parts.list[i].name, "%s", cvy_loss_part_names[i]);
    CVY_TRY(cvy_dllogger_standard_metadata(&run->state.log.report, &parts, &run->state.log.measures,
                                           run->state.log.averaged));
    for (size_t i = 0; run->state.log.parts && i < sizeof speeds / sizeof *speeds; i++)
        CVY_TRY(cvy_dllogger_metadata(&run->state.log.report, speeds[i], "images/s", NULL));
    return CVY_OK;
}

/* ---- diagnoses ---- */

enum { SCALE_STEPS = 10 }; /* between two looks at the loss scale */

static cvy_status report_finding(struct cvy_run_state *state, int64_t epoch, int64_t position, enum cvy_finding finding,
                                 const char *text)
{
    if (finding == CVY_FINDING_NONE)
        return CVY_OK;
    cvy_log(CVY_LOG_WARNING, "%s", text);
    return cvy_run_log_finding(&state->log, epoch, position, finding, text);
}

cvy_status cvy_run_report_step(struct cvy_run *run, int64_t position, int64_t step, double loss,
                               const struct cvy_scaler *scaler)
{
    const struct cvy_scaler_rule *rule = &run->state.trainer.optimizer.options.scaler;
    const int64_t epoch = run->state.progress.epoch;
    char text[CVY_FINDING_TEXT];

    if (run->ranks.comm.rank != 0) /* rank 0 finds the same */
        return CVY_OK;
    CVY_TRY(report_finding(&run->state, epoch, position,
                           cvy_diagnose_loss(&run->state.diagnosis, epoch, step, loss, text), text));
    if (!run->state.trainer.scaling || step % SCALE_STEPS != 0)
        return CVY_OK;
    return report_finding(&run->state, epoch, position,
                          cvy_diagnose_scale(&run->state.diagnosis, scaler, rule, SCALE_STEPS, text), text);
}

/* The records of the steps that are done again go; the sentence belongs to the first of them. */
cvy_status cvy_run_report_rewind(struct cvy_run *run, int64_t step, double loss)
{
    const struct cvy_train_state *state = &run->state.progress;
    struct cvy_diagnosis *diagnosis = &run->state.diagnosis;
    char text[CVY_FINDING_TEXT], seen[160], guessing[64] = "";

    diagnosis->block_sum = diagnosis->block_last = diagnosis->block_count = 0;
    if (run->ranks.comm.rank != 0)
        return CVY_OK;
    cvy_run_log_close(&run->state.log);
    CVY_TRY(cvy_run_log_open(&run->state.log, &run->config->paths, &run->config->options, state));
    if (run->ranks.comm.world > 1)
        CVY_TRY(cvy_run_log_open_ranks(&run->state.log, state));
    memcpy(diagnosis->reported, run->state.log.reported, sizeof diagnosis->reported);
    if (diagnosis->guess_loss > 0)
        snprintf(guessing, sizeof guessing, ", far above the %.3g of guessing", diagnosis->guess_loss);
    if (isfinite(loss))
        snprintf(seen, sizeof seen, "the loss has risen to %.3g in step %lld%s", loss, (long long)step, guessing);
    else
        snprintf(seen, sizeof seen, "the loss of step %lld is not a finite number", (long long)step);
    snprintf(text, sizeof text,
             "%s: the training goes back to its state after step %lld and continues with %s the learning rate (%lld of "
             "%lld --rewinds)",
             seen, (long long)state->step, state->rewinds == 1 ? "half" : "another half of", (long long)state->rewinds,
             (long long)run->config->options.rewinds);
    return report_finding(&run->state, state->epoch, state->position + 1, CVY_FINDING_REWIND, text);
}

/* ---- the end of an epoch ---- */

/* What harms nobody when it is missing. */
static void log_if_failed(cvy_status status)
{
    if (status != CVY_OK)
        cvy_log(CVY_LOG_WARNING, "%s", cvy_error());
}

/* Whether this validation is of the weights that model_best.safetensors now has: averages are validated apart. */
static bool is_of_best(const struct cvy_run *run, const struct cvy_run_epoch *epoch)
{
    return epoch->public.best && !run->config->best_is_average;
}

static cvy_status report_validation(struct cvy_run *run, const struct cvy_run_epoch *epoch)
{
    const struct cvy_measures *measures = &epoch->val.measures; /* cvy_metrics_measures */
    struct cvy_validation validation;
    char text[CVY_FINDING_TEXT];
    cvy_status status;

    CVY_TRY(
        cvy_collector_finish(&run->state.collector, run->data.train.classes, run->data.train.class_count, &validation));
    validation.epoch = epoch->public.epoch;
    validation.images = epoch->val.images;
    validation.skipped = epoch->val.skipped;
    validation.loss = measures->list[0].value;
    validation.top1 = measures->list[1].value;
    validation.topk = measures->list[2].value;
    log_if_failed(cvy_validation_write(&validation, run->config->paths.validation));
    if (is_of_best(run, epoch))
        log_if_failed(cvy_validation_write(&validation, run->config->paths.best_validation));
    if (run->state.progress.best_epoch >= 0)
        run->state.diagnosis.best_share = fmax(run->state.diagnosis.best_share, run->state.progress.best_score / 100);
    status = report_finding(
        &run->state, epoch->public.epoch, 0,
        cvy_diagnose_validation(&run->state.diagnosis, &validation, epoch->step, epoch->public.train_loss, text), text);
    cvy_validation_release(&validation);
    return status;
}

static cvy_status report_detection(struct cvy_run *run, const struct cvy_run_epoch *epoch)
{
    struct cvy_detection_validation validation;

    if (run->data.val.sample_count == 0) /* synthetic images have no names and nothing on them */
        return CVY_OK;
    CVY_TRY(cvy_detections_validation(&run->state.coco_result, &run->data.val, &run->state.pictures, &validation));
    validation.epoch = epoch->public.epoch;
    validation.skipped = epoch->val.skipped;
    log_if_failed(cvy_detection_validation_write(&validation, run->config->paths.validation));
    if (is_of_best(run, epoch))
        log_if_failed(cvy_detection_validation_write(&validation, run->config->paths.best_validation));
    cvy_detection_validation_release(&validation);
    return CVY_OK;
}

cvy_status cvy_run_report_epoch(struct cvy_run *run, const struct cvy_run_epoch *epoch)
{
    char text[CVY_FINDING_TEXT];

    if (run->ranks.comm.rank != 0)
        return CVY_OK;
    CVY_TRY(report_finding(
        &run->state, epoch->public.epoch, 0,
        cvy_diagnose_epoch(&run->state.diagnosis, epoch->public.epoch, epoch->step, epoch->public.train_loss, text),
        text));
    if (run->data.train_source.loader) {
        char advice[CVY_ADVICE_TEXT];
        cvy_loader_advise(run->data.train_source.loader, &epoch->loading, advice);
        CVY_TRY(report_finding(&run->state, epoch->public.epoch, 0,
                               cvy_diagnose_data(&run->state.diagnosis, &epoch->loading, advice, text), text));
    }
    if (epoch->public.validated)
        CVY_TRY(cvy_run_is_detection(&run->config->options) ? report_detection(run, epoch)
                                                            : report_validation(run, epoch));
    log_if_failed(cvy_run_log_plot(&run->state.log));
    return CVY_OK;
}

void cvy_run_report_page(const struct cvy_run *run)
{
    char sentence[1024];

    if (run->ranks.comm.rank != 0)
        return;
    cvy_error_get(sentence, sizeof sentence); /* of a run that failed */
    log_if_failed(cvy_report(run->config->paths.folder, NULL));
    cvy_error_put(sentence);
}
