#include "data/detection/coco_file.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "formats/json_stream.h"

enum section { IMAGES, ANNOTATIONS, CATEGORIES, SECTIONS };
static const char *const section_names[SECTIONS] = {"images", "annotations", "categories"};
static const char *const entry_names[SECTIONS] = {"an image", "an annotation", "a category"};

enum {
    NAME_LIMIT = 256,      /* bytes of a category's name, its end included */
    FILE_NAME_LIMIT = 4096 /* of an image's */
};

/* What is read of the entries of each list. */
enum field { ID, FILE_NAME, WIDTH, HEIGHT, IMAGE_ID, CATEGORY_ID, BBOX, AREA, ISCROWD, NAME, FIELDS };
static const char *const field_names[FIELDS] = {"id",          "file_name", "width", "height",  "image_id",
                                                "category_id", "bbox",      "area",  "iscrowd", "name"};
#define BIT(field) (1U << (field))
static const unsigned wanted[SECTIONS] = {
    BIT(ID) | BIT(FILE_NAME) | BIT(WIDTH) | BIT(HEIGHT),
    BIT(ID) | BIT(IMAGE_ID) | BIT(CATEGORY_ID) | BIT(BBOX) | BIT(AREA) | BIT(ISCROWD),
    BIT(ID) | BIT(NAME),
};
static const unsigned needed[SECTIONS] = {
    BIT(ID) | BIT(FILE_NAME) | BIT(WIDTH) | BIT(HEIGHT),
    BIT(IMAGE_ID) | BIT(CATEGORY_ID) | BIT(BBOX),
    BIT(ID) | BIT(NAME),
};

/* Where in the file the reader is. */
enum place { AT_START, IN_FILE, BEFORE_LIST, IN_LIST, IN_ENTRY, BEFORE_VALUE, IN_BOX, AT_END };

struct reader {
    const char *what;
    struct cvy_coco_file *file;
    enum place place;
    enum section section;
    enum field field;
    bool has_section[SECTIONS];
    /* the entry being read */
    unsigned seen;
    int64_t integers[FIELDS];
    double bbox[4], area;
    int corner; /* numbers of bbox so far */
    const char *text;
};

static cvy_status fail_at(const struct reader *reader, const struct cvy_json_stream *stream, const char *text,
                          const char *name)
{
    return cvy_fail(CVY_BAD_DATA, "%s, near byte %llu: %s%s%s", cvy_quote(reader->what),
                    (unsigned long long)cvy_json_position(stream), text, name ? " " : "", name ? cvy_quote(name) : "");
}

/* The article of a field's name. */
static const char *article(enum field field)
{
    return strchr("aeiou", field_names[field][0]) ? "an" : "a";
}

static cvy_status fail_value(const struct reader *reader, const struct cvy_json_stream *stream, const char *expected)
{
    return cvy_fail(CVY_BAD_DATA, "%s, near byte %llu: %s has %s \"%s\" that is not %s", cvy_quote(reader->what),
                    (unsigned long long)cvy_json_position(stream), entry_names[reader->section], article(reader->field),
                    field_names[reader->field], expected);
}

/* ---- entries ---- */

/* Room for one more entry of a list. */
static cvy_status grow(void **list, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity)
        return CVY_OK;
    if (count >= INT32_MAX)
        return cvy_fail(CVY_BAD_DATA, "more than %d entries in a list", INT32_MAX);
    const size_t more = *capacity ? 2 * *capacity : 64;
    void *grown = cvy_realloc(*list, more, size);
    if (!grown)
        return cvy_fail_memory(more * size, "a list of objects");
    *list = grown;
    *capacity = more;
    return CVY_OK;
}

cvy_status cvy_coco_file_add_image(struct cvy_coco_file *file, const struct cvy_coco_file_image *image)
{
    void *list = file->images;

    CVY_TRY(grow(&list, file->image_count, &file->image_capacity, sizeof *file->images));
    file->images = list;
    file->images[file->image_count++] = *image;
    return CVY_OK;
}

