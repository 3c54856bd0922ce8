#include "base/memory.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"

enum { CACHE_LINE = 64, ARENA_FIRST_BLOCK = 4096, ARENA_LARGEST_STEP = 1 << 20 };
static const size_t HUGE_PAGE = (size_t)2 << 20;

/* Allocations left until one fails; 0 when no failure is asked for. */
static atomic_int_fast64_t fail_countdown;
static atomic_bool fail_sticky;

void cvy_memory_fail_after(int64_t n, bool sticky)
{
    atomic_store(&fail_sticky, sticky);
    atomic_store(&fail_countdown, n > 0 ? n : 0);
}

/* The largest request that is granted; 0: any. */
static atomic_size_t fail_above;

void cvy_memory_fail_above(size_t bytes)
{
    atomic_store(&fail_above, bytes);
}

static bool must_fail(size_t bytes)
{
    const size_t limit = atomic_load_explicit(&fail_above, memory_order_relaxed);
    if (limit > 0 && bytes > limit)
        return true;
    if (atomic_load_explicit(&fail_countdown, memory_order_relaxed) == 0)
        return false;
    int_fast64_t left = atomic_fetch_sub(&fail_countdown, 1) - 1;
    if (left > 0)
        return false;
    bool sticky = atomic_load(&fail_sticky);
    if (left < 0 || sticky) /* below 0 only when two threads got here at once */
        atomic_store(&fail_countdown, sticky ? 1 : 0);
    return sticky || left == 0;
}

void *cvy_calloc(size_t count, size_t size)
{
    size_t bytes;
    if (!cvy_size_mul(count, size, &bytes) || must_fail(bytes))
        return NULL;
    /* An empty block still has an address: NULL always means failure. */
    return calloc(bytes > 0 ? bytes : 1, 1);
}

void *cvy_realloc(void *block, size_t count, size_t size)
{
    size_t bytes;
    if (!cvy_size_mul(count, size, &bytes) || must_fail(bytes))
        return NULL;
    return realloc(block, bytes > 0 ? bytes : 1);
}

void cvy_free(void *block)
{
    free(block);
}

char *cvy_strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = cvy_calloc(bytes, 1);
    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}

void *cvy_calloc_aligned(size_t bytes)
{
    void *block;
    if (must_fail(bytes))
        return NULL;
    bool large = bytes >= HUGE_PAGE;
    if (posix_memalign(&block, large ? HUGE_PAGE : CACHE_LINE, bytes > 0 ? bytes : 1) != 0)
        return NULL;
    /* Only whole huge pages are asked for, and before the first touch. Refusal costs speed, nothing else. */
    if (large)
        (void)madvise(block, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
    memset(block, 0, bytes);
    return block;
}

void cvy_free_aligned(void *block)
{
    free(block);
}

void cvy_memory_give_back(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

struct cvy_arena_block {
    struct cvy_arena_block *next;
    size_t used, size; /* of `bytes` */
    _Alignas(16) unsigned char bytes[];
};

void *cvy_arena_alloc(struct cvy_arena *arena, size_t bytes)
{
    size_t rounded, total;
    if (!cvy_size_add(bytes, 15, &rounded))
        return NULL;
    rounded &= ~(size_t)15;
    if (rounded == 0)
        rounded = 16;

    struct cvy_arena_block *block = arena->head;
    if (!block || block->size - block->used < rounded) {
        size_t size = block ? block->size * 2 : ARENA_FIRST_BLOCK;
        if (size > ARENA_LARGEST_STEP)
            size = ARENA_LARGEST_STEP;
        if (size < rounded)
            size = rounded;
        if (!cvy_size_add(size, sizeof *block, &total))
            return NULL;
        block = cvy_calloc(1, total);
        if (!block)
            return NULL;
        block->next = arena->head;
        block->size = size;
        arena->head = block;
    }
    void *result = block->bytes + block->used;
    block->used += rounded;
    return result;
}

char *cvy_arena_strdup(struct cvy_arena *arena, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = cvy_arena_alloc(arena, bytes);
    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}

char *cvy_arena_printf(struct cvy_arena *arena, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0)
        return NULL;
    char *text = cvy_arena_alloc(arena, (size_t)length + 1);
    if (!text)
        return NULL;
    va_start(arguments, format);
    vsnprintf(text, (size_t)length + 1, format, arguments);
    va_end(arguments);
    return text;
}

void cvy_arena_release(struct cvy_arena *arena)
{
    while (arena->head) {
        struct cvy_arena_block *next = arena->head->next;
        free(arena->head);
        arena->head = next;
    }
}

/* Make room for `more` bytes and the terminator. */
static bool text_reserve(struct cvy_text *text, size_t more)
{
    size_t needed;
    if (text->failed)
        return false;
    if (!cvy_size_add(text->length, more, &needed) || !cvy_size_add(needed, 1, &needed)) {
        text->failed = true;
        return false;
    }
    if (needed <= text->capacity)
        return true;
    size_t capacity = text->capacity < 64 ? 128 : text->capacity * 2;
    if (capacity < needed)
        capacity = needed;
    char *grown = cvy_realloc(text->text, capacity, 1);
    if (!grown) {
        text->failed = true;
        return false;
    }
    text->text = grown;
    text->capacity = capacity;
    return true;
}

void cvy_text_append(struct cvy_text *text, const void *bytes, size_t length)
{
    if (!text_reserve(text, length))
        return;
    if (length > 0)
        memcpy(text->text + text->length, bytes, length);
    text->length += length;
    text->text[text->length] = 0;
}

void cvy_text_count(struct cvy_text *text, int64_t count, const char *noun)
{
    cvy_text_puts(text, cvy_counted(count, noun));
}

void cvy_text_puts(struct cvy_text *text, const char *string)
{
    cvy_text_append(text, string, strlen(string));
}

void cvy_text_printf(struct cvy_text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0) {
        text->failed = true;
        return;
    }
    if (!text_reserve(text, (size_t)length))
        return;
    va_start(arguments, format);
    vsnprintf(text->text + text->length, (size_t)length + 1, format, arguments);
    va_end(arguments);
    text->length += (size_t)length;
}

void cvy_text_release(struct cvy_text *text)
{
    free(text->text);
    *text = (struct cvy_text){0};
}
