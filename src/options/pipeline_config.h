/* The pipeline configurations of TensorFlow's program for ssd320 (text of protocol buffers) as options. */
#ifndef CVY_OPTIONS_PIPELINE_CONFIG_H
#define CVY_OPTIONS_PIPELINE_CONFIG_H

#include "convoy/train.h"

/* Whether a recipe's file is one, by its name: *.config. */
bool cvy_is_pipeline_config(const char *path);
/* Set what the configuration says, with source CVY_FROM_RECIPE, and options->data where it is empty. `what` names the
 * text in errors. CVY_BAD_DATA: no such text; CVY_USAGE: it asks for something that ssd320 is not, by line and name. */
CVY_CHECKED cvy_status cvy_pipeline_config_apply(struct cvy_train_options *options, const char *what, const char *text,
                                                 size_t size);

#endif
