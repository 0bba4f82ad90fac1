/* SPDX-License-Identifier: BSD-3-Clause */
/* The server's life: memory and hello, orders, answers. Between orders it sleeps in recv().
 *
 * Thread: the rank's. */
#include "perf/perf_serve.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "perf/perf_vs_mpi.h"

#define BATCHES_MAX 16
#define TAKE_LEAST  (128u << 10) /* bytes of a call, for which all pages are taken */

int xccl_perf_server_init(struct xccl_perf_server *server, const char *name, uint64_t bytes,
                          const char *software)
{
    struct xccl_perf_mpi_hello hello = {
        .magic = XCCL_PERF_MPI_MAGIC, .rank = server->job.rank, .nranks = server->job.nranks};

    server->fd = -1;
    server->bytes = bytes;
    server->job.options = &server->options;
    if (xccl_perf_job_init(&server->job, bytes) != xcclSuccess) {
        fprintf(stderr, "%s: %s\n", server->ops->program, xccl_error_text());
        return 0;
    }
    snprintf(hello.software, sizeof(hello.software), "%.*s", (int)sizeof(hello.software) - 1,
             software);
    server->fd = xccl_perf_mpi_connect(name, &hello);
    if (server->fd < 0)
        fprintf(stderr, "%s: cannot connect to the program that started it: %s\n",
                server->ops->program, strerror(errno));
    return server->fd >= 0;
}

void xccl_perf_server_fini(struct xccl_perf_server *server)
{
    xccl_perf_job_fini(&server->job);
    if (server->fd >= 0)
        close(server->fd);
    server->fd = -1;
}

void xccl_perf_server_pin(const struct xccl_perf_server *server, const char *cores)
{
    const char *at = cores;
    cpu_set_t set;
    long core = 0;

    for (int i = 0; at && i < server->job.rank; i++) {
        at = strchr(at, ',');
        at += at != NULL;
    }
    if (!at || !*at)
        return;
    core = strtol(at, NULL, 10);
    CPU_ZERO(&set);
    if (core >= 0 && core < CPU_SETSIZE)
        CPU_SET(core, &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0)
        fprintf(stderr, "%s: rank %d: cannot stay on core %ld: %s\n", server->ops->program,
                server->job.rank, core, strerror(errno));
}

/* The time of so many calls on the slowest rank; the ranks meet before. */
static int time_batch(struct xccl_perf_server *server, int64_t calls, double *us_out)
{
    double meeting = 1, own_us = 0;
    uint64_t start_ns = 0;

    if (!server->ops->greatest(server, &meeting))
        return 0;
    start_ns = xccl_clock_ns();
    if (!server->ops->run(server, calls))
        return 0;
    own_us = (double)(xccl_clock_ns() - start_ns) / 1000.0;
    if (!server->ops->greatest(server, &own_us))
        return 0;
    *us_out = own_us;
    return 1;
}

static int measure(struct xccl_perf_server *server, const struct xccl_perf_mpi_order *order,
                   struct xccl_perf_mpi_answer *answer)
{
    int64_t next = order->iters;
    double us = 0;

    if (order->warmup_iters && !server->ops->run(server, order->warmup_iters))
        return 0;
    for (int batch = 0; batch < BATCHES_MAX && next > 0; batch++) {
        answer->order.iters = next;
        if (!time_batch(server, next * order->group_calls, &us))
            return 0;
        next = order->exact ? 0 : xccl_perf_next_iters(next, us);
    }
    answer->time_us = us / (double)(answer->order.iters * order->group_calls);
    return 1;
}

/* What this rank has received; MPI promises nothing for the rest of a buffer. */
static int check(struct xccl_perf_server *server, const struct xccl_perf_mpi_order *order,
                 struct xccl_perf_mpi_answer *answer)
{
    struct xccl_perf_job *job = &server->job;
    struct xccl_perf_buffers at = xccl_perf_buffers_of(job, &server->shape, server->in_place);

