#include "serve/form.h"

#include <string.h>
#include <strings.h>

#include "base/api.h"

/* ---- parameters of headers: `; name=value; name="value"` ---- */

struct parameter {
    const char *name;
    size_t name_length;
    char *value;
    size_t length;
};

/* A value, and where it ends: a word, or what stands in quotes, from which backslashes before quotes and backslashes
 * are taken in its own memory. */
static char *take_value(char *at, const char *end, struct parameter *parameter)
{
    char *out = at;

    parameter->value = at;
    if (at < end && *at == '"') {
        for (at++; at < end && *at != '"'; at++) {
            if (*at == '\\' && at + 1 < end && (at[1] == '"' || at[1] == '\\'))
                at++;
            *out++ = *at;
        }
    } else {
        while (at < end && *at != ';' && *at != ' ' && *at != '\t')
            at++;
        out = at;
    }
    parameter->length = (size_t)(out - parameter->value);
    return at;
}

/* The next one before `end`, from which on *at lies behind it; false: there is none. */
static bool next_parameter(char **at, char *end, struct parameter *parameter)
{
    char *p = *at;

    *parameter = (struct parameter){0};
    p = p < end ? memchr(p, ';', (size_t)(end - p)) : NULL;
    if (!p)
        return false;
    for (p++; p < end && (*p == ' ' || *p == '\t');)
        p++;
    parameter->name = p;
    while (p < end && *p != '=' && *p != ';')
        p++;
    parameter->name_length = (size_t)(p - parameter->name);
    if (p < end && *p == '=')
        p = take_value(p + 1, end, parameter);
    *at = p;
    return true;
}

static bool is(const struct parameter *parameter, const char *name)
{
    return parameter->value && parameter->name_length == strlen(name) &&
           strncasecmp(parameter->name, name, parameter->name_length) == 0;
}

bool cvy_form_boundary(const char *type, char boundary[CVY_FORM_BOUNDARY])
{
    static const char form[] = "multipart/form-data";
    struct parameter parameter;
    char copy[1024];

    if (strncasecmp(type, form, sizeof form - 1) != 0 || strlen(type) >= sizeof copy)
        return false;
    memcpy(copy, type, strlen(type) + 1);
    for (char *at = copy; next_parameter(&at, copy + strlen(type), &parameter);) {
        if (!is(&parameter, "boundary"))
            continue;
        if (parameter.length == 0 || parameter.length >= CVY_FORM_BOUNDARY)
            return false;
        memcpy(boundary, parameter.value, parameter.length);
        boundary[parameter.length] = '\0';
        return true;
    }
    return false;
}

/* ---- parts ---- */

struct reader {
    const char *boundary;
    size_t boundary_length;
    char *at, *end;
};

/* The end of the line that begins here: its "\r\n", or NULL. */
static char *line_end(char *at, char *end)
{
    while (at < end && (at = memchr(at, '\r', (size_t)(end - at)))) {
        if (end - at >= 2 && at[1] == '\n')
            return at;
        at++;
    }
    return NULL;
}

/* Whether "--boundary" stands here, and what follows it: another part, or (*last) nothing. */
static bool boundary_here(const struct reader *reader, char *at, char **behind, bool *last)
{
    if ((size_t)(reader->end - at) < reader->boundary_length + 4 || at[0] != '-' || at[1] != '-' ||
        memcmp(at + 2, reader->boundary, reader->boundary_length) != 0)
        return false;
    at += 2 + reader->boundary_length;
    *last = at[0] == '-' && at[1] == '-';
    while (!*last && reader->end - at > 2 && (*at == ' ' || *at == '\t'))
        at++;
    *behind = at + 2;
    return *last || (at[0] == '\r' && at[1] == '\n');
}

/* From here to the next boundary, which begins a line. NULL: there is none; else the end of what stands before it. */
static char *find_boundary(const struct reader *reader, char *at, char **behind, bool *last)
{
    for (char *line = at; (line = line_end(line, reader->end)); line++) {
        if (boundary_here(reader, line + 2, behind, last))
            return line;
    }
    return NULL;
}

static void end_text(char *text, size_t length)
{
    if (text)
        text[length] = '\0'; /* where its quote, or the end of its line, was */
}

/* The header lines of a part, which end with an empty one. False: they do not. */
static bool read_headers(struct reader *reader, char **name, char **file)
{
    static const char header[] = "content-disposition:";
    struct parameter parameter, found[2] = {{0}};

    *name = *file = NULL;
    for (char *line_after; (line_after = line_end(reader->at, reader->end)); reader->at = line_after + 2) {
        char *line = reader->at;

        if (line == line_after) {
            reader->at += 2;
            end_text(*name = found[0].value, found[0].length);
            end_text(*file = found[1].value, found[1].length);
            return true;
        }
        if ((size_t)(line_after - line) < sizeof header || strncasecmp(line, header, sizeof header - 1) != 0)
            continue;
        while (next_parameter(&line, line_after, &parameter)) {
            if (is(&parameter, "name"))
                found[0] = parameter;
            else if (is(&parameter, "filename"))
                found[1] = parameter;
        }
    }
    return false;
}

static cvy_status add_part(struct cvy_form *form, const char *name, const char *data, size_t size, int most)
{
    if (form->count == most)
        return cvy_fail(CVY_BAD_DATA, "a form has at most %d images", most);
    if (form->count == form->capacity) {
        const int capacity = 2 * form->capacity + 4;
        struct cvy_form_part *parts = cvy_realloc(form->parts, (size_t)capacity, sizeof *parts);
        if (!parts)
            return cvy_fail_memory((size_t)capacity * sizeof *parts, "the images of a request");
        form->parts = parts;
        form->capacity = capacity;
    }
    form->parts[form->count++] = (struct cvy_form_part){name, data, size};
    return CVY_OK;
}

cvy_status cvy_form_read(struct cvy_form *form, const char *boundary, char *body, size_t size, int most)
{
    struct reader reader = {boundary, strlen(boundary), body, body + size};
    bool last = false;

    *form = (struct cvy_form){0};
    if (size == 0)
        return CVY_OK;
    if (!boundary_here(&reader, body, &reader.at, &last) && !find_boundary(&reader, body, &reader.at, &last))
        return cvy_fail(CVY_BAD_DATA, "the form has no part between the boundaries of which its Content-Type tells");
    while (!last) {
        char *name, *file, *begin, *end, *behind;

        if (!read_headers(&reader, &name, &file))
            return cvy_fail(CVY_BAD_DATA, "the form ends within a part");
        begin = reader.at;
        /* A part without a byte has its boundary right here: the empty line before is the one that it begins. */
        end = find_boundary(&reader, begin - 2, &behind, &last);
        if (!end)
            return cvy_fail(CVY_BAD_DATA, "the form ends within a part");
        if (!file)
            return cvy_fail(CVY_BAD_DATA, "field %s of the form is no file: options stand in the address",
                            name ? cvy_quote(name) : "without a name");
        CVY_TRY(add_part(form, file, begin, end > begin ? (size_t)(end - begin) : 0, most));
        reader.at = behind;
    }
    return CVY_OK;
}

void cvy_form_release(struct cvy_form *form)
{
    cvy_free(form->parts);
    *form = (struct cvy_form){0};
}
