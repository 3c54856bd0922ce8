/* The rules by name. */
#include "trainer/loss_scale.h"

#include <string.h>

bool cvy_scaler_rule_find(const char *name, struct cvy_scaler_rule *rule, float *start)
{
    static const struct {
        const char *name;
        float start;
        struct cvy_scaler_rule rule;
    } rules[] = {
        {"torch", 1, {.growth = 2, .backoff = 0.5f, .smallest = 0x1p-100f, .largest = 0x1p127f, 100, true}},
        {"torch-fixed", 1, {.growth = 2, .backoff = 0.5f, .smallest = 0x1p-100f, .largest = 0x1p127f, 0, true}},
        {"tensorflow", 0x1p15f, {.growth = 2, .backoff = 0.5f, .smallest = 1, .largest = 0x1p127f, 2000, true}},
        {"apex", 0x1p16f, {.growth = 2, .backoff = 0.5f, .smallest = 0x1p-100f, .largest = 0x1p24f, 2000, true}},
        {"fp16-utils", 0x1p32f, {.growth = 2, .backoff = 0.5f, .smallest = 1, .largest = 0x1p100f, 1000, true}},
        {"static", 1, {.growth = 1, .backoff = 1, .smallest = 0, .largest = 0x1p100f, 0, false}},
    };

    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (strcmp(rules[i].name, name) != 0)
            continue;
        *rule = rules[i].rule;
        *start = rules[i].start;
        return true;
    }
    return false;
}
