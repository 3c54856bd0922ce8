/* Run directories. */
#include "run/records/directory.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "options/class_weights.h"
#include "options/options.h"

/* "folder/name", or `name` itself when it is absolute. */
static cvy_status put_path(char path[CVY_PATH_MAX], const char *folder, const char *name)
{
    const int length =
        name[0] == '/' ? snprintf(path, CVY_PATH_MAX, "%s", name) : snprintf(path, CVY_PATH_MAX, "%s/%s", folder, name);

    if (length < 0 || length >= CVY_PATH_MAX)
        return cvy_fail(CVY_USAGE, "the path of %s in the run directory %s is too long", cvy_quote(name),
                        cvy_quote(folder));
    return CVY_OK;
}

cvy_status cvy_run_paths_set(struct cvy_run_paths *paths, const char *folder, const struct cvy_train_options *options)
{
    memset(paths, 0, sizeof *paths);
    snprintf(paths->folder, sizeof paths->folder, "%s", folder);
    CVY_TRY(put_path(paths->checkpoint, folder, "checkpoint.safetensors"));
    CVY_TRY(put_path(paths->best, folder, "model_best.safetensors"));
    CVY_TRY(put_path(paths->options, folder, "options.json"));
    CVY_TRY(put_path(paths->metrics, folder, "metrics.csv"));
    CVY_TRY(put_path(paths->ranks, folder, "ranks.csv"));
    CVY_TRY(put_path(paths->plot, folder, "plot.svg"));
    CVY_TRY(put_path(paths->validation, folder, "validation.json"));
    CVY_TRY(put_path(paths->best_validation, folder, "validation_best.json"));
    CVY_TRY(put_path(paths->report, folder, options->raport_file));
    snprintf(paths->steps, sizeof paths->steps, "%s", options->log_every_step);
    return CVY_OK;
}

/* The last part of the data folder's path, with everything but letters, digits, '.', '_' and '-' replaced. */
static void set_name(const char *data, char name[64])
{
    char whole[PATH_MAX];
    const char *last;
    size_t length = 0;

    if (!realpath(data, whole))
        snprintf(whole, sizeof whole, "%s", data);
    last = strrchr(whole, '/');
    last = last ? last + 1 : whole;
    for (; *last && length < 40; last++)
        name[length++] = isalnum((unsigned char)*last) || strchr("._-", *last) ? *last : '_';
    name[length] = '\0';
    if (length == 0)
        snprintf(name, 64, "data");
}

static cvy_status make_new(const struct cvy_train_options *options, char folder[CVY_PATH_MAX])
{
    char name[64];

    set_name(options->data[0] ? options->data : options->data_backend, name);
    CVY_TRY(cvy_make_directories("runs"));
    for (int number = 1; number < 100000; number++) {
        snprintf(folder, CVY_PATH_MAX, "runs/%s-%s-%03d", options->arch, name, number);
        if (mkdir(folder, 0777) == 0)
            return CVY_OK;
        if (errno != EEXIST)
            return cvy_fail_errno(CVY_CANNOT_CREATE, "cannot create the run directory %s", cvy_quote(folder));
    }
    return cvy_fail(CVY_CANNOT_CREATE, "there are too many run directories in \"runs\"");
}

