#include "support_autotune.h"
#include "base/file.h"
#include "base/log.h"
#include "base/system.h"
#include "support_test.h"

struct fake_state fake;

double fake_clock(void)
{
    return fake.now;
}

static cvy_status prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan);
static cvy_status run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                      void *scratch);
struct cvy_kernel fake_rows[] = {
    {"fake.slow", CVY_OP_CONV2D, prepare, run, NULL, true, 0, NULL},
    {"fake.fast", CVY_OP_CONV2D, prepare, run, NULL, true, 0, NULL},
    {"fake.wide", CVY_OP_CONV2D, prepare, run, NULL, true, 0, NULL},
    {"fake.reorder", CVY_OP_REORDER, prepare, run, NULL, false, 0, NULL},
};

static int microseconds_of(size_t row)
{
    return row == SLOW ? fake.slow : row == FAST ? fake.fast : row == WIDE ? fake.wide : fake.reorder;
}

static cvy_status prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    const size_t row = (size_t)(plan->kernel - fake_rows);

    if (microseconds_of(row) < 0)
        return cvy_fail(CVY_UNAVAILABLE, "not today");
    if (row == REORDER)
        return CVY_OK;
    for (int i = 0; i < desc->inputs; i++)
        desc->in[i].layout.kind = CVY_LAYOUT_PLAIN;
    desc->out[0].layout.kind = CVY_LAYOUT_PLAIN;
    if (row == WIDE)
        desc->in[0].layout.kind = fake.wide_input;
    if (row == WIDE && fake.wide_output)
        desc->out[0].layout.kind = CVY_LAYOUT_NHWC;
    plan->scratch_bytes = 100;
    return CVY_OK;
}

static cvy_status run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                      void *scratch)
{
    const size_t row = (size_t)(plan->kernel - fake_rows);

    assert_true(in[0] && out[0] && scratch);
    assert_true(*(const float *)in[0] > 0.4f || *(const float *)in[0] < -0.4f); /* filled with numbers */
    fake.runs[row]++;
    fake.now += microseconds_of(row) * 1e-6 * (fake.runs[row] % 3 == 0 ? 1 : 1.7); /* now and then undisturbed */
    return CVY_OK;
}

static cvy_status allocate(cvy_device *device, size_t bytes, void **memory)
{
    *memory = cvy_calloc_aligned(bytes ? bytes : 1);
    return *memory ? CVY_OK : cvy_fail_memory(bytes, "a test");
}

static void release(cvy_device *device, void *memory)
{
    cvy_free_aligned(memory);
}

static cvy_status upload(cvy_device *device, void *to, const void *host, size_t bytes)
{
    memcpy(to, host, bytes);
    return CVY_OK;
}

static cvy_status synchronize(cvy_device *device)
{
    return CVY_OK;
}

static size_t tensor_bytes(cvy_device *device, const struct cvy_tensor *tensor)
{
    return (size_t)cvy_shape_elements(&tensor->shape) * cvy_dtype_size(tensor->dtype);
}

static const struct cvy_backend backend = {
    .name = "fake",
    .allocate = allocate,
    .release = release,
    .upload = upload,
    .synchronize = synchronize,
    .tensor_bytes = tensor_bytes,
    .kernels = fake_rows,
    .kernel_count = sizeof fake_rows / sizeof *fake_rows,
    .host_memory = true,
};
struct cvy_device fake_device = {
    .backend = &backend, .threads = 3, .description = "Fake CPU\t7, none", .settings = "FAKE=1"};

struct cvy_op_desc fake_describe(int channels)
{
    struct cvy_op_desc desc = {.op = CVY_OP_CONV2D, .inputs = 2, .outputs = 1};

