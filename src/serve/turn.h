/* The cores, which networks have one after the other, in the order in which they ask for them. (A mutex would leave
 * them to the network that has just had them and has work for them again: the others would wait for ever.) */
#ifndef CVY_SERVE_TURN_H
#define CVY_SERVE_TURN_H

#include <pthread.h>
#include <stdint.h>

struct cvy_turn {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint64_t asked, had; /* how many turns */
};
void cvy_turn_init(struct cvy_turn *turn);
void cvy_turn_release(struct cvy_turn *turn);
/* Waits for it. */
void cvy_turn_take(struct cvy_turn *turn);
void cvy_turn_give(struct cvy_turn *turn);

#endif
