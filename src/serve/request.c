#include "serve/request.h"

#include <string.h>

#include "base/api.h"

enum {
    FORM_BUFFER = 16 << 10,
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

void cvy_request_free(struct cvy_request *request)
{
    if (!request)
        return;
    if (request->form)
        cvy_mhd.destroy_post_processor(request->form);
    for (int i = 0; i < request->part_count; i++)
        cvy_free(request->parts[i].name);
    cvy_free(request->parts);
    cvy_free(request->images);
    cvy_inference_release(&request->inference);
    cvy_job_release(&request->job);
    if (request->response)
        cvy_mhd.destroy_response(request->response);
    cvy_free(request->body);
    atomic_fetch_sub(&request->budget->used, request->capacity);
    cvy_free(request);
}

cvy_status cvy_request_reserve(struct cvy_request *request, size_t size)
{
    struct cvy_body_budget *budget = request->budget;
    const size_t more = size - request->capacity;
    uint8_t *body;

    if (size <= request->capacity)
        return CVY_OK;
    request->too_large = size > budget->one;
    if (request->too_large)
        return cvy_fail(CVY_USAGE, "a body has at most %zu bytes here", budget->one);
    if (atomic_fetch_add(&budget->used, more) + more > budget->all) {
        atomic_fetch_sub(&budget->used, more);
        return cvy_fail(CVY_UNAVAILABLE, "too many requests at once: try again later");
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
    size_t capacity = 2 * request->capacity + FIRST_CAPACITY;

    if (size > request->capacity - request->size) {
        if (capacity > request->budget->one)
            capacity = request->budget->one;
        if (capacity < request->size + size)
            capacity = request->size + size; /* refused where that is too much */
        CVY_TRY(cvy_request_reserve(request, capacity));
    }
    memcpy(request->body + request->size, bytes, size);
    request->size += size;
    return CVY_OK;
}

/* ---- forms ---- */

static cvy_status begin_part(struct cvy_request *request, const char *field, const char *file)
{
    struct cvy_part *part;

    if (!file)
        return cvy_fail(CVY_BAD_DATA, "field %s of the form is no file: options stand in the address",
                        cvy_quote(field));
    if (request->part_count == CVY_INFERENCE_IMAGES)
        return cvy_fail(CVY_BAD_DATA, "a form has at most %d images", (int)CVY_INFERENCE_IMAGES);
    if (request->part_count == request->part_capacity) {
        const int capacity = 2 * request->part_capacity + 4;
        struct cvy_part *parts = cvy_realloc(request->parts, (size_t)capacity, sizeof *parts);
        if (!parts)
            return cvy_fail_memory((size_t)capacity * sizeof *parts, "the images of a request");
        request->parts = parts;
        request->part_capacity = capacity;
    }
    part = &request->parts[request->part_count];
    *part = (struct cvy_part){.name = cvy_strdup(file), .at = request->size};
    if (!part->name)
        return cvy_fail_memory(strlen(file), "the name of an image");
    request->part_count++;
    return CVY_OK;
}

static cvy_status take_part(struct cvy_request *request, const char *field, const char *file, const char *bytes,
                            uint64_t offset, size_t size)
{
    if (offset == 0)
        CVY_TRY(begin_part(request, field, file));
    CVY_TRY(append(request, bytes, size));
    request->parts[request->part_count - 1].size += size;
    return CVY_OK;
}

static void refuse(struct cvy_request *request, cvy_status status)
{
    if (status == CVY_OK || request->refused != CVY_OK)
        return;
    request->refused = status;
    cvy_error_get(request->refusal, sizeof request->refusal);
}

static enum MHD_Result form_part(void *context, enum MHD_ValueKind kind, const char *key, const char *filename,
                                 const char *content_type, const char *transfer_encoding, const char *data,
                                 uint64_t off, size_t size)
{
    struct cvy_request *request = context;

    (void)kind;
    (void)content_type;
    (void)transfer_encoding;
    refuse(request, take_part(request, key, filename, data, off, size));
    return request->refused == CVY_OK ? MHD_YES : MHD_NO;
}

bool cvy_request_take(struct cvy_request *request, const char *bytes, size_t size)
{
    if (request->refused != CVY_OK || request->state == CVY_REQUEST_PASSES) {
        request->passed_over += size;
        return request->passed_over / PASSED_OVER <= request->budget->one;
    }
    if (!request->form)
        refuse(request, append(request, bytes, size));
    else if (cvy_mhd.post_process(request->form, bytes, size) != MHD_YES && request->refused == CVY_OK)
        refuse(request, cvy_fail(CVY_BAD_DATA, "the form cannot be read"));
    return true;
}

bool cvy_request_begin_form(struct cvy_request *request)
{
    request->form = cvy_mhd.create_post_processor(request->connection, FORM_BUFFER, form_part, request);
    request->is_form = request->form != NULL;
    return request->is_form;
}

cvy_status cvy_request_make_images(struct cvy_request *request)
{
    const int count = request->is_form ? request->part_count : 1;

    if (count == 0 || (!request->is_form && request->size == 0))
        return cvy_fail(CVY_BAD_DATA, "the request has no image: it is the body, or files of a form");
    request->images = cvy_calloc((size_t)count, sizeof *request->images);
    if (!request->images)
        return cvy_fail_memory((size_t)count * sizeof *request->images, "the images of a request");
    for (int i = 0; i < count; i++) {
        struct cvy_image *image = &request->images[i];

        *image = CVY_SIZED(cvy_image);
        image->name = request->is_form ? request->parts[i].name : "image";
        image->bytes = request->is_form ? request->parts[i].size : request->size;
        image->data =
            image->bytes > 0 ? (const void *)(request->body + (request->is_form ? request->parts[i].at : 0)) : "";
    }
    request->job.images = request->images;
    request->job.count = count;
    return CVY_OK;
}
