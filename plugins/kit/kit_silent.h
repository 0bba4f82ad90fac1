/* SPDX-License-Identifier: BSD-3-Clause */
/* Silent connections at ports where a library below a plugin listens (libfabric, UCX). The library
 * accepts everybody and waits for ever, so each stranger who connects and says nothing costs the
 * process a descriptor. They are cut as at our own ports (kit_doorstep.h): after 5 s of silence, or
 * when more than 64 are silent, the longest silent first.
 *
 * A connection is cut by shutdown, so its library finds an end of the stream and closes it. One
 * that has sent 8 bytes is the library's to judge.
 * Thread: any, also several at a time. */
#ifndef KIT_SILENT_H
#define KIT_SILENT_H

#include <stddef.h>
#include <stdint.h>

#include "kit/kit_fds.h"
#include "xccl_net.h"

#define KIT_SILENT_PORTS 8 /* of a library's endpoint */
#define KIT_SILENT_MAX   64 /* connections at once, of all ports */

/* All zero at first. */
struct kit_silent {
    int count;
    uint16_t ports[KIT_SILENT_PORTS]; /* in host order */
};

/* Begins to watch the ports of an endpoint that has just been opened: those where the process did
 * not listen before, and whose number, in network order, is in the endpoint's address. */
void kit_silent_watch(struct kit_silent *crowd, const struct kit_fds *before, const void *address,
                      size_t bytes);
/* Ends it. Before the endpoint closes; fine on one that watches nothing. */
void kit_silent_forget(struct kit_silent *crowd);

/* Cuts whom it is time to cut, at most five times a second, or fifty while there is a crowd; else
 * reads the clock alone. Says so in the log; NULL: there is none. Gives how many were cut. */
int kit_silent_look(xcclNetLogger_t log);

#endif
