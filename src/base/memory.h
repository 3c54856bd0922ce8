/* Memory: checked allocation, an arena for objects with one lifetime, and a growable text buffer. */
#ifndef CVY_BASE_MEMORY_H
#define CVY_BASE_MEMORY_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* count * size bytes of zeroed memory; NULL when it overflows or memory runs out. Freed with cvy_free. */
void *cvy_calloc(size_t count, size_t size);
/* Grow to count * size bytes; the old block stays valid on NULL. New bytes are not initialised. */
void *cvy_realloc(void *block, size_t count, size_t size);
void cvy_free(void *block);
char *cvy_strdup(const char *text);
/* Zeroed, aligned to 64 bytes and, from 2 MiB on, backed by huge pages where the system gives them. Freed with
 * cvy_free_aligned. */
void *cvy_calloc_aligned(size_t bytes);
void cvy_free_aligned(void *block);
/* What was freed goes back to the system. The C library keeps up to 64 MiB of it by itself once blocks of 32 MiB come
 * and go. */
void cvy_memory_give_back(void);
/* For tests: let the n-th allocation from now fail (0: none), and every one after it too when `sticky`. */
void cvy_memory_fail_after(int64_t n, bool sticky);
/* Likewise: let every request for more than `bytes` fail (0: none). */
void cvy_memory_fail_above(size_t bytes);

/* a * b and a + b into *out; false on overflow. */
static inline bool cvy_size_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool cvy_size_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* An arena: allocations live until the arena is released. Zero-initialise to use. */
struct cvy_arena {
    struct cvy_arena_block *head;
};
/* Zeroed, aligned to 16 bytes; NULL when memory runs out. */
void *cvy_arena_alloc(struct cvy_arena *arena, size_t bytes);
char *cvy_arena_strdup(struct cvy_arena *arena, const char *text);
char *cvy_arena_printf(struct cvy_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
void cvy_arena_release(struct cvy_arena *arena);

/* A growable, always terminated text. The first failed allocation sticks: `failed` is checked once at the end.
 * Zero-initialise to use; `text` is NULL while empty. */
struct cvy_text {
    char *text;
    size_t length, capacity;
    bool failed;
};
void cvy_text_append(struct cvy_text *text, const void *bytes, size_t length);
void cvy_text_puts(struct cvy_text *text, const char *string);
void cvy_text_printf(struct cvy_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* cvy_counted */
void cvy_text_count(struct cvy_text *text, int64_t count, const char *noun);
void cvy_text_release(struct cvy_text *text);

#endif
