/* SPDX-License-Identifier: BSD-3-Clause */
/* A root seen by its guests: who is refused, and, of a root at an address that communicators share
 * one after the other, for whom it stays.
 * Thread: the test's, and the service thread. */
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "boot_world.h"
#include "bootstrap/root_int.h"
#include "root_guest.h"

static struct xccl_job job_of_new_id(void)
{
    struct xccl_job job;
    xcclUniqueId id;

    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    xccl_param_reset();
    XT_OK(xccl_unique_id_create(&id));
    XT_OK(xccl_job_init(&id, 1, 0, 2, &job));
    return job;
}

XT_TEST(the_root_refuses_ranks_out_of_range_other_versions_and_settings)
{
    struct xccl_job job = job_of_new_id();
    struct xccl_conn *first = root_conn(&job, 9, 2), *second;
    struct xccl_boot_error error;

    root_report(first, &job);
    root_error(first, &error);
    XT_CHECK_HAS(error.text, "rank 9 on host evil is out of range");
    second = root_conn(&job, 0, 2);
    root_report(second, &job);
    root_error(second, &error); /* who comes later is told the same */
    XT_CHECK_HAS(error.text, "rank 9 on host evil is out of range");

    job = job_of_new_id();
    first = root_conn(&job, 0, 2);
    second = root_conn_of(&job, 1, 2, XCCL_VERSION_CODE + 100, xccl_param_job_hash());
    root_report(first, &job);
    root_report(second, &job);
    root_error(first, &error);
    XT_CHECK_HAS(error.text, "same version");
    root_error(second, &error);
    XT_CHECK_HAS(error.text, "runs xccl 0.");

    job = job_of_new_id();
    first = root_conn(&job, 0, 2);
    second = root_conn_of(&job, 1, 2, XCCL_VERSION_CODE, xccl_param_job_hash() + 1);
    root_report(first, &job);
    root_report(second, &job);
    root_error(first, &error);
    XT_CHECK_HAS(error.text, "set these alike everywhere");
    root_error(second, &error);
    XT_CHECK_HAS(error.text, "XCCL_ALGO=none");
}

/* --- the root at a given address, which communicators share one after the other --- */

static struct xccl_job shared_job(uint8_t number)
{
    struct xccl_job job = {.meeting_count = 1,
                           .comm_id = {number},
                           .secret = {6},
                           .own = {.root_count = 1, .owns_root = 1, .secret = {6}}};

    xccl_param_reset();
    XT_OK(xccl_addr_parse("127.0.0.1:1", 0, &job.own.roots[0]));
    xccl_addr_set_port(&job.own.roots[0], 0);
    job.own.comm_id[0] = number;
    return job;
}

static struct xccl_root *shared_root(struct xccl_job *job)
{
    struct xccl_root *root;

    XT_OK(xccl_root_get_at(&job->own.roots[0], job->own.secret, &root));
    job->own.roots[0] = root->addr;
    return root;
}

/* Waits until the root has taken the connection: it gives a sign of life. */
static void await_root(struct xccl_conn *conn)
{
    struct xccl_limit limit = xccl_limit_ms(30000, NULL);
    uint8_t body[XCCL_BOOT_ERROR_MAX];
    uint16_t type;
    size_t bytes;

    XT_OK(conn_recv(conn, &type, body, sizeof(body), &bytes, &limit));
    XT_CHECK_INT(type, XCCL_BOOT_ALIVE);
}

/* 1: nobody listens there. */
static int is_free(const struct xccl_addr *addr)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0), rc;

    XT_CHECK(fd >= 0);
    rc = connect(fd, &addr->sa.any, addr->bytes);
    close(fd);
    return rc != 0;
}

static void await_free(const struct xccl_addr *addr)
{
    double until = xt_seconds() + xt_bound(5, 20);

    while (!is_free(addr) && xt_seconds() < until)
        (void)poll(NULL, 0, 5);
    XT_CHECK(is_free(addr));
}

