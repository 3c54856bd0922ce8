/* convoy serve: networks, their daemon, and its end. */
#include "serve/server.h"

#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/api.h"

enum {
    CONNECTIONS = 1000,
    IDLE_SECONDS = 30, /* after which a connection that is silent is closed */
    BACKLOG = 512,
    HTTP_THREADS = 2,    /* read requests, write answers */
    PATIENCE_SECONDS = 5 /* at the end, with clients that do not take their answers */
};

/* ---- libmicrohttpd's calls ---- */

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *upload, size_t *upload_size, void **state)
{
    struct cvy_server *server = context;
    struct cvy_request *request = *state;

    (void)version;
    if (!request) {
        request = *state = cvy_request_new(server, connection, &server->budget);
        if (!request)
            return MHD_NO;
        atomic_fetch_add(&server->requests, 1);
        if (!cvy_route_has_end(request))
            return cvy_route_refuse_end(request);
        /* What has no body is answered in the next call: an answer before a request's end ends the connection. */
        request->coming = cvy_route_has_body(method);
        return request->coming ? cvy_route_begin(request, url, method) : MHD_YES;
    }
    if (*upload_size > 0) {
        const bool more = cvy_request_take(request, upload, *upload_size);
        *upload_size = 0;
        return more ? MHD_YES : MHD_NO;
    }
    const bool body = request->coming;
    request->coming = false;
    switch (request->state) {
    case CVY_REQUEST_COMES:
        return body ? cvy_route_end(request) : cvy_route_begin(request, url, method);
    case CVY_REQUEST_PASSES:
        return cvy_route_send(request);
    case CVY_REQUEST_WAITS:
        return cvy_route_answer(request);
    default:
        return MHD_YES;
    }
}

static void complete(void *context, struct MHD_Connection *connection, void **state,
                     enum MHD_RequestTerminationCode why)
{
    struct cvy_server *server = context;

    (void)connection;
    (void)why;
    if (!*state)
        return;
    cvy_request_free(*state);
    *state = NULL;
    atomic_fetch_sub(&server->requests, 1);
}

static void __attribute__((format(printf, 2, 0))) note(void *context, const char *format, va_list arguments)
{
    char text[256];

    (void)context;
    vsnprintf(text, sizeof text, format, arguments);
    text[strcspn(text, "\n")] = '\0';
    cvy_log(CVY_LOG_DEBUG, "libmicrohttpd: %s", text);
}

/* ---- listening ---- */

static cvy_status put_address(struct cvy_server *server, int listener)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    char host[64], port[16];

    if (getsockname(listener, (struct sockaddr *)&address, &size) != 0 ||
        getnameinfo((struct sockaddr *)&address, size, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return cvy_fail_errno(CVY_UNAVAILABLE, "the server's own address cannot be found");
    const bool colons = strchr(host, ':') != NULL;
    snprintf(server->address, sizeof server->address, "http://%s%s%s:%s", colons ? "[" : "", host, colons ? "]" : "",
             port);
    return CVY_OK;
}

static cvy_status listen_at(const struct addrinfo *address, int *listener)
{
    const int yes = 1;

    *listener = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*listener >= 0 && setsockopt(*listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
        bind(*listener, address->ai_addr, address->ai_addrlen) == 0 && listen(*listener, BACKLOG) == 0)
        return CVY_OK;
    const int why = errno;
    if (*listener >= 0)
        close(*listener);
    *listener = -1;
    errno = why;
    return CVY_UNAVAILABLE;
}

static cvy_status open_listener(const struct cvy_server_options *options, int *listener)
{
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    struct addrinfo *addresses = NULL;
    char port[16];
    cvy_status status;

    snprintf(port, sizeof port, "%d", options->port);
    const int error = getaddrinfo(options->bind, port, &hints, &addresses);
    if (error != 0)
        return cvy_fail(CVY_UNAVAILABLE, "%s is no address of this machine: %s", cvy_quote(options->bind),
                        gai_strerror(error));
    status = CVY_UNAVAILABLE;
    for (const struct addrinfo *a = addresses; a && status != CVY_OK; a = a->ai_next) /* of "localhost" two, say */
        status = listen_at(a, listener);
    if (status != CVY_OK)
        status = cvy_fail_errno(status, "cannot listen at port %d of %s", options->port, cvy_quote(options->bind));
    freeaddrinfo(addresses);
    return status;
}

/* Signals go to the thread that runs the server. */
static cvy_status start_daemon(struct cvy_server *server, int listener)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    server->daemon = cvy_mhd.start_daemon(
        MHD_USE_AUTO_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, handle, server,
        MHD_OPTION_EXTERNAL_LOGGER, note, NULL, MHD_OPTION_NOTIFY_COMPLETED, complete, server, MHD_OPTION_LISTEN_SOCKET,
        listener, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)IDLE_SECONDS, MHD_OPTION_THREAD_POOL_SIZE, (unsigned)HTTP_THREADS, MHD_OPTION_END);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return server->daemon ? CVY_OK : cvy_fail(CVY_UNAVAILABLE, "libmicrohttpd does not start");
}

