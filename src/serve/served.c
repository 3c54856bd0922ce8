#include "serve/served.h"

#include <stdio.h>
#include <string.h>

#include "base/api.h"
#include "models/models.h"

/* ---- a job's memory ---- */

cvy_status cvy_job_prepare(struct cvy_job *job, const struct cvy_served *served)
{
    const size_t count = (size_t)job->count, classes = (size_t)served->classes;
    bool made =
        (job->status = cvy_calloc(count, sizeof *job->status)) && (job->errors = cvy_calloc(count, CVY_ERROR_SIZE));

    if (made && served->detects)
        made = (job->objects = cvy_calloc(count * CVY_DETECTED_OBJECTS_MAX, sizeof *job->objects)) &&
               (job->object_count = cvy_calloc(count, sizeof *job->object_count)) &&
               (job->width = cvy_calloc(count, sizeof *job->width)) &&
               (job->height = cvy_calloc(count, sizeof *job->height));
    else if (made)
        made = (job->logits = cvy_calloc(count * classes, sizeof *job->logits)) &&
               (job->probabilities = cvy_calloc(count * classes, sizeof *job->probabilities));
    return made ? CVY_OK : cvy_fail_memory(count * classes * 2 * sizeof(float), "the answers of a request");
}

void cvy_job_release(struct cvy_job *job)
{
    cvy_free(job->logits);
    cvy_free(job->probabilities);
    cvy_free(job->objects);
    cvy_free(job->object_count);
    cvy_free(job->width);
    cvy_free(job->height);
    cvy_free(job->status);
    cvy_free(job->errors);
    *job = (struct cvy_job){0};
}

char *cvy_job_error(const struct cvy_job *job, int image)
{
    return job->errors + (size_t)image * CVY_ERROR_SIZE;
}

/* ---- a batch ---- */

/* Jobs that are computed together, all of images or all of tensors. */
struct batch {
    struct cvy_job *first;
    int count; /* images */
    struct cvy_job all;
};

static size_t image_floats(const struct cvy_served *served)
{
    return 3 * (size_t)served->image_size * (size_t)served->image_size;
}

static cvy_status compute_job(struct cvy_served *served, const struct cvy_job *job)
{
    if (served->detects) {
        const struct cvy_detect_outputs outputs = {.size = sizeof outputs,
                                                   .objects = job->objects,
                                                   .count = job->object_count,
                                                   .width = job->width,
                                                   .height = job->height,
                                                   .status = job->status,
                                                   .errors = job->errors};
        return cvy_detect_images(served->detector, job->images, job->count, job->threshold, &outputs);
    }
    const struct cvy_outputs outputs = {.size = sizeof outputs,
                                        .logits = job->logits,
                                        .probabilities = job->probabilities,
                                        .status = job->status,
                                        .errors = job->errors};
    if (job->images)
        return cvy_classify_images(served->classifier, job->images, job->count, &outputs);
    const struct cvy_input_tensor tensor = {.size = sizeof tensor,
                                            .data = job->tensor,
                                            .order = CVY_ORDER_NCHW,
                                            .images = job->count,
                                            .height = served->image_size,
                                            .width = served->image_size};
    return cvy_classify_tensor(served->classifier, &tensor, &outputs);
}

/* Each image has a status of its own afterwards, also where the call has ended before it. */
static cvy_status compute(struct cvy_served *served, const struct cvy_job *job)
{
    cvy_status status;

    for (int i = 0; i < job->count; i++) {
        job->status[i] = CVY_FAILED;
        *cvy_job_error(job, i) = '\0';
    }
    status = compute_job(served, job);
    for (int i = 0; i < job->count; i++) {
        if (job->status[i] == CVY_OK || *cvy_job_error(job, i))
            continue;
        if (job->status[i] == CVY_FAILED && status != CVY_OK)
            job->status[i] = status;
        cvy_error_get(cvy_job_error(job, i), CVY_ERROR_SIZE);
    }
    return status;
}

