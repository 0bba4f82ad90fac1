/* SPDX-License-Identifier: BSD-3-Clause */
/* Takes the kernels' fat binaries into the library. XCCL_CUDA_IMAGES: the folder that the build has
 * made them in; without it there is no device code. */
#include "exec/cuda/images.h"

#include <stddef.h>

#ifdef XCCL_CUDA_IMAGES
#define XCCL_KERNEL(name, source, macros)                                                          \
    __asm__(".pushsection .rodata\n"                                                               \
            ".balign 16\n"                                                                         \
            ".local xccl_image_" #name "\n"                                                        \
            "xccl_image_" #name ":\n"                                                              \
            ".incbin \"" XCCL_CUDA_IMAGES "/" #name ".fatbin\"\n"                                  \
            ".popsection\n");                                                                      \
    extern const char xccl_image_##name[];
#include "exec/cuda/kernels.def"
#undef XCCL_KERNEL
#define IMAGE_OF(name) xccl_image_##name
#else
#define IMAGE_OF(name) "xccl-emu: no device code"
#endif

const struct xccl_cuda_image_file *xccl_cuda_image_at(unsigned number)
{
    static const struct xccl_cuda_image_file files[] = {
#define XCCL_KERNEL(name, source, macros) {"xccl_" #name, IMAGE_OF(name)},
#include "exec/cuda/kernels.def"
#undef XCCL_KERNEL
    };

    return number < sizeof files / sizeof files[0] ? &files[number] : NULL;
}

int xccl_cuda_has_device_code(void)
{
#ifdef XCCL_CUDA_IMAGES
    return 1;
#else
    return 0;
#endif
}
