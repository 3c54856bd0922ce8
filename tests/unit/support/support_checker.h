/* The suite of kernel cases: each goes through the devices under test in every layout the planner can bring about, in
 * place and with one thread, and is compared with the reference. */
#ifndef SUPPORT_CHECKER_H
#define SUPPORT_CHECKER_H

#include "support_kernels.h"

enum { MAX_ROWS = 128 }; /* of a device's table */
/* What the cases of one process share. */
struct kernel_suite {
    /* The devices under test: --device, "cpu" or a GPU. cpu: with Winograd's algorithm wherever there is one; direct:
     * without it, for its transforms have fractions that integers do not survive exactly; single: with one thread. On a
     * GPU all three are the same. */
    const char *name; /* NULL: "cpu" */
    const struct cvy_backend *backend;
    cvy_device *cpu, *direct, *single, *ref;
    bool exercised[MAX_ROWS]; /* rows of the device's table: every one that accepts a case is run, not only the first */
    bool narrowed[MAX_ROWS];  /* in 16 bits */
    int cases, runs, narrow_runs /* of them in 16 bits */, failures;
    bool lesser_isa;   /* with fewer instructions than the CPU has, or another layout */
    bool whole;        /* all odd shapes even so */
    int threads;       /* of the devices, but for the one that has a single one; 0: the usual number */
    bool convolutions; /* nothing else */
    bool all_shapes;   /* none left out */
    int from;          /* cases before this one, counted from 1, are left out */
    int every, part;   /* only each of so many, from this one on; 0: all */
    bool time;         /* time the cases instead of checking them */
    int batch;         /* of --time; 0: as in the file */
    char **words;
    int word_count;
};
extern struct kernel_suite suite;

/* Before suite_open: a GPU, with all its rows, however fast. */
void suite_take_device(const char *name);
/* --from, --every and --part with a number each; false: something else. */
bool suite_take_numbers(int words, char **word);
bool suite_is_emulated(void); /* the GPU */
/* Fixtures of cmocka; the state is not used. */
int suite_open(void **state);
int suite_close(void **state);

/* A case without tensors, named "<op> <format>". */
struct kernel_case kernel_begin(enum cvy_op op, enum kernel_data data, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Run (or time) a case in all ways, report what is wrong, and release it. Where a kernel ended all work on the GPU the
 * process ends with KERNELS_BROKEN, and says from which case another one can continue. */
enum { KERNELS_BROKEN = 3 };
void kernel_check(struct kernel_case *kernel);

/* ---- bounds ----
 * A float sum of T random terms around 0 with standard deviation d has partial sums of about sqrt(T) d, and each of its
 * T additions rounds by up to half a unit of 2^-23 of one: together sqrt(T) roundings' worth of error relative to the
 * result. Factor 2 and the 8 cover the extreme of millions of outputs and the few roundings that every result has. */
struct kernel_bound kernel_sum_bound(enum kernel_data data, double terms, double deviation);
static const struct kernel_bound kernel_exact = {0};
/* A handful of roundings in values of the size of the largest result. */
static const struct kernel_bound kernel_few = {.ulps = 8, .scale = 0};

#endif
