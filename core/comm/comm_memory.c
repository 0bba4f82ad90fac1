/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that the library hands out, and buffers that a program registers. Both are lists with an
 * entry for each, so that a wrong address is found and refused. Memory lies in the arena, where
 * ranks of the same host read it in place; private memory will do where there is none. On host
 * memory registration changes nothing: it is checked, noted, and forgotten with the communicator.
 *
 * Thread: memory: any, there is a lock; registered buffers: the crank's holder. */
#include "comm/comm_memory.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fork.h"
#include "transport/arena.h"

struct memory {
    void *base;
    size_t bytes;
    int is_private; /* 1: not in the arena */
    struct memory *next;
};

/* A child of fork() keeps the list, whole at any time, for what it frees of its parent's memory. */
static struct xccl_lock memory_lock = XCCL_LOCK(NULL);
static struct memory *memory_list;

static void add_memory(struct memory *memory)
{
    xccl_lock_take(&memory_lock);
    memory->next = memory_list;
    atomic_thread_fence(memory_order_release); /* a child finds the rest of the list */
    memory_list = memory;
    xccl_lock_give(&memory_lock);
}

/* Takes it off the list; NULL: it is not there. */
static struct memory *take_memory(const void *base)
{
    struct memory *found = NULL;

    xccl_lock_take(&memory_lock);
    for (struct memory **at = &memory_list; *at; at = &(*at)->next) {
        if ((*at)->base != base)
            continue;
        found = *at;
        *at = found->next;
        break;
    }
    xccl_lock_give(&memory_lock);
    return found;
}

xcclResult_t xccl_user_memory_create(size_t bytes, void **memory_out)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole;
    struct memory *memory;

    if (__builtin_add_overflow(bytes, page - 1, &whole))
        return xccl_fail(xcclInvalidArgument, 0, NULL, "an allocation of %zu bytes is too large",
                         bytes);
    whole &= ~(page - 1);
    memory = xccl_calloc(1, sizeof *memory);
    if (!memory)
        return xcclSystemError;
    memory->bytes = whole;
    memory->base = xccl_arena_take(whole);
    memory->is_private = !memory->base;
    if (memory->is_private)
        memory->base = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                            0);
    if (memory->base == MAP_FAILED) {
        int err = errno;

        xccl_free(memory);
        return xccl_fail(xcclSystemError, err, "check ulimit -v and the free memory of this host",
                         "cannot allocate %zu bytes of memory", whole);
    }
    add_memory(memory);
    *memory_out = memory->base;
    return xcclSuccess;
}

int xccl_user_memory_destroy(const void *base)
{
    struct memory *memory = take_memory(base);

    if (!memory)
        return 0;
    if (memory->is_private)
        (void)munmap(memory->base, memory->bytes);
    else
        (void)xccl_arena_give(memory->base); /* in a child of fork() it is the parent's */
    xccl_free(memory);
    return 1;
}

/* --- registered buffers --- */

struct xccl_registered {
    void *buffer;
    size_t bytes;
    struct xccl_registered *next;
};

xcclResult_t xccl_comm_register(struct xcclComm *comm, void *buffer, size_t bytes,
                                struct xccl_registered **registered_out)
{
    struct xccl_registered *registered = xccl_calloc(1, sizeof *registered);

    if (!registered)
        return xcclSystemError;
    registered->buffer = buffer;
    registered->bytes = bytes;
    registered->next = comm->registered;
    comm->registered = registered;
    *registered_out = registered;
    return xcclSuccess;
}

int xccl_comm_deregister(struct xcclComm *comm, const void *registered)
{
    for (struct xccl_registered **at = &comm->registered; *at; at = &(*at)->next) {
        struct xccl_registered *found = *at;

        if (found != registered)
            continue;
        *at = found->next;
        xccl_free(found);
        return 1;
    }
    return 0;
}

void xccl_comm_registered_drop(struct xcclComm *comm)
{
    while (comm->registered)
        (void)xccl_comm_deregister(comm, comm->registered);
}