cvy_status cvy_coco_file_add_annotation(struct cvy_coco_file *file, const struct cvy_coco_file_annotation *annotation)
{
    void *list = file->annotations;

    CVY_TRY(grow(&list, file->annotation_count, &file->annotation_capacity, sizeof *file->annotations));
    file->annotations = list;
    file->annotations[file->annotation_count++] = *annotation;
    return CVY_OK;
}

cvy_status cvy_coco_file_add_category(struct cvy_coco_file *file, const struct cvy_coco_file_category *category)
{
    void *list = file->categories;

    CVY_TRY(grow(&list, file->category_count, &file->category_capacity, sizeof *file->categories));
    file->categories = list;
    file->categories[file->category_count++] = *category;
    return CVY_OK;
}

static cvy_status add_image(const struct reader *reader, uint64_t at)
{
    return cvy_coco_file_add_image(reader->file,
                                   &(struct cvy_coco_file_image){.id = reader->integers[ID],
                                                                 .at = at,
                                                                 .file_name = reader->text,
                                                                 .width = (int32_t)reader->integers[WIDTH],
                                                                 .height = (int32_t)reader->integers[HEIGHT]});
}

static cvy_status add_annotation(const struct reader *reader, uint64_t at)
{
    const double *b = reader->bbox;

    return cvy_coco_file_add_annotation(
        reader->file, &(struct cvy_coco_file_annotation){.id = reader->integers[ID],
                                                         .image_id = reader->integers[IMAGE_ID],
                                                         .category_id = reader->integers[CATEGORY_ID],
                                                         .at = at,
                                                         .bbox = {b[0], b[1], b[2], b[3]},
                                                         .area = reader->seen & BIT(AREA) ? reader->area : b[2] * b[3],
                                                         .has_id = reader->seen & BIT(ID),
                                                         .crowd = reader->integers[ISCROWD] != 0});
}

static cvy_status add_category(const struct reader *reader, uint64_t at)
{
    return cvy_coco_file_add_category(
        reader->file, &(struct cvy_coco_file_category){.id = reader->integers[ID], .at = at, .name = reader->text});
}

static void begin_entry(struct reader *reader)
{
    reader->seen = 0;
    reader->text = NULL;
    reader->integers[ISCROWD] = 0;
    reader->place = IN_ENTRY;
}

static cvy_status end_entry(struct reader *reader, const struct cvy_json_stream *stream)
{
    static cvy_status (*const add[SECTIONS])(const struct reader *, uint64_t) = {add_image, add_annotation,
                                                                                 add_category};
    const unsigned missing = needed[reader->section] & ~reader->seen;

    for (int field = 0; field < FIELDS; field++)
        if (missing & BIT(field))
            return cvy_fail(CVY_BAD_DATA, "%s, near byte %llu: %s has no \"%s\"", cvy_quote(reader->what),
                            (unsigned long long)cvy_json_position(stream), entry_names[reader->section],
                            field_names[field]);
    reader->place = IN_LIST;
    return add[reader->section](reader, cvy_json_position(stream));
}

/* ---- values ---- */

static bool is_key(const struct cvy_json_event *event, const char *name)
{
    return strlen(name) == event->length && memcmp(event->text, name, event->length) == 0;
}

static cvy_status read_section_key(struct reader *reader, struct cvy_json_stream *stream,
                                   const struct cvy_json_event *event)
{
    for (int s = 0; s < SECTIONS; s++)
        if (is_key(event, section_names[s])) {
            if (reader->has_section[s])
                return fail_at(reader, stream, "there is a second list", section_names[s]);
            reader->has_section[s] = true;
            reader->section = (enum section)s;
            reader->place = BEFORE_LIST;
            return CVY_OK;
        }
    cvy_json_skip(stream);
    return CVY_OK;
}

static cvy_status read_key(struct reader *reader, struct cvy_json_stream *stream, const struct cvy_json_event *event)
{
    for (int field = 0; field < FIELDS; field++)
        if ((wanted[reader->section] & BIT(field)) && is_key(event, field_names[field])) {
            if (reader->seen & BIT(field))
                return cvy_fail(CVY_BAD_DATA, "%s, near byte %llu: %s has two \"%s\"", cvy_quote(reader->what),
                                (unsigned long long)cvy_json_position(stream), entry_names[reader->section],
                                field_names[field]);
            reader->field = (enum field)field;
            reader->place = BEFORE_VALUE;
            return CVY_OK;
        }
    cvy_json_skip(stream);
    return CVY_OK;
}

