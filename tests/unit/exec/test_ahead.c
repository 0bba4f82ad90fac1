/* SPDX-License-Identifier: BSD-3-Clause */
/* Looking ahead, and receiving straight into buffers: all algorithms with all ranks in one thread.
 * What is sent over a FIFO lands in the receiver's buffer as soon as it has been sent, which is as
 * early as a network can bring it. Which place that is says the look-ahead, which is asked before,
 * late or not at all. Results must be right all the same, apart and in place.
 *
 * The links under test are false: they remember what they are told. */
#include "exec_world.h"

struct xccl_net_link {
    struct xccl_link *view;
    struct world_channel *channel;
    struct xccl_net_op op;
    uint64_t seq; /* of the call that it is in */
    uint32_t first; /* step at its beginning */
    uint32_t posted, told; /* messages of the call */
    struct {
        char *at;
        uint32_t bytes;
    } targets[XCCL_NET_SLOTS];
};

static int expect(struct xccl_net_link *link, void *at, uint32_t bytes)
{
    XT_CHECK(bytes > 0 || !at);
    if ((int32_t)(link->told - link->posted) >= XCCL_NET_SLOTS)
        return 0;
    link->targets[link->told % XCCL_NET_SLOTS].at = at;
    link->targets[link->told++ % XCCL_NET_SLOTS].bytes = bytes;
    return 1;
}

static int knows(const struct xccl_net_link *link)
{
    return (int32_t)(link->told - link->posted) > 0;
}

#undef XCCL_NET_DIRECT_MIN
#define XCCL_NET_DIRECT_MIN  1
#define xccl_net_link_expect expect
#define xccl_net_link_knows  knows
/* In place of the library's. NOLINTNEXTLINE(bugprone-suspicious-include) */
#include "exec/ahead.c"

static uint64_t random_state;
static int landed, asked_late;

static void begin_call(struct world *world, int rank, uint16_t conn, struct xccl_net_link *link)
{
    link->seq = world->seq;
    link->first = link->view->step;
    link->posted = 0;
    link->told = 0;
    link->op = (struct xccl_net_op){.messages = 1};
    xccl_ahead_for(&world->runs[rank], conn, &link->op);
}

/* 1: the next message has been sent. */
static int has_come(const struct world *world, int rank, const struct xccl_net_link *link)
{
    uint32_t step = link->first + link->posted;
    const struct xccl_slot_header *header = (const void *)(link->channel->slots +
                                                           (size_t)(step % world->nslots) *
                                                               world_slot_stride(world));

    return atomic_load_explicit(&header->flag, memory_order_acquire) ==
           ((uint64_t)(step + 1) << 32 | world->runs[rank].flag_low);
}

/* Brings the next message to where it was told to go. */
static void land(const struct world *world, struct xccl_net_link *link)
{
    uint32_t slot = (link->first + link->posted) % world->nslots;
    struct xccl_offer *offer = &link->channel->offers[slot];
    const char *payload = link->channel->slots + (size_t)slot * world_slot_stride(world) + 64;
    char *at = link->targets[link->posted % XCCL_NET_SLOTS].at;

    if (!at)
        return;
    memmove(at, offer->at ? offer->at : payload,
            link->targets[link->posted % XCCL_NET_SLOTS].bytes);
    offer->at = at;
    landed++;
}

static void move_link(struct world *world, int rank, uint16_t conn, struct xccl_net_link *link)
{
    if (link->seq != world->seq)
        begin_call(world, rank, conn, link);
    while (link->op.ahead && has_come(world, rank, link)) {
        if (xt_random(&random_state) % 8) {
            if (!knows(link))
                link->op.ahead(link->op.ahead_owner, link);
            if (knows(link))
                land(world, link);
        } else {
            asked_late++;
        }
        link->posted++;
    }
}

static void move_links(struct world *world)
{
    for (int r = 0; r < world->n; r++) {
        const struct xccl_binding *binding = world->bindings[r];

        for (uint16_t i = 0; i < binding->schedule->nconns; i++)
            if (binding->nets[i])
                move_link(world, r, i, binding->nets[i]);
    }
}

/* All FIFOs become false networks. */
static struct xccl_net_link *make_links(struct world *world)
{
    struct xccl_net_link *links = calloc(WORLD_CHANNELS, sizeof *links), *next = links;

    XT_CHECK(links != NULL);
    for (int r = 0; r < world->n; r++) {
        struct xccl_binding *binding = world->bindings[r];

        for (uint16_t i = 0; i < binding->schedule->nconns; i++) {
            const struct xccl_schedule_conn *conn = &binding->schedule->conns[i];

            if (conn->kind != XCCL_CONN_FIFO || conn->dir != XCCL_CONN_RECV)
                continue;
            *next = (struct xccl_net_link){
                .view = binding->links[i],
                .channel = world_channel(world, conn->peer, r, conn->id)};
            binding->nets[i] = next++;
            if (xccl_ahead_is_for(binding, i))
                binding->ahead_count++;
        }
    }
    return links;
}

/* Returns how many messages have landed in buffers. */
static int play(const struct xccl_generator *generator, int n, int twists)
{
    static const size_t counts[] = {1, 5, 24, 100, 333};
    struct world *world = calloc(1, sizeof *world);
    int nodes[WORLD_RANKS];
    struct xccl_net_link *links;

    XT_CHECK(world != NULL);
    landed = 0;
    for (int i = 0; i < n; i++)
        nodes[i] = i % (1 + n / 3);
    world->generator = generator;
    world->n = n;
    world->root = xccl_coll_rooted(generator->coll) ? n / 2 : 0;
    world->proto = XCCL_PROTO_SLICES;
    world->nodes = nodes;
    world->lag = 1;
    world->nslots = XCCL_NET_SLOTS;
    world->direct = WORLD_OFFERS;
    world->twists = twists;
    world->before = move_links;
    world_open(world);
    links = make_links(world);
    for (int i = 0; i < 20; i++) {
        world->in_place = i % 2 && generator->coll != XCCL_COLL_ALL_TO_ALL;
        world->keeps_list = i % 4 / 2;
        world_call(world, counts[i / 4], &random_state);
    }
    free(links);
    world_close(world);
    free(world);
    return landed;
}

XT_TEST_DEADLINE(what_lands_in_buffers_early_leaves_results_right, 120)
{
    random_state = xt_seed();
    for (const struct xccl_generator *const *at = xccl_generators; *at; at++)
        for (int n = 2; n <= WORLD_RANKS; n++) {
            struct xccl_generator_for what = {.nranks = n};
            enum xccl_coll coll = (*at)->coll;
            int count;

            if (coll == XCCL_COLL_BARRIER || ((*at)->serves && !(*at)->serves(&what)))
                continue;
            count = play(*at, n, n % 2);
            if (coll == XCCL_COLL_BROADCAST || coll == XCCL_COLL_ALL_GATHER)
                XT_CHECK(count > 0);
        }
    XT_CHECK(asked_late > 0);
}
