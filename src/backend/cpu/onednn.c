/* oneDNN: the engine, opaque weight layouts and reorders into and out of them, matrix products. */
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dnnl_debug.h>

#include "backend/cpu/onednn.h"
#include "backend/cpu/sign.h"
#include "base/resources.h"
#include "base/system.h"

/* More than any primitive's code has taken; a limit of the address space that leaves less is not enough for anything.
 */
enum { CODE_BYTES = 32 << 20 };

cvy_status onednn_check(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success)
        return CVY_OK;
    return cvy_fail(status == dnnl_out_of_memory ? CVY_NO_MEMORY : CVY_FAILED, "oneDNN: %s: %s", what,
                    dnnl_status2str(status));
}

static char version_text[32];

static void write_version(void)
{
    const dnnl_version_t *version = dnnl_version();
    snprintf(version_text, sizeof(version_text), "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
}

const char *cpu_onednn_version(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, write_version);
    return version_text;
}

int cpu_onednn_major(void)
{
    return dnnl_version()->major;
}

/* ---- layouts that were handed out ---- */

/* Every opaque layout that a device gave to a tensor, once. All devices share them, so that tensors of two devices (of
 * streams, say) can be seen to lie alike: a description of oneDNN 3.x is a handle, which equals itself alone. They go
 * with the last device. */
static struct {
    pthread_mutex_t lock;
    struct known_layout *first;
    int users; /* devices */
} layouts = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The entry that is equal to `desc`, added where there is none; NULL: no memory. */
static const struct known_layout *know_layout(onednn_md_view desc)
{
    pthread_mutex_lock(&layouts.lock);
    struct known_layout *known = layouts.first;
    while (known && !dnnl_memory_desc_equal(onednn_md_of(&known->desc), desc))
        known = known->next;
    if (!known) {
        known = cvy_calloc(1, sizeof(*known));
        if (known && onednn_md_copy(&known->desc, desc) != dnnl_success) {
            cvy_free(known);
            known = NULL;
        }
        if (known) {
            known->next = layouts.first;
            layouts.first = known;
        }
    }
    pthread_mutex_unlock(&layouts.lock);
    return known;
}

static void forget_layouts(void)
{
    pthread_mutex_lock(&layouts.lock);
    for (layouts.users--; !layouts.users && layouts.first;) {
        struct known_layout *next = layouts.first->next;
        onednn_md_release(&layouts.first->desc);
        cvy_free(layouts.first);
        layouts.first = next;
    }
    pthread_mutex_unlock(&layouts.lock);
}

/* ---- the device ---- */

cvy_status cpu_onednn_open(struct cpu_device *device)
{
    struct cpu_onednn *onednn = cvy_calloc(1, sizeof(*onednn));
    if (!onednn)
        return cvy_fail_memory(sizeof(*onednn), "the cpu device");
    device->onednn = onednn;
    pthread_mutex_lock(&layouts.lock);
    layouts.users++;
    pthread_mutex_unlock(&layouts.lock);
    /* Hold oneDNN to the instruction set of our own kernels. Too late if this process has used it already: then it
     * stays at what it has, which is right but not what was asked for. */
    const enum cvy_isa isa = cvy_cpu_isa();
    static const dnnl_cpu_isa_t same[] = {[CVY_ISA_BASE] = dnnl_cpu_isa_sse41,
                                          [CVY_ISA_AVX2] = dnnl_cpu_isa_avx2,
                                          [CVY_ISA_AVX512] = dnnl_cpu_isa_avx512_core,
                                          [CVY_ISA_AVX512_BF16] = dnnl_cpu_isa_avx512_core_bf16};
    if (isa < CVY_ISA_AVX512_BF16 || (isa < CVY_ISA_AMX_BF16 && getenv("CONVOY_CPU_ISA")))
        (void)dnnl_set_max_cpu_isa(same[isa]);
    CVY_TRY(onednn_check(dnnl_engine_create(&onednn->engine, dnnl_cpu, 0), "cannot make an engine"));
    return onednn_check(dnnl_stream_create(&onednn->stream, onednn->engine, dnnl_stream_default_flags),
                        "cannot make a stream");
}

void cpu_onednn_close(struct cpu_device *device)
{
    struct cpu_onednn *onednn = device->onednn;
    if (!onednn)
        return;
    forget_layouts();
    if (onednn->stream)
        (void)dnnl_stream_destroy(onednn->stream);
    if (onednn->engine)
        (void)dnnl_engine_destroy(onednn->engine);
    cvy_free(onednn);
    device->onednn = NULL;
}