/* What the jobs bring, one after the other. */
static cvy_status gather(const struct cvy_served *served, struct batch *batch)
{
    const size_t count = (size_t)batch->count, floats = image_floats(served);
    struct cvy_image *images = NULL;
    float *tensor = NULL;
    size_t at = 0;

    batch->all = (struct cvy_job){.count = batch->count, .threshold = 1};
    CVY_TRY(cvy_job_prepare(&batch->all, served));
    if (batch->first->images)
        batch->all.images = images = cvy_calloc(count, sizeof *images);
    else
        batch->all.tensor = tensor = cvy_calloc(count * floats, sizeof *tensor);
    if (!images && !tensor)
        return cvy_fail_memory(count * floats * sizeof(float), "a batch of requests");
    for (const struct cvy_job *job = batch->first; job; job = job->next) {
        if (images)
            memcpy(images + at, job->images, (size_t)job->count * sizeof *images);
        else
            memcpy(tensor + at * floats, job->tensor, (size_t)job->count * floats * sizeof *tensor);
        at += (size_t)job->count;
        if (job->threshold < batch->all.threshold)
            batch->all.threshold = job->threshold;
    }
    return CVY_OK;
}

static void copy(void *to, const void *from, size_t at, int count, size_t size)
{
    if (to)
        memcpy(to, (const char *)from + at * size, (size_t)count * size);
}

/* To each job its own. Objects lie by falling score: those below a job's threshold are the last ones. */
static void scatter(const struct cvy_served *served, const struct batch *batch)
{
    const struct cvy_job *all = &batch->all;
    const size_t row = (size_t)served->classes * sizeof(float);
    size_t at = 0;

    for (struct cvy_job *job = batch->first; job; job = job->next) {
        copy(job->status, all->status, at, job->count, sizeof *all->status);
        copy(job->errors, all->errors, at, job->count, CVY_ERROR_SIZE);
        copy(job->logits, all->logits, at, job->count, row);
        copy(job->probabilities, all->probabilities, at, job->count, row);
        copy(job->width, all->width, at, job->count, sizeof *all->width);
        copy(job->height, all->height, at, job->count, sizeof *all->height);
        copy(job->object_count, all->object_count, at, job->count, sizeof *all->object_count);
        copy(job->objects, all->objects, at, job->count, CVY_DETECTED_OBJECTS_MAX * sizeof *all->objects);
        for (int i = 0; job->objects && i < job->count; i++) {
            const struct cvy_detected_object *objects = job->objects + (size_t)i * CVY_DETECTED_OBJECTS_MAX;
            int *count = &job->object_count[i];
            while (*count > 0 && !(objects[*count - 1].score >= (float)job->threshold))
                --*count;
        }
        at += (size_t)job->count;
    }
}

/* For want of memory, say. */
static void fail_jobs(const struct batch *batch, cvy_status status)
{
    for (struct cvy_job *job = batch->first; job; job = job->next) {
        for (int i = 0; i < job->count; i++) {
            job->status[i] = status;
            cvy_error_get(cvy_job_error(job, i), CVY_ERROR_SIZE);
        }
    }
}

static void compute_batch(struct cvy_served *served, struct batch *batch)
{
    cvy_status status;

    if (!batch->first->next) {
        status = compute(served, batch->first);
    } else {
        status = gather(served, batch);
        if (status == CVY_OK) {
            status = compute(served, &batch->all);
            scatter(served, batch);
        } else {
            fail_jobs(batch, status);
        }
    }
    if (status != CVY_OK)
        cvy_log(CVY_LOG_DEBUG, "%s: %s", served->name, cvy_error());
    cvy_free((void *)(uintptr_t)batch->all.images);
    cvy_free((void *)(uintptr_t)batch->all.tensor);
    cvy_job_release(&batch->all);
}

static void count_batch(struct cvy_served *served, const struct batch *batch, double began, double ended)
{
    struct cvy_network_counts *counts = &served->counts;

    pthread_mutex_lock(&served->counting);
    cvy_metric_add(&counts->batches, batch->count);
    for (const struct cvy_job *job = batch->first; job; job = job->next) {
        cvy_metric_add(&counts->waiting, began - job->arrived);
        cvy_metric_add(&counts->computing, ended - began);
        for (int i = 0; i < job->count; i++) {
            if (job->status[i] == CVY_OK)
                counts->images++;
            else
                counts->refused_images++;
        }
    }
    pthread_mutex_unlock(&served->counting);
}

/* ---- the queue ---- */

/* How many images to take: as many as there are, but that batches are powers of two, or the largest one: of others a
 * part would be computed for nothing. */
static int batch_size(const struct cvy_served *served)
{
    int size = 1;

    if (served->waiting >= served->max_batch)
        return served->max_batch;
    while (2 * size <= served->waiting)
        size *= 2;
    return size;
}

