/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernel of sends and receives: random groups among up to 8 ranks on one device, to themselves
 * too, several messages from one rank to another, of no bytes up to many slots and several parts,
 * on one to all lists, with items in the launch or in tables, launch after launch on the same
 * links; a message that is not as long as its receiver expects; and an end when told. Over the
 * driver of XT_CUDA_LIBRARY, as test_device_cover. */
#include <stdio.h>
#include <stdlib.h>

#include "dev_world.h"
#include "xt.h"

#define RANKS      8
#define CHANNELS   4
#define ROUNDS_MAX 3 /* messages from one rank to another */
#define GROUPS     60

/* From one rank to another. */
struct route {
    struct dev_slots slots[CHANNELS];
    struct xccl_dev_link *sends, *receives; /* by channel */
};

struct message {
    char *from, *to;
    size_t bytes, room; /* room: of what it expects */
};

struct crowd {
    struct dev_machine *machine;
    struct dev_setup setup;
    uint32_t rounds, pairs;
    int has_tables;
    struct xccl_dev_comm *comms[RANKS];
    struct route routes[RANKS][RANKS];
    struct message messages[ROUNDS_MAX][RANKS]
                           [RANKS]; /* by sender, then receiver; from NULL: none */
    size_t links_end;
    uint64_t seq;
};

static void open_route(struct crowd *crowd, int from, int to)
{
    struct route *route = &crowd->routes[from][to];
    const struct dev_setup *setup = &crowd->setup;
    size_t bytes = CHANNELS * sizeof *route->sends;

    route->sends = (void *)dev_take(crowd->machine, bytes);
    route->receives = (void *)dev_take(crowd->machine, bytes);
    for (uint32_t i = 0; i < setup->link_channels; i++) {
        route->slots[i] = dev_slots_take(crowd->machine, setup->proto, setup->nslots,
                                         setup->slot_bytes, setup->first_step);
        route->sends[i] = dev_link_of(crowd->machine, &route->slots[i], setup, to);
        route->receives[i] = dev_link_of(crowd->machine, &route->slots[i], setup, from);
    }
}

static void open_crowd(struct crowd *crowd, struct dev_machine *machine,
                       const struct dev_setup *setup)
{
    *crowd = (struct crowd){.machine = machine, .setup = *setup};
    machine->memory.used = 0;
    memset(machine->status, 0, DEV_RANKS * sizeof *machine->status);
    for (int r = 0; r < setup->n; r++) {
        crowd->comms[r] = (void *)dev_take(machine, sizeof *crowd->comms[r]);
        crowd->comms[r]->rank = (uint32_t)r;
        crowd->comms[r]->status = machine->status_there + (uint64_t)r * sizeof *machine->status;
        for (int to = 0; to < setup->n; to++)
            open_route(crowd, r, to);
    }
    crowd->links_end = machine->memory.used;
    dev_push(machine, 0);
}

/* ---- a group ---- */

static size_t draw_bytes(const struct crowd *crowd, uint64_t *seed)
{
    size_t slot = crowd->setup.slot_bytes;

    switch (xt_random(seed) % 8) {
    case 0:
        return 0;
    case 1:
        return 1 + xt_random(seed) % 16;
    case 2:
        return slot - 1 + xt_random(seed) % 3;
    case 3:
        return slot * (2 + xt_random(seed) % 6);
    case 4: /* several parts */
        return 16384 * (1 + xt_random(seed) % crowd->setup.link_channels) + xt_random(seed) % 9000;
    default:
        return xt_random(seed) % (5 * slot);
    }
}

static char *place(struct crowd *crowd, size_t bytes, uint64_t *seed)
{
    return dev_take(crowd->machine, bytes + 32 + 2 * DEV_GUARD) + DEV_GUARD + xt_random(seed) % 32;
}

