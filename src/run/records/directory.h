/* The run directory: its name, the files in it, and the options of the run kept beside the checkpoint. */
#ifndef CVY_RUN_DIRECTORY_H
#define CVY_RUN_DIRECTORY_H

#include "convoy/train.h"

struct cvy_run_paths {
    char folder[CVY_PATH_MAX];
    char checkpoint[CVY_PATH_MAX], best[CVY_PATH_MAX]; /* weights */
    char options[CVY_PATH_MAX];                        /* options.json */
    char metrics[CVY_PATH_MAX], ranks[CVY_PATH_MAX], plot[CVY_PATH_MAX], report[CVY_PATH_MAX], validation[CVY_PATH_MAX];
    char best_validation[CVY_PATH_MAX]; /* of model_best.safetensors */
    char steps[CVY_PATH_MAX];           /* --log-every-step; "" if none */
};
/* The paths inside a folder. CVY_USAGE when one is too long. */
CVY_CHECKED cvy_status cvy_run_paths_set(struct cvy_run_paths *paths, const char *folder,
                                         const struct cvy_train_options *options);
/* A --workspace that holds a checkpoint and is not `resume_folder` (which may be NULL) is refused: CVY_CANNOT_CREATE.
 */
CVY_CHECKED cvy_status cvy_run_directory_check(const struct cvy_train_options *options, const char *resume_folder);
/* Choose and make the folder: --workspace, which is checked, else `resume_folder`, else a new runs/<arch>-<set>-NNN. */
CVY_CHECKED cvy_status cvy_run_directory_make(struct cvy_run_paths *paths, const struct cvy_train_options *options,
                                              const char *resume_folder);

/* A run directory in use by this process. The lock ends with the process, however that ends. Zero-initialise. */
struct cvy_run_lock {
    int file;
    bool held;
};
/* CVY_CANNOT_CREATE when another process trains in the folder. Where the file system knows no locks there is none. */
CVY_CHECKED cvy_status cvy_run_lock_take(struct cvy_run_lock *lock, const char *folder);
void cvy_run_lock_release(struct cvy_run_lock *lock); /* accepts a zeroed one */

/* Where a run ends before its schedule does: at the begin of an epoch, and after so many steps of the whole training;
 * 0: it does not. */
struct cvy_run_end {
    int64_t epoch, step;
    bool reached; /* the run came to its end, with the last validation and all records: it was neither stopped nor
                   * killed on the way */
};
/* options.json: the data folder and every option, so that a run directory can be resumed by its name alone. Instead of
 * --run-epochs and --run-steps it holds where the run ends: a resumed run, which counts from another epoch, ends there
 * too, unless this one has reached it. */
CVY_CHECKED cvy_status cvy_run_options_write(const char *path, const struct cvy_train_options *options,
                                             const struct cvy_run_end *end);
/* Restore from it: the options of the run, and with `all` also those that a checkpoint stores. */
CVY_CHECKED cvy_status cvy_run_options_read(const char *path, bool all, struct cvy_train_options *options,
                                            struct cvy_run_end *end);
/* The restored options (CVY_FROM_RESUME) that name files to write: what would be written outside `folder`,
 * the run directory, which may not be there yet, goes back to its default with a warning. */
CVY_CHECKED cvy_status cvy_run_options_confine(struct cvy_train_options *options, const char *folder);
/* A run directory that may come from elsewhere: CVY_CANNOT_CREATE where one of the files that a run writes in place is
 * a link that leads out of it. */
CVY_CHECKED cvy_status cvy_run_directory_check_links(const char *folder);

#endif
