/* SPDX-License-Identifier: BSD-3-Clause */
/* Asks the kernel about one number after the other, which needs no file of /proc: descriptors may
 * be short when this is called. Thread: any. */
#include "kit/kit_fds.h"

#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define GAP_MAX 256 /* closed descriptors in a row, behind which none is looked for */

int kit_fds_next(int fd)
{
    int end = fd + GAP_MAX < KIT_FDS_MAX ? fd + GAP_MAX : KIT_FDS_MAX;

    while (++fd < end) {
        if (fcntl(fd, F_GETFD) >= 0)
            return fd;
    }
    return -1;
}

void kit_fds_note(struct kit_fds *fds_out)
{
    memset(fds_out, 0, sizeof(*fds_out));
    for (int fd = kit_fds_next(-1); fd >= 0; fd = kit_fds_next(fd))
        fds_out->bits[fd / 64] |= 1ull << (fd % 64);
}

int kit_fds_has(const struct kit_fds *fds, int fd)
{
    return (fds->bits[fd / 64] >> (fd % 64) & 1) != 0;
}

int kit_fds_have_room(int count)
{
    int fds[KIT_FDS_ROOM_MAX], have = 0;

    if (count > KIT_FDS_ROOM_MAX)
        count = KIT_FDS_ROOM_MAX;
    while (have < count && (fds[have] = eventfd(0, EFD_CLOEXEC)) >= 0)
        have++;
    for (int i = 0; i < have; i++)
        close(fds[i]);
    return have == count;
}
