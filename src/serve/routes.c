/* What requests ask for, and their answers. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/api.h"
#include "serve/server.h"

/* ---- answers ---- */

static const char *header(const struct cvy_request *request, const char *name)
{
    return cvy_mhd.lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}

struct headers {
    const char *name[3], *value[3];
    int count;
};

static void add_header(struct headers *headers, const char *name, const char *value)
{
    headers->name[headers->count] = name;
    headers->value[headers->count++] = value;
}

/* Sends the text, which it takes over. */
static enum MHD_Result send_text(struct cvy_request *request, unsigned code, struct cvy_text *text,
                                 struct headers *headers, const char *type)
{
    struct MHD_Response *response = NULL;

    if (!text->failed && text->text)
        response = cvy_mhd.create_response_from_buffer_with_free_callback(text->length, text->text, cvy_free);
    if (!response) {
        cvy_text_release(text);
        return MHD_NO; /* the connection is closed */
    }
    cvy_mhd.add_response_header(response, "Content-Type", type);
    for (int i = 0; i < headers->count; i++)
        cvy_mhd.add_response_header(response, headers->name[i], headers->value[i]);
    if (atomic_load(&request->server->ending))
        cvy_mhd.add_response_header(response, "Connection", "close");
    request->response = response;
    request->code = code;
    /* A client that is sending its body does not read yet, unless it waits for leave to send. */
    if (request->coming && !header(request, "Expect")) {
        request->state = CVY_REQUEST_PASSES;
        return MHD_YES;
    }
    return cvy_route_send(request);
}

enum MHD_Result cvy_route_send(struct cvy_request *request)
{
    const double seconds = cvy_clock() - request->began;
    const enum MHD_Result result = cvy_mhd.queue_response(request->connection, request->code, request->response);

    request->state = CVY_REQUEST_ANSWERED;
    cvy_request_metrics_add(&request->server->metrics, request->endpoint, request->code, seconds);
    cvy_log(CVY_LOG_DEBUG, "%u in %.1f ms, %s", request->code, 1000 * seconds,
            cvy_counted(request->job.count, "image"));
    return result;
}

static enum MHD_Result send_json(struct cvy_request *request, unsigned code, struct cvy_text *text)
{
    return send_text(request, code, text, &(struct headers){0}, "application/json");
}

static enum MHD_Result send_error(struct cvy_request *request, unsigned code, const char *sentence)
{
    struct cvy_text text = {0};
    struct headers headers = {0};

    cvy_answers_put_error(&text, sentence);
    if (code == MHD_HTTP_SERVICE_UNAVAILABLE)
        add_header(&headers, "Retry-After", "1");
    return send_text(request, code, &text, &headers, "application/json");
}

/* The HTTP status of a failure. */
static unsigned code_of(cvy_status status)
{
    switch (status) {
    case CVY_OK:
        return MHD_HTTP_OK;
    case CVY_USAGE:
    case CVY_BAD_DATA:
        return MHD_HTTP_BAD_REQUEST;
    case CVY_NO_INPUT:
        return MHD_HTTP_NOT_FOUND;
    case CVY_UNAVAILABLE:
    case CVY_NO_MEMORY:
        return MHD_HTTP_SERVICE_UNAVAILABLE;
    default:
        return MHD_HTTP_INTERNAL_SERVER_ERROR;
    }
}

static enum MHD_Result send_failure(struct cvy_request *request, cvy_status status)
{
    char sentence[CVY_ERROR_SIZE];

    cvy_error_get(sentence, sizeof sentence);
    return send_error(request, code_of(status), sentence);
}

static enum MHD_Result send_wrong_method(struct cvy_request *request, const char *allowed)
{
    struct cvy_text text = {0};
    struct headers headers = {0};

    cvy_answers_put_error(&text, "this address does not take that method");
    add_header(&headers, "Allow", allowed);
    return send_text(request, MHD_HTTP_METHOD_NOT_ALLOWED, &text, &headers, "application/json");
}

