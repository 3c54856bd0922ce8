/* Training steps: forward, backward, sums over the ranks, the optimizer and the schedule of its rate. A trainer knows
 * neither files nor options. */
#ifndef CVY_TRAINER_API_H
#define CVY_TRAINER_API_H

#include "trainer/schedule.h"
#include "trainer/trainer.h"

#endif
