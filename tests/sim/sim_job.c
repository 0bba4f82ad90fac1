/* SPDX-License-Identifier: BSD-3-Clause */
/* The ranks' program. Every rank of a communicator throws the same dice in the same order, so they
 * agree on what comes next without a word.
 *
 * Thread: the only one. */
#include "sim_job.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xt.h"

#define DESCRIPTORS_AT_REST 8
#define SPLIT_DEPTH         2
#define SMALL_BYTES         300
#define LARGE_BYTES         (sim_job.op_count < 0 ? 20u << 10 : 200u << 10)
#define ALL_BYTES_MAX       (16u << 20) /* of a large all-gather, on all ranks together */

struct sim_job sim_job;

/* A rank within one communicator. */
struct worker {
    struct sim_rank *self;
    struct xccl_bootstrap *boot;
    int rank, nranks;
    uint64_t dice;
    uint32_t op_no;
    int depth; /* of splits */
};

static uint64_t throw_below(struct worker *worker, uint64_t end)
{
    return xt_random(&worker->dice) % end;
}

/* --- data that tells where it is from --- */

static uint64_t data_key(const struct worker *worker, int from, uint32_t what)
{
    return sim_job.seed ^ (uint64_t)worker->op_no << 40 ^ (uint64_t)(from + 1) << 16 ^ what;
}

static void *memory(size_t bytes)
{
    void *made = calloc(1, bytes ? bytes : 1);

    if (!made)
        abort();
    return made;
}

static void data_fill(uint8_t *data, size_t bytes, uint64_t key)
{
    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        uint64_t word = xt_random(&key);

        memcpy(data + i, &word, bytes - i < sizeof(word) ? bytes - i : sizeof(word));
    }
}

static void data_check(const struct worker *worker, const uint8_t *data, size_t bytes, uint64_t key,
                       int from)
{
    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        uint64_t word = xt_random(&key);

        if (memcmp(data + i, &word, bytes - i < sizeof(word) ? bytes - i : sizeof(word)) != 0)
            sim_fail("rank %d of %d, operation %u (%s): byte %zu of %zu from %d is wrong",
                     worker->rank, worker->nranks, worker->op_no, worker->self->doing, i, bytes,
                     from);
    }
}

static struct xccl_limit op_limit(void)
{
    return xccl_limit_ms(sim_job.op_ms, NULL);
}

/* --- operations --- */

static xcclResult_t do_barrier(struct worker *worker)
{
    struct xccl_limit limit = op_limit();
    int *entered = &sim_job.barriers_entered[worker->op_no % 64];
    xcclResult_t rc;

    worker->self->doing = "barrier";
    if (worker->depth == 0)
        (*entered)++;
    rc = xccl_bootstrap_barrier(worker->boot, NULL, &limit);
    if (!rc && worker->depth == 0 && *entered % worker->nranks != 0)
        sim_fail("rank %d left barrier %u when %d of %d had come", worker->rank, worker->op_no,
                 *entered, worker->nranks);
    return rc;
}

/* set may be NULL: all. count and self as in a set. */
static xcclResult_t gather(struct worker *worker, const struct xccl_boot_set *set, size_t bytes)
{
    struct xccl_limit limit = op_limit();
    int count = set ? set->count : worker->nranks, self = set ? set->self : worker->rank;
    uint32_t what = set ? set->tag : 0;
    uint8_t *data = memory((size_t)count * bytes);
    xcclResult_t rc;

    data_fill(data + (size_t)self * bytes, bytes, data_key(worker, self, what));
    rc = xccl_bootstrap_allgather(worker->boot, set, data, bytes, &limit);
    for (int i = 0; i < count && !rc; i++)
        data_check(worker, data + (size_t)i * bytes, bytes, data_key(worker, i, what), i);
    free(data);
    return rc;
}

static xcclResult_t do_allgather_small(struct worker *worker)
{
    size_t bytes = throw_below(worker, 4) == 0 ? throw_below(worker, 2)
                                               : throw_below(worker, SMALL_BYTES);

    worker->self->doing = "small all-gather";
    return gather(worker, NULL, bytes);
}

static xcclResult_t do_allgather_large(struct worker *worker)
{
    size_t most = ALL_BYTES_MAX / ((size_t)worker->nranks * (size_t)worker->nranks) + 1;
    size_t bytes = throw_below(worker, most < LARGE_BYTES ? most : LARGE_BYTES);

    worker->self->doing = "large all-gather";
    return gather(worker, NULL, bytes);
}