    if (order->check_runs == 0 || job->coll->empty)
        return 1;
    if (server->ops->in_place_first && job->coll->reduces && job->coll->send_all &&
        server->in_place)
        at.recv = job->recv;
    answer->wrong = 0;
    for (int64_t i = 0; i < order->check_runs; i++) {
        xccl_perf_check_begin(job, &server->shape, server->in_place);
        if (!server->ops->run(server, 1))
            return 0;
        answer->wrong += xccl_perf_check_blocks(job, &server->shape, at.recv);
    }
    return server->ops->sum(server, &answer->wrong);
}

static int let_pages_go(struct xccl_perf_server *server, const struct xccl_perf_mpi_order *order,
                        struct xccl_perf_mpi_answer *answer)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    *answer = (struct xccl_perf_mpi_answer){.order = *order, .wrong = -1};
    for (int i = 0; i < 2 && !server->keeps_pages; i++) {
        uintptr_t begin = (uintptr_t)server->job.memory[i];
        uintptr_t end = (begin + server->bytes + XCCL_PERF_MARGINS) / page * page;

        begin = (begin + page - 1) / page * page;
        server->is_bare = 1;
        if (begin >= end || madvise((void *)begin, end - begin, MADV_DONTNEED) == 0)
            continue;
        fprintf(stderr, "%s: rank %d: cannot release memory pages: %s\n", server->ops->program,
                server->job.rank, strerror(errno));
        return 0;
    }
    return 1;
}

/* A program's memory is there from end to end, also where a large call uses a part of it. */
static void take_pages(struct xccl_perf_server *server, uint64_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    if (!server->is_bare || bytes < TAKE_LEAST)
        return;
    for (int i = 0; i < 2; i++) {
        for (size_t at = 0; at < server->bytes + XCCL_PERF_MARGINS; at += page)
            server->job.memory[i][at] = 0;
    }
    server->is_bare = 0;
}

/* time_us stays 0 where there is no such form. */
static int carry_out(struct xccl_perf_server *server, const struct xccl_perf_mpi_order *order,
                     struct xccl_perf_mpi_answer *answer)
{
    struct xccl_perf_job *job = &server->job;
    int has = 0;

    if (order->coll == XCCL_PERF_MPI_NEW_PAGES)
        return let_pages_go(server, order, answer);
    *answer = (struct xccl_perf_mpi_answer){.order = *order, .wrong = -1};
    take_pages(server, order->bytes);
    job->coll = &xccl_perf_colls[order->coll];
    job->type = (xcclDataType_t)order->type;
    job->op = (xcclRedOp_t)order->op;
    job->root = order->root;
    server->in_place = order->in_place;
    server->shape = xccl_perf_shape_of(job, order->bytes);
    if (!server->ops->prepare(server, &has))
        return 0;
    if (!has)
        return 1;
    xccl_perf_check_begin(job, &server->shape, server->in_place);
    return measure(server, order, answer) && check(server, order, answer);
}

/* Of our own build, or an error. */
static int is_order(const struct xccl_perf_server *server, const struct xccl_perf_mpi_order *order)
{
    int known = 0;

    while (xccl_perf_colls[known].name)
        known++;
    if (order->magic == XCCL_PERF_MPI_MAGIC && order->coll >= XCCL_PERF_MPI_NEW_PAGES &&
        order->coll < known && order->type >= 0 && order->type < xcclNumTypes && order->root >= 0 &&
        order->root < server->job.nranks)
        return 1;
    fprintf(stderr, "%s: rank %d: unknown command; build all programs again\n",
            server->ops->program, server->job.rank);
    return 0;
}

int xccl_perf_server_run(struct xccl_perf_server *server)
{
    struct xccl_perf_mpi_order order;
    struct xccl_perf_mpi_answer answer;
    ssize_t got = 0;

    for (;;) {
        got = recv(server->fd, &order, sizeof(order), 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got != (ssize_t)sizeof(order))
            return got == 0;
        if (!is_order(server, &order) || !carry_out(server, &order, &answer))
            return 0;
        if (server->job.rank == 0 && send(server->fd, &answer, sizeof(answer), MSG_NOSIGNAL) < 0)
            return 0;
    }
}
