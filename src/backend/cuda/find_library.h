/* Finds NVIDIA's libraries: Convoy is not linked against them. */
#ifndef CVY_BACKEND_CUDA_FIND_LIBRARY_H
#define CVY_BACKEND_CUDA_FIND_LIBRARY_H

#include <stdbool.h>

#include "convoy/status.h"

struct gpu_library {
    const char *title;        /* "cuDNN 9.8 or newer" */
    const char *variable;     /* environment variable that names the file; if set, nothing else is tried; may be NULL */
    const char *const *files; /* best first, NULL after the last one; a * stands for anything */
    /* Whether a loaded one will do; `found` says which one it is ("9.1.0"). NULL: any. */
    bool (*accept)(void *object, char found[32]);
};
/* Loads it: the file that the environment names, else the first good one beside this module, where the loader looks, in
 * the CUDA toolkit's usual place, or below the prefixes of Pythons: VIRTUAL_ENV, CONDA_PREFIX, that of the python3 on
 * PATH and of what it is a link to, /opt/NAME, /opt/NAME/.venv and the like. CVY_UNAVAILABLE with what was looked for
 * and every folder that was there to look in. It is never unloaded: these libraries do not survive that. */
CVY_CHECKED cvy_status gpu_library_find(const struct gpu_library *library, void **object);
/* Loads `name` from the folder of a loaded one, which has `symbol`; false when it is not there. */
bool gpu_library_beside(void *object, const char *symbol, const char *name);
/* The function `name` of a loaded one, put where `to` points; false when it has none. */
bool gpu_library_function(void *object, const char *name, void *to);

#endif
