/* The limit of this machine for a whole training step or a batch of inference, and how near Convoy comes to it,
 * measured in one run, because machines have faster and slower moments:
 *
 *   limit [--arch A] [--mode train|infer] [--batch-size N] [--precision fp32|bf16] [--image-size S] [--threads N]
 *         [--rounds N] [--cache MIB] [--json]
 *
 * Each round runs (a) the step as `convoy bench` does, a few times, (b) of every convolution and linear layer each
 * kernel that takes it alone, on data that are there already, (c) memory. The limit of a round is
 *
 *   the sum over the convolutions and linear layers of the shortest time of any kernel, with images in blocks of
 *     channels or channels-last (CONVOY_CPU_LAYOUT=blocked or nhwc: with these only), over all rounds so far
 *   + the least bytes of everything else / the faster of copy and triad in this round.
 *
 * The plan is the one of CONVOY_CPU_PATTERNS=never and CONVOY_CPU_CHAINS=never, with each operation by itself; the step
 * is as the environment says.
 * Least bytes: each step of the plan reads every input once and writes every output once. Nothing is counted for
 * reorders and for outputs made again to save memory, which a better plan would not have, nor for what runs only when
 * weights change, nor for reading a tensor that the step before has read or written and that fills at most half of the
 * last cache
 * (--cache; default: the system's number). SGD with momentum reads three numbers of each parameter and writes two. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/autotune.h"
#include "base/error.h"
#include "base/json_out.h"
#include "base/system.h"
#include "info/workload.h"
#include "ops/ops.h"

struct settings {
    const char *arch, *precision;
    bool training, json;
    int batch, image_size, threads, rounds;
    double cache; /* bytes */
};

/* An operation of the plan; those that are alike are timed once. */
struct product {
    const struct cvy_plan_step *step;
    char *key;
    int32_t times;  /* how often it runs for a batch */
    double seconds; /* the shortest so far */
    const char *row;
    enum cvy_images images; /* of that */
};

struct round {
    double step, kernels, rest; /* seconds */
    struct cvy_device_peak limits;
};

struct bench {
    struct settings settings;
    cvy_device *device;
    struct cvy_workload work;
    /* The same network with each operation by itself: what convolutions take over of batch norms is not counted as
     * theirs, and every kernel takes what is left. */
    cvy_device *bare_device;
    struct cvy_workload bare;
    const struct cvy_plan *plan; /* of that */
    struct product *products;
    int32_t product_count;
    int32_t passes; /* of the plan, for a batch: streams compute it in parts */
    double rest_bytes, direct_flops;
    struct round *rounds;
};

/* ---- the least bytes ---- */

static bool is_product(enum cvy_op op)
{
    return op == CVY_OP_CONV2D || op == CVY_OP_CONV2D_BWD_DATA || op == CVY_OP_CONV2D_BWD_WEIGHTS ||
           op == CVY_OP_LINEAR || op == CVY_OP_LINEAR_BWD_DATA || op == CVY_OP_LINEAR_BWD_WEIGHTS;
}

static bool costs_nothing(const struct cvy_plan_step *step)
{
    const bool again =
        step->backward && (step->desc.op == CVY_OP_BATCH_NORM_APPLY || step->desc.op == CVY_OP_NORMALIZE);

    return step->setup || again || step->desc.op == CVY_OP_REORDER || is_product(step->desc.op);
}

static bool touches(const struct cvy_plan_step *step, int32_t tensor)
{
    for (int i = 0; i < CVY_MAX_INPUTS; i++) {
        if (step->in[i] == tensor)
            return true;
    }
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++) {
        if (step->out[i] == tensor)
            return true;
    }
    return false;
}

static double min_bytes(const struct cvy_plan *plan, int32_t s, double cache)
{
    const struct cvy_plan_step *step = &plan->steps[s];
    double sum = 0;

    if (costs_nothing(step))
        return 0;
    for (int i = 0; i < CVY_MAX_INPUTS; i++) {
        const double bytes = step->in[i] >= 0 ? (double)plan->tensors[step->in[i]].bytes : 0;
        bool known = s > 0 && touches(&plan->steps[s - 1], step->in[i]) && bytes <= cache / 2;
        for (int k = 0; k < i; k++)
            known = known || step->in[k] == step->in[i];
        sum += known ? 0 : bytes;
    }
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
        sum += step->out[i] >= 0 ? (double)plan->tensors[step->out[i]].bytes : 0;
    return sum;
}

/* ---- the operations ---- */

