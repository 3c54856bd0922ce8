#include "serve/turn.h"

void cvy_turn_init(struct cvy_turn *turn)
{
    *turn = (struct cvy_turn){.asked = 0};
    pthread_mutex_init(&turn->mutex, NULL);
    pthread_cond_init(&turn->changed, NULL);
}

void cvy_turn_release(struct cvy_turn *turn)
{
    pthread_cond_destroy(&turn->changed);
    pthread_mutex_destroy(&turn->mutex);
}

void cvy_turn_take(struct cvy_turn *turn)
{
    pthread_mutex_lock(&turn->mutex);
    const uint64_t mine = turn->asked++;
    while (turn->had != mine)
        pthread_cond_wait(&turn->changed, &turn->mutex);
    pthread_mutex_unlock(&turn->mutex);
}

void cvy_turn_give(struct cvy_turn *turn)
{
    pthread_mutex_lock(&turn->mutex);
    turn->had++;
    pthread_cond_broadcast(&turn->changed);
    pthread_mutex_unlock(&turn->mutex);
}
