/* Python pickles, read as data. A pickle is a program for a small stack machine that builds objects by calling what it
 * names; this machine builds a tree that describes what would be called, and calls nothing. It knows the instructions
 * that PyTorch's own files consist of (protocol 2) and refuses every other. */
#ifndef CVY_FORMATS_WEIGHTS_PICKLE_H
#define CVY_FORMATS_WEIGHTS_PICKLE_H

#include <stdbool.h>

#include "base/memory.h"
#include "convoy/status.h"

enum cvy_pickle_kind {
    CVY_PICKLE_NONE,
    CVY_PICKLE_BOOL,       /* integer */
    CVY_PICKLE_INT,        /* integer */
    CVY_PICKLE_BIG,        /* an integer of more than 64 bits; its value is dropped */
    CVY_PICKLE_FLOAT,      /* number */
    CVY_PICKLE_TEXT,       /* text */
    CVY_PICKLE_GLOBAL,     /* name: "module.name" */
    CVY_PICKLE_TUPLE,      /* items; a set is one too */
    CVY_PICKLE_LIST,       /* items */
    CVY_PICKLE_DICT,       /* items: key, value, key, value, ... in file order, repeated keys included */
    CVY_PICKLE_CALL,       /* call: what Python would make by calling a global */
    CVY_PICKLE_PERSISTENT, /* persistent: stands for what a tuple describes and the file keeps elsewhere */
};

struct cvy_pickle_value {
    enum cvy_pickle_kind kind;
    union {
        int64_t integer;
        double number;
        struct {
            const char *bytes; /* terminated; may hold zero bytes */
            size_t length;
        } text;
        const char *name;
        struct {
            struct cvy_pickle_value **items;
            uint32_t count, capacity;
        } list;
        struct {
            const struct cvy_pickle_value *callable, *arguments; /* a global, a tuple */
        } call;
        struct {
            const struct cvy_pickle_value *id;
            const struct cvy_pickle_value *previous; /* of this kind in the pickle, NULL: this is the first */
        } persistent;
    };
};

struct cvy_pickle_limits {
    bool (*known)(const char *name); /* which globals ("module.name") may appear */
    size_t memory;                   /* bytes that the tree and the machine may take together */
};
struct cvy_pickle {
    const struct cvy_pickle_value *root;
    const struct cvy_pickle_value
        *last_persistent; /* of its persistent values, which form a list; NULL: there is none */
    size_t size;          /* bytes that it takes */
};
/* Reads the pickle that the bytes begin with. The tree lives in the arena; parts of it may be the same object, also
 * each other's part: walk it with a limit. `what` names the file. CVY_BAD_DATA, CVY_NO_MEMORY. */
CVY_CHECKED cvy_status cvy_pickle_read_first(const char *what, const void *data, size_t size,
                                             const struct cvy_pickle_limits *limits, struct cvy_arena *arena,
                                             struct cvy_pickle *pickle);
/* The same where the bytes are one pickle and nothing after it. */
CVY_CHECKED cvy_status cvy_pickle_read(const char *what, const void *data, size_t size,
                                       const struct cvy_pickle_limits *limits, struct cvy_arena *arena,
                                       const struct cvy_pickle_value **root);

/* ---- access to a tree; NULL is accepted and gives NULL, 0 or false ---- */

/* The value of a key of a dictionary (the last one), NULL when there is none. */
const struct cvy_pickle_value *cvy_pickle_get(const struct cvy_pickle_value *dictionary, const char *key);
bool cvy_pickle_is(const struct cvy_pickle_value *value, enum cvy_pickle_kind kind);
/* Is it a call of this global? */
bool cvy_pickle_calls(const struct cvy_pickle_value *value, const char *name);
/* The i-th item of a tuple or list, NULL past its end. */
const struct cvy_pickle_value *cvy_pickle_item(const struct cvy_pickle_value *value, uint32_t i);
/* A text without zero bytes; NULL for everything else. */
const char *cvy_pickle_text(const struct cvy_pickle_value *value);

#endif
