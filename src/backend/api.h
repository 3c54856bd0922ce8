/* Devices that compute: backend.h is the one door to each of them, plan.h turns a graph into prepared kernels and
 * laid-out memory. The devices' own folders are private. */
#ifndef CVY_BACKEND_API_H
#define CVY_BACKEND_API_H

#include "backend/autotune.h"
#include "backend/backend.h"
#include "backend/image_decoder.h"
#include "backend/invalid_label.h"
#include "backend/plan.h"
#include "backend/scaler.h"

#endif
