/* The verbs of the program. Each parses its own arguments (neither program nor verb among them), prints results on
 * stdout and returns the exit code. */
#ifndef TOOLS_VERBS_H
#define TOOLS_VERBS_H

#include "convoy/status.h"

cvy_status verb_train(int argc, char **argv);
cvy_status verb_evaluate(int argc, char **argv);
cvy_status verb_classify(int argc, char **argv);
cvy_status verb_detect(int argc, char **argv);
cvy_status verb_convert(int argc, char **argv);
cvy_status verb_bench(int argc, char **argv);
cvy_status verb_info(int argc, char **argv);
cvy_status verb_check(int argc, char **argv);
cvy_status verb_dataset(int argc, char **argv);
cvy_status verb_report(int argc, char **argv);

#endif
