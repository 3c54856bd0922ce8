#include "serve/answers.h"

#include "base/api.h"

static void put_classes(struct cvy_json *json, const struct cvy_served *served, const struct cvy_job *job, int image,
                        const struct cvy_answer_options *options)
{
    const size_t row = (size_t)image * (size_t)served->classes;
    const float *probabilities = job->probabilities + row;
    int *best = cvy_calloc((size_t)options->topk, sizeof *best);
    const int count = best ? cvy_top_k(probabilities, served->classes, options->topk, best) : 0;

    if (!best)
        json->text->failed = true;
    cvy_json_key(json, "predictions");
    cvy_json_begin_array(json);
    for (int k = 0; k < count; k++) {
        cvy_json_begin_object(json);
        cvy_json_put_int(json, "index", best[k]);
        cvy_json_put_string(json, "class", cvy_classifier_class_name(served->classifier, best[k]));
        cvy_json_key(json, "probability");
        cvy_json_float(json, probabilities[best[k]]);
        cvy_json_end_object(json);
    }
    cvy_json_end_array(json);
    cvy_free(best);
    if (!options->with_logits)
        return;
    cvy_json_key(json, "logits");
    cvy_json_begin_array(json);
    for (int i = 0; i < served->classes; i++)
        cvy_json_float(json, job->logits[row + (size_t)i]);
    cvy_json_end_array(json);
}

static void put_objects(struct cvy_json *json, const struct cvy_job *job, int image)
{
    const struct cvy_detected_object *objects = job->objects + (size_t)image * CVY_DETECTED_OBJECTS_MAX;

    cvy_json_put_int(json, "width", job->width[image]);
    cvy_json_put_int(json, "height", job->height[image]);
    cvy_json_key(json, "detections");
    cvy_json_begin_array(json);
    for (int i = 0; i < job->object_count[image]; i++) {
        cvy_json_begin_object(json);
        cvy_json_put_int(json, "class_id", objects[i].class_id);
        cvy_json_put_string(json, "class", objects[i].class_name);
        cvy_json_key(json, "score");
        cvy_json_float(json, objects[i].score);
        cvy_json_key(json, "bbox");
        cvy_json_begin_array(json);
        for (int k = 0; k < 4; k++)
            cvy_json_float(json, objects[i].box[k]);
        cvy_json_end_array(json);
        cvy_json_end_object(json);
    }
    cvy_json_end_array(json);
}

void cvy_answers_put(struct cvy_text *text, const struct cvy_served *served, const struct cvy_job *job,
                     const struct cvy_answer_options *options)
{
    struct cvy_json json = {.text = text};

    cvy_json_begin_array(&json);
    for (int i = 0; i < job->count; i++) {
        cvy_json_begin_object(&json);
        cvy_json_put_string(&json, "file", job->images[i].name);
        if (job->status[i] != CVY_OK)
            cvy_json_put_string(&json, "error", cvy_job_error(job, i));
        else if (served->detects)
            put_objects(&json, job, i);
        else
            put_classes(&json, served, job, i, options);
        cvy_json_end_object(&json);
    }
    cvy_json_end_array(&json);
}

void cvy_answers_put_error(struct cvy_text *text, const char *sentence)
{
    struct cvy_json json = {.text = text};

    cvy_json_begin_object(&json);
    cvy_json_put_string(&json, "error", sentence);
    cvy_json_end_object(&json);
}
