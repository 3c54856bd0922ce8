#include "support_engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "../emulated_cuda/capture.h"
#include "base/file.h"
#include "base/log.h"

/* device.c's, which brings the whole table with it. */
cvy_status gpu_queued(const struct gpu_device *which)
{
    (void)which;
    return gpu_last_error();
}

char folder[256];
char warnings[4096];

static void note_warning(void *context, enum cvy_log_level level, const char *text)
{
    const size_t used = strlen(warnings);

    (void)context;
    if (level == CVY_LOG_WARNING)
        snprintf(warnings + used, sizeof warnings - used, "%s\n", text);
}

void note_warnings(void)
{
    cvy_set_log_handler(note_warning, NULL);
}

int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s/convoy-cudnn-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(folder));
    setenv("CONVOY_CACHE_DIR", folder, 1);
    warnings[0] = '\0';
    return 0;
}

int remove_folder(void **state)
{
    char command[300];

    (void)state;
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

void must(cvy_status status)
{
    if (status != CVY_OK)
        fail_msg("%s", cvy_error());
}

void must_say(const char *part)
{
    if (!strstr(cvy_error(), part))
        fail_msg("\"%s\" does not say \"%s\"", cvy_error(), part);
}

/* ---- a device on a real cuDNN ---- */

struct gpu_device device;
static int descriptors; /* made and not destroyed */

struct ran ran;

static __typeof__(cudnnBackendCreateDescriptor) *create_descriptor;
static __typeof__(cudnnBackendDestroyDescriptor) *destroy_descriptor;
static __typeof__(cudnnBackendSetAttribute) *set_attribute;

static cudnnStatus_t counting_create(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *made)
{
    const cudnnStatus_t result = create_descriptor(type, made);

    descriptors += result == CUDNN_STATUS_SUCCESS;
    return result;
}

static cudnnStatus_t counting_destroy(cudnnBackendDescriptor_t which)
{
    descriptors--;
    return destroy_descriptor(which);
}

/* A variant pack cannot be read, so what goes into it is noted. */
static cudnnStatus_t noting_set(cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name,
                                cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    if (name == CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS && count <= 16)
        memcpy(ran.ids, values, (size_t)count * sizeof *ran.ids);
    if (name == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS && count <= 16) {
        memcpy(ran.pointers, values, (size_t)count * sizeof *ran.pointers);
        ran.count = count;
    }
    return set_attribute(to, name, type, count, values);
}

static int64_t clock_nanoseconds;

void pass_milliseconds(int milliseconds)
{
    clock_nanoseconds += milliseconds * INT64_C(1000000);
}

static void read_clock(struct timespec *now)
{
    clock_nanoseconds += 1000;
    *now = (struct timespec){.tv_sec = clock_nanoseconds / 1000000000, .tv_nsec = clock_nanoseconds % 1000000000};
}

static cudnnStatus_t noting_execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack)
{
    int which = 0;

    (void)handle;
    (void)pack;
    while (which < ran.plan_count && ran.plans[which] != plan)
        which++;
    if (which == ran.plan_count && which < MAX_PLANS)
        ran.plans[ran.plan_count++] = plan;
    ran.calls++;
    if (which != ran.fastest)
        pass_milliseconds(20);
    return ran.work ? ran.work(which) : CUDNN_STATUS_SUCCESS;
}

bool open_device(bool running)
{
    size_t size;
    void *json;

    emulated_set_clock(read_clock);
    device = (struct gpu_device){.described = true, .order = GPU_ORDER_ANY_OF_SUMS};
    device.info = (struct gpu_info){.name = "NVIDIA H200", .major = 9, .processors = 132};
    must(cvy_file_read(GPU_DESCRIPTION, 1 << 16, &json, &size));
    device.description_json = json;
    if (gpu_libraries_open(&device) != CVY_OK) {
        if (!strstr(cvy_error(), "is not to be found"))
            fail_msg("%s", cvy_error());
        gpu_libraries_close(&device);
        cvy_free(device.description_json);
        return false;
    }
    create_descriptor = device.libraries->cudnn.cudnnBackendCreateDescriptor;
    destroy_descriptor = device.libraries->cudnn.cudnnBackendDestroyDescriptor;
    device.libraries->cudnn.cudnnBackendCreateDescriptor = counting_create;
    device.libraries->cudnn.cudnnBackendDestroyDescriptor = counting_destroy;
    set_attribute = device.libraries->cudnn.cudnnBackendSetAttribute;
    device.libraries->cudnn.cudnnBackendSetAttribute = noting_set;
    device.libraries->cudnn.cudnnBackendExecute = noting_execute;
    descriptors = 1; /* the description's */
    memset(&ran, 0, sizeof ran);
    must(gpu_stream_open(&device.stream));
    if (running) {
        device.described = false;
        device.libraries->timing = true;
        cudnn_autotuner_close(&device);
        must(cudnn_autotuner_open(&device));
    }
    return true;
}

void close_device(void)
{
    gpu_libraries_close(&device);
    gpu_stream_close(device.stream);
    cvy_free(device.description_json);
    assert_int_equal(descriptors, 0);
}

const struct gpu_conv_problem usual = {
    .pass = GPU_CONV_FORWARD,
    .dtype = CVY_F16,
    .n = 8,
    .c = 64,
    .h = 28,
    .w = 28,
    .k = 128,
    .p = 28,
    .q = 28,
    .r = 3,
    .s = 3,
    .stride = {1, 1},
    .dilation = {1, 1},
    .pad = {1, 1, 1, 1},
    .groups = 1,
};

void expect_text(const struct gpu_conv *conv, const char *implementation, const char *reason)
{
    char text[48], why[160];

    gpu_conv_text(conv, text, why);
    if (!strstr(text, implementation) || !strstr(why, reason))
        fail_msg("\"%s\" (%s), not \"%s\" (%s)", text, why, implementation, reason);
}

void *pointer_of(enum cudnn_tensor id)
{
    for (int64_t i = 0; i < ran.count; i++) {
        if (ran.ids[i] == id)
            return ran.pointers[i];
    }
    return NULL;
}

void open_comparing(cudnnStatus_t (*work)(int plan))
{
    assert_true(open_device(true));
    must(gpu_allocate(device.stream, GPU_TICKETS * sizeof *device.tickets, (void **)&device.tickets));
    device.compares = true;
    ran.work = work;
}

void close_comparing(void)
{
    gpu_release(device.tickets);
    device.compares = false;
    close_device();
}

bool cudnn_is_there(void)
{
    unsetenv("CONVOY_KERNELS");
    note_warnings();
    if (!open_device(false)) {
        printf("skipped: %s\n", cvy_error());
        return false;
    }
    close_device();
    return true;
}
