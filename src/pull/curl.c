#include "pull/curl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

static struct cvy_curl loaded;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char reason[256]; /* "": it is loaded */

static void *find(void *object, const char *name)
{
    void *function = dlsym(object, name);

    if (!function && !reason[0])
        snprintf(reason, sizeof reason, "it has no function %s", name);
    return function;
}

static void load(void)
{
    /* The same interface over OpenSSL and GnuTLS. */
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
    CURLcode (*global_init)(long flags) = NULL;
    void *object = NULL;

    for (size_t i = 0; !object && i < sizeof names / sizeof *names; i++)
        object = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!object) {
        const char *why = dlerror();
        snprintf(reason, sizeof reason, "%s", why ? why : names[0]);
        return;
    }
#define LOAD(member, name)                                                                                             \
    do {                                                                                                               \
        void *function_ = find(object, name);                                                                          \
        memcpy(&(member), &function_, sizeof function_);                                                               \
    } while (0)
    LOAD(global_init, "curl_global_init");
    LOAD(loaded.init, "curl_easy_init");
    LOAD(loaded.setopt, "curl_easy_setopt");
    LOAD(loaded.perform, "curl_easy_perform");
    LOAD(loaded.cleanup, "curl_easy_cleanup");
    LOAD(loaded.strerror, "curl_easy_strerror");
    LOAD(loaded.slist_append, "curl_slist_append");
    LOAD(loaded.slist_free_all, "curl_slist_free_all");
#undef LOAD
    if (!reason[0] && global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        snprintf(reason, sizeof reason, "it does not start");
}

cvy_status cvy_curl_load(const struct cvy_curl **curl)
{
    pthread_once(&once, load);
    if (reason[0])
        return cvy_fail(CVY_UNAVAILABLE, "downloads take libcurl (Debian: apt install libcurl4): %s", reason);
    *curl = &loaded;
    return CVY_OK;
}

/* Options by text came with 7.85; those by bits, in older ones, are marked as deprecated since. */
bool cvy_curl_set_schemes(const struct cvy_curl *curl, CURL *handle, long schemes, long redirected)
{
    enum { PROTOCOLS = 181, REDIR_PROTOCOLS = 182, PROTOCOLS_STR = 10318, REDIR_PROTOCOLS_STR = 10319 };
    static const char *const names[] = {"", "http", "https", "http,https", "file"};
    static const long bits[] = {0, CURLPROTO_HTTP, CURLPROTO_HTTPS, CURLPROTO_HTTP | CURLPROTO_HTTPS, CURLPROTO_FILE};

    return (curl->setopt(handle, (CURLoption)PROTOCOLS_STR, names[schemes]) == CURLE_OK ||
            curl->setopt(handle, (CURLoption)PROTOCOLS, bits[schemes]) == CURLE_OK) &&
           (curl->setopt(handle, (CURLoption)REDIR_PROTOCOLS_STR, names[redirected]) == CURLE_OK ||
            curl->setopt(handle, (CURLoption)REDIR_PROTOCOLS, bits[redirected]) == CURLE_OK);
}
