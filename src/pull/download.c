#include "pull/download.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "pull/curl.h"

enum {
    MAX_REDIRECTS = 5,
    CONNECT_SECONDS = 30,
    STALLED_SECONDS = 60, /* not a byte in this time: the connection is given up */
    TRIES = 5,            /* that bring nothing more, after each other */
    PAUSE_MS = 300,       /* before the second try, twice as long before each further one */
    VALIDATOR_MAX = 256,
    URL_MAX = 1024 /* a part of a longer one is not continued */
};

/* A transfer under way. */
struct transfer {
    struct cvy_download *download;
    const struct cvy_curl *curl;
    int file;           /* the part */
    int64_t have, came; /* bytes of the part; of them in this try */
    int64_t total;      /* of the whole file; 0: not said */
    bool asked_rest;    /* a Range was sent */
    /* What the headers of the last answer said. */
    int code;                 /* 0: of a protocol without them */
    int64_t range_from;       /* Content-Range; -1: none */
    int64_t length;           /* Content-Length; -1: none */
    char etag[VALIDATOR_MAX]; /* strong ones alone */
    char modified[VALIDATOR_MAX];
    bool begun;      /* the first bytes were put in their place */
    bool other_part; /* the server sent what was not asked for */
    cvy_status status;
};

/* The address without a user's name and password, which are shown and written nowhere. False: cut. */
static bool strip_user(const char *url, char *text, size_t size)
{
    const char *host = strstr(url, "://"), *end, *at;

    host = host ? host + 3 : url;
    end = host + strcspn(host, "/?#");
    for (at = end; at > host && at[-1] != '@'; at--)
        ;
    return (size_t)snprintf(text, size, "%.*s%s", (int)(host - url), url, at > host ? at : host) < size;
}

/* Valid until the thread's eighth call of cvy_quote. */
static const char *shown(const char *url)
{
    char text[512];

    (void)strip_user(url, text, sizeof text);
    return cvy_quote(text);
}

/* ---- the note: of which file the part is ---- */

static void note_path(const struct cvy_download *download, char path[4120])
{
    snprintf(path, 4120, "%s.from", download->part);
}

/* Address, ETag, date, a line each. */
static void write_note(const struct transfer *transfer)
{
    char path[4120], url[URL_MAX], text[VALIDATOR_MAX * 2 + URL_MAX + 8];
    const bool fits = strip_user(transfer->download->url, url, sizeof url);
    const int length = snprintf(text, sizeof text, "%s\n%s\n%s\n", url, transfer->etag, transfer->modified);

    note_path(transfer->download, path);
    if (!fits || length < 0 || (size_t)length >= sizeof text || cvy_file_replace(path, text, (size_t)length) != CVY_OK)
        unlink(path); /* then a part is not continued */
}

/* "" where nothing is noted, or another address. */
static void read_note(const struct cvy_download *download, char validator[VALIDATOR_MAX])
{
    char path[4120], url[URL_MAX], *lines[3], *rest;
    void *data;
    size_t size;

    validator[0] = '\0';
    note_path(download, path);
    if (!cvy_path_is_file(path) || cvy_file_read(path, 4096, &data, &size) != CVY_OK)
        return;
    rest = data;
    for (int i = 0; i < 3; i++) {
        lines[i] = rest ? strsep(&rest, "\n") : NULL;
        if (!lines[i])
            lines[i] = "";
    }
    if (strip_user(download->url, url, sizeof url) && strcmp(lines[0], url) == 0 && strlen(lines[1]) < VALIDATOR_MAX &&
        strlen(lines[2]) < VALIDATOR_MAX)
        strcpy(validator, lines[1][0] ? lines[1] : lines[2]);
    cvy_free(data);
}

void cvy_download_finish(const struct cvy_download *download)
{
    char path[4120];

    note_path(download, path);
    unlink(path);
}

void cvy_download_discard(const struct cvy_download *download)
{
    unlink(download->part);
    cvy_download_finish(download);
}

/* ---- what libcurl calls ---- */

/* The value of a header of this name, trimmed; false for another one. */
static bool header_value(const char *line, size_t length, const char *name, char *value, size_t size)
{
    const size_t name_length = strlen(name);

    if (length <= name_length || strncasecmp(line, name, name_length) != 0 || line[name_length] != ':')
        return false;
    line += name_length + 1;
    length -= name_length + 1;
    while (length > 0 && (*line == ' ' || *line == '\t'))
        line++, length--;
    while (length > 0 && strchr(" \t\r\n", line[length - 1]))
        length--;
    if (length >= size)
        length = 0; /* not ours to cut */
    memcpy(value, line, length);
    value[length] = '\0';
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)value[i] < ' ')
            value[0] = '\0';
    return true;
}

