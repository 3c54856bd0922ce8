#include "support_subject.h"

#include "network/precision.h"
#include "support_graph.h"
#include "support_test.h"

void must(cvy_status status)
{
    if (status != CVY_OK)
        fail_msg("%s", cvy_error());
}

void subject_draw(struct cvy_network *network)
{
    static struct {
        size_t weights, state;
        float *values;
    } drawn[4];
    struct cvy_store *store = &network->store;
    const size_t weights = (size_t)store->trainable_elements, state = (size_t)store->state_elements;
    int i = 0;

    while (drawn[i].values && (drawn[i].weights != weights || drawn[i].state != state))
        assert_true(++i < 4);
    if (drawn[i].values) {
        memcpy(store->weights, drawn[i].values, weights * sizeof(float));
        memcpy(store->state, drawn[i].values + weights, state * sizeof(float));
        store->version++;
        return;
    }
    must(cvy_network_initialize(network, 3));
    drawn[i].values = cvy_calloc(weights + state, sizeof(float));
    assert_non_null(drawn[i].values);
    drawn[i].weights = weights;
    drawn[i].state = state;
    memcpy(drawn[i].values, store->weights, weights * sizeof(float));
    memcpy(drawn[i].values + weights, store->state, state * sizeof(float));
}

void subject_open_integers(struct subject *subject, const char *name, int32_t size, int threads, size_t cache_bytes)
{
    struct cvy_network *network = &subject->network;

    subject->model = cvy_model_options_make(SUBJECT_CLASSES, size);
    subject->model.quantize = CVY_QUANTIZE_CHANNELS;
    subject->model.features = strcmp(name, "resnet18") == 0;
    must(cvy_device_open("cpu", threads, &subject->device));
    subject->device->cache_bytes = cache_bytes;
    must(cvy_network_open(network, subject->device, cvy_architecture_find(name), &subject->model, CVY_F32, false));
    subject_draw(network);
    for (int64_t i = 0; i < network->store.trainable_elements; i++) /* so that images differ in their detections */
        network->store.weights[i] *= 3;
    set_quantizer_ranges(&network->table, network->store.state);
    network->store.version++;
    network->int8 = true;
}

bool subject_open_halves(struct subject *subject, const char *name, int32_t size, int threads, size_t cache_bytes)
{
    struct cvy_network *network = &subject->network;
    enum cvy_dtype dtype;

    subject->model = cvy_model_options_make(SUBJECT_CLASSES, size);
    subject->model.features = strcmp(name, "resnet18") == 0;
    must(cvy_device_open("cpu", threads, &subject->device));
    if (cvy_precision_choose("bf16", subject->device, &dtype) != CVY_OK) {
        cvy_device_close(subject->device);
        return false;
    }
    subject->device->cache_bytes = cache_bytes;
    must(cvy_network_open(network, subject->device, cvy_architecture_find(name), &subject->model, dtype, false));
    subject_draw(network);
    for (int64_t i = 0; !subject->model.features && i < network->store.trainable_elements; i++)
        network->store.weights[i] *= 1.5F; /* so that images differ in their detections */
    network->constant = true;
    return true;
}

bool subject_open_divided(struct subject *subject, bool halves)
{
    if (halves)
        return subject_open_halves(subject, "resnet18", SUBJECT_SIZE, 2, (size_t)1 << 30);
    subject_open_integers(subject, "resnet18", SUBJECT_SIZE, 2, (size_t)1 << 30);
    return true;
}

void subject_close(struct subject *subject)
{
    cvy_network_close(&subject->network);
    cvy_device_close(subject->device);
}
