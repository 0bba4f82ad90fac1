/* SPDX-License-Identifier: BSD-3-Clause */
/* Sleeping in io_uring, by the three system calls themselves: each watched descriptor is a poll
 * request that ends when it fires; new requests, the wait and its time limit are one
 * io_uring_enter. Needs Linux 5.11 (EXT_ARG) and a system that lets io_uring through.
 *
 * A poll request holds its file open, so forget asks for its end and waits until the kernel says
 * that it is over: a socket that is closed afterwards is really closed.
 *
 * Thread: the helper's. The rings are shared with the kernel: each side writes one index of each
 * ring with release and reads the other's with acquire. */
#include "sock_wait.h"

#include <endian.h>
#include <errno.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/tcp.h"

#define ENTRIES     64 /* of the submission ring; more go in by several system calls */
#define COMPLETIONS 1024 /* more wait in the kernel */
#define FORGETS_MAX 1000 /* looks for the end of a request */
#define USER_FORGET 1 /* user_data of a removal; a watch's is its address */

struct uring_wait {
    struct sock_wait base;
    int fd;
    char *ring; /* both rings */
    size_t ring_bytes, entries_bytes;
    struct io_uring_sqe *entries;
    struct io_uring_cqe *completions;
    _Atomic uint32_t *sq_head, *sq_tail, *cq_head, *cq_tail;
    uint32_t *sq_array;
    uint32_t sq_mask, sq_count, cq_mask;
    uint32_t unsubmitted;
    struct sock_watch wake; /* of wake_fd */
    struct sock_watch *first, *last; /* fired, not reported yet */
};

static void uring_destroy(struct sock_wait *wait_)
{
    struct uring_wait *wait = (struct uring_wait *)wait_;

    if (wait->entries)
        munmap(wait->entries, wait->entries_bytes);
    if (wait->ring)
        munmap(wait->ring, wait->ring_bytes);
    xccl_tcp_close(&wait->fd);
    xccl_tcp_close(&wait->base.wake_fd);
    xccl_free(wait);
}

static void *map_at(const struct uring_wait *wait, size_t bytes, uint64_t offset)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, wait->fd,
                    (off_t)offset);

    return at == MAP_FAILED ? NULL : at;
}

static xcclResult_t rings_map(struct uring_wait *wait, const struct io_uring_params *params)
{
    const struct io_sqring_offsets *sq = &params->sq_off;
    const struct io_cqring_offsets *cq = &params->cq_off;
    size_t sq_bytes = sq->array + params->sq_entries * sizeof(uint32_t);
    size_t cq_bytes = cq->cqes + params->cq_entries * sizeof(struct io_uring_cqe);

    wait->ring_bytes = sq_bytes > cq_bytes ? sq_bytes : cq_bytes;
    wait->entries_bytes = params->sq_entries * sizeof(struct io_uring_sqe);
    wait->ring = map_at(wait, wait->ring_bytes, IORING_OFF_SQ_RING);
    wait->entries = map_at(wait, wait->entries_bytes, IORING_OFF_SQES);
    if (!wait->ring || !wait->entries)
        return xccl_fail_quietly(xcclSystemError, errno, NULL, "cannot map the rings of io_uring");
    wait->sq_head = (void *)(wait->ring + sq->head);
    wait->sq_tail = (void *)(wait->ring + sq->tail);
    wait->sq_array = (void *)(wait->ring + sq->array);
    memcpy(&wait->sq_mask, wait->ring + sq->ring_mask, sizeof(wait->sq_mask));
    wait->sq_count = params->sq_entries;
    wait->cq_head = (void *)(wait->ring + cq->head);
    wait->cq_tail = (void *)(wait->ring + cq->tail);
    memcpy(&wait->cq_mask, wait->ring + cq->ring_mask, sizeof(wait->cq_mask));
    wait->completions = (void *)(wait->ring + cq->cqes);
    return xcclSuccess;
}

static xcclResult_t uring_create(struct sock_wait **wait_out)
{
    const uint32_t needed = IORING_FEAT_SINGLE_MMAP | IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG;
    struct io_uring_params params = {.flags = IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE,
                                     .cq_entries = COMPLETIONS};
    struct uring_wait *wait = xccl_calloc(1, sizeof(*wait));
    xcclResult_t rc;

    if (!wait)
        return xcclSystemError;
    wait->fd = -1;
    rc = sock_wait_open(&wait->base, &sock_wait_uring);
    if (rc != xcclSuccess)
        goto err_wait;
    wait->wake.fd = wait->base.wake_fd;
    /* Its descriptor is close-on-exec. */
    wait->fd = (int)syscall(SYS_io_uring_setup, ENTRIES, &params);
    if (wait->fd < 0) {
        rc = xccl_fail_quietly(xcclSystemError, errno, NULL, "io_uring is not available");
        goto err_wait;
    }
    if ((params.features & needed) != needed) {
        rc = xccl_fail_quietly(xcclSystemError, 0, NULL, "this kernel's io_uring is too old");
        goto err_wait;
    }
    rc = rings_map(wait, &params);
    if (rc != xcclSuccess)
        goto err_wait;
    *wait_out = &wait->base;
    return xcclSuccess;
err_wait:
    uring_destroy(&wait->base);
    return rc;
}

/* Hands over what is prepared and waits for at least so many completions, at most timeout_ms. An
 * interrupted or refused call is simply made again by the next one. */