static cvy_status add_product(struct bench *bench, const struct cvy_plan_step *step)
{
    struct cvy_text key = {0};

    cvy_autotune_key(&step->desc, bench->device->threads, &key);
    if (key.failed)
        return cvy_fail_memory(key.capacity, "an operation");
    bench->direct_flops += bench->passes * step->flops;
    for (int32_t p = 0; p < bench->product_count; p++) {
        if (strcmp(bench->products[p].key, key.text) == 0) {
            bench->products[p].times += bench->passes;
            cvy_text_release(&key);
            return CVY_OK;
        }
    }
    bench->products[bench->product_count++] = (struct product){.step = step, .key = key.text, .times = bench->passes};
    return CVY_OK;
}

static cvy_status inspect_plan(struct bench *bench)
{
    const struct cvy_plan *plan = bench->plan = cvy_workload_plan(&bench->bare);

    bench->passes = (int32_t)(bench->settings.batch / plan->batch);
    bench->products = cvy_calloc((size_t)plan->step_count + 1, sizeof *bench->products);
    bench->rounds = cvy_calloc((size_t)bench->settings.rounds, sizeof *bench->rounds);
    if (!bench->products || !bench->rounds)
        return cvy_fail_memory((size_t)plan->step_count * sizeof *bench->products, "the operations");
    for (int32_t s = 0; s < plan->step_count; s++) {
        if (is_product(plan->steps[s].desc.op) && !plan->steps[s].setup)
            CVY_TRY(add_product(bench, &plan->steps[s]));
        bench->rest_bytes += bench->passes * min_bytes(plan, s, bench->settings.cache);
    }
    if (bench->settings.training)
        bench->rest_bytes += 5.0 * sizeof(float) * (double)bench->work.network.store.trainable_elements;
    return CVY_OK;
}

/* ---- a round ---- */

static cvy_status time_step(struct bench *bench, double *seconds)
{
    enum { ITERATIONS = 3 };

    for (int i = 0; i < ITERATIONS; i++) {
        const double start = cvy_clock();
        CVY_TRY(cvy_workload_iterate(&bench->work));
        CVY_TRY(bench->device->backend->synchronize(bench->device));
        if (i == 0 || cvy_clock() - start < *seconds)
            *seconds = cvy_clock() - start;
    }
    return CVY_OK;
}

/* The fastest kernel for images of this kind, if these count. */
static cvy_status time_product(struct cvy_selection *selection, struct product *product, enum cvy_images images)
{
    const char *wanted = getenv("CONVOY_CPU_LAYOUT"), *row = NULL;
    struct cvy_op_desc desc = product->step->desc;
    double seconds = 0;

    if (wanted && strcmp(wanted, "auto") != 0 && strcmp(wanted, cvy_images_name(images)) != 0)
        return CVY_OK;
    desc.images = images;
    CVY_TRY(cvy_selection_fastest(selection, &desc, &seconds, &row));
    if (product->row && seconds >= product->seconds)
        return CVY_OK;
    product->seconds = seconds;
    product->row = row;
    product->images = images;
    return CVY_OK;
}

static cvy_status time_kernels(struct bench *bench, double *sum)
{
    struct cvy_selection selection;
    cvy_status status = CVY_OK;

    *sum = 0;
    cvy_selection_begin(&selection, bench->bare_device, false, 1);
    for (int32_t p = 0; p < bench->product_count && status == CVY_OK; p++) {
        struct product *product = &bench->products[p];
        status = time_product(&selection, product, CVY_IMAGES_BLOCKED);
        if (status == CVY_OK)
            status = time_product(&selection, product, CVY_IMAGES_NHWC);
        *sum += product->times * product->seconds;
    }
    cvy_selection_end(&selection, true);
    return status;
}

static cvy_status run_round(struct bench *bench, struct round *round)
{
    CVY_TRY(time_step(bench, &round->step));
    CVY_TRY(time_kernels(bench, &round->kernels));
    CVY_TRY(bench->device->backend->measure_peak(bench->device, CVY_PEAK_MEMORY, &round->limits));
    round->rest =
        bench->rest_bytes / (round->limits.copy > round->limits.triad ? round->limits.copy : round->limits.triad);
    return CVY_OK;
}

/* ---- results ---- */

static double share(const struct round *round)
{
    return (round->kernels + round->rest) / round->step;
}

static int by_share(const void *a, const void *b)
{
    const double x = share(a), y = share(b);

    return (x > y) - (x < y);
}

static void put_number(struct cvy_json *json, const char *key, double value)
{
    cvy_json_key(json, key);
    cvy_json_number(json, value);
}

static void put_text(struct cvy_json *json, const char *key, const char *value)
{
    cvy_json_key(json, key);
    cvy_json_string(json, value);
}