/* ---- pages ---- */

static enum MHD_Result send_metrics(struct cvy_request *request)
{
    struct cvy_text text = {0};

    cvy_pages_metrics(request->server, &text);
    return send_text(request, MHD_HTTP_OK, &text, &(struct headers){0}, "text/plain; version=0.0.4");
}

static enum MHD_Result send_health(struct cvy_request *request, const char *key, bool well)
{
    struct cvy_text text = {0};

    cvy_text_printf(&text, "{\"%s\": %s}", key, well ? "true" : "false");
    return send_json(request, well ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE, &text);
}

static enum MHD_Result send_network(struct cvy_request *request, const struct cvy_served *served)
{
    struct cvy_text text = {0};

    cvy_inference_describe(served, &text);
    return send_json(request, MHD_HTTP_OK, &text);
}

/* ---- addresses ---- */

enum { MAX_PARTS = 8 };
struct address {
    char text[512];
    const char *parts[MAX_PARTS]; /* "v2", "models", ... */
    int count;
};

/* False: no address of this server is so long. */
static bool split(const char *url, struct address *address)
{
    char *rest = NULL;

    *address = (struct address){0};
    if (strlen(url) >= sizeof address->text)
        return false;
    memcpy(address->text, url, strlen(url) + 1);
    for (char *part = strtok_r(address->text, "/", &rest); part; part = strtok_r(NULL, "/", &rest)) {
        if (address->count == MAX_PARTS)
            return false;
        address->parts[address->count++] = part;
    }
    return true;
}

static bool is(const struct address *address, int part, const char *text)
{
    return part < address->count && strcmp(address->parts[part], text) == 0;
}

static struct cvy_served *find_network(struct cvy_server *server, const char *name)
{
    for (int i = 0; i < server->count; i++) {
        if (strcmp(server->networks[i].name, name) == 0)
            return &server->networks[i];
    }
    return NULL;
}

static cvy_status fail_unknown(const char *name)
{
    return cvy_fail(CVY_NO_INPUT, "there is no network %s", cvy_quote(name));
}

static const char *argument(const struct cvy_request *request, const char *name)
{
    return cvy_mhd.lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, name);
}

static bool read_size(const char *text, size_t *size)
{
    char *end;

    if (*text < '0' || *text > '9')
        return false;
    *size = strtoull(text, &end, 10);
    return *end == '\0' && *size < SIZE_MAX / 2;
}

/* ---- /classify, /detect ---- */

static enum MHD_Result check_argument(void *context, enum MHD_ValueKind kind, const char *key, const char *value)
{
    static const char *const known[CVY_ENDPOINTS][3] = {{"model", "topk", "logits"}, {"model", "threshold", ""}};
    struct cvy_request *request = context;

    (void)kind;
    (void)value;
    for (int i = 0; i < 3; i++) {
        if (known[request->endpoint][i] && strcmp(known[request->endpoint][i], key) == 0)
            return MHD_YES;
    }
    if (request->refused == CVY_OK) {
        request->refused = cvy_fail(CVY_USAGE, "option %s in the address is not known", cvy_quote(key));
        cvy_error_get(request->refusal, sizeof request->refusal);
    }
    return MHD_NO;
}

/* The network that is named, or the first one of the kind. */
static cvy_status choose_network(struct cvy_request *request)
{
    const bool detects = request->endpoint == CVY_ENDPOINT_DETECT;
    const char *name = argument(request, "model");

    if (name) {
        request->served = find_network(request->server, name);
        if (!request->served)
            return fail_unknown(name);
        return request->served->detects == detects
                   ? CVY_OK
                   : cvy_fail(CVY_USAGE, "network %s %s", cvy_quote(name),
                              detects ? "classifies and does not detect" : "detects and does not classify");
    }
    for (int i = 0; i < request->server->count && !request->served; i++) {
        if (request->server->networks[i].detects == detects)
            request->served = &request->server->networks[i];
    }
    return request->served ? CVY_OK
                           : cvy_fail(CVY_NO_INPUT, "there is no network that %s", detects ? "detects" : "classifies");
}