static cvy_status read_text(struct reader *reader, const struct cvy_json_stream *stream,
                            const struct cvy_json_event *event)
{
    const size_t limit = reader->field == NAME ? NAME_LIMIT : FILE_NAME_LIMIT;

    if (event->kind != CVY_JSON_HAS_STRING || event->length == 0)
        return fail_value(reader, stream, "a text");
    if (event->length >= limit)
        return fail_value(reader, stream, reader->field == NAME ? "of at most 255 bytes" : "of at most 4095 bytes");
    CVY_TRY(cvy_json_check_text(stream, event));
    char *copy = cvy_arena_alloc(&reader->file->arena, event->length + 1);
    if (!copy)
        return cvy_fail_memory(event->length + 1, "a list of images");
    memcpy(copy, event->text, event->length);
    reader->text = copy;
    return CVY_OK;
}

/* Whether the number is whole, however it is written: 7, 7.0 (as programs with floats in their tables write ids), 7e0.
 * With a fraction or an exponent, less than 2^53 in size: further ones are not exact as doubles. */
static bool is_whole(const struct cvy_json_number *number, int64_t *value)
{
    const double exact = 9007199254740992.0;

    if (!number->is_integer && (fabs(number->number) >= exact || number->number != floor(number->number)))
        return false;
    *value = number->is_integer ? number->integer : (int64_t)number->number;
    return true;
}

static cvy_status read_integer(struct reader *reader, const struct cvy_json_stream *stream,
                               const struct cvy_json_event *event)
{
    const bool is_length = reader->field == WIDTH || reader->field == HEIGHT;
    struct cvy_json_number number = {0};
    int64_t value = 0;

    if (event->kind == CVY_JSON_HAS_NUMBER)
        CVY_TRY(cvy_json_read_number(stream, event, &number));
    const bool whole = event->kind == CVY_JSON_HAS_NUMBER && is_whole(&number, &value);
    if (is_length && (!whole || value < 1 || value > INT32_MAX))
        return fail_value(reader, stream, "a number of pixels");
    if (!whole)
        return fail_value(reader, stream, "a whole number");
    reader->integers[reader->field] = value;
    return CVY_OK;
}

/* 0 and 1, or false and true. */
static cvy_status read_crowd(struct reader *reader, const struct cvy_json_stream *stream,
                             const struct cvy_json_event *event)
{
    if (event->kind != CVY_JSON_HAS_BOOL)
        return read_integer(reader, stream, event);
    reader->integers[ISCROWD] = event->boolean;
    return CVY_OK;
}

static cvy_status read_area(struct reader *reader, const struct cvy_json_stream *stream,
                            const struct cvy_json_event *event)
{
    struct cvy_json_number number = {.number = -1};

    if (event->kind == CVY_JSON_HAS_NUMBER)
        CVY_TRY(cvy_json_read_number(stream, event, &number));
    if (number.number < 0)
        return fail_value(reader, stream, "an area");
    reader->area = number.number;
    return CVY_OK;
}

static cvy_status read_corner(struct reader *reader, const struct cvy_json_stream *stream,
                              const struct cvy_json_event *event)
{
    struct cvy_json_number number;

    if (event->kind == CVY_JSON_END_ARRAY && reader->corner == 4) {
        reader->seen |= BIT(BBOX);
        reader->place = IN_ENTRY;
        return CVY_OK;
    }
    if (event->kind != CVY_JSON_HAS_NUMBER || reader->corner == 4)
        return fail_value(reader, stream, "a list of four numbers");
    CVY_TRY(cvy_json_read_number(stream, event, &number));
    reader->bbox[reader->corner++] = number.number;
    return CVY_OK;
}

