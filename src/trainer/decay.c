#include "trainer/decay.h"

#include <stdio.h>
#include <string.h>

bool cvy_decay_rule_find(const char *name, enum cvy_decay_rule *rule)
{
    static const char *const names[] = {"name", "exact", "weights", "all"};

    for (int i = 0; i < 4; i++) {
        if (strcmp(name, names[i]) != 0)
            continue;
        *rule = (enum cvy_decay_rule)i;
        return true;
    }
    return false;
}

/* A module with running statistics. */
static bool is_batch_norm(const struct cvy_graph *table, const char *name)
{
    const char *dot = strrchr(name, '.');
    char other[512];

    return dot && snprintf(other, sizeof other, "%.*s.running_mean", (int)(dot - name), name) < (int)sizeof other &&
           cvy_graph_find_param(table, other) >= 0;
}

bool cvy_decay_exempt(const struct cvy_graph *table, int32_t param, enum cvy_decay_rule rule)
{
    const struct cvy_param *p = &table->params[param];

    switch (rule) {
    case CVY_DECAY_NAME:
        return strstr(p->name, "bn") != NULL;
    case CVY_DECAY_EXACT:
        return is_batch_norm(table, p->name);
    case CVY_DECAY_WEIGHTS:
        return p->shape.rank < 2;
    case CVY_DECAY_ALL:
        break;
    }
    return false;
}
