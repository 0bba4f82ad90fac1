/* SPDX-License-Identifier: BSD-3-Clause */
/* Sockets whose name the kernel has chosen, and that are no files: a name travels as hex digits.
 *
 * Thread: any. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "perf/perf_vs_mpi.h"

void xccl_perf_mpi_name(const struct sockaddr_un *addr, size_t bytes,
                        char name_out[XCCL_PERF_MPI_NAME_BYTES])
{
    size_t at = 0;

    memset(name_out, 0, XCCL_PERF_MPI_NAME_BYTES);
    for (size_t i = 0; i < bytes - sizeof(addr->sun_family) && at + 2 < XCCL_PERF_MPI_NAME_BYTES;
         i++)
        at += (size_t)snprintf(name_out + at, XCCL_PERF_MPI_NAME_BYTES - at, "%02x",
                               (unsigned)(unsigned char)addr->sun_path[i]);
}

int xccl_perf_mpi_connect(const char *name, const struct xccl_perf_mpi_hello *hello)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    socklen_t used = sizeof(addr.sun_family);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), error = 0;

    for (size_t i = 0; i < sizeof(addr.sun_path) && name[2 * i] && name[2 * i + 1]; i++) {
        char digits[3] = {name[2 * i], name[2 * i + 1], '\0'};

        addr.sun_path[i] = (char)strtoul(digits, NULL, 16);
        used++;
    }
    if (fd < 0)
        return -1;
    if (connect(fd, (struct sockaddr *)&addr, used) == 0 &&
        send(fd, hello, sizeof(*hello), MSG_NOSIGNAL) == (ssize_t)sizeof(*hello))
        return fd;
    error = errno;
    close(fd);
    errno = error;
    return -1;
}
