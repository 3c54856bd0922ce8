/* --resume: the checkpoint, the options saved with it, and what must not change. resume_load.c has what follows once
 * the data and the network are there. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "options/options.h"
#include "run/setup/stages.h"

/* --evaluate of a folder that another program has left its checkpoints in. */
static cvy_status find_other(struct cvy_run *run)
{
    struct cvy_checkpoint_found *found = cvy_calloc(1, sizeof *found);
    cvy_status status;

    if (!found)
        return cvy_fail_memory(sizeof *found, "a path");
    status = cvy_checkpoint_latest(run->resume.folder, found);
    if (status == CVY_OK && found->file[0])
        snprintf(run->resume.file, sizeof run->resume.file, "%s", found->file);
    cvy_free(found);
    return status;
}

/* The checkpoint of a run's folder. In the place of one that is damaged, or that a full disk has kept from being
 * written, the newest one is taken that --gather-checkpoints has kept. */
static cvy_status find_in_folder(struct cvy_run *run)
{
    struct cvy_resume *resume = &run->resume;
    char kept[CVY_PATH_MAX], problem[1024];
    const cvy_status status = cvy_checkpoint_probe(resume->file);

    if (status != CVY_BAD_DATA && status != CVY_NO_INPUT)
        return status;
    cvy_error_get(problem, sizeof problem);
    CVY_TRY(cvy_checkpoint_newest_kept(resume->folder, kept));
    if (kept[0]) {
        resume->replaces = !run->config->options.evaluate && !run->config->options.workspace[0];
        cvy_log(CVY_LOG_WARNING, "%s: %s is taken instead%s", problem, cvy_quote(kept),
                resume->replaces ? ", and checkpoint.safetensors is written again" : "");
        snprintf(resume->file, sizeof resume->file, "%s", kept);
        return CVY_OK;
    }
    return run->config->options.evaluate && !cvy_path_exists(resume->file) ? find_other(run) : CVY_OK;
}

/* options.resume -> folder and file. */
static cvy_status find_paths(struct cvy_run *run)
{
    struct cvy_resume *resume = &run->resume;
    const char *given = run->config->options.resume, *slash;
    int length;

    if (!cvy_tensor_file_exists(given))
        return cvy_fail(CVY_NO_INPUT, "option --resume: %s does not exist", cvy_quote(given));
    if (cvy_path_is_directory(given)) {
        snprintf(resume->folder, sizeof resume->folder, "%s", given);
        length = snprintf(resume->file, sizeof resume->file, "%s/checkpoint.safetensors", given);
        if (length >= CVY_PATH_MAX)
            return cvy_fail(CVY_USAGE, "option --resume: the path is too long");
        return find_in_folder(run);
    }
    slash = strrchr(given, '/');
    snprintf(resume->file, sizeof resume->file, "%s", given);
    if (!slash)
        snprintf(resume->folder, sizeof resume->folder, ".");
    else
        snprintf(resume->folder, sizeof resume->folder, "%.*s", slash == given ? 1 : (int)(slash - given), given);
    return CVY_OK;
}

/* The text of a saved option; its default where the checkpoint is older than the option. */
static void saved_text(const struct cvy_json_value *saved, int index, char *text, size_t size)
{
    struct cvy_train_options defaults;

    cvy_train_options_init(&defaults);
    if (!saved)
        cvy_train_option_text(&defaults, (size_t)index, text, size);
    else if (saved->type == CVY_JSON_STRING)
        snprintf(text, size, "%s", saved->text);
    else if (saved->type == CVY_JSON_BOOL)
        snprintf(text, size, "%s", saved->boolean ? "true" : "false");
    else
        snprintf(text, size, "%lld", (long long)saved->integer);
}

