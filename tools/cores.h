/* The cores of this machine that processes of one training share. */
#ifndef TOOLS_CORES_H
#define TOOLS_CORES_H

#include <stdbool.h>

enum { CORES_MAX = 4096 };
struct cores {
    int number[CORES_MAX]; /* neighbours beside each other: threads of a core, cores of a socket */
    int count;
};
/* Those that this process may use. */
void cores_find(struct cores *cores);
/* The share of process `rank` of `count`, of the cores that are near to it: near[rank] lists them ("0-3,8-11"; "" or
 * none that this process may use: all are as near). Processes with the same list share evenly; where there are fewer
 * cores than processes all have all of them. */
void cores_share(const struct cores *all, const char *const *near, int rank, int count, struct cores *share);
/* From now on this process runs on these. */
void cores_bind(const struct cores *cores);

#endif
