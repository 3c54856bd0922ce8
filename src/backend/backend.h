/* The only interface to a device. A backend is a table of kernels plus memory management; a plan (plan.h) selects
 * kernels through it. Everything above this header is device-independent; everything below it is private to one
 * backend. */
#ifndef CVY_BACKEND_BACKEND_H
#define CVY_BACKEND_BACKEND_H

#include "backend/collective.h"
#include "backend/image_decoder.h"
#include "backend/update.h"
#include "convoy/program/program.h"
#include "graph/graph.h"

/* ---- layouts ---- */
enum cvy_layout_kind {
    CVY_LAYOUT_PLAIN,     /* row-major in logical order (images NCHW) */
    CVY_LAYOUT_NHWC,      /* 4-d, channels last */
    CVY_LAYOUT_BLOCKED16, /* 4-d (N, C/16, H, W, 16); channels padded to 16 with zeros */
    CVY_LAYOUT_BLOCKED8,  /* 4-d (N, C/8, H, W, 8) */
    CVY_LAYOUT_NHWC4,     /* 4-d, channels last, padded to 4 with zeros */
    CVY_LAYOUT_NHWC8,     /* the same to 8 */
    CVY_LAYOUT_OPAQUE     /* known to the backend only, described by `detail` */
};
struct cvy_layout {
    enum cvy_layout_kind kind;
    const void *detail; /* OPAQUE: bytes that describe it, owned by the backend, valid while the device is open */
    size_t detail_size;
};
bool cvy_layout_equal(const struct cvy_layout *a, const struct cvy_layout *b);
const char *cvy_layout_name(const struct cvy_layout *layout); /* "plain", "nhwc", "nChw16c", "nhwc4", ... */

/* A tensor as a kernel sees it: concrete shape, type, layout. */
struct cvy_tensor {
    struct cvy_shape shape;
    enum cvy_dtype dtype;
    struct cvy_layout layout;
};

/* In which layout the images of a plan are where its device has kernels for more than one. */
enum cvy_images { CVY_IMAGES_DEVICE /* kernels decide */, CVY_IMAGES_BLOCKED, CVY_IMAGES_NHWC };
enum { CVY_MAX_IMAGES = 2 };
const char *cvy_images_name(enum cvy_images images); /* "device", "blocked", "nhwc" */

/* ---- kernels ---- */
/* What the planner asks a kernel to do. in[i].layout is what is there now; prepare() may change it to what the kernel
 * wants (the planner inserts a reorder) and must set out[i].layout. Absent tensors have rank -1. REORDER is the
 * exception: both layouts are given and stay as they are. Outputs named "new running_..." may be the memory of the old
 * ones: each element is read before it is written. */
struct cvy_op_desc {
    enum cvy_op op;
    union cvy_attr attr;
    int32_t inputs, outputs;
    struct cvy_tensor in[CVY_MAX_INPUTS], out[CVY_MAX_OUTPUTS];
    bool inference;         /* weights do not change between runs: of inference, or of a frozen layer */
    bool training;          /* part of a plan that trains */
    enum cvy_images images; /* of the plan */
};
static inline bool cvy_tensor_present(const struct cvy_tensor *tensor)
{
    return tensor->shape.rank >= 0;
}

/* A prepared kernel. */
struct cvy_kernel_plan {
    const struct cvy_kernel *kernel;
    void *state;                       /* the kernel's own, freed by release() */
    size_t scratch_bytes;              /* working memory needed during run(), 64-byte aligned */
    size_t out_bytes[CVY_MAX_OUTPUTS]; /* set by the planner from cvy_backend.tensor_bytes */
    /* Input whose memory output i may take over, or -1; prepare() starts from -1. The planner guarantees that this step
     * does not read it through another input as well. */
    int32_t in_place[CVY_MAX_OUTPUTS];
    /* What a run queues and moves in memory beyond one kernel that reads its inputs and writes its outputs once: for
     * `info --plan`. May be negative. */
    int32_t extra_launches;
    int64_t extra_bytes;
    char implementation[48]; /* for `info --plan`: "jit_wino_4x3:avx512_core"; "" = the kernel's name says it all */
    /* For `info --plan`: why this kernel. prepare() may set what it tried before; cvy_kernel_select prepends the
     * refusals of the rows above; CVY_REASON_FIRST where there is neither. Truncated to fit. */
    char reason[160];
    /* Set by a prepare() that refuses what is not this kernel's kind of work (a 1x1 convolution offered to Winograd's
     * algorithm): such a refusal is not reported. */
    bool quiet;
};
#define CVY_REASON_FIRST "first choice"

