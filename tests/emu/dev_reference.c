/* SPDX-License-Identifier: BSD-3-Clause */
/* The host's executor as a reference: the world of tests/unit, with any type and operator and with
 * buffers that are there. Thread: one. */
#include "dev_reference.h"

#include "unit/exec/exec_world.h"

struct dev_reference {
    struct world world;
};

struct dev_reference *dev_reference_open(const struct xccl_generator *generator, int n, int root,
                                         int param, const int *nodes, struct xccl_schedule **given)
{
    struct dev_reference *reference = calloc(1, sizeof *reference);

    XT_CHECK(reference != NULL && n <= WORLD_RANKS);
    reference->world = (struct world){
        .generator = generator,
        .n = n,
        .root = root,
        .param = param,
        .nodes = nodes,
        .given = given,
        .lag = 1,
        .nslots = (uint32_t)generator->slots + 2,
        .proto = XCCL_PROTO_SLICES,
    };
    world_open(&reference->world);
    return reference;
}

void dev_reference_close(struct dev_reference *reference)
{
    world_close(&reference->world);
    free(reference);
}

static void start(struct world *world, int rank, const struct xccl_call *call,
                  const struct dev_reference_rank *of)
{
    struct xccl_planner planner = {.nranks = world->n, .rank = rank};
    struct xccl_plan *plan = &world->plans[rank];
    struct xccl_run_args args = {.in = of->in, .out = of->out, .seq = world->seq};

    *plan = (struct xccl_plan){
        .binding = world->bindings[rank], .signature = 1, .reduction = of->reduction};
    XT_OK(xccl_plan_cut(&planner, call, 0, plan));
    world->scratch[rank] = malloc(plan->scratch_bytes + plan->room_bytes + 64);
    XT_CHECK(world->scratch[rank] != NULL);
    args.scratch = world->scratch[rank];
    xccl_run_start(&world->runs[rank], plan, &args);
}

void dev_reference_call(struct dev_reference *reference, const struct xccl_call *call,
                        const struct dev_reference_rank *ranks)
{
    struct world *world = &reference->world;
    int left = world->n, idle = 0;

    world->seq++;
    for (int r = 0; r < world->n; r++)
        start(world, r, call, &ranks[r]);
    while (left) {
        idle++;
        left = 0;
        for (int r = 0; r < world->n; r++) {
            idle = xccl_run_progress(&world->runs[r]) ? 0 : idle;
            XT_CHECK_INT(world->runs[r].rc, 0);
            left += !xccl_run_done(&world->runs[r]);
        }
        XT_CHECK(idle < 100); /* else: nobody can move */
    }
    for (int r = 0; r < world->n; r++)
        free(world->scratch[r]);
}
