/* SPDX-License-Identifier: BSD-3-Clause */
/* Starts a comm's queue pairs. Over Ethernet the kernel then asks for the peer's address on the
 * wire, and waits for the answer: a second for a packet that is lost, three for a host that is not
 * there. Connect and accept must not wait, so a thread does, which ends with that. Over InfiniBand
 * the subnet manager has said it all before.
 *
 * Thread: move and fini: that of the connect or the listener. */
#include "ib_int.h"

#include <signal.h>
#include <string.h>

static void *start_run(void *starter_)
{
    struct ib_starter *starter = starter_;

    starter->rc = ib_queue_start(starter->comm);
    if (starter->rc != xcclSuccess)
        strncpy(starter->text, xccl_error_text(), sizeof(starter->text) - 1);
    /* Release: pairs with ib_start_move(). */
    atomic_store_explicit(&starter->is_over, 1, memory_order_release);
    return NULL;
}

static int asks_the_wire(const struct ib_comm *comm)
{
    for (uint32_t i = 0; i < comm->queue.count; i++) {
        const struct ib_port *port = &comm->queue.ports[comm->queue.pairs[i].port];

        if (port->device->attr.link_layer == IBV_LINK_LAYER_ETHERNET)
            return 1;
    }
    return 0;
}

/* With all signals blocked: they are the host program's. Where there is no thread to be had the
 * caller waits after all. */
static void begin(struct ib_starter *starter, struct ib_comm *comm)
{
    sigset_t all, before;

    starter->comm = comm;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    starter->runs = asks_the_wire(comm) &&
                    pthread_create(&starter->thread, NULL, start_run, starter) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!starter->runs)
        (void)start_run(starter);
}

/* Waits for a start under way: as long as the kernel looks for the peer's address, which it gives
 * up after some seconds. */
void ib_start_fini(struct ib_starter *starter)
{
    if (starter->runs)
        pthread_join(starter->thread, NULL);
    starter->runs = 0;
}

xcclResult_t ib_start_move(struct ib_starter *starter, struct ib_comm *comm, int *done_out)
{
    if (!starter->comm)
        begin(starter, comm);
    /* Acquire: what the thread has made of the comm. */
    if (!atomic_load_explicit(&starter->is_over, memory_order_acquire))
        return xcclSuccess;
    ib_start_fini(starter);
    if (starter->rc != xcclSuccess) {
        xccl_error_set_text(starter->text);
        return starter->rc;
    }
    *done_out = 1;
    return xcclSuccess;
}