static void write_json(const struct bench *bench, const struct round *round, struct cvy_text *text)
{
    struct cvy_json json = {.text = text};
    const struct settings *s = &bench->settings;

    cvy_json_begin_object(&json);
    put_text(&json, "arch", s->arch);
    put_text(&json, "mode", s->training ? "train" : "infer");
    put_text(&json, "precision", cvy_precision_name(bench->work.network.dtype, bench->device));
    put_number(&json, "batch_size", s->batch);
    put_number(&json, "threads", bench->device->threads);
    put_text(&json, "device", bench->device->description);
    put_text(&json, "images", cvy_images_name(bench->plan->images));
    put_text(&json, "images_reason", bench->plan->images_reason);
    put_number(&json, "rounds", s->rounds);
    put_number(&json, "step_ms", round->step * 1e3);
    put_number(&json, "kernels_ms", round->kernels * 1e3);
    put_number(&json, "rest_ms", round->rest * 1e3);
    put_number(&json, "rest_bytes", bench->rest_bytes);
    put_number(&json, "limit_ms", (round->kernels + round->rest) * 1e3);
    put_number(&json, "share", share(round));
    put_number(&json, "images_per_second", s->batch / round->step);
    put_number(&json, "limit_images_per_second", s->batch / (round->kernels + round->rest));
    put_number(&json, "gflops_f32", round->limits.flops_f32 * 1e-9);
    put_number(&json, "gflops_bf16", round->limits.flops_bf16 * 1e-9);
    put_number(&json, "gbps_read", round->limits.read * 1e-9);
    put_number(&json, "gbps_copy", round->limits.copy * 1e-9);
    put_number(&json, "gbps_triad", round->limits.triad * 1e-9);
    cvy_json_key(&json, "kernels");
    cvy_json_begin_array(&json);
    for (int32_t p = 0; p < bench->product_count; p++) {
        const struct product *product = &bench->products[p];
        cvy_json_begin_object(&json);
        put_text(&json, "operation", product->key);
        put_text(&json, "kernel", product->row);
        put_text(&json, "images", cvy_images_name(product->images));
        put_number(&json, "times", product->times);
        put_number(&json, "ms", product->seconds * 1e3);
        put_number(&json, "gflops", product->step->flops / product->seconds * 1e-9);
        cvy_json_end_object(&json);
    }
    cvy_json_end_array(&json);
    cvy_json_end_object(&json);
    cvy_text_puts(text, "\n");
}

static void write_text(const struct bench *bench, const struct round *round, struct cvy_text *text)
{
    const struct settings *s = &bench->settings;

    cvy_text_printf(text, "%s %s %s, batch %d, %d threads (%s), median of %d rounds\n", s->arch,
                    s->training ? "training" : "inference",
                    cvy_precision_name(bench->work.network.dtype, bench->device), s->batch, bench->device->threads,
                    bench->device->description, s->rounds);
    cvy_text_printf(text,
                    "peak      %.0f GFLOP/s in fp32, %.0f in bf16; memory: read %.1f, copy %.1f, triad %.1f GB/s\n",
                    round->limits.flops_f32 * 1e-9, round->limits.flops_bf16 * 1e-9, round->limits.read * 1e-9,
                    round->limits.copy * 1e-9, round->limits.triad * 1e-9);
    cvy_text_printf(text, "images    %s: %s\n", cvy_images_name(bench->plan->images), bench->plan->images_reason);
    cvy_text_printf(text, "kernels   %.1f ms, the best of each, %d operations (%.0f GFLOP/s)\n", round->kernels * 1e3,
                    (int)bench->product_count, bench->direct_flops / round->kernels * 1e-9);
    cvy_text_printf(text, "rest      %.1f ms for %.1f MiB\n", round->rest * 1e3, bench->rest_bytes / 1048576.0);
    cvy_text_printf(text, "limit     %.1f ms, %.2f images/s\n", (round->kernels + round->rest) * 1e3,
                    s->batch / (round->kernels + round->rest));
    cvy_text_printf(text, "step      %.1f ms, %.2f images/s: %.1f %% of the limit\n", round->step * 1e3,
                    s->batch / round->step, 100 * share(round));
}

/* ---- the program ---- */

static cvy_status open_work(const struct settings *s, const struct cvy_architecture *architecture, cvy_device **device,
                            struct cvy_workload *work)
{
    struct cvy_model_options model;
    enum cvy_dtype dtype;

