/* Autotuning of convolutions: the plan an earlier run found fastest, else the fastest of a few that are timed now, else
 * (where nothing can be timed) the first that can be made. */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cudnn/cudnn_engine.h"
#include "base/log.h"

enum {
    MAX_FIRST = 12, /* plans that are timed, of those that cuDNN names first */
    MAX_SECOND = 4, /* and of those that only its other heuristics name */
    MAX_TIMED_CANDIDATES = MAX_FIRST + MAX_SECOND,
    MAX_PER_FORM = 6,  /* while there are others */
    MAX_PER_ENGINE = 4 /* of a form: cuDNN likes to name one engine in a dozen variants */
};
/* A plan that needs more working memory is taken only where there is no other: it would be the peak of the run. */
static const size_t max_workspace = (size_t)1 << 30;

/* ---- problems ---- */

void cudnn_problem_key(const struct gpu_conv_problem *p, struct cvy_text *key)
{
    static const char *const passes[] = {
        [GPU_CONV_FORWARD] = "forward", [GPU_CONV_DATA] = "data", [GPU_CONV_WEIGHTS] = "weights"};
    /* Separate statistics are made by a kernel of ours, whose time is kept with the engine's: a new number for a new
     * one. */
    static const char *const statistics[] = {[GPU_STATISTICS_NONE] = "",
                                             [GPU_STATISTICS_SEPARATE] = " statistics 2",
                                             [GPU_STATISTICS_FUSED] = " statistics fused"};
    static const char *const parts[] = {[GPU_PART_NONE] = "", [GPU_PART_SEPARATE] = "", [GPU_PART_FUSED] = " fused"};

    cvy_text_printf(key, "%s %s n%lld c%lld h%lld w%lld k%lld p%lld q%lld r%d s%d", passes[p->pass],
                    cvy_dtype_name(p->dtype), (long long)p->n, (long long)p->c, (long long)p->h, (long long)p->w,
                    (long long)p->k, (long long)p->p, (long long)p->q, p->r, p->s);
    cvy_text_printf(key, " stride%d,%d dilation%d,%d pad%d,%d,%d,%d groups%d", p->stride[0], p->stride[1],
                    p->dilation[0], p->dilation[1], p->pad[0], p->pad[1], p->pad[2], p->pad[3], p->groups);
    cvy_text_printf(key, "%s%s%s%s%s", p->bias ? " bias" : "", p->residual ? " residual" : "",
                    cvy_activation_text(p->activation), statistics[p->statistics], p->tf32 ? " tf32" : "");
    if (p->any_order)
        cvy_text_puts(key, " any order");
    if (p->prologue != GPU_PART_NONE)
        cvy_text_printf(key, " prologue%s", parts[p->prologue]);
    if (p->gradient_sums != GPU_PART_NONE)
        cvy_text_printf(key, " sums%s%s", parts[p->gradient_sums], p->unmasked ? " unmasked" : "");
}

/* The ways to do it, the preferred one first. Returns how many. */
static int forms_of(const struct gpu_conv_problem *problem, enum cudnn_form forms[CUDNN_FORMS])
{
    int count = 0;

    if (problem->prologue == GPU_PART_FUSED) {
        forms[count++] = CUDNN_FORM_PROLOGUE;
        return count;
    }
    if (problem->gradient_sums == GPU_PART_FUSED) {
        forms[count++] = CUDNN_FORM_GRADIENT_SUMS;
        return count;
    }
    if (problem->statistics == GPU_STATISTICS_FUSED) {
        forms[count++] = CUDNN_FORM_SUMS;
        return count;
    }
    if (problem->pass != GPU_CONV_FORWARD ||
        (!problem->bias && !problem->residual && problem->activation == CVY_ACTIVATION_NONE)) {
        forms[count++] = CUDNN_FORM_ALONE;
        return count;
    }
    if (problem->activation == CVY_ACTIVATION_RELU6) { /* the compiled engines know no ceiling */
        forms[count++] = CUDNN_FORM_SEPARATE;
        return count;
    }
    if (problem->bias && problem->dtype != CVY_F32)
        forms[count++] = CUDNN_FORM_NARROW;
    forms[count++] = CUDNN_FORM_WIDE;
    forms[count++] = CUDNN_FORM_SEPARATE;
    return count;
}

/* ---- candidates ---- */

