/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of the fault hook, its only exported symbol. The bytes on the wire are the wrapped
 * plugin's. Nothing runs when the file is loaded. */
#include "fault_int.h"

XCCL_NET_EXPORT const xcclNetPlugin_v1_t xcclNetPlugin_v1 = {
    .size = sizeof(xcclNetPlugin_v1_t),
    .name = "fault",
    .wireVersion = 0,
    .init = fault_init,
    .finalize = hook_finalize,
    .devices = hook_devices,
    .properties = hook_properties,
    .listen = hook_listen,
    .connect = fault_connect,
    .closeConnect = hook_close_connect,
    .accept = fault_accept,
    .regMr = fault_reg_mr,
    .deregMr = hook_dereg_mr,
    .isend = fault_isend,
    .irecv = fault_irecv,
    .iflush = fault_iflush,
    .test = fault_test,
    .closeSend = hook_close_send,
    .closeRecv = hook_close_recv,
    .closeListen = hook_close_listen,
    .lastError = hook_last_error,
    .stats = hook_stats,
    .waitFd = fault_wait_fd,
    .progress = hook_progress,
    .errorDetail = fault_error_detail,
    .regMrDmaBuf = fault_reg_mr_dma_buf,
    .mergeDevices = hook_merge_devices,
    .exportMr = fault_export_mr,
    .iput = fault_iput,
    .iputSignal = fault_iput_signal,
};
