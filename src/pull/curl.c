#include "pull/curl.h"

#include <pthread.h>
#include <stdio.h>

#include "base/error.h"
#include "base/library.h"

static struct cvy_curl loaded;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char reason[CVY_LIBRARY_REASON]; /* "": it is loaded */

static void load(void)
{
    static CURLcode (*global_init)(long flags);
    /* The same interface over OpenSSL and GnuTLS. */
    static const char *const libraries[] = {"libcurl.so.4", "libcurl-gnutls.so.4", NULL};
    static const struct cvy_library_function functions[] = {
        {"curl_global_init", &global_init},          {"curl_easy_init", &loaded.init},
        {"curl_easy_setopt", &loaded.setopt},        {"curl_easy_perform", &loaded.perform},
        {"curl_easy_cleanup", &loaded.cleanup},      {"curl_easy_strerror", &loaded.strerror},
        {"curl_slist_append", &loaded.slist_append}, {"curl_slist_free_all", &loaded.slist_free_all},
    };

    cvy_library_load(libraries, functions, sizeof functions / sizeof *functions, reason);
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
