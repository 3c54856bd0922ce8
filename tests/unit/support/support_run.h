/* Whole runs of training on a tiny set of drawn shapes, for tests of them. */
#ifndef CVY_TEST_SUPPORT_RUN_H
#define CVY_TEST_SUPPORT_RUN_H

#include <stdint.h>

#include "convoy/convoy.h"
#include "options/train_options.h"

/* 30 training images in batches of 4: 7 steps an epoch, two images left over. */
enum { RUN_STEPS = 7, RUN_EPOCHS = 2 };
/* Where a run is stopped, if not at one of its progress reports. */
enum { RUN_NEVER = -1, RUN_IN_VALIDATION = -2 };

/* cmocka's setup and teardown of a group: a folder with the images (data), others with a class that weights of the
 * first do not know (other), and the runs. */
int run_set_up(void **state);
int run_tear_down(void **state);
/* "<folder>/<name>" in one of some buffers. */
const char *run_path(const char *name);

/* All of these fail the test with the library's sentence. */
void run_set(struct cvy_train_options *options, const char *name, const char *value);
/* Those of a run of that name; all but "plain" write checkpoints between epochs. */
void run_options(struct cvy_train_options *options, const char *run, const char *threads);
void run_resume_options(struct cvy_train_options *options, const char *run);
void run_whole(const struct cvy_train_options *options, struct cvy_train_result *result);
/* Stops the run at its n-th progress report, or as above. Fails nothing. */
cvy_status run_until(const struct cvy_train_options *options, int64_t stop_at, struct cvy_train_result *result);
/* The two runs wrote the same bytes: into a file, "/steps.csv", or into all that a resumed run must repeat. */
void run_expect_same_file(const char *a, const char *b, const char *file);
void run_expect_same(const char *a, const char *b);

#endif
