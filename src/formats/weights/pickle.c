#include "formats/weights/pickle.h"

#include <string.h>

#include "base/error.h"

enum {
    OLDEST_PROTOCOL = 2,
    NEWEST_PROTOCOL = 3,
    MAX_MARKS = 1000,  /* open brackets: far more than Python's own recursion allows when writing */
    LONGEST_NAME = 255 /* of a global's module or name */
};

typedef struct cvy_pickle_value value;

struct machine {
    const char *what;
    const unsigned char *bytes;
    size_t size, at;    /* at: of the next byte to read */
    size_t instruction; /* where the current instruction stands */
    const struct cvy_pickle_limits *limits;
    size_t used; /* of the memory limit */
    struct cvy_arena *arena;
    value **stack, **memo;
    size_t depth, stack_capacity, memo_count, memo_capacity;
    size_t marks[MAX_MARKS]; /* depths of the stack */
    int mark_count;
    value *constants;  /* None, False, True */
    value *persistent; /* the last one */
    bool stopped;
};

static cvy_status bad(const struct machine *m, const char *why)
{
    return cvy_fail(CVY_BAD_DATA, "%s: damaged pickle: %s (byte %zu)", cvy_quote(m->what), why, m->instruction);
}

/* ---- memory ---- */

static cvy_status reserve_bytes(struct machine *m, size_t bytes)
{
    if (bytes > m->limits->memory - m->used)
        return cvy_fail(CVY_BAD_DATA, "%s: the pickle describes more objects than such a file needs",
                        cvy_quote(m->what));
    m->used += bytes;
    return CVY_OK;
}

static cvy_status take(struct machine *m, size_t bytes, void *memory)
{
    void *block;

    CVY_TRY(reserve_bytes(m, bytes + 16)); /* the arena rounds up */
    block = cvy_arena_alloc(m->arena, bytes);
    if (!block)
        return cvy_fail_memory(bytes, "a pickle");
    memcpy(memory, &block, sizeof block);
    return CVY_OK;
}

/* Doubles an array of pointers that is full. */
static cvy_status grow(struct machine *m, value ***array, size_t *capacity, size_t needed)
{
    size_t larger = *capacity ? *capacity : 64;

    if (needed <= *capacity)
        return CVY_OK;
    while (larger < needed)
        larger *= 2;
    CVY_TRY(reserve_bytes(m, (larger - *capacity) * sizeof **array));
    value **grown = cvy_realloc(*array, larger, sizeof *grown);
    if (!grown)
        return cvy_fail_memory(larger * sizeof *grown, "a pickle");
    *array = grown;
    *capacity = larger;
    return CVY_OK;
}

/* ---- stack ---- */

static cvy_status push(struct machine *m, value *v)
{
    CVY_TRY(grow(m, &m->stack, &m->stack_capacity, m->depth + 1));
    m->stack[m->depth++] = v;
    return CVY_OK;
}

static cvy_status push_new(struct machine *m, enum cvy_pickle_kind kind, value **made)
{
    value *v = NULL;

    CVY_TRY(take(m, sizeof *v, &v));
    v->kind = kind;
    *made = v;
    return push(m, v);
}

/* How many values lie above the last mark. */
static size_t above(const struct machine *m)
{
    return m->depth - (m->mark_count > 0 ? m->marks[m->mark_count - 1] : 0);
}

static cvy_status need(const struct machine *m, size_t count)
{
    return above(m) >= count ? CVY_OK : bad(m, "it takes values that are not there");
}

static value *pop(struct machine *m)
{
    return m->stack[--m->depth];
}

/* Takes the last mark away; what lay above it stays as *values. */
static cvy_status pop_mark(struct machine *m, value ***values, size_t *count)
{
    if (m->mark_count == 0)
        return bad(m, "it closes a bracket that is not open");
    *count = above(m);
    m->depth = m->marks[--m->mark_count];
    *values = m->stack ? m->stack + m->depth : NULL;
    return CVY_OK;
}

/* ---- bytes ---- */

static cvy_status read_bytes(struct machine *m, size_t count, const unsigned char **bytes)
{
    if (count > m->size - m->at)
        return bad(m, "it ends too early");
    *bytes = m->bytes + m->at;
    m->at += count;
    return CVY_OK;
}

