/* Blocks and threads of a GPU on the host, one after the other. */
#undef _FORTIFY_SOURCE /* whose longjmp() refuses to go from one stack to another */
#include "emulate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include "capture.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#else
#include <setjmp.h>
#endif

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wclobbered" /* by jumps between stacks: counters of loops live on their own one */
#endif

enum { MAX_THREADS = 1024, STACK_BYTES = 128 << 10, WARP = 32, MAX_COPIES = 64, MAX_GROUPS = 16 };

struct emulated_thread_position emulated_thread_position;

/* ---- threads of a block that wait for each other ----
 * Each has a stack of its own, made once, on which it runs its part of one block after the other. */

struct copy {
    void *to;
    const void *from;
    bool there;
    size_t bytes;
};

struct fiber {
    ucontext_t context; /* where it begins */
    char *stack;
    bool started, done, met; /* met: it waits for its warp, not for the block */
    struct copy copies[MAX_COPIES];
    int copy_count, group_count;
    int group_ends[MAX_GROUPS]; /* after the last copy of each group */
    unsigned meetings;
#if defined(__SANITIZE_ADDRESS__)
    void *fake_stack;
#else
    jmp_buf point; /* where it continues */
#endif
};

static struct {
    struct fiber *fibers;
    const struct emulated_kernel *kernel;
    const void *args;
    int current;
#if defined(__SANITIZE_ADDRESS__)
    ucontext_t context;
    void *fake_stack;
    const void *stack;
    size_t stack_bytes;
#else
    jmp_buf point;
#endif
} block;

#if defined(__SANITIZE_ADDRESS__)

static void arrived(struct fiber *fiber)
{
    __sanitizer_finish_switch_fiber(fiber->fake_stack, &block.stack, &block.stack_bytes);
}

static void leave(struct fiber *fiber)
{
    __sanitizer_start_switch_fiber(&fiber->fake_stack, block.stack, block.stack_bytes);
    swapcontext(&fiber->context, &block.context);
    arrived(fiber);
}

static void enter(struct fiber *fiber)
{
    __sanitizer_start_switch_fiber(&block.fake_stack, fiber->stack, STACK_BYTES);
    swapcontext(&block.context, &fiber->context);
    __sanitizer_finish_switch_fiber(block.fake_stack, NULL, NULL);
}

#else

/* Jumps leave the signal mask alone: a hundred times faster than swapcontext. */
static void arrived(struct fiber *fiber)
{
    (void)fiber;
}

static void leave(struct fiber *fiber)
{
    if (_setjmp(fiber->point) == 0)
        _longjmp(block.point, 1);
}

static void enter(struct fiber *fiber)
{
    if (_setjmp(block.point) != 0)
        return;
    if (fiber->started)
        _longjmp(fiber->point, 1);
    fiber->started = true;
    setcontext(&fiber->context);
}

#endif

static void fiber_main(void)
{
    struct fiber *fiber = &block.fibers[block.current];

    arrived(fiber);
    for (;;) {
        block.kernel->call(block.args);
        fiber->done = true;
        leave(fiber);
    }
}

void emulated_sync(void)
{
    assert(block.kernel); /* else the kernel was not declared with GPU_KERNEL_SHARED */
    leave(&block.fibers[block.current]);
}

static void make_fibers(int threads)
{
    if (!block.fibers && !(block.fibers = calloc(MAX_THREADS, sizeof *block.fibers)))
        abort();
    for (int i = 0; i < threads; i++) {
        struct fiber *fiber = &block.fibers[i];
        if (fiber->stack)
            continue;
        fiber->stack = malloc(STACK_BYTES);
        if (!fiber->stack || getcontext(&fiber->context) != 0)
            abort();
        fiber->context.uc_stack.ss_sp = fiber->stack;
        fiber->context.uc_stack.ss_size = STACK_BYTES;
        fiber->context.uc_link = NULL;
        makecontext(&fiber->context, fiber_main, 0);
    }
}