static bool same_folder(const char *a, const char *b)
{
    struct stat x, y;

    return a && b && stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

cvy_status cvy_run_directory_check(const struct cvy_train_options *options, const char *resume_folder)
{
    struct cvy_run_paths paths;

    if (!options->workspace[0])
        return CVY_OK;
    CVY_TRY(cvy_run_paths_set(&paths, options->workspace, options));
    if (!cvy_path_exists(paths.checkpoint) || same_folder(options->workspace, resume_folder))
        return CVY_OK;
    return cvy_fail(CVY_CANNOT_CREATE,
                    "the run directory %s holds a checkpoint already; use --resume %s or another --workspace",
                    cvy_quote(options->workspace), options->workspace);
}

cvy_status cvy_run_directory_make(struct cvy_run_paths *paths, const struct cvy_train_options *options,
                                  const char *resume_folder)
{
    char folder[CVY_PATH_MAX];

    if (!options->workspace[0] && !resume_folder) {
        CVY_TRY(make_new(options, folder));
        return cvy_run_paths_set(paths, folder, options);
    }
    snprintf(folder, sizeof folder, "%s", options->workspace[0] ? options->workspace : resume_folder);
    CVY_TRY(cvy_run_paths_set(paths, folder, options));
    CVY_TRY(cvy_run_directory_check(options, resume_folder)); /* again: something may have happened meanwhile */
    return cvy_make_directories(folder);
}

/* ---- staying inside ---- */

/* Where a path leads, links followed: of a file that is not there yet, where its folder does. False: nowhere yet. */
static bool resolve(const char *path, char whole[PATH_MAX])
{
    char folder[CVY_PATH_MAX];
    const char *slash = strrchr(path, '/');
    struct stat info;

    if (lstat(path, &info) == 0)
        return realpath(path, whole) != NULL;
    if (!slash)
        return realpath(".", whole) != NULL;
    snprintf(folder, sizeof folder, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    return realpath(folder, whole) != NULL;
}

static bool lies_inside(const char *folder, const char *path)
{
    char whole[PATH_MAX], root[PATH_MAX];
    size_t length;

    if (!realpath(folder, root) || !resolve(path, whole))
        return false;
    length = strlen(root);
    return length == 1 || (strncmp(whole, root, length) == 0 && (whole[length] == '/' || whole[length] == '\0'));
}

/* "a/../b": a way up, whether or not the folders are there. */
static bool has_way_up(const char *path)
{
    for (const char *part = path; part; part = strchr(part, '/')) {
        part += *part == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0'))
            return true;
    }
    return false;
}

/* Back to the default: a file from elsewhere does not say what is written outside the run directory. */
static void drop_path(struct cvy_train_options *options, const char *folder, const char *name)
{
    struct cvy_train_options *defaults = cvy_calloc(1, sizeof *defaults);
    const char *const names[] = {name, NULL};
    char text[CVY_PATH_MAX];

    cvy_train_option_text(options, (size_t)cvy_train_option_find(name), text, sizeof text);
    cvy_log(CVY_LOG_WARNING,
            "the saved --%s %s leads out of the run directory %s and is not used; give the option again where it "
            "is meant",
            name, cvy_quote(text), cvy_quote(folder));
    if (defaults) {
        cvy_train_options_init(defaults);
        cvy_options_take(options, defaults, names);
        cvy_free(defaults);
    }
}

cvy_status cvy_run_options_confine(struct cvy_train_options *options, const char *folder)
{
    char path[CVY_PATH_MAX];

    if (cvy_option_source_of(options, "raport-file") == CVY_FROM_RESUME) {
        CVY_TRY(put_path(path, folder, options->raport_file));
        if (options->raport_file[0] == '/' || has_way_up(options->raport_file) ||
            (cvy_path_exists(folder) && !lies_inside(folder, path)))
            drop_path(options, folder, "raport-file");
    }
    if (cvy_option_source_of(options, "log-every-step") == CVY_FROM_RESUME &&
        !lies_inside(folder, options->log_every_step))
        drop_path(options, folder, "log-every-step");
    return CVY_OK;
}

/* Files that a run opens and writes under their own names. Others appear by a rename, which replaces a link. */
static bool is_written_in_place(const char *name)
{
    static const char *const starts[] = {"metrics.csv", "ranks.csv", "rank-", "events.out.", ".lock"};

    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        if (strncmp(name, starts[i], strlen(starts[i])) == 0)
            return true;
    }
    return false;
}

cvy_status cvy_run_directory_check_links(const char *folder)
{
    DIR *listing = opendir(folder);
    const struct dirent *entry;
    char path[CVY_PATH_MAX];
    cvy_status status = CVY_OK;

    while (listing && status == CVY_OK && (entry = readdir(listing)) != NULL) {
        if (!is_written_in_place(entry->d_name))
            continue;
        status = put_path(path, folder, entry->d_name);
        if (status == CVY_OK && !lies_inside(folder, path))
            status = cvy_fail(CVY_CANNOT_CREATE, "%s is a link that leads out of the run directory", cvy_quote(path));
    }
    if (listing)
        closedir(listing);
    return status;
}

/* ---- the lock ---- */

cvy_status cvy_run_lock_take(struct cvy_run_lock *lock, const char *folder)
{
    char path[CVY_PATH_MAX];

    CVY_TRY(put_path(path, folder, ".lock"));
    lock->file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (lock->file < 0)
        return cvy_fail_errno(CVY_CANNOT_CREATE, "cannot create %s", cvy_quote(path));
    lock->held = true;
    if (flock(lock->file, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return CVY_OK;
    cvy_run_lock_release(lock);
    return cvy_fail(CVY_CANNOT_CREATE, "another process trains in %s", cvy_quote(folder));
}

void cvy_run_lock_release(struct cvy_run_lock *lock)
{
    if (lock->held) {
        (void)flock(lock->file, LOCK_UN); /* for a child that was forked meanwhile and has the file, too */
        close(lock->file);
    }
    *lock = (struct cvy_run_lock){0};
}

/* ---- options.json ---- */

enum { ABSOLUTE_PATH_MAX = PATH_MAX + CVY_PATH_MAX + 2 };
static const int64_t MAX_END = 1000000000000; /* epochs or steps: what --run-steps takes */

/* Relative paths are kept as absolute ones: the run may be resumed from elsewhere. */
static void make_absolute(const char *path, char whole[ABSOLUTE_PATH_MAX])
{
    char here[PATH_MAX];

    if (path[0] == '/' || !getcwd(here, sizeof here))
        snprintf(whole, ABSOLUTE_PATH_MAX, "%s", path);
    else
        snprintf(whole, ABSOLUTE_PATH_MAX, "%s/%s", here, path);
}

static void put_absolute(struct cvy_json *json, const char *key, const char *path)
{
    char whole[ABSOLUTE_PATH_MAX];

    if (!path[0])
        return;
    make_absolute(path, whole);
    cvy_json_key(json, key);
    cvy_json_string(json, whole);
}

/* The option --class-weights as it is saved. */
static cvy_status keep_class_weights(struct cvy_train_options *saved)
{
    char whole[ABSOLUTE_PATH_MAX];

    if (!cvy_has_class_weights(saved) || !cvy_class_weights_is_file(saved->class_weights))
        return CVY_OK;
    make_absolute(saved->class_weights, whole);
    if (strlen(whole) >= sizeof saved->class_weights)
        return cvy_fail(CVY_USAGE, "option --class-weights: the path of %s is too long",
                        cvy_quote(saved->class_weights));
    memcpy(saved->class_weights, whole, strlen(whole) + 1);
    return CVY_OK;
}

cvy_status cvy_run_options_write(const char *path, const struct cvy_train_options *options,
                                 const struct cvy_run_end *end)
{
    struct cvy_text text = {0};
    struct cvy_json json = {.text = &text};
    struct cvy_train_options saved = *options;
    cvy_status status;

    saved.workspace[0] = saved.log_every_step[0] = saved.pretrained_weights[0] = '\0';
    saved.train_list[0] = saved.val_list[0] = saved.data_idx_dir[0] = '\0'; /* data says the first */
    saved.run_epochs = saved.run_steps = -1;
    CVY_TRY(keep_class_weights(&saved));
    cvy_json_begin_object(&json);
    put_absolute(&json, "data", options->data);
    put_absolute(&json, "val_list", options->val_list);
    put_absolute(&json, "data_idx_dir", options->data_idx_dir);
    put_absolute(&json, "log_every_step", options->log_every_step);
    put_absolute(&json, "pretrained_weights", options->pretrained_weights);
    cvy_json_key(&json, "end_epoch");
    cvy_json_int(&json, end->epoch);
    cvy_json_key(&json, "end_step");
    cvy_json_int(&json, end->step);
    cvy_json_put_bool(&json, "end_reached", end->reached);
    cvy_json_key(&json, "run");
    cvy_options_write_json(&saved, CVY_OPTION_RUN, &json);
    cvy_json_key(&json, "result");
    cvy_options_write_json(&saved, CVY_OPTION_RESULT, &json);
    cvy_json_end_object(&json);
    cvy_text_puts(&text, "\n");
    status = text.failed ? cvy_fail_memory(text.capacity, "the options of the run")
                         : cvy_file_replace(path, text.text, text.length);
    cvy_text_release(&text);
    return status;
}

static cvy_status restore(const char *path, const struct cvy_json_value *root, bool all,
                          struct cvy_train_options *options, struct cvy_run_end *end)
{
    const struct cvy_json_value *run = cvy_json_get(root, "run"), *result = cvy_json_get(root, "result");
    const char *data = cvy_json_get_string(root, "data", ""), *steps = cvy_json_get_string(root, "log_every_step", "");
    const char *weights = cvy_json_get_string(root, "pretrained_weights", "");
    const char *val_list = cvy_json_get_string(root, "val_list", "");
    const char *data_idx_dir = cvy_json_get_string(root, "data_idx_dir", "");

    if (root->type != CVY_JSON_OBJECT || !run || !result)
        return cvy_fail(CVY_BAD_DATA, "%s does not hold the options of a run", cvy_quote(path));
    end->epoch = cvy_json_get_int(root, "end_epoch", 0);
    end->step = cvy_json_get_int(root, "end_step", 0);
    end->reached = cvy_json_get_bool(root, "end_reached", true); /* older files do not say: after the last step */
    if (end->epoch < 0 || end->epoch > MAX_END || end->step < 0 || end->step > MAX_END)
        return cvy_fail(CVY_BAD_DATA, "%s has an impossible end of the run", cvy_quote(path));
    if (!options->data[0])
        snprintf(options->data, sizeof options->data, "%s", data);
    CVY_TRY(cvy_options_read_json(options, path, CVY_OPTION_RUN, run));
    if (steps[0])
        CVY_TRY(cvy_train_options_set(options, "log-every-step", steps, CVY_FROM_RESUME));
    if (val_list[0])
        CVY_TRY(cvy_train_options_set(options, "val-list", val_list, CVY_FROM_RESUME));
    if (data_idx_dir[0])
        CVY_TRY(cvy_train_options_set(options, "data-idx-dir", data_idx_dir, CVY_FROM_RESUME));
    if (weights[0])
        CVY_TRY(cvy_train_options_set(options, "pretrained-weights", weights, CVY_FROM_RESUME));
    return all ? cvy_options_read_json(options, path, CVY_OPTION_RESULT, result) : CVY_OK;
}

cvy_status cvy_run_options_read(const char *path, bool all, struct cvy_train_options *options, struct cvy_run_end *end)
{
    struct cvy_arena arena = {0};
    struct cvy_json_value *root;
    void *data = NULL;
    size_t size;
    cvy_status status;

    CVY_TRY(cvy_file_read(path, 1 << 20, &data, &size));
    status = cvy_json_parse(path, data, size, &arena, &root);
    if (status == CVY_OK)
        status = restore(path, root, all, options, end);
    cvy_arena_release(&arena);
    cvy_free(data);
    return status;
}