static cvy_status read_number(struct machine *m, int size, uint64_t *number)
{
    const unsigned char *bytes = NULL;

    CVY_TRY(read_bytes(m, (size_t)size, &bytes));
    *number = 0;
    while (size > 0)
        *number = *number << 8 | bytes[--size];
    return CVY_OK;
}

static cvy_status push_int(struct machine *m, int64_t integer)
{
    value *v = NULL;

    CVY_TRY(push_new(m, CVY_PICKLE_INT, &v));
    v->integer = integer;
    return CVY_OK;
}

static cvy_status read_int(struct machine *m, int size)
{
    uint64_t number = 0;

    CVY_TRY(read_number(m, size, &number));
    return push_int(m, size == 4 ? (int32_t)(uint32_t)number : (int64_t)number); /* the shorter have no sign */
}

/* LONG1: a length, then two's complement. */
static cvy_status read_long(struct machine *m)
{
    uint64_t length = 0, number = 0;
    value *v = NULL;

    CVY_TRY(read_number(m, 1, &length));
    if (length > 8) {
        const unsigned char *bytes = NULL;
        CVY_TRY(read_bytes(m, (size_t)length, &bytes));
        return push_new(m, CVY_PICKLE_BIG, &v);
    }
    CVY_TRY(read_number(m, (int)length, &number));
    if (length > 0 && length < 8 && number >> (8 * length - 1) & 1)
        number |= UINT64_MAX << (8 * length);
    return push_int(m, (int64_t)number);
}

/* Doubles are written with the first byte first. */
static cvy_status read_float(struct machine *m)
{
    const unsigned char *bytes = NULL;
    uint64_t bits = 0;
    value *v = NULL;

    CVY_TRY(read_bytes(m, 8, &bytes));
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | bytes[i];
    CVY_TRY(push_new(m, CVY_PICKLE_FLOAT, &v));
    memcpy(&v->number, &bits, sizeof bits);
    return CVY_OK;
}

static cvy_status read_text(struct machine *m, int length_bytes)
{
    const unsigned char *bytes = NULL;
    uint64_t length = 0;
    char *copy = NULL;
    value *v = NULL;

    CVY_TRY(read_number(m, length_bytes, &length));
    CVY_TRY(read_bytes(m, (size_t)length, &bytes));
    CVY_TRY(take(m, (size_t)length + 1, &copy));
    memcpy(copy, bytes, (size_t)length);
    CVY_TRY(push_new(m, CVY_PICKLE_TEXT, &v));
    v->text.bytes = copy;
    v->text.length = (size_t)length;
    return CVY_OK;
}

/* A line of a global: letters, digits, '_' and '.' up to a newline. */
static cvy_status read_line(struct machine *m, const unsigned char **text, size_t *length)
{
    const unsigned char *start = m->bytes + m->at, *end = memchr(start, '\n', m->size - m->at);

    if (!end || end - start > LONGEST_NAME || end == start)
        return bad(m, "it names something without a name");
    for (const unsigned char *c = start; c < end; c++)
        if (*c <= ' ' || *c >= 0x7f)
            return bad(m, "it names something with characters that no name has");
    *text = start;
    *length = (size_t)(end - start);
    m->at += *length + 1;
    return CVY_OK;
}

static cvy_status read_global(struct machine *m)
{
    const unsigned char *module = NULL, *name = NULL;
    size_t module_length = 0, name_length = 0;
    char *text = NULL;
    value *v = NULL;

    CVY_TRY(read_line(m, &module, &module_length));
    CVY_TRY(read_line(m, &name, &name_length));
    CVY_TRY(take(m, module_length + name_length + 2, &text));
    memcpy(text, module, module_length);
    text[module_length] = '.';
    memcpy(text + module_length + 1, name, name_length);
    if (!m->limits->known(text))
        return cvy_fail(CVY_BAD_DATA,
                        "%s: its pickle names %s, which is not read (nothing in such a file is ever executed): save "
                        "the state_dict() of the model alone",
                        cvy_quote(m->what), cvy_quote(text));
    CVY_TRY(push_new(m, CVY_PICKLE_GLOBAL, &v));
    v->name = text;
    return CVY_OK;
}

/* ---- memo ---- */