static void __attribute__((noreturn)) refuse(const char *what)
{
    fprintf(stderr, "kernel %s: %s\n", block.kernel->name, what);
    abort();
}

/* Runs the threads of a warp until they wait for the block, or end. Returns how many have ended. */
static int run_warp(int first, int threads)
{
    int left = 0, ended, met;

    for (int i = first; i < first + threads; i++)
        left += !block.fibers[i].done;
    if (left == 0)
        return 0;
    do {
        ended = met = 0;
        for (int i = first; i < first + threads; i++) {
            if (block.fibers[i].done)
                continue;
            block.fibers[i].met = false;
            block.current = emulated_thread_position.thread = i;
            enter(&block.fibers[i]);
            ended += block.fibers[i].done;
            met += block.fibers[i].met;
        }
        if (met != 0 && met != threads)
            refuse("some threads of a warp are at a matrix that others do not come to");
    } while (met != 0);
    return ended;
}

static void run_block(int threads)
{
    int left = threads;

    for (int i = 0; i < threads; i++) {
        struct fiber *fiber = &block.fibers[i];
        fiber->done = false;
        fiber->copy_count = fiber->group_count = 0;
    }
    while (left > 0) {
        const int before = left;
        for (int i = 0; i < threads; i += WARP)
            left -= run_warp(i, threads - i < WARP ? threads - i : WARP);
        /* All of them came to a barrier, or all of them to the end. */
        if (left != 0 && left != before)
            refuse("some threads wait at a barrier that others do not reach");
    }
}

/* ---- copies that nobody waits for at once ---- */

void emulated_copy(void *to, const void *from, bool there, size_t bytes)
{
    struct fiber *fiber = &block.fibers[block.current];

    assert(block.kernel && fiber->copy_count < MAX_COPIES && (((uintptr_t)to | (uintptr_t)from) & (bytes - 1)) == 0);
    fiber->copies[fiber->copy_count++] = (struct copy){to, from, there, bytes};
}

void emulated_copy_group(void)
{
    struct fiber *fiber = &block.fibers[block.current];

    assert(fiber->group_count < MAX_GROUPS);
    fiber->group_ends[fiber->group_count++] = fiber->copy_count;
}

void emulated_copy_wait(int pending)
{
    struct fiber *fiber = &block.fibers[block.current];
    const int over = fiber->group_count > pending ? fiber->group_count - pending : 0;
    const int arrived = over > 0 ? fiber->group_ends[over - 1] : 0;

    for (int i = 0; i < arrived; i++) {
        const struct copy *copy = &fiber->copies[i];
        if (copy->there)
            memcpy(copy->to, copy->from, copy->bytes);
        else
            memset(copy->to, 0, copy->bytes);
    }
    fiber->copy_count -= arrived;
    memmove(fiber->copies, fiber->copies + arrived, (size_t)fiber->copy_count * sizeof *fiber->copies);
    fiber->group_count -= over;
    for (int i = 0; i < fiber->group_count; i++)
        fiber->group_ends[i] = fiber->group_ends[i + over] - arrived;
}

/* ---- what the threads of a warp do together ----
 * Each leaves what it has in one of two tables and meets the others; nobody can be two meetings ahead of anybody. */

struct brought {
    const uint16_t *row;
    float a[8], b[4];
};

static struct brought tables[MAX_THREADS][2];

/* The tables of this thread's warp at this meeting: [lane][0]. */
static struct brought *mine(void)
{
    struct fiber *fiber = &block.fibers[block.current];

    assert(block.kernel && emulated_thread_position.threads % WARP == 0);
    return &tables[block.current][fiber->meetings++ & 1];
}

static const struct brought *meet(const struct brought *own)
{
    struct fiber *fiber = &block.fibers[block.current];

    fiber->met = true;
    leave(fiber);
    return own - 2 * (block.current % WARP);
}

