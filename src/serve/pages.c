#include "serve/server.h"

#include <stddef.h>
#include <stdio.h>

#include "base/api.h"

void cvy_pages_index(struct cvy_server *server, struct cvy_text *text)
{
    static const char *const paths[] = {"POST /classify?model=NAME&topk=N&logits=1",
                                        "POST /detect?model=NAME&threshold=X",
                                        "GET /v2/models",
                                        "GET /v2/models/NAME",
                                        "POST /v2/models/NAME/infer",
                                        "GET /v2/health/ready",
                                        "GET /metrics"};
    struct cvy_json json = {.text = text};

    cvy_json_begin_object(&json);
    cvy_json_put_string(&json, "name", "convoy");
    cvy_json_put_string(&json, "version", cvy_version());
    cvy_json_key(&json, "networks");
    cvy_json_begin_array(&json);
    for (int i = 0; i < server->count; i++) {
        cvy_json_begin_object(&json);
        cvy_json_put_string(&json, "name", server->networks[i].name);
        cvy_json_put_string(&json, "arch", server->networks[i].arch);
        cvy_json_put_string(&json, "task", server->networks[i].detects ? "detect" : "classify");
        cvy_json_put_int(&json, "classes", server->networks[i].classes);
        cvy_json_end_object(&json);
    }
    cvy_json_end_array(&json);
    cvy_json_key(&json, "paths");
    cvy_json_begin_array(&json);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        cvy_json_string(&json, paths[i]);
    cvy_json_end_array(&json);
    cvy_json_end_object(&json);
}

void cvy_pages_server(struct cvy_text *text)
{
    struct cvy_json json = {.text = text};

    cvy_json_begin_object(&json);
    cvy_json_put_string(&json, "name", "convoy");
    cvy_json_put_string(&json, "version", cvy_version());
    cvy_json_key(&json, "extensions");
    cvy_json_begin_array(&json);
    cvy_json_string(&json, "binary_tensor_data");
    cvy_json_string(&json, "classification");
    cvy_json_end_array(&json);
    cvy_json_end_object(&json);
}

void cvy_pages_networks(struct cvy_server *server, struct cvy_text *text)
{
    struct cvy_json json = {.text = text};

    cvy_json_begin_object(&json);
    cvy_json_key(&json, "models");
    cvy_json_begin_array(&json);
    for (int i = 0; i < server->count; i++)
        cvy_json_string(&json, server->networks[i].name);
    cvy_json_end_array(&json);
    cvy_json_end_object(&json);
}

/* What is told of each network: a member of struct cvy_network_counts. */
struct metric_row {
    const char *name, *type, *help;
    size_t offset;
    bool histogram; /* else an int64_t */
};
#define HISTOGRAM(name, member, help)                                                                                  \
    {                                                                                                                  \
        name, "histogram", help, offsetof(struct cvy_network_counts, member), true                                     \
    }
#define NUMBER(name, type, member, help)                                                                               \
    {                                                                                                                  \
        name, type, help, offsetof(struct cvy_network_counts, member), false                                           \
    }
static const struct metric_row metric_rows[] = {
    HISTOGRAM("convoy_queue_seconds", waiting, "Time that a request waits for its batch"),
    HISTOGRAM("convoy_compute_seconds", computing, "Time of a request's batch, decoding and computing"),
    HISTOGRAM("convoy_batch_images", batches, "Images computed together"),
    NUMBER("convoy_images_total", "counter", images, "Images answered"),
    NUMBER("convoy_bad_images_total", "counter", refused_images, "Images that could not be answered"),
    NUMBER("convoy_waiting_images", "gauge", in_queue, "Images that wait"),
};
#undef HISTOGRAM
#undef NUMBER

static void put_metric(struct cvy_server *server, const struct metric_row *row, struct cvy_text *text)
{
    struct cvy_network_counts counts;
    char label[160];

    cvy_text_printf(text, "# HELP %s %s.\n# TYPE %s %s\n", row->name, row->help, row->name, row->type);
    for (int i = 0; i < server->count; i++) {
        const void *member = (const char *)&counts + row->offset;

        cvy_served_counts(&server->networks[i], &counts);
        snprintf(label, sizeof label, "model=\"%s\"", server->networks[i].name);
        if (row->histogram)
            cvy_metric_put(text, row->name, label, member);
        else
            cvy_text_printf(text, "%s{%s} %lld\n", row->name, label, (long long)*(const int64_t *)member);
    }
}

void cvy_pages_metrics(struct cvy_server *server, struct cvy_text *text)
{
    char number[32];

    cvy_request_metrics_put(text, &server->metrics);
    for (size_t row = 0; row < sizeof metric_rows / sizeof *metric_rows; row++)
        put_metric(server, &metric_rows[row], text);
    cvy_text_printf(text,
                    "# HELP process_start_time_seconds When the server was started, in seconds since 1970.\n"
                    "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds %s\n",
                    cvy_double_text(server->started, number));
    cvy_text_printf(text,
                    "# HELP process_resident_memory_bytes Resident memory.\n"
                    "# TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes %zu\n",
                    cvy_resident_memory());
    cvy_text_printf(text,
                    "# HELP convoy_build_info The version.\n# TYPE convoy_build_info gauge\n"
                    "convoy_build_info{version=\"%s\"} 1\n",
                    cvy_version());
}