/* Python numbers what it remembers one after the other. */
static cvy_status remember(struct machine *m, int size)
{
    uint64_t index = 0;

    CVY_TRY(read_number(m, size, &index));
    CVY_TRY(need(m, 1));
    if (index > m->memo_count)
        return bad(m, "it remembers out of order");
    CVY_TRY(grow(m, &m->memo, &m->memo_capacity, (size_t)index + 1));
    m->memo[index] = m->stack[m->depth - 1];
    if (index == m->memo_count)
        m->memo_count++;
    return CVY_OK;
}

static cvy_status recall(struct machine *m, int size)
{
    uint64_t index = 0;

    CVY_TRY(read_number(m, size, &index));
    if (index >= m->memo_count)
        return bad(m, "it recalls what it has not remembered");
    return push(m, m->memo[index]);
}

/* ---- building ---- */

static cvy_status append(struct machine *m, value *to, value *item)
{
    if (to->list.count == to->list.capacity) {
        const uint32_t capacity = to->list.capacity ? 2 * to->list.capacity : 4;
        value **larger = NULL;

        if (to->list.capacity > UINT32_MAX / 4)
            return bad(m, "a list is too long");
        CVY_TRY(take(m, capacity * sizeof *larger, &larger));
        if (to->list.count > 0)
            memcpy(larger, to->list.items, to->list.count * sizeof *larger);
        to->list.items = larger;
        to->list.capacity = capacity;
    }
    to->list.items[to->list.count++] = item;
    return CVY_OK;
}

static cvy_status make_tuple(struct machine *m, value **values, size_t count)
{
    value **items = NULL, *v = NULL;

    if (count > UINT32_MAX)
        return bad(m, "a tuple is too long");
    CVY_TRY(take(m, count * sizeof *items, &items));
    if (count > 0)
        memcpy(items, values, count * sizeof *items);
    CVY_TRY(push_new(m, CVY_PICKLE_TUPLE, &v)); /* over `values`, which are copied */
    v->list.items = items;
    v->list.count = v->list.capacity = (uint32_t)count;
    return CVY_OK;
}

static cvy_status short_tuple(struct machine *m, size_t count)
{
    CVY_TRY(need(m, count));
    m->depth -= count;
    return make_tuple(m, m->stack + m->depth, count);
}

/* Items for the value on top of the stack. What a call would make swallows them. */
static cvy_status add_items(struct machine *m, enum cvy_pickle_kind kind, value **items, size_t count)
{
    CVY_TRY(need(m, 1));
    value *to = m->stack[m->depth - 1];
    if (to->kind == CVY_PICKLE_CALL)
        return CVY_OK;
    if (to->kind != kind)
        return bad(m, kind == CVY_PICKLE_DICT ? "it sets a key of something without keys"
                                              : "it appends to something that is no list");
    if (kind == CVY_PICKLE_DICT && count % 2 != 0)
        return bad(m, "a key has no value");
    for (size_t i = 0; i < count; i++)
        CVY_TRY(append(m, to, items[i]));
    return CVY_OK;
}

static cvy_status add_few(struct machine *m, enum cvy_pickle_kind kind, size_t count)
{
    CVY_TRY(need(m, count + 1));
    m->depth -= count;
    return add_items(m, kind, m->stack + m->depth, count);
}

static cvy_status add_many(struct machine *m, enum cvy_pickle_kind kind)
{
    value **items = NULL;
    size_t count = 0;

    CVY_TRY(pop_mark(m, &items, &count));
    return add_items(m, kind, items, count);
}

/* OrderedDict([[key, value], ...]), as Python 2 writes one. */
static cvy_status make_ordered(struct machine *m, const value *pairs)
{
    value *v = NULL;

    CVY_TRY(push_new(m, CVY_PICKLE_DICT, &v));
    for (uint32_t i = 0; i < pairs->list.count; i++) {
        const value *pair = pairs->list.items[i];

        if ((pair->kind != CVY_PICKLE_LIST && pair->kind != CVY_PICKLE_TUPLE) || pair->list.count != 2)
            return bad(m, "a key has no value");
        CVY_TRY(append(m, v, pair->list.items[0]));
        CVY_TRY(append(m, v, pair->list.items[1]));
    }
    return CVY_OK;
}

