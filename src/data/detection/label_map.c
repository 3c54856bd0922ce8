#include "data/detection/label_map.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"

enum { MAX_LABELS = 65535, TEXT_LIMIT = 256 }; /* bytes of a name, its end included */

/* By id; empty ones were never given to a category. */
static const char *const coco[] = {"person",
                                   "bicycle",
                                   "car",
                                   "motorcycle",
                                   "airplane",
                                   "bus",
                                   "train",
                                   "truck",
                                   "boat",
                                   "traffic light",
                                   "fire hydrant",
                                   "",
                                   "stop sign",
                                   "parking meter",
                                   "bench",
                                   "bird",
                                   "cat",
                                   "dog",
                                   "horse",
                                   "sheep",
                                   "cow",
                                   "elephant",
                                   "bear",
                                   "zebra",
                                   "giraffe",
                                   "",
                                   "backpack",
                                   "umbrella",
                                   "",
                                   "",
                                   "handbag",
                                   "tie",
                                   "suitcase",
                                   "frisbee",
                                   "skis",
                                   "snowboard",
                                   "sports ball",
                                   "kite",
                                   "baseball bat",
                                   "baseball glove",
                                   "skateboard",
                                   "surfboard",
                                   "tennis racket",
                                   "bottle",
                                   "",
                                   "wine glass",
                                   "cup",
                                   "fork",
                                   "knife",
                                   "spoon",
                                   "bowl",
                                   "banana",
                                   "apple",
                                   "sandwich",
                                   "orange",
                                   "broccoli",
                                   "carrot",
                                   "hot dog",
                                   "pizza",
                                   "donut",
                                   "cake",
                                   "chair",
                                   "couch",
                                   "potted plant",
                                   "bed",
                                   "",
                                   "dining table",
                                   "",
                                   "",
                                   "toilet",
                                   "",
                                   "tv",
                                   "laptop",
                                   "mouse",
                                   "remote",
                                   "keyboard",
                                   "cell phone",
                                   "microwave",
                                   "oven",
                                   "toaster",
                                   "sink",
                                   "refrigerator",
                                   "",
                                   "book",
                                   "clock",
                                   "vase",
                                   "scissors",
                                   "teddy bear",
                                   "hair drier",
                                   "toothbrush"};

void cvy_label_map_release(struct cvy_label_map *map)
{
    cvy_arena_release(&map->arena);
    cvy_free(map->labels);
    *map = (struct cvy_label_map){0};
}

/* Room for one more. */
static struct cvy_label *add_label(struct cvy_label_map *map)
{
    if ((map->count & (map->count - 1)) == 0) { /* 0, 1, 2, 4, ...: full */
        struct cvy_label *grown = cvy_realloc(map->labels, map->count ? 2 * map->count : 1, sizeof *grown);
        if (!grown)
            return NULL;
        map->labels = grown;
    }
    map->labels[map->count] = (struct cvy_label){0};
    return &map->labels[map->count++];
}

cvy_status cvy_label_map_coco(struct cvy_label_map *map)
{
    *map = (struct cvy_label_map){0};
    for (size_t i = 0; i < sizeof coco / sizeof *coco; i++) {
        if (!coco[i][0])
            continue;
        struct cvy_label *label = add_label(map);
        if (!label) {
            cvy_label_map_release(map);
            return cvy_fail_memory(sizeof coco, "a label map");
        }
        *label = (struct cvy_label){.id = (int64_t)i + 1, .name = coco[i]};
    }
    return CVY_OK;
}

int64_t cvy_label_map_find(const struct cvy_label_map *map, const char *text)
{
    int64_t found = -1;

    for (size_t i = 0; i < map->count; i++) {
        const struct cvy_label *label = &map->labels[i];
        if ((strcmp(label->name, text) == 0 || (label->display_name && strcmp(label->display_name, text) == 0)) &&
            label->id > found)
            found = label->id;
    }
    return found;
}

/* ---- the text ---- */

struct parser {
    const char *what, *at, *end;
    int line;
    struct cvy_label_map *map;
};

static cvy_status fail_line(const struct parser *parser, const char *why)
{
    return cvy_fail(CVY_BAD_DATA, "line %d of %s: %s", parser->line, cvy_quote(parser->what), why);
}

/* What separates: spaces, commas, semicolons and comments. */
static void skip_space(struct parser *parser)
{
    while (parser->at < parser->end && *parser->at && strchr(" \t\r\n,;#", *parser->at)) {
        if (*parser->at == '#')
            while (parser->at < parser->end && *parser->at != '\n')
                parser->at++;
        else
            parser->line += *parser->at++ == '\n';
    }
}

static bool take(struct parser *parser, char c)
{
    skip_space(parser);
    if (parser->at == parser->end || *parser->at != c)
        return false;
    parser->at++;
    return true;
}

