/* Any bytes as a form with files: refused with a sentence, or files that lie in it one after the other, with names that
 * end there. What stands before the first zero byte is the Content-Type; "": one with the boundary "x". */
#include "serve/form.h"
#include "support_input.h"

enum { MOST = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_parts(const struct cvy_form *form, const char *body, size_t size)
{
    const char *last = body, *end = body + size;

    must(form->count <= MOST);
    for (int i = 0; i < form->count; i++) {
        const struct cvy_form_part *part = &form->parts[i];

        must(part->name >= last && part->name < end && memchr(part->name, 0, (size_t)(end - part->name)) != NULL);
        must(part->data > part->name && part->data <= end && part->size <= (size_t)(end - part->data));
        last = part->data + part->size;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size > 0 ? memchr(data, 0, size) : NULL;
    char boundary[CVY_FORM_BOUNDARY] = "x";
    struct cvy_form form;

    if (!zero || (zero > data && !cvy_form_boundary((const char *)data, boundary)))
        return 0;
    must(boundary[0] && strlen(boundary) < sizeof boundary);
    const size_t length = (size_t)(data + size - zero) - 1;
    char *body = malloc(length ? length : 1); /* of this size: what is read behind it is seen */
    must(body != NULL);
    memcpy(body, zero + 1, length);
    const cvy_status status = cvy_form_read(&form, boundary, body, length, MOST);
    must(status == CVY_OK || (status == CVY_BAD_DATA && cvy_error()[0] && !strchr(cvy_error(), '\n')));
    check_parts(&form, body, length);
    cvy_form_release(&form);
    free(body);
    return 0;
}
