/* A training run from outside: open, announce, step, stop, result. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/sized.h"
#include "base/system.h"
#include "run/output/output.h"
#include "run/ranks/ranks.h"
#include "run/setup/setup.h"
#include "run/training/loop.h"

enum phase { NOT_OPEN, RUNNING, OVER /* at its end, stopped or failed: to be finished */, FINISHED };

struct cvy_training {
    struct cvy_train_options options, resolved; /* as they were given; all of them, from open on */
    struct cvy_train_events events;
    struct cvy_train_result result;
    struct cvy_run run;
    struct cvy_loop loop; /* of a training; not with --evaluate */
    enum phase phase;
    bool was_opened, run_is_open;
    cvy_status status; /* why it is over; CVY_OK: it came to its end */
    char why[1024];    /* in a sentence */
    atomic_int stop;
    atomic_flag busy; /* a call is in progress */
};

static void fill_result(struct cvy_run *run)
{
    struct cvy_train_result *result = run->result;
    /* A resumed checkpoint may have come without the best weights beside it. */
    const char *weights = run->state.progress.best_epoch >= 0 && cvy_path_exists(run->config->paths.best)
                              ? run->config->paths.best
                              : run->config->paths.checkpoint;

    snprintf(result->run_directory, sizeof result->run_directory, "%s", run->config->paths.folder);
    if (cvy_path_exists(weights))
        snprintf(result->weights, sizeof result->weights, "%s", weights);
    if (run->data.val.sample_count > 0 && !run->data.val.samples[0].shard)
        snprintf(result->sample_image, sizeof result->sample_image, "%s", run->data.val.samples[0].path);
    result->detector = cvy_run_is_detection(&run->config->options);
    result->classes = run->state.network.model.num_classes;
    result->best_score = run->state.progress.best_score;
    result->best_epoch = run->state.progress.best_epoch;
    result->epochs_done = run->state.progress.epoch;
    result->steps_done = run->state.progress.step;
    result->bad_images = run->state.bad_images;
    result->planned_memory = run->config->memory.total;
    result->peak_memory = cvy_peak_memory();
}

static void announce(struct cvy_run *run)
{
    struct cvy_text text = {0};

    if (run->events && run->events->begin)
        run->events->begin(run->events->context, run->config->paths.folder, run->ranks.comm.rank,
                           run->ranks.comm.world);
    if (!run->events || !run->events->plan)
        return;
    cvy_run_text(run, &text);
    if (!text.failed)
        run->events->plan(run->events->context, text.text);
    cvy_text_release(&text);
}

cvy_status cvy_training_new(const struct cvy_train_options *options, const struct cvy_train_events *events,
                            cvy_training **training)
{
    CVY_REQUIRE(training);
    *training = NULL;
    CVY_REQUIRE(options);
    struct cvy_train_events known = CVY_TRAIN_EVENTS_DEFAULTS;
    cvy_training *t;

    if (events)
        CVY_TRY(cvy_sized_take(&known, sizeof known, events, "cvy_train_events"));
    t = cvy_calloc(1, sizeof *t);
    if (!t)
        return cvy_fail_memory(sizeof *t, "a training run");
    t->options = *options;
    t->events = known;
    t->result.best_epoch = -1;
    atomic_flag_clear(&t->busy);
    *training = t;
    return CVY_OK;
}

void cvy_training_stop(cvy_training *training)
{
    if (training)
        atomic_store(&training->stop, 1);
}

const struct cvy_train_options *cvy_training_options(const cvy_training *training)
{
    if (!training)
        return NULL;
    return training->was_opened ? &training->resolved : &training->options;
}

/* The call begins where it is allowed: in one of two phases. */
static cvy_status begin_call(cvy_training *t, enum phase wanted, enum phase or_this, const char *name)
{
    static const char *const why[] = {"it is not open", "it runs", "it is over", "it is finished"};

    if (atomic_flag_test_and_set(&t->busy))
        return cvy_fail(CVY_USAGE, "%s: another call for this training is in progress", name);
    if (t->phase == wanted || t->phase == or_this)
        return CVY_OK;
    const enum phase phase = t->phase;
    atomic_flag_clear(&t->busy);
    return cvy_fail(CVY_USAGE, "%s is not possible in this state of the training: %s", name, why[phase]);
}

/* The run is over because of what has just failed. */
static void note_failure(cvy_training *t, cvy_status status)
{
    t->phase = OVER;
    t->status = status;
    cvy_error_get(t->why, sizeof t->why);
}

/* Whatever fails ends the run. */
static cvy_status end_call(cvy_training *t, cvy_status status)
{
    if (status != CVY_OK && t->phase == RUNNING)
        note_failure(t, status);
    atomic_flag_clear(&t->busy);
    return status;
}

cvy_status cvy_training_open(cvy_training *training)
{
    CVY_REQUIRE(training);
    cvy_training *t = training;

    CVY_TRY(begin_call(t, NOT_OPEN, NOT_OPEN, "cvy_training_open"));
    const cvy_status status = cvy_run_open(&t->run, &t->options, &t->events, &t->result, &t->stop);
    if (status != CVY_OK) {
        note_failure(t, status);
        return end_call(t, status);
    }
    t->phase = RUNNING;
    t->run_is_open = t->was_opened = true;
    t->resolved = t->run.config->options;
    announce(&t->run);
    if (!t->run.config->options.evaluate)
        cvy_loop_begin(&t->loop, &t->run);
    return end_call(t, CVY_OK);
}

