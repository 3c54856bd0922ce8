/* Weights as Winograd's algorithm wants them: the opaque layout (winograd_weights.c). */
#ifndef CVY_BACKEND_CPU_CONV_WINOGRAD_WEIGHTS_H
#define CVY_BACKEND_CPU_CONV_WINOGRAD_WEIGHTS_H

#include "backend/cpu/conv/winograd_loops.h"
#include "backend/cpu/cpu.h"

/* Weights (K, C, 3, 3) as (frequency, panel, channel of the source, lane): forward the lanes are outputs K, backward
 * channels C, and the window is turned round. Lanes beyond the channels are zeros. `form`: that of the forward pass. */
struct cvy_layout winograd_weights_layout(enum winograd_form form, bool backward);

#endif
