/* Tables between Convoy's names of parameters and the variables of TensorFlow's programs, and the order of values:
 * kernels are (H, W, I, O) there and matrices (I, O). */
#ifndef CVY_MODELS_NAMING_RULES_H
#define CVY_MODELS_NAMING_RULES_H

#include "formats/weights/tensors.h"

/* What a layer's variables are called. */
struct cvy_naming_leaf {
    const char *ours, *theirs;
};
enum { CVY_NAMING_LEAVES = 4, CVY_NAMING_NUMBERS = 3, CVY_NAMING_TEXT = 192 };

/* The name of a layer, with its last separator; each # is a number, which is larger by `more` with them. */
struct cvy_naming_rule {
    const struct cvy_naming_leaf *leaves; /* (CVY_NAMING_LEAVES), fewer where one is NULL */
    const char *ours, *theirs;
    int more[CVY_NAMING_NUMBERS];
};
struct cvy_naming_table {
    const struct cvy_naming_rule *rules;
    size_t count;
};

/* The name of a variable of the model by the first rule that has it: theirs to ours, or back with `write`. False where
 * there is none. */
bool cvy_naming_rename(const struct cvy_naming_table *table, bool write, const char *name, char text[CVY_NAMING_TEXT]);

/* What an optimizer and an average keep of a variable has a prefix here and a suffix there. Cuts the prefix (`write`)
 * or the suffix off a copy of the name in `text`, and returns what takes its place on the other side; "" where the
 * variable is the model's own. */
const char *cvy_naming_cut_copy(bool write, const char *name, char text[CVY_NAMING_TEXT]);

/* A kernel's or matrix's values in the other order: (H,W,I,O) to (O,I,H,W) and (I,O) to (O,I), or back with `write`;
 * its shape alone where it has no data. Its bytes fit its shape. New values live in the arena. */
CVY_CHECKED cvy_status cvy_naming_reorder(struct cvy_arena *arena, bool write, struct cvy_named_tensor *tensor);

/* Adds those of the `count` entries whose keys the file does not have yet. Texts are not copied. */
CVY_CHECKED cvy_status cvy_naming_describe(struct cvy_tensor_file *file, const struct cvy_tensor_meta *entries,
                                           size_t count);

bool cvy_naming_begins(const char *name, const char *front);

#endif