struct onednn_threads onednn_enter(const cvy_device *device)
{
    const struct onednn_threads before = {.count = omp_get_max_threads(), .dynamic = omp_get_dynamic()};
    if (before.count != device->threads)
        omp_set_num_threads(device->threads);
    if (before.dynamic)
        omp_set_dynamic(0);
    return before;
}

void onednn_leave(struct onednn_threads before)
{
    if (before.count != omp_get_max_threads())
        omp_set_num_threads(before.count);
    if (before.dynamic)
        omp_set_dynamic(1);
}

/* ---- layouts ---- */

size_t cpu_onednn_bytes(const struct cvy_layout *layout)
{
    return dnnl_memory_desc_get_size(onednn_md_of(layout->detail));
}

dnnl_data_type_t onednn_type(enum cvy_dtype dtype)
{
    return dtype == CVY_BF16 ? dnnl_bf16 : dnnl_f32;
}

cvy_status onednn_image(onednn_md *desc, const struct cvy_tensor *tensor, enum cvy_layout_kind kind)
{
    static const dnnl_format_tag_t tags[] = {[CVY_LAYOUT_PLAIN] = dnnl_nchw,
                                             [CVY_LAYOUT_NHWC] = dnnl_nhwc,
                                             [CVY_LAYOUT_BLOCKED16] = dnnl_nChw16c,
                                             [CVY_LAYOUT_BLOCKED8] = dnnl_nChw8c};
    dnnl_dims_t dims = {0};
    memcpy(dims, tensor->shape.dim, 4 * sizeof(dims[0]));
    return onednn_check(onednn_md_by_tag(desc, 4, dims, onednn_type(tensor->dtype), tags[kind]), "image layout");
}

cvy_status onednn_layout(onednn_md_view desc, struct cvy_layout *layout)
{
    onednn_md plain = {0};
    CVY_TRY(onednn_check(onednn_md_plain_like(&plain, desc), "weight layout"));
    const bool is_plain = dnnl_memory_desc_equal(onednn_md_of(&plain), desc);
    onednn_md_release(&plain);
    if (is_plain) {
        *layout = (struct cvy_layout){.kind = CVY_LAYOUT_PLAIN};
        return CVY_OK;
    }
    const struct known_layout *known = know_layout(desc);
    if (!known)
        return cvy_fail_memory(sizeof(*known), "a weight layout");
    *layout =
        (struct cvy_layout){.kind = CVY_LAYOUT_OPAQUE, .detail = &known->desc, .detail_size = sizeof(known->desc)};
    return CVY_OK;
}

/* ---- calls ---- */

cvy_status onednn_argument(struct cpu_device *device, struct onednn_call *call, int kind, onednn_md_view desc,
                           enum onednn_source source, int32_t index)
{
    dnnl_memory_t memory;
    CVY_TRY(onednn_check(dnnl_memory_create(&memory, desc, device->onednn->engine, DNNL_MEMORY_NONE),
                         "cannot describe an argument"));
    call->arguments[call->count] = (dnnl_exec_arg_t){.arg = kind, .memory = memory};
    call->source[call->count] = source;
    call->index[call->count] = index;
    call->count++;
    return CVY_OK;
}

cvy_status onednn_primitive(struct cpu_device *device, struct onednn_call *call, dnnl_primitive_desc_t desc,
                            struct cvy_kernel_plan *plan)
{
    /* Making a primitive generates code, and where there is no memory for it, oneDNN 2.6 writes to NULL. */
    if (!cvy_memory_obtainable(CODE_BYTES))
        return cvy_fail_memory(CODE_BYTES, "the code of an operation");
    CVY_TRY(onednn_check(dnnl_primitive_create(&call->primitive, desc), "cannot make a primitive"));
    const onednn_md_view scratch = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    plan->scratch_bytes = scratch ? dnnl_memory_desc_get_size(scratch) : 0;
    if (!plan->scratch_bytes)
        return CVY_OK;
    return onednn_argument(device, call, DNNL_ARG_SCRATCHPAD, scratch, FROM_SCRATCH, 0);
}

