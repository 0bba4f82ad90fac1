/* SPDX-License-Identifier: BSD-3-Clause */
/* The steps of a proof at either end; the header has the rules.
 *
 * Thread: as the header says. */
#include "kit/kit_guest.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/tcp.h"

#define NONCE_OFFSET (KIT_OPENING_BYTES - KIT_MAC_BYTES - KIT_NONCE_BYTES)

enum guest_stage { GUEST_OPENS, GUEST_HEARS, GUEST_SAYS, GUEST_PROVED };

xcclResult_t kit_say(int fd, const uint8_t *data, size_t bytes, size_t *moved)
{
    size_t more = 0;
    xcclResult_t rc = xcclSuccess;

    if (*moved < bytes)
        rc = xccl_tcp_send_some(fd, data + *moved, bytes - *moved, &more);
    *moved += more;
    return rc;
}

xcclResult_t kit_hear(int fd, uint8_t *data, size_t bytes, size_t *moved)
{
    size_t more = 0;
    xcclResult_t rc = xcclSuccess;

    if (*moved < bytes)
        rc = xccl_tcp_recv_some(fd, data + *moved, bytes - *moved, &more);
    *moved += more;
    return rc;
}

/* ---- at the door ---- */

static size_t place_of(const struct kit_doorstep *step, const struct kit_stranger *stranger)
{
    return (size_t)(stranger - step->places);
}

struct kit_proof *kit_guest_proof(struct kit_guests *guests, const struct kit_doorstep *step,
                                  const struct kit_stranger *stranger)
{
    return &guests->proofs[place_of(step, stranger)];
}

/* 1: an opening with this nonce has been here; else it is remembered. */
static int was_seen(struct kit_guests *guests, const uint8_t *nonce)
{
    for (uint32_t i = 0; i < KIT_SEEN && i < guests->seen_count; i++) {
        if (memcmp(guests->seen[i], nonce, KIT_NONCE_BYTES) == 0)
            return 1;
    }
    memcpy(guests->seen[guests->seen_count++ % KIT_SEEN], nonce, KIT_NONCE_BYTES);
    return 0;
}

/* NULL: it is right. */
static const char *opening_fault(struct kit_guests *guests, const struct kit_proof *proof,
                                 char *text, size_t text_bytes)
{
    const struct kit_dialect *dialect = guests->dialect;
    const struct kit_opening *said = &proof->said;

    if (said->magic != dialect->hello_magic)
        return dialect->wrong;
    if (said->version != dialect->version) {
        snprintf(text, text_bytes, "it has wire version %u of the %s plugin, and this end %u: %s",
                 said->version, dialect->plugin, dialect->version,
                 "use the same build of XCCL on all ranks");
        return text;
    }
    if (!kit_proof_is_right(proof, guests->token) || said->hello_bytes < dialect->hello_bytes ||
        said->hello_bytes > dialect->hello_bytes_max)
        return dialect->wrong;
    return was_seen(guests, proof->opening + NONCE_OFFSET) ? "its opening has been here before"
                                                           : NULL;
}

/* Each step: 1: the next one. */
static int guest_opens(struct kit_guests *guests, struct kit_doorstep *step,
                       struct kit_stranger *stranger, uint64_t now_ns)
{
    struct kit_proof *proof = kit_guest_proof(guests, step, stranger);
    const char *fault;
    char text[200];

    if (!kit_doorstep_read(step, stranger, KIT_OPENING_BYTES, now_ns))
        return 0;
    kit_proof_read(proof, stranger->hello);
    fault = opening_fault(guests, proof, text, sizeof(text));
    if (fault) {
        kit_doorstep_drop(step, stranger, fault);
        return 0;
    }
    kit_proof_answer(proof, guests->token, guests->answers[place_of(step, stranger)]);
    stranger->have = stranger->said = 0;
    return 1;
}

static int guest_hears(struct kit_guests *guests, struct kit_doorstep *step,
                       struct kit_stranger *stranger)
{
    if (kit_say(stranger->fd, guests->answers[place_of(step, stranger)], KIT_ANSWER_BYTES,
                &stranger->said) == xcclSuccess)
        return stranger->said == KIT_ANSWER_BYTES;
    kit_doorstep_drop(step, stranger, "it has gone");
    return 0;
}

static int guest_says(struct kit_guests *guests, struct kit_doorstep *step,
                      struct kit_stranger *stranger, uint64_t now_ns)
{
    struct kit_proof *proof = kit_guest_proof(guests, step, stranger);
    size_t bytes = proof->said.hello_bytes;

