/* The verbs of the program. Each parses its own arguments (neither program nor verb among them), prints results on
 * stdout and returns the exit code. */
#ifndef TOOLS_VERBS_H
#define TOOLS_VERBS_H

#include "convoy/status.h"

cvy_status verb_train(int argc, char **argv);
cvy_status verb_evaluate(int argc, char **argv);
cvy_status verb_classify(int argc, char **argv);
cvy_status verb_detect(int argc, char **argv);
cvy_status verb_serve(int argc, char **argv);
cvy_status verb_convert(int argc, char **argv);
cvy_status verb_quantize(int argc, char **argv);
cvy_status verb_pull(int argc, char **argv);
cvy_status verb_bench(int argc, char **argv);
cvy_status verb_info(int argc, char **argv);
cvy_status verb_check(int argc, char **argv);
cvy_status verb_dataset(int argc, char **argv);
cvy_status verb_report(int argc, char **argv);
cvy_status verb_completion(int argc, char **argv);
cvy_status verb_man(int argc, char **argv);

struct verb {
    const char *name;
    cvy_status (*run)(int argc, char **argv);
    const char *summary;
    const char *kinds; /* words one of which follows the verb, "train|infer|data"; NULL: none */
};
/* In the order of --help; NULL past the end. */
const struct verb *verb_at(size_t index);

#endif
