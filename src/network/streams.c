#include "network/streams.h"

#include <omp.h>
#include <stdatomic.h>
#include <string.h>

#include "backend/autotune.h"
#include "base/error.h"

cvy_status cvy_stream_device_open(const cvy_device *device, cvy_device **one)
{
    CVY_TRY(cvy_device_open(device->backend->name, 1, one));
    cvy_autotuner_close((*one)->autotuner);
    (*one)->autotuner = device->autotuner;
    return CVY_OK;
}

void cvy_stream_device_close(cvy_device *one)
{
    if (one)
        one->autotuner = NULL;
    cvy_device_close(one);
}

size_t cvy_streams_bytes(const struct cvy_plan *plan, int streams)
{
    return plan->constant_bytes + (size_t)streams * plan->activation_bytes;
}

static cvy_status allocate(struct cvy_streams *streams, int count, int64_t batch)
{
    *streams = (struct cvy_streams){.count = count, .batch = batch};
    streams->stream = cvy_calloc((size_t)count, sizeof *streams->stream);
    return streams->stream ? CVY_OK
                           : cvy_fail_memory((size_t)count * sizeof *streams->stream, "the streams of a batch");
}

static cvy_status open_upload(struct cvy_stream *stream, cvy_device *device, const struct cvy_model_options *model)
{
    stream->plan.capture = true;
    return cvy_batch_upload_open(&stream->upload, device, stream->plan.batch,
                                 cvy_model_image_bytes(model, CVY_MODEL_INFER));
}

static cvy_status open_stream(struct cvy_stream *stream, struct cvy_network *network, const struct cvy_split *split,
                              struct cvy_plan *beside)
{
    struct cvy_network *own = network;

    if (split->streams > 1) {
        own = &stream->network;
        CVY_TRY(cvy_stream_device_open(network->device, &stream->device));
        CVY_TRY(cvy_network_open_beside(own, stream->device, &network->model, network));
    }
    CVY_TRY(beside ? cvy_network_plan_beside(own, split->images, beside, &stream->plan)
                   : cvy_network_plan(own, CVY_MODEL_INFER, split->images, &stream->plan));
    return open_upload(stream, own->device, &own->model);
}

cvy_status cvy_streams_open(struct cvy_streams *streams, struct cvy_network *network, int64_t batch,
                            struct cvy_plan *beside)
{
    struct cvy_split split;
    cvy_status status;

    *streams = (struct cvy_streams){0};
    CVY_TRY(cvy_network_split(network, batch, &split));
    CVY_GOTO(allocate(streams, split.streams, batch));
    for (int i = 0; i < streams->count; i++)
        CVY_GOTO(open_stream(&streams->stream[i], network, &split, i > 0 ? &streams->stream->plan : beside));
    return CVY_OK;
fail:
    cvy_streams_close(streams);
    return status;
}

cvy_status cvy_streams_open_graph(struct cvy_streams *streams, struct cvy_network *network, struct cvy_graph *graph,
                                  int64_t batch)
{
    cvy_status status = allocate(streams, 1, batch);

    if (status != CVY_OK)
        cvy_graph_release(graph);
    CVY_GOTO(status);
    CVY_GOTO(cvy_plan_open(&streams->stream->plan, network->device, &network->store, graph, batch));
    CVY_GOTO(open_upload(streams->stream, network->device, &network->model));
    return CVY_OK;
fail:
    cvy_streams_close(streams);
    return status;
}

void cvy_streams_close(struct cvy_streams *streams)
{
    for (int i = streams->count - 1; i >= 0 && streams->stream; i--) { /* the first one's constants are read by all */
        struct cvy_stream *stream = &streams->stream[i];

        cvy_plan_close(&stream->plan);
        cvy_batch_upload_close(&stream->upload);
        cvy_network_close(&stream->network);
        cvy_stream_device_close(stream->device);
    }
    cvy_free(streams->stream);
    memset(streams, 0, sizeof *streams);
}

/* ---- running ---- */

/* The parts that hold the first `images` images of a batch. */
static int64_t parts_of(const struct cvy_streams *streams, int64_t images)
{
    const int64_t part = streams->stream->plan.batch;

    return (images + part - 1) / part;
}

int64_t cvy_streams_rounds(const struct cvy_streams *streams)
{
    return (parts_of(streams, streams->batch) + streams->count - 1) / streams->count;
}

struct run {
    struct cvy_streams *streams;
    cvy_stream_part part;
    void *context;
    int64_t parts;
    bool even;
    atomic_llong next;
    atomic_bool failed;
};

/* What one stream computes. */
static cvy_status run_stream(struct run *run, int number)
{
    struct cvy_stream *stream = &run->streams->stream[number];

    for (int64_t turn = 0; !run->failed; turn++) {
        const int64_t part = run->even ? number + turn * run->streams->count : atomic_fetch_add(&run->next, 1);

        if (part >= run->parts)
            break;
        CVY_TRY(run->part(run->context, stream, part * stream->plan.batch));
    }
    return CVY_OK;
}

cvy_status cvy_streams_run(struct cvy_streams *streams, int64_t images, cvy_stream_part part, void *context)
{
    struct run run = {.streams = streams,
                      .part = part,
                      .context = context,
                      .parts = parts_of(streams, images),
                      .even = streams->stream->plan.profile};
    cvy_status first = CVY_OK;
    char text[1024] = "";

    if (streams->count == 1)
        return run_stream(&run, 0);
#pragma omp parallel num_threads(streams->count)
    {
        const int threads = omp_get_num_threads(); /* fewer than asked for where the system has no more */

        for (int number = omp_get_thread_num(); number < streams->count; number += threads) {
            const cvy_status status = run_stream(&run, number);

            if (status == CVY_OK)
                continue;
#pragma omp critical(cvy_streams)
            if (first == CVY_OK) {
                first = status;
                cvy_error_get(text, sizeof text);
            }
            run.failed = true;
        }
    }
    if (first != CVY_OK)
        cvy_error_put(text);
    return first;
}
