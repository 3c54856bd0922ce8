/* convoy train: options to the library, its events to the terminal, signals to an orderly stop. */
#include "convoy/train.h"
#include "convoy/program/program.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dry_run.h"
#include "option_aliases.h"
#include "options.h"
#include "ranks.h"
#include "reference_line.h"
#include "terminal.h"
#include "train_options.h"
#include "verbs.h"

#define SHOWN_MEASURES 3 /* of each validation, on the line of an epoch */

/* ---- signals ---- */

static volatile sig_atomic_t signals_seen, nothing_is_saved, is_silent;
static _Atomic(cvy_training *) running; /* what a signal stops; NULL: nothing runs yet, or any more */

/* The first signal lets the step finish and saves; the second one ends the process as if nobody had caught it. */
static void handle_signal(int number)
{
    static const char saving[] = "\nconvoy: stopping after this step and saving; once more ends at once\n";
    static const char losing[] = "\nconvoy: stopping after this step; once more ends at once\n";
    const char *text = nothing_is_saved ? losing : saving;
    const size_t size = nothing_is_saved ? sizeof(losing) - 1 : sizeof(saving) - 1;
    if (ranks_same_signal()) /* to the whole group and to this process too */
        return;
    const ssize_t ignored = signals_seen || is_silent ? 0 : write(STDERR_FILENO, text, size);
    (void)ignored;
    if (signals_seen++) {
        signal(number, SIG_DFL);
        raise(number);
    }
    cvy_training_stop(running);
}

static void catch_signals(void)
{
    struct sigaction action, before;
    memset(&action, 0, sizeof(action));
    action.sa_handler = handle_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL); /* which mpirun passes on without ending anybody itself */
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) /* as nohup leaves it */
        sigaction(SIGHUP, &action, NULL);
    /* A reader of our messages that goes away does not end hours of training. */
    signal(SIGPIPE, SIG_IGN);
}

/* ---- events ---- */

static void show_begin(void *context, const char *run_directory, int rank, int ranks)
{
    (void)context;
    if (ranks > 1)
        ranks_move_log(run_directory, rank);
}

static void show_plan(void *context, const char *text)
{
    (void)context;
    const size_t length = strlen(text);
    terminal_note("%s%s%s", reference_line_note(), text, length > 0 && text[length - 1] == '\n' ? "" : "\n");
}

static void show_progress(void *context, const struct cvy_train_progress *p)
{
    char left[32];
    (void)context;
    if (p->validating) {
        terminal_progress("epoch %" PRId64 "/%" PRId64 "  validating %" PRId64 "/%" PRId64 "  %.0f images/s",
                          p->epoch + 1, p->epochs, p->step, p->steps, p->images_per_second);
        return;
    }
    terminal_progress("epoch %" PRId64 "/%" PRId64 "  step %" PRId64 "/%" PRId64
                      "  loss %.4f  %s left  %.0f images/s  waiting for data %.1f %%",
                      p->epoch + 1, p->epochs, p->step, p->steps, unsigned_nan(p->loss),
                      duration_text(p->eta_seconds, left, sizeof(left)), p->images_per_second, 100.0 * p->data_share);
}

/* A piece of an epoch's line. Where the terminal is too narrow for all, those with the highest rank are left out. */
struct piece {
    char text[64];
    int rank;
};
enum { PIECES = 16, NEVER_LEFT_OUT = 0 };

