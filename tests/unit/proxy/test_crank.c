/* SPDX-License-Identifier: BSD-3-Clause */
/* The crank: one holder at a time, a lender that keeps to its budget, nothing lent when not shared.
 */
#include "proxy/crank.h"

#include "base/clock.h"
#include "xt.h"

#define ROUNDS 20000

/* Plain fields on purpose: the crank alone keeps the threads apart, which the thread sanitizer
 * sees. */
struct machine {
    struct xccl_crank crank;
    uint64_t turns;
    int left; /* progress says "moved" so many times */
    int inside;
};

static int machine_progress(void *owner)
{
    struct machine *machine = owner;

    XT_CHECK_INT(machine->inside, 0);
    machine->inside = 1;
    machine->turns++;
    machine->inside = 0;
    return machine->left > 0 && machine->left-- > 0;
}

XT_TEST(an_unshared_crank_is_taken_once_and_never_lent)
{
    struct machine machine = {.left = 3};

    xccl_crank_init(&machine.crank, 0, machine_progress, &machine);
    XT_CHECK_INT(xccl_crank_lend(&machine.crank, XCCL_CRANK_LEND_NS), 0);
    XT_CHECK_INT(xccl_crank_try(&machine.crank), 1);
    XT_CHECK_INT(xccl_crank_try(&machine.crank), 0);
    xccl_crank_put(&machine.crank);
    xccl_crank_take(&machine.crank);
    xccl_crank_put(&machine.crank);
    XT_CHECK_INT(machine.turns, 0);
}

XT_TEST(a_lender_turns_until_nothing_moves_and_puts_the_crank_back)
{
    struct machine machine = {.left = 3};

    xccl_crank_init(&machine.crank, 1, machine_progress, &machine);
    XT_CHECK_INT(xccl_crank_lend(&machine.crank, XCCL_NS_PER_S), 1);
    XT_CHECK_INT(machine.turns, 4);
    XT_CHECK_INT(xccl_crank_try(&machine.crank), 1);
    XT_CHECK_INT(xccl_crank_lend(&machine.crank, XCCL_NS_PER_S), 0);
    xccl_crank_put(&machine.crank);
}

static _Atomic uint64_t virtual_ns;

static int clock_progress(void *owner)
{
    (*(int *)owner)++;
    atomic_fetch_add_explicit(&virtual_ns, 10000, memory_order_relaxed);
    return 1;
}

XT_TEST(a_lender_keeps_to_its_budget)
{
    struct xccl_crank crank;
    int turns = 0;

    xccl_crank_init(&crank, 1, clock_progress, &turns);
    xccl_clock_set_virtual(&virtual_ns);
    XT_CHECK_INT(xccl_crank_lend(&crank, XCCL_CRANK_LEND_NS), 1);
    xccl_clock_set_virtual(NULL);
    XT_CHECK_INT(turns, 5);
    XT_CHECK_INT(xccl_crank_try(&crank), 1);
}

static void turn_or_lend(int rank, int nranks, void *arg)
{
    struct machine *machine = arg;
    uint64_t lent = 0;

    (void)nranks;
    for (int i = 0; i < ROUNDS; i++) {
        if (rank == 0) {
            xccl_crank_take(&machine->crank);
            machine->left++;
            machine_progress(machine);
            xccl_crank_put(&machine->crank);
        } else {
            lent += (uint64_t)xccl_crank_lend(&machine->crank, XCCL_CRANK_LEND_NS);
        }
    }
    XT_CHECK(rank == 0 || lent <= ROUNDS);
}

XT_TEST(two_threads_are_never_inside_together)
{
    struct machine machine = {0};

    xccl_crank_init(&machine.crank, 1, machine_progress, &machine);
    xt_threads_run(2, turn_or_lend, &machine);
    XT_CHECK(machine.turns >= ROUNDS);
    XT_CHECK_INT(xccl_crank_try(&machine.crank), 1);
}