/* A flag that may not change: its value must be the saved one. */
static cvy_status check_fixed(const struct cvy_run *run, const char *name)
{
    const int index = cvy_train_option_find(name);
    const struct cvy_json_value *saved = cvy_json_get(run->resume.info.options, name);
    struct cvy_train_options other = run->config->options;
    char now[CVY_PATH_MAX], then[CVY_PATH_MAX];

    if (index < 0 || run->config->options.source[index] != CVY_FROM_FLAG)
        return CVY_OK;
    if (strcmp(name, "batch-size") == 0 && run->config->options.batch_size == CVY_BATCH_AUTO) /* the saved one, then */
        return CVY_OK;
    saved_text(saved, index, then, sizeof then);
    if (!then[0] && strcmp(name, "squeeze-width") == 0) /* a network without the thing: building it says so */
        return CVY_OK;
    /* Through the table, so that both are written the same way. */
    if (then[0])
        CVY_TRY(cvy_train_options_set(&other, name, then, CVY_FROM_FLAG));
    cvy_train_option_text(&run->config->options, (size_t)index, now, sizeof now);
    if (then[0])
        cvy_train_option_text(&other, (size_t)index, then, sizeof then);
    if (strcmp(now, then) != 0)
        return cvy_fail(CVY_USAGE,
                        "option --%s %s: the checkpoint %s was made with %s, and a resumed run cannot change it", name,
                        now, cvy_quote(run->resume.file), then[0] ? then : "none");
    return CVY_OK;
}

/* What only the start of a training reads. */
static cvy_status check_start(const struct cvy_train_options *options)
{
    static const char *const names[] = {"pretrained-weights", "reset-head"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (cvy_option_source_of(options, names[i]) == CVY_FROM_FLAG)
            return cvy_fail(CVY_USAGE,
                            "option --%s is for a new run; with --resume a run continues with its own weights",
                            names[i]);
    }
    return CVY_OK;
}

/* What --evaluate takes of the options that were saved: the network, its images, and which of them are those of the
 * validation. How long and how fast the run had trained is nothing to it. */
static const char *const evaluated_options[] = {"arch",
                                                "image-size",
                                                "eval-resize",
                                                "num-classes",
                                                "weight-decay", /* a term of a detector's loss */
                                                "padding",
                                                "squeeze-width",
                                                "quantize",
                                                "symmetric",
                                                "per-channel",
                                                "quantize-rule",
                                                "quant-delay",
                                                "backbone-strides",
                                                "coco-slots",
                                                "area-rule",
                                                "data-backend",
                                                "interpolation",
                                                "exif-orientation",
                                                "use-ema",
                                                "val-split",
                                                "val-split-rule",
                                                "seed",
                                                "train-list",
                                                "val-list",
                                                "data-idx-dir",
                                                "val-loss",
                                                "label-smoothing",
                                                "mixup",
                                                "topk",
                                                "precision",
                                                "amp",
                                                "running-statistics",
                                                NULL};

/* The options of a run that is evaluated, read from its options.json (`beside`) or, where that is NULL, from the
 * checkpoint, into options that have nothing else from the command line. */
static cvy_status restore_evaluated(struct cvy_run *run, const char *beside)
{
    struct cvy_train_options *o = &run->resolving->options, *saved = cvy_calloc(1, sizeof *saved);
    cvy_status status;

    if (!saved)
        return cvy_fail_memory(sizeof *saved, "the saved options");
    cvy_train_options_init(saved);
    snprintf(saved->data, sizeof saved->data, "%s", o->data);
    cvy_options_take(saved, o, evaluated_options);
    status = beside ? cvy_run_options_read(beside, false, saved, &run->resume.end)
                    : cvy_options_read_json(saved, run->resume.file, CVY_OPTION_RESULT, run->resume.info.options);
    cvy_options_take(o, saved, evaluated_options);
    snprintf(o->data, sizeof o->data, "%s", saved->data);
    cvy_free(saved);
    return status;
}

