/* The few functions of libcurl that a download takes, of the library that is found at run time. */
#ifndef CVY_PULL_CURL_H
#define CVY_PULL_CURL_H

#include <stdbool.h>

#include <curl/curl.h>

#include "convoy/status.h"

struct cvy_curl {
    CURL *(*init)(void);
    CURLcode (*setopt)(CURL *handle, CURLoption option, ...);
    CURLcode (*perform)(CURL *handle);
    void (*cleanup)(CURL *handle);
    const char *(*strerror)(CURLcode code);
    struct curl_slist *(*slist_append)(struct curl_slist *list, const char *text);
    void (*slist_free_all)(struct curl_slist *list);
};

/* Loads libcurl the first time; it stays loaded. CVY_UNAVAILABLE: it is not on this system. */
CVY_CHECKED cvy_status cvy_curl_load(const struct cvy_curl **curl);

enum { CVY_CURL_HTTP = 1, CVY_CURL_HTTPS = 2, CVY_CURL_FILE = 4 };
/* Which schemes an address, and one that it is redirected to, may have. */
bool cvy_curl_set_schemes(const struct cvy_curl *curl, CURL *handle, long schemes, long redirected);

#endif