static void take_linked_sum(struct cvy_download *download, const char *value)
{
    const size_t quote = value[0] == '"';

    if (strspn(value + quote, "0123456789abcdef") != 64)
        return;
    memcpy(download->sha256, value + quote, 64);
    download->sha256[64] = '\0';
}

static size_t take_header(char *line, size_t one, size_t length, void *context)
{
    struct transfer *transfer = context;
    char value[VALIDATOR_MAX];

    (void)one;
    if (length > 5 && strncmp(line, "HTTP/", 5) == 0) { /* a new answer */
        const char *space = memchr(line, ' ', length);
        transfer->code = space ? atoi(space + 1) : 0;
        transfer->range_from = transfer->length = -1;
        transfer->etag[0] = transfer->modified[0] = '\0';
    } else if (header_value(line, length, "etag", value, sizeof value)) {
        snprintf(transfer->etag, sizeof transfer->etag, "%s", value[0] == '"' ? value : "");
    } else if (header_value(line, length, "last-modified", value, sizeof value)) {
        snprintf(transfer->modified, sizeof transfer->modified, "%s", value);
    } else if (header_value(line, length, "content-length", value, sizeof value)) {
        transfer->length = strtoll(value, NULL, 10);
    } else if (header_value(line, length, "content-range", value, sizeof value)) {
        const char *total = strchr(value, '/');
        if (strncmp(value, "bytes ", 6) == 0)
            transfer->range_from = strtoll(value + 6, NULL, 10);
        transfer->total = total ? strtoll(total + 1, NULL, 10) : 0;
    } else if (header_value(line, length, "x-linked-etag", value, sizeof value)) {
        take_linked_sum(transfer->download, value);
    }
    return length;
}

static cvy_status too_large(const struct transfer *transfer)
{
    return cvy_fail(CVY_BAD_DATA, "%s is larger than the %" PRId64 " bytes that are expected of it",
                    shown(transfer->download->url), transfer->download->max_bytes);
}

/* The first bytes of a file are here: is it the rest of what we have, or all of it? */
static cvy_status begin_body(struct transfer *transfer)
{
    const bool rest = transfer->code == 206;

    transfer->begun = true;
    if (rest && (!transfer->asked_rest || transfer->range_from != transfer->have)) {
        transfer->other_part = true;
        return cvy_fail(CVY_NO_INPUT, "%s: the server answered with another part than the one asked for",
                        shown(transfer->download->url));
    }
    if (!rest) {
        transfer->have = 0;
        transfer->total = transfer->length > 0 ? transfer->length : 0;
        if (ftruncate(transfer->file, 0) != 0 || lseek(transfer->file, 0, SEEK_SET) != 0)
            return cvy_fail_errno(CVY_CANNOT_WRITE, "cannot write %s", cvy_quote(transfer->download->part));
        write_note(transfer);
    }
    return transfer->total > transfer->download->max_bytes ? too_large(transfer) : CVY_OK;
}

static cvy_status take_bytes(struct transfer *transfer, const char *bytes, size_t size)
{
    if (!transfer->begun)
        CVY_TRY(begin_body(transfer));
    if (size > (size_t)(transfer->download->max_bytes - transfer->have))
        return too_large(transfer);
    transfer->have += (int64_t)size;
    transfer->came += (int64_t)size;
    while (size > 0) {
        const ssize_t now = write(transfer->file, bytes, size);
        if (now < 0 && errno == EINTR)
            continue;
        if (now < 0)
            return cvy_fail_errno(CVY_CANNOT_WRITE, "cannot write %s", cvy_quote(transfer->download->part));
        bytes += now;
        size -= (size_t)now;
    }
    return CVY_OK;
}

static size_t take_body(char *bytes, size_t one, size_t size, void *context)
{
    struct transfer *transfer = context;

    (void)one;
    if (transfer->code != 0 && transfer->code != 200 && transfer->code != 206)
        return size; /* a page that says what is wrong */
    transfer->status = take_bytes(transfer, bytes, size);
    return transfer->status == CVY_OK ? size : 0;
}

static int show_progress(void *context, int64_t total, int64_t now, int64_t upload_total, int64_t upload_now)
{
    const struct transfer *transfer = context;
    const struct cvy_download *download = transfer->download;

    (void)total, (void)now, (void)upload_total, (void)upload_now;
    return download->progress && !download->progress(download->context, transfer->have, transfer->total);
}