/* REDUCE and NEWOBJ: a global and its arguments. An ordered dictionary is a dictionary; all else stays a call. */
static cvy_status make_call(struct machine *m)
{
    value *arguments, *callable, *v = NULL;

    CVY_TRY(need(m, 2));
    arguments = pop(m);
    callable = pop(m);
    if (callable->kind != CVY_PICKLE_GLOBAL || arguments->kind != CVY_PICKLE_TUPLE)
        return bad(m, "it calls something that is no global");
    if (strcmp(callable->name, "collections.OrderedDict") == 0 && arguments->list.count == 0)
        return push_new(m, CVY_PICKLE_DICT, &v);
    if (strcmp(callable->name, "collections.OrderedDict") == 0 && arguments->list.count == 1 &&
        arguments->list.items[0]->kind == CVY_PICKLE_LIST)
        return make_ordered(m, arguments->list.items[0]);
    CVY_TRY(push_new(m, CVY_PICKLE_CALL, &v));
    v->call.callable = callable;
    v->call.arguments = arguments;
    return CVY_OK;
}

/* BUILD: attributes of an object, of which none matters here. */
static cvy_status drop_state(struct machine *m)
{
    CVY_TRY(need(m, 2));
    pop(m);
    return CVY_OK;
}

static cvy_status make_persistent(struct machine *m)
{
    value *id, *v = NULL;

    CVY_TRY(need(m, 1));
    id = pop(m);
    CVY_TRY(push_new(m, CVY_PICKLE_PERSISTENT, &v));
    v->persistent.id = id;
    v->persistent.previous = m->persistent;
    m->persistent = v;
    return CVY_OK;
}

static cvy_status check_protocol(struct machine *m)
{
    uint64_t protocol = 0;

    CVY_TRY(read_number(m, 1, &protocol));
    if (protocol < OLDEST_PROTOCOL || protocol > NEWEST_PROTOCOL)
        return cvy_fail(CVY_BAD_DATA,
                        "%s: a pickle of protocol %d is not read: save it without the option pickle_protocol",
                        cvy_quote(m->what), (int)protocol);
    return CVY_OK;
}

/* ---- running ---- */

static cvy_status set_mark(struct machine *m)
{
    if (m->mark_count == MAX_MARKS)
        return bad(m, "it is nested too deeply");
    m->marks[m->mark_count++] = m->depth;
    return CVY_OK;
}

static cvy_status step(struct machine *m, unsigned char code)
{
    value **values = NULL, *v = NULL;
    size_t count = 0;

    switch (code) {
    case 0x80: /* PROTO */
        return check_protocol(m);
    case '.': /* STOP */
        m->stopped = true;
        return CVY_OK;
    case '(': /* MARK */
        return set_mark(m);
    case 'N': /* NONE */
        return push(m, &m->constants[0]);
    case 0x88: /* NEWTRUE */
        return push(m, &m->constants[2]);
    case 0x89: /* NEWFALSE */
        return push(m, &m->constants[1]);
    case 'K': /* BININT1 */
        return read_int(m, 1);
    case 'M': /* BININT2 */
        return read_int(m, 2);
    case 'J': /* BININT */
        return read_int(m, 4);
    case 0x8a: /* LONG1 */
        return read_long(m);
    case 'G': /* BINFLOAT */
        return read_float(m);
    case 'U': /* SHORT_BINSTRING */
        return read_text(m, 1);
    case 'T': /* BINSTRING */
    case 'X': /* BINUNICODE */
        return read_text(m, 4);
    case 'c': /* GLOBAL */
        return read_global(m);
    case 'q': /* BINPUT */
        return remember(m, 1);
    case 'r': /* LONG_BINPUT */
        return remember(m, 4);
    case 'h': /* BINGET */
        return recall(m, 1);
    case 'j': /* LONG_BINGET */
        return recall(m, 4);
    case '}': /* EMPTY_DICT */
        return push_new(m, CVY_PICKLE_DICT, &v);
    case ']': /* EMPTY_LIST */
        return push_new(m, CVY_PICKLE_LIST, &v);
    case ')':  /* EMPTY_TUPLE */
    case 0x8f: /* EMPTY_SET */
        return push_new(m, CVY_PICKLE_TUPLE, &v);
    case 't': /* TUPLE */
        CVY_TRY(pop_mark(m, &values, &count));
        return make_tuple(m, values, count);
    case 0x85: /* TUPLE1 */
    case 0x86: /* TUPLE2 */
    case 0x87: /* TUPLE3 */
        return short_tuple(m, code - 0x84u);
    case 'a': /* APPEND */
        return add_few(m, CVY_PICKLE_LIST, 1);
    case 'e': /* APPENDS */
        return add_many(m, CVY_PICKLE_LIST);
    case 's': /* SETITEM */
        return add_few(m, CVY_PICKLE_DICT, 2);
    case 'u': /* SETITEMS */
        return add_many(m, CVY_PICKLE_DICT);
    case 'R':  /* REDUCE */
    case 0x81: /* NEWOBJ */
        return make_call(m);
    case 'b': /* BUILD */
        return drop_state(m);
    case 'Q': /* BINPERSID */
        return make_persistent(m);
    default:
        return cvy_fail(CVY_BAD_DATA, "%s: its pickle has the instruction 0x%02x at byte %zu, which PyTorch never uses",
                        cvy_quote(m->what), code, m->instruction);
    }
}

