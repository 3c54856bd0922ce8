#include "verbs.h"

static const struct verb verbs[] = {
    {"train", verb_train, "train a network on a folder of images", NULL},
    {"evaluate", verb_evaluate, "measure the accuracy of weights on the validation images", NULL},
    {"classify", verb_classify, "say what is on images", NULL},
    {"detect", verb_detect, "find objects on images and draw boxes around them", NULL},
    {"serve", verb_serve, "answer over HTTP what is on images", NULL},
    {"convert", verb_convert, "write weights in another format, or under other names", NULL},
    {"pull", verb_pull, "get published weights to start from", NULL},
    {"quantize", verb_quantize, "make weights a network of 8-bit integers, without training", NULL},
    {"bench", verb_bench, "measure the speed of training, inference or data loading", "train|infer|data"},
    {"info", verb_info, "show this build and machine, a network, or a weights file", NULL},
    {"check", verb_check, "look for problems in a data set before training", NULL},
    {"dataset", verb_dataset, "write a data set", "shapes|tfrecord|index|pack"},
    {"report", verb_report, "write a page about a training run", NULL},
    {"completion", verb_completion, "print a script with which a shell completes commands", NULL},
    {"man", verb_man, "print a manual page, of a verb or of all", NULL},
};

const struct verb *verb_at(size_t index)
{
    return index < sizeof(verbs) / sizeof(verbs[0]) ? &verbs[index] : NULL;
}