static cvy_status read_arguments(struct cvy_request *request)
{
    const char *topk = argument(request, "topk"), *logits = argument(request, "logits"),
               *threshold = argument(request, "threshold");
    size_t number = 5;
    char *end;

    cvy_mhd.get_connection_values(request->connection, MHD_GET_ARGUMENT_KIND, check_argument, request);
    if (request->refused != CVY_OK)
        return cvy_fail(request->refused, "%s", request->refusal);
    CVY_TRY(choose_network(request));
    if (topk && (!read_size(topk, &number) || number < 1))
        return cvy_fail(CVY_USAGE, "topk is a number from 1 on, not %s", cvy_quote(topk));
    request->options.topk = number < (size_t)request->served->classes ? (int)number : request->served->classes;
    request->options.with_logits = logits && (strcmp(logits, "1") == 0 || strcasecmp(logits, "true") == 0);
    request->job.threshold = threshold ? cvy_double_parse(threshold, &end) : 0.5;
    if (threshold && (end == threshold || *end || !(request->job.threshold >= 0 && request->job.threshold <= 1)))
        return cvy_fail(CVY_USAGE, "threshold is a number between 0 and 1, not %s", cvy_quote(threshold));
    return CVY_OK;
}

/* ---- the body begins ---- */

static enum MHD_Result begin_body(struct cvy_request *request)
{
    const char *length = header(request, "Content-Length"), *type = header(request, "Content-Type"),
               *encoding = header(request, "Content-Encoding");
    size_t size;

    if (atomic_load(&request->server->ending))
        return send_error(request, MHD_HTTP_SERVICE_UNAVAILABLE, "the server is ending");
    if (encoding && strcasecmp(encoding, "identity") != 0)
        return send_error(request, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, "bodies are taken as they are, not compressed");
    if (request->endpoint != CVY_ENDPOINT_INFER && type && strncasecmp(type, "multipart/", 10) == 0 &&
        !cvy_form_boundary(type, request->boundary))
        return send_error(request, MHD_HTTP_BAD_REQUEST, "the form says no boundary of its parts");
    if (!length || !read_size(length, &size))
        return MHD_YES;
    const cvy_status status = cvy_request_expect(request, size);
    if (request->too_large)
        return send_error(request, MHD_HTTP_CONTENT_TOO_LARGE, cvy_error());
    return status == CVY_OK ? MHD_YES : send_failure(request, status);
}

/* /classify, /detect, /v2/models/NAME/infer */
static enum MHD_Result begin_question(struct cvy_request *request, const char *method, enum cvy_endpoint endpoint,
                                      struct cvy_served *served)
{
    cvy_status status;

    request->endpoint = endpoint;
    request->served = served;
    if (strcmp(method, "POST") != 0)
        return send_wrong_method(request, "POST");
    if (endpoint != CVY_ENDPOINT_INFER) {
        status = read_arguments(request);
        if (status != CVY_OK)
            return send_failure(request, status);
    }
    return begin_body(request);
}

