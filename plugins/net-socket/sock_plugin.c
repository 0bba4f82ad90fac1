/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of the socket plugin, its only exported symbol. Nothing runs when the file is loaded.
 * iflush is absent: received bytes are in host memory when test says done. */
#include "sock_int.h"

XCCL_NET_EXPORT const xcclNetPlugin_v1_t xcclNetPlugin_v1 = {
    .size = sizeof(xcclNetPlugin_v1_t),
    .name = "socket",
    .wireVersion = SOCK_WIRE_VERSION,
    .init = sock_init,
    .finalize = sock_finalize,
    .devices = sock_devices,
    .properties = sock_properties,
    .listen = sock_listen,
    .connect = sock_connect,
    .closeConnect = sock_close_connect,
    .accept = sock_accept,
    .regMr = sock_reg_mr,
    .deregMr = sock_dereg_mr,
    .isend = sock_post_send,
    .irecv = sock_post_recv,
    .iflush = NULL,
    .test = sock_test,
    .closeSend = sock_close_comm,
    .closeRecv = sock_close_comm,
    .closeListen = sock_close_listen,
    .lastError = xccl_net_last_error,
    .stats = sock_stats,
    .waitFd = sock_wait_fd,
    .errorDetail = sock_error_detail,
    .mergeDevices = sock_merge,
};
