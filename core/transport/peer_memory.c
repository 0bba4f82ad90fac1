/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads of other processes' memory by process_vm_readv. A container without the permission, or with
 * process numbers of its own, fails the trial, and then everything goes through slots. Thread: any.
 */
#include "transport/peer_memory.h"

#include <errno.h>
#include <pthread.h>
#include <sys/uio.h>

#include "base/error.h"
#include "base/os.h"

static uint64_t word;

static void draw_word(void)
{
    if (xccl_os_random(&word, sizeof word))
        word = 0;
}

struct xccl_peer_mark xccl_peer_mark(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, draw_word);
    return (struct xccl_peer_mark){.at = word ? (uint64_t)(uintptr_t)&word : 0, .word = word};
}

int xccl_peer_read(int pid, void *to, uint64_t from, size_t bytes)
{
    struct iovec own = {to, bytes}, other = {(void *)(uintptr_t)from, bytes};
    ssize_t got = process_vm_readv(pid, &own, 1, &other, 1, 0);

    if (got >= 0 && (size_t)got < bytes)
        errno = EFAULT; /* memory ends within */
    return got >= 0 && (size_t)got == bytes;
}

xcclResult_t xccl_peer_try(int pid, const struct xccl_peer_mark *mark)
{
    uint64_t seen = 0;

    if (!mark->at)
        return xccl_fail_quietly(xcclSystemError, 0,
                                 "see XCCL_DIRECT and XCCL_PEER_MEMORY of that process",
                                 "the process does not allow others to read its memory");
    if (!xccl_peer_read(pid, &seen, mark->at, sizeof seen))
        return xccl_fail_quietly(xcclSystemError, errno,
                                 "allow it (kernel.yama.ptrace_scope=0; in a container "
                                 "--cap-add=SYS_PTRACE and one PID namespace)",
                                 "process %d cannot be read", pid);
    if (seen != mark->word)
        return xccl_fail_quietly(xcclSystemError, 0, "give all containers one PID namespace",
                                 "process id %d belongs to a different process here", pid);
    return xcclSuccess;
}
