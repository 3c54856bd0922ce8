/* The options of a training: their table, recipes that set many of them, and what follows from them. */
#ifndef CVY_OPTIONS_API_H
#define CVY_OPTIONS_API_H

#include "options/class_weights.h"
#include "options/option_table.h"
#include "options/options.h"
#include "options/recipe_auto.h"
#include "options/train_options.h"

#endif
