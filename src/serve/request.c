#include "serve/request.h"

#include <string.h>

#include "base/api.h"

enum {
    FIRST_CAPACITY = 64 << 10,
    PASSED_OVER = 4 /* times the largest body, before the connection is closed */
};

struct cvy_request *cvy_request_new(struct cvy_server *server, struct MHD_Connection *connection,
                                    struct cvy_body_budget *budget)
{
    struct cvy_request *request = cvy_calloc(1, sizeof *request);

    if (!request)
        return NULL;
    request->server = server;
    request->connection = connection;
    request->budget = budget;
    request->endpoint = CVY_ENDPOINT_OTHER;
    request->began = cvy_clock();
    return request;
}

void cvy_request_drop_body(struct cvy_request *request)
{
    cvy_free(request->body);
    request->body = NULL;
    request->size = 0;
}

void cvy_request_drop_work(struct cvy_request *request)
{
    cvy_form_release(&request->form);
    cvy_free(request->images);
    request->images = NULL;
    cvy_inference_release(&request->inference);
    cvy_job_release(&request->job);
    cvy_request_drop_body(request);
    atomic_fetch_sub(&request->budget->used, request->capacity);
    request->capacity = 0;
}

void cvy_request_free(struct cvy_request *request)
{
    if (!request)
        return;
    cvy_request_drop_work(request);
    if (request->response)
        cvy_mhd.destroy_response(request->response);
    cvy_free(request);
}

static cvy_status fail_busy(void)
{
    return cvy_fail(CVY_UNAVAILABLE, "too many requests at once: try again later");
}

cvy_status cvy_request_expect(struct cvy_request *request, size_t size)
{
    const struct cvy_body_budget *budget = request->budget;

    request->too_large = size > budget->one;
    if (request->too_large)
        return cvy_fail(CVY_USAGE, "a body has at most %zu bytes here", budget->one);
    request->expected = size;
    return atomic_load(&budget->used) + size <= budget->all ? CVY_OK : fail_busy();
}

static cvy_status reserve(struct cvy_request *request, size_t size)
{
    struct cvy_body_budget *budget = request->budget;
    const size_t more = size - request->capacity;
    uint8_t *body;

    if (atomic_fetch_add(&budget->used, more) + more > budget->all) {
        atomic_fetch_sub(&budget->used, more);
        return fail_busy();
    }
    body = cvy_realloc(request->body, size, 1);
    if (!body) {
        atomic_fetch_sub(&budget->used, more);
        return cvy_fail_memory(size, "a request");
    }
    request->body = body;
    request->capacity = size;
    return CVY_OK;
}

static cvy_status append(struct cvy_request *request, const char *bytes, size_t size)
{
    const size_t least = request->size + size;
    size_t capacity = 2 * request->capacity + FIRST_CAPACITY;

    if (least > request->budget->one)
        return cvy_request_expect(request, least); /* which refuses it */
    if (least > request->capacity) {
        if (capacity > request->budget->one)
            capacity = request->budget->one;
        if (least <= request->expected && capacity > request->expected)
            capacity = request->expected;
        CVY_TRY(reserve(request, capacity > least ? capacity : least));
    }
    memcpy(request->body + request->size, bytes, size);
    request->size += size;
    return CVY_OK;
}

bool cvy_request_take(struct cvy_request *request, const char *bytes, size_t size)
{
    if (request->refused != CVY_OK || request->state == CVY_REQUEST_PASSES) {
        request->passed_over += size;
        return request->passed_over / PASSED_OVER <= request->budget->one;
    }
    request->refused = append(request, bytes, size);
    if (request->refused != CVY_OK) {
        cvy_error_get(request->refusal, sizeof request->refusal);
        cvy_request_drop_work(request);
    }
    return true;
}

cvy_status cvy_request_make_images(struct cvy_request *request)
{
    const bool form = request->boundary[0];
    int count = 1;

    if (form) {
        CVY_TRY(cvy_form_read(&request->form, request->boundary, (char *)request->body, request->size,
                              CVY_INFERENCE_IMAGES));
        count = request->form.count;
    }
    if (count == 0 || request->size == 0)
        return cvy_fail(CVY_BAD_DATA, "the request has no image: it is the body, or files of a form");
    request->images = cvy_calloc((size_t)count, sizeof *request->images);
    if (!request->images)
        return cvy_fail_memory((size_t)count * sizeof *request->images, "the images of a request");
    for (int i = 0; i < count; i++) {
        struct cvy_image *image = &request->images[i];

        *image = CVY_SIZED(cvy_image);
        image->name = form ? request->form.parts[i].name : "image";
        image->data = form ? request->form.parts[i].data : (const void *)request->body;
        image->bytes = form ? request->form.parts[i].size : request->size;
    }
    request->job.images = request->images;
    request->job.count = count;
    return CVY_OK;
}