static xcclResult_t spread(struct worker *worker, const struct xccl_boot_set *set, int root,
                           size_t bytes)
{
    struct xccl_limit limit = op_limit();
    int self = set ? set->self : worker->rank;
    uint64_t key = data_key(worker, root, set ? set->tag : 0);
    uint8_t *data = memory(bytes);
    xcclResult_t rc;

    if (self == root)
        data_fill(data, bytes, key);
    rc = xccl_bootstrap_broadcast(worker->boot, set, root, data, bytes, &limit);
    if (!rc)
        data_check(worker, data, bytes, key, root);
    free(data);
    return rc;
}

static size_t throw_size(struct worker *worker)
{
    uint64_t most = throw_below(worker, 3) == 0 ? LARGE_BYTES : SMALL_BYTES;

    return throw_below(worker, most);
}

static xcclResult_t do_broadcast(struct worker *worker)
{
    int root = (int)throw_below(worker, (uint64_t)worker->nranks);
    size_t bytes = throw_size(worker);

    worker->self->doing = "broadcast";
    return spread(worker, NULL, root, bytes);
}

static xcclResult_t do_broadcast_every_root(struct worker *worker)
{
    size_t bytes = throw_below(worker, SMALL_BYTES);
    int roots = worker->nranks < 34 ? worker->nranks : 3;
    xcclResult_t rc = xcclSuccess;

    worker->self->doing = "broadcast from every root";
    for (int root = 0; root < roots && !rc; root++)
        rc = spread(worker, NULL, root, bytes);
    return rc;
}

static xcclResult_t send_one(struct worker *worker, int to, uint32_t tag, size_t bytes)
{
    struct xccl_limit limit = op_limit();
    uint8_t *data = memory(bytes);
    xcclResult_t rc;

    data_fill(data, bytes, data_key(worker, worker->rank, tag));
    rc = xccl_bootstrap_send(worker->boot, to, tag, data, bytes, &limit);
    free(data);
    return rc;
}

static xcclResult_t recv_one(struct worker *worker, int from, uint32_t tag, size_t bytes)
{
    struct xccl_limit limit = op_limit();
    uint8_t *data = memory(bytes);
    xcclResult_t rc = xccl_bootstrap_recv(worker->boot, from, tag, data, bytes, &limit);

    if (!rc)
        data_check(worker, data, bytes, data_key(worker, from, tag), from);
    free(data);
    return rc;
}

/* To a rank some way up, three messages; from the one as far down, the last first. */
static xcclResult_t do_tags_out_of_order(struct worker *worker)
{
    int n = worker->nranks, step = n > 1 ? 1 + (int)throw_below(worker, (uint64_t)n - 1) : 0;
    int to = (worker->rank + step) % n, from = (worker->rank + n - step) % n;
    size_t bytes[3];
    xcclResult_t rc = xcclSuccess;

    for (int i = 0; i < 3; i++)
        bytes[i] = throw_below(worker, SMALL_BYTES);
    worker->self->doing = "sends";
    for (int i = 0; i < 3 && n > 1 && !rc; i++)
        rc = send_one(worker, to, (uint32_t)i, bytes[i]);
    worker->self->doing = "receives out of order";
    for (int i = 2; i >= 0 && n > 1 && !rc; i--)
        rc = recv_one(worker, from, (uint32_t)i, bytes[i]);
    return rc;
}

/* Neighbours exchange: even places send first. */
static xcclResult_t do_exchange(struct worker *worker)
{
    int peer = worker->rank ^ 1, first = worker->rank % 2 == 0;
    size_t bytes = throw_size(worker);
    xcclResult_t rc = xcclSuccess;

    worker->self->doing = "exchange";
    if (peer >= worker->nranks)
        return xcclSuccess;
    for (int half = 0; half < 2 && !rc; half++)
        rc = (half == 0) == first ? send_one(worker, peer, 9, bytes)
                                  : recv_one(worker, peer, 9, bytes);
    return rc;
}

/* Shares all ranks out over two sets, in a random order, which work at the same time. */
static xcclResult_t do_subsets(struct worker *worker)
{
    int n = worker->nranks, side_of_self = 0;
    uint64_t what = throw_below(worker, 3), root = throw_below(worker, 1000);
    size_t bytes = throw_size(worker);
    int *ranks = memory((size_t)n * sizeof(*ranks)), *sides = memory((size_t)n * sizeof(*sides));
    struct xccl_boot_set set = {.ranks = ranks};
    struct xccl_limit limit = op_limit();
    xcclResult_t rc;

    worker->self->doing = "an operation of a subset";
    for (int i = 0; i < n; i++)
        sides[i] = (int)throw_below(worker, 2);
    side_of_self = sides[worker->rank];
    for (int i = 0; i < n; i++) {
        /* Drawn by all, so that both sides throw as often. */
        int place = (int)throw_below(worker, (uint64_t)set.count + 1);

        if (sides[i] != side_of_self)
            continue;
        place = place % (set.count + 1);
        ranks[set.count++] = ranks[place];
        ranks[place] = i;
    }
    for (int i = 0; i < set.count; i++) {
        if (ranks[i] == worker->rank)
            set.self = i;
    }
    set.tag = 100 + (uint32_t)side_of_self;
    if (what == 0)
        rc = gather(worker, &set, bytes % (ALL_BYTES_MAX / ((size_t)n * (size_t)n) + 1));
    else if (what == 1)
        rc = spread(worker, &set, (int)(root % (uint64_t)set.count), bytes);
    else
        rc = xccl_bootstrap_barrier(worker->boot, &set, &limit);
    free(ranks);
    free(sides);
    return rc;
}

