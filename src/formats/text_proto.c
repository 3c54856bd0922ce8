#include "formats/text_proto.h"

#include <string.h>

#include "base/error.h"

enum { MAX_LEVELS = 32, MAX_FIELDS = 20000, VALUE_LIMIT = 4097 /* its end included */ };

struct parser {
    const char *what, *at, *end;
    struct cvy_arena *arena;
    int line, levels, fields;
};

static cvy_status fail_line(const struct parser *parser, const char *why)
{
    return cvy_fail(CVY_BAD_DATA, "line %d of %s: %s", parser->line, cvy_quote(parser->what), why);
}

static void skip_space(struct parser *parser)
{
    while (parser->at < parser->end && *parser->at && strchr(" \t\r\n#", *parser->at)) {
        if (*parser->at == '#')
            while (parser->at < parser->end && *parser->at != '\n')
                parser->at++;
        else
            parser->line += *parser->at++ == '\n';
    }
}

/* The next character that is no space, 0 at the end. */
static char peek(struct parser *parser)
{
    skip_space(parser);
    return parser->at < parser->end ? *parser->at : '\0';
}

static bool take(struct parser *parser, char c)
{
    if (peek(parser) != c || !c)
        return false;
    parser->at++;
    return true;
}

/* Letters, digits, and what numbers have. */
static cvy_status take_word(struct parser *parser, const char *missing, const char **word)
{
    char buffer[VALUE_LIMIT];
    size_t length = 0;

    skip_space(parser);
    while (parser->at < parser->end && length < VALUE_LIMIT - 1 && *parser->at &&
           strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+-.", *parser->at))
        buffer[length++] = *parser->at++;
    if (length == 0 || length == VALUE_LIMIT - 1)
        return fail_line(parser, length ? "a word is longer than 4095 bytes" : missing);
    buffer[length] = '\0';
    *word = cvy_arena_strdup(parser->arena, buffer);
    return *word ? CVY_OK : cvy_fail_memory(length, "a configuration");
}

/* A text in quotes of either kind; \x stands for x. Several that follow one another are one. */
static cvy_status take_text(struct parser *parser, const char **text)
{
    char buffer[VALUE_LIMIT];
    size_t length = 0;

    while (peek(parser) == '"' || peek(parser) == '\'') {
        const char quote = *parser->at++;
        for (; parser->at < parser->end && *parser->at != quote; parser->at++) {
            if (*parser->at == '\\' && parser->at + 1 < parser->end)
                parser->at++;
            if (length == VALUE_LIMIT - 1 || !*parser->at || *parser->at == '\n')
                return fail_line(parser, "a text is longer than 4096 bytes, or does not end");
            buffer[length++] = *parser->at;
        }
        if (parser->at == parser->end)
            return fail_line(parser, "a text does not end");
        parser->at++;
    }
    buffer[length] = '\0';
    *text = cvy_arena_strdup(parser->arena, buffer);
    return *text ? CVY_OK : cvy_fail_memory(length + 1, "a configuration");
}

static cvy_status add_field(struct parser *parser, const char *name, struct cvy_text_field ***end,
                            struct cvy_text_field **field)
{
    if (++parser->fields > MAX_FIELDS)
        return fail_line(parser, "more than 20000 fields");
    *field = cvy_arena_alloc(parser->arena, sizeof **field);
    if (!*field)
        return cvy_fail_memory(sizeof **field, "a configuration");
    **field = (struct cvy_text_field){.name = name, .line = parser->line};
    **end = *field;
    *end = &(*field)->next;
    return CVY_OK;
}

static cvy_status read_fields(struct parser *parser, char close, struct cvy_text_field **first);

/* One value, or a message; `close` of the latter is found by the bracket that opens it. */
static cvy_status read_value(struct parser *parser, struct cvy_text_field *field)
{
    cvy_status status;

    if (peek(parser) == '{' || peek(parser) == '<') {
        const char close = *parser->at++ == '{' ? '}' : '>';
        if (++parser->levels > MAX_LEVELS)
            return fail_line(parser, "more than 32 messages in one another");
        status = read_fields(parser, close, &field->first);
        parser->levels--;
        return status;
    }
    field->quoted = peek(parser) == '"' || peek(parser) == '\'';
    return field->quoted ? take_text(parser, &field->value) : take_word(parser, "a field has no value", &field->value);
}

/* "name: value", "name { ... }", "name: [ value, ... ]". */
static cvy_status read_field(struct parser *parser, struct cvy_text_field ***end)
{
    struct cvy_text_field *field = NULL;
    const char *name;

    CVY_TRY(take_word(parser, "neither the name of a field nor the end of a message", &name));
    const bool colon = take(parser, ':');
    if (!colon && peek(parser) != '{' && peek(parser) != '<')
        return fail_line(parser, "a name is followed neither by \":\" nor by \"{\"");
    if (!take(parser, '[')) {
        CVY_TRY(add_field(parser, name, end, &field));
        return read_value(parser, field);
    }
    while (!take(parser, ']')) {
        CVY_TRY(add_field(parser, name, end, &field));
        CVY_TRY(read_value(parser, field));
        if (!take(parser, ',') && peek(parser) != ']')
            return fail_line(parser, "a list does not end");
    }
    return CVY_OK;
}

/* Up to `close`; 0: to the end of the text. */
static cvy_status read_fields(struct parser *parser, char close, struct cvy_text_field **first)
{
    struct cvy_text_field **end = first;

    *first = NULL;
    for (;;) {
        skip_space(parser);
        if (close ? take(parser, close) : parser->at == parser->end)
            return CVY_OK;
        if (parser->at == parser->end)
            return fail_line(parser, "a message does not end");
        CVY_TRY(read_field(parser, &end));
        if (!take(parser, ',')) /* between fields either is allowed, and neither needed */
            take(parser, ';');
    }
}

cvy_status cvy_text_proto_parse(const char *what, const char *text, size_t size, struct cvy_arena *arena,
                                struct cvy_text_field **first)
{
    struct parser parser = {.what = what, .at = text, .end = text + size, .arena = arena, .line = 1};

    return read_fields(&parser, '\0', first);
}