/* /v2/... */
static enum MHD_Result begin_protocol(struct cvy_request *request, const struct address *address, const char *method,
                                      bool get)
{
    const bool ending = atomic_load(&request->server->ending);
    struct cvy_served *served = address->count > 2 ? find_network(request->server, address->parts[2]) : NULL;
    const int last = is(address, 3, "versions") && address->count > 4 ? 5 : 3;
    struct cvy_text text = {0};

    if (is(address, 1, "models") && address->count > 2) {
        if (!served)
            return send_failure(request, fail_unknown(address->parts[2]));
        if (last == 5 && !is(address, 4, "1"))
            return send_failure(request, cvy_fail(CVY_NO_INPUT, "network %s has version 1 alone", served->name));
        if (address->count == last + 1 && is(address, last, "infer"))
            return begin_question(request, method, CVY_ENDPOINT_INFER, served);
    }
    if (!get && address->count <= last + 1)
        return send_wrong_method(request, "GET, HEAD");
    if (address->count == 1) {
        cvy_pages_server(&text);
        return send_json(request, MHD_HTTP_OK, &text);
    }
    if (is(address, 1, "models") && address->count == 2) {
        cvy_pages_networks(request->server, &text);
        return send_json(request, MHD_HTTP_OK, &text);
    }
    if (is(address, 1, "health") && address->count == 3 && is(address, 2, "live"))
        return send_health(request, "live", true);
    if (is(address, 1, "health") && address->count == 3 && is(address, 2, "ready"))
        return send_health(request, "ready", !ending);
    if (served && address->count == last + 1 && is(address, last, "ready"))
        return send_health(request, "ready", !ending);
    if (served && address->count == last)
        return send_network(request, served);
    return send_error(request, MHD_HTTP_NOT_FOUND, "there is nothing at this address");
}

/* ---- where a request ends ---- */

struct framing {
    int lengths, encodings;
    bool chunked;
};

static enum MHD_Result count_framing(void *context, enum MHD_ValueKind kind, const char *key, const char *value)
{
    struct framing *framing = context;

    (void)kind;
    if (strcasecmp(key, "Content-Length") == 0) {
        framing->lengths++;
    } else if (strcasecmp(key, "Transfer-Encoding") == 0) {
        framing->encodings++;
        framing->chunked = value && strcasecmp(value, "chunked") == 0;
    }
    return MHD_YES;
}

bool cvy_route_has_end(struct cvy_request *request)
{
    struct framing framing = {0};

    cvy_mhd.get_connection_values(request->connection, MHD_HEADER_KIND, count_framing, &framing);
    return framing.lengths + framing.encodings <= 1 && (framing.encodings == 0 || framing.chunked);
}

enum MHD_Result cvy_route_refuse_end(struct cvy_request *request)
{
    request->coming = false; /* it is not known what would come */
    return send_error(request, MHD_HTTP_BAD_REQUEST,
                      "where the request ends is said by one Content-Length, or by Transfer-Encoding: chunked");
}

bool cvy_route_has_body(const char *method)
{
    return strcmp(method, "POST") == 0 || strcmp(method, "PUT") == 0 || strcmp(method, "PATCH") == 0;
}

enum MHD_Result cvy_route_begin(struct cvy_request *request, const char *url, const char *method)
{
    const bool get = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    struct cvy_text text = {0};
    struct address address;

    cvy_log(CVY_LOG_DEBUG, "%s %s", cvy_quote(method), cvy_quote(url));
    if (!split(url, &address))
        return send_error(request, MHD_HTTP_NOT_FOUND, "there is nothing at this address");
    if (address.count == 1 && is(&address, 0, "classify"))
        return begin_question(request, method, CVY_ENDPOINT_CLASSIFY, NULL);
    if (address.count == 1 && is(&address, 0, "detect"))
        return begin_question(request, method, CVY_ENDPOINT_DETECT, NULL);
    if (is(&address, 0, "v2"))
        return begin_protocol(request, &address, method, get);
    if (address.count > 1 || (address.count == 1 && !is(&address, 0, "metrics")))
        return send_error(request, MHD_HTTP_NOT_FOUND, "there is nothing at this address");
    if (!get)
        return send_wrong_method(request, "GET, HEAD");
    if (address.count == 1)
        return send_metrics(request);
    cvy_pages_index(request->server, &text);
    return send_json(request, MHD_HTTP_OK, &text);
}

/* ---- the body is there ---- */