/* ---- networks ---- */

static bool name_character(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("._-", c);
}

/* "NAME=FILE", or the name that the file's own gives: without folders and the ending. */
static void split_name(const char *weights, const char **file, char *name, size_t size)
{
    static const char *const endings[] = {".safetensors", ".pth.tar", ".pth", ".pt", ".ckpt"};
    const char *equals = strchr(weights, '=');
    size_t length = strlen(weights), begin;

    *file = weights;
    if (equals && equals > weights && !memchr(weights, '/', (size_t)(equals - weights))) {
        *file = equals + 1;
        snprintf(name, size, "%.*s", (int)(equals - weights), weights);
        return;
    }
    while (length > 1 && weights[length - 1] == '/')
        length--;
    for (begin = length; begin > 0 && weights[begin - 1] != '/';)
        begin--;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const size_t ending = strlen(endings[i]);
        if (length - begin > ending && memcmp(weights + length - ending, endings[i], ending) == 0) {
            length -= ending;
            break;
        }
    }
    snprintf(name, size, "%.*s", (int)(length - begin), weights + begin);
    for (char *c = name; *c; c++)
        *c = name_character(*c) ? *c : '-';
}

static cvy_status check_name(const struct cvy_server *server, int index, const char *name)
{
    for (const char *c = name; *c; c++) {
        if (!name_character(*c))
            return cvy_fail(CVY_USAGE, "%s cannot name a network: letters, digits and . _ - can", cvy_quote(name));
    }
    for (int i = 0; i < index; i++) {
        if (strcmp(server->networks[i].name, name) == 0)
            return cvy_fail(CVY_USAGE, "two networks are called %s: NAME=FILE gives one another name", cvy_quote(name));
    }
    return CVY_OK;
}

static cvy_status name_network(struct cvy_server *server, const struct cvy_server_options *options, int index)
{
    struct cvy_classifier_options network = options->network;
    struct cvy_served *served = &server->networks[index];
    char name[128];

    split_name(options->weights[index], &network.weights, name, sizeof name);
    CVY_TRY(check_name(server, index, name));
    network.batch_size = options->max_batch_size;
    served->turn = &server->turn;
    served->max_batch = options->max_batch_size;
    served->max_queue = options->max_queue_size;
    served->max_delay = 1e-6 * options->max_queue_delay;
    return cvy_served_init(served, name, &network);
}

static cvy_status start_networks(struct cvy_server *server, const struct cvy_server_options *options)
{
    server->networks = cvy_calloc((size_t)options->count, sizeof *server->networks);
    if (!server->networks)
        return cvy_fail_memory((size_t)options->count * sizeof *server->networks, "the networks");
    for (int i = 0; i < options->count; i++) {
        server->count = i + 1;
        CVY_TRY(name_network(server, options, i)); /* all of them first: mistakes are not told after minutes */
    }
    for (int i = 0; i < options->count; i++)
        CVY_TRY(cvy_served_start(&server->networks[i]));
    for (int i = 0; i < options->count; i++)
        CVY_TRY(cvy_served_wait(&server->networks[i]));
    return CVY_OK;
}