    for (int i = 0; i < CVY_MAX_INPUTS; i++)
        desc.in[i].shape.rank = -1;
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
        desc.out[i].shape.rank = -1;
    desc.attr.conv2d = (struct cvy_conv2d_attr){
        .kernel = {3, 3}, .stride = {1, 1}, .dilation = {1, 1}, .pad = {1, 1, 1, 1}, .groups = 1};
    desc.in[0] = (struct cvy_tensor){.shape = cvy_shape4(2, channels, 4, 4), .dtype = CVY_F32};
    desc.in[1] = (struct cvy_tensor){.shape = cvy_shape4(8, channels, 3, 3), .dtype = CVY_F32};
    desc.out[0] = (struct cvy_tensor){.shape = cvy_shape4(2, 8, 4, 4), .dtype = CVY_F32};
    return desc;
}

/* The row of a convolution in a plan of its own, and why. */
const char *fake_reason(struct cvy_op_desc desc, bool timing, char reason[160])
{
    struct cvy_selection selection;
    struct cvy_kernel_plan plan;

    cvy_selection_begin(&selection, &fake_device, timing, 1);
    if (cvy_selection_select(&selection, &desc, &plan) != CVY_OK)
        fail_msg("%s", cvy_error());
    cvy_selection_end(&selection, true);
    memcpy(reason, plan.reason, 160);
    return plan.kernel->name;
}

const char *fake_choose(int channels)
{
    char reason[160];

    return fake_reason(fake_describe(channels), true, reason);
}

void fake_times(int slow, int fast, int wide)
{
    fake.slow = slow;
    fake.fast = fast;
    fake.wide = wide;
    fake.reorder = 0;
    fake.wide_input = CVY_LAYOUT_PLAIN;
    fake.wide_output = false;
}

/* ---- a folder for what is kept ---- */

char fake_folder[] = "/tmp/convoy-choice-XXXXXX";
char fake_log[4096];

static void keep_log(void *context, enum cvy_log_level level, const char *text)
{
    if (level <= CVY_LOG_WARNING && strlen(fake_log) + strlen(text) + 2 < sizeof fake_log)
        strcat(strcat(fake_log, text), "\n");
}

const char *fake_cache(const char *name)
{
    static char path[256];

    snprintf(path, sizeof path, "%s/%s", fake_folder, name);
    assert_int_equal(setenv("CONVOY_CACHE_DIR", path, 1), 0);
    return path;
}

/* The one file of a cache that is not its lock. */
const char *fake_cache_file(const char *name)
{
    static char path[600];
    char command[512];
    FILE *list;

    snprintf(command, sizeof command, "ls %s/%s/*.txt", fake_folder, name);
    list = popen(command, "r");
    assert_non_null(list);
    assert_non_null(fgets(path, sizeof path, list));
    path[strcspn(path, "\n")] = '\0';
    assert_int_equal(pclose(list), 0);
    return path;
}

char *fake_read(const char *path)
{
    void *data = NULL;
    size_t size;

    if (cvy_file_read(path, 1 << 20, &data, &size) != CVY_OK)
        fail_msg("%s", cvy_error());
    return data;
}

void fake_open(void)
{
    fake_log[0] = '\0';
    memset(fake.runs, 0, sizeof fake.runs);
    if (cvy_autotuner_open(&fake_device, &fake_device.autotuner) != CVY_OK)
        fail_msg("%s", cvy_error());
}

void fake_close(void)
{
    cvy_autotuner_close(fake_device.autotuner);
    fake_device.autotuner = NULL;
}

bool fake_busy;

static int64_t fake_preemptions(void)
{
    static int64_t count;

    return count += fake_busy;
}

int fake_set_up(void **state)
{
    cvy_set_log_handler(keep_log, NULL);
    cvy_clock_replace(fake_clock);
    cvy_preemptions_replace(fake_preemptions);
    return mkdtemp(fake_folder) && unsetenv("CONVOY_KERNELS") == 0 && unsetenv("CONVOY_KERNEL") == 0 ? 0 : -1;
}

int fake_tear_down(void **state)
{
    char command[128];

    cvy_clock_replace(NULL);
    cvy_preemptions_replace(NULL);
    snprintf(command, sizeof command, "rm -rf %s", fake_folder);
    return system(command);
}
