/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that wait long for each other, and yet do what belongs together: none of it is taken for a
 * circle of ranks that wait for each other for ever. */
#include <time.h>

#include "../collective/world.h"

#define BYTES (8u << 20) /* more than links hold */

static void nap_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* Rank 1 is late to receive, and then waits in a call for rank 0, which is late after its send. */
static void late_after_a_send(int rank, int nranks, void *world)
{
    xcclComm_t comm = world_join(world, rank, nranks);
    char *data = calloc(1, BYTES);
    int value = 1;

    XT_CHECK(data);
    XT_OK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL));
    if (rank == 0) {
        XT_OK(xcclSend(data, BYTES, xcclInt8, 1, comm, NULL));
        nap_ms(700);
    } else {
        nap_ms(700);
        XT_OK(xcclRecv(data, BYTES, xcclInt8, 0, comm, NULL));
    }
    XT_OK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL));
    XT_OK(xcclCommDestroy(comm));
    free(data);
}

XT_TEST(a_rank_that_is_late_after_its_send_waits_for_nobody)
{
    xt_mp_run(2, late_after_a_send, world_create());
}