/* ---- public functions ---- */

static cvy_status check_numbers(const struct cvy_server_options *options)
{
    if (options->count < 1 || !options->weights)
        return cvy_fail(CVY_USAGE, "a server needs weights");
    if (options->max_batch_size < 1 || options->max_batch_size > CVY_SERVER_MAX_BATCH)
        return cvy_fail(CVY_USAGE, "batches have 1 to %d images, not %d", CVY_SERVER_MAX_BATCH,
                        options->max_batch_size);
    if (options->port < 0 || options->port > 65535 || options->max_queue_delay < 0 || options->max_queue_size < 1 ||
        options->max_request_mib < 1 || options->max_request_mib > CVY_SERVER_MAX_REQUEST_MIB)
        return cvy_fail(CVY_USAGE, "a port, delay, queue or size of requests is not possible");
    return CVY_OK;
}

cvy_status cvy_server_open(const struct cvy_server_options *options, cvy_server **out)
{
    CVY_REQUIRE(options);
    CVY_REQUIRE(out);
    struct cvy_server *server;
    int listener = -1;
    cvy_status status;

    *out = NULL;
    CVY_TRY(check_numbers(options));
    CVY_TRY(cvy_mhd_load());
    server = cvy_calloc(1, sizeof *server);
    if (!server)
        return cvy_fail_memory(sizeof *server, "a server");
    cvy_turn_init(&server->turn);
    sem_init(&server->stop, 0, 0);
    cvy_request_metrics_init(&server->metrics);
    server->started = cvy_wall_clock();
    server->budget.one = (size_t)options->max_request_mib << 20;
    server->budget.all = 16 * server->budget.one;
    CVY_GOTO(open_listener(options, &listener)); /* before the networks: a port that is taken is known at once */
    CVY_GOTO(put_address(server, listener));
    CVY_GOTO(start_networks(server, options));
    CVY_GOTO(start_daemon(server, listener));
    *out = server;
    return CVY_OK;
fail:
    if (listener >= 0)
        close(listener);
    cvy_server_close(server);
    return status;
}

const char *cvy_server_address(const cvy_server *server)
{
    return server ? server->address : NULL;
}

const char *cvy_server_network(const cvy_server *server, int index, bool *detects)
{
    if (!server || index < 0 || index >= server->count)
        return NULL;
    if (detects)
        *detects = server->networks[index].detects;
    return server->networks[index].name;
}

static void wait_for_answers(struct cvy_server *server)
{
    const struct timespec moment = {0, 10 * 1000 * 1000};
    double patience = cvy_clock() + PATIENCE_SECONDS;

    while (atomic_load(&server->requests) > 0 && cvy_clock() < patience) {
        nanosleep(&moment, NULL);
        if (atomic_load(&server->jobs) > 0)
            patience = cvy_clock() + PATIENCE_SECONDS;
    }
}

cvy_status cvy_server_run(cvy_server *server)
{
    CVY_REQUIRE(server);
    int listener;

    while (sem_wait(&server->stop) != 0 && errno == EINTR)
        ;
    atomic_store(&server->ending, true);
    listener = cvy_mhd.quiesce_daemon(server->daemon);
    if (listener >= 0)
        close(listener);
    wait_for_answers(server);
    return CVY_OK;
}

void cvy_server_stop(cvy_server *server)
{
    if (server)
        sem_post(&server->stop);
}

void cvy_server_close(cvy_server *server)
{
    if (!server)
        return;
    atomic_store(&server->ending, true);
    for (int i = 0; i < server->count; i++)
        cvy_served_end(&server->networks[i]);
    if (server->daemon)
        cvy_mhd.stop_daemon(server->daemon); /* no connection is suspended any more */
    for (int i = 0; i < server->count; i++)
        cvy_served_release(&server->networks[i]);
    cvy_free(server->networks);
    pthread_mutex_destroy(&server->metrics.mutex);
    cvy_turn_release(&server->turn);
    sem_destroy(&server->stop);
    cvy_free(server);
}
