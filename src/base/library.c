#include "base/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

void cvy_library_load(const char *const *libraries, const struct cvy_library_function *functions, size_t count,
                      char reason[CVY_LIBRARY_REASON])
{
    const char *name = libraries[0];
    void *object = NULL;

    reason[0] = '\0';
    for (size_t i = 0; !object && libraries[i]; i++) {
        name = libraries[i];
        object = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (!object) {
        const char *why = dlerror();
        snprintf(reason, CVY_LIBRARY_REASON, "%s", why ? why : name);
    }
    for (size_t i = 0; object && i < count; i++) {
        void *found = dlsym(object, functions[i].name);
        if (!found)
            snprintf(reason, CVY_LIBRARY_REASON, "%s has no function %s", name, functions[i].name);
        memcpy(functions[i].to, &found, sizeof found);
    }
}
