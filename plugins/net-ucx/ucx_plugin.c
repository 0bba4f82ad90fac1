/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of the UCX plugin, its only exported symbol. Nothing runs when the file is loaded.
 * iflush is absent: received bytes are in host memory when test says done. */
#include "ucx_int.h"

XCCL_NET_EXPORT const xcclNetPlugin_v1_t xcclNetPlugin_v1 = {
    .size = sizeof(xcclNetPlugin_v1_t),
    .name = "ucx",
    .wireVersion = UCX_WIRE_VERSION,
    .init = ucx_init,
    .finalize = ucx_finalize,
    .devices = ucx_devices,
    .properties = ucx_properties,
    .listen = ucx_listen,
    .connect = ucx_connect,
    .closeConnect = ucx_close_connect,
    .accept = ucx_accept,
    .regMr = ucx_reg_mr,
    .deregMr = ucx_dereg_mr,
    .isend = ucx_isend,
    .irecv = ucx_irecv,
    .iflush = NULL,
    .test = ucx_test,
    .closeSend = ucx_close_comm,
    .closeRecv = ucx_close_comm,
    .closeListen = ucx_close_listen,
    .lastError = xccl_net_last_error,
    .stats = ucx_stats,
    .waitFd = ucx_wait_fd,
    .progress = ucx_progress,
    .errorDetail = ucx_error_detail,
};