static xcclResult_t work(struct worker *worker, int op_count);

struct split_place {
    int color, key, rank;
};

static int by_place(const void *a, const void *b)
{
    const struct split_place *left = a, *right = b;

    if (left->key != right->key)
        return left->key < right->key ? -1 : 1;
    return left->rank < right->rank ? -1 : left->rank > right->rank;
}

/* Where a rank should come out, by its own reckoning. Returns the child's ranks. */
static int split_expect(struct worker *worker, int colors, struct split_place *own, int *rank_out)
{
    int n = worker->nranks, count = 0;
    struct split_place *all = memory((size_t)n * sizeof(*all));

    for (int i = 0; i < n; i++) {
        struct split_place place = {.color = (int)throw_below(worker, (uint64_t)colors) - 1,
                                    .key = (int)throw_below(worker, 5) - 2,
                                    .rank = i};

        all[i] = place;
    }
    *own = all[worker->rank];
    for (int i = 0; i < n; i++) {
        if (all[i].color == own->color)
            all[count++] = all[i];
    }
    qsort(all, (size_t)count, sizeof(*all), by_place);
    *rank_out = 0;
    while (all[*rank_out].rank != worker->rank)
        (*rank_out)++;
    free(all);
    return count;
}

static xcclResult_t do_split(struct worker *worker)
{
    struct split_place own;
    struct xccl_limit limit = op_limit();
    struct worker child = *worker;
    xcclResult_t rc;

    if (worker->depth >= SPLIT_DEPTH || sim_job.no_splits)
        return do_barrier(worker);
    worker->self->doing = "split";
    child.nranks = split_expect(worker, 2 + (int)throw_below(worker, 3), &own, &child.rank);
    child.boot = NULL;
    rc = xccl_bootstrap_split(worker->boot, own.color, own.key, &limit, &child.boot);
    if (rc || own.color < 0) {
        if (child.boot)
            sim_fail("rank %d has a child of an error, or of color -1", worker->rank);
        return rc;
    }
    if (xccl_bootstrap_nranks(child.boot) != child.nranks ||
        xccl_bootstrap_rank(child.boot) != child.rank)
        sim_fail("rank %d is %d of %d in its child, not %d of %d", worker->rank,
                 xccl_bootstrap_rank(child.boot), xccl_bootstrap_nranks(child.boot), child.rank,
                 child.nranks);
    child.depth++;
    child.dice ^= (uint64_t)own.color * 0x9e3779b97f4a7c15u;
    rc = work(&child, 2);
    xccl_bootstrap_close(child.boot);
    return rc;
}

typedef xcclResult_t op_fn(struct worker *worker);

static op_fn *const ops[] = {
    do_barrier,           do_allgather_small, do_allgather_large,
    do_allgather_small,   do_broadcast,       do_broadcast_every_root,
    do_tags_out_of_order, do_exchange,        do_subsets,
    do_subsets,           do_split,
};

static xcclResult_t work(struct worker *worker, int op_count)
{
    xcclResult_t rc = xcclSuccess;

    for (int i = 0; !rc && (op_count < 0 || i < op_count); i++) {
        uint64_t kind = throw_below(worker, sizeof(ops) / sizeof(ops[0]));

        worker->op_no++;
        rc = ops[kind](worker);
    }
    /* Kept before the child is closed. */
    return sim_rank_keep(worker->self, rc);
}

/* --- the life of a rank --- */

