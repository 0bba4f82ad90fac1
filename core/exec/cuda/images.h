/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels' device code, as it lies in the library: a fat binary for each kernel, or, where it
 * was built without nvcc, a text that only the tests' stand-in driver takes. Constant: any thread.
 */
#ifndef XCCL_EXEC_CUDA_IMAGES_H
#define XCCL_EXEC_CUDA_IMAGES_H

struct xccl_cuda_image_file {
    const char *kernel; /* "xccl_run_f32", ... */
    const void *image;
};

/* By number, from 0 on; NULL: there are no more. */
const struct xccl_cuda_image_file *xccl_cuda_image_at(unsigned number);
/* 0: built without nvcc. */
int xccl_cuda_has_device_code(void);

#endif
