/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends and receives: random groups over shared memory and over sockets, sizes around the borders
 * between the kinds of links, groups that the two sides cut differently, circles of dependence that
 * independent streams get over, messages to oneself, and what is wrong: arguments, peers that leave
 * or do not come. Sizes that differ are in test_message_sizes.c. */
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "world.h"

#define RANKS_MAX 8
#define MANY      1000

/* Message number k of `from` to `to` in round `round`: its size and its bytes. All ranks draw the
 * same. */
struct plan {
    int n, round;
    uint64_t seed;
};

static uint64_t draw(const struct plan *plan, int from, int to, int what)
{
    uint64_t state = plan->seed ^ ((uint64_t)plan->round << 40) ^ ((uint64_t)from << 24) ^
                     ((uint64_t)to << 8) ^ (uint64_t)what;

    return xt_random(&state);
}

static int messages(const struct plan *plan, int from, int to)
{
    uint64_t drawn = draw(plan, from, to, 0);

    return drawn % 3 ? (int)(drawn >> 8) % 3 : 0;
}

static size_t size_of(const struct plan *plan, int from, int to, int k)
{
    static const size_t sizes[] = {0,   1,   8,    55,   56,   57,   223,   224,
                                   225, 777, 4096, 8191, 8192, 8193, 70000, 300001};

    return sizes[draw(plan, from, to, 1 + k) % 16];
}

static unsigned char byte_of(const struct plan *plan, int from, int to, int k, size_t i)
{
    return (unsigned char)(i * 7 + (size_t)(from * 31 + to * 17 + k * 5 + plan->round));
}

/* The messages of one pair, in memory. */
struct pair {
    unsigned char *sent[3], *received[3];
};

static void note_pair(const struct plan *plan, int rank, int peer, struct pair *pair,
                      xcclComm_t comm)
{
    for (int k = 0; k < messages(plan, rank, peer); k++) {
        size_t bytes = size_of(plan, rank, peer, k);

        pair->sent[k] = malloc(bytes + 1);
        XT_CHECK(pair->sent[k] != NULL);
        for (size_t i = 0; i < bytes; i++)
            pair->sent[k][i] = byte_of(plan, rank, peer, k, i);
        XT_OK(xcclSend(pair->sent[k], bytes, xcclUint8, peer, comm, NULL));
    }
    for (int k = 0; k < messages(plan, peer, rank); k++) {
        size_t bytes = size_of(plan, peer, rank, k);

        pair->received[k] = malloc(bytes + 1);
        XT_CHECK(pair->received[k] != NULL);
        pair->received[k][bytes] = 0x5a;
        XT_OK(xcclRecv(pair->received[k], bytes, xcclUint8, peer, comm, NULL));
    }
}

static void check_pair(const struct plan *plan, int rank, int peer, struct pair *pair)
{
    for (int k = 0; k < messages(plan, peer, rank); k++) {
        size_t bytes = size_of(plan, peer, rank, k);

        XT_CHECK(pair->received[k] != NULL);
        for (size_t i = 0; i < bytes; i++)
            if (pair->received[k][i] != byte_of(plan, peer, rank, k, i))
                XT_FAIL("message %d of rank %d to rank %d, byte %zu of %zu", k, peer, rank, i,
                        bytes);
        XT_CHECK_INT(pair->received[k][bytes], 0x5a);
    }
    for (int k = 0; k < 3; k++) {
        free(pair->sent[k]);
        free(pair->received[k]);
    }
}

/* One group; peers in an order of this rank's own. */
static void play_round(const struct plan *plan, int rank, xcclComm_t comm)
{
    struct pair pairs[RANKS_MAX] = {0};
    uint64_t own = plan->seed + (uint64_t)rank * 7919 + (uint64_t)plan->round;
    int order[RANKS_MAX] = {0};
    float one = 1, sum = 0;

    for (int i = 0; i < plan->n; i++) {
        int j = (int)(xt_random(&own) % (uint64_t)(i + 1));

        order[i] = order[j];
        order[j] = i;
    }
    XT_OK(xcclGroupStart());
    if (plan->round & 1) /* a call between them: it comes behind */
        XT_OK(xcclAllReduce(&one, &sum, 1, xcclFloat32, xcclSum, comm, NULL));
    for (int i = 0; i < plan->n; i++)
        note_pair(plan, rank, order[i], &pairs[order[i]], comm);
    XT_OK(xcclGroupEnd());
    for (int i = 0; i < plan->n; i++)
        check_pair(plan, rank, i, &pairs[i]);
    if (plan->round & 1)
        XT_CHECK_INT((int)sum, plan->n);
}

