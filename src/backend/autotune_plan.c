/* Decisions about whole plans, kept beside those about operations: the same pins, file and list of what is in use. */
#include <stdio.h>
#include <string.h>

#include "backend/autotune_internal.h"

/* Whether the entry answers this question: all names, in their order. */
static bool answers(const struct autotune_measurement *entry, const struct cvy_autotune_question *question)
{
    bool all = entry->count == question->count;

    for (int i = 0; all && i < question->count; i++)
        all = (size_t)entry->candidates[i].length == strlen(question->names[i]) &&
              strncmp(entry->candidates[i].row, question->names[i], (size_t)entry->candidates[i].length) == 0;
    return all;
}

static int pinned_answer(struct cvy_autotuner *autotuner, const struct cvy_autotune_question *question, char *reason)
{
    const char *pinned = cvy_cache_find(&autotuner->pinned, question->key);

    for (int i = 0; pinned && i < question->count; i++) {
        if (strcmp(pinned, question->names[i]) == 0) {
            snprintf(reason, CVY_AUTOTUNE_REASON, "as %s", autotuner->pinned_where);
            return i;
        }
    }
    return -1;
}

static int measured_answer(struct cvy_autotuner *autotuner, const struct cvy_autotune_question *question, bool timing,
                           char *reason)
{
    struct autotune_measurement entry;
    const char *kept;
    int used;

    cvy_cache_load(&autotuner->measured);
    kept = cvy_cache_find(&autotuner->measured.table, question->key);
    if (!kept || !autotune_read(kept, &entry) || !answers(&entry, question))
        return -1;
    if (timing && autotune_is_stale(autotuner, question->key, &entry))
        return -1;
    used = snprintf(reason, CVY_AUTOTUNE_REASON, "timed %.4g ms",
                    (double)entry.candidates[entry.chosen].nanoseconds * 1e-6);
    for (int i = 0; i < question->count && used > 0 && used < CVY_AUTOTUNE_REASON; i++) {
        if (i != entry.chosen && entry.candidates[i].nanoseconds < 0)
            used += snprintf(reason + used, (size_t)(CVY_AUTOTUNE_REASON - used), "; %s could not be timed",
                             question->names[i]);
        else if (i != entry.chosen)
            used += snprintf(reason + used, (size_t)(CVY_AUTOTUNE_REASON - used), "; %s %.4g ms", question->names[i],
                             (double)entry.candidates[i].nanoseconds * 1e-6);
    }
    if (entry.busy && used > 0 && used < CVY_AUTOTUNE_REASON)
        snprintf(reason + used, (size_t)(CVY_AUTOTUNE_REASON - used), "; under load");
    return entry.chosen;
}

int cvy_autotuner_answer(struct cvy_autotuner *autotuner, const struct cvy_autotune_question *question, bool timing,
                         char reason[CVY_AUTOTUNE_REASON])
{
    int answer;

    pthread_mutex_lock(&autotuner->lock);
    answer = pinned_answer(autotuner, question, reason);
    if (answer < 0 && !autotuner->first)
        answer = measured_answer(autotuner, question, timing, reason);
    pthread_mutex_unlock(&autotuner->lock);
    return answer;
}

bool cvy_autotuner_may_time(struct cvy_autotuner *autotuner)
{
    bool may;

    pthread_mutex_lock(&autotuner->lock);
    may = !autotuner->first && !autotuner->frozen && autotuner->pinned.count == 0;
    pthread_mutex_unlock(&autotuner->lock);
    return may;
}

cvy_status cvy_autotuner_remember(struct cvy_autotuner *autotuner, const struct cvy_autotune_question *question,
                                  const double *seconds, int chosen, bool clean)
{
    struct autotune_measurement entry = {.count = question->count, .chosen = chosen};
    cvy_status status;

    for (int i = 0; i < question->count; i++)
        entry.candidates[i] = (struct autotune_timing){question->names[i], (int)strlen(question->names[i]),
                                                       (int64_t)(seconds[i] * 1e9 + 0.5)};
    pthread_mutex_lock(&autotuner->lock);
    status = autotune_keep(autotuner, question->key, &entry, clean);
    if (status == CVY_OK)
        cvy_cache_save(&autotuner->measured);
    pthread_mutex_unlock(&autotuner->lock);
    return status;
}

cvy_status cvy_autotuner_use(struct cvy_autotuner *autotuner, const char *key, const char *name)
{
    cvy_status status;

    pthread_mutex_lock(&autotuner->lock);
    status = cvy_cache_put(&autotuner->used, key, name);
    pthread_mutex_unlock(&autotuner->lock);
    return status;
}