static cvy_status run(struct machine *m)
{
    while (!m->stopped) {
        const unsigned char *code = NULL;

        m->instruction = m->at;
        CVY_TRY(read_bytes(m, 1, &code));
        CVY_TRY(step(m, *code));
    }
    if (m->depth != 1 || m->mark_count != 0)
        return bad(m, "it does not end with one object");
    return CVY_OK;
}

cvy_status cvy_pickle_read_first(const char *what, const void *data, size_t size,
                                 const struct cvy_pickle_limits *limits, struct cvy_arena *arena,
                                 struct cvy_pickle *pickle)
{
    struct machine m = {.what = what, .bytes = data, .size = size, .limits = limits, .arena = arena};
    cvy_status status;

    *pickle = (struct cvy_pickle){0};
    CVY_GOTO(take(&m, 3 * sizeof *m.constants, &m.constants));
    m.constants[1].kind = m.constants[2].kind = CVY_PICKLE_BOOL;
    m.constants[2].integer = 1;
    CVY_GOTO(run(&m));
    *pickle = (struct cvy_pickle){.root = m.stack[0], .last_persistent = m.persistent, .size = m.at};
fail:
    cvy_free(m.stack);
    cvy_free(m.memo);
    return status;
}

cvy_status cvy_pickle_read(const char *what, const void *data, size_t size, const struct cvy_pickle_limits *limits,
                           struct cvy_arena *arena, const struct cvy_pickle_value **root)
{
    struct cvy_pickle pickle;

    *root = NULL;
    CVY_TRY(cvy_pickle_read_first(what, data, size, limits, arena, &pickle));
    if (pickle.size != size)
        return cvy_fail(CVY_BAD_DATA, "%s: damaged pickle: it continues after its end (byte %zu)", cvy_quote(what),
                        pickle.size);
    *root = pickle.root;
    return CVY_OK;
}

/* ---- looking at a tree ---- */

bool cvy_pickle_is(const struct cvy_pickle_value *v, enum cvy_pickle_kind kind)
{
    return v && v->kind == kind;
}

const char *cvy_pickle_text(const struct cvy_pickle_value *v)
{
    return cvy_pickle_is(v, CVY_PICKLE_TEXT) && strlen(v->text.bytes) == v->text.length ? v->text.bytes : NULL;
}

const struct cvy_pickle_value *cvy_pickle_item(const struct cvy_pickle_value *v, uint32_t i)
{
    return (cvy_pickle_is(v, CVY_PICKLE_TUPLE) || cvy_pickle_is(v, CVY_PICKLE_LIST)) && i < v->list.count
               ? v->list.items[i]
               : NULL;
}

const struct cvy_pickle_value *cvy_pickle_get(const struct cvy_pickle_value *dictionary, const char *key)
{
    const struct cvy_pickle_value *found = NULL;
    const size_t length = strlen(key);

    /* Lengths first: every key may be the same text of megabytes. */
    for (uint32_t i = 0; cvy_pickle_is(dictionary, CVY_PICKLE_DICT) && i + 1 < dictionary->list.count; i += 2) {
        const struct cvy_pickle_value *text = dictionary->list.items[i];
        if (cvy_pickle_is(text, CVY_PICKLE_TEXT) && text->text.length == length &&
            memcmp(text->text.bytes, key, length) == 0)
            found = dictionary->list.items[i + 1];
    }
    return found;
}

bool cvy_pickle_calls(const struct cvy_pickle_value *v, const char *name)
{
    return cvy_pickle_is(v, CVY_PICKLE_CALL) && strcmp(v->call.callable->name, name) == 0;
}
