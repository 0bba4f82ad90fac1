/* SPDX-License-Identifier: BSD-3-Clause */
/* Roots as such: made, shared, ended. Event-driven, so no peer can hold one up. Three kinds: one
 * for a launcher, which ends when it is destroyed; one at a given address, which this process's
 * joins through that address share; one of a unique id, which ends with its session.
 *
 * Limits: no fail-over: when the root's process dies, joining ends. Thread: the service thread's
 * callbacks; create, destroy, get and put from any, under the loop's lock. Lock order:
 * shared_lock, a loop's lock, single_lock. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/param.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/channel.h"
#include "bootstrap/root_int.h"

/* Handlers in a child of fork(): the thread that moves the parent's roots is not there. */
static void forget_single(void);
static void forget_shared(void);

/* Roots of this process that end by themselves. Guarded by single_lock, which is taken inside a
 * loop's lock and never around one. */
static struct xccl_lock single_lock = XCCL_LOCK(forget_single);
static struct xccl_root *single_roots;

/* Roots at given addresses, guarded by shared_lock, which is never taken in a callback. */
static struct xccl_lock shared_lock = XCCL_LOCK(forget_shared);
static struct xccl_root *shared_roots;

static void forget_single(void)
{
    single_roots = NULL;
}

static void forget_shared(void)
{
    shared_roots = NULL;
}

/* Frees everything; the loop's lock is held. Those who still wait are told. */
static void root_fini(struct xccl_root *root)
{
    xccl_acceptor_close(root->acceptor);
    xccl_loop_remove(&root->timer);
    root->single = root->ending = 0; /* the last session must not arm the timer again */
    xccl_root_end_sessions(root);
    sodium_memzero(root->secret, sizeof(root->secret));
    xccl_free(root);
}

static xcclResult_t root_make(const struct xccl_acceptor_args *args, struct xccl_root **root_out)
{
    struct xccl_acceptor_args own_args = *args;
    struct xccl_root *root = xccl_calloc(1, sizeof(*root));
    xcclResult_t rc = xcclSystemError;

    if (!root)
        return rc;
    root->timer.fd = -1;
    root->timer.timer_ns = XCCL_NEVER_NS;
    root->pid = getpid();
    root->timeout_ms = (uint64_t)xccl_param_int(XCCL_P_TIMEOUT_INIT_S) * 1000;
    memcpy(root->comm_id, args->comm_id, sizeof(root->comm_id));
    rc = xccl_service_get(&root->loop);
    if (rc)
        goto err_root;
    own_args.loop = root->loop;
    own_args.on_conn = xccl_root_on_conn;
    own_args.on_starved = xccl_root_on_starved;
    own_args.owner = root;
    rc = xccl_acceptor_open(&own_args, &root->acceptor);
    sodium_memzero(own_args.key, sizeof(own_args.key));
    if (rc)
        goto err_service;
    root->addr = *xccl_acceptor_addr(root->acceptor);
    *root_out = root;
    return xcclSuccess;
err_service:
    xccl_service_put();
err_root:
    xccl_free(root);
    return rc;
}

xcclResult_t xccl_root_create(struct xccl_addr *addr, const uint8_t secret[32],
                              struct xccl_root **root_out)
{
    struct xccl_acceptor_args args = {.addr = *addr, .any_comm_id = 1, .rank = XCCL_TARGET_ROOT};
    xcclResult_t rc;

    memcpy(args.key, secret, sizeof(args.key));
    rc = root_make(&args, root_out);
    sodium_memzero(args.key, sizeof(args.key));
    if (rc)
        return rc;
    *addr = (*root_out)->addr;
    return xcclSuccess;
}

void xccl_root_destroy(struct xccl_root *root)
{
    struct xccl_loop *loop;

    if (!root)
        return;
    loop = root->loop;
    xccl_loop_lock(loop);
    root_fini(root);
    xccl_loop_unlock(loop);
    xccl_service_put();
}

void xccl_root_note_end(struct xccl_root *root, uint32_t rank, uint32_t nranks, const char *text)
{
    xccl_loop_lock(root->loop);
    if (!root->ended_nranks) {
        root->ended_rank = rank;
        root->ended_nranks = nranks;
        snprintf(root->ended_text, sizeof(root->ended_text), "%s", text);
    }
    xccl_root_on_ended(root);
    xccl_loop_unlock(root->loop);
}

/* --- the root at a given address --- */

/* Takes it out of the list; shared_lock is held. */
static void shared_unlist(const struct xccl_root *root)
{
    struct xccl_root **at = &shared_roots;

    while (*at != root)
        at = &(*at)->next;
    *at = root->next;
}

static struct xccl_root *shared_find(const struct xccl_addr *addr, const uint8_t secret[32])
{
    struct xccl_root *root = shared_roots;

    while (root && (root->pid != getpid() || !xccl_addr_equal(&root->addr, addr) ||
                    sodium_memcmp(root->secret, secret, 32) != 0))
        root = root->next;
    return root;
}

xcclResult_t xccl_root_get_at(const struct xccl_addr *addr, const uint8_t secret[32],
                              struct xccl_root **root_out)
{
    struct xccl_addr at = *addr;
    struct xccl_root *root;
    xcclResult_t rc = xcclSuccess;

