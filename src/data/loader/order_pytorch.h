/* The order in which PyTorch's DistributedSampler takes a data set. */
#ifndef CVY_DATA_LOADER_ORDER_PYTORCH_H
#define CVY_DATA_LOADER_ORDER_PYTORCH_H

#include <stdint.h>

/* torch.randperm(count, generator=torch.Generator().manual_seed(seed)): below 214,748,364, where PyTorch begins to draw
 * twice as many bits. */
void cvy_pytorch_permutation(uint64_t seed, uint32_t *permutation, uint32_t count);

#endif
