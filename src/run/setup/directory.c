/* Where a run is recorded: its directory, and the files in it that stay open. */
#include "base/error.h"
#include "base/file.h"
#include "options/options.h"
#include "run/output/output.h"
#include "run/setup/stages.h"

cvy_status cvy_setup_check_directory(const struct cvy_run *run)
{
    const struct cvy_train_options *options = &run->config->options;

    if (run->ranks.comm.rank != 0 || options->evaluate)
        return CVY_OK;
    return cvy_run_directory_check(options, run->resume.requested ? run->resume.folder : NULL);
}

/* --evaluate: a record where one is asked for, and nothing else. */
static cvy_status open_evaluation_record(struct cvy_run *run)
{
    const struct cvy_train_options *options = &run->config->options;
    const bool folder = options->workspace[0] != '\0';

    if (folder) {
        CVY_TRY(cvy_make_directories(options->workspace));
        CVY_TRY(cvy_run_lock_take(&run->state.lock, options->workspace));
    }
    if (folder || cvy_option_source_of(options, "raport-file") == CVY_FROM_FLAG)
        CVY_TRY(cvy_run_log_open_report(&run->state.log, &run->resolving->paths, &run->resolving->options));
    CVY_TRY(cvy_run_report_open(run));
    return cvy_run_report_parameters(run);
}

/* The folder of a training, free of what a killed run has left half written. */
static cvy_status make_directory(struct cvy_run *run)
{
    const struct cvy_resume *resume = &run->resume;
    const struct cvy_run_paths *paths = &run->config->paths;

    if (resume->requested) {
        const char *workspace = run->config->options.workspace;

        CVY_TRY(cvy_run_options_confine(&run->resolving->options, workspace[0] ? workspace : resume->folder));
        CVY_TRY(cvy_run_directory_check_links(workspace[0] ? workspace : resume->folder));
    }
    CVY_TRY(cvy_run_directory_make(&run->resolving->paths, &run->resolving->options,
                                   resume->requested ? resume->folder : NULL));
    CVY_TRY(cvy_run_lock_take(&run->state.lock, paths->folder));
    cvy_run_clean_up(run);
    cvy_output_clean(paths->checkpoint);
    cvy_output_clean(paths->best);
    cvy_output_clean(paths->options);
    cvy_output_clean(paths->validation);
    cvy_output_clean(paths->best_validation);
    cvy_output_clean(paths->plot);
    return CVY_OK;
}

/* The folder appears only when nothing else can be wrong any more. */
cvy_status cvy_setup_open_directory(struct cvy_run *run)
{
    const struct cvy_train_state *known = run->resume.found ? &run->state.progress : NULL;

    if (run->config->options.evaluate)
        return open_evaluation_record(run);
    CVY_TRY(make_directory(run));
    if (run->pretrained.continues) /* its options alone would start this run from the beginning */
        run->resolving->options.pretrained_weights[0] = '\0';
    CVY_TRY(cvy_run_save_options(run, false));
    CVY_TRY(cvy_run_log_open(&run->state.log, &run->config->paths, &run->config->options, known));
    if (run->ranks.comm.world > 1)
        CVY_TRY(cvy_run_log_open_ranks(&run->state.log, known));
    CVY_TRY(cvy_run_report_open(run));
    CVY_TRY(cvy_run_report_parameters(run));
    /* A run that is done already would save nothing. */
    return run->pretrained.continues || run->resume.replaces ? cvy_run_save(run) : CVY_OK;
}
