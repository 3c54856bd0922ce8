#include "network/split.h"

/* In 16-bit floats steps take longer than memory does, and weights are twice as long: a stream reads them for so many
 * images at least, where the batch has as many for each. */
enum { HALVES = 4 };

/* What a thread has of the last cache, at most: a virtual machine names that of the whole processor, of which it has a
 * part. Where one named 480 MiB, two threads computed batches 5 to 13 % faster by 32 MiB each than by 64 or 120. */
static const int64_t most_bytes = (int64_t)32 << 20;

/* Bytes of one image's value; weights and what is made of them have none. */
static int64_t image_bytes(const struct cvy_graph *graph, cvy_val value)
{
    const struct cvy_value *v = value == CVY_NONE ? NULL : &graph->values[value];
    int64_t bytes;

    if (!v || v->param >= 0 || v->shape.rank < 1 || v->shape.dim[0] != CVY_BATCH)
        return 0;
    bytes = (int64_t)cvy_dtype_size(v->dtype);
    for (int32_t d = 1; d < v->shape.rank; d++)
        bytes *= v->shape.dim[d];
    return bytes;
}

/* What the widest step reads and writes for an image. */
static int64_t widest_step(const struct cvy_graph *graph)
{
    int64_t widest = 1;

    for (int32_t n = 0; n < graph->node_count; n++) {
        const struct cvy_node *node = &graph->nodes[n];
        int64_t bytes = 0;

        for (int32_t i = 0; i < node->inputs; i++)
            bytes += image_bytes(graph, node->in[i]);
        for (int32_t i = 0; i < node->outputs; i++)
            bytes += image_bytes(graph, node->out[i]);
        widest = bytes > widest ? bytes : widest;
    }
    return widest;
}

static bool has_halves(const struct cvy_graph *graph)
{
    for (cvy_val v = 0; v < graph->value_count; v++)
        if (graph->values[v].dtype == CVY_BF16)
            return true;
    return false;
}

/* The most images that each of several streams computes at once; 0: too many would be idle in the end. */
static int64_t images_of_stream(int64_t batch, int64_t streams, int64_t most)
{
    for (int64_t images = most < 1 ? 1 : most < batch ? most : batch; images > 0; images--) {
        const int64_t round = streams * images, rounds = (batch + round - 1) / round;

        if (batch % images == 0 && 32 * (rounds * round - batch) <= rounds * round)
            return images;
    }
    return 0;
}

struct cvy_split cvy_split_batch(const struct cvy_graph *graph, const cvy_device *device, bool constant, int64_t batch)
{
    /* The other half is for weights and for what the step before and the next one touch. */
    const int64_t half = (int64_t)(device->cache_bytes / 2), threads = device->threads;
    const int64_t room = (half < threads * most_bytes ? half : threads * most_bytes) / widest_step(graph);
    const struct cvy_split whole = {batch, 1};
    const bool integers = cvy_graph_has_integers(graph);
    int64_t images, parts = 1, most;

    if (graph->training || (!integers && !(constant && has_halves(graph))) || room <= 0)
        return whole;
    most = room / threads;
    if (!integers && most < HALVES)
        most = HALVES;
    images = threads > 1 ? images_of_stream(batch, threads, most) : 0;
    if (!integers && images < HALVES && batch >= HALVES * threads)
        return whole; /* what divides the batch leaves a stream too few */
    if (images > 0)
        return (struct cvy_split){images, (int)threads};
    if (!integers)
        return whole;
    while (batch % parts != 0 || batch / parts > room)
        parts++;
    return batch / parts >= threads ? (struct cvy_split){batch / parts, 1} : whole;
}