cvy_status onednn_run(cvy_device *device, const struct onednn_call *call, void *const *in, void *const *out,
                      void *scratch)
{
    dnnl_stream_t stream = cpu_of(device)->onednn->stream;
    for (int32_t i = 0; i < call->count; i++) {
        void *const memory = call->source[i] == FROM_INPUT    ? in[call->index[i]]
                             : call->source[i] == FROM_OUTPUT ? out[call->index[i]]
                                                              : scratch;
        CVY_TRY(onednn_check(onednn_bind(call->arguments[i].memory, memory, stream), "cannot bind an argument"));
    }
    const struct onednn_threads before = onednn_enter(device);
    dnnl_status_t status = dnnl_primitive_execute(call->primitive, stream, call->count, call->arguments);
    if (status == dnnl_success)
        status = dnnl_stream_wait(stream);
    onednn_leave(before);
    return onednn_check(status, "a primitive failed");
}

void onednn_call_free(struct onednn_call *call)
{
    if (!call)
        return;
    for (int32_t i = 0; i < call->count; i++)
        (void)dnnl_memory_destroy(call->arguments[i].memory);
    if (call->primitive)
        (void)dnnl_primitive_destroy(call->primitive);
    cvy_free(call);
}

/* ---- reorders between plain and opaque weights ---- */

/* The description of a weight tensor; where it is plain, dimensions and type are those of the opaque `other`. */
static cvy_status weight_desc(onednn_md *desc, const struct cvy_layout *layout, const struct cvy_layout *other)
{
    const bool plain = layout->kind == CVY_LAYOUT_PLAIN;
    const onednn_md_view from = onednn_md_of(plain ? other->detail : layout->detail);
    return onednn_check(plain ? onednn_md_plain_like(desc, from) : onednn_md_copy(desc, from), "weight layout");
}

bool cpu_onednn_has_blocks_16(const struct cvy_tensor *tensor)
{
    const struct cvy_layout *layout = &tensor->layout;
    const int64_t *w = tensor->shape.dim;
    const dnnl_dims_t dims = {w[0], w[1], w[2], w[3]};
    onednn_md blocks = {0};
    bool same;

    if (layout->kind != CVY_LAYOUT_OPAQUE || layout->detail_size != sizeof(onednn_md) || tensor->shape.rank != 4 ||
        w[0] % 16 != 0 || w[1] % 16 != 0 ||
        onednn_md_by_tag(&blocks, 4, dims, dnnl_f32, dnnl_ABcd16b16a) != dnnl_success)
        return false;
    same = dnnl_memory_desc_equal(onednn_md_of(&blocks), onednn_md_of(layout->detail));
    onednn_md_release(&blocks);
    return same;
}

static cvy_status build_reorder(struct cpu_device *device, struct onednn_call *call, onednn_md_view from,
                                onednn_md_view to, struct cvy_kernel_plan *plan)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t desc = NULL;
    cvy_status status;
    const char *name = "";
    const dnnl_engine_t engine = device->onednn->engine;

    CVY_GOTO(onednn_check(dnnl_primitive_attr_create(&attr), "attributes"));
    CVY_GOTO(onednn_check(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user), "attributes"));
    CVY_GOTO(onednn_check(dnnl_reorder_primitive_desc_create(&desc, from, engine, to, engine, attr),
                          "no reorder between these weight layouts"));
    CVY_GOTO(onednn_argument(device, call, DNNL_ARG_FROM, from, FROM_INPUT, 0));
    CVY_GOTO(onednn_argument(device, call, DNNL_ARG_TO, to, FROM_OUTPUT, 0));
    CVY_GOTO(onednn_primitive(device, call, desc, plan));
    CVY_GOTO(onednn_check(dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, (void *)&name), "query"));
    snprintf(plan->implementation, sizeof(plan->implementation), "%s", name);
fail:
    if (desc)
        (void)dnnl_primitive_desc_destroy(desc);
    if (attr)
        (void)dnnl_primitive_attr_destroy(attr);
    return status;
}