/* One of several steps that are run at once. */
struct cvy_kernel_call {
    const struct cvy_kernel_plan *plan;
    void *const *in, *const *out;
};
enum { CVY_MANY_CALLS = 64 };

/* One implementation of one op. prepare() may refuse with CVY_UNAVAILABLE and a reason: the planner tries the next row.
 * run() only enqueues or computes: it never allocates, never prints. Pointers of absent tensors are NULL. */
struct cvy_kernel {
    const char *name; /* "cpu.batch_norm": shown by `convoy info --plan` and the kernel checker */
    enum cvy_op op;
    cvy_status (*prepare)(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan);
    cvy_status (*run)(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                      void *scratch);
    void (*release)(cvy_device *device, struct cvy_kernel_plan *plan); /* may be NULL */
    /* One of several rows of its op whose order of speed depends on the problem: where more than one of them accepts,
     * they may be timed (autotuning). All other rows follow the table's order. */
    bool candidate;
    /* For candidates: the fraction by which rows after it in the table must be faster to be preferred; 0: the default,
     * which filters out noise. Larger for a row that keeps its speed under load where others lose it. */
    double lead;
    /* Runs up to CVY_MANY_CALLS steps of such kernels at once; they need no scratch memory, and none reads what another
     * one writes. NULL: one after the other. */
    cvy_status (*run_many)(cvy_device *device, const struct cvy_kernel_call *calls, int count);
};

/* ---- chains ---- */
/* Steps one after the other that are run part by part: some pixels through all of them, then the next ones, so that
 * what one step has written the next one finds in the caches. The results are the same bits. */

/* How a prepared kernel can be run so. */
struct cvy_cut {
    int64_t pixels; /* of all images of the batch, one after the other */
    int32_t grain;  /* parts begin at multiples of so many */
    /* Where they are not 0: parts have exactly so many pixels, and of so many shares each, which begins at part
     * parts * share / shares, belongs to one thread, in its order. */
    int32_t part, shares;
    /* Inputs and outputs that are read and written pixel by pixel, a part's by its run alone. Other inputs are read
     * before the first part too, other outputs are there after the last one. */
    uint32_t in, out;
    uint32_t past; /* outputs that the kernel writes past the caches */
};

struct cvy_chain_call {
    const struct cvy_kernel_plan *plan;
    void *const *in, *const *out;
    void *scratch;
    double *seconds; /* what this step takes is added; NULL: it is not measured */
};

/* An operand that lies, of one part, in the memory of a thread: the step's own is not used, but where an output is
 * `copied` there, past the caches. */
struct cvy_chain_local {
    int32_t call, slot;
    bool output, copied;
    size_t at, pixel_bytes; /* bytes from the thread's memory on; of a pixel */
};

enum { CVY_CHAIN_CALLS = 8, CVY_CHAIN_LOCALS = 16 };
struct cvy_chain {
    int32_t count, local_count;
    struct cvy_chain_call calls[CVY_CHAIN_CALLS];
    struct cvy_chain_local locals[CVY_CHAIN_LOCALS];
    int64_t pixels;
    int32_t part, shares; /* shares 0: any part is anybody's */
    char *local;          /* `local_bytes` for each of the device's threads, aligned */
    size_t local_bytes;
};

