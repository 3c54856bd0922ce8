/* The server itself, for the files of this folder. */
#ifndef CVY_SERVE_SERVER_H
#define CVY_SERVE_SERVER_H

#include <semaphore.h>
#include <stdatomic.h>

#include "convoy/program/serve.h"
#include "serve/metrics.h"
#include "serve/request.h"
#include "serve/served.h"

struct cvy_server {
    struct MHD_Daemon *daemon;
    char address[128];
    struct cvy_served *networks; /* (count) */
    int count;
    struct cvy_turn turn; /* of the networks */
    struct cvy_body_budget budget;
    struct cvy_request_metrics metrics;
    double started; /* Unix seconds */
    sem_t stop;
    atomic_bool ending;        /* no request is taken any more */
    atomic_int requests, jobs; /* that are open; of those, jobs that a network has */
};

/* False: its headers contradict each other about where it ends, and a proxy before the server may have read another
 * end. Such a request is refused, and its connection closed. */
bool cvy_route_has_end(struct cvy_request *request);
enum MHD_Result cvy_route_refuse_end(struct cvy_request *request);
bool cvy_route_has_body(const char *method);
/* What a request asks for, by its address and method. It is answered at once unless it asks a network something. */
enum MHD_Result cvy_route_begin(struct cvy_request *request, const char *url, const char *method);
/* The body is there: the network gets the job, or the request its refusal. */
enum MHD_Result cvy_route_end(struct cvy_request *request);
/* The answer that was known before the body had come. */
enum MHD_Result cvy_route_send(struct cvy_request *request);
/* The job is done. */
enum MHD_Result cvy_route_answer(struct cvy_request *request);

/* The pages that only tell something. */
void cvy_pages_index(struct cvy_server *server, struct cvy_text *text);
void cvy_pages_server(struct cvy_text *text);                              /* /v2 */
void cvy_pages_networks(struct cvy_server *server, struct cvy_text *text); /* /v2/models */
void cvy_pages_metrics(struct cvy_server *server, struct cvy_text *text);

#endif
