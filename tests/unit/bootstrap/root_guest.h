/* SPDX-License-Identifier: BSD-3-Clause */
/* A guest at a root: a proven connection, as a rank of a job has it, that then says whatever the
 * test wants, or nothing.
 * Thread: any. */
#ifndef XCCL_TEST_ROOT_GUEST_H
#define XCCL_TEST_ROOT_GUEST_H

#include <string.h>

#include "base/param.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/conn_int.h"
#include "bootstrap/message.h"
#include "conn_recv.h"
#include "xt.h"

static inline struct xccl_conn *root_conn_of(const struct xccl_job *job, uint32_t rank,
                                             uint32_t nranks, uint32_t version,
                                             uint64_t settings_hash)
{
    struct xccl_limit limit = xccl_limit_ms(30000, NULL);
    struct xccl_hello hello = {.rank = rank,
                               .target = XCCL_TARGET_ROOT,
                               .nranks = nranks,
                               .purpose = XCCL_PURPOSE_ROOT,
                               .version = version,
                               .settings_hash = settings_hash};
    struct xccl_conn *conn;

    memcpy(hello.comm_id, job->comm_id, sizeof(hello.comm_id));
    XT_OK(xccl_conn_open(&job->own.roots[0], job->secret, &hello, &limit, &conn));
    return conn;
}

static inline struct xccl_conn *root_conn(const struct xccl_job *job, uint32_t rank,
                                          uint32_t nranks)
{
    return root_conn_of(job, rank, nranks, XCCL_VERSION_CODE, xccl_param_job_hash());
}

static inline void root_report(struct xccl_conn *conn, const struct xccl_job *job)
{
    struct xccl_limit limit = xccl_limit_ms(30000, NULL);
    struct xccl_boot_report report = {.timeout_ms = 20000,
                                      .meeting_count = 1,
                                      .addr = job->own.roots[0],
                                      .host = "evil",
                                      .settings = "XCCL_ALGO=none"};
    uint8_t body[XCCL_BOOT_REPORT_MAX];

    memcpy(report.job_id, job->comm_id, sizeof(report.job_id));

    XT_OK(xccl_conn_send(conn, XCCL_BOOT_REPORT, body, xccl_boot_report_encode(&report, body),
                         &limit));
}

static inline void root_error(struct xccl_conn *conn, struct xccl_boot_error *error_out)
{
    struct xccl_limit limit = xccl_limit_ms(30000, NULL);
    uint8_t body[XCCL_BOOT_ERROR_MAX];
    uint16_t type;
    size_t bytes;

    XT_OK(news_recv(conn, &type, body, sizeof(body), &bytes, &limit));
    XT_CHECK_INT(type, XCCL_BOOT_ERROR);
    XT_CHECK_INT(xccl_boot_error_decode(body, bytes, error_out), 0);
    xccl_conn_close(conn);
}

#endif
