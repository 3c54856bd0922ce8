#include "report/drawing/cairo_api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

struct cvy_cairo_api cvy_cairo;

static const char library[] = "libcairo.so.2";
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char reason[256]; /* "": it is loaded */

static void load(void)
{
    void *object = dlopen(library, RTLD_NOW | RTLD_LOCAL); /* stays loaded */

    if (!object) {
        const char *why = dlerror();
        snprintf(reason, sizeof reason, "%s", why ? why : library);
        return;
    }
#define LOAD(name)                                                                                                     \
    do {                                                                                                               \
        void *found = dlsym(object, "cairo_" #name);                                                                   \
        if (!found)                                                                                                    \
            snprintf(reason, sizeof reason, "%s has no cairo_%s", library, #name);                                     \
        memcpy(&cvy_cairo.name, &found, sizeof found);                                                                 \
    } while (0);
    CVY_CAIRO_FUNCTIONS(LOAD)
#undef LOAD
}

cvy_status cvy_cairo_load(void)
{
    pthread_once(&once, load);
    return reason[0] ? cvy_fail(CVY_UNAVAILABLE, "nothing can be drawn without cairo: %s", reason) : CVY_OK;
}
