/* Changes of layout between nchw, nhwc and the two blocked ones, for any element type. The values do not change. */
#include <string.h>

#include "backend/cpu/cpu.h"

struct reorder {
    int64_t batch, channels, pixels;
    size_t element, plain_bytes; /* plain_bytes: of the whole tensor when nothing moves, else 0 */
    enum cvy_layout_kind from, to;
};

static bool movable(const struct cvy_tensor *tensor)
{
    return tensor->layout.kind == CVY_LAYOUT_PLAIN ||
           (tensor->shape.rank == 4 && (tensor->layout.kind == CVY_LAYOUT_NHWC || cpu_block(&tensor->layout) > 1));
}

cvy_status cpu_reorder_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    const struct cvy_tensor *x = &desc->in[0], *y = &desc->out[0];
    plan->quiet = x->layout.kind == CVY_LAYOUT_OPAQUE || y->layout.kind == CVY_LAYOUT_OPAQUE; /* the next row's work */
    if (!movable(x) || !movable(y) || x->dtype != y->dtype)
        return cvy_fail(CVY_UNAVAILABLE, "no reorder from %s %s to %s %s", cvy_dtype_name(x->dtype),
                        cvy_layout_name(&x->layout), cvy_dtype_name(y->dtype), cvy_layout_name(&y->layout));
    struct reorder state = {
        .element = cvy_dtype_size(x->dtype), .from = x->layout.kind, .to = y->layout.kind, .pixels = 1};
    if (state.from == state.to)
        state.plain_bytes = cpu_tensor_bytes(device, x);
    state.batch = x->shape.rank > 0 ? x->shape.dim[0] : 1;
    state.channels = x->shape.rank > 1 ? x->shape.dim[1] : 1;
    for (int32_t d = 2; d < x->shape.rank; d++)
        state.pixels *= x->shape.dim[d];
    return cpu_state(plan, &state, sizeof(state));
}

/* Where channel c of image n starts, and how far its pixels are apart (elements). */
static void locate(const struct reorder *s, enum cvy_layout_kind kind, int64_t n, int64_t c, int64_t *first,
                   int64_t *stride)
{
    const int64_t block = cpu_block(&(struct cvy_layout){.kind = kind});
    if (kind == CVY_LAYOUT_NHWC) {
        *stride = s->channels;
        *first = n * *stride * s->pixels + c;
        return;
    }
    const int64_t blocks = (s->channels + block - 1) / block;
    *first = (n * blocks + c / block) * s->pixels * block + c % block;
    *stride = block;
}

/* Pixels moved at a time for one group of channels: both sides of it stay in the first-level cache. */
#define STRIP 64

#define MOVE(type)                                                                                                     \
    for (int64_t i = 0; i < count; i++)                                                                                \
    ((type *)to)[(to_first + i * to_stride)] = ((const type *)from)[from_first + i * from_stride]

/* Whether groups of 16 channels are neighbours in this layout. */
static bool groups_16(const struct reorder *s, enum cvy_layout_kind kind)
{
    return s->channels % 16 == 0 && (kind == CVY_LAYOUT_NHWC || kind == CVY_LAYOUT_BLOCKED16);
}

/* 16 channels of each pixel; `bytes` is a constant wherever this is called. */
static inline void copy_groups(char *to, const char *from, int64_t count, size_t to_stride, size_t from_stride,
                               const size_t bytes)
{
    for (int64_t i = 0; i < count; i++)
        memcpy(to + (size_t)i * to_stride, from + (size_t)i * from_stride, bytes);
}

static void move_groups(const struct reorder *s, void *to, const void *from, int64_t n, int64_t c, int64_t start,
                        int64_t count)
{
    int64_t to_first, to_stride, from_first, from_stride;
    locate(s, s->to, n, c, &to_first, &to_stride);
    locate(s, s->from, n, c, &from_first, &from_stride);
    char *aim = (char *)to + (size_t)(to_first + start * to_stride) * s->element;
    const char *source = (const char *)from + (size_t)(from_first + start * from_stride) * s->element;
    const size_t to_bytes = (size_t)to_stride * s->element, from_bytes = (size_t)from_stride * s->element;
    if (s->element == 2)
        copy_groups(aim, source, count, to_bytes, from_bytes, 32);
    else if (s->element == 4)
        copy_groups(aim, source, count, to_bytes, from_bytes, 64);
    else
        copy_groups(aim, source, count, to_bytes, from_bytes, 16 * s->element);
}

static void move_strip(const struct reorder *s, void *to, const void *from, int64_t n, int64_t c, int64_t start,
                       int64_t count)
{
    int64_t to_first, to_stride, from_first = 0, from_stride = 0;
    locate(s, s->to, n, c, &to_first, &to_stride);
    to_first += start * to_stride;
    if (c >= s->channels) { /* padding of the last block */
        for (int64_t i = 0; i < count; i++)
            memset((char *)to + (size_t)(to_first + i * to_stride) * s->element, 0, s->element);
        return;
    }
    locate(s, s->from, n, c, &from_first, &from_stride);
    from_first += start * from_stride;
    switch (s->element) {
    case 1:
        MOVE(uint8_t);
        break;
    case 2:
        MOVE(uint16_t);
        break;
    case 4:
        MOVE(uint32_t);
        break;
    default:
        MOVE(uint64_t);
        break;
    }
}

cvy_status cpu_reorder_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                           void *scratch)
{
    (void)scratch;
    const struct reorder *s = plan->state;
    if (s->from == s->to) {
        if (out[0] != in[0])
            memcpy(out[0], in[0], s->plain_bytes);
        return CVY_OK;
    }
    const int64_t block = cpu_block(&(struct cvy_layout){.kind = s->to});
    const int64_t padded = (s->channels + block - 1) / block * block;
    const bool whole = groups_16(s, s->from) && groups_16(s, s->to);
    const int64_t groups = (padded + 15) / 16, strips = (s->pixels + STRIP - 1) / STRIP;
#pragma omp parallel for num_threads(device->threads) schedule(static) collapse(3)
    for (int64_t n = 0; n < s->batch; n++)
        for (int64_t group = 0; group < groups; group++)
            for (int64_t strip = 0; strip < strips; strip++) {
                const int64_t start = strip * STRIP;
                const int64_t count = s->pixels - start < STRIP ? s->pixels - start : STRIP;
                if (whole)
                    move_groups(s, out[0], in[0], n, group * 16, start, count);
                for (int64_t c = group * 16; !whole && c < padded && c < group * 16 + 16; c++)
                    move_strip(s, out[0], in[0], n, c, start, count);
            }
    return CVY_OK;
}
