/* The whole public API of libconvoy. */
#ifndef CONVOY_CONVOY_H
#define CONVOY_CONVOY_H

#include "convoy/convert.h"
#include "convoy/dataset.h"
#include "convoy/detect.h"
#include "convoy/infer.h"
#include "convoy/info.h"
#include "convoy/pull.h"
#include "convoy/quantize.h"
#include "convoy/report.h"
#include "convoy/status.h"
#include "convoy/train.h"

#endif
