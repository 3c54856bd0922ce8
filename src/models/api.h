/* The architectures and the registry that finds them by name, and the names that other programs give their weights. */
#ifndef CVY_MODELS_API_H
#define CVY_MODELS_API_H

#include "models/models.h"
#include "models/naming.h"
#include "models/naming_tensorflow.h"

#endif