/* Letters, digits, and what numbers have; "" where there are none. */
static void take_word(struct parser *parser, char word[TEXT_LIMIT])
{
    size_t length = 0;

    skip_space(parser);
    while (parser->at < parser->end && length < TEXT_LIMIT - 1 && *parser->at &&
           strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+-.", *parser->at))
        word[length++] = *parser->at++;
    word[length] = 0;
}

/* A quoted text, of either quotes; \x stands for x. */
static cvy_status take_text(struct parser *parser, const char **text)
{
    char buffer[TEXT_LIMIT];
    size_t length = 0;

    skip_space(parser);
    const char quote = parser->at < parser->end ? *parser->at : 0;
    if (quote != '"' && quote != '\'')
        return fail_line(parser, "a name is not in quotes");
    for (parser->at++; parser->at < parser->end && *parser->at != quote; parser->at++) {
        if (*parser->at == '\\' && parser->at + 1 < parser->end)
            parser->at++;
        if (length == TEXT_LIMIT - 1 || !*parser->at || *parser->at == '\n')
            return fail_line(parser, "a name is longer than 255 bytes, or does not end");
        buffer[length++] = *parser->at;
    }
    if (parser->at == parser->end)
        return fail_line(parser, "a name does not end");
    parser->at++;
    buffer[length] = 0;
    *text = cvy_arena_strdup(&parser->map->arena, buffer);
    return *text ? CVY_OK : cvy_fail_memory(length + 1, "a label map");
}

static cvy_status take_id(struct parser *parser, int64_t *id)
{
    char word[TEXT_LIMIT], *end;

    take_word(parser, word);
    errno = 0;
    *id = strtoll(word, &end, 10);
    return errno == 0 && end != word && !*end && *id >= 0 ? CVY_OK : fail_line(parser, "an id is no number");
}

/* The value of another key: a text or a word. */
static cvy_status pass_over(struct parser *parser)
{
    char word[TEXT_LIMIT];
    const char *text;

    skip_space(parser);
    if (parser->at < parser->end && (*parser->at == '"' || *parser->at == '\''))
        return take_text(parser, &text);
    take_word(parser, word);
    return word[0] ? CVY_OK : fail_line(parser, "a key has no value");
}

static cvy_status read_item(struct parser *parser)
{
    struct cvy_label *label;
    bool has_id = false;

    if (parser->map->count == MAX_LABELS)
        return fail_line(parser, "more than 65535 items");
    label = add_label(parser->map);
    if (!label)
        return cvy_fail_memory(parser->map->count * sizeof *label, "a label map");
    while (!take(parser, '}')) {
        char key[TEXT_LIMIT];
        take_word(parser, key);
        if (!key[0] || !take(parser, ':'))
            return fail_line(parser, "an item is not a list of \"key: value\" in braces");
        if (strcmp(key, "name") == 0)
            CVY_TRY(take_text(parser, &label->name));
        else if (strcmp(key, "display_name") == 0)
            CVY_TRY(take_text(parser, &label->display_name));
        else if (strcmp(key, "id") == 0)
            CVY_TRY(take_id(parser, &label->id));
        else
            CVY_TRY(pass_over(parser));
        has_id |= strcmp(key, "id") == 0;
    }
    if (!label->name || !has_id)
        return fail_line(parser, "an item has no name or no id");
    return CVY_OK;
}

static cvy_status read_items(struct parser *parser)
{
    for (skip_space(parser); parser->at < parser->end; skip_space(parser)) {
        char word[TEXT_LIMIT];
        take_word(parser, word);
        if (strcmp(word, "item") != 0)
            return fail_line(parser, "something else than an item");
        take(parser, ':');
        if (!take(parser, '{'))
            return fail_line(parser, "an item is not a list of \"key: value\" in braces");
        CVY_TRY(read_item(parser));
    }
    return parser->map->count > 0 ? CVY_OK : fail_line(parser, "there is no item");
}

cvy_status cvy_label_map_parse(const char *what, const char *text, size_t size, struct cvy_label_map *map)
{
    struct parser parser = {.what = what, .at = text, .end = text + size, .line = 1, .map = map};

    *map = (struct cvy_label_map){0};
    cvy_status status = read_items(&parser);
    if (status != CVY_OK)
        cvy_label_map_release(map);
    return status;
}

cvy_status cvy_label_map_read(const char *path, struct cvy_label_map *map)
{
    void *data;
    size_t size;

    *map = (struct cvy_label_map){0};
    CVY_TRY(cvy_file_read(path, (size_t)16 << 20, &data, &size));
    cvy_status status = cvy_label_map_parse(path, data, size, map);
    cvy_free(data);
    return status;
}

void cvy_label_map_write(struct cvy_text *text, int64_t id, const char *name)
{
    cvy_text_printf(text, "item {\n  name: \"");
    for (; *name; name++) {
        if (*name == '"' || *name == '\\')
            cvy_text_puts(text, "\\");
        cvy_text_append(text, name, 1);
    }
    cvy_text_printf(text, "\"\n  id: %lld\n}\n", (long long)id);
}
