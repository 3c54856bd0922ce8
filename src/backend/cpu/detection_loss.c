/* Losses of a detector: focal loss over all logits, smooth L1 over the codes of matched anchors, squares of weights.
 *
 * Nearly all targets of the focal loss are 0, so the loops take them all for that, in runs from one matched column to
 * the next; those few are computed one by one. Nothing is kept from the forward pass: reading a value again costs more
 * than computing it. Sums are made in pieces that do not depend on the threads. */
#include <math.h>

#include "backend/cpu/cpu.h"

struct predictions {
    int64_t anchors, columns; /* of all images; of one anchor */
    int64_t image_anchors;
    int64_t rows; /* anchors in a piece */
    enum cvy_dtype dtype;
};

static int64_t pieces_of(const struct predictions *s)
{
    return (s->anchors + s->rows - 1) / s->rows;
}

/* `integers`: the input that holds the classes. */
static cvy_status prepare(struct cvy_op_desc *desc, struct cvy_kernel_plan *plan, int integers, bool backward)
{
    const int64_t *dim = desc->in[0].shape.dim;
    struct predictions state = {
        .anchors = dim[0] * dim[1], .columns = dim[2], .image_anchors = dim[1], .dtype = desc->in[0].dtype};
    if (desc->in[integers].dtype != CVY_I32)
        return cvy_fail(CVY_UNAVAILABLE, "classes are i32, not %s", cvy_dtype_name(desc->in[integers].dtype));
    CVY_TRY(cpu_expect_images(desc, 1U << 0, backward ? 1U << 0 : 0, 1U << integers, 0));
    cpu_plain(desc, 0, 0);
    state.rows = state.columns < CPU_CHUNK / 4 ? CPU_CHUNK / 4 / state.columns : 1;
    plan->scratch_bytes = (size_t)pieces_of(&state) * sizeof(double);
    return cpu_state(plan, &state, sizeof(state));
}

static double sum_of(const double *pieces, int64_t count)
{
    double total = 0;
    for (int64_t i = 0; i < count; i++)
        total += pieces[i];
    return total;
}

/* Predictions from number `at` on. */
static const void *element(const struct predictions *s, const void *data, int64_t at)
{
    return cpu_run_of(data, (size_t)at * cvy_dtype_size(s->dtype));
}

static double value_at(cvy_device *device, const struct predictions *s, const void *data, int64_t at)
{
    float value;
    if (s->dtype == CVY_BF16)
        cpu_of(device)->kernels->from_bf16(&value, element(s, data, at), 1);
    else
        value = *(const float *)element(s, data, at);
    return (double)value;
}

static void set_value(cvy_device *device, const struct predictions *s, void *data, int64_t at, double number)
{
    void *to = cpu_run_at(data, (size_t)at * cvy_dtype_size(s->dtype));
    const float value = (float)number;
    if (s->dtype == CVY_BF16)
        cpu_of(device)->kernels->to_bf16(to, &value, 1);
    else
        *(float *)to = value;
}

/* The first anchor of a piece, and the one after its last. */
struct piece {
    int64_t first, end;
};

static struct piece piece_of(const struct predictions *s, int64_t i)
{
    const int64_t end = (i + 1) * s->rows;
    return (struct piece){i * s->rows, end < s->anchors ? end : s->anchors};
}

/* ---- focal loss ---- */

/* Classes come from data: a wrong one would be a box that nothing learns to find. */
static cvy_status check_classes(const struct predictions *s, const int32_t *classes)
{
    int64_t wrong = s->anchors;
    for (int64_t i = s->anchors - 1; i >= 0; i--)
        if (classes[i] < 0 || classes[i] >= s->columns)
            wrong = i;
    if (wrong == s->anchors)
        return CVY_OK;
    return cvy_fail(CVY_FAILED, "class %d of anchor %lld is outside 0 to %lld", (int)classes[wrong],
                    (long long)(wrong % s->image_anchors), (long long)s->columns - 1);
}

/* Where the target is 1: the loss over alpha, and its derivative by -x, both functions of z = -x. */
static double matched_loss(double z)
{
    const double wrong = 1 / (1 + exp(-z)); /* 1 - p */
    return wrong == 0 ? 0 : wrong * wrong * ((z > 0 ? z : 0) + log1p(exp(-fabs(z))));
}

static double matched_slope(double z)
{
    const double wrong = 1 / (1 + exp(-z)), right = 1 / (1 + exp(z));
    const double plus = fmin((z > 0 ? z : 0) + log1p(exp(-fabs(z))), 1e4); /* right is 0 there */
    return wrong * wrong * (wrong + 2 * right * plus);
}

cvy_status cpu_focal_loss_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    return prepare(desc, plan, 1, false);
}

static double piece_loss(cvy_device *device, const struct predictions *s, const void *logits, const int32_t *classes,
                         struct piece piece)
{
    const struct cpu_loops *loops = cpu_loops_for(device, s->dtype);
    int64_t from = piece.first * s->columns;
    double background = 0, matched = 0;
    for (int64_t i = piece.first; i < piece.end; i++) {
        const int64_t at = i * s->columns + classes[i];
        if (classes[i] == 0)
            continue;
        background += loops->focal_loss(element(s, logits, from), (size_t)(at - from));
        matched += matched_loss(-value_at(device, s, logits, at));
        from = at + 1;
    }
    background += loops->focal_loss(element(s, logits, from), (size_t)(piece.end * s->columns - from));
    return 0.75 * background + 0.25 * matched;
}

