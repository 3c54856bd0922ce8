/* A stand-in for NVIDIA's driver, for planning on machines that have none. cuDNN's engines that are compiled at run
 * time hand their code to the driver when a plan is made; this one takes it and does nothing. It has no GPU, so nothing
 * can ever run on it. Whatever else is asked for lies in a copy of the toolkit's stub library, which it is linked with.
 * Tests only: it must not be where a real program finds it. */
#include <cuda.h>
#include <stddef.h>

/* Handles that are only passed around. */
static char code[8], library[8], kernel[8], function[8], variable[64];

CUresult cuInit(unsigned int flags)
{
    (void)flags;
    return CUDA_ERROR_NO_DEVICE;
}

/* ---- libraries ---- */

CUresult cuLibraryLoadData(CUlibrary *made, const void *image, CUjit_option *jit_options, void **jit_values,
                           unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int count)
{
    (void)image, (void)jit_options, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    *made = (CUlibrary)(void *)library;
    return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary which)
{
    (void)which;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *found, CUlibrary which, const char *name)
{
    (void)which, (void)name;
    *found = (CUkernel)(void *)kernel;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetModule(CUmodule *found, CUlibrary which)
{
    (void)which;
    *found = (CUmodule)(void *)code;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *found, size_t *bytes, CUlibrary which, const char *name)
{
    (void)which, (void)name;
    if (found)
        *found = (CUdeviceptr)(size_t)variable;
    if (bytes)
        *bytes = sizeof variable;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction *found, CUkernel which)
{
    (void)which;
    *found = (CUfunction)(void *)function;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute name, CUkernel which, CUdevice device)
{
    (void)name, (void)which, (void)device;
    *value = 0;
    return CUDA_SUCCESS;
}

CUresult cuKernelSetAttribute(CUfunction_attribute name, int value, CUkernel which, CUdevice device)
{
    (void)name, (void)value, (void)which, (void)device;
    return CUDA_SUCCESS;
}

/* ---- modules ---- */

CUresult cuModuleLoadData(CUmodule *made, const void *image)
{
    (void)image;
    *made = (CUmodule)(void *)code;
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule *made, const void *image, unsigned int count, CUjit_option *options, void **values)
{
    (void)image, (void)count, (void)options, (void)values;
    *made = (CUmodule)(void *)code;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *found, CUmodule which, const char *name)
{
    (void)which, (void)name;
    *found = (CUfunction)(void *)function;
    return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule which)
{
    (void)which;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute name, CUfunction which)
{
    (void)name, (void)which;
    *value = 0;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction which, CUfunction_attribute name, int value)
{
    (void)which, (void)name, (void)value;
    return CUDA_SUCCESS;
}