/* Takes jobs of one kind from the front: at least one, and no more images than make a batch. There are some. */
static void take_jobs(struct cvy_served *served, struct batch *batch)
{
    pthread_mutex_lock(&served->mutex);
    const int most = batch_size(served);
    struct cvy_job **end = &served->first;

    *batch = (struct batch){.first = served->first};
    while (*end && (*end == batch->first ||
                    (batch->count + (*end)->count <= most && !(*end)->images == !batch->first->images))) {
        batch->count += (*end)->count;
        end = &(*end)->next;
    }
    served->first = *end;
    *end = NULL;
    if (!served->first)
        served->last = &served->first;
    served->waiting -= batch->count;
    pthread_mutex_unlock(&served->mutex);
}

/* Waits until a batch is due. False: the server ends and nothing waits any more. */
static bool wait_for_jobs(struct cvy_served *served)
{
    pthread_mutex_lock(&served->mutex);
    while (!served->first && served->state != CVY_SERVED_ENDING)
        pthread_cond_wait(&served->changed, &served->mutex);
    while (served->first && served->state != CVY_SERVED_ENDING && served->waiting < served->max_batch) {
        const double left = served->first->arrived + served->max_delay - cvy_clock();
        const struct timespec until = cvy_clock_after(left > 0 ? left : 0);

        if (left <= 0 || pthread_cond_timedwait(&served->changed, &served->mutex, &until) != 0)
            break;
    }
    const bool some = served->first != NULL;
    pthread_mutex_unlock(&served->mutex);
    return some;
}

/* What has come until other networks have had their turns is in the batch, too. */
static void run_batch(struct cvy_served *served)
{
    struct batch batch;

    cvy_turn_take(served->turn);
    take_jobs(served, &batch);
    const double began = cvy_clock();
    compute_batch(served, &batch);
    cvy_turn_give(served->turn);
    count_batch(served, &batch, began, cvy_clock());
    for (struct cvy_job *job = batch.first, *next; job; job = next) {
        next = job->next; /* the job is its owner's from here on */
        job->done(job->owner);
    }
}

cvy_status cvy_served_put(struct cvy_served *served, struct cvy_job *job)
{
    cvy_status status = CVY_OK;

    job->next = NULL;
    pthread_mutex_lock(&served->mutex);
    if (served->state != CVY_SERVED_READY) {
        status = cvy_fail(CVY_UNAVAILABLE, "the server is ending");
    } else if (served->waiting > 0 && served->waiting + job->count > served->max_queue) {
        status = cvy_fail(CVY_UNAVAILABLE, "too many images wait for %s: try again later", served->name);
    } else {
        job->arrived = cvy_clock();
        *served->last = job;
        served->last = &job->next;
        served->waiting += job->count;
        pthread_cond_signal(&served->changed);
    }
    pthread_mutex_unlock(&served->mutex);
    return status;
}

/* ---- loading ---- */

static cvy_status open_network(struct cvy_served *served)
{
    const struct cvy_architecture *architecture;
    cvy_classifier *classifier;

    CVY_TRY(cvy_classifier_open(&served->options, &classifier));
    architecture = cvy_architecture_find(cvy_classifier_arch(classifier));
    served->detects = architecture && architecture->task == CVY_TASK_DETECT;
    if (served->detects) {
        cvy_classifier_close(classifier);
        CVY_TRY(cvy_detector_open(&served->options, &served->detector));
        served->arch = cvy_detector_arch(served->detector);
        served->classes = cvy_detector_classes(served->detector);
    } else {
        served->classifier = classifier;
        served->arch = cvy_classifier_arch(classifier);
        served->classes = cvy_classifier_classes(classifier);
        served->image_size = cvy_classifier_image_size(classifier);
    }
    return CVY_OK;
}

