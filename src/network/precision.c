/* Names of precisions, and which a processor is made for. */
#include "network/precision.h"

#include <stdio.h>
#include <string.h>

#include "backend/autotune.h"
#include "base/cache.h"
#include "base/error.h"
#include "base/log.h"
#include "base/nearest.h"
#include "base/system.h"

/* GPUs before Ampere have no products of these. */
static cvy_status check_generation(const cvy_device *device, const char *precision)
{
    return device->older ? cvy_fail(CVY_UNAVAILABLE,
                                    "option --precision %s needs a GPU of compute capability 8.0 or more; this one has "
                                    "fp32 and fp16",
                                    precision)
                         : CVY_OK;
}

static cvy_status choose_bf16(const cvy_device *device, enum cvy_dtype *dtype)
{
    if (strcmp(device->backend->name, "ref") == 0)
        return cvy_fail(CVY_USAGE, "option --precision bf16 needs --device cpu or cuda, not \"ref\"");
    /* Without the instructions for bf16, oneDNN does the same in software on AVX-512; older ones it has none for. */
    if (!device->gpu && cvy_cpu_isa() < CVY_ISA_AVX512)
        return cvy_fail(CVY_UNAVAILABLE, "option --precision bf16 needs a CPU with AVX-512; this one has none");
    CVY_TRY(check_generation(device, "bf16"));
    *dtype = CVY_BF16;
    return CVY_OK;
}

cvy_status cvy_precision_choose(const char *precision, cvy_device *device, enum cvy_dtype *dtype)
{
    const char *const name = device->backend->name;

    *dtype = CVY_F32;
    device->tf32 = false;
    if (precision && strcmp(precision, "amp") == 0)
        precision = cvy_precision_mixed(device);
    if (precision && strcmp(precision, "fp32") == 0)
        return CVY_OK;
    if (!precision || strcmp(precision, "auto") == 0) {
        device->tf32 = device->gpu && !device->older;
        return CVY_OK;
    }
    if (strcmp(precision, "bf16") == 0)
        return choose_bf16(device, dtype);
    if (strcmp(precision, "tf32") == 0 || strcmp(precision, "fp16") == 0) {
        if (!device->gpu)
            return cvy_fail(CVY_USAGE, "option --precision %s needs --device cuda, not %s", precision, cvy_quote(name));
        if (precision[0] == 't')
            CVY_TRY(check_generation(device, precision));
        device->tf32 = precision[0] == 't';
        *dtype = precision[0] == 't' ? CVY_F32 : CVY_F16;
        return CVY_OK;
    }
    if (strcmp(precision, "fp64") != 0)
        return cvy_fail(CVY_USAGE, "option --precision is auto, fp32, tf32, fp16, bf16 or fp64, not %s%s",
                        cvy_quote(precision), CVY_PERHAPS(precision, "auto", "fp32", "tf32", "fp16", "bf16", "fp64"));
    if (strcmp(name, "ref") != 0)
        return cvy_fail(CVY_USAGE, "option --precision fp64 needs --device ref, not %s", cvy_quote(name));
    *dtype = CVY_F64;
    return CVY_OK;
}

const char *cvy_precision_name(enum cvy_dtype dtype, const cvy_device *device)
{
    switch (dtype) {
    case CVY_F64:
        return "fp64";
    case CVY_BF16:
        return "bf16";
    case CVY_F16:
        return "fp16";
    default:
        return device->tf32 ? "tf32" : "fp32";
    }
}

const char *cvy_precision_mixed(const cvy_device *device)
{
    return device->gpu ? "fp16" : "bf16";
}

/* "1950", in thousandths; "1950 busy=2": measured so often, each time beside other programs. */
static bool read_ratio(const char *value, int64_t *thousandths, int64_t *busy)
{
    *busy = 0;
    if (!cvy_cache_number(&value, 1000000, thousandths))
        return false;
    if (strncmp(value, " busy=", 6) == 0) {
        value += 6;
        return cvy_cache_number(&value, CVY_AUTOTUNE_TRIES, busy) && !*value;
    }
    return !*value;
}

static bool is_ratio(const char *value)
{
    int64_t thousandths, busy;

    return read_ratio(value, &thousandths, &busy);
}

/* *clean: no other program took a core from it. */
static double measure_gain(cvy_device *device, bool *clean)
{
    const int64_t before = cvy_preemptions();
    struct cvy_device_peak peak;

    if (device->backend->measure_peak(device, CVY_PEAK_FLOPS, &peak) != CVY_OK || !(peak.flops_f32 > 0))
        return -1;
    *clean = cvy_preemptions() == before;
    return peak.flops_bf16 / peak.flops_f32;
}

/* By the rule of the kernels' times: what was measured beside other programs is measured again, by the next runs, and
 * then believed all the same. */
double cvy_precision_gain(cvy_device *device)
{
    static const struct cvy_cache_kind kind = {"# convoy processor 1", "rates of the processor", is_ratio};
    struct cvy_cache cache = {0};
    struct cvy_text identity = {0};
    char key[192], value[32];
    const char *kept;
    int64_t thousandths = 0, busy = 0;
    double gain;
    bool clean;

    if (device->gpu || !device->backend->measure_peak)
        return -1;
    cvy_text_printf(&identity, "%s; convoy %s; processor %s", cvy_cpu_name(), cvy_version(), cvy_cpu_signature());
    if (identity.failed || cvy_cache_open(&cache, &kind, "processor", identity.text) != CVY_OK) {
        cvy_text_release(&identity); /* as good without what is kept */
        return measure_gain(device, &clean);
    }
    cvy_text_release(&identity);
    snprintf(key, sizeof key, "bf16 over fp32, %s, %d threads", cvy_cpu_features(), device->threads);
    cvy_cache_load(&cache);
    kept = cvy_cache_find(&cache.table, key);
    if (kept && read_ratio(kept, &thousandths, &busy) && (busy == 0 || busy == CVY_AUTOTUNE_TRIES)) {
        gain = (double)thousandths / 1000;
    } else {
        gain = measure_gain(device, &clean);
        const int used = snprintf(value, sizeof value, "%d", (int)(1000 * gain));
        if (gain >= 0 && !clean && !cvy_kernels_are_timed_once())
            snprintf(value + used, sizeof value - (size_t)used, " busy=%d", (int)busy + 1);
        if (gain >= 0 && cvy_cache_add(&cache, key, value) == CVY_OK)
            cvy_cache_save(&cache);
    }
    cvy_cache_close(&cache);
    return gain;
}

void cvy_precision_advise(cvy_device *device, enum cvy_dtype dtype, const char *option)
{
    const double ratio = dtype == CVY_F32 || dtype == CVY_BF16 ? cvy_precision_gain(device) : -1;

    if (ratio < 0)
        return;
    if (dtype == CVY_F32 && ratio >= CVY_PRECISION_WORTH)
        cvy_log(CVY_LOG_INFO, "this processor computes %.1f times as fast in bf16 as in fp32 (%s): %s asks for it",
                ratio, cvy_cpu_features(), option);
    else if (dtype == CVY_BF16 && ratio < 1)
        cvy_log(CVY_LOG_WARNING,
                "bf16 is slower than fp32 on this processor (%s), which %s: --precision fp32 is faster",
                cvy_cpu_features(), ratio > 0 ? "computes it at half the rate" : "has no instructions for it");
}