static cvy_status read_value(struct reader *reader, const struct cvy_json_stream *stream,
                             const struct cvy_json_event *event)
{
    if (reader->field == BBOX) {
        if (event->kind != CVY_JSON_BEGIN_ARRAY)
            return fail_value(reader, stream, "a list of four numbers");
        reader->corner = 0;
        reader->place = IN_BOX;
        return CVY_OK;
    }
    reader->place = IN_ENTRY;
    if (event->kind == CVY_JSON_HAS_NULL && !(needed[reader->section] & BIT(reader->field)))
        return CVY_OK; /* as if it were not there */
    if (reader->field == FILE_NAME || reader->field == NAME)
        CVY_TRY(read_text(reader, stream, event));
    else if (reader->field == AREA)
        CVY_TRY(read_area(reader, stream, event));
    else if (reader->field == ISCROWD)
        CVY_TRY(read_crowd(reader, stream, event));
    else
        CVY_TRY(read_integer(reader, stream, event));
    reader->seen |= BIT(reader->field);
    return CVY_OK;
}

/* ---- the file ---- */

static cvy_status handle(void *context, struct cvy_json_stream *stream, const struct cvy_json_event *event)
{
    struct reader *reader = context;

    switch (reader->place) {
    case AT_START:
        if (event->kind != CVY_JSON_BEGIN_OBJECT)
            return fail_at(reader, stream, "a COCO file is an object with the lists", "images");
        reader->place = IN_FILE;
        return CVY_OK;
    case IN_FILE:
        if (event->kind == CVY_JSON_HAS_KEY)
            return read_section_key(reader, stream, event);
        reader->place = AT_END;
        return CVY_OK;
    case BEFORE_LIST:
        if (event->kind != CVY_JSON_BEGIN_ARRAY)
            return fail_at(reader, stream, "this is not a list:", section_names[reader->section]);
        reader->place = IN_LIST;
        return CVY_OK;
    case IN_LIST:
        if (event->kind == CVY_JSON_BEGIN_OBJECT)
            begin_entry(reader);
        else if (event->kind == CVY_JSON_END_ARRAY)
            reader->place = IN_FILE;
        else
            return fail_at(reader, stream, "an entry is not an object in the list", section_names[reader->section]);
        return CVY_OK;
    case IN_ENTRY:
        return event->kind == CVY_JSON_HAS_KEY ? read_key(reader, stream, event) : end_entry(reader, stream);
    case BEFORE_VALUE:
        return read_value(reader, stream, event);
    case IN_BOX:
        return read_corner(reader, stream, event);
    case AT_END:
        break;
    }
    return fail_at(reader, stream, "there is something after the end", NULL);
}

static cvy_status finish(const struct reader *reader)
{
    static const enum section must[] = {IMAGES, CATEGORIES};

    for (size_t i = 0; i < sizeof must / sizeof *must; i++)
        if (!reader->has_section[must[i]])
            return cvy_fail(CVY_BAD_DATA, "%s is no COCO file: it has no list \"%s\"", cvy_quote(reader->what),
                            section_names[must[i]]);
    return CVY_OK;
}

cvy_status cvy_coco_file_read(const char *path, struct cvy_coco_file *file)
{
    struct reader reader = {.what = path, .file = file};

    *file = (struct cvy_coco_file){0};
    cvy_status status = cvy_json_stream_file(path, handle, &reader);
    if (status == CVY_OK)
        status = finish(&reader);
    if (status != CVY_OK)
        cvy_coco_file_release(file);
    return status;
}

cvy_status cvy_coco_file_parse(const char *what, const char *text, size_t length, struct cvy_coco_file *file)
{
    struct reader reader = {.what = what, .file = file};

    *file = (struct cvy_coco_file){0};
    cvy_status status = cvy_json_stream_text(what, text, length, handle, &reader);
    if (status == CVY_OK)
        status = finish(&reader);
    if (status != CVY_OK)
        cvy_coco_file_release(file);
    return status;
}

void cvy_coco_file_release(struct cvy_coco_file *file)
{
    cvy_arena_release(&file->arena);
    cvy_free(file->images);
    cvy_free(file->annotations);
    cvy_free(file->categories);
    *file = (struct cvy_coco_file){0};
}
