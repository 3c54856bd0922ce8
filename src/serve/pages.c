#include "serve/server.h"

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

void cvy_pages_metrics(struct cvy_server *server, struct cvy_text *text)
{
    static const struct {
        const char *name, *type, *help;
    } rows[CVY_SERVED_METRICS] = {
        {"convoy_queue_seconds", "histogram", "Time that a request waits for its batch"},
        {"convoy_compute_seconds", "histogram", "Time of a request's batch, decoding and computing"},
        {"convoy_batch_images", "histogram", "Images computed together"},
        {"convoy_images_total", "counter", "Images answered"},
        {"convoy_bad_images_total", "counter", "Images that could not be answered"},
        {"convoy_waiting_images", "gauge", "Images that wait"},
    };
    char number[32];

    cvy_request_metrics_put(text, &server->metrics);
    for (int row = 0; row < CVY_SERVED_METRICS; row++) {
        cvy_text_printf(text, "# HELP %s %s.\n# TYPE %s %s\n", rows[row].name, rows[row].help, rows[row].name,
                        rows[row].type);
        for (int i = 0; i < server->count; i++)
            cvy_served_put_metrics(text, &server->networks[i], row);
    }
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
