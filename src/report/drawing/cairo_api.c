#include "report/drawing/cairo_api.h"

#include <pthread.h>

#include "base/error.h"
#include "base/library.h"

struct cvy_cairo_api cvy_cairo;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char reason[CVY_LIBRARY_REASON]; /* "": it is loaded */

static void load(void)
{
    static const char *const libraries[] = {"libcairo.so.2", NULL};
    static const struct cvy_library_function functions[] = {
#define ROW(name) {"cairo_" #name, &cvy_cairo.name},
        CVY_CAIRO_FUNCTIONS(ROW)
#undef ROW
    };

    cvy_library_load(libraries, functions, sizeof functions / sizeof *functions, reason);
}

cvy_status cvy_cairo_load(void)
{
    pthread_once(&once, load);
    return reason[0] ? cvy_fail(CVY_UNAVAILABLE, "nothing can be drawn without cairo: %s", reason) : CVY_OK;
}
