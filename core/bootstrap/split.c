/* SPDX-License-Identifier: BSD-3-Clause */
/* A child from its parent, without a root: every rank listens anew and tells all others where, with
 * its color and key, in one all-gather of the parent. Then all of a color know each other and make
 * their ring. Id and secret of the child follow from the parent's, the number of the split and the
 * color, so they never travel.
 *
 * Thread: the rank's own; finish in the service thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/wire.h"
#include "bootstrap/bootstrap_int.h"

#define PART_BYTES (4 + 4 + XCCL_ADDR_WIRE_BYTES)

struct place {
    int rank, key;
};

static void part_encode(int color, int key, const struct xccl_addr *addr, uint8_t *part)
{
    struct xccl_wire wire = xccl_wire_over(part, PART_BYTES);
    uint8_t encoded[XCCL_ADDR_WIRE_BYTES] = {0};

    if (addr)
        xccl_addr_encode(addr, encoded);
    xccl_wire_put_u32(&wire, (uint32_t)color);
    xccl_wire_put_u32(&wire, (uint32_t)key);
    xccl_wire_put(&wire, encoded, sizeof(encoded));
}

static int part_color(const uint8_t *parts, int rank)
{
    struct xccl_wire wire = xccl_wire_over((void *)(uintptr_t)(parts + (size_t)rank * PART_BYTES),
                                           PART_BYTES);

    return (int)xccl_wire_get_u32(&wire);
}

static int part_key(const uint8_t *parts, int rank)
{
    struct xccl_wire wire = xccl_wire_over(
        (void *)(uintptr_t)(parts + (size_t)rank * PART_BYTES + 4), 4);

    return (int)xccl_wire_get_u32(&wire);
}

static int place_order(const void *a, const void *b)
{
    const struct place *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* What only the ranks of this child can know. */
static void child_secret(const struct xccl_bootstrap *boot, int color, struct xccl_job *job)
{
    uint8_t text[8], hash[48];
    struct xccl_wire wire = xccl_wire_over(text, sizeof(text));
    crypto_generichash_state state;

    xccl_wire_put_u32(&wire, boot->splits);
    xccl_wire_put_u32(&wire, (uint32_t)color);
    crypto_generichash_init(&state, boot->job.secret, sizeof(boot->job.secret), sizeof(hash));
    crypto_generichash_update(&state, (const uint8_t *)"xccl 1 split", 12);
    crypto_generichash_update(&state, boot->job.comm_id, sizeof(boot->job.comm_id));
    crypto_generichash_update(&state, text, sizeof(text));
    crypto_generichash_final(&state, hash, sizeof(hash));
    memcpy(job->comm_id, hash, sizeof(job->comm_id));
    memcpy(job->secret, hash + sizeof(job->comm_id), sizeof(job->secret));
    sodium_memzero(hash, sizeof(hash));
    sodium_memzero(&state, sizeof(state));
}

/* Keeps where a rank of the parent runs, for the child, which has another number for it. */
static void note_place(const struct xccl_bootstrap *boot, int rank,
                       struct xccl_rank_place *place_out)
{
    if (!xccl_boot_find_place(boot, rank, place_out))
        place_out->host[0] = '\0';
}

/* The child's rank, number of ranks, and addresses in its order. */
static xcclResult_t child_places(const struct xccl_bootstrap *boot, struct xccl_bootstrap *child)
{
    struct place *places = xccl_calloc((size_t)boot->nranks, sizeof(*places));
    int color = part_color(boot->split_parts, boot->rank), count = 0;

    if (!places)
        return xcclSystemError;
    for (int rank = 0; rank < boot->nranks; rank++) {
        if (part_color(boot->split_parts, rank) == color)
            places[count++] = (struct place){rank, part_key(boot->split_parts, rank)};
    }
    qsort(places, (size_t)count, sizeof(*places), place_order);
    child->nranks = count;
    for (int i = 0; i < count; i++) {
        memcpy(child->addrs + (size_t)i * XCCL_ADDR_WIRE_BYTES,
               boot->split_parts + (size_t)places[i].rank * PART_BYTES + 8, XCCL_ADDR_WIRE_BYTES);
        if (places[i].rank == boot->rank)
            child->rank = i;
    }
    if (count > 0) { /* this rank is one of them */
        note_place(boot, places[(child->rank + 1) % count].rank, &child->ring_places[0]);
        note_place(boot, places[(child->rank + count - 1) % count].rank, &child->ring_places[1]);
    }
    xccl_free(places);
    return xcclSuccess;
}

void xccl_boot_split_finish(struct xccl_bootstrap *boot)
{
    struct xccl_bootstrap *child = boot->child;
    xcclResult_t rc = xcclSuccess;

    if (child) {
        rc = child_places(boot, child);
        if (!rc) {
            if (child->acceptor)
                xccl_acceptor_set_rank(child->acceptor, (uint32_t)child->rank,
                                       (uint32_t)child->nranks);
            xccl_boot_ring_start(child); /* its errors are its own */
        }
    }
    xccl_free(boot->split_parts);
    boot->split_parts = NULL;
    if (rc)
        xccl_boot_raise_own(boot, XCCL_TROUBLE_BOOT_CANNOT_SPLIT, rc);
}