static void draw_group(struct crowd *crowd, uint64_t *seed)
{
    int n = crowd->setup.n;

    crowd->machine->memory.used = crowd->links_end;
    memset(crowd->messages, 0, sizeof crowd->messages);
    crowd->rounds = 1 + (uint32_t)(xt_random(seed) % ROUNDS_MAX);
    crowd->has_tables = crowd->rounds * (uint32_t)(2 * n * n) > XCCL_DEV_ITEMS_MAX ||
                        xt_random(seed) % 2;
    do {
        crowd->pairs = 1 + (uint32_t)(xt_random(seed) % (uint64_t)n);
    } while ((uint32_t)n % crowd->pairs);
    for (uint32_t i = 0; i < crowd->rounds * (uint32_t)(n * n); i++) {
        struct message *message =
            &crowd->messages[i / (uint32_t)(n * n)][i / (uint32_t)n % (uint32_t)n][i % (uint32_t)n];

        if (xt_random(seed) % 4 == 0)
            continue;
        message->bytes = message->room = draw_bytes(crowd, seed);
        message->from = place(crowd, message->bytes, seed);
        message->to = place(crowd, message->bytes, seed);
        for (size_t k = 0; k < message->bytes; k++)
            message->from[k] = (char)(xt_random(seed) >> 32);
    }
}

static struct xccl_dev_item item_of(const struct crowd *crowd, const struct message *message,
                                    const struct route *route, int sends)
{
    const struct dev_machine *machine = crowd->machine;
    size_t bytes = sends ? message->bytes : message->room;

    if (!message->from)
        return (struct xccl_dev_item){0}; /* keeps the place */
    return (struct xccl_dev_item){
        .at = dev_address(machine, sends ? message->from : message->to),
        .bytes = bytes,
        .link = dev_address(machine, sends ? route->sends : route->receives),
        .sends = (uint32_t)sends,
        .flag_low = (uint32_t)(bytes * 2654435761u + 17),
    };
}

/* Place k * n + d of a rank is for the rank d further, or, of receives, so far back: so messages of
 * one link are on one list, and no list waits in a circle. */
static void list_items(const struct crowd *crowd, int rank, struct xccl_dev_item *items)
{
    uint32_t n = (uint32_t)crowd->setup.n, count = crowd->rounds * n;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t to = ((uint32_t)rank + i % n) % n, from = ((uint32_t)rank + n - i % n) % n;

        items[i] = item_of(crowd, &crowd->messages[i / n][rank][to], &crowd->routes[rank][to], 1);
        items[count + i] = item_of(crowd, &crowd->messages[i / n][from][rank],
                                   &crowd->routes[from][rank], 0);
    }
}

static void launch(struct crowd *crowd)
{
    struct xccl_dev_messages_launch launch = {.nworks = (uint32_t)crowd->setup.n};
    uint32_t count = crowd->rounds * (uint32_t)crowd->setup.n;
    uint32_t blocks = crowd->pairs * crowd->setup.link_channels;

    for (uint32_t r = 0; r < launch.nworks; r++) {
        struct xccl_dev_item *items = crowd->has_tables
                                          ? (void *)dev_take(crowd->machine,
                                                             2 * count * sizeof *items)
                                          : launch.items + 2 * count * r;
        uint64_t at = crowd->has_tables ? dev_address(crowd->machine, items) : 0;

        list_items(crowd, (int)r, items);
        launch.works[r] = (struct xccl_dev_messages){
            .comm = dev_address(crowd->machine, crowd->comms[r]),
            .sends = at,
            .receives = at ? at + count * sizeof *items : 0,
            .nsends = count,
            .nreceives = count,
            .first_item = 2 * count * r,
            .channels = crowd->setup.link_channels,
            .pairs = crowd->pairs,
            .block0 = blocks * r,
            .nblocks = blocks,
        };
    }
    dev_push(crowd->machine, crowd->links_end);
    crowd->seq++;
    dev_launch(crowd->machine, "xccl_messages", blocks * launch.nworks, &launch, 0);
}

static void check_message(const struct crowd *crowd, const struct message *message)
{
    XT_CHECK(memcmp(message->to, message->from, message->bytes) == 0);
    for (int i = 1; i < DEV_GUARD; i++)
        if (message->to[-i] || message->to[message->bytes + (size_t)i - 1])
            XT_FAIL("a message of %zu bytes, %u pairs, %u channels, slots of %u: byte %d beside it "
                    "is written",
                    message->bytes, crowd->pairs, crowd->setup.link_channels,
                    crowd->setup.slot_bytes, i);
}

