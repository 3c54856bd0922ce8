/* Weights for comparisons between programs: every architecture with random values that keep activations near 1, so that
 * neither side overflows and no layer drowns.
 *
 *   random_weights --list                       names of all architectures, one on a line
 *   random_weights ARCH CLASSES SIZE SEED OUT   a safetensors file with class names and preprocessing
 *
 * Convolutions and the classifier: their own distribution. Batch norm: scale in 0.8..1.2 (a block's last one divided by
 * the root of the number of blocks, for their outputs add up), shift and mean in -0.1..0.1, variance in 0.5..1.5. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json_out.h"
#include "base/rng.h"
#include "formats/weights/safetensors.h"
#include "weights/checkpoint.h"

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);

    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* Is it the scale of the batch norm that ends a block? */
static bool ends_block(const struct cvy_graph *graph, const char *name)
{
    const bool bottleneck = cvy_graph_find_param(graph, "layer1.0.bn3.weight") >= 0;

    return strncmp(name, "layer", 5) == 0 && ends_with(name, bottleneck ? ".bn3.weight" : ".bn2.weight");
}

static void fill(const struct cvy_graph *graph, int32_t index, uint64_t seed, float *values)
{
    const struct cvy_param *param = &graph->params[index];
    const int64_t count = cvy_shape_elements(&param->shape);
    struct cvy_rng rng = cvy_rng_new(seed, CVY_RNG_TEST, 0, (uint32_t)index);
    double low = -param->init_scale, high = param->init_scale;
    int blocks = 0;

    for (int32_t i = 0; i < graph->param_count; i++)
        blocks += ends_block(graph, graph->params[i].name);
    if (param->init == CVY_INIT_ONE && param->kind == CVY_PARAM_TRAINABLE) {
        low = ends_block(graph, param->name) ? 0.8 / sqrt(blocks) : 0.8;
        high = 1.5 * low;
    } else if (param->init == CVY_INIT_ONE) {
        low = 0.5, high = 1.5;
    } else if (param->init == CVY_INIT_ZERO) {
        low = -0.1, high = 0.1;
    }
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)(param->init == CVY_INIT_NORMAL ? param->init_scale * cvy_rng_normal(&rng)
                                                           : cvy_rng_range(&rng, low, high));
}

static cvy_status make_tensors(const struct cvy_graph *graph, uint64_t seed, struct cvy_arena *arena,
                               struct cvy_named_tensor **tensors)
{
    static const int64_t steps = 1;

    *tensors = cvy_arena_alloc(arena, (size_t)graph->param_count * sizeof **tensors);
    if (!*tensors)
        return cvy_fail_memory((size_t)graph->param_count * sizeof **tensors, "the tensors");
    for (int32_t i = 0; i < graph->param_count; i++) {
        const struct cvy_param *param = &graph->params[i];
        const size_t bytes = (size_t)cvy_shape_elements(&param->shape) * sizeof(float);
        float *values = NULL;

        if (param->kind == CVY_PARAM_COUNTER) {
            (*tensors)[i] = (struct cvy_named_tensor){param->name, CVY_I64, param->shape, &steps, sizeof steps};
            continue;
        }
        values = cvy_arena_alloc(arena, bytes);
        if (!values)
            return cvy_fail_memory(bytes, param->name);
        fill(graph, i, seed, values);
        (*tensors)[i] = (struct cvy_named_tensor){param->name, CVY_F32, param->shape, values, bytes};
    }
    return CVY_OK;
}

/* Names beyond ASCII and with a quote: they have to survive every format. */
static void write_classes(struct cvy_json *json, int32_t count)
{
    char name[32];

    cvy_json_begin_array(json);
    for (int32_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "caf\xc3\xa9 \"%d\"", (int)i);
        cvy_json_string(json, name);
    }
    cvy_json_end_array(json);
}

static cvy_status write_weights(char **argument)
{
    const struct cvy_architecture *architecture = cvy_architecture_find(argument[0]);
    struct cvy_model_options model = cvy_model_options_make(atoi(argument[1]), atoi(argument[2]));
    const struct cvy_preprocessing preprocessing = {
        .image_size = model.image_size, .resize = model.image_size, .mean = {120, 110, 100}, .std = {60, 65, 70}};
    struct cvy_text texts[3] = {{0}};
    struct cvy_json json[3] = {{.text = &texts[0]}, {.text = &texts[1]}, {.text = &texts[2]}};
    struct cvy_arena arena = {0};
    struct cvy_named_tensor *tensors = NULL;
    struct cvy_graph graph;
    cvy_status status;

    if (!architecture)
        return cvy_fail(CVY_USAGE, "unknown network %s", cvy_quote(argument[0]));
    CVY_TRY(cvy_model_graph(architecture, &model, CVY_MODEL_INFER, false, &graph));
    CVY_GOTO(make_tensors(&graph, strtoull(argument[3], NULL, 10), &arena, &tensors));
    cvy_json_string(&json[0], architecture->name);
    write_classes(&json[1], model.num_classes);
    cvy_preprocessing_write(&json[2], &preprocessing);
    status = cvy_st_write(argument[4], tensors, (size_t)graph.param_count,
                          (struct cvy_tensor_meta[]){{"convoy.format", "1"},
                                                     {"convoy.arch", texts[0].text},
                                                     {"convoy.classes", texts[1].text},
                                                     {"convoy.preprocessing", texts[2].text}},
                          4);
fail:
    for (int i = 0; i < 3; i++)
        cvy_text_release(&texts[i]);
    cvy_arena_release(&arena);
    cvy_graph_release(&graph);
    return status;
}

int main(int argc, char **argv)
{
    cvy_status status;

    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (size_t i = 0; cvy_architecture_at(i); i++) /* what classifies */
            if (cvy_architecture_at(i)->task == CVY_TASK_CLASSIFY)
                puts(cvy_architecture_at(i)->name);
        return 0;
    }
    if (argc != 6) {
        fprintf(stderr, "usage: random_weights --list | ARCH CLASSES SIZE SEED OUT\n");
        return CVY_USAGE;
    }
    status = write_weights(argv + 1);
    if (status != CVY_OK)
        fprintf(stderr, "random_weights: %s\n", cvy_error());
    return status;
}
