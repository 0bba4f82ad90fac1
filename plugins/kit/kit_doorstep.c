/* SPDX-License-Identifier: BSD-3-Clause */
/* How strangers are kept at the door of a network plugin: the header has the rules. Nothing here
 * waits, and a stranger costs a place of a fixed table, never memory of his own.
 *
 * Thread: the listener's. */
#include "kit/kit_doorstep.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/tcp.h"

#define ACCEPTS_MAX 64 /* new connections looked at in one call */
#define SILENT_NS   (5 * XCCL_NS_PER_S)

xcclResult_t kit_doorstep_init(struct kit_doorstep *step, size_t hello_bytes)
{
    for (int i = 0; i < KIT_DOORSTEP_PLACES; i++)
        step->places[i].fd = -1;
    step->hellos = xccl_calloc(KIT_DOORSTEP_PLACES, hello_bytes);
    if (!step->hellos)
        return xcclSystemError;
    for (int i = 0; i < KIT_DOORSTEP_PLACES; i++)
        step->places[i].hello = step->hellos + (size_t)i * hello_bytes;
    return xcclSuccess;
}

void kit_doorstep_fini(struct kit_doorstep *step)
{
    for (int i = 0; step->hellos && i < KIT_DOORSTEP_PLACES; i++)
        xccl_tcp_close(&step->places[i].fd);
    xccl_free(step->hellos);
    step->hellos = NULL;
}

void kit_doorstep_drop(struct kit_doorstep *step, struct kit_stranger *stranger, const char *why)
{
    char peer[XCCL_ADDR_TEXT_BYTES], line[400];

    if (step->log) {
        xccl_addr_format(&stranger->peer, peer);
        snprintf(line, sizeof(line), "dropped a connection of %s on %.31s: %.250s", peer,
                 step->device, why);
        step->log(xcclNetLogDebug, line);
    }
    xccl_tcp_close(&stranger->fd);
}

/* A free place, or the oldest one's of those that have come least far. */
static struct kit_stranger *place_get(struct kit_doorstep *step)
{
    struct kit_stranger *oldest = &step->places[0];

    for (int i = 0; i < KIT_DOORSTEP_PLACES; i++) {
        struct kit_stranger *place = &step->places[i];

        if (place->fd < 0)
            return place;
        if (place->stage < oldest->stage ||
            (place->stage == oldest->stage && place->since_ns < oldest->since_ns))
            oldest = place;
    }
    kit_doorstep_drop(step, oldest, "too many at once have not said who they are");
    return oldest;
}

xcclResult_t kit_doorstep_fill(struct kit_doorstep *step, int listen_fd, uint64_t now_ns)
{
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        struct kit_stranger *place;
        struct xccl_addr peer;
        int fd = -1;
        xcclResult_t rc = xccl_tcp_accept(listen_fd, &fd, &peer);

        if (rc != xcclSuccess || fd < 0)
            return rc;
        place = place_get(step);
        place->fd = fd;
        place->since_ns = now_ns;
        place->peer = peer;
        place->have = place->said = 0;
        place->stage = 0;
        if (step->came)
            step->came(step->user, fd);
    }
    return xcclSuccess;
}

int kit_doorstep_read(struct kit_doorstep *step, struct kit_stranger *stranger, size_t want,
                      uint64_t now_ns)
{
    size_t moved = 0;

    if (stranger->have < want && xccl_tcp_recv_some(stranger->fd, stranger->hello + stranger->have,
                                                    want - stranger->have, &moved) != xcclSuccess) {
        kit_doorstep_drop(step, stranger, "it has gone");
        return 0;
    }
    stranger->have += moved;
    if (stranger->have >= want)
        return 1;
    if (now_ns - stranger->since_ns > SILENT_NS)
        kit_doorstep_drop(step, stranger, "no complete hello in 5 s");
    return 0;
}
