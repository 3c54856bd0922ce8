/* Finds the library's modules: shared objects that it loads at run time. */
#ifndef CVY_BASE_MODULE_FILE_H
#define CVY_BASE_MODULE_FILE_H

#include <limits.h>
#include <stdbool.h>

/* The file of that name beside the library (a build folder, a bundle) or in its folder "convoy" (installed). */
bool cvy_module_find(const char *name, char path[PATH_MAX]);

#endif