static void add_piece(struct piece *pieces, int *count, int rank, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void add_piece(struct piece *pieces, int *count, int rank, const char *format, ...)
{
    va_list arguments;
    if (*count == PIECES)
        return;
    va_start(arguments, format);
    vsnprintf(pieces[*count].text, sizeof(pieces[0].text), format, arguments);
    va_end(arguments);
    pieces[(*count)++].rank = rank;
}

/* "top-1  44.70 %", "val loss 1.4031", "AP 27.31 %": one number of a validation. */
static void add_measure(struct piece *pieces, int *count, const struct cvy_measure *measure, int64_t classes)
{
    const double value = unsigned_nan(measure->value);
    if (!strcmp(measure->name, "top1"))
        add_piece(pieces, count, 1, "  top-1 %6.2f %%", value);
    else if (!strncmp(measure->name, "top", 3) && strtoll(measure->name + 3, NULL, 10) < classes)
        add_piece(pieces, count, 6, "  top-%s %6.2f %%", measure->name + 3, value);
    else if (!strcmp(measure->name, "loss"))
        add_piece(pieces, count, 4, "  val loss %.4f", value);
    else if (!strncmp(measure->name, "ap", 2)) /* COCO's, in percent */
        add_piece(pieces, count, measure->name[2] ? 6 : 1, "  AP%s %.2f %%", measure->name + 2, value);
    else if (strncmp(measure->name, "top", 3) != 0)
        add_piece(pieces, count, 6, "  %s %.4f", measure->name, value);
}

/* What the moving average is judged by. */
static void add_average(struct piece *pieces, int *count, const struct cvy_measures *measures)
{
    const double ap = cvy_measures_get(measures, "ap"), top1 = cvy_measures_get(measures, "top1");
    if (isnan(top1))
        add_piece(pieces, count, 5, "  average AP %.2f %%", ap);
    else
        add_piece(pieces, count, 5, "  average top-1 %6.2f %%", top1);
}

/* The pieces that fit into `columns`, in their order. */
static void join_pieces(struct piece *pieces, int count, int columns, char *line, size_t size)
{
    size_t used = 0, length = 0;
    for (int i = 0; i < count; i++)
        length += strlen(pieces[i].text);
    while (length > (size_t)columns) {
        int least = 0;
        for (int i = 1; i < count; i++)
            if (pieces[i].text[0] && pieces[i].rank > pieces[least].rank)
                least = i;
        if (pieces[least].rank == NEVER_LEFT_OUT)
            break;
        length -= strlen(pieces[least].text);
        pieces[least] = (struct piece){"", NEVER_LEFT_OUT};
    }
    line[0] = '\0';
    for (int i = 0; i < count && used < size; i++)
        used += (size_t)snprintf(line + used, size - used, "%s", pieces[i].text);
}

static void show_epoch(void *context, const struct cvy_train_epoch *e)
{
    struct piece pieces[PIECES];
    char line[PIECES * sizeof(pieces[0].text)], spent[32];
    int count = 0;
    (void)context;
    add_piece(pieces, &count, NEVER_LEFT_OUT, "epoch %3" PRId64 "/%" PRId64 "  loss %.4f", e->epoch + 1, e->epochs,
              unsigned_nan(e->train_loss));
    for (int i = 0; e->validated && i < e->val.count && i < SHOWN_MEASURES; i++)
        add_measure(pieces, &count, &e->val.list[i], e->classes);
    const double total = cvy_measures_get(&e->val, "total_loss"); /* of a detector, after what COCO measures */
    if (e->validated && !isnan(total))
        add_piece(pieces, &count, 5, "  val loss %.4f", total);
    if (e->averaged)
        add_average(pieces, &count, &e->val_ema);
    add_piece(pieces, &count, 8, "  lr %.5g", e->learning_rate);
    if (e->images_per_second > 0) { /* a resumed run may have begun at the epoch's end */
        add_piece(pieces, &count, 7, "  %.1f images/s", e->images_per_second);
        add_piece(pieces, &count, 9, "  waiting for data %.1f %%", 100.0 * e->data_share);
    }
    add_piece(pieces, &count, 3, "  %s", duration_text(e->seconds, spent, sizeof(spent)));
    if (e->bad_images > 0)
        add_piece(pieces, &count, 2, "  bad images %" PRId64, e->bad_images);
    if (e->best)
        add_piece(pieces, &count, 2, "  best");
    join_pieces(pieces, count, terminal_columns(), line, sizeof(line));
    terminal_note("%s\n", line);
    if (e->ranks[0])
        terminal_note("  %s\n", e->ranks);
}

/* ---- results ---- */

/* Without a second accuracy that counts every answer. */
static void print_accuracies(const char *before, const struct cvy_train_options *options, int64_t classes,
                             const struct cvy_measures *measures)
{
    char topk[24];
    const int64_t k = strtoll(train_option(options, "topk"), NULL, 10);
    snprintf(topk, sizeof(topk), "top%" PRId64, k);
    printf("%stop-1 %.2f %%", before, cvy_measures_get(measures, "top1"));
    if (k < classes)
        printf(", top-%" PRId64 " %.2f %%", k, cvy_measures_get(measures, topk));
    printf(", loss %.4f", unsigned_nan(cvy_measures_get(measures, "loss")));
}

/* COCO's numbers as its program prints them, and the losses. */
static void print_found(const struct cvy_measures *measures)
{
    char line[96];

    for (int i = 0; i < measures->count; i++) {
        const double value = measures->list[i].value;
        if (strstr(measures->list[i].name, "loss"))
            printf("%s %.4f\n", measures->list[i].name, unsigned_nan(value));
        else
            printf("%s\n", cvy_evaluation_line(i, isnan(value) ? -1 : value / 100, line));
    }
}

/* --evaluate */
static void print_evaluation(const struct cvy_train_options *options, const struct cvy_train_result *result)
{
    if (result->detector) {
        print_found(&result->val);
        if (result->averaged) {
            puts("moving average:");
            print_found(&result->val_ema);
        }
        printf("%s\n", cvy_counted(result->val_images, "image"));
        if (result->val_skipped > 0)
            printf("%s %s left out\n", cvy_counted(result->val_skipped, "unreadable image"),
                   result->val_skipped == 1 ? "was" : "were");
        return;
    }
    print_accuracies("", options, result->classes, &result->val);
    printf(": %s\n", cvy_counted(result->val_images, "image"));
    if (result->averaged) {
        print_accuracies("moving average: ", options, result->classes, &result->val_ema);
        putchar('\n');
    }
    if (result->val_skipped > 0)
        printf("%s %s left out\n", cvy_counted(result->val_skipped, "unreadable image"),
               result->val_skipped == 1 ? "was" : "were");
}

static void print_result(const struct cvy_train_result *result)
{
    char spent[32];
    printf("%s, %s in %s", cvy_counted(result->epochs_done, "epoch"), cvy_counted(result->steps_done, "step"),
           duration_text(result->seconds, spent, sizeof(spent)));
    if (result->best_epoch >= 0 && result->best_score >= 0)
        printf(": best %s %.2f %% in epoch %" PRId64, result->detector ? "AP" : "top-1", result->best_score,
               result->best_epoch + 1);
    putchar('\n');
    if (result->bad_images > 0)
        printf("%s %s\n", cvy_counted(result->bad_images, "unreadable image"),
               result->bad_images == 1 ? "was replaced by another" : "were replaced by others");
    if (result->run_directory[0])
        printf("curves, log and checkpoints are in %s\n", result->run_directory);
    if (!result->weights[0])
        return;
    printf(result->detector ? "find objects on an image with:\nconvoy detect "
                            : "classify an image with:\nconvoy classify ");
    print_shell_word(stdout, result->sample_image[0] ? result->sample_image : "picture.jpg");
    printf(" --weights ");
    print_shell_word(stdout, result->weights);
    puts(result->detector ? " --draw found" : "");
}

/* ---- options ---- */

static cvy_status forward_option(void *context, const char *name, const char *value)
{
    bool known = false;
    const cvy_status status = option_aliases_apply(context, name, value, &known);
    if (known)
        return status;
    const cvy_status set = cvy_train_options_set(context, name, value, CVY_FROM_FLAG);
    return set == CVY_OK ? set : terminal_fail_library(set);
}

/* The text of --recipe NAME, of the automatic one else. */
static cvy_status print_recipe(const struct cvy_train_options *options)
{
    const char *name = train_option_has(options, "recipe") ? train_option(options, "recipe") : "auto";
    const char *text = cvy_recipe_text(name);
    if (!text)
        return terminal_fail(CVY_USAGE, "there is no built-in recipe %s to print; convoy info lists them",
                             quoted(name));
    fputs(text, stdout);
    return CVY_OK;
}

/* A run that signals stop, one that came just before it began too. */
static cvy_status train(const struct cvy_train_options *options, const struct cvy_train_events *events,
                        struct cvy_train_result *result)
{
    cvy_training *training;
    cvy_status status = cvy_training_new(options, events, &training);

    if (status != CVY_OK)
        return status;
    running = training;
    if (signals_seen)
        cvy_training_stop(training);
    status = cvy_training_run(training, result);
    running = NULL;
    cvy_training_free(training);
    return status;
}

/* gpus: of --gpus, or NULL. */
static cvy_status run(const struct cvy_train_options *options, const char *gpus)
{
    /* One rank of several speaks for all; what the others say is in their logs, if they have some. */
    int ranks;
    const bool speaks = cvy_train_rank(&ranks) == 0, heard = speaks || ranks_launched();
    const struct cvy_train_events events = {.size = sizeof events,
                                            .begin = show_begin,
                                            .plan = heard ? show_plan : NULL,
                                            .progress = heard ? show_progress : NULL,
                                            .epoch = heard ? show_epoch : NULL};
    static struct cvy_train_result result; /* large: it holds paths */
    nothing_is_saved = train_option_has(options, "no-checkpoints");
    is_silent = !heard;
    catch_signals();
    if (!heard)
        terminal_set_verbosity(QUIET);
    cvy_status status = train(options, &events, &result);
    terminal_clear_progress();
    if ((status == CVY_OK && !speaks) || (status == CVY_STOPPED && !heard)) {
        return status;
    } else if (status == CVY_OK && result.evaluated) {
        print_evaluation(options, &result);
    } else if (status == CVY_OK) {
        print_result(&result);
    } else if (status == CVY_STOPPED && !nothing_is_saved && !train_option_has(options, "evaluate")) {
        char processes[128] = "";
        if (gpus)
            snprintf(processes, sizeof(processes), " --gpus %.100s", gpus);
        else if (ranks_launched())
            snprintf(processes, sizeof(processes), " --processes %d", ranks);
        terminal_fail(status, "stopped by a signal after %s; to continue: convoy train --resume %s%s",
                      cvy_counted(result.steps_done, "step"), quoted(result.run_directory), processes);
    } else {
        terminal_fail_library(status);
    }
    return status;
}

/* ---- --watch ---- */

/* The steps of the whole training; 0: its epochs count, or it is not known. */
static int64_t planned_steps(const struct cvy_train_options *options)
{
    struct cvy_train_plan *plan;
    int64_t steps = 0;

    if (cvy_train_dry_run(options, 1, &plan) != CVY_OK)
        return 0;
    steps = strtoll(train_option(cvy_train_plan_options(plan), "steps"), NULL, 10);
    cvy_train_plan_free(plan);
    return steps;
}

/* Evaluates what is new; *done: its training is at its end. `steps`: where that is, 0 where the checkpoint says it. */
static cvy_status evaluate_new(const struct cvy_train_options *options, struct cvy_checkpoint_found *last,
                               int64_t *steps, bool *done)
{
    static struct cvy_checkpoint_found found; /* large: it holds a path */
    const char *folder = train_option(options, "resume");
    cvy_status status = cvy_checkpoint_latest(folder, &found);

    if (status == CVY_NO_INPUT || (status == CVY_OK && !found.file[0])) /* not yet */
        return CVY_OK;
    if (status != CVY_OK)
        return terminal_fail_library(status);
    if (strcmp(found.file, last->file) == 0 && found.step == last->step)
        return CVY_OK;
    *last = found;
    struct cvy_train_options *now = cvy_train_options_copy(options);
    if (!now)
        return terminal_fail(CVY_NO_MEMORY, "there is no memory for the options of a training");
    if (!strstr(found.file, "/checkpoint.safetensors")) /* a run's folder says more than its checkpoint */
        status = cvy_train_options_set(now, "resume", found.file, CVY_FROM_FLAG);
    if (status == CVY_OK && *steps < 0) {
        terminal_note("evaluating every new checkpoint of %s\n", quoted(folder));
        *steps = planned_steps(now);
    }
    printf("step %" PRId64 "\n", found.step);
    status = status == CVY_OK ? run(now, NULL) : terminal_fail_library(status);
    cvy_train_options_free(now);
    fflush(stdout);
    *done = found.is_final || (*steps > 0 && found.step >= *steps);
    return status;
}

/* Until the training whose checkpoints they are is at its end, or a signal. */
static cvy_status watch_checkpoints(const struct cvy_train_options *options, int seconds)
{
    static struct cvy_checkpoint_found last;
    int64_t steps = -1;
    bool done = false;
    cvy_status status = CVY_OK;

    catch_signals();
    if (!train_option_has(options, "evaluate") || !train_option_has(options, "resume"))
        return terminal_fail(CVY_USAGE, "option --watch is for --evaluate --resume DIR: it waits for the checkpoints "
                                        "of DIR");
    while (status == CVY_OK && !done && !signals_seen) {
        status = evaluate_new(options, &last, &steps, &done);
        for (int i = 0; i < seconds && status == CVY_OK && !done && !signals_seen; i++)
            sleep(1);
    }
    return status == CVY_OK && !done ? terminal_fail(CVY_STOPPED, "stopped by a signal") : status;
}

/* --gpus: what it excludes. */
static cvy_status check_gpus(int processes, const struct cvy_train_options *options)
{
    if (processes > 0)
        return terminal_fail(CVY_USAGE, "options --gpus and --processes exclude each other: a GPU has one process");
    if (cvy_train_options_source(options, "device") == CVY_FROM_FLAG && !train_option_is(options, "device", "cuda"))
        return terminal_fail(CVY_USAGE, "options --gpus and --device %s exclude each other",
                             quoted(train_option(options, "device")));
    return CVY_OK;
}

/* --gpus: which there are, and in a rank that is started the one of this rank. */
static cvy_status take_gpus(const char *list, int processes, struct cvy_train_options *options, struct ranks_gpus *gpus)
{
    char device[32];
    int ranks;
    cvy_status status = ranks_launched() ? CVY_OK : ranks_refuse_other_launchers("gpus");
    if (status == CVY_OK)
        status = check_gpus(processes, options);
    if (status == CVY_OK)
        status = ranks_find_gpus(list, gpus);
    if (status != CVY_OK)
        return status;
    const int rank = ranks_launched() ? cvy_train_rank(&ranks) : 0;
    if (rank < 0 || rank >= gpus->count)
        return terminal_fail(CVY_USAGE, "option --gpus %s has no GPU for rank %d", list, rank);
    snprintf(device, sizeof(device), "cuda:%d", gpus->number[rank]);
    status = cvy_train_options_set(options, "device", device, CVY_FROM_FLAG);
    return status == CVY_OK ? status : terminal_fail_library(status);
}

/* A dry run of so many processes: those of --processes, --gpus N or a list of them, or of the launcher. GPUs are not
 * looked for: "all" of them counts as one. */
static cvy_status dry(const struct cvy_train_options *options, int processes, const char *gpu_list, bool as_json)
{
    static struct ranks_gpus gpus;
    int ranks = processes;
    if (gpu_list) {
        cvy_status status = check_gpus(processes, options);
        if (status == CVY_OK)
            status = ranks_name_gpus(gpu_list, &gpus);
        if (status != CVY_OK)
            return status;
        ranks = gpus.count;
    } else if (processes == 0) {
        (void)cvy_train_rank(&ranks);
    }
    terminal_note("%s", reference_line_note());
    return dry_run(options, ranks > 0 ? ranks : 1, as_json);
}

static cvy_status train_with(struct cvy_train_options *options, int argc, char **argv)
{
    static struct option rows[TRAIN_OPTIONS_MAX + 96];
    static char help[TRAIN_OPTIONS_MAX][256];
    struct arguments arguments;
    static struct ranks_gpus gpus;
    bool recipe_only = false, dry_only = false, as_json = false;
    const char *gpu_list = NULL;
    int processes = 0, watch = 0;

    size_t count = train_options_fill(rows, help, options);
    const struct option own[] = {
        OPT_FLAG("print-recipe", 0, &recipe_only, "print the recipe (--recipe NAME, else the automatic one) and end"),
        OPT_INT("processes", 0, &processes, "N",
                "train with N processes on this machine, each with a share of its cores", 1, RANKS_MAX),
        OPT_TEXT("gpus", 0, &gpu_list, "all|N|LIST",
                 "train with a process for each GPU of this machine, the first N or those of a list (0,2,3), each with "
                 "the cores near to it"),
        OPT_INT("watch", 0, &watch, "S",
                "with --evaluate --resume DIR: evaluate every new checkpoint of DIR, looked for every S seconds, until "
                "its training is at its end",
                1, 86400),
        OPT_FLAG("dry-run", 0, &dry_only, "print every value of the run and where it comes from, and end"),
        OPT_FLAG("json", 0, &as_json, "with --dry-run: as JSON"),
    };
    for (size_t i = 0; i < OPT_COUNT(own); i++) {
        rows[count] = own[i];
        rows[count++].group = train_options_group(own[i].name);
    }
    count += option_aliases_fill(rows + count, sizeof(rows) / sizeof(rows[0]) - count);
    const struct option_table table = {
        .verb = "train",
        .arguments = "DIR",
        .summary =
            "Trains a network on DIR/train/<class>/ and validates it on DIR/val/<class>/ (or on a part of the\n"
            "images, with --val-split). DIR may be a list of path<TAB>label lines (--val-list for validation).\n"
            "Where DIR has boxes around objects (COCO's annotations, or records of them), a detector is trained.\n"
            "Without options the recipe is chosen from the data. An option given here\n"
            "wins over --recipe, which wins over the automatic recipe.",
        .options = rows,
        .count = count,
        .groups = train_options_headings(),
        .max_arguments = 1,
        .forward = forward_option,
        .context = options,
    };
    cvy_status status;
    if (!options_begin(&table, argc, argv, &arguments, &status))
        return status;
    if (recipe_only)
        return print_recipe(options);
    if (as_json && !dry_only)
        return terminal_fail(CVY_USAGE, "option --json is for --dry-run: a run writes JSON into its directory");
    status = reference_line_finish(options, arguments.count > 0, &watch);
    if (status != CVY_OK)
        return status;
    if (arguments.count == 1 && *cvy_train_options_data(options)) {
        return terminal_fail(CVY_USAGE, "the data set is named twice: %s and --data-dir", quoted(arguments.value[0]));
    } else if (arguments.count == 1) {
        status = cvy_train_options_set_data(options, arguments.value[0]);
        if (status != CVY_OK)
            return terminal_fail_library(status);
    } else if (!*cvy_train_options_data(options) && !train_option_has(options, "resume") &&
               !train_option_has(options, "train-list") && !dry_only &&
               !train_option_is(options, "data-backend", "synthetic") && !reference_line.pipeline) {
        return terminal_fail(CVY_USAGE, "train needs the folder of the data set: convoy train DIR");
    }
    if (dry_only)
        return dry(options, processes, gpu_list, as_json);
    if (watch > 0 && (processes > 1 || gpu_list))
        return terminal_fail(CVY_USAGE, "option --watch evaluates in one process: without --processes and --gpus");
    if (watch > 0)
        return watch_checkpoints(options, watch);
    if (gpu_list) {
        status = take_gpus(gpu_list, processes, options, &gpus);
        if (status != CVY_OK)
            return status;
    }
    if (gpus.count > 1 && !ranks_launched())
        return ranks_run(gpus.count, &gpus);
    if (processes > 1 && !ranks_launched())
        return ranks_run(processes, NULL);
    return run(options, gpu_list);
}

cvy_status verb_train(int argc, char **argv)
{
    struct cvy_train_options *options = cvy_train_options_new();

    if (!options)
        return terminal_fail(CVY_NO_MEMORY, "there is no memory for the options of a training");
    const cvy_status status = train_with(options, argc, argv);
    cvy_train_options_free(options);
    return status;
}
