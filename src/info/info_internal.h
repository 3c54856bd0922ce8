/* Shared by the two forms of `info`. */
#ifndef CVY_INFO_INFO_INTERNAL_H
#define CVY_INFO_INFO_INTERNAL_H

#include "base/json_out.h"
#include "convoy/info.h"
#include "info/workload.h"
#include "network/memory.h"
#include "weights/checkpoint.h"

/* A device or a library, available or not. */
struct cvy_info_device {
    const char *name;
    bool available;
    char text[2048];  /* its description, or why it is not here */
    char *properties; /* of the hardware, a JSON object; NULL: none are known */
};
enum { CVY_INFO_DEVICES = 3, CVY_INFO_MPIS = 2 };

/* The memory of one mode. */
struct cvy_info_memory {
    int32_t batch;
    struct cvy_memory_estimate estimate;
    char refused[256]; /* why there is no such plan; "" */
};

/* Everything that `info` prints; absent parts are zero. */
struct cvy_info_facts {
    bool machine; /* no subject: build and machine */
    struct cvy_info_device devices[CVY_INFO_DEVICES], drawing, serving, mpis[CVY_INFO_MPIS];
    const char *file; /* a weights file, NULL for an architecture */
    struct cvy_checkpoint_info weights;
    const struct cvy_architecture *architecture;
    struct cvy_model_options model;
    int32_t batch;
    bool training;
    int64_t parameters, state_elements;
    double macs;                 /* for one image */
    bool steps;                  /* list them */
    const struct cvy_plan *plan; /* one of the two below: a dry run, or the workload's */
    struct cvy_plan dry_run_plan;
    struct cvy_workload work;
    int32_t runs;                  /* that the times of the steps come from; 0: nothing was measured */
    double iteration_seconds;      /* plan and what is around it */
    struct cvy_device_peak limits; /* of the device; zero where unknown */
    struct cvy_device_peak peak;   /* of the processor's operations */
    cvy_device *device;
    int streams;               /* that compute such a plan at the same time; 1: all threads compute it together */
    cvy_device *stream_device; /* of the dry run where there are several */
    enum cvy_dtype dtype;
    float *quantizer_states;          /* of a quantised file, by their place in the state arena; else NULL */
    bool int8;                        /* inference computes in integers */
    struct cvy_info_memory memory[2]; /* by enum cvy_model_mode */
};
/* Measurements of one op's steps, without setup steps. */
struct cvy_info_kind {
    int32_t steps;
    bool product; /* GFLOP/s say something; of the others GB/s */
    double seconds, flops, bytes;
    double min_seconds; /* operations at the device's peak or bytes at its bandwidth, the longer of the two */
};
struct cvy_info_sums {
    struct cvy_info_kind kinds[CVY_OP_COUNT];
    double seconds, min_seconds;
};
/* Fills facts->devices, and facts->peak. */
CVY_CHECKED cvy_status cvy_info_find_devices(struct cvy_info_facts *facts, int threads);
/* Run the workload and measure the device. */
CVY_CHECKED cvy_status cvy_info_measure(struct cvy_info_facts *facts, int32_t runs);
void cvy_info_sum(const struct cvy_info_facts *facts, struct cvy_info_sums *sums);
/* A convolution or linear layer, forward or backward. */
bool cvy_info_is_product(const struct cvy_plan_step *step);

/* What makes the plan of a mode one of integers; NULL: it computes in floats. */
const float *cvy_info_int8_states(const struct cvy_info_facts *facts, enum cvy_model_mode mode);

void cvy_info_text(const struct cvy_info_facts *facts, struct cvy_text *text);
void cvy_info_json(const struct cvy_info_facts *facts, struct cvy_json *json);
/* "int8" of a plan in integers, else that of the floats. */
const char *cvy_info_precision(const struct cvy_info_facts *facts);
const char *cvy_info_phase(const struct cvy_plan_step *step); /* "setup", "forward", "backward" */
/* "16", "c/16"; "" without squeeze-and-excitation. Returns buffer. */
const char *cvy_info_squeeze(const struct cvy_info_facts *facts, char buffer[16]);
const char *cvy_info_storage(enum cvy_storage storage); /* "activation", ... */

#endif