/* ---- one try ---- */

static bool set_options(struct transfer *transfer, CURL *handle, struct curl_slist *headers)
{
    const struct cvy_curl *curl = transfer->curl;
    const struct cvy_download *download = transfer->download;
    const long schemes = download->https_only ? CVY_CURL_HTTPS : CVY_CURL_HTTPS | CVY_CURL_HTTP;
    char range[32];
    bool set = true;

    set &= curl->setopt(handle, CURLOPT_URL, download->url) == CURLE_OK;
    set &=
        cvy_curl_set_schemes(curl, handle, strncmp(download->url, "file:", 5) == 0 ? CVY_CURL_FILE : schemes, schemes);
    set &= curl->setopt(handle, CURLOPT_FOLLOWLOCATION, 1L) == CURLE_OK;
    set &= curl->setopt(handle, CURLOPT_MAXREDIRS, (long)MAX_REDIRECTS) == CURLE_OK;
    set &= curl->setopt(handle, CURLOPT_NOSIGNAL, 1L) == CURLE_OK;
    set &= curl->setopt(handle, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS) == CURLE_OK;
    set &= curl->setopt(handle, CURLOPT_LOW_SPEED_LIMIT, 1L) == CURLE_OK;
    set &= curl->setopt(handle, CURLOPT_LOW_SPEED_TIME, (long)STALLED_SECONDS) == CURLE_OK;
    set &= curl->setopt(handle, CURLOPT_USERAGENT, "convoy/" CONVOY_VERSION) == CURLE_OK;
    set &= curl->setopt(handle, CURLOPT_HEADERFUNCTION, take_header) == CURLE_OK;
    set &= curl->setopt(handle, CURLOPT_HEADERDATA, (void *)transfer) == CURLE_OK;
    set &= curl->setopt(handle, CURLOPT_WRITEFUNCTION, take_body) == CURLE_OK;
    set &= curl->setopt(handle, CURLOPT_WRITEDATA, (void *)transfer) == CURLE_OK;
    set &= curl->setopt(handle, CURLOPT_XFERINFOFUNCTION, show_progress) == CURLE_OK;
    set &= curl->setopt(handle, CURLOPT_XFERINFODATA, (void *)transfer) == CURLE_OK;
    set &= curl->setopt(handle, CURLOPT_NOPROGRESS, 0L) == CURLE_OK;
    if (headers) {
        snprintf(range, sizeof range, "%" PRId64 "-", transfer->have);
        set &= curl->setopt(handle, CURLOPT_HTTPHEADER, headers) == CURLE_OK;
        set &= curl->setopt(handle, CURLOPT_RANGE, range) == CURLE_OK; /* libcurl copies it */
    }
    return set;
}

/* What a finished call of libcurl means. *again: the server has not, or does not send, what was asked for to continue
 * with. */
static cvy_status judge(struct transfer *transfer, CURLcode result, bool *again)
{
    const char *url = shown(transfer->download->url);

    *again = transfer->other_part && transfer->asked_rest;
    if (transfer->status != CVY_OK)
        return transfer->status;
    if (result == CURLE_ABORTED_BY_CALLBACK)
        return cvy_fail(CVY_STOPPED, "stopped; what came of %s is kept, and the same call continues", url);
    if (transfer->code == 416 && transfer->asked_rest) { /* nothing comes after what we have */
        *again = transfer->total != transfer->have;
        return *again ? cvy_fail(CVY_NO_INPUT, "%s is another file than the one that was begun", url) : CVY_OK;
    }
    if (transfer->code >= 400)
        return cvy_fail(CVY_NO_INPUT, "cannot download %s: the server answers %d%s", url, transfer->code,
                        transfer->code == 404 ? " (there is no such file)" : "");
    if (result != CURLE_OK)
        return cvy_fail(CVY_NO_INPUT, "cannot download %s: %s", url, transfer->curl->strerror(result));
    if (transfer->code >= 300)
        return cvy_fail(CVY_NO_INPUT, "cannot download %s: the server answers %d and no file", url, transfer->code);
    if (!transfer->begun) /* a file of no bytes */
        return begin_body(transfer);
    return CVY_OK;
}

