/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptors that a rank gives to ranks of other processes of its host while the communicator
 * lives: who is told a number out of band asks for it over a proven connection. Each is asked for
 * once by every rank that it is meant for, and is closed with the last time.
 *
 * Thread: giving, taking back and asking the holder of the crank; sending the service thread. The
 * lock is held while a descriptor is sent, so that nobody closes it meanwhile. */
#include "base/alloc.h"
#include "base/error.h"
#include "transport/shm_int.h"

struct xccl_given {
    uint32_t number, times;
    int fd;
    struct xccl_given *next;
};

/* By the lock: the one with that number leaves the list. NULL: there is none. */
static struct xccl_given *take_out(struct xccl_shm *shm, uint32_t number)
{
    for (struct xccl_given **at = &shm->given; *at; at = &(*at)->next) {
        struct xccl_given *found = *at;

        if (found->number != number)
            continue;
        *at = found->next;
        return found;
    }
    return NULL;
}

static void drop(struct xccl_given *given)
{
    if (!given)
        return;
    xccl_tcp_close(&given->fd);
    xccl_free(given);
}

xcclResult_t xccl_shm_give(struct xccl_shm *shm, int fd, uint32_t times, uint32_t *number_out)
{
    struct xccl_given *given = xccl_calloc(1, sizeof *given);

    if (!given || shm->given_last == UINT16_MAX) { /* numbers travel as 16 bits */
        xcclResult_t rc = given ? xccl_fail_quietly(xcclInternalError, 0, NULL,
                                                    "all numbers for passed descriptors are in use")
                                : xcclSystemError;

        xccl_tcp_close(&fd);
        xccl_free(given);
        return rc;
    }
    pthread_mutex_lock(&shm->given_lock);
    *given = (struct xccl_given){++shm->given_last, times, fd, shm->given};
    shm->given = given;
    *number_out = given->number;
    pthread_mutex_unlock(&shm->given_lock);
    return xcclSuccess;
}

void xccl_shm_take_back(struct xccl_shm *shm, uint32_t number)
{
    struct xccl_given *given;

    pthread_mutex_lock(&shm->given_lock);
    given = take_out(shm, number);
    pthread_mutex_unlock(&shm->given_lock);
    drop(given);
}

void xccl_shm_send_given(struct xccl_shm *shm, struct xccl_conn *conn,
                         const struct xccl_limit *limit)
{
    uint32_t number = xccl_conn_hello(conn)->detail;
    struct xccl_given *given = shm->given;

    while (given && given->number != number)
        given = given->next;
    if (given && !xccl_tcp_send_fd(xccl_conn_fd(conn), given->fd, limit) && --given->times == 0)
        drop(take_out(shm, number));
}

void xccl_shm_drop_given(struct xccl_shm *shm)
{
    while (shm->given)
        drop(take_out(shm, shm->given->number));
}

xcclResult_t xccl_shm_fetch_given(struct xccl_shm *shm, const struct xccl_addr *addr,
                                  uint32_t number, const struct xccl_limit *limit, int *fd_out)
{
    return xccl_shm_ask(shm, addr, XCCL_PURPOSE_GIVEN, number, limit, fd_out);
}
