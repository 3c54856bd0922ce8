/* The emulated GPU loads only those of NVIDIA's libraries that a test names: the real ones need a real GPU. */
#include "backend/cuda/find_library.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

cvy_status gpu_library_find(const struct gpu_library *library, void **object)
{
    const char *named = getenv(library->variable);
    char found[32] = "";

    *object = named && named[0] ? dlopen(named, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!*object)
        return cvy_fail(CVY_UNAVAILABLE, "%s is not there for an emulated GPU: %s", library->title,
                        named && named[0] ? dlerror() : "nothing names it");
    if (!library->accept(*object, found))
        return cvy_fail(CVY_UNAVAILABLE, "%s names %s %s", library->variable, library->title, found);
    return CVY_OK;
}

bool gpu_library_function(void *object, const char *name, void *to)
{
    void *symbol = dlsym(object, name);

    memcpy(to, &symbol, sizeof symbol);
    return symbol != NULL;
}