static void check_group(struct crowd *crowd)
{
    dev_pull(crowd->machine, crowd->links_end);
    for (int r = 0; r < crowd->setup.n; r++) {
        const struct xccl_dev_status *status = &crowd->machine->status[r];

        XT_CHECK_INT(status->error, 0);
        XT_CHECK_INT(status->messages_begun, crowd->seq);
        XT_CHECK_INT(status->messages_done, crowd->seq);
        XT_CHECK_INT(status->done, 0);
        for (uint32_t k = 0; k < crowd->rounds; k++)
            for (int to = 0; to < crowd->setup.n; to++)
                if (crowd->messages[k][r][to].from)
                    check_message(crowd, &crowd->messages[k][r][to]);
    }
}

static struct dev_setup draw_setup(const struct dev_machine *machine, uint64_t *seed)
{
    struct dev_setup setup = {
        .n = 1 + (int)(xt_random(seed) % RANKS),
        .proto = XCCL_DEV_SIMPLE,
        .link_channels = 1 + (uint32_t)(xt_random(seed) % CHANNELS),
        .nslots = 1 + (uint32_t)(xt_random(seed) % 4),
        .slot_bytes = 64u << xt_random(seed) % 6,
        .first_step = xt_random(seed) % 2 ? 0 : UINT32_MAX - 2,
    };

    while ((uint32_t)(setup.n * setup.n) * setup.link_channels > dev_blocks_max(machine))
        setup.link_channels--;
    return setup;
}

XT_TEST_DEADLINE(groups_of_messages_arrive_whole, 120)
{
    struct crowd *crowd = malloc(sizeof *crowd);
    struct dev_machine machine;
    uint64_t seed = xt_seed();

    XT_CHECK(crowd != NULL);
    dev_machine_open(&machine);
    for (int i = 0; i < GROUPS; i++) {
        struct dev_setup setup = draw_setup(&machine, &seed);

        open_crowd(crowd, &machine, &setup);
        for (int k = 0; k < 3; k++) {
            draw_group(crowd, &seed);
            launch(crowd);
            XT_CHECK(dev_wait(&machine, 1, 20));
            check_group(crowd);
        }
    }
    dev_machine_close(&machine);
    free(crowd);
}

/* Rank 0 sends rank 1 another size than it expects. */
XT_TEST(a_message_of_another_size_is_an_error_that_names_its_sender)
{
    static const size_t sizes[][2] = {{100, 101}, {0, 4}, {4, 0}, {1000, 5000}, {40000, 39000}};
    struct crowd *crowd = malloc(sizeof *crowd);
    struct dev_machine machine;

    XT_CHECK(crowd != NULL);
    dev_machine_open(&machine);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct dev_setup setup = {
            .n = 2, .proto = XCCL_DEV_SIMPLE, .link_channels = 2, .nslots = 2, .slot_bytes = 512};
        struct message *message = &crowd->messages[0][0][1];
        double end = xt_seconds() + 10;

        open_crowd(crowd, &machine, &setup);
        crowd->rounds = crowd->pairs = 1;
        message->bytes = sizes[i][0];
        message->room = sizes[i][1];
        message->from = dev_take(&machine, 65536);
        message->to = dev_take(&machine, 65536);
        launch(crowd);
        while (!__atomic_load_n(&machine.status[1].error, __ATOMIC_ACQUIRE))
            XT_CHECK(xt_seconds() < end);
        dev_abort(&machine, 2);
        XT_CHECK(dev_wait(&machine, 1, 1));
        XT_CHECK_INT(machine.status[1].error, XCCL_DEV_OTHER_SIZE);
        XT_CHECK_INT(machine.status[1].peer, 0);
        XT_CHECK_INT(machine.status[1].messages_done, 0);
    }
    dev_machine_close(&machine);
    free(crowd);
}

/* Launches a receive of what nobody sends. limit_ns: of the kernel's waits, 0: none. Returns when.
 */