    model = cvy_model_options_make(1000, s->image_size ? s->image_size : architecture->default_image_size);
    model.resnet.squeeze_width = architecture->squeeze_width;
    CVY_TRY(cvy_device_open("cpu", s->threads, device));
    CVY_TRY(cvy_precision_choose(s->precision, *device, &dtype));
    return cvy_workload_open(work, *device, architecture, &model, dtype, s->training, s->batch, NULL, NULL);
}

static cvy_status open_bench(struct bench *bench)
{
    const struct settings *s = &bench->settings;
    const struct cvy_architecture *architecture = cvy_architecture_find(s->arch);

    if (!architecture)
        return cvy_fail(CVY_USAGE, "option --arch: unknown network %s", cvy_quote(s->arch));
    CVY_TRY(open_work(s, architecture, &bench->device, &bench->work));
    if (setenv("CONVOY_CPU_PATTERNS", "never", 1) != 0 || setenv("CONVOY_CPU_CHAINS", "never", 1) != 0)
        return cvy_fail(CVY_FAILED, "the environment cannot be changed");
    CVY_TRY(open_work(s, architecture, &bench->bare_device, &bench->bare));
    return inspect_plan(bench);
}

static void close_bench(struct bench *bench)
{
    for (int32_t p = 0; p < bench->product_count; p++)
        cvy_free(bench->products[p].key);
    cvy_free(bench->products);
    cvy_free(bench->rounds);
    cvy_workload_close(&bench->work);
    cvy_workload_close(&bench->bare);
    cvy_device_close(bench->device);
    cvy_device_close(bench->bare_device);
}

static cvy_status measure(struct bench *bench)
{
    struct cvy_text text = {0};
    const int32_t rounds = bench->settings.rounds;

    CVY_TRY(open_bench(bench));
    CVY_TRY(cvy_workload_iterate(&bench->work)); /* sets up, warms up */
    for (int32_t r = 0; r < rounds; r++)
        CVY_TRY(run_round(bench, &bench->rounds[r]));
    qsort(bench->rounds, (size_t)rounds, sizeof *bench->rounds, by_share);
    if (bench->settings.json)
        write_json(bench, &bench->rounds[rounds / 2], &text);
    else
        write_text(bench, &bench->rounds[rounds / 2], &text);
    if (text.failed) {
        cvy_text_release(&text);
        return cvy_fail_memory(text.capacity, "the result");
    }
    fputs(text.text, stdout);
    cvy_text_release(&text);
    return CVY_OK;
}

static bool read_number(const char *text, int min, int max, int *number)
{
    char *end;
    const long value = strtol(text, &end, 10);

    *number = (int)value;
    return end != text && !*end && value >= min && value <= max;
}

static bool read_settings(int argc, char **argv, struct settings *s)
{
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        int number = 0;
        bool good = true;
        if (strcmp(name, "--json") == 0) {
            s->json = true;
            continue;
        }
        i++;
        if (strcmp(name, "--arch") == 0)
            s->arch = value;
        else if (strcmp(name, "--precision") == 0)
            s->precision = value;
        else if (strcmp(name, "--mode") == 0)
            good = (s->training = strcmp(value, "train") == 0) || strcmp(value, "infer") == 0;
        else if (strcmp(name, "--batch-size") == 0)
            good = read_number(value, 1, 65536, &s->batch);
        else if (strcmp(name, "--image-size") == 0)
            good = read_number(value, 32, 4096, &s->image_size);
        else if (strcmp(name, "--threads") == 0)
            good = read_number(value, 1, 4096, &s->threads);
        else if (strcmp(name, "--rounds") == 0)
            good = read_number(value, 1, 1000, &s->rounds);
        else if (strcmp(name, "--cache") == 0) {
            good = read_number(value, 0, 1 << 20, &number);
            s->cache = number * 1048576.0;
        } else
            good = false;
        if (!good) {
            fprintf(stderr, "limit: %s %s: see the top of bench/limit.c\n", name, value);
            return false;
        }
    }
    return true;
}

static void print_log(void *context, enum cvy_log_level level, const char *text)
{
    (void)context;
    if (level <= CVY_LOG_INFO)
        fprintf(stderr, "limit: %s\n", text);
}

int main(int argc, char **argv)
{
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    struct bench bench = {.settings = {.arch = "resnet50",
                                       .precision = "fp32",
                                       .training = true,
                                       .batch = 32,
                                       .rounds = 3,
                                       .cache = cache > 0 ? (double)cache : 0}};
    cvy_status status;

    if (!read_settings(argc, argv, &bench.settings))
        return CVY_USAGE;
    cvy_set_log_handler(print_log, NULL);
    status = measure(&bench);
    if (status != CVY_OK)
        fprintf(stderr, "limit: %s\n", cvy_error());
    close_bench(&bench);
    return status;
}