/* `validator` "": everything is asked for. */
static cvy_status try_once(struct transfer *transfer, const char *validator, bool *final, bool *again)
{
    const struct cvy_curl *curl = transfer->curl;
    struct curl_slist *headers = NULL;
    char if_range[VALIDATOR_MAX + 16];
    CURL *handle = curl->init();
    CURLcode result;
    cvy_status status;

    /* Files of this machine have no validators that are checked. */
    transfer->asked_rest = transfer->have > 0 && validator[0] && strncmp(transfer->download->url, "file:", 5) != 0;
    transfer->begun = transfer->other_part = false;
    transfer->code = 0;
    transfer->came = transfer->total = 0;
    transfer->range_from = transfer->length = -1;
    transfer->etag[0] = transfer->modified[0] = '\0';
    transfer->status = CVY_OK;
    if (transfer->asked_rest) {
        snprintf(if_range, sizeof if_range, "If-Range: %s", validator);
        headers = curl->slist_append(NULL, if_range);
    }
    if (!handle || (transfer->asked_rest && !headers) || !set_options(transfer, handle, headers)) {
        status = cvy_fail(CVY_NO_MEMORY, "libcurl cannot prepare a download");
        result = CURLE_OUT_OF_MEMORY;
    } else {
        result = curl->perform(handle);
        status = judge(transfer, result, again);
    }
    /* What another try may mend. */
    *final = !(status == CVY_NO_INPUT &&
               (transfer->code >= 500 || result == CURLE_PARTIAL_FILE || result == CURLE_RECV_ERROR ||
                result == CURLE_SEND_ERROR || result == CURLE_GOT_NOTHING || result == CURLE_OPERATION_TIMEDOUT));
    if (headers)
        curl->slist_free_all(headers);
    if (handle)
        curl->cleanup(handle);
    return status;
}

static void pause_before(int failures)
{
    const int64_t ms = (int64_t)PAUSE_MS << (failures - 1);
    const struct timespec time = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&time, NULL);
}

/* The rest of the part, in as many tries as it takes. */
static cvy_status fetch(struct transfer *transfer)
{
    char validator[VALIDATOR_MAX];
    int64_t furthest = 0; /* without a validator each try begins anew */
    int failures = 0;

    for (;;) {
        bool final = true, again = false;
        cvy_status status;

        read_note(transfer->download, validator);
        status = try_once(transfer, validator, &final, &again);
        transfer->download->bytes += transfer->came;
        if (again) { /* begins anew, once: nothing is asked to be continued then */
            cvy_download_finish(transfer->download);
            continue;
        }
        if (status == CVY_OK && fsync(transfer->file) != 0)
            return cvy_fail_errno(CVY_CANNOT_WRITE, "cannot write %s", cvy_quote(transfer->download->part));
        failures = transfer->have > furthest ? 1 : failures + 1;
        furthest = transfer->have > furthest ? transfer->have : furthest;
        if (status == CVY_OK || final || failures == TRIES)
            return status;
        pause_before(failures);
    }
}

static cvy_status say_what_is_kept(const struct transfer *transfer)
{
    char validator[VALIDATOR_MAX], sentence[2048];

    read_note(transfer->download, validator);
    if (transfer->have == 0 || !validator[0])
        return CVY_NO_INPUT;
    cvy_error_get(sentence, sizeof sentence);
    return cvy_fail(CVY_NO_INPUT, "%s; %" PRId64 " bytes are kept, and the same call continues", sentence,
                    transfer->have);
}

cvy_status cvy_download(struct cvy_download *download)
{
    struct transfer transfer = {.download = download};
    struct stat about;
    cvy_status status;

    download->bytes = 0;
    download->sha256[0] = '\0';
    snprintf(download->part_path, sizeof download->part_path, "%s.part", download->path);
    download->part = download->part_path;
    CVY_TRY(cvy_curl_load(&transfer.curl));
    transfer.file = open(download->part, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (transfer.file < 0)
        return cvy_fail_errno(CVY_CANNOT_CREATE, "cannot create %s", cvy_quote(download->part));
    if (fstat(transfer.file, &about) != 0 || !S_ISREG(about.st_mode) ||
        lseek(transfer.file, 0, SEEK_END) != about.st_size) {
        close(transfer.file);
        return cvy_fail(CVY_CANNOT_CREATE, "%s is no file that can be continued", cvy_quote(download->part));
    }
    transfer.have = about.st_size;
    status = fetch(&transfer);
    if (close(transfer.file) != 0 && status == CVY_OK)
        status = cvy_fail_errno(CVY_CANNOT_WRITE, "cannot write %s", cvy_quote(download->part));
    return status == CVY_NO_INPUT ? say_what_is_kept(&transfer) : status;
}