XT_TEST(a_root_stays_for_a_guest_that_has_not_reported_yet)
{
    struct xccl_limit limit = xccl_limit_ms(30000, NULL);
    struct xccl_job job = shared_job(1);
    struct xccl_root *root = shared_root(&job), *again;
    struct xccl_conn *first = root_conn(&job, 0, 2), *second = root_conn(&job, 1, 2);
    uint8_t body[XCCL_BOOT_ERROR_MAX];
    uint16_t type;
    size_t bytes;

    await_root(first);
    await_root(second);
    xccl_root_put(root);
    root_report(first, &job);
    XT_OK(xccl_root_get_at(&job.own.roots[0], job.own.secret, &again));
    XT_CHECK(again == root);
    root_report(second, &job);
    XT_OK(news_recv(first, &type, body, sizeof(body), &bytes, &limit));
    XT_CHECK_INT(type, XCCL_BOOT_NEXT);
    xccl_conn_close(first);
    xccl_conn_close(second);
    xccl_root_put(again);
    await_free(&job.own.roots[0]);
}

XT_TEST(a_root_leaves_with_its_last_guest)
{
    struct xccl_job job = shared_job(2);
    struct xccl_root *root = shared_root(&job);
    struct xccl_conn *first = root_conn(&job, 0, 2), *second = root_conn(&job, 1, 2);

    await_root(first);
    await_root(second);
    xccl_root_put(root);
    xccl_conn_close(first);
    (void)poll(NULL, 0, 50);
    XT_CHECK(!is_free(&job.own.roots[0]));
    xccl_conn_close(second);
    await_free(&job.own.roots[0]);
}

/* --- a root whose process has no memory left --- */

struct poor {
    struct xccl_job job;
    _Atomic int ready, over; /* release when set, acquire when looked at */
};

static size_t mapped_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long pages = 0;

    XT_CHECK(file != NULL);
    XT_CHECK_INT(fscanf(file, "%lu", &pages), 1);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void limit_memory(size_t bytes)
{
    struct rlimit limit;

    XT_CHECK_INT(getrlimit(RLIMIT_AS, &limit), 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    XT_CHECK_INT(setrlimit(RLIMIT_AS, &limit), 0);
}

/* Takes all memory that the process may still have, down to small pieces. */
static void take_all_memory(void)
{
    limit_memory(mapped_bytes() + (4u << 20));
    for (size_t bytes = 1u << 20; bytes >= 16; bytes /= 2)
        while (malloc(bytes))
            continue;
}

static void wait_for(_Atomic int *word, int value)
{
    while (atomic_load_explicit(word, memory_order_acquire) < value)
        (void)poll(NULL, 0, 1);
}

/* Rank 3 of the processes has the root alone; the other three are the job. */
static void poor_main(int rank, int nranks, void *arg)
{
    struct poor *poor = arg;
    struct xccl_limit limit = xccl_limit_ms(30000, NULL);
    struct xccl_bootstrap *boot;
    double began;

    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    xccl_param_reset();
    if (rank == nranks - 1) {
        struct xccl_root *root;

        XT_OK(xccl_root_create(&poor->job.own.roots[0], poor->job.own.secret, &root));
        take_all_memory();
        atomic_store_explicit(&poor->ready, 1, memory_order_release);
        wait_for(&poor->over, nranks - 1);
        limit_memory(SIZE_MAX);
        xccl_root_destroy(root);
        return;
    }
    wait_for(&poor->ready, 1);
    began = xt_seconds();
    XT_CHECK_RC(xccl_bootstrap_open(&poor->job, rank, nranks - 1, &limit, &boot), xcclRemoteError);
    XT_CHECK_HAS(xccl_error_text(), "the process with the root (host ");
    XT_CHECK_HAS(xccl_error_text(), "no memory for one more connection");
    XT_CHECK(xt_seconds() - began < xt_bound(5, 12));
    atomic_fetch_add_explicit(&poor->over, 1, memory_order_release);
}

XT_TEST_DEADLINE(a_root_without_memory_says_so_to_all_ranks, 60)
{
    struct poor *poor = mmap(NULL, sizeof(*poor), PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (XT_SANITIZED)
        XT_SKIP("a sanitizer takes address space as it likes");
    XT_CHECK(poor != MAP_FAILED);
    poor->job = shared_job(3);
    poor->job.own.owns_root = 0;
    xt_mp_run(4, poor_main, poor);
    munmap(poor, sizeof(*poor));
}