static void enter(struct uring_wait *wait, uint32_t at_least, int timeout_ms)
{
    struct timespec time = {.tv_sec = timeout_ms / 1000,
                            .tv_nsec = (long)(timeout_ms % 1000) * 1000000};
    struct io_uring_getevents_arg arg = {.ts = timeout_ms < 0 ? 0 : (uintptr_t)&time};
    long submitted = syscall(SYS_io_uring_enter, wait->fd, wait->unsubmitted, at_least,
                             IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &arg, sizeof(arg));

    if (submitted > 0)
        wait->unsubmitted -= (uint32_t)submitted;
}

/* The next place of the submission ring, or NULL. */
static struct io_uring_sqe *entry_take(struct uring_wait *wait)
{
    /* Only this thread moves the tail. */
    uint32_t tail = atomic_load_explicit(wait->sq_tail, memory_order_relaxed);
    struct io_uring_sqe *entry = &wait->entries[tail & wait->sq_mask];

    /* Acquire: pairs with the kernel's release once it has read an entry. */
    if (tail - atomic_load_explicit(wait->sq_head, memory_order_acquire) == wait->sq_count)
        enter(wait, 0, 0);
    if (tail - atomic_load_explicit(wait->sq_head, memory_order_acquire) == wait->sq_count)
        return NULL;
    memset(entry, 0, sizeof(*entry));
    return entry;
}

static void entry_give(struct uring_wait *wait)
{
    uint32_t tail = atomic_load_explicit(wait->sq_tail, memory_order_relaxed);

    wait->sq_array[tail & wait->sq_mask] = tail & wait->sq_mask;
    /* Release: the kernel sees the entry before the tail that covers it. */
    atomic_store_explicit(wait->sq_tail, tail + 1, memory_order_release);
    wait->unsubmitted++;
}

/* The kernel reads the word in halves that change places on big-endian machines. */
static uint32_t poll_word(uint32_t events)
{
    return __BYTE_ORDER == __BIG_ENDIAN ? events << 16 | events >> 16 : events;
}

static int uring_watch(struct sock_wait *wait_, struct sock_watch *watch)
{
    struct uring_wait *wait = (struct uring_wait *)wait_;
    struct io_uring_sqe *entry;

    if (watch->set)
        return 1;
    entry = entry_take(wait);
    if (!entry)
        return 0;
    entry->opcode = IORING_OP_POLL_ADD;
    entry->fd = watch->fd;
    entry->poll32_events = poll_word(POLLIN);
    entry->user_data = (uintptr_t)watch;
    entry_give(wait);
    watch->set = 1;
    return 1;
}

/* Moves what has come from the completion ring to the list. */
static void reap(struct uring_wait *wait)
{
    uint32_t head = atomic_load_explicit(wait->cq_head, memory_order_relaxed);
    /* Acquire: pairs with the kernel's release of the tail; the entries before it are there. */
    uint32_t tail = atomic_load_explicit(wait->cq_tail, memory_order_acquire);

    for (; head != tail; head++) {
        uint64_t user = wait->completions[head & wait->cq_mask].user_data;
        struct sock_watch *watch = (void *)(uintptr_t)user;

        if (user == USER_FORGET)
            continue;
        watch->set = 0;
        if (watch->fired)
            continue;
        watch->fired = 1;
        watch->next = NULL;
        *(wait->last ? &wait->last->next : &wait->first) = watch;
        wait->last = watch;
    }
    /* Release: the kernel fills these places again only after they were read. */
    atomic_store_explicit(wait->cq_head, head, memory_order_release);
}

static void list_remove(struct uring_wait *wait, const struct sock_watch *watch)
{
    struct sock_watch *before = NULL, *at = wait->first;

    for (; at && at != watch; at = at->next)
        before = at;
    if (!at)
        return;
    *(before ? &before->next : &wait->first) = at->next;
    if (wait->last == at)
        wait->last = before;
    at->fired = 0;
}

static void uring_forget(struct sock_wait *wait_, struct sock_watch *watch)
{
    struct uring_wait *wait = (struct uring_wait *)wait_;
    struct io_uring_sqe *entry = watch->set ? entry_take(wait) : NULL;

    if (entry) {
        entry->opcode = IORING_OP_POLL_REMOVE;
        entry->fd = -1;
        entry->addr = (uintptr_t)watch;
        entry->user_data = USER_FORGET;
        entry_give(wait);
    }
    /* The removal is done by the call that hands it over; the bound is for a kernel that is not as
     * it should be. */
    for (int i = 0; watch->set && i < FORGETS_MAX; i++) {
        enter(wait, 1, 1);
        reap(wait);
    }
    list_remove(wait, watch);
}

static int uring_sleep(struct sock_wait *wait_, int timeout_ms, struct sock_watch **fired_out,
                       int room)
{
    struct uring_wait *wait = (struct uring_wait *)wait_;
    int fired = 0, at_once;

    at_once = timeout_ms == 0 || wait->first || !uring_watch(wait_, &wait->wake);
    enter(wait, at_once ? 0 : 1, at_once ? 0 : timeout_ms);
    reap(wait);
    while (wait->first && fired < room) {
        struct sock_watch *watch = wait->first;

        wait->first = watch->next;
        if (!wait->first)
            wait->last = NULL;
        watch->fired = 0;
        if (watch == &wait->wake)
            sock_wait_drain(wait_);
        else
            fired_out[fired++] = watch;
    }
    return fired;
}

const struct sock_wait_ops sock_wait_uring = {
    .name = "io_uring",
    .create = uring_create,
    .destroy = uring_destroy,
    .watch = uring_watch,
    .forget = uring_forget,
    .wait = uring_sleep,
};