static cvy_status read_inference(struct cvy_request *request)
{
    const char *length = header(request, "Inference-Header-Content-Length");
    size_t json = request->size;

    if (length && (!read_size(length, &json) || json > request->size))
        return cvy_fail(CVY_BAD_DATA, "Inference-Header-Content-Length is no number of bytes of the body: %s",
                        cvy_quote(length));
    const void *binary = json < request->size ? request->body + json : NULL;
    CVY_TRY(cvy_inference_read(&request->inference, request->served, (const char *)request->body, json, binary,
                               request->size - json, &request->job));
    if (!binary || request->job.tensor)
        cvy_request_drop_body(request); /* else images lie in it */
    return CVY_OK;
}

/* Called by the network's thread. */
static void job_done(void *owner)
{
    struct cvy_request *request = owner;
    struct cvy_server *server = request->server;

    cvy_mhd.resume_connection(request->connection); /* the request may be gone from here on */
    atomic_fetch_sub(&server->jobs, 1);
}

enum MHD_Result cvy_route_end(struct cvy_request *request)
{
    cvy_status status = CVY_OK;

    if (request->refused != CVY_OK) {
        return send_error(request, request->too_large ? MHD_HTTP_CONTENT_TOO_LARGE : code_of(request->refused),
                          request->refusal);
    }
    status = request->endpoint == CVY_ENDPOINT_INFER ? read_inference(request) : cvy_request_make_images(request);
    if (status == CVY_OK)
        status = cvy_job_prepare(&request->job, request->served);
    if (status != CVY_OK)
        return send_failure(request, status);
    request->job.done = job_done;
    request->job.owner = request;
    request->state = CVY_REQUEST_WAITS;
    atomic_fetch_add(&request->server->jobs, 1);
    cvy_mhd.suspend_connection(request->connection); /* before the job may be done */
    status = cvy_served_put(request->served, &request->job);
    if (status != CVY_OK) {
        for (int i = 0; i < request->job.count; i++) {
            request->job.status[i] = status;
            cvy_error_get(cvy_job_error(&request->job, i), CVY_ERROR_SIZE);
        }
        job_done(request);
    }
    return MHD_YES;
}

/* ---- the job is done ---- */

/* Why the request as a whole has no answer: of /classify and /detect where no image has one, else where any has none.
 */
static const char *refusal(const struct cvy_request *request, cvy_status *status)
{
    const struct cvy_job *job = &request->job;
    int bad = 0, first = 0;

    for (int i = job->count - 1; i >= 0; i--) {
        if (job->status[i] == CVY_OK)
            continue;
        bad++;
        first = i;
    }
    if (bad == 0 || (request->endpoint != CVY_ENDPOINT_INFER && bad < job->count))
        return NULL;
    *status = job->status[first];
    return cvy_job_error(job, first);
}

static enum MHD_Result send_inference(struct cvy_request *request)
{
    struct cvy_text text = {0};
    struct headers headers = {0};
    char number[24];
    size_t json_size;
    const cvy_status status =
        cvy_inference_answer(&request->inference, request->served, &request->job, &text, &json_size);

    if (status != CVY_OK) {
        cvy_text_release(&text);
        return send_failure(request, status);
    }
    if (json_size > 0) {
        snprintf(number, sizeof number, "%zu", json_size);
        add_header(&headers, "Inference-Header-Content-Length", number);
    }
    return send_text(request, MHD_HTTP_OK, &text, &headers,
                     json_size > 0 ? "application/octet-stream" : "application/json");
}

static enum MHD_Result send_answer(struct cvy_request *request)
{
    struct cvy_text text = {0};
    cvy_status status = CVY_OK;
    const char *sentence = refusal(request, &status);

    if (sentence)
        return send_error(request, code_of(status), sentence);
    if (request->endpoint == CVY_ENDPOINT_INFER)
        return send_inference(request);
    cvy_answers_put(&text, request->served, &request->job, &request->options);
    return send_json(request, MHD_HTTP_OK, &text);
}

enum MHD_Result cvy_route_answer(struct cvy_request *request)
{
    const enum MHD_Result result = send_answer(request);

    cvy_request_drop_work(request); /* a client may take its time with the answer */
    return result;
}
