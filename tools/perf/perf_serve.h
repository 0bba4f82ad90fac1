/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank that measures by order: it sleeps at a Unix socket (perf_vs_mpi.h has orders and answers)
 * until a batch of calls is wanted, and answers with the time of one call on the slowest rank. The
 * same for MPI's ranks, XCCL's and those of bare loops, so that all are measured alike: warm-up,
 * all meet, calls back to back between two looks at the clock, the slowest rank's time; and the
 * same data, checked.
 *
 * Thread: the rank's; several ranks of one process have a server each. */
#ifndef XCCL_TOOLS_PERF_PERF_SERVE_H
#define XCCL_TOOLS_PERF_PERF_SERVE_H

#include "perf/perf.h"

struct xccl_perf_server;

/* What is measured. Each entry may block, and returns 0 after an error that it has told. */
struct xccl_perf_server_ops {
    const char *program; /* for messages */
    int in_place_first; /* 1: in place a reduce-scatter leaves its block at the beginning */
    /* Gets ready for calls of job->coll, type, op and root with server->shape; *has_out 0 when
     * there is no such form. */
    int (*prepare)(struct xccl_perf_server *server, int *has_out);
    /* So many calls back to back. */
    int (*run)(struct xccl_perf_server *server, int64_t calls);
    /* All ranks meet, and each gets the greatest of their values, or their sum. */
    int (*greatest)(struct xccl_perf_server *server, double *value_io);
    int (*sum)(struct xccl_perf_server *server, int64_t *value_io);
};

struct xccl_perf_server {
    const struct xccl_perf_server_ops *ops;
    void *user;
    struct xccl_perf_options options;
    struct xccl_perf_job job; /* rank, nranks, comm, take and give: the caller's */
    struct xccl_perf_shape shape; /* of the order at work */
    int in_place;
    uint64_t bytes; /* of a buffer */
    int keeps_pages; /* the caller's: buffers are more than private memory */
    int is_bare; /* 1: their pages are gone */
    int fd;
};

/* Takes memory for buffers of so many bytes and says hello at the socket of that name. 0 after a
 * message. */
int xccl_perf_server_init(struct xccl_perf_server *server, const char *name, uint64_t bytes,
                          const char *software);
/* Gives this thread a core of its own: the rank-th of a list as "0,1,5"; NULL or a list too short:
 * as it is. */
void xccl_perf_server_pin(const struct xccl_perf_server *server, const char *cores);
/* Carries out orders until the other side closes its end. 0 after an error that has been told. */
int xccl_perf_server_run(struct xccl_perf_server *server);
/* What init has taken; also after init has failed. */
void xccl_perf_server_fini(struct xccl_perf_server *server);

#endif
