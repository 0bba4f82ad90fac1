/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of the trace hook, its only exported symbol. The bytes on the wire are the wrapped
 * plugin's. Nothing runs when the file is loaded. */
#include "trace_int.h"

XCCL_NET_EXPORT const xcclNetPlugin_v1_t xcclNetPlugin_v1 = {
    .size = sizeof(xcclNetPlugin_v1_t),
    .name = "trace",
    .wireVersion = 0,
    .init = trace_init,
    .finalize = trace_finalize,
    .devices = trace_devices,
    .properties = trace_properties,
    .listen = trace_listen,
    .connect = trace_connect,
    .closeConnect = trace_close_connect,
    .accept = trace_accept,
    .regMr = trace_reg_mr,
    .deregMr = trace_dereg_mr,
    .isend = trace_isend,
    .irecv = trace_irecv,
    .iflush = trace_iflush,
    .test = trace_test,
    .closeSend = trace_close_send,
    .closeRecv = trace_close_recv,
    .closeListen = trace_close_listen,
    .lastError = trace_last_error,
    .stats = trace_stats,
    .waitFd = trace_wait_fd,
    .progress = trace_progress,
    .errorDetail = trace_error_detail,
    .regMrDmaBuf = trace_reg_mr_dma_buf,
    .mergeDevices = trace_merge_devices,
    .exportMr = trace_export_mr,
    .iput = trace_iput,
    .iputSignal = trace_iput_signal,
};