static void check_joined(const struct worker *worker)
{
    uint8_t key[32];
    const uint8_t none[32] = {0};

    if (xccl_bootstrap_rank(worker->boot) != worker->rank ||
        xccl_bootstrap_nranks(worker->boot) != worker->nranks)
        sim_fail("rank %d of %d was told that it is %d of %d", worker->rank, worker->nranks,
                 xccl_bootstrap_rank(worker->boot), xccl_bootstrap_nranks(worker->boot));
    xccl_bootstrap_derive_key(worker->boot, "sim", key);
    if (memcmp(sim_job.key, none, sizeof(key)) == 0)
        memcpy(sim_job.key, key, sizeof(key));
    if (memcmp(sim_job.key, key, sizeof(key)) != 0)
        sim_fail("rank %d derives another key", worker->rank);
    for (int i = 0; i < worker->nranks && worker->nranks > 1; i++) {
        struct xccl_addr addr, host;

        xccl_bootstrap_addr(worker->boot, i, &addr);
        sim_host_addr(i, &host);
        xccl_addr_set_port(&host, xccl_addr_port(&addr));
        if (!xccl_addr_equal(&addr, &host))
            sim_fail("rank %d has a wrong address for rank %d", worker->rank, i);
        if (i >= 64)
            i += worker->nranks / 16;
    }
}

static xcclResult_t live(struct worker *worker)
{
    xcclResult_t rc;

    check_joined(worker);
    rc = work(worker, sim_job.op_count);
    if (!rc && sim_job.extra)
        rc = sim_job.extra(worker->self, worker->boot);
    if (!rc && sim_job.rest_ns) {
        worker->self->doing = "rests";
        sim_sleep(sim_job.rest_ns);
        if (sim_net_open(worker->self->rank) > DESCRIPTORS_AT_REST) {
            char what[800];

            sim_net_describe(worker->self->rank, what, sizeof(what));
            sim_fail("rank %d has %d descriptors at rest%s", worker->rank,
                     sim_net_open(worker->self->rank), what);
        }
        /* Nobody goes on while others still count. */
        sim_sleep(sim_job.rest_ns);
        worker->op_no = 63;
        rc = do_barrier(worker);
    }
    return rc;
}

void sim_job_run(struct sim_rank *self)
{
    int odd = self->rank == sim_job.odd_host;
    struct worker worker = {.self = self,
                            .rank = odd ? sim_job.odd_rank : self->rank,
                            .nranks = odd ? sim_job.odd_nranks : sim_job.nranks,
                            .dice = sim_job.seed};
    struct xccl_limit limit = xccl_limit_ms(sim_job.join_ms, NULL);
    struct xccl_job job;
    xcclResult_t rc;

    self->doing = "joins";
    rc = xccl_job_init(sim_job.ids, sim_job.id_count, worker.rank, worker.nranks, &job);
    if (!rc)
        rc = xccl_bootstrap_open(&job, worker.rank, worker.nranks, &limit, &worker.boot);
    explicit_bzero(&job, sizeof(job));
    if (sim_rank_keep(self, rc))
        return;
    sim_job.joined++;
    sim_job.boots[self->rank] = worker.boot;
    rc = sim_rank_keep(self, live(&worker));
    self->doing = "closes";
    sim_job.boots[self->rank] = NULL;
    xccl_bootstrap_close(worker.boot);
    sim_job.finished += !rc;
}

void sim_job_reset(uint64_t seed, int nranks)
{
    memset(&sim_job, 0, sizeof(sim_job));
    sim_job.seed = seed;
    sim_job.nranks = nranks;
    sim_job.join_ms = 60000;
    sim_job.op_ms = 60000;
    sim_job.odd_host = -1;
}

void sim_job_make_ids(int id_count, int first_host)
{
    sim_job.id_count = id_count;
    for (int i = 0; i < id_count; i++) {
        int before = sim_host_enter(first_host + i);
        xcclResult_t rc = xccl_unique_id_create(&sim_job.ids[i]);

        if (rc)
            sim_fail("no unique id: %s", xccl_error_text());
        sim_host_enter(before);
    }
}

/* --- reading errors --- */

/* A list of numbers as in "1, 3..7"; moves on behind it. */
static int list_has(const char *at, int rank)
{
    while (isdigit((unsigned char)*at)) {
        char *end;
        long low = strtol(at, &end, 10), high = low;

        if (strncmp(end, "..", 2) == 0)
            high = strtol(end + 2, &end, 10);
        if (rank >= low && rank <= high)
            return 1;
        if (strncmp(end, ", ", 2) != 0)
            return 0;
        at = end + 2;
    }
    return 0;
}

int sim_text_names(const char *text, int rank)
{
    struct xccl_addr addr;
    char host[XCCL_ADDR_TEXT_BYTES];

    sim_host_addr(rank, &addr);
    xccl_addr_format(&addr, host);
    /* "10.0.0.4:0": without the port, with the colon. */
    *(strrchr(host, ':') + 1) = '\0';
    if (strstr(text, host))
        return 1;
    for (const char *at = strstr(text, "rank"); at; at = strstr(at, "rank")) {
        at += 4;
        at += *at == 's';
        if (*at == ' ' && list_has(at + 1, rank))
            return 1;
    }
    return 0;
}