/* The measured peak of a device: operations and bytes per second. */
struct cvy_device_peak {
    double flops_f32;         /* multiply-adds count 2 */
    double flops_bf16;        /* of a GPU f16 too; 0: it has no instructions for them */
    double ops_int8;          /* the same for 8-bit integers */
    double read, copy, triad; /* of its memory: sums, a = b, a = b + s c; of a GPU the copy alone */
};

/* What of a peak is measured, each with what stands before it: products of floats, those of integers (some hundredths
 * of a second each), memory (about two seconds). */
enum cvy_peak_part { CVY_PEAK_FLOPS, CVY_PEAK_OPERATIONS, CVY_PEAK_MEMORY };

/* ---- a backend ---- */
enum { CVY_SMALL_UPLOAD_BYTES = 64, CVY_ASYNC_DOWNLOAD_BYTES = 4096 };
struct cvy_backend {
    const char *name; /* "ref", "cpu", "check", "cuda" */
    /* `spec` is what follows the name in --device ("0" in cuda:0, "cpu" in check:cpu), may be NULL. threads <= 0: all.
     * CVY_UNAVAILABLE with the reason when the device is not here. */
    cvy_status (*open)(const struct cvy_backend *backend, const char *spec, int threads, cvy_device **device);
    void (*close)(cvy_device *device); /* accepts NULL */
    /* Makes this device the calling thread's current one until it enters another. Allocation, copies, batches, updates
     * and sums do so by themselves, and so do plans before they are prepared and before they run; kernels do not. NULL:
     * nothing to do. */
    cvy_status (*enter)(cvy_device *device);
    /* Whether results may differ from run to run, for what is planned from here on: "yes", none may; "sums", those of
     * the statistics and gradients of batch norms; "no", any. NULL: none ever do. */
    cvy_status (*set_deterministic)(cvy_device *device, const char *word);
    /* Device memory, zeroed, 64-byte aligned (256 on GPUs). */
    cvy_status (*allocate)(cvy_device *device, size_t bytes, void **memory);
    void (*release)(cvy_device *device, void *memory);
    cvy_status (*upload)(cvy_device *device, void *to, const void *host, size_t bytes);
    cvy_status (*download)(cvy_device *device, void *host, const void *from, size_t bytes); /* after all queued work */
    cvy_status (*synchronize)(cvy_device *device);
    /* `count` asynchronous uploads of one batch, overlapping the device's work: each `to` is one half of a double
     * buffer, last used by work that was queued before the previous call. `from`, the host's memory or the device's
     * own, may change after return. Work queued later waits for them. NULL where upload() does as well. */
    cvy_status (*upload_async)(cvy_device *device, void *const *to, const void *const *from, const size_t *bytes,
                               int count);
    /* Asynchronous download of a few numbers, after the work queued so far and overlapping what is queued later: up to
     * CVY_ASYNC_DOWNLOAD_BYTES in `count` pieces. `place` is 0 or 1, one of the device's two staging buffers: its
     * previous content is lost. download_wait() waits for these pieces alone and returns them concatenated. NULL where
     * download() does as well. */
    cvy_status (*download_async)(cvy_device *device, int place, const void *const *from, const size_t *bytes,
                                 int count);
    cvy_status (*download_wait)(cvy_device *device, int place, void *host, size_t bytes);
    /* Work queued between begin and end is captured into a graph instead of executed; launching the graph executes it.
     * NULL where that would gain nothing. */
    cvy_status (*capture_begin)(cvy_device *device);
    cvy_status (*capture_end)(cvy_device *device, void **capture); /* NULL in *capture on failure */
    cvy_status (*launch)(cvy_device *device, void *capture);
    void (*destroy_capture)(cvy_device *device, void *capture); /* accepts NULL */
    cvy_status (*update)(cvy_device *device, const struct cvy_update *step);
    /* Over `count` floats of device memory, queued like every step. `share`: of CVY_COMBINE_TOWARDS, device memory. */
    cvy_status (*combine)(cvy_device *device, enum cvy_combine how, float *y, const float *x, int64_t count,
                          const float *share);
    /* Sets up to CVY_SMALL_UPLOAD_BYTES of device memory, queued like a step without blocking: `host` may change after
     * return. NULL where upload() does as well. */
    cvy_status (*upload_small)(cvy_device *device, void *to, const void *host, size_t bytes);
    /* Rewrites a graph before it is planned for `batch` samples, where the device has kernels for several nodes
     * together (graph.h); NULL: no rewrites. What it decided about a node is in the node's note. */
    cvy_status (*rewrite)(cvy_device *device, struct cvy_graph *graph, int64_t batch);
    /* Whether a prepared kernel can be a part of a chain, and how. NULL: there are no chains. */
    bool (*cut)(cvy_device *device, const struct cvy_op_desc *desc, const struct cvy_kernel_plan *plan,
                struct cvy_cut *cut);
    /* Images from so many bytes on are worth a chain; 0: any, whatever the threads have to do. */
    size_t (*chain_bytes)(const cvy_device *device);
    cvy_status (*run_chain)(cvy_device *device, const struct cvy_chain *chain);
    /* The layouts that the images of a plan of this type may have, in the order in which they are preferred untimed;
     * how many there are. *why: what decides where there is one, what is known where there are two (static text). NULL:
     * there is no question. */
    int (*images)(const cvy_device *device, enum cvy_dtype dtype, bool training,
                  enum cvy_images layouts[CVY_MAX_IMAGES], const char **why);
    /* Bytes a tensor takes in its layout; 0 on overflow. */
    size_t (*tensor_bytes)(cvy_device *device, const struct cvy_tensor *tensor);
    /* Measures the peak up to `last`; the rest is 0. NULL where it cannot be measured. */
    cvy_status (*measure_peak)(cvy_device *device, enum cvy_peak_part last, struct cvy_device_peak *limits);
    /* The ordered kernel table, best first for each op. */
    const struct cvy_kernel *kernels;
    size_t kernel_count;
    /* Free device memory; NULL: the device uses the machine's. */
    cvy_status (*available)(cvy_device *device, size_t *bytes);
    /* The hardware's properties as a JSON object, freed with cvy_free; NULL where there are none. */
    cvy_status (*describe)(cvy_device *device, char **json);
    /* cvy_gpu_query (convoy/info.h); NULL: the backend has no GPUs. */
    cvy_status (*query_gpu)(int number, struct cvy_gpu *gpu, int *count);
    /* Pinned memory of the host, zeroed, 64-byte aligned, that a device copies from beside other work; NULL: any memory
     * does as well. */
    cvy_status (*allocate_host)(cvy_device *device, size_t bytes, void **memory);
    void (*release_host)(cvy_device *device, void *memory); /* accepts NULL */
    bool host_memory;                                       /* device pointers can be read and written by the host */
    const struct cvy_collective *collective;                /* sums between devices; NULL: none */
    const struct cvy_image_decoding *decoding;              /* of images; NULL: none */
};