/* Computes black images of every batch size, so that no request waits for kernels to be chosen. */
static cvy_status warm_up(struct cvy_served *served)
{
    enum { SIDE = 32 };
    static const uint8_t black[3 * SIDE * SIDE];
    const struct cvy_pixels pixels = {sizeof pixels, black, CVY_PIXELS_RGB, SIDE, SIDE, 0};
    const size_t count = (size_t)served->max_batch;
    struct cvy_image *images = cvy_calloc(count, sizeof *images);
    float *tensor = served->detects ? NULL : cvy_calloc(count, image_floats(served) * sizeof *tensor);
    struct cvy_job job = {.count = served->max_batch, .threshold = 1};
    cvy_status status = CVY_OK;

    if (!images || (!served->detects && !tensor))
        status = cvy_fail_memory(count * sizeof *images, "a batch of images");
    if (status == CVY_OK)
        status = cvy_job_prepare(&job, served);
    for (size_t i = 0; images && i < count; i++) {
        images[i] = CVY_SIZED(cvy_image);
        images[i].pixels = &pixels;
    }
    for (int batch = 1, last = 0; status == CVY_OK && last < served->max_batch; last = batch, batch *= 2) {
        if (batch > served->max_batch)
            batch = served->max_batch;
        job.count = batch;
        job.images = images;
        status = compute(served, &job);
        job.images = NULL;
        job.tensor = tensor;
        if (status == CVY_OK && tensor)
            status = compute(served, &job);
    }
    cvy_free(images);
    cvy_free(tensor);
    cvy_job_release(&job);
    return status;
}

static void *serve(void *argument)
{
    struct cvy_served *served = argument;
    cvy_status status;

    cvy_turn_take(served->turn);
    status = open_network(served);
    if (status == CVY_OK)
        status = warm_up(served);
    cvy_turn_give(served->turn);
    pthread_mutex_lock(&served->mutex);
    served->failed = status;
    cvy_error_get(served->failure, sizeof served->failure);
    if (served->state == CVY_SERVED_LOADING)
        served->state = status == CVY_OK ? CVY_SERVED_READY : CVY_SERVED_FAILED;
    pthread_cond_broadcast(&served->changed);
    pthread_mutex_unlock(&served->mutex);
    while (status == CVY_OK && wait_for_jobs(served))
        run_batch(served);
    return NULL;
}

cvy_status cvy_served_init(struct cvy_served *served, const char *name, const struct cvy_classifier_options *options)
{
    pthread_condattr_t attributes;

    served->options = *options;
    served->name = cvy_strdup(name);
    if (!served->name)
        return cvy_fail_memory(strlen(name), "a network's name");
    served->last = &served->first;
    served->counts.waiting.bounds = served->counts.computing.bounds = cvy_metric_seconds;
    served->counts.batches.bounds = cvy_metric_images;
    pthread_mutex_init(&served->counting, NULL);
    pthread_mutex_init(&served->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&served->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    return CVY_OK;
}

cvy_status cvy_served_start(struct cvy_served *served)
{
    served->started = cvy_thread_start(&served->thread, serve, served);
    return served->started ? CVY_OK : cvy_fail(CVY_FAILED, "a network's thread cannot be started");
}

cvy_status cvy_served_wait(struct cvy_served *served)
{
    cvy_status status;

    pthread_mutex_lock(&served->mutex);
    while (served->state == CVY_SERVED_LOADING)
        pthread_cond_wait(&served->changed, &served->mutex);
    status = served->failed;
    if (status != CVY_OK)
        cvy_error_put(served->failure);
    pthread_mutex_unlock(&served->mutex);
    return status;
}

void cvy_served_end(struct cvy_served *served)
{
    if (!served->started)
        return;
    pthread_mutex_lock(&served->mutex);
    served->state = CVY_SERVED_ENDING;
    pthread_cond_broadcast(&served->changed);
    pthread_mutex_unlock(&served->mutex);
    pthread_join(served->thread, NULL);
    served->started = false;
}

void cvy_served_release(struct cvy_served *served)
{
    cvy_served_end(served);
    cvy_classifier_close(served->classifier);
    cvy_detector_close(served->detector);
    if (served->last) {
        pthread_cond_destroy(&served->changed);
        pthread_mutex_destroy(&served->mutex);
        pthread_mutex_destroy(&served->counting);
    }
    cvy_free(served->name);
    *served = (struct cvy_served){0};
}

/* ---- metrics ---- */

void cvy_served_counts(struct cvy_served *served, struct cvy_network_counts *counts)
{
    pthread_mutex_lock(&served->counting);
    *counts = served->counts;
    pthread_mutex_unlock(&served->counting);
    pthread_mutex_lock(&served->mutex);
    counts->in_queue = served->waiting;
    pthread_mutex_unlock(&served->mutex);
}
