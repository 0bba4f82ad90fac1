/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX as it is found at run time: a table of its functions. Only UCX's headers are needed to build.
 * Thread: any, after ucx_library_open() has succeeded once. */
#ifndef UCX_LIBRARY_H
#define UCX_LIBRARY_H

#include <ucp/api/ucp.h>

#include "xccl_net.h"

#define UCX_NEED_MAJOR 1
#define UCX_NEED_MINOR 13

/* function of libucp */
#define UCX_UCP_FUNCTIONS(X)                                                                       \
    X(get_version)                                                                                 \
    X(config_read)                                                                                 \
    X(config_modify)                                                                               \
    X(config_print)                                                                                \
    X(config_release)                                                                              \
    X(init_version)                                                                                \
    X(cleanup)                                                                                     \
    X(context_query)                                                                               \
    X(context_print_info)                                                                          \
    X(worker_create)                                                                               \
    X(worker_destroy)                                                                              \
    X(worker_get_address)                                                                          \
    X(worker_release_address)                                                                      \
    X(worker_get_efd)                                                                              \
    X(worker_arm)                                                                                  \
    X(worker_progress)                                                                             \
    X(ep_create)                                                                                   \
    X(ep_close_nbx)                                                                                \
    X(ep_flush_nbx)                                                                                \
    X(request_cancel)                                                                              \
    X(request_check_status)                                                                        \
    X(request_free)                                                                                \
    X(tag_send_nbx)                                                                                \
    X(tag_recv_nbx)                                                                                \
    X(mem_map)                                                                                     \
    X(mem_unmap)

struct ucx_library {
#define UCX_FIELD(name) __typeof__(ucp_##name) *name; /* NOLINT(bugprone-macro-parentheses) */
    UCX_UCP_FUNCTIONS(UCX_FIELD)
#undef UCX_FIELD
    __typeof__(ucs_status_string) *status_string;
};

extern struct ucx_library ucx;

/* Opens the libraries, once a process; they stay. Error: they are missing or too old, quietly. */
xcclResult_t ucx_library_open(void);
/* Initial-exec: these are looked at twice a message, and the few bytes fit what the loader keeps
 * free. Only for the two functions below. */
#define UCX_TLS_NEAR __attribute__((tls_model("initial-exec"), visibility("hidden")))
extern _Thread_local UCX_TLS_NEAR int ucx_inside;
extern _Thread_local UCX_TLS_NEAR xcclNetLogger_t ucx_inside_log;

/* From enter to leave what UCX would print in this thread goes to log instead (NULL: nowhere). UCX
 * prints to standard output, which is the program's. Calls do not nest. */
static inline void ucx_library_enter(xcclNetLogger_t log)
{
    ucx_inside = 1;
    ucx_inside_log = log;
}

static inline void ucx_library_leave(void)
{
    ucx_inside = 0;
}

/* A version such as 1.13 is enough. */
int ucx_version_serves(unsigned major, unsigned minor);

#endif
