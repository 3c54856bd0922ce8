/* convoy serve: networks that answer over HTTP, until a signal ends it. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "convoy/program/program.h"
#include "convoy/program/serve.h"
#include "network_options.h"
#include "stop.h"
#include "terminal.h"
#include "verbs.h"

static cvy_server *server;

/* What has come is answered. */
static void stop_server(void)
{
    cvy_server_stop(server);
}

/* ---- options ---- */

struct weights_list {
    const char **files;
    int count, capacity;
};

static cvy_status add_weights(struct weights_list *list, const char *file)
{
    if (list->count == list->capacity) {
        const int capacity = 2 * list->capacity + 4;
        const char **files = realloc(list->files, (size_t)capacity * sizeof *files);
        if (!files)
            return terminal_fail(CVY_NO_MEMORY, "out of memory for %s", cvy_counted(capacity, "name"));
        list->files = files;
        list->capacity = capacity;
    }
    list->files[list->count++] = file;
    return CVY_OK;
}

static cvy_status take_weights(void *context, const char *name, const char *value)
{
    (void)name;
    return add_weights(context, value);
}

static void print_ready(void)
{
    bool detects;

    for (int i = 0; cvy_server_network(server, i, &detects); i++)
        terminal_note("%s %s\n", cvy_server_network(server, i, &detects), detects ? "detects" : "classifies");
    printf("listening on %s\n", cvy_server_address(server));
    fflush(stdout);
}

static cvy_status serve(const struct cvy_server_options *options)
{
    cvy_status status = cvy_server_open(options, &server);

    if (status != CVY_OK)
        return terminal_fail_library(status);
    stop_catch(true, stop_server);
    print_ready();
    status = cvy_server_run(server);
    cvy_server_close(server);
    server = NULL;
    return status == CVY_OK ? CVY_OK : terminal_fail_library(status);
}

cvy_status verb_serve(int argc, char **argv)
{
    struct cvy_server_options serving = CVY_SERVER_DEFAULTS;
    struct weights_list weights = {0};
    struct arguments arguments;
    const struct option options[] = {
        {"weights", NULL, 'w', false, OPTION_FORWARD, NULL, "[NAME=]FILE",
         "weights, checkpoint or run's folder, and the name of this network (default: the file's); may be repeated, "
         "and "
         "more may follow it",
         0, 0, 0, NULL},
        OPT_INT("port", 'p', &serving.port, "N", "where to listen; 0: any free port (default: 8080)", 0, 65535),
        OPT_TEXT("bind", 0, &serving.bind, "ADDRESS",
                 "address to listen at; 0.0.0.0 or :: for all (default: 127.0.0.1, this machine alone)"),
        OPT_INT("max-batch-size", 'b', &serving.max_batch_size, "N", "images computed together (default: 8)", 1,
                CVY_SERVER_MAX_BATCH),
        OPT_INT("max-queue-delay", 0, &serving.max_queue_delay, "US",
                "microseconds that an image waits for others to be computed with (default: 0)", 0, 60e6),
        OPT_INT("max-queue-size", 0, &serving.max_queue_size, "N",
                "images of a network that may wait; more get status 503 (default: 1024)", 1, INT_LIMIT),
        OPT_INT("max-request-size", 0, &serving.max_request_mib, "MIB", "largest body of a request (default: 64)", 1,
                CVY_SERVER_MAX_REQUEST_MIB),
        MODEL_OPTIONS(serving.network),
        PRECISION_OPTION(serving.network),
        THREAD_OPTIONS(serving.network),
        STRIDES_OPTION(serving.network),
        CLASSIFIER_OPTIONS(serving.network),
        OPT_TEXT("class-names", 0, &serving.network.class_names, "FILE",
                 "names of the classes, one a line or a JSON array (default: the file's, else ImageNet's for 1000)"),
    };
    const struct option_table table = {
        .verb = "serve",
        .arguments = "[[NAME=]FILE...]",
        .summary = "Answers over HTTP: POST /classify and /detect with images, the Open Inference Protocol (/v2/...), "
                   "/metrics for Prometheus.\n"
                   "SIGTERM or Ctrl-C ends it when everything that has come is answered.",
        .options = options,
        .count = OPT_COUNT(options),
        .max_arguments = -1,
        .forward = take_weights,
        .context = &weights,
    };
    cvy_status status;

    if (!options_begin(&table, argc, argv, &arguments, &status)) {
        free(weights.files);
        return status;
    }
    for (int i = 0; i < arguments.count && status == CVY_OK; i++)
        status = add_weights(&weights, arguments.value[i]);
    serving.weights = weights.files;
    serving.count = weights.count;
    if (status == CVY_OK && weights.count == 0)
        status = terminal_fail(CVY_USAGE, "serve needs --weights FILE");
    if (status == CVY_OK)
        status = serve(&serving);
    free(weights.files);
    return status;
}