struct candidates {
    struct cudnn_plan plans[MAX_TIMED_CANDIDATES];
    uint64_t hashes[MAX_TIMED_CANDIDATES];
    int count, max;
    int proposed; /* by cuDNN, that may be used */
};

static void close_all_but(const struct gpu_libraries *libraries, struct candidates *candidates, int kept)
{
    for (int i = 0; i < candidates->count; i++) {
        if (i != kept)
            cudnn_plan_close(libraries, &candidates->plans[i]);
    }
    candidates->count = 0;
}

/* For convolutions that sum their output, or follow a batch norm, some engines are specialised in that, use
 * tensor cores without a note of it, and are there already; another engine for them is compiled for a second. */
static bool has_specialists(enum cudnn_form form)
{
    return form == CUDNN_FORM_SUMS || form == CUDNN_FORM_PROLOGUE || form == CUDNN_FORM_GRADIENT_SUMS;
}

/* All that there is to choose from with specialists is one engine in 9 to 12 variants: tiles, and how they are shared
 * out. */
static bool one_too_many(const struct candidates *candidates, enum cudnn_form form, int64_t engine)
{
    int same = 0;

    if (has_specialists(form))
        return false;
    for (int i = 0; i < candidates->count; i++)
        same += candidates->plans[i].form == form && candidates->plans[i].engine == engine;
    return same >= MAX_PER_ENGINE;
}

/* What is looked for, one after the other until there is something. */
enum round {
    ROUND_TENSOR_CORES, /* of 16 bits where nothing is timed: cuDNN's order now and then begins with another kind */
    ROUND_USUAL,
    ROUND_LARGE_WORKSPACE, /* also what needs very much working memory */
    ROUNDS
};

/* Whether the plan is not worth its making. */
static bool passed_over(const struct candidates *candidates, enum cudnn_form form, enum round round,
                        const struct cudnn_config *config)
{
    if (has_specialists(form) && config->compiled && candidates->count > 0 && !candidates->plans[0].compiled)
        return true;
    if (round == ROUND_TENSOR_CORES && !config->tensor_cores && (!has_specialists(form) || config->compiled))
        return true;
    return one_too_many(candidates, form, config->engine);
}

/* Whether the plan gave wrong results or faulted before. */
static bool is_refused(const struct gpu_libraries *libraries, const char *key, const struct cudnn_plan *plan)
{
    const struct cudnn_faults *faults = &libraries->convolutions->faults;
    char *name = faults->refused ? cudnn_faults_name(libraries, key, plan) : NULL;
    const bool refused = cudnn_faults_refuses(faults, name);

    cvy_free(name);
    return refused;
}

/* Whether cuDNN has named it before: its heuristics agree on most. */
static bool is_double(const struct candidates *candidates, const struct cudnn_plan *plan, uint64_t hash)
{
    for (int i = 0; i < candidates->count; i++) {
        if (candidates->plans[i].form == plan->form && candidates->hashes[i] == hash)
            return true;
    }
    return false;
}

/* A fingerprint of the plan by its JSON; where that cannot be written, a number that no other of the form has. */
static uint64_t hash_of(const struct gpu_libraries *libraries, const struct cudnn_plan *plan, int unique)
{
    uint64_t hash = (uint64_t)unique;
    char *json;

    if (cudnn_plan_save(libraries, plan, &json) == CVY_OK) {
        hash = cvy_hash(json, strlen(json));
        cvy_free(json);
    }
    return hash;
}

/* Whether the plan, which is ready, is not to be timed. */
static bool is_rejected(const struct gpu_libraries *libraries, const char *key, enum round round,
                        const struct candidates *candidates, const struct cudnn_plan *plan, uint64_t hash)
{
    return (plan->workspace > max_workspace && round != ROUND_LARGE_WORKSPACE) || is_double(candidates, plan, hash) ||
           is_refused(libraries, key, plan);
}

/* Adds plans of one form, at most `max`, and MAX_SECOND more that the other heuristics alone name. */
static cvy_status add_form(const struct gpu_libraries *libraries, const struct gpu_conv_problem *problem,
                           const char *key, enum cudnn_form form, int max, enum round round,
                           struct candidates *candidates)
{
    cudnnBackendDescriptor_t graph = NULL;
    struct cudnn_configs configs;
    int added[2] = {0, 0};

