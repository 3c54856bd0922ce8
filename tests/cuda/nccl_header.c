/* NCCL's header against what the stand-in for it says (tests/emulated_cuda/nccl/nccl.h): compiled, never run. */
#include <nccl.h>

_Static_assert(ncclSuccess == 0 && ncclUnhandledCudaError == 1 && ncclSystemError == 2 && ncclInternalError == 3,
               "results");
_Static_assert(ncclInvalidArgument == 4 && ncclInvalidUsage == 5 && ncclRemoteError == 6 && ncclInProgress == 7,
               "results");
_Static_assert(ncclSum == 0 && ncclFloat16 == 6 && ncclFloat32 == 7 && ncclBfloat16 == 9, "types and sums");
_Static_assert(sizeof(ncclUniqueId) == 128, "ids");
_Static_assert(offsetof(ncclConfig_t, blocking) == sizeof(size_t) + 2 * sizeof(unsigned), "the configuration");
_Static_assert(sizeof(ncclResult_t) == sizeof(int) && sizeof(ncclDataType_t) == sizeof(int), "numbers");

/* The functions take what the stand-in's take. */
void nccl_header_use(void);
void nccl_header_use(void)
{
    ncclResult_t (*init)(ncclComm_t * comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config) =
        ncclCommInitRankConfig;
    ncclResult_t (*sum)(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                        cudaStream_t stream) = ncclAllReduce;
    ncclResult_t (*error)(ncclComm_t comm, ncclResult_t * result) = ncclCommGetAsyncError;
    ncclResult_t (*end)(ncclComm_t comm) = ncclCommAbort;
    const char *(*text)(ncclComm_t comm) = ncclGetLastError;

    (void)init, (void)sum, (void)error, (void)end, (void)text;
}