    xccl_lock_take(&shared_lock);
    root = shared_find(addr, secret);
    if (root) {
        xccl_loop_lock(root->loop);
        root->references++;
        root->ending = 0;
        xccl_loop_remove(&root->timer);
        xccl_loop_unlock(root->loop);
    } else {
        rc = xccl_root_create(&at, secret, &root);
        if (!rc) {
            memcpy(root->secret, secret, 32);
            root->references = 1;
            root->next = shared_roots;
            shared_roots = root;
        }
    }
    xccl_lock_give(&shared_lock);
    if (!rc)
        *root_out = root;
    return rc;
}

/* The last session of a root that nobody holds is over. */
static void shared_on_timer(struct xccl_source *source, uint64_t now_ns)
{
    struct xccl_root *root = source->owner;

    /* The other order of the two locks, so it may not be waited for here. */
    if (!xccl_lock_try(&shared_lock)) {
        xccl_loop_set_timer(source, now_ns + XCCL_NS_PER_MS);
        return;
    }
    shared_unlist(root);
    root_fini(root); /* before another may listen at the address */
    xccl_lock_give(&shared_lock);
    xccl_service_put_later();
}

void xccl_root_rest(struct xccl_root *root)
{
    if (root->ending && !root->sessions && !root->reporters)
        xccl_loop_set_timer(&root->timer, xccl_clock_ns());
}

/* 1: other communicators' ranks wait at the root for a rank 0 that will come, or are about to
 * report. It stays for them. */
static int stays_for_others(struct xccl_root *root)
{
    int stays;

    xccl_loop_lock(root->loop);
    root->timer.timer_ns = XCCL_NEVER_NS;
    root->timer.on_timer = shared_on_timer;
    root->timer.owner = root;
    stays = (root->sessions || root->reporters) &&
            xccl_loop_add(root->loop, &root->timer) == xcclSuccess;
    root->ending = stays;
    xccl_loop_unlock(root->loop);
    return stays;
}

void xccl_root_put(struct xccl_root *root)
{
    if (!root)
        return;
    xccl_lock_take(&shared_lock);
    if (--root->references == 0 && !stays_for_others(root)) {
        shared_unlist(root);
        xccl_root_destroy(root);
    }
    xccl_lock_give(&shared_lock);
}

/* --- roots that end by themselves --- */

/* Takes a root out of the list of those that end by themselves. 0: it was not there any more. */
static int single_unlist(const struct xccl_root *root)
{
    int found = 0;

    xccl_lock_take(&single_lock);
    for (struct xccl_root **at = &single_roots; *at && !found; at = &(*at)->next) {
        if (*at == root) {
            *at = root->next;
            found = 1;
            break;
        }
    }
    xccl_lock_give(&single_lock);
    return found;
}

/* The session is over, or nobody came in time. */
static void single_on_timer(struct xccl_source *source, uint64_t now_ns)
{
    struct xccl_root *root = source->owner;

    (void)now_ns;
    if (!single_unlist(root))
        return; /* xccl_root_end_single() has it and waits for the loop's lock */
    root_fini(root);
    xccl_service_put_later();
}

xcclResult_t xccl_root_start_single(struct xccl_meeting *meeting, uint64_t timeout_ms)
{
    struct xccl_acceptor_args args = {.addr = meeting->roots[0], .rank = XCCL_TARGET_ROOT};
    int more = meeting->root_count - 1;
    struct xccl_root *root;
    xcclResult_t rc;

    for (int i = 0; i < more; i++)
        args.more[i] = meeting->roots[i + 1];
    args.more_count = more;
    memcpy(args.key, meeting->secret, sizeof(args.key));
    memcpy(args.comm_id, meeting->comm_id, sizeof(args.comm_id));
    rc = root_make(&args, &root);
    sodium_memzero(args.key, sizeof(args.key));
    if (rc)
        return rc;
    meeting->root_count = xccl_acceptor_addrs(root->acceptor, meeting->roots);
    xccl_loop_lock(root->loop);
    root->single = 1;
    root->timeout_ms = timeout_ms;
    root->timer.timer_ns = xccl_clock_ns() + timeout_ms * XCCL_NS_PER_MS;
    root->timer.on_timer = single_on_timer;
    root->timer.owner = root;
    rc = xccl_loop_add(root->loop, &root->timer);
    if (!rc) {
        xccl_lock_take(&single_lock);
        root->next = single_roots;
        single_roots = root;
        xccl_lock_give(&single_lock);
    }
    xccl_loop_unlock(root->loop);
    if (rc)
        xccl_root_destroy(root);
    return rc;
}

void xccl_root_end_single(const uint8_t comm_id[16])
{
    struct xccl_root *found = NULL;

    xccl_lock_take(&single_lock);
    for (struct xccl_root **at = &single_roots; *at; at = &(*at)->next) {
        if ((*at)->pid == getpid() && memcmp((*at)->comm_id, comm_id, 16) == 0) {
            found = *at;
            *at = found->next;
            break;
        }
    }
    xccl_lock_give(&single_lock);
    xccl_root_destroy(found);
}