cvy_status cpu_focal_loss_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                              void *scratch)
{
    const struct predictions *s = plan->state;
    double *sums = scratch;
    CVY_TRY(check_classes(s, in[1]));
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t i = 0; i < pieces_of(s); i++)
        sums[i] = piece_loss(device, s, in[0], in[1], piece_of(s, i));
    *(float *)out[0] = (float)(sum_of(sums, pieces_of(s)) / (double)*(const float *)in[2]);
    return CVY_OK;
}

cvy_status cpu_focal_loss_bwd_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    CVY_TRY(prepare(desc, plan, 1, true));
    plan->scratch_bytes = 0;
    plan->in_place[0] = 0;
    return CVY_OK;
}

cvy_status cpu_focal_loss_bwd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                  void *const *out, void *scratch)
{
    (void)scratch;
    const struct predictions *s = plan->state;
    const struct cpu_loops *loops = cpu_loops_for(device, s->dtype);
    const int32_t *classes = in[1];
    const double scale = (double)*(const float *)in[3] / (double)*(const float *)in[2];
    CVY_TRY(check_classes(s, classes));
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t p = 0; p < pieces_of(s); p++) {
        const struct piece piece = piece_of(s, p);
        int64_t from = piece.first * s->columns;
        for (int64_t i = piece.first; i <= piece.end; i++) {
            const bool last = i == piece.end;
            const int64_t at = i * s->columns + (last ? 0 : classes[i]);
            if (!last && classes[i] == 0)
                continue;
            loops->focal_loss_bwd(cpu_run_at(out[0], (size_t)from * loops->size), element(s, in[0], from),
                                  (size_t)(at - from), (float)(0.75 * scale));
            if (!last)
                set_value(device, s, out[0], at, -0.25 * scale * matched_slope(-value_at(device, s, in[0], at)));
            from = at + 1;
        }
    }
    return CVY_OK;
}

/* ---- smooth L1 ---- */

/* The difference of code `at`: 0 where the target is NaN. */
static double difference(cvy_device *device, const struct predictions *s, void *const *in, int64_t at)
{
    const double target = (double)((const float *)in[1])[at];
    return isnan(target) ? 0 : value_at(device, s, in[0], at) - target;
}

cvy_status cpu_smooth_l1_loss_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    return prepare(desc, plan, 2, false);
}

cvy_status cpu_smooth_l1_loss_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                  void *const *out, void *scratch)
{
    const struct predictions *s = plan->state;
    const int32_t *classes = in[2];
    double *sums = scratch;
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t p = 0; p < pieces_of(s); p++) {
        const struct piece piece = piece_of(s, p);
        double total = 0;
        for (int64_t i = piece.first; i < piece.end; i++)
            for (int64_t k = i * 4; classes[i] > 0 && k < i * 4 + 4; k++) {
                const double d = fabs(difference(device, s, in, k));
                total += d <= 1 ? d * d / 2 : d - 0.5;
            }
        sums[p] = total;
    }
    *(float *)out[0] = (float)(sum_of(sums, pieces_of(s)) / (4 * (double)*(const float *)in[3]));
    return CVY_OK;
}

cvy_status cpu_smooth_l1_loss_bwd_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    CVY_TRY(prepare(desc, plan, 2, true));
    plan->scratch_bytes = 0;
    plan->in_place[0] = 0;
    return CVY_OK;
}

cvy_status cpu_smooth_l1_loss_bwd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                      void *const *out, void *scratch)
{
    (void)scratch;
    const struct predictions *s = plan->state;
    const int32_t *classes = in[2];
    const double scale = (double)*(const float *)in[4] / (4 * (double)*(const float *)in[3]);
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t i = 0; i < s->anchors; i++)
        for (int64_t k = i * 4; k < i * 4 + 4; k++) {
            const double d = classes[i] > 0 ? difference(device, s, in, k) : 0;
            set_value(device, s, out[0], k, scale * (d > 1 ? 1 : d < -1 ? -1 : d));
        }
    return CVY_OK;
}

/* ---- squares of weights ---- */

struct l2 {
    int32_t inputs;
    int64_t count[CVY_MAX_TERMS];
    float factor;
};

cvy_status cpu_l2_loss_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    struct l2 state = {.inputs = desc->inputs, .factor = desc->attr.l2_loss.factor};
    int64_t largest = 0;
    CVY_TRY(cpu_expect_f32(desc, 0, 0));
    cpu_plain(desc, 0, 0);
    for (int32_t i = 1; i < desc->inputs; i++) {
        state.count[i] = cvy_shape_elements(&desc->in[i].shape);
        largest = state.count[i] > largest ? state.count[i] : largest;
    }
    plan->scratch_bytes = (size_t)(largest / CPU_CHUNK + 1) * sizeof(double);
    return cpu_state(plan, &state, sizeof(state));
}

static double sum_of_squares(cvy_device *device, const float *w, int64_t count, double *sums)
{
    static const float centre[CPU_LANES];
    const int64_t chunks = (count + CPU_CHUNK - 1) / CPU_CHUNK;
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t i = 0; i < chunks; i++) {
        const int64_t first = i * CPU_CHUNK, rest = count - first;
        double lanes[CPU_LANES];
        cpu_of(device)->kernels->f32->sum_squares(w + first, (size_t)(rest < CPU_CHUNK ? rest : CPU_CHUNK), centre,
                                                  lanes);
        sums[i] = sum_of(lanes, CPU_LANES);
    }
    return sum_of(sums, chunks);
}

cvy_status cpu_l2_loss_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                           void *scratch)
{
    const struct l2 *s = plan->state;
    double total = 0;
    for (int32_t i = 1; i < s->inputs; i++)
        total += sum_of_squares(device, in[i], s->count[i], scratch);
    *(float *)out[0] = (float)((in[0] ? (double)*(const float *)in[0] : 0) + (double)s->factor / 2 * total);
    return CVY_OK;
}
