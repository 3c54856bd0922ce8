/* Evaluating a network on a data set: measures of classification, COCO's measures of detection. */
#ifndef CVY_EVAL_API_H
#define CVY_EVAL_API_H

#include "eval/coco_match.h"
#include "eval/evaluate.h"

#endif
