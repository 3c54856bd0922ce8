/* What the table of options and those who read it both speak of. */
#ifndef CVY_OPTIONS_OPTION_KINDS_H
#define CVY_OPTIONS_OPTION_KINDS_H

#include "convoy/train.h"

/* What an option decides, and so where its value is kept. */
enum cvy_option_group {
    CVY_OPTION_RESULT, /* the numbers that training computes: stored in checkpoints */
    CVY_OPTION_RUN     /* where and how this run works (paths, threads of the loader): stored beside the checkpoint */
};

/* The limit of --epochs, and so of what is stored. */
enum { CVY_MAX_EPOCHS = 1000000 };

#endif
