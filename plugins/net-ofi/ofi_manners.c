/* SPDX-License-Identifier: BSD-3-Clause */
/* What libfabric does to the process that belongs to the host program, undone (rule 13):
 *
 * - Libraries below it (libpsm2, libpsm_infinipath) and its shm provider install handlers for
 *   signals that end the process (libfabric #5520, #7771). What the host had is put back.
 * - Its sockets, pipes and event descriptors are inherited by programs that the host starts, which
 *   would keep connections open after the host's death. They are made close-on-exec: those that
 *   appear while an object is opened, and connections by their addresses.
 *
 * Another thread's descriptor that appears in between becomes close-on-exec as well; that does it
 * no harm unless it was meant for a program that is just being started without posix_spawn's
 * actions. Thread: any. */
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "ofi_int.h"

static const int deadly[OFI_SIGNALS] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGINT, SIGTERM};

static void close_new_on_exec(const struct kit_fds *before)
{
    for (int fd = kit_fds_next(-1); fd >= 0; fd = kit_fds_next(fd)) {
        int flags = fcntl(fd, F_GETFD);

        if (!kit_fds_has(before, fd) && !(flags & FD_CLOEXEC))
            (void)fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
    }
}

void ofi_manners_begin(struct ofi_manners *manners)
{
    memset(manners->signals, 0, sizeof(manners->signals));
    for (int i = 0; i < OFI_SIGNALS; i++)
        (void)sigaction(deadly[i], NULL, &manners->signals[i]);
    kit_fds_note(&manners->fds);
}

void ofi_manners_end(struct ofi_manners *manners)
{
    for (int i = 0; i < OFI_SIGNALS; i++) {
        struct sigaction now = manners->signals[i];

        (void)sigaction(deadly[i], NULL, &now);
        if (now.sa_handler != manners->signals[i].sa_handler)
            (void)sigaction(deadly[i], &manners->signals[i], NULL);
    }
    close_new_on_exec(&manners->fds);
}

/* 1: the same family, host and port. */
static int same_address(const struct sockaddr_storage *a, const uint8_t *name)
{
    struct sockaddr_storage b;

    memcpy(&b, name, sizeof(b));
    if (a->ss_family != b.ss_family)
        return 0;
    if (a->ss_family == AF_INET)
        return memcmp(a, &b, offsetof(struct sockaddr_in, sin_zero)) == 0;
    if (a->ss_family != AF_INET6)
        return 0;
    return memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
                  &((const struct sockaddr_in6 *)&b)->sin6_addr, sizeof(struct in6_addr)) == 0 &&
           ((const struct sockaddr_in6 *)a)->sin6_port == ((struct sockaddr_in6 *)&b)->sin6_port;
}

/* What is a connection between two endpoints here: its own end has one of the names. */
static int is_between(int fd, const uint8_t *own, const uint8_t *peer)
{
    struct sockaddr_storage addr = {.ss_family = AF_UNSPEC};
    socklen_t bytes = sizeof(addr);

    if (getsockname(fd, (struct sockaddr *)&addr, &bytes) == 0 && same_address(&addr, own))
        return 1;
    bytes = sizeof(addr);
    return getpeername(fd, (struct sockaddr *)&addr, &bytes) == 0 && same_address(&addr, peer);
}

int ofi_manners_sockets(const uint8_t *own, const uint8_t *peer)
{
    int connected = -1;

    for (int fd = kit_fds_next(-1); fd >= 0; fd = kit_fds_next(fd)) {
        int flags = fcntl(fd, F_GETFD), listens = 0;
        socklen_t bytes = sizeof(listens);

        if (!is_between(fd, own, peer))
            continue;
        (void)fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) == 0 && !listens)
            connected = fd;
    }
    return connected;
}

void ofi_manners_cut(const uint8_t *own, const uint8_t *peer)
{
    for (int fd = kit_fds_next(-1); fd >= 0; fd = kit_fds_next(fd)) {
        if (is_between(fd, own, peer))
            (void)shutdown(fd, SHUT_RDWR);
    }
}
