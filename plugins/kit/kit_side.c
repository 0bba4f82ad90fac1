/* SPDX-License-Identifier: BSD-3-Clause */
/* Notes of a side channel, and its end; the header has the rules.
 *
 * Thread: as the header says. */
#include "kit/kit_side.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "base/tcp.h"

void kit_side_close(struct kit_side *side)
{
    xccl_tcp_close(&side->fd);
    kit_proof_wipe(&side->proof);
}

int kit_side_keep_err(struct kit_side *side)
{
    if (errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ENOMEM)
        return 0;
    if (side->err == 0 && errno != ECONNRESET && errno != EPIPE)
        side->err = errno;
    return 1;
}

void kit_side_read(struct kit_side *side, uint8_t *in, size_t room)
{
    ssize_t got;

    if (side->has_ended || side->in_bytes == room)
        return;
    got = recv(side->fd, in + side->in_bytes, room - side->in_bytes, MSG_DONTWAIT);
    if (got > 0)
        side->in_bytes += (uint32_t)got;
    else
        side->has_ended = got == 0 || kit_side_keep_err(side);
}

void kit_side_write(struct kit_side *side, uint8_t *out)
{
    ssize_t sent;

    if (side->out_bytes == 0 || side->fd < 0)
        return;
    sent = send(side->fd, out, side->out_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
        (void)kit_side_keep_err(side); /* the end is seen where it is read */
        return;
    }
    side->out_bytes -= (uint32_t)sent;
    memmove(out, out + sent, side->out_bytes);
}

int kit_side_note(struct kit_side *side, uint8_t *in, size_t note_bytes)
{
    if (side->in_bytes < KIT_SEALED(note_bytes))
        return 0;
    if (!side->is_open)
        side->is_open = kit_proof_open(&side->proof, in, note_bytes) ? 1 : -1;
    return side->is_open;
}

void kit_side_next(struct kit_side *side, uint8_t *in, size_t note_bytes)
{
    side->in_bytes -= (uint32_t)KIT_SEALED(note_bytes);
    memmove(in, in + KIT_SEALED(note_bytes), side->in_bytes);
    side->is_open = 0;
}

int kit_side_peek(const struct kit_side *side, uint8_t *bytes, size_t note_bytes)
{
    struct kit_proof proof = side->proof;
    int is_right = kit_proof_open(&proof, bytes, note_bytes);

    kit_proof_wipe(&proof);
    return is_right;
}

void kit_side_put(struct kit_side *side, uint8_t *out, size_t note_bytes)
{
    kit_proof_seal(&side->proof, out + side->out_bytes, note_bytes);
    side->out_bytes += (uint32_t)KIT_SEALED(note_bytes);
}

int kit_side_has_place(struct kit_side *side, uint8_t *out, size_t room, size_t note_bytes)
{
    if (side->out_bytes + KIT_SEALED(note_bytes) > room)
        kit_side_write(side, out);
    return side->out_bytes + KIT_SEALED(note_bytes) <= room;
}

int kit_side_is_dark(int err)
{
    return err == ETIMEDOUT || err == EHOSTUNREACH || err == ENETUNREACH || err == ENETDOWN;
}

void kit_side_probe(int fd, int idle_s, int interval_s, int count)
{
    const struct {
        int level, name, value;
    } options[] = {{SOL_SOCKET, SO_KEEPALIVE, 1},
                   {IPPROTO_TCP, TCP_KEEPIDLE, idle_s},
                   {IPPROTO_TCP, TCP_KEEPINTVL, interval_s},
                   {IPPROTO_TCP, TCP_KEEPCNT, count}};

    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(int));
}
