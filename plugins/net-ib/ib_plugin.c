/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of the ib plugin, its only exported symbol. Nothing runs when the file is loaded.
 * Absent: waitFd, for a card would have to be armed, and the one-sided entries. progress: a card
 * delivers by itself. */
#include "ib_int.h"

XCCL_NET_EXPORT const xcclNetPlugin_v1_t xcclNetPlugin_v1 = {
    .size = sizeof(xcclNetPlugin_v1_t),
    .name = "ib",
    .wireVersion = IB_WIRE_VERSION,
    .init = ib_init,
    .finalize = ib_finalize,
    .devices = ib_devices,
    .properties = ib_properties,
    .listen = ib_listen,
    .connect = ib_connect,
    .closeConnect = ib_close_connect,
    .accept = ib_accept,
    .regMr = ib_reg_mr,
    .deregMr = ib_dereg_mr,
    .isend = ib_isend,
    .irecv = ib_irecv,
    .iflush = ib_iflush,
    .test = ib_test,
    .closeSend = ib_close_send,
    .closeRecv = ib_close_recv,
    .closeListen = ib_close_listen,
    .lastError = xccl_net_last_error,
    .stats = ib_stats,
    .errorDetail = ib_error_detail,
    .regMrDmaBuf = ib_reg_mr_dmabuf,
    .mergeDevices = ib_merge,
};