/* Every backend's device starts with this. */
struct cvy_device {
    const struct cvy_backend *backend;
    int threads;
    char description[128]; /* "AMD EPYC ..., AVX-512, oneDNN 2.6.3" */
    /* "CONVOY_CPU_WINOGRAD=auto": settings from the environment that change the numbers. Stored in checkpoints: a run
     * resumes under the same ones only. "" where there are none. */
    char settings[256];
    /* Set by the check device on the one it checks: kernels must not ask for layouts that cannot be reordered back to
     * plain. */
    bool checked;
    bool gpu;   /* a GPU, or a check of one: computes in f32, f16 and, unless it is `older`, bf16 */
    bool older; /* a GPU from before compute capability 8.0: its products have neither bf16 nor TF32 */
    /* Its convolutions of 16-bit floats may give the statistics of their output (graph.h, cvy_rewrite_statistics). */
    bool conv_statistics;
    bool int8;          /* has kernels of integer inference that are faster than those of floats, or that define it */
    size_t cache_bytes; /* of the last cache, which its threads share; 0: unknown, or of no matter */
    bool tf32;          /* products of f32 numbers may be rounded to TF32's 10 bits (GPUs only) */
    bool dry_run;       /* set while a plan is prepared that will not run: nothing is timed */
    /* For --sync-bn, where the batches of `ranks` processes count as one: sums doubles in place over all of them. NULL:
     * each batch is by itself. Batch norms and the anchor matching of detectors call cvy_device_sum. */
    cvy_status (*sum_ranks)(void *context, double *values, int64_t count);
    void *sum_context;
    int ranks;
    bool joined; /* to the devices of other ranks: backend->collective sums */
    /* The autotuner (autotune.h); NULL: the table's order decides. The backend that opened it closes it. */
    struct cvy_autotuner *autotuner;
};

