/* SPDX-License-Identifier: BSD-3-Clause */
/* The private memory of another process of the host. A number may have been given to a new process
 * meanwhile, or stand for one that does not want to be read: what is read is that of the process
 * that is meant, whole or not at all. */
#include "transport/peer_memory.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "xt.h"

XT_TEST(only_the_process_that_is_meant_is_read)
{
    struct xccl_peer_mark mark = xccl_peer_mark(), wrong = mark, none = {0};
    static char both[2 * 4096];
    char *pages = mmap(NULL, sizeof both, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                       0);
    uint64_t seen = 0;
    pid_t child;

    XT_CHECK(pages != MAP_FAILED && mprotect(pages + 4096, 4096, PROT_NONE) == 0);
    child = fork();

    if (child == 0)
        pause();
    XT_CHECK(child > 0);
    wrong.word ^= 1;
    if (xccl_peer_try(child, &mark) != xcclSuccess) { /* this system does not allow it */
        XT_CHECK_HAS(xccl_error_text(), "ptrace_scope");
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        XT_SKIP("processes may not read each other's memory here");
    }
    XT_CHECK_RC(xccl_peer_try(child, &wrong), xcclSystemError);
    XT_CHECK_HAS(xccl_error_text(), "belongs to a different process here");
    XT_CHECK_RC(xccl_peer_try(child, &none), xcclSystemError);
    XT_CHECK_HAS(xccl_error_text(), "does not allow others to read its memory");
    XT_CHECK(xccl_peer_read(child, &seen, mark.at, sizeof seen));
    XT_CHECK(seen == mark.word);
    XT_CHECK(!xccl_peer_read(child, &seen, 8, sizeof seen)); /* nothing lies there */
    errno = 0;
    XT_CHECK(!xccl_peer_read(child, both, (uint64_t)(uintptr_t)pages, sizeof both));
    XT_CHECK_INT(errno, EFAULT); /* half of it was read */
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    XT_CHECK_RC(xccl_peer_try(child, &mark), xcclSystemError);
    XT_CHECK_HAS(xccl_error_text(), "cannot be read: No such process");
}
