/* Files beside the library. */
#include "base/module_file.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool cvy_module_find(const char *name, char path[PATH_MAX])
{
    static const char *const folders[] = {"", "convoy/"};
    static const char here = 0; /* something of the library's */
    Dl_info library;
    const char *slash;

    if (!dladdr(&here, &library) || !library.dli_fname)
        return false;
    slash = strrchr(library.dli_fname, '/');
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        const int folder = slash ? (int)(slash - library.dli_fname + 1) : 0;
        const int length = snprintf(path, PATH_MAX, "%.*s%s%s", folder, library.dli_fname, folders[i], name);
        if (length > 0 && length < PATH_MAX && access(path, R_OK) == 0)
            return true;
    }
    return false;
}
