/* One request: what comes of it, and what it asks of a network. */
#ifndef CVY_SERVE_REQUEST_H
#define CVY_SERVE_REQUEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "serve/answers.h"
#include "serve/form.h"
#include "serve/inference.h"
#include "serve/microhttpd.h"
#include "serve/served.h"

/* The bytes of all requests that are being read or answered. */
struct cvy_body_budget {
    atomic_size_t used;
    size_t one, all; /* what a request and what all together may have */
};

struct cvy_request {
    struct cvy_server *server;
    struct MHD_Connection *connection;
    enum cvy_endpoint endpoint;
    double began;
    bool coming; /* there is a body, of which more may come */

    struct cvy_body_budget *budget;
    uint8_t *body;
    size_t size, capacity;
    size_t expected;                  /* bytes, as its Content-Length says; 0: it does not */
    char boundary[CVY_FORM_BOUNDARY]; /* between the parts of a form; "": the body is none */
    struct cvy_form form;
    cvy_status refused; /* why the body is not taken; what still comes of it is passed over */
    char refusal[CVY_ERROR_SIZE];
    bool too_large;                /* that is why */
    size_t passed_over;            /* bytes */
    struct MHD_Response *response; /* the answer that is known before the body has come, and its status */
    unsigned code;

    struct cvy_served *served; /* NULL: no network is asked */
    struct cvy_answer_options options;
    struct cvy_inference inference;
    struct cvy_image *images; /* of the body */
    struct cvy_job job;
    /* The body comes; or it is passed over, and then `response` sent; a network has the job; the answer is sent. */
    enum { CVY_REQUEST_COMES, CVY_REQUEST_PASSES, CVY_REQUEST_WAITS, CVY_REQUEST_ANSWERED } state;
};

/* NULL: there is no memory. */
struct cvy_request *cvy_request_new(struct cvy_server *server, struct MHD_Connection *connection,
                                    struct cvy_body_budget *budget);
void cvy_request_free(struct cvy_request *request);
/* A body of so many bytes is to come: there is room only for what has come, lest clients that send nothing keep others
 * out. CVY_USAGE: no body is so large (too_large); CVY_UNAVAILABLE: other requests have taken what there is. */
CVY_CHECKED cvy_status cvy_request_expect(struct cvy_request *request, size_t size);
/* Frees the body, of which everything has been read; it still counts, for what has been made of it takes as much. */
void cvy_request_drop_body(struct cvy_request *request);
/* Frees all that the answer was made of. */
void cvy_request_drop_work(struct cvy_request *request);
/* The next bytes of the body; what is wrong with them is kept in `refused`. False: what is to be passed over has no
 * end.
 */
bool cvy_request_take(struct cvy_request *request, const char *bytes, size_t size);
/* The body is an image, or a form with images: they become those of the job. */
CVY_CHECKED cvy_status cvy_request_make_images(struct cvy_request *request);

#endif