static double launch_lost(struct crowd *crowd, struct dev_machine *machine, uint64_t limit_ns)
{
    struct dev_setup setup = {
        .n = 1, .proto = XCCL_DEV_SIMPLE, .link_channels = 3, .nslots = 2, .slot_bytes = 512};
    struct xccl_dev_messages_launch launch = {.nworks = 1};
    double start;

    dev_machine_open(machine);
    open_crowd(crowd, machine, &setup);
    crowd->comms[0]->limit_ns = limit_ns;
    crowd->messages[0][0][0] = (struct message){.from = dev_take(machine, 8192), .bytes = 8192};
    launch.items[0] = item_of(crowd, &crowd->messages[0][0][0], &crowd->routes[0][0], 1);
    launch.items[0].link = dev_address(machine, crowd->routes[0][0].receives);
    launch.works[0] = (struct xccl_dev_messages){.comm = dev_address(machine, crowd->comms[0]),
                                                 .nreceives = 1,
                                                 .channels = 3,
                                                 .pairs = 1,
                                                 .nblocks = 3};
    dev_push(machine, 0);
    start = xt_seconds();
    dev_launch(machine, "xccl_messages", 3, &launch, 0);
    return start;
}

XT_TEST(a_receive_of_what_nobody_sends_ends_when_told)
{
    struct crowd *crowd = malloc(sizeof *crowd);
    struct dev_machine machine;

    XT_CHECK(crowd != NULL);
    (void)launch_lost(crowd, &machine, 0);
    XT_CHECK(!dev_wait(&machine, 1, 0.05));
    dev_abort(&machine, 1);
    XT_CHECK(dev_wait(&machine, 1, 1));
    XT_CHECK_INT(machine.status[0].messages_done, 0);
    dev_machine_close(&machine);
    free(crowd);
}

/* As where the process is stopped whose thread would say so. */
XT_TEST(a_kernel_of_which_nobody_looks_after_ends_in_time)
{
    struct crowd *crowd = malloc(sizeof *crowd);
    struct dev_machine machine;
    double start;

    XT_CHECK(crowd != NULL);
    start = launch_lost(crowd, &machine, 200 * 1000 * 1000);
    XT_CHECK(dev_wait(&machine, 1, 10));
    XT_CHECK(xt_seconds() - start > 0.19);
    XT_CHECK_INT(machine.status[0].error, XCCL_DEV_LATE);
    XT_CHECK_INT(machine.status[0].peer, XCCL_DEV_NO_PEER);
    XT_CHECK_INT(machine.status[0].messages_done, 0);
    dev_machine_close(&machine);
    free(crowd);
}

/* Threads that find different errors at a time: what is said is one of them. */
XT_TEST(errors_found_at_a_time_are_not_mixed)
{
    struct dev_machine machine;
    xccl_cu_module module;
    xccl_cu_function function;
    uint32_t odd = 0;

    if (!getenv("XT_CUDA_LIBRARY"))
        XT_SKIP("the kernel of this test is the stand-in's");
    xt_setenv("XCCL_EMU_SCHEDULE", "random");
    dev_machine_open(&machine);
    XT_OK(xccl_cuda_result(machine.cuda->module_load(&module, "nothing"), "a module"));
    XT_OK(xccl_cuda_result(machine.cuda->module_function(&function, module, "xccl_test_faults"),
                           "a kernel"));
    for (int i = 0; i < 100; i++) {
        struct xccl_dev_comm *comm = (void *)dev_take(&machine, sizeof *comm);
        struct xccl_dev_launch launch = {.nworks = 1};
        void *parameters[] = {&launch};

        memset(&machine.status[0], 0, sizeof machine.status[0]);
        comm->status = machine.status_there;
        launch.works[0].comm = dev_address(&machine, comm);
        dev_push(&machine, 0);
        XT_OK(xccl_cuda_result(machine.cuda->launch(function, 3, 1, 1, machine.device->threads, 1,
                                                    1, 0, machine.streams[0], parameters, NULL),
                               "a launch"));
        XT_CHECK(dev_wait(&machine, 1, 10));
        XT_CHECK_INT(machine.status[0].peer, 100 + machine.status[0].error - XCCL_DEV_OTHER_CALL);
        odd += machine.status[0].peer % 2;
    }
    XT_CHECK(odd > 0 && odd < 100);
    dev_machine_close(&machine);
}