    CVY_TRY(cudnn_graph_make(libraries, problem, form, &graph));
    cudnn_configs_find(libraries, problem, graph, candidates->max > 1, &configs);
    (void)libraries->cudnn.cudnnBackendDestroyDescriptor(graph);
    candidates->proposed += configs.count;
    for (int i = 0; i < configs.count && candidates->count < candidates->max; i++) {
        const bool second = configs.list[i].second;
        struct cudnn_plan plan;
        uint64_t hash;
        if (added[second] == (second ? MAX_SECOND : max) || passed_over(candidates, form, round, &configs.list[i]))
            continue;
        if (cudnn_plan_make(libraries, &configs.list[i], &plan) != CVY_OK) {
            cvy_log(CVY_LOG_DEBUG, "%s", cvy_error());
            continue;
        }
        plan.form = form;
        hash = candidates->max > 1 ? hash_of(libraries, &plan, i) : 0;
        if (is_rejected(libraries, key, round, candidates, &plan, hash)) {
            cudnn_plan_close(libraries, &plan);
            continue;
        }
        candidates->hashes[candidates->count] = hash;
        candidates->plans[candidates->count++] = plan;
        added[second]++;
    }
    cudnn_configs_close(libraries, &configs);
    return CVY_OK;
}

/* Plans for the problem, at most `max`; CVY_UNAVAILABLE when there are none. */
static cvy_status find_candidates(const struct gpu_libraries *libraries, const struct gpu_conv_problem *problem,
                                  const char *key, int max, struct candidates *candidates)
{
    enum cudnn_form forms[CUDNN_FORMS];
    const int count = forms_of(problem, forms);

    *candidates = (struct candidates){.max = max};
    for (int round = max == 1 && problem->dtype != CVY_F32 ? ROUND_TENSOR_CORES : ROUND_USUAL;
         round < ROUNDS && candidates->count == 0; round++) {
        candidates->proposed = 0;
        for (int i = 0; i < count && candidates->count < max; i++) {
            const int max_here = count > 1 ? MAX_PER_FORM : max > MAX_FIRST ? MAX_FIRST : max;
            const cvy_status status =
                add_form(libraries, problem, key, forms[i], max_here, (enum round)round, candidates);
            if (status != CVY_OK && status != CVY_UNAVAILABLE) {
                close_all_but(libraries, candidates, -1);
                return status;
            }
        }
    }
    if (candidates->count > 0)
        return CVY_OK;
    return cvy_fail(CVY_UNAVAILABLE, "cuDNN has no kernel for this convolution that may be used (%d were proposed)",
                    candidates->proposed);
}

/* ---- what fused kernels are compared with ---- */

static cvy_status find_reference(struct gpu_device *device, const struct gpu_conv_problem *problem,
                                 const struct candidates *candidates, struct cudnn_reference *reference)
{
    const struct cudnn_tuned *separate;
    cvy_status status;

    *reference = (struct cudnn_reference){.problem = *problem};
    if (!device->compares)
        return CVY_OK;
    for (int i = 0; i < candidates->count && !reference->plan; i++) {
        if (candidates->plans[i].form == CUDNN_FORM_SEPARATE)
            reference->plan = &candidates->plans[i];
    }
    if (problem->statistics != GPU_STATISTICS_FUSED && problem->prologue != GPU_PART_FUSED &&
        problem->gradient_sums != GPU_PART_FUSED)
        return CVY_OK;
    if (problem->statistics == GPU_STATISTICS_FUSED)
        reference->problem.statistics = GPU_STATISTICS_SEPARATE;
    if (problem->prologue == GPU_PART_FUSED)
        reference->problem.prologue = GPU_PART_SEPARATE;
    if (problem->gradient_sums == GPU_PART_FUSED)
        reference->problem.gradient_sums = GPU_PART_SEPARATE;
    status = cudnn_choose_locked(device, &reference->problem, &separate);
    if (status == CVY_OK)
        reference->plan = &separate->plan;
    return status == CVY_UNAVAILABLE ? CVY_OK : status;
}

static void remember(struct gpu_device *device, const struct cudnn_tuned *choice)
{
    const struct cudnn_cache_entry record = {
        .key = choice->key,
        .form = choice->plan.form,
        .engine = choice->plan.engine,
        .tensor_cores = choice->plan.tensor_cores,
        .compiled = choice->plan.compiled,
        .compared = choice->plan.compared,
        .candidates = choice->candidates,
        .nanoseconds = (int64_t)(1e9 * choice->seconds + 0.5),
    };
    char *json;

    if (cudnn_plan_save(device->libraries, &choice->plan, &json) != CVY_OK) {
        cvy_log(CVY_LOG_WARNING, "a kernel that was found fastest is not kept: %s", cvy_error());
        return;
    }
    cudnn_cache_add(&device->libraries->convolutions->cache, &record, json);
    cvy_free(json);
}

