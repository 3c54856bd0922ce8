/* Blocks and threads of a GPU on the host, one after the other. */
#include "emulate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include "recording.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#else
#include <setjmp.h>
#endif

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wclobbered" /* by jumps between stacks: counters of loops live on their own one */
#endif

enum { MOST_THREADS = 1024, STACK_BYTES = 128 << 10 };

struct emulated_place emulated_place;

/* ---- threads of a block that wait for each other ----
 * Each has a stack of its own, made once, on which it runs its part of one block after the other. */

struct fiber {
    ucontext_t context; /* where it begins */
    char *stack;
    bool started, done;
#if defined(__SANITIZE_ADDRESS__)
    void *fake_stack;
#else
    jmp_buf point; /* where it goes on */
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
    if (!block.fibers && !(block.fibers = calloc(MOST_THREADS, sizeof *block.fibers)))
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

static void run_block(int threads)
{
    int left = threads;

    for (int i = 0; i < threads; i++)
        block.fibers[i].done = false;
    while (left > 0) {
        const int before = left;
        for (int i = 0; i < threads; i++) {
            if (block.fibers[i].done)
                continue;
            block.current = emulated_place.thread = i;
            enter(&block.fibers[i]);
            left -= block.fibers[i].done;
        }
        /* All of them came to a barrier, or all of them to the end. */
        if (left != 0 && left != before) {
            fprintf(stderr, "kernel %s: some threads wait at a barrier that others do not reach\n", block.kernel->name);
            abort();
        }
    }
}

/* ---- launches ---- */

static void run_now(const struct emulated_kernel *kernel, int64_t blocks_x, int64_t blocks_y, int threads,
                    const void *args)
{
    const struct emulated_place before = emulated_place;

    emulated_place =
        (struct emulated_place){.threads = threads, .blocks_x = (int32_t)blocks_x, .blocks_y = (int32_t)blocks_y};
    if (kernel->shared)
        make_fibers(threads);
    for (int32_t y = 0; y < blocks_y; y++) {
        for (int32_t x = 0; x < blocks_x; x++) {
            emulated_place.block_x = x;
            emulated_place.block_y = y;
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
    emulated_place = before;
}

struct launch {
    const struct emulated_kernel *kernel;
    int64_t blocks_x, blocks_y;
    int threads;
    char args[4096];
};

static void play_launch(const void *data)
{
    const struct launch *launch = data;

    run_now(launch->kernel, launch->blocks_x, launch->blocks_y, launch->threads, launch->args);
}

void emulated_launch(const struct emulated_kernel *kernel, void *stream, int64_t blocks_x, int64_t blocks_y,
                     int threads, const void *args)
{
    struct launch launch = {.kernel = kernel, .blocks_x = blocks_x, .blocks_y = blocks_y, .threads = threads};

    /* What a GPU would refuse. */
    assert(blocks_x > 0 && blocks_x <= INT32_MAX && blocks_y > 0 && blocks_y <= 65535);
    assert(threads > 0 && threads <= MOST_THREADS && kernel->args_bytes <= sizeof launch.args);
    memcpy(launch.args, args, kernel->args_bytes);
    emulated_do(stream, play_launch, &launch, sizeof launch);
}

unsigned emulated_ticket(unsigned *counter)
{
    return (*counter)++;
}
