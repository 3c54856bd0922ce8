/* Answers in the words of `convoy classify` and `convoy detect` --format json. */
#ifndef CVY_SERVE_ANSWERS_H
#define CVY_SERVE_ANSWERS_H

#include <stdbool.h>

#include "base/memory.h"
#include "serve/served.h"

/* What the address of a request asks for. */
struct cvy_answer_options {
    int topk;         /* classes of an image */
    bool with_logits; /* all of them, too */
};
/* An array with an object for each image of the job; one that has no answer says why ("error"). */
void cvy_answers_put(struct cvy_text *text, const struct cvy_served *served, const struct cvy_job *job,
                     const struct cvy_answer_options *options);
/* {"error": "..."} */
void cvy_answers_put_error(struct cvy_text *text, const char *sentence);

#endif
