/* What the options of a line of the reference programs mean together (doc/reference-programs.md): some say what program
 * it is, and what is left out is then as that program has it. */
#ifndef TOOLS_REFERENCE_LINE_H
#define TOOLS_REFERENCE_LINE_H

#include <stdbool.h>

#include "convoy/train.h"

/* Filled while the options are read (option_aliases.h); texts point into argv. NULL: not given. */
struct reference_line {
    const char *data_dir, *mode, *num_iter, *run_iter, *iter_unit, *gpu_id, *model_dir, *results_dir,
        *to_predict;                                                              /* TensorFlow's classification */
    const char *model, *platform, *precision;                                     /* launch.py */
    const char *pipeline, *checkpoint_dir, *run_once, *hparams, *benchmark_iters; /* ssd320 */
    bool pytorch, tensorflow, launch, detection;                                  /* whose options it has */
};
extern struct reference_line reference_line;

/* After the last option. `has_data`: a folder is named as an argument. *watch: seconds between looks for new
 * checkpoints, each of which is evaluated; unchanged where none were asked for. */
CVY_CHECKED cvy_status reference_line_finish(struct cvy_train_options *options, bool has_data, int *watch);

/* After that: what goes before the plan, a line of what the programs have for values that the automatic recipe chooses;
 * "": nothing. */
const char *reference_line_note(void);

/* Each finishes the lines of one program. */
CVY_CHECKED cvy_status launch_line_finish(struct cvy_train_options *options);
CVY_CHECKED cvy_status detection_line_finish(struct cvy_train_options *options, int *watch);

/* Whether it is one of launch.py's and classify.py's spellings: AMP, FP16, FP32, TF32. */
bool option_is_launch_precision(const char *value);

/* For them: as a flag, and unless one has said it already; whether one has. */
CVY_CHECKED cvy_status line_set(struct cvy_train_options *options, const char *name, const char *value);
CVY_CHECKED cvy_status line_default(struct cvy_train_options *options, const char *name, const char *value);
bool line_gives(const struct cvy_train_options *options, const char *name);
/* Without the value that it may have, which the source has taken back. */
CVY_CHECKED cvy_status line_reset(struct cvy_train_options *options, const char *name, enum cvy_option_source source);

#endif
