/* Streams of the emulated GPU: work is done at once, or, while a stream is being captured, recorded. */
#ifndef CVY_TESTS_EMULATED_CUDA_RECORDING_H
#define CVY_TESTS_EMULATED_CUDA_RECORDING_H

#include <stddef.h>

/* Call play(data) now, or keep a copy of the data and call it whenever the captured graph is launched. */
void emulated_do(void *stream, void (*play)(const void *data), const void *data, size_t bytes);

#endif