struct random_groups {
    struct world world;
    int rounds;
    const char *setting, *value; /* of all ranks; NULL: none */
    uint64_t seed;
};

static void random_rank(int rank, int nranks, void *arg)
{
    struct random_groups *what = arg;
    struct plan plan = {.n = nranks, .seed = what->seed};
    xcclComm_t comm;

    if (what->setting)
        xt_setenv(what->setting, what->value);
    comm = world_join(&what->world, rank, nranks);
    for (plan.round = 0; plan.round < what->rounds; plan.round++)
        play_round(&plan, rank, comm);
    XT_OK(xcclCommDestroy(comm));
}

static void random_groups(int n, int rounds, const char *setting, const char *value)
{
    struct random_groups *what = mmap(NULL, sizeof *what, PROT_READ | PROT_WRITE,
                                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    XT_CHECK(what != MAP_FAILED);
    xt_set_error_source(world_error);
    xt_setenv("XCCL_TIMEOUT_S", "20");
    what->rounds = rounds;
    what->setting = setting;
    what->value = value;
    what->seed = xt_seed();
    xt_mp_run(n, random_rank, what);
}

XT_TEST_DEADLINE(random_groups_over_shared_memory_bring_every_byte, 120)
{
    for (int n = 1; n <= RANKS_MAX; n++)
        random_groups(n, 24, NULL, NULL);
}

/* So many ranks with so little memory have tight slots for all messages. */
XT_TEST_DEADLINE(random_groups_in_tight_slots_bring_every_byte, 120)
{
    random_groups(RANKS_MAX, 12, "XCCL_BUFFER_BYTES", "1M");
}
XT_TEST_DEADLINE(random_groups_over_sockets_bring_every_byte, 120)
{
    for (int n = 2; n <= 5; n++)
        random_groups(n, 8, "XCCL_SHM_DISABLE", "1");
}

/* ---- ranks of one thread ---- */

XT_TEST(one_thread_sends_between_all_its_ranks_in_one_group)
{
    enum { N = 4 };
    struct plan plan = {.n = N, .seed = xt_seed()};
    xcclComm_t comms[N];
    xcclUniqueId id;

    xt_set_error_source(world_error);
    XT_OK(xcclGetUniqueId(&id));
    XT_OK(xcclGroupStart());
    for (int r = 0; r < N; r++)
        XT_OK(xcclCommInitRank(&comms[r], N, id, r));
    XT_OK(xcclGroupEnd());
    for (plan.round = 0; plan.round < 20; plan.round++) {
        static struct pair pairs[N][N];

        memset(pairs, 0, sizeof pairs);
        XT_OK(xcclGroupStart());
        for (int r = 0; r < N; r++)
            for (int p = 0; p < N; p++)
                note_pair(&plan, r, p, &pairs[r][p], comms[r]);
        XT_OK(xcclGroupEnd());
        for (int r = 0; r < N; r++)
            for (int p = 0; p < N; p++)
                check_pair(&plan, r, p, &pairs[r][p]);
    }
    XT_OK(xcclGroupStart());
    for (int r = 0; r < N; r++)
        XT_OK(xcclCommDestroy(comms[r]));
    XT_OK(xcclGroupEnd());
}

/* ---- order ---- */

/* What one side sends in one group the other takes in two, and the other way round. */
static void cut_differently(int rank, int nranks, void *arg)
{
    xcclComm_t comm = world_join(arg, rank, nranks);
    static char a[600000], b[600000];

    memset(a, rank ? 0 : 1, sizeof a);
    memset(b, rank ? 0 : 2, sizeof b);
    if (rank == 0) {
        XT_OK(xcclGroupStart());
        XT_OK(xcclSend(a, sizeof a, xcclInt8, 1, comm, NULL));
        XT_OK(xcclSend(b, sizeof b, xcclInt8, 1, comm, NULL));
        XT_OK(xcclGroupEnd());
        XT_OK(xcclSend(a, sizeof a, xcclInt8, 1, comm, NULL));
        XT_OK(xcclSend(b, sizeof b, xcclInt8, 1, comm, NULL));
    } else {
        XT_OK(xcclRecv(a, sizeof a, xcclInt8, 0, comm, NULL));
        XT_OK(xcclRecv(b, sizeof b, xcclInt8, 0, comm, NULL));
        XT_CHECK(a[0] == 1 && a[sizeof a - 1] == 1 && b[0] == 2 && b[sizeof b - 1] == 2);
        XT_OK(xcclGroupStart());
        XT_OK(xcclRecv(b, sizeof b, xcclInt8, 0, comm, NULL));
        XT_OK(xcclRecv(a, sizeof a, xcclInt8, 0, comm, NULL));
        XT_OK(xcclGroupEnd());
        XT_CHECK(b[0] == 1 && b[sizeof b - 1] == 1 && a[0] == 2 && a[sizeof a - 1] == 2);
    }
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(groups_that_the_two_sides_cut_differently_match)
{
    xt_mp_run(2, cut_differently, world_create());
}

/* Rank 0 sends to 1 and 2; rank 1 takes it only after a message of rank 2, who sends that only
 * after what rank 0 sends to it: streams in one order would stand still. */
static void circle(int rank, int nranks, void *arg)
{
    static char data[2000000], other[2000000];
    struct world *world = arg;
    xcclComm_t comm;

    if (world->param)
        xt_setenv("XCCL_SHM_DISABLE", "1");
    comm = world_join(world, rank, nranks);

    for (int round = 0; round < 3; round++) {
        if (rank == 0) {
            XT_OK(xcclGroupStart());
            XT_OK(xcclSend(data, sizeof data, xcclInt8, 1, comm, NULL));
            XT_OK(xcclSend(other, sizeof other, xcclInt8, 2, comm, NULL));
            XT_OK(xcclGroupEnd());
        } else if (rank == 1) {
            XT_OK(xcclRecv(other, sizeof other, xcclInt8, 2, comm, NULL));
            XT_OK(xcclRecv(data, sizeof data, xcclInt8, 0, comm, NULL));
        } else {
            XT_OK(xcclRecv(data, sizeof data, xcclInt8, 0, comm, NULL));
            XT_OK(xcclSend(other, sizeof other, xcclInt8, 1, comm, NULL));
        }
    }
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(messages_of_a_group_do_not_wait_for_those_of_other_pairs)
{
    struct world *world = world_create();

    xt_setenv("XCCL_TIMEOUT_S", "10");
    xt_mp_run(3, circle, world);
}
XT_TEST(messages_over_sockets_do_not_wait_for_those_of_other_pairs)
{
    struct world *world = world_create();

    world->param = 1;
    xt_setenv("XCCL_TIMEOUT_S", "10");
    xt_mp_run(3, circle, world);
}

static void thousands(int rank, int nranks, void *arg)
{
    xcclComm_t comm = world_join(arg, rank, nranks);
    static int sent[MANY], received[2 * MANY];

    for (int i = 0; i < MANY; i++)
        sent[i] = rank * MANY + i;
    XT_OK(xcclGroupStart());
    for (int i = 0; i < MANY; i++) {
        XT_OK(xcclSend(&sent[i], 1, xcclInt32, (rank + 1) % nranks, comm, NULL));
        XT_OK(xcclSend(&sent[i], 1, xcclInt32, rank, comm, NULL));
        XT_OK(xcclRecv(&received[i], 1, xcclInt32, (rank + nranks - 1) % nranks, comm, NULL));
        XT_OK(xcclRecv(&received[MANY + i], 1, xcclInt32, rank, comm, NULL));
    }
    XT_OK(xcclGroupEnd());
    for (int i = 0; i < MANY; i++) {
        XT_CHECK_INT(received[i], (rank + nranks - 1) % nranks * MANY + i);
        XT_CHECK_INT(received[MANY + i], sent[i]);
    }
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(thousands_of_messages_in_a_group_keep_their_order)
{
    xt_mp_run(3, thousands, world_create());
}

/* ---- sizes ---- */

/* Message i of a long row: sizes on both sides of each border, in an order that changes between
 * kinds of links again and again. */
static size_t row_size(int i)
{
    static const size_t sizes[] = {8,  8193, 57,   224, 8192, 1,    225, 40000, 56, 56,
                                   55, 223,  8191, 300, 7,    9000, 224, 225,   1,  2};

    return sizes[(i * 7 + i / 20) % 20];
}

#define ROW_BYTES 40000

static char row_byte(int i, size_t at)
{
    return (char)(i * 13 + (int)(at % 251));
}

static void row_fill(char *message, int i)
{
    for (size_t k = 0; k < row_size(i); k++)
        message[k] = row_byte(i, k);
}

static void row_check(const char *message, int i)
{
    for (size_t k = 0; k < row_size(i); k++)
        if (message[k] != row_byte(i, k))
            XT_FAIL("message %d of %zu bytes: byte %zu", i, row_size(i), k);
    XT_CHECK(message[row_size(i)] == 0x5a);
}

enum { ROW = 400, ROW_GROUP = 50 };

/* Rank 0 sends each alone and in groups, rank 1 receives the other way round. */
static void send_row(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    char *all = malloc((size_t)ROW_GROUP * (ROW_BYTES + 1));
    xcclComm_t comm;

    XT_CHECK(all != NULL);
    if (world->text)
        xt_setenv(world->text, "1");
    comm = world_join(world, rank, nranks);
    for (int from = 0; from < ROW; from += ROW_GROUP) {
        int grouped = (from / ROW_GROUP % 2) ^ rank;

        memset(all, 0x5a, (size_t)ROW_GROUP * (ROW_BYTES + 1));
        if (grouped)
            XT_OK(xcclGroupStart());
        for (int i = from; i < from + ROW_GROUP; i++) {
            char *message = all + (size_t)(i - from) * (ROW_BYTES + 1);

            if (rank == 0) {
                row_fill(message, i);
                XT_OK(xcclSend(message, row_size(i), xcclInt8, 1, comm, NULL));
            } else {
                XT_OK(xcclRecv(message, row_size(i), xcclInt8, 0, comm, NULL));
            }
        }
        if (grouped)
            XT_OK(xcclGroupEnd());
        for (int i = from; rank == 1 && i < from + ROW_GROUP; i++)
            row_check(all + (size_t)(i - from) * (ROW_BYTES + 1), i);
    }
    free(all);
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(messages_of_all_sizes_keep_their_order)
{
    xt_mp_run(2, send_row, world_create());
}
XT_TEST(messages_of_all_sizes_over_sockets_keep_their_order)
{
    struct world *world = world_create();

    world->text = "XCCL_SHM_DISABLE";
    xt_mp_run(2, send_row, world);
}

/* Groups like the one before: other buffers each time, and now and then another size, another
 * order, an empty message, one to itself, or a collective between them. */
static void groups_repeat(int rank, int nranks, void *arg)
{
    enum { CHANGES = 6, WORDS = 3000 };
    struct world *world = arg;
    static int sent[2][WORDS], received[2][WORDS];
    int next = (rank + 1) % nranks, before = (rank + nranks - 1) % nranks;
    xcclComm_t comm;

    if (world->text)
        xt_setenv(world->text, "1");
    comm = world_join(world, rank, nranks);
    for (int i = 0; i < 120; i++) {
        int change = i / 10 % CHANGES, a = i % 2, b = !a, own = i;
        size_t more = change == 1 && i % 10 == 5 ? WORDS : 2, less = change == 2 ? 0 : 3;

        for (int k = 0; k < WORDS; k++) {
            sent[a][k] = rank * 100000 + i * 100 + k;
            sent[b][k] = -sent[a][k];
            received[a][k] = received[b][k] = 0;
        }
        XT_OK(xcclGroupStart());
        if (change == 3)
            XT_OK(xcclRecv(received[b], less, xcclInt32, before, comm, NULL));
        XT_OK(xcclSend(sent[b], less, xcclInt32, next, comm, NULL));
        XT_OK(xcclSend(sent[a], more, xcclInt32, next, comm, NULL));
        if (change != 3)
            XT_OK(xcclRecv(received[b], less, xcclInt32, before, comm, NULL));
        XT_OK(xcclRecv(received[a], more, xcclInt32, before, comm, NULL));
        if (change == 4) {
            XT_OK(xcclSend(&own, 1, xcclInt32, rank, comm, NULL));
            XT_OK(xcclRecv(&sent[a][WORDS - 1], 1, xcclInt32, rank, comm, NULL));
        }
        XT_OK(xcclGroupEnd());
        if (change == 5)
            XT_OK(xcclBarrier(comm, NULL));
        for (size_t k = 0; k < more; k++)
            XT_CHECK_INT(received[a][k], before * 100000 + i * 100 + (int)k);
        for (size_t k = 0; k < 3; k++)
            XT_CHECK_INT(received[b][k], k < less ? -(before * 100000 + i * 100 + (int)k) : 0);
        XT_CHECK_INT(received[a][more < WORDS ? more : 0],
                     more < WORDS ? 0 : before * 100000 + i * 100);
        if (change == 4)
            XT_CHECK_INT(sent[a][WORDS - 1], own);
    }
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(groups_like_the_one_before_take_their_own_buffers)
{
    for (int n = 2; n <= 3; n++)
        xt_mp_run(n, groups_repeat, world_create());
}
XT_TEST(groups_like_the_one_before_over_sockets_do_too)
{
    struct world *world = world_create();

    world->text = "XCCL_SHM_DISABLE";
    xt_mp_run(2, groups_repeat, world);
}

/* Groups of every size about that up to which a group takes no memory. */
static void groups_grow(int rank, int nranks, void *arg)
{
    enum { MOST = 40 };
    xcclComm_t comm = world_join(arg, rank, nranks);
    int sent[MOST], received[MOST], next = (rank + 1) % nranks;
    int before = (rank + nranks - 1) % nranks;
    float one = 1, sum;

    for (int count = 1; count <= MOST; count++) {
        sum = 0;
        XT_OK(xcclGroupStart());
        for (int i = 0; i < count; i++) {
            sent[i] = rank * 1000 + count * 50 + i;
            XT_OK(xcclSend(&sent[i], 1, xcclInt32, next, comm, NULL));
            XT_OK(xcclRecv(&received[i], 1, xcclInt32, before, comm, NULL));
        }
        if (count % 2)
            XT_OK(xcclAllReduce(&one, &sum, 1, xcclFloat32, xcclSum, comm, NULL));
        XT_OK(xcclGroupEnd());
        for (int i = 0; i < count; i++)
            XT_CHECK_INT(received[i], before * 1000 + count * 50 + i);
        XT_CHECK_INT((int)sum, count % 2 ? nranks : 0);
    }
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(groups_of_few_and_of_many_calls_are_alike)
{
    xt_mp_run(3, groups_grow, world_create());
}

/* ---- what is wrong ---- */

static void wrong_arguments(int rank, int nranks, void *arg)
{
    xcclComm_t comm = world_join(arg, rank, nranks);
    int data = 0;

    XT_CHECK_RC(xcclSend(NULL, 1, xcclInt32, 0, comm, NULL), xcclInvalidArgument);
    XT_CHECK_HAS(xcclGetLastError(NULL), "xcclSend: sendbuff is NULL");
    XT_CHECK_RC(xcclRecv(NULL, 1, xcclInt32, 0, comm, NULL), xcclInvalidArgument);
    XT_CHECK_HAS(xcclGetLastError(NULL), "xcclRecv: recvbuff is NULL");
    XT_CHECK_RC(xcclSend(&data, 1, xcclInt32, nranks, comm, NULL), xcclInvalidArgument);
    XT_CHECK_HAS(xcclGetLastError(NULL), "peer is 2, not 0..1");
    XT_CHECK_RC(xcclSend(&data, 1, xcclInt32, -1, comm, NULL), xcclInvalidArgument);
    XT_CHECK_RC(xcclSend(&data, 1, (xcclDataType_t)77, 0, comm, NULL), xcclInvalidArgument);
    XT_CHECK_HAS(xcclGetLastError(NULL), "datatype is 77");
    XT_CHECK_RC(xcclSend(&data, SIZE_MAX / 2, xcclInt32, 0, comm, NULL), xcclInvalidArgument);
    XT_CHECK_RC(xcclSend(&data, 1, xcclInt32, 0, comm, &data), xcclInvalidArgument);
    XT_CHECK_HAS(xcclGetLastError(NULL), "stream is not a stream");
    XT_CHECK_RC(xcclSend(&data, 1, xcclInt32, 0, NULL, NULL), xcclInvalidArgument);
    XT_CHECK_RC(xcclSend(&data, 1, xcclInt32, rank, comm, NULL), xcclInvalidUsage);
    XT_CHECK_HAS(xcclGetLastError(NULL), "a send to itself");
    XT_OK(xcclSend(NULL, 0, xcclInt32, 1 - rank, comm, NULL)); /* no message */
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(every_wrong_argument_is_named_and_harmless)
{
    xt_mp_run(2, wrong_arguments, world_create());
}

static void peer_leaves(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    char data[10] = {0};
    xcclComm_t comm;

    if (world->param)
        xt_setenv("XCCL_SHM_DISABLE", "1");
    comm = world_join(world, rank, nranks);

    if (rank == 0) { /* what is sent before leaving arrives */
        XT_OK(xcclSend(data, 10, xcclInt8, 1, comm, NULL));
    } else {
        XT_OK(xcclRecv(data, 10, xcclInt8, 0, comm, NULL));
        XT_CHECK_RC(xcclRecv(data, 10, xcclInt8, 0, comm, NULL), xcclRemoteError);
        XT_CHECK_HAS(xcclGetLastError(comm), "rank 0 (host ");
        XT_CHECK_HAS(xcclGetLastError(comm), "has left the communicator");
    }
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(a_peer_that_left_is_an_error_and_not_waited_for)
{
    xt_mp_run(2, peer_leaves, world_create());
}
XT_TEST(a_peer_over_sockets_that_left_is_an_error_and_not_waited_for)
{
    struct world *world = world_create();

    world->param = 1;
    xt_setenv("XCCL_TIMEOUT_S", "20");
    xt_mp_run(2, peer_leaves, world);
}

/* It leaves before there is a link between the two. */
static void peer_leaves_first(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    char data[10] = {0};
    xcclComm_t comm;

    xt_setenv("XCCL_SHM_DISABLE", "1");
    comm = world_join(world, rank, nranks);
    if (rank == 1) {
        XT_CHECK_RC(xcclSend(data, 10, xcclInt8, 0, comm, NULL), xcclRemoteError);
        XT_CHECK_HAS(xcclGetLastError(comm), "rank 0 (host ");
        XT_CHECK_HAS(xcclGetLastError(comm), "has left the communicator");
    }
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(a_peer_that_left_before_there_was_a_link_is_not_waited_for)
{
    xt_setenv("XCCL_TIMEOUT_S", "20");
    xt_mp_run(2, peer_leaves_first, world_create());
}

static void peer_stays_away(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    char data[10];
    xcclComm_t comm;

    if (world->param)
        xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("XCCL_TIMEOUT_S", rank ? "1" : "30");
    comm = world_join(world, rank, nranks);
    if (rank == 1) {
        XT_CHECK_RC(xcclRecv(data, 10, xcclInt8, 0, comm, NULL), xcclTimeout);
        XT_CHECK_HAS(xcclGetLastError(comm), "rank 1 has waited 1 s in sends and receives, to "
                                             "receive from rank 0");
    }
    world_meet(world, 2);
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(a_peer_that_does_not_come_is_named_after_the_deadline)
{
    xt_mp_run(2, peer_stays_away, world_create());
}
XT_TEST(a_peer_over_sockets_that_does_not_come_is_named_after_the_deadline)
{
    struct world *world = world_create();

    world->param = 1;
    xt_mp_run(2, peer_stays_away, world);
}