extern const struct cvy_backend cvy_backend_ref, cvy_backend_cpu, cvy_backend_check;

/* Open "cpu", "ref", "check:cpu", "cuda:0", ...; "auto" is the first GPU where there is one, else the CPU. Unknown:
 * CVY_USAGE; not here: CVY_UNAVAILABLE with why. */
CVY_CHECKED cvy_status cvy_device_open(const char *name, int threads, cvy_device **device);
/* --deterministic: cvy_backend.set_deterministic, where the backend has it. NULL or "": as it was opened. CVY_USAGE for
 * another word than "yes", "sums" and "no". */
CVY_CHECKED cvy_status cvy_device_set_deterministic(cvy_device *device, const char *word);
void cvy_device_close(cvy_device *device);
/* Whether a run with the settings `then` may resume under `now`: each setting is unchanged. One that `then` does not
 * have was added since, and is unchanged where nothing is set in the environment. */
bool cvy_settings_agree(const char *then, const char *now);
/* Bytes that can still be allocated on it (SIZE_MAX where unknown). */
size_t cvy_device_available_memory(cvy_device *device);

/* The number of batches that count as one: 1 where each is by itself. */
static inline int cvy_device_ranks(const cvy_device *device)
{
    return device->sum_ranks ? device->ranks : 1;
}
/* Sums over them, in host memory; does nothing where there is one. */
CVY_CHECKED cvy_status cvy_device_sum(const cvy_device *device, double *values, int64_t count);

static inline CVY_CHECKED cvy_status cvy_device_enter(cvy_device *device)
{
    return device->backend->enter ? device->backend->enter(device) : CVY_OK;
}

/* Like upload(), but without blocking where the device can. */
static inline CVY_CHECKED cvy_status cvy_device_upload_small(cvy_device *device, void *to, const void *host,
                                                             size_t bytes)
{
    const struct cvy_backend *backend = device->backend;

    return backend->upload_small ? backend->upload_small(device, to, host, bytes)
                                 : backend->upload(device, to, host, bytes);
}

/* A node of a graph for a batch, before it is planned: shapes and types, plain layouts. */
void cvy_node_describe(const struct cvy_graph *graph, const struct cvy_node *node, int64_t batch,
                       struct cvy_op_desc *desc);
/* Selects the device's kernel for `desc`, which it completes: the first that accepts, or among candidates the one that
 * was chosen before (autotune.h). The reasons of those that refused are joined into the error. */
CVY_CHECKED cvy_status cvy_kernel_select(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan);
/* A plan without anything in it, of this row; NULL: of none. */
void cvy_kernel_plan_clear(struct cvy_kernel_plan *plan, const struct cvy_kernel *kernel);
/* One row of the device's table for `desc`, which it completes. Refused: `desc` is unchanged, nothing must be released,
 * and plan->quiet says that the refusal need not be reported. */
CVY_CHECKED cvy_status cvy_kernel_prepare(cvy_device *device, const struct cvy_kernel *kernel, struct cvy_op_desc *desc,
                                          struct cvy_kernel_plan *plan);
void cvy_kernel_release(cvy_device *device, struct cvy_kernel_plan *plan);

#endif