/* What no run of ours has saved is read as --pretrained-weights are. */
static void start_from_file(struct cvy_run *run)
{
    struct cvy_train_options *o = &run->resolving->options;

    snprintf(o->pretrained_weights, sizeof o->pretrained_weights, "%s", run->resume.file);
    o->source[cvy_train_option_find("pretrained-weights")] = CVY_FROM_FLAG; /* no recipe says another one */
    o->resume[0] = '\0';
    cvy_resume_close(&run->resume);
    run->resume = (struct cvy_resume){.requested = false};
}

static bool read_number(const struct cvy_tensor_file *file, const char *key, double *number)
{
    const char *text = cvy_tensor_metadata(file, key);
    char *end = NULL;

    if (text)
        *number = cvy_double_parse(text, &end);
    return text && end != text && *end == '\0';
}

/* A checkpoint of PyTorch's program, with its optimizer and the epoch that comes next: run->pretrained has them. What
 * else that program takes from its command line is taken from this one. False: it is none. */
static bool continue_file(struct cvy_run *run)
{
    const struct cvy_tensor_file *file = &run->resume.tensors;
    double epoch = 0, best = 0;
    bool momentum = false;

    for (size_t i = 0; i < file->tensor_count && !momentum; i++)
        momentum = strncmp(file->tensors[i].name, CVY_MOMENTUM_PREFIX, strlen(CVY_MOMENTUM_PREFIX)) == 0;
    if (!momentum || !read_number(file, "pytorch.epoch", &epoch) || !(epoch >= 0 && epoch <= CVY_MAX_EPOCHS))
        return false;
    (void)read_number(file, "pytorch.best_prec1", &best);
    run->pretrained.continues = true;
    run->pretrained.epoch = (int64_t)epoch;
    run->pretrained.best_score = best >= 0 && best <= 100 ? best : 0;
    start_from_file(run);
    return true;
}

/* A file of the reference program that is not there yet: it warns and starts, and its scripts rely on that. */
static bool may_start_without(const char *file)
{
    static const char *const endings[] = {".pth.tar", ".pth", ".pt"};
    const size_t length = strlen(file);

    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        const size_t end = strlen(endings[i]);
        if (length > end && strcmp(file + length - end, endings[i]) == 0)
            return true;
    }
    return false;
}

static cvy_status restore_checkpoint_options(struct cvy_run *run)
{
    static const char *const fixed[] = {"arch",           "seed",
                                        "batch-size",     "optimizer-batch-size",
                                        "last-batch",     "optimizer",
                                        "padding",        "squeeze-width",
                                        "freeze",         "quantize",
                                        "symmetric",      "per-channel",
                                        "quant-delay",    "backbone-strides",
                                        "coco-slots",     "quantize-rule",
                                        "freeze-bn-delay"};
    static const char *const fixed_network[] = {"arch",         "padding",     "squeeze-width",    "quantize",
                                                "symmetric",    "per-channel", "backbone-strides", "coco-slots",
                                                "quantize-rule"};
    const bool evaluate = run->config->options.evaluate;
    const char *const *names = evaluate ? fixed_network : fixed;
    const size_t count = evaluate ? sizeof fixed_network / sizeof fixed_network[0] : sizeof fixed / sizeof fixed[0];
    struct cvy_resume *resume = &run->resume;

    if (resume->info.has_state && !resume->info.resumable && !evaluate)
        return cvy_fail(CVY_BAD_DATA, "%s holds weights only; a training continues from its checkpoint.safetensors",
                        cvy_quote(resume->file));
    if (!resume->info.has_state || !resume->info.options || !resume->info.arch)
        return cvy_fail(CVY_BAD_DATA, "%s is not a checkpoint to resume from: it has no training state",
                        cvy_quote(resume->file));
    for (size_t i = 0; i < count; i++)
        CVY_TRY(check_fixed(run, names[i]));
    if (evaluate)
        CVY_TRY(restore_evaluated(run, NULL));
    else
        CVY_TRY(cvy_options_read_json(&run->resolving->options, resume->file, CVY_OPTION_RESULT, resume->info.options));
    if (strcmp(run->config->options.arch, resume->info.arch) != 0)
        return cvy_fail(CVY_BAD_DATA, "%s: its options say %s, but it holds %s", cvy_quote(resume->file),
                        run->config->options.arch, cvy_quote(resume->info.arch));
    return CVY_OK;
}