cvy_status cpu_opaque_reorder_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    const struct cvy_tensor *x = &desc->in[0], *y = &desc->out[0];
    const bool from_opaque = x->layout.kind == CVY_LAYOUT_OPAQUE, to_opaque = y->layout.kind == CVY_LAYOUT_OPAQUE;
    CVY_TRY(cpu_expect_images(desc, 1U, 1U, 0, 0));
    if ((!from_opaque && x->layout.kind != CVY_LAYOUT_PLAIN) || (!to_opaque && y->layout.kind != CVY_LAYOUT_PLAIN) ||
        (!from_opaque && !to_opaque) || cpu_tile_weights_bytes(x) > 0 || cpu_tile_weights_bytes(y) > 0 ||
        cpu_winograd_weights_bytes(x) > 0 || cpu_winograd_weights_bytes(y) > 0 || cpu_direct_weights_bytes(x) > 0 ||
        cpu_direct_weights_bytes(y) > 0 || cpu_is_sign(&x->layout) || cpu_is_sign(&y->layout))
        return cvy_fail(CVY_UNAVAILABLE, "this kernel reorders plain and opaque weights only");
    struct onednn_call *call = cvy_calloc(1, sizeof(*call));
    if (!call)
        return cvy_fail_memory(sizeof(*call), "the state of a kernel");
    plan->state = call;
    onednn_md from = {0}, to = {0};
    cvy_status status;
    CVY_GOTO(weight_desc(&from, &x->layout, &y->layout));
    CVY_GOTO(weight_desc(&to, &y->layout, &x->layout));
    const struct onednn_threads before = onednn_enter(device);
    status = build_reorder(cpu_of(device), call, onednn_md_of(&from), onednn_md_of(&to), plan);
    onednn_leave(before);
fail:
    onednn_md_release(&from);
    onednn_md_release(&to);
    return status;
}

cvy_status cpu_opaque_reorder_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                  void *const *out, void *scratch)
{
    return onednn_run(device, plan->state, in, out, scratch);
}

void cpu_opaque_reorder_release(cvy_device *device, struct cvy_kernel_plan *plan)
{
    (void)device;
    onednn_call_free(plan->state);
    plan->state = NULL;
}

/* ---- matrix products ---- */

cvy_status cpu_sgemm(cvy_device *device, bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
                     const float *a, const float *b, float *c)
{
    const struct onednn_threads before = onednn_enter(device);
    const dnnl_status_t status = dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, 1, a,
                                            transpose_a ? m : k, b, transpose_b ? k : n, 0, c, n);
    onednn_leave(before);
    return onednn_check(status, "matrix product");
}

/* C (m x n) = A (m x k) by B (k x n); either is there transposed. */
struct product {
    bool transpose_a, transpose_b;
    int64_t m, n, k;
    const float *a, *b;
    float *c;
};

/* One block of a product by the calling thread alone: oneDNN asks for no others within a parallel region, but here it
 * may be one of a single thread. */
static dnnl_status_t single_block(const struct product *p, int64_t y, int64_t x, int64_t height, int64_t width)
{
    const int64_t lda = p->transpose_a ? p->m : p->k, ldb = p->transpose_b ? p->k : p->n;
    const int threads = omp_get_max_threads();

    omp_set_num_threads(1);
    const dnnl_status_t status = dnnl_sgemm(p->transpose_a ? 'T' : 'N', p->transpose_b ? 'T' : 'N', height, width, p->k,
                                            1, p->a + y * (p->transpose_a ? 1 : lda), lda,
                                            p->b + x * (p->transpose_b ? ldb : 1), ldb, 0, p->c + y * p->n + x, p->n);
    omp_set_num_threads(threads);
    return status;
}

static cvy_status by_blocks(cvy_device *device, const struct product *p)
{
    enum { SIDE = 128 }; /* smaller ones take longer in all */
    const int64_t rows = (p->m + SIDE - 1) / SIDE, columns = (p->n + SIDE - 1) / SIDE, count = rows * columns;
    int status = dnnl_success;

#pragma omp parallel for num_threads(device->threads) if (count > 1) schedule(static) reduction(max : status)
    for (int64_t i = 0; i < count; i++) {
        const int64_t y = i % rows * SIDE, x = i / rows * SIDE;
        const int64_t height = p->m - y < SIDE ? p->m - y : SIDE, width = p->n - x < SIDE ? p->n - x : SIDE;

        const int answer = single_block(p, y, x, height, width);
        status = answer > status ? answer : status;
    }
    return onednn_check((dnnl_status_t)status, "matrix product");
}

cvy_status cpu_sgemm_blocks(cvy_device *device, int64_t m, int64_t n, int64_t k, const float *a, const float *b,
                            float *c)
{
    return by_blocks(device, &(struct product){false, true, m, n, k, a, b, c});
}

cvy_status cpu_sgemm_columns(cvy_device *device, int64_t m, int64_t n, int64_t k, const float *a, const float *b,
                             float *c)
{
    return by_blocks(device, &(struct product){true, false, m, n, k, a, b, c});
}