    if (!kit_doorstep_read(step, stranger, bytes + KIT_SEAL_BYTES, now_ns))
        return 0;
    if (kit_proof_open(proof, stranger->hello, bytes))
        return 1;
    kit_doorstep_drop(step, stranger, guests->dialect->wrong);
    return 0;
}

int kit_guest_prove(struct kit_guests *guests, struct kit_doorstep *step,
                    struct kit_stranger *stranger, uint64_t now_ns)
{
    int next = 1;

    while (next && stranger->fd >= 0 && stranger->stage != GUEST_PROVED) {
        if (stranger->stage == GUEST_OPENS)
            next = guest_opens(guests, step, stranger, now_ns);
        else if (stranger->stage == GUEST_HEARS)
            next = guest_hears(guests, step, stranger);
        else
            next = guest_says(guests, step, stranger, now_ns);
        stranger->stage += (uint32_t)next;
    }
    return stranger->fd >= 0 && stranger->stage == GUEST_PROVED;
}

/* ---- who connects ---- */

static xcclResult_t not_the_peer(const struct kit_dialect *dialect, const struct xccl_addr *peer)
{
    char text[XCCL_ADDR_TEXT_BYTES];

    xccl_addr_format(peer, text);
    return xccl_fail_quietly(xcclRemoteError, 0,
                             "find out who listens there: an address that two hosts have, or "
                             "somebody on the way",
                             "what answers at %s does not know the secret of this connection of "
                             "the %s plugin",
                             text, dialect->plugin);
}

static xcclResult_t closed(const struct kit_dialect *dialect, const struct xccl_addr *peer,
                           xcclResult_t rc)
{
    char text[XCCL_ADDR_TEXT_BYTES];

    if (rc != xcclRemoteError)
        return rc;
    xccl_addr_format(peer, text);
    return xccl_fail_quietly(rc, 0, "see the first error of that process",
                             "%s closed a connection of the %s plugin before it had proved itself",
                             text, dialect->plugin);
}

static xcclResult_t stage_move(struct kit_greeting *greeting, int fd, const struct xccl_addr *peer,
                               const struct kit_intro *intro, int *next_out)
{
    struct kit_proof *proof = &greeting->proof;
    const size_t hello_bytes = intro->hello_bytes + KIT_SEAL_BYTES;
    xcclResult_t rc;

    switch (greeting->stage) {
    case KIT_OPENING:
        rc = kit_say(fd, proof->opening, KIT_OPENING_BYTES, &greeting->said);
        *next_out = greeting->said == KIT_OPENING_BYTES;
        return closed(intro->dialect, peer, rc);
    case KIT_ANSWER:
        rc = kit_hear(fd, greeting->answer, KIT_ANSWER_BYTES, &greeting->heard);
        if (rc != xcclSuccess || greeting->heard < KIT_ANSWER_BYTES)
            return closed(intro->dialect, peer, rc);
        if (!kit_proof_hear(proof, intro->token, greeting->answer))
            return not_the_peer(intro->dialect, peer);
        kit_proof_seal(proof, intro->hello, intro->hello_bytes);
        *next_out = 1;
        return xcclSuccess;
    default:
        rc = kit_say(fd, intro->hello, hello_bytes, &greeting->said);
        *next_out = greeting->said == hello_bytes;
        return rc;
    }
}

xcclResult_t kit_prove(struct kit_greeting *greeting, int fd, const struct xccl_addr *peer,
                       const struct kit_intro *intro, int *done_out)
{
    xcclResult_t rc = xcclSuccess;
    int next = 1;

    if (greeting->stage == KIT_BEGIN) {
        struct kit_opening opening = {.magic = intro->dialect->hello_magic,
                                      .version = intro->dialect->version,
                                      .hello_bytes = (uint32_t)intro->hello_bytes};

        memcpy(opening.context, intro->context, sizeof(opening.context));
        kit_proof_begin(&greeting->proof, intro->token, &opening);
        greeting->stage = KIT_OPENING;
    }
    while (next && rc == xcclSuccess && greeting->stage != KIT_DONE) {
        next = 0;
        rc = stage_move(greeting, fd, peer, intro, &next);
        if (next) {
            greeting->stage++;
            greeting->said = greeting->heard = 0;
        }
    }
    *done_out = rc == xcclSuccess && greeting->stage == KIT_DONE;
    return rc;
}
