#include "serve/microhttpd.h"

#include <pthread.h>
#include <stdio.h>

#include "base/error.h"
#include "base/library.h"
#include "serve/library.h"

struct cvy_mhd_api cvy_mhd;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char reason[CVY_LIBRARY_REASON]; /* "": it is loaded */

static void load(void)
{
    static const char *const libraries[] = {"libmicrohttpd-convoy.so.12", "libmicrohttpd.so.12", NULL};
    static const struct cvy_library_function functions[] = {
#define ROW(name) {"MHD_" #name, &cvy_mhd.name},
        CVY_MHD_FUNCTIONS(ROW)
#undef ROW
    };

    cvy_library_load(libraries, functions, sizeof functions / sizeof *functions, reason);
}

cvy_status cvy_mhd_load(void)
{
    pthread_once(&once, load);
    return reason[0] ? cvy_fail(CVY_UNAVAILABLE,
                                "a server takes libmicrohttpd (Debian: apt install libmicrohttpd12): %s", reason)
                     : CVY_OK;
}

const char *cvy_server_text(char buffer[512], bool *available)
{
    *available = cvy_mhd_load() == CVY_OK;
    if (*available)
        snprintf(buffer, 512, "libmicrohttpd %s", cvy_mhd.get_version());
    else
        snprintf(buffer, 512, "%s", cvy_error());
    return buffer;
}