/* The child as far as it can be made before the others are known: it has the parent's size, and as
 * many places, until then. */
static xcclResult_t child_make(struct xccl_bootstrap *boot, int color,
                               const struct xccl_limit *limit, struct xccl_bell *bell)
{
    struct xccl_bootstrap *child;
    xcclResult_t rc = xccl_boot_make(boot->rank, boot->nranks, bell, &child);

    if (rc)
        return rc;
    child_secret(boot, color, &child->job);
    child->has_parent = 1;
    child->op.kind = XCCL_OP_JOIN;
    child->limit = *limit;
    xccl_loop_lock(boot->loop);
    xccl_loop_set_timer(&child->timer, limit->deadline_ns);
    xccl_loop_unlock(boot->loop);
    rc = xccl_boot_listen_as(child, boot);
    if (rc) {
        xccl_bootstrap_close(child);
        return rc;
    }
    xccl_loop_lock(boot->loop); /* the service thread tells it of the parent's failure */
    boot->child = child;
    xccl_loop_unlock(boot->loop);
    return xcclSuccess;
}

xcclResult_t xccl_bootstrap_split_start(struct xccl_bootstrap *boot, int color, int key,
                                        const struct xccl_limit *limit, struct xccl_bell *bell)
{
    xcclResult_t rc;

    if (color < -1)
        return xccl_fail(xcclInvalidArgument, 0, "use a color of 0 or more, or -1 for none",
                         "a split with color %d is not possible", color);
    if (boot->child || boot->split_parts)
        return xccl_fail(xcclInvalidUsage, 0, "complete the other split first",
                         "rank %d splits while the child of another split has not been taken",
                         boot->rank);
    boot->split_parts = xccl_calloc((size_t)boot->nranks, PART_BYTES);
    if (!boot->split_parts)
        return xcclSystemError;
    boot->splits++;
    if (color >= 0) {
        rc = child_make(boot, color, limit, bell);
        if (rc)
            goto err_parts;
    }
    part_encode(color, key, boot->child ? &boot->child->self_addr : NULL,
                boot->split_parts + (size_t)boot->rank * PART_BYTES);
    rc = xccl_boot_steps_start(boot, XCCL_OP_SPLIT, NULL,
                               (struct xccl_boot_parts){boot->split_parts, PART_BYTES}, limit);
    if (!rc)
        return xcclSuccess;
    xccl_boot_split_close(boot);
err_parts:
    boot->splits--; /* the others have not begun it */
    xccl_free(boot->split_parts);
    boot->split_parts = NULL;
    return rc;
}

void xccl_bootstrap_take_child(struct xccl_bootstrap *boot, struct xccl_bootstrap **child_out)
{
    xccl_loop_lock(boot->loop);
    *child_out = boot->child;
    boot->child = NULL;
    xccl_loop_unlock(boot->loop);
}

void xccl_boot_split_close(struct xccl_bootstrap *boot)
{
    struct xccl_bootstrap *child;

    xccl_bootstrap_take_child(boot, &child);
    if (!child)
        return;
    xccl_loop_lock(child->loop);
    xccl_boot_fail(child, xcclRemoteError, "rank %d closed before its split was done", boot->rank);
    xccl_loop_unlock(child->loop);
    xccl_bootstrap_close(child);
}

/* Waits for the child, and for the parent's failure: ranks that went with it may never come to the
 * child. */
static xcclResult_t wait_for_child(struct xccl_bootstrap *boot, struct xccl_bootstrap *child)
{
    static _Atomic int never; /* an abort flag only makes the bell's sleep short */
    struct xccl_limit limit = {.deadline_ns = XCCL_NEVER_NS, .abort = &never};

    for (;;) {
        uint32_t heard = xccl_bell_listen(&child->own_bell);
        int done = 0, ignored;
        xcclResult_t rc = xccl_bootstrap_test(child, &done);

        if (rc || done)
            return rc;
        rc = xccl_bootstrap_test(boot, &ignored);
        if (rc) {
            xccl_bootstrap_fail(child, rc);
            return rc;
        }
        xccl_bell_wait(&child->own_bell, heard, &limit);
    }
}

xcclResult_t xccl_bootstrap_split(struct xccl_bootstrap *boot, int color, int key,
                                  const struct xccl_limit *limit, struct xccl_bootstrap **child_out)
{
    struct xccl_bootstrap *child = NULL;
    xcclResult_t rc = xccl_bootstrap_split_start(boot, color, key, limit, NULL);

    if (!rc)
        rc = xccl_bootstrap_wait(boot);
    if (rc)
        return rc;
    xccl_bootstrap_take_child(boot, &child);
    rc = child ? wait_for_child(boot, child) : xcclSuccess;
    if (rc) {
        xccl_bootstrap_close(child);
        return rc;
    }
    *child_out = child;
    return xcclSuccess;
}