void emulated_mma(float (*widen)(uint16_t bits), float d[4], const uint32_t a[4], const uint32_t b[2])
{
    const int lane = block.current % WARP, g = lane / 4, t = lane % 4;
    struct brought *own = mine();
    const struct brought *warp;

    for (int i = 0; i < 8; i++)
        own->a[i] = widen((uint16_t)(a[i / 2] >> 16 * (i % 2)));
    for (int i = 0; i < 4; i++)
        own->b[i] = widen((uint16_t)(b[i / 2] >> 16 * (i % 2)));
    warp = meet(own);
    for (int i = 0; i < 4; i++) {
        const int row = g + i / 2 * 8, column = 2 * t + i % 2;
        double sum = 0;
        for (int k = 0; k < 16; k++) { /* who brought a[row][k] and b[k][column], and as what */
            const float *left = warp[2 * (row % 8 * 4 + k % 8 / 2)].a;
            const float *right = warp[2 * (column * 4 + k % 8 / 2)].b;
            sum += (double)left[k / 8 * 4 + row / 8 * 2 + k % 2] * right[k / 8 * 2 + k % 2];
        }
        d[i] = (float)(d[i] + sum);
    }
}

void emulated_load_matrices(const uint16_t *row, int count, bool turned, uint32_t *m)
{
    const int lane = block.current % WARP, g = lane / 4, t = lane % 4;
    struct brought *own = mine();
    const struct brought *warp;

    assert(((uintptr_t)row & 15) == 0);
    own->row = row;
    warp = meet(own);
    for (int i = 0; i < count; i++) {
        m[i] = 0;
        for (int k = 0; k < 2; k++) {
            const int r = turned ? 2 * t + k : g, c = turned ? g : 2 * t + k;
            m[i] |= (uint32_t)warp[2 * (8 * i + r)].row[c] << 16 * k;
        }
    }
}

/* ---- launches ---- */

static void run_now(const struct emulated_kernel *kernel, int64_t blocks_x, int64_t blocks_y, int threads,
                    const void *args)
{
    const struct emulated_thread_position before = emulated_thread_position;

    emulated_thread_position = (struct emulated_thread_position){
        .threads = threads, .blocks_x = (int32_t)blocks_x, .blocks_y = (int32_t)blocks_y};
    if (kernel->shared)
        make_fibers(threads);
    for (int32_t y = 0; y < blocks_y; y++) {
        for (int32_t x = 0; x < blocks_x; x++) {
            emulated_thread_position.block_x = x;
            emulated_thread_position.block_y = y;
            if (kernel->shared) {
                block.kernel = kernel;
                block.args = args;
                run_block(threads);
                block.kernel = NULL;
                continue;
            }
            kernel->call(args);
        }
    }
    emulated_thread_position = before;
}

struct launch {
    const struct emulated_kernel *kernel;
    int64_t blocks_x, blocks_y;
    int threads;
    _Alignas(16) char args[32764]; /* what CUDA 13 takes; the last member, of which only the kernel's own are kept */
};

static void replay_launch(const void *data)
{
    const struct launch *launch = data;

    run_now(launch->kernel, launch->blocks_x, launch->blocks_y, launch->threads, launch->args);
}

void emulated_launch(const struct emulated_kernel *kernel, void *stream, int64_t blocks_x, int64_t blocks_y,
                     int threads, const void *args)
{
    EMULATED_ALONE();
    const char *fault = getenv("CONVOY_EMULATED_FAULT");
    struct launch launch;

    if (fault && strcmp(fault, kernel->name) == 0)
        emulated_broken = true;
    /* What a GPU would refuse. */
    assert(blocks_x > 0 && blocks_x <= INT32_MAX && blocks_y > 0 && blocks_y <= 65535);
    assert(threads > 0 && threads <= MAX_THREADS && kernel->args_bytes <= sizeof launch.args);
    launch.kernel = kernel;
    launch.blocks_x = blocks_x;
    launch.blocks_y = blocks_y;
    launch.threads = threads;
    memcpy(launch.args, args, kernel->args_bytes);
    emulated_do(stream, replay_launch, &launch, offsetof(struct launch, args) + kernel->args_bytes);
}

unsigned emulated_ticket(unsigned *counter)
{
    return (*counter)++;
}