/* Whether what an earlier run kept is to be compared first: it was taken for its speed alone, or where there was no
 * memory to compare it in. */
static bool wants_comparison(const struct gpu_device *device, const struct cudnn_cache_entry *record)
{
    return device->compares && !record->compared && record->form != CUDNN_FORM_ALONE &&
           record->form != CUDNN_FORM_SEPARATE;
}

/* What an earlier run found, if it can be made again. For a dry run it stands for what will be found. */
static bool recall(struct gpu_device *device, struct cudnn_tuned *choice)
{
    const struct cvy_cache *cache = &device->libraries->convolutions->cache;
    struct cudnn_cache_entry record;
    char *json = cudnn_cache_find(cache, choice->key, &record) ? cudnn_cache_plan(cache, &record) : NULL;
    cvy_status status;

    if (json && wants_comparison(device, &record)) {
        choice->provisional = device->base.dry_run;
        if (!choice->provisional) {
            cvy_free(json);
            return false;
        }
    }
    if (!json)
        return false;
    choice->plan = (struct cudnn_plan){.form = record.form,
                                       .engine = record.engine,
                                       .tensor_cores = record.tensor_cores,
                                       .compiled = record.compiled,
                                       .compared = record.compared};
    status = cudnn_plan_load(device->libraries, json, &choice->plan);
    cvy_free(json);
    if (status != CVY_OK) {
        cvy_log(CVY_LOG_WARNING, "a kept plan is not used: %s", cvy_error());
        return false;
    }
    choice->candidates = record.candidates;
    choice->seconds = 1e-9 * (double)record.nanoseconds;
    choice->remembered = true;
    return true;
}

/* A problem for which there are only plans that gave wrong results: its record has no time. */
static void remember_failure(struct gpu_libraries *libraries, const char *key)
{
    const struct cudnn_cache_entry record = {.key = key};

    cudnn_cache_add(&libraries->convolutions->cache, &record, "{}");
}

static bool has_failed(const struct gpu_libraries *libraries, const char *key)
{
    struct cudnn_cache_entry record;

    return cudnn_cache_find(&libraries->convolutions->cache, key, &record) && record.candidates == 0;
}

static cvy_status decide(struct gpu_device *device, const struct gpu_conv_problem *problem, struct cudnn_tuned *choice)
{
    struct gpu_libraries *libraries = device->libraries;
    const bool timing = libraries->timing && !device->base.dry_run;
    const int refused = libraries->convolutions->faults.refused;
    struct cudnn_reference reference;
    struct candidates candidates;
    int chosen = 0;
    cvy_status status = CVY_OK;

    if (libraries->timing && has_failed(libraries, choice->key))
        return cvy_fail(CVY_UNAVAILABLE, "no kernel of cuDNN gave the results of separate kernels in an earlier run");
    if (libraries->timing && recall(device, choice))
        return CVY_OK;
    choice->provisional = libraries->timing && !timing;
    CVY_TRY(find_candidates(libraries, problem, choice->key, timing ? MAX_TIMED_CANDIDATES : 1, &candidates));
    if (timing && libraries->convolutions->timed++ == 0)
        cvy_log(CVY_LOG_INFO, "timing cuDNN's kernels for this network; the fastest are kept for later runs");
    if (timing)
        status = find_reference(device, problem, &candidates, &reference);
    if (timing && status == CVY_OK)
        status = cudnn_find_fastest(device, problem, choice->key, &reference, candidates.plans, candidates.count,
                                    &chosen, &choice->seconds);
    if (status == CVY_UNAVAILABLE && libraries->convolutions->faults.refused > refused)
        remember_failure(libraries, choice->key);
    if (status != CVY_OK) {
        close_all_but(libraries, &candidates, -1);
        return status;
    }
    choice->candidates = choice->seconds > 0 ? candidates.count : candidates.proposed;
    choice->plan = candidates.plans[chosen];
    close_all_but(libraries, &candidates, chosen);
    if (choice->seconds > 0)
        remember(device, choice);
    return CVY_OK;
}

/* ---- of a device ---- */

