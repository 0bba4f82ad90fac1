/* SPDX-License-Identifier: BSD-3-Clause */
/* Both ends of a connection of any plugin in this process, opened through the loader. What fails
 * fails the test.
 *
 * Thread: the main one. */
#ifndef PATH_ENDS_H
#define PATH_ENDS_H

#include <stdint.h>

#include "plugin/net_plugin.h"

struct path_ends {
    struct xccl_net *net;
    int dev;
    void *send, *recv;
    xcclNetMem_t send_mem, recv_mem;
};

/* An instance of the plugin item, which the caller closes, and its device of that name (NULL: the
 * first). */
void path_ends_open(struct path_ends *ends, const char *item, const char *device);
/* net and dev are set. */
void path_ends_connect(struct path_ends *ends);
/* Makes the descriptors to sleep on, where the plugin has them. */
void path_ends_wait_fds(struct path_ends *ends);
/* Three messages that carry the number, up to 256 KiB. */
void path_ends_transfer(struct path_ends *ends, uint64_t number);
void path_ends_close(struct path_ends *ends, int sender_first);

/* What this process has in memory. */
long path_rss_bytes(void);

#endif