/* A folder without a checkpoint that a run may have made before it was killed: none yet, or with nothing in it but a
 * lock and parts of files. */
static bool may_be_new(const char *folder)
{
    bool empty = true;
    DIR *listing = opendir(folder);
    const struct dirent *entry;

    if (!listing)
        return true;
    while (empty && (entry = readdir(listing)) != NULL)
        empty = entry->d_name[0] == '.' || strstr(entry->d_name, ".tmp") != NULL;
    closedir(listing);
    return empty;
}

static bool same_classes(const struct cvy_checkpoint_info *a, const struct cvy_checkpoint_info *b)
{
    if (a->class_count != b->class_count)
        return false;
    for (int32_t i = 0; i < a->class_count; i++) {
        if (strcmp(a->classes[i], b->classes[i]) != 0)
            return false;
    }
    return true;
}

/* The run continues in the folder of its checkpoint and writes checkpoint.safetensors there: one of another network or
 * of other classes is somebody else's. What cannot be read is not protected. */
static cvy_status check_neighbour(const struct cvy_run *run)
{
    const struct cvy_resume *resume = &run->resume;
    struct cvy_tensor_file file = {0};
    struct cvy_checkpoint_info info = {0};
    char path[CVY_PATH_MAX];
    cvy_status status = CVY_OK;

    if (run->config->options.workspace[0] ||
        snprintf(path, sizeof path, "%s/checkpoint.safetensors", resume->folder) >= CVY_PATH_MAX ||
        strcmp(path, resume->file) == 0 || !cvy_path_exists(path))
        return CVY_OK;
    if (cvy_tensor_file_open(&file, path) == CVY_OK && cvy_checkpoint_read(&file, path, &info) == CVY_OK && info.arch &&
        (strcmp(info.arch, resume->info.arch) != 0 || !same_classes(&info, &resume->info)))
        status = cvy_fail(CVY_CANNOT_CREATE,
                          "option --resume: %s holds the checkpoint of another run; --workspace DIR names a new folder",
                          cvy_quote(resume->folder));
    cvy_checkpoint_info_release(&info);
    cvy_tensor_file_close(&file);
    return status;
}

/* ---- threads ---- */

/* The threads of each rank, of a run with several; NULL: it had one. */
static const struct cvy_json_value *list_threads(const struct cvy_run *run)
{
    const struct cvy_json_value *list =
        run->resume.info.plan ? cvy_json_get(run->resume.info.plan, "rank_threads") : NULL;

    return list && list->type == CVY_JSON_ARRAY ? list : NULL;
}

int cvy_resume_ranks(const struct cvy_run *run)
{
    const struct cvy_json_value *list = list_threads(run);

    return list ? (int)list->count : 1;
}

static bool same_world(const struct cvy_run *run)
{
    return run->ranks.comm.world == cvy_resume_ranks(run);
}

int cvy_resume_threads(const struct cvy_run *run)
{
    const struct cvy_json_value *plan = run->resume.info.plan, *list = list_threads(run),
                                *entry = list ? list->first : NULL;
    int64_t saved;

    if (!plan || !same_world(run))
        return 0;
    for (int i = 0; entry && i < run->ranks.comm.rank; i++)
        entry = entry->next;
    saved = !list ? cvy_json_get_int(plan, "threads", 0) : entry && entry->is_integer ? entry->integer : 0;
    return saved >= 1 && saved <= 4096 ? (int)saved : 0;
}