cvy_status cudnn_autotuner_open(struct gpu_device *device)
{
    struct gpu_libraries *libraries = device->libraries;
    struct cvy_text identity = {0};
    cvy_status status = CVY_OK;

    libraries->convolutions = cvy_calloc(1, sizeof *libraries->convolutions);
    if (!libraries->convolutions)
        return cvy_fail_memory(sizeof *libraries->convolutions, "the autotuner of convolutions");
    if (!libraries->timing)
        return CVY_OK;
    cvy_text_printf(&identity, "%s, compute capability %d.%d, %d processors; cuDNN %zu; Convoy %s", device->info.name,
                    device->info.major, device->info.minor, device->info.processors, libraries->cudnn_version,
                    CONVOY_VERSION);
    status = identity.failed ? cvy_fail_memory(identity.capacity, "the name of a GPU")
                             : cudnn_cache_open(&libraries->convolutions->cache, identity.text);
    cvy_text_release(&identity);
    if (status == CVY_OK)
        status = cudnn_faults_open(&libraries->convolutions->faults, &libraries->convolutions->cache);
    return status;
}

static void autotune_free(const struct gpu_libraries *libraries, struct cudnn_tuned *choice)
{
    if (!choice)
        return;
    cudnn_plan_close(libraries, &choice->plan);
    cvy_free(choice->key);
    cvy_free(choice);
}

void cudnn_autotuner_close(struct gpu_device *device)
{
    struct cudnn_autotuner *autotuner = device->libraries->convolutions;

    if (!autotuner)
        return;
    for (struct cudnn_tuned *choice = autotuner->first, *next; choice; choice = next) {
        next = choice->next;
        autotune_free(device->libraries, choice);
    }
    cudnn_faults_close(&autotuner->faults);
    cvy_cache_save(&autotuner->cache);
    cvy_cache_close(&autotuner->cache);
    cvy_free(autotuner);
    device->libraries->convolutions = NULL;
}

/* With the lock held. Decides about another problem, what is fused in this one by separate kernels, on its way. */
cvy_status cudnn_choose_locked(struct gpu_device *device, const struct gpu_conv_problem *problem,
                               const struct cudnn_tuned **choice)
{
    struct cudnn_autotuner *autotuner = device->libraries->convolutions;
    struct cudnn_tuned *made = NULL;
    struct cvy_text key = {0};
    cvy_status status;

    *choice = NULL;
    cudnn_problem_key(problem, &key);
    if (key.failed) {
        status = cvy_fail_memory(key.capacity, "the key of a convolution");
        goto fail;
    }
    for (const struct cudnn_tuned *at = autotuner->first; at && !*choice; at = at->next) {
        if (strcmp(at->key, key.text) == 0 && (!at->provisional || device->base.dry_run))
            *choice = at;
    }
    if (*choice) {
        cvy_text_release(&key);
        return CVY_OK;
    }
    made = cvy_calloc(1, sizeof *made);
    if (!made) {
        status = cvy_fail_memory(sizeof *made, "a convolution");
        goto fail;
    }
    made->key = key.text;
    key = (struct cvy_text){0};
    status = decide(device, problem, made);
    if (status != CVY_OK) {
        (void)cvy_fail_context(status, "%s", made->key);
        goto fail;
    }
    made->next = autotuner->first;
    *choice = autotuner->first = made;
    return CVY_OK;
fail:
    cvy_text_release(&key);
    autotune_free(device->libraries, made);
    return status;
}

cvy_status cudnn_choose(struct gpu_device *device, const struct gpu_conv_problem *problem,
                        const struct cudnn_tuned **choice)
{
    cvy_status status;

    pthread_mutex_lock(&device->libraries->lock);
    status = cudnn_choose_locked(device, problem, choice);
    pthread_mutex_unlock(&device->libraries->lock);
    return status;
}

bool gpu_conv_is_timed(struct gpu_device *device, const struct gpu_conv_problem *problem)
{
    const struct gpu_libraries *libraries = device->libraries;
    struct cvy_text key = {0};
    struct cudnn_cache_entry record;
    bool known;

    if (!libraries->timing || !device->base.dry_run)
        return libraries->timing;
    cudnn_problem_key(problem, &key);
    pthread_mutex_lock(&device->libraries->lock);
    known = !key.failed && cudnn_cache_find(&libraries->convolutions->cache, key.text, &record);
    pthread_mutex_unlock(&device->libraries->lock);
    cvy_text_release(&key);
    return known;
}
