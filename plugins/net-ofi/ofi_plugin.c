/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of the ofi plugin, its only exported symbol. Nothing runs when the file is loaded.
 * Entries of the contract that are absent here: exportMr, iput and iputSignal, for nothing is
 * written but into receives. */
#include "ofi_int.h"

XCCL_NET_EXPORT const xcclNetPlugin_v1_t xcclNetPlugin_v1 = {
    .size = sizeof(xcclNetPlugin_v1_t),
    .name = "ofi",
    .wireVersion = OFI_WIRE_VERSION,
    .init = ofi_init,
    .finalize = ofi_finalize,
    .devices = ofi_devices,
    .properties = ofi_properties,
    .listen = ofi_listen,
    .connect = ofi_connect,
    .closeConnect = ofi_close_connect,
    .accept = ofi_accept,
    .regMr = ofi_reg_mr,
    .deregMr = ofi_dereg_mr,
    .isend = ofi_isend,
    .irecv = ofi_irecv,
    .iflush = ofi_iflush,
    .test = ofi_test,
    .closeSend = ofi_close_comm,
    .closeRecv = ofi_close_comm,
    .closeListen = ofi_close_listen,
    .lastError = xccl_net_last_error,
    .stats = ofi_stats,
    .waitFd = ofi_wait_fd,
    .progress = ofi_progress,
    .errorDetail = ofi_error_detail,
    .regMrDmaBuf = ofi_reg_mr_dmabuf,
    .mergeDevices = ofi_merge,
};