/* Threads that were meant for another number of ranks. */
static void forget_threads(struct cvy_run *run)
{
    struct cvy_train_options *o = &run->resolving->options;

    if (same_world(run))
        return;
    if (cvy_option_source_of(o, "threads") == CVY_FROM_RESUME)
        o->threads = 0;
    if (cvy_option_source_of(o, "workers") == CVY_FROM_RESUME)
        o->workers = -1;
}

/* ---- opening ---- */

/* The file that --resume names is to come: the run begins without it. */
static bool starts_without(struct cvy_run *run)
{
    const struct cvy_train_options *options = &run->config->options;

    if (options->evaluate || cvy_path_exists(options->resume) || !may_start_without(options->resume))
        return false;
    cvy_log(CVY_LOG_WARNING, "no checkpoint is there at %s: starting from the beginning", cvy_quote(options->resume));
    run->resolving->options.resume[0] = '\0';
    run->resume.requested = false;
    return true;
}

/* *is_start: it is no checkpoint of ours to continue from or to evaluate, and what there is to start from it is taken
 * over already. */
static cvy_status open_checkpoint(struct cvy_run *run, bool *is_start)
{
    struct cvy_resume *resume = &run->resume;
    const struct cvy_checkpoint_info *info = &resume->info;
    const bool evaluate = run->config->options.evaluate;

    CVY_TRY(cvy_weights_open(&resume->tensors, resume->file));
    CVY_TRY(cvy_checkpoint_read(&resume->tensors, resume->file, &resume->info));
    *is_start = evaluate ? !info->has_state || !info->options || !info->arch || !info->resumable
                         : !info->has_state && continue_file(run);
    if (evaluate && *is_start && (info->has_state || !continue_file(run))) /* its average counts, too */
        start_from_file(run);
    if (*is_start)
        return CVY_OK;
    CVY_TRY(restore_checkpoint_options(run));
    return check_neighbour(run);
}

/* Those beside the checkpoint; without one the run begins with all of them. */
static cvy_status restore_options(struct cvy_run *run, const char *beside)
{
    struct cvy_resume *resume = &run->resume;

    if (run->config->options.evaluate && resume->found)
        return restore_evaluated(run, beside);
    return cvy_run_options_read(beside, !resume->found, &run->resolving->options, &resume->end);
}

cvy_status cvy_resume_open(struct cvy_run *run)
{
    struct cvy_resume *resume = &run->resume;
    char beside[CVY_PATH_MAX];
    bool has_options, is_start = false;

    resume->requested = run->config->options.resume[0] != '\0';
    if (!resume->requested)
        return CVY_OK;
    CVY_TRY(check_start(&run->config->options));
    if (starts_without(run))
        return CVY_OK;
    CVY_TRY(find_paths(run));
    resume->found = cvy_tensor_file_exists(resume->file);
    has_options =
        snprintf(beside, sizeof beside, "%s/options.json", resume->folder) < CVY_PATH_MAX && cvy_path_exists(beside);
    if (!resume->found && !has_options && (!run->config->options.data[0] || !may_be_new(resume->folder)))
        return cvy_fail(CVY_NO_INPUT, "option --resume: %s holds no checkpoint", cvy_quote(resume->folder));
    if (resume->found)
        CVY_TRY(open_checkpoint(run, &is_start));
    else
        cvy_log(CVY_LOG_WARNING, "%s holds no checkpoint yet: starting from the beginning", cvy_quote(resume->folder));
    if (is_start)
        return CVY_OK;
    resume->data_saved = !run->config->options.data[0];
    if (has_options)
        CVY_TRY(restore_options(run, beside));
    if (resume->found)
        forget_threads(run);
    return CVY_OK;
}

void cvy_resume_close(struct cvy_resume *resume)
{
    cvy_checkpoint_info_release(&resume->info);
    cvy_tensor_file_close(&resume->tensors);
}
