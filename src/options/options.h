/* The option table behind cvy_train_options, and its JSON form inside checkpoints and run directories. */
#ifndef CVY_OPTIONS_OPTIONS_H
#define CVY_OPTIONS_OPTIONS_H

#include "base/json_out.h"
#include "convoy/train.h"
#include "formats/json_in.h"
#include "options/option_kinds.h"
#include "options/train_options.h"

/* For the option with this number. */
enum cvy_option_group cvy_option_group_of(size_t index);

/* The source that set an option last. */
enum cvy_option_source cvy_option_source_of(const struct cvy_train_options *options, const char *name);
/* The first of these options that is given on the command line; NULL: none. `names` ends with NULL. A run that
 * continues has its options from the checkpoint. */
const char *cvy_option_first_given(const struct cvy_train_options *options, const char *const *names);

/* Whether the command line gives everything that the automatic recipe would choose for a training by itself. */
bool cvy_options_are_whole(const struct cvy_train_options *options);
/* Whether --class-weights asks for some. */
bool cvy_has_class_weights(const struct cvy_train_options *options);

/* Write every option of a group as one JSON object: {"arch": "resnet18", "epochs": 10, ...}. */
void cvy_options_write_json(const struct cvy_train_options *options, enum cvy_option_group group,
                            struct cvy_json *json);
/* Copy these options, with their sources; `names` ends with NULL. */
void cvy_options_take(struct cvy_train_options *to, const struct cvy_train_options *from, const char *const *names);
/* All of them as the reference programs log theirs: names with underscores, null for what is not set. */
void cvy_options_write_parameters(const struct cvy_train_options *options, struct cvy_json *json);
/* Set options from such an object, with source CVY_FROM_RESUME. A flag (CVY_FROM_FLAG) that says otherwise stays and is
 * logged. Options of the other group, and those that only a command line may give (workspace, resume, evaluate), are
 * left out with a warning: a file from elsewhere must not say where this run writes. `what` names the file in errors
 * (CVY_BAD_DATA). */
CVY_CHECKED cvy_status cvy_options_read_json(struct cvy_train_options *options, const char *what,
                                             enum cvy_option_group group, const struct cvy_json_value *object);

/* Apply the text of a recipe: lines "name = value" and # comments. `what` names it in errors. Where lines "[name]"
 * begin several recipes, `wanted` names the one that counts, with the lines before the first header; NULL: there is
 * one. */
CVY_CHECKED cvy_status cvy_recipe_apply(struct cvy_train_options *options, const char *what, const char *text,
                                        const char *wanted, enum cvy_option_source source);
/* Apply options->recipe (an embedded recipe's name, or a file); nothing when it is empty. */
CVY_CHECKED cvy_status cvy_recipe_apply_named(struct cvy_train_options *options);

#endif
