/* A device whose kernels wait: they take as long as the test says, by a clock that stands still but for them. */
#ifndef SUPPORT_AUTOTUNE_H
#define SUPPORT_AUTOTUNE_H

#include "backend/autotune.h"

enum { SLOW, FAST, WIDE, REORDER };
/* Microseconds that a run takes; below 0: the row refuses. */
struct fake_state {
    double now; /* seconds */
    int slow, fast, wide, reorder;
    int runs[4];                     /* of each */
    enum cvy_layout_kind wide_input; /* what cpu-like rows may ask for */
    bool wide_output;                /* ... of the output too */
};
extern struct fake_state fake;

extern struct cvy_device fake_device;
extern struct cvy_kernel fake_rows[]; /* the four */
double fake_clock(void);
/* How often other programs have taken a core: once more with each call while fake_busy is set. */
extern bool fake_busy;

/* A convolution of this many channels. */
struct cvy_op_desc fake_describe(int channels);
/* The row of a convolution in a plan of its own, and why; the first time it may be timed. */
const char *fake_reason(struct cvy_op_desc desc, bool timing, char reason[160]);
const char *fake_choose(int channels);
/* What the rows take from now on; nothing else is special. */
void fake_times(int slow, int fast, int wide);

/* What is kept lies in a folder that set-up makes; warnings are gathered from fake_open on. */
extern char fake_folder[], fake_log[4096];
int fake_set_up(void **state);
int fake_tear_down(void **state);
/* CONVOY_CACHE_DIR becomes this folder of it. */
const char *fake_cache(const char *name);
/* The one file of a cache that is not its lock. */
const char *fake_cache_file(const char *name);
/* Freed with cvy_free. */
char *fake_read(const char *path);
void fake_open(void);
void fake_close(void);

#endif
