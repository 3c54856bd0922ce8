/* A form with files (multipart/form-data, RFC 7578) that is in memory as a whole. */
#ifndef CVY_SERVE_FORM_H
#define CVY_SERVE_FORM_H

#include <stdbool.h>
#include <stddef.h>

#include "convoy/status.h"

enum { CVY_FORM_BOUNDARY = 201 /* bytes with the zero; RFC 2046 allows 70 characters */ };

/* One file, which lies in the body. */
struct cvy_form_part {
    const char *name; /* as the client calls it */
    const char *data;
    size_t size;
};
struct cvy_form {
    struct cvy_form_part *parts; /* (count) owned */
    int count, capacity;
};

/* What stands between the parts, as the request's Content-Type says. False: it does not, or it cannot be one. */
bool cvy_form_boundary(const char *type, char boundary[CVY_FORM_BOUNDARY]);
/* Finds the files, at most `most`. The body is changed: names end with a zero in it; it is there as long as the form.
 * CVY_BAD_DATA: it ends within a part, or a part is no file. The form is released by the caller in any case. */
CVY_CHECKED cvy_status cvy_form_read(struct cvy_form *form, const char *boundary, char *body, size_t size, int most);
void cvy_form_release(struct cvy_form *form);

#endif