/* A step; *over: there is none left. */
static cvy_status take_step(cvy_training *t, bool *over)
{
    *over = true;
    if (t->run.config->options.evaluate)
        return cvy_run_evaluate(&t->run);
    CVY_TRY(cvy_loop_step(&t->loop));
    *over = cvy_loop_is_over(&t->loop);
    if (!*over)
        return CVY_OK;
    cvy_loop_finish(&t->loop);
    return cvy_run_save_options(&t->run, true);
}

cvy_status cvy_training_step(cvy_training *training, bool *more)
{
    CVY_REQUIRE(training);
    bool over;

    if (more)
        *more = false;
    CVY_TRY(begin_call(training, RUNNING, RUNNING, "cvy_training_step"));
    const cvy_status status = take_step(training, &over);
    if (status == CVY_OK && over)
        training->phase = OVER;
    else if (status == CVY_OK && more)
        *more = true;
    return end_call(training, status);
}

cvy_status cvy_training_validate(cvy_training *training, struct cvy_measures *measures)
{
    CVY_REQUIRE(training);
    CVY_REQUIRE(measures);
    cvy_status status;

    memset(measures, 0, sizeof *measures);
    CVY_TRY(begin_call(training, RUNNING, RUNNING, "cvy_training_validate"));
    if (training->run.config->options.evaluate || training->run.config->options.training_only) {
        status = cvy_fail(CVY_USAGE, "a run with --evaluate or --training-only has no validation between its steps");
        atomic_flag_clear(&training->busy); /* which ends nothing */
        return status;
    }
    return end_call(training, cvy_loop_validate(&training->loop, measures));
}

cvy_status cvy_training_save(cvy_training *training)
{
    CVY_REQUIRE(training);

    CVY_TRY(begin_call(training, RUNNING, RUNNING, "cvy_training_save"));
    return end_call(training, training->run.config->options.evaluate ? CVY_OK : cvy_loop_save(&training->loop));
}

/* What is written at the end, and what the ranks tell one another. */
static cvy_status end_run(cvy_training *t)
{
    struct cvy_run *run = &t->run;
    cvy_status status = t->status;

    if (status == CVY_OK)
        status = cvy_run_log_summary(&run->state.log);
    const bool failed = status != CVY_OK && status != CVY_STOPPED;
    if (failed) /* ranks stop together, and fail one by one */
        cvy_ranks_fail(run, status);
    fill_result(run);
    if (!run->config->options.evaluate)
        cvy_run_report_page(run);
    /* A launcher may end all when the first one ends: none does before rank 0 has saved and drawn. */
    if (!failed)
        status = cvy_ranks_end_all(run, status);
    cvy_run_close(run);
    t->run_is_open = false;
    return status;
}

cvy_status cvy_training_finish(cvy_training *training, struct cvy_train_result *result)
{
    CVY_REQUIRE(training);
    cvy_training *t = training;

    CVY_TRY(begin_call(t, RUNNING, OVER, "cvy_training_finish"));
    if (t->phase == RUNNING) {
        t->status = CVY_OK;
        if (!t->run.config->options.evaluate)
            cvy_loop_finish(&t->loop);
    }
    cvy_status status = t->status;
    if (status != CVY_OK) /* others may have failed since */
        cvy_error_put(t->why);
    if (t->run_is_open)
        status = end_run(t);
    t->phase = FINISHED;
    if (result)
        *result = t->result;
    return end_call(t, status);
}

cvy_status cvy_training_run(cvy_training *training, struct cvy_train_result *result)
{
    CVY_REQUIRE(training);
    bool more = true;
    cvy_status status = cvy_training_open(training);

    if (status != CVY_OK) {
        if (result)
            *result = training->result;
        return status;
    }
    while (status == CVY_OK && more)
        status = cvy_training_step(training, &more);
    return cvy_training_finish(training, result);
}

void cvy_training_free(cvy_training *training)
{
    if (!training)
        return;
    if (atomic_flag_test_and_set(&training->busy)) {
        cvy_log(CVY_LOG_WARNING, "a training that is in use is not freed");
        return;
    }
    if (training->run_is_open && training->run.ranks.comm.world > 1) { /* the others would wait for it */
        if (training->status == CVY_OK)
            training->status = cvy_fail(CVY_STOPPED, "the training was freed before it was finished");
        else
            cvy_error_put(training->why);
        cvy_ranks_fail(&training->run, training->status);
    }
    if (training->run_is_open)
        cvy_run_close(&training->run);
    cvy_free(training);
}

cvy_status cvy_train(const struct cvy_train_options *options, const struct cvy_train_events *events,
                     struct cvy_train_result *result)
{
    cvy_training *training;

    if (result)
        *result = (struct cvy_train_result){.best_epoch = -1};
    CVY_TRY(cvy_training_new(options, events, &training));
    const cvy_status status = cvy_training_run(training, result);
    cvy_training_free(training);
    return status;
}
