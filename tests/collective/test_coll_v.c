/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives with a block of its own size for each rank, with data: 1 to 9 ranks over shared
 * memory, over sockets and over both, in processes, threads and groups of one thread. Sizes are
 * drawn, with many zeros, with all at one rank, with several slices; blocks lie packed, or with
 * gaps in any order. What comes out is compared byte by byte with what plain loops here say, with
 * the bytes between blocks and around them, and with the buffer that was only to be read. Ranks
 * whose counts do not agree get an error that names them. */
#include "world.h"

#define RANKS_MAX 9
#define GUARD     64
#define LARGE     300007 /* elements: over a slice of every type, and no multiple of one */

enum transport { SHM, SOCKET, MIXED };
enum coll { GATHER, SCATTER, ALL_TO_ALL, COLLS };

static const struct {
    xcclDataType_t type;
    size_t bytes;
} types[] = {{xcclInt32, 4}, {xcclFloat64, 8}, {xcclUint8, 1}, {xcclInt64, 8}, {xcclFloat32, 4}};
#define TYPES (sizeof types / sizeof types[0])

/* One call, the same on all ranks. */
struct point {
    enum coll coll;
    int type, in_place, packed, round; /* type: of the table */
    xcclRedOp_t op;
    size_t offset; /* bytes that buffers are off their alignment */
    /* From each rank to each; of gather and scatter row 0, by rank. */
    size_t counts[RANKS_MAX][RANKS_MAX];
    uint64_t seed; /* of the places */
};

struct job {
    struct world world;
    enum transport transport;
    int draws;
    uint64_t seed;
};

/* ---- points ---- */

static size_t draw_count(uint64_t *state, int large)
{
    switch (xt_random(state) % 4) {
    case 0:
        return 0;
    case 1:
        return large ? LARGE + xt_random(state) % 3 : xt_random(state) % 4;
    case 2:
        return 1u << xt_random(state) % (large ? 19 : 15); /* slices that are full */
    default:
        return xt_random(state) % 5000;
    }
}

/* Sizes: any, all of one rank, none at all. */
static void draw_counts(uint64_t *state, int nranks, struct point *p)
{
    int how = (int)(xt_random(state) % 8), large = xt_random(state) % 8 == 0;
    int chosen = (int)(xt_random(state) % (uint64_t)nranks);

    for (int i = 0; i < nranks; i++)
        for (int j = 0; j < nranks; j++) {
            int row = p->coll == ALL_TO_ALL ? i : j;
            size_t count = draw_count(state, large);

            p->counts[i][j] = how == 0 || (how == 1 && row != chosen) ? 0 : count;
        }
}

static void draw_point(uint64_t *state, int nranks, int round, struct point *p)
{
    static const xcclRedOp_t exact[] = {xcclSum, xcclMax, xcclMin, xcclProd, xcclAvg};

    memset(p, 0, sizeof *p);
    p->coll = (enum coll)(xt_random(state) % COLLS);
    p->type = (int)(xt_random(state) % TYPES);
    /* Products and averages of floats may round. */
    p->op = exact[xt_random(state) % (types[p->type].type == xcclInt32 ? 5 : 3)];
    p->in_place = p->coll != ALL_TO_ALL && (xt_random(state) & 1);
    p->packed = xt_random(state) % 3 == 0;
    p->offset = xt_random(state) % 3 ? 0 : xt_random(state) % 16;
    p->round = round;
    draw_counts(state, nranks, p);
    p->seed = xt_random(state);
}

/* ---- the plain reference ---- */

static unsigned char input_byte(const struct point *p, int rank, int block, size_t i)
{
    return (unsigned char)((i * 31 + (i >> 8) * 7 + (size_t)rank * 101 + (size_t)block * 57 +
                            (size_t)p->round * 17) ^
                           i >> 11);
}

static int64_t input_number(const struct point *p, int rank, int block, size_t i)
{
    int64_t value = world_value(rank, i + (size_t)block * 3, p->round);

    return types[p->type].type == xcclUint8 ? (uint8_t)value : value;
}

static int64_t sum_up(const struct point *p, int nranks, int block, size_t i)
{
    int64_t value = input_number(p, 0, block, i);

    for (int r = 1; r < nranks; r++) {
        int64_t next = input_number(p, r, block, i);

        if (p->op == xcclMax)
            value = next > value ? next : value;
        else if (p->op == xcclMin)
            value = next < value ? next : value;
        else if (p->op == xcclProd)
            value = (int32_t)((uint64_t)value * (uint64_t)next);
        else
            value += next;
    }
    return p->op == xcclAvg ? value / nranks : value;
}

static void put_number(const struct point *p, char *at, int64_t value)
{
    double real = (double)value;
    float small = (float)value;

    if (types[p->type].type == xcclFloat64)
        memcpy(at, &real, sizeof real);
    else if (types[p->type].type == xcclFloat32)
        memcpy(at, &small, sizeof small);
    else
        memcpy(at, &value, types[p->type].bytes); /* the low bytes come first */
}

/* ---- memory ---- */

/* A side of the call on one rank: blocks in memory of its own, and what that must be afterwards. */
struct side {
    int blocks;
    size_t counts[RANKS_MAX], displs[RANKS_MAX];
    char *memory, *wanted, *base;
    size_t bytes;
};

struct buffers {
    struct side in, out;
    char *send, *recv;
};

/* Places of the blocks in a random order, with gaps; those of empty ones are nonsense. */
static void place_blocks(const struct point *p, uint64_t state, struct side *s)
{
    int order[RANKS_MAX];
    size_t at = 0;

    for (int i = 0; i < s->blocks; i++)
        order[i] = i;
    for (int i = s->blocks - 1; i > 0 && !p->packed; i--) {
        int other = (int)(xt_random(&state) % (uint64_t)(i + 1)), kept = order[i];

        order[i] = order[other];
        order[other] = kept;
    }
    for (int i = 0; i < s->blocks; i++) {
        size_t count = s->counts[order[i]];

        at += p->packed ? 0 : xt_random(&state) % 6;
        s->displs[order[i]] = count || p->packed ? at : SIZE_MAX - 3;
        at += count;
    }
    s->bytes = at * types[p->type].bytes + 2 * GUARD + 16;
}

static void side_init(const struct point *p, uint64_t state, struct side *s)
{
    place_blocks(p, state, s);
    s->memory = malloc(s->bytes);
    s->wanted = malloc(s->bytes);
    XT_CHECK(s->memory && s->wanted);
    memset(s->memory, 0x5a, s->bytes);
    memset(s->wanted, 0x5a, s->bytes);
    s->base = s->memory + GUARD + p->offset;
}

static char *block_at(const struct point *p, const struct side *s, int block)
{
    return s->counts[block] ? s->base + s->displs[block] * types[p->type].bytes : s->base;
}

static char *wanted_at(const struct point *p, const struct side *s, int block)
{
    return s->wanted + (block_at(p, s, block) - s->memory);
}

/* What rank puts into block number `block`, at `at`; the same place in both copies. */
static void fill_block(const struct point *p, int rank, int block, size_t count, char *at)
{
    size_t bytes = types[p->type].bytes;

    for (size_t i = 0; p->coll == SCATTER && i < count; i++)
        put_number(p, at + i * bytes, input_number(p, rank, block, i));
    for (size_t i = 0; p->coll != SCATTER && i < count * bytes; i++)
        at[i] = (char)input_byte(p, rank, block, i);
}

static void set_counts(const struct point *p, int rank, int nranks, struct buffers *b)
{
    b->in.blocks = p->coll == GATHER ? 1 : nranks;
    b->out.blocks = p->coll == SCATTER ? 1 : nranks;
    for (int i = 0; i < nranks; i++) {
        b->in.counts[i] = p->counts[p->coll == ALL_TO_ALL ? rank : 0][i];
        b->out.counts[i] = p->coll == ALL_TO_ALL ? p->counts[i][rank] : p->counts[0][i];
    }
    if (p->coll == GATHER)
        b->in.counts[0] = p->counts[0][rank];
    if (p->coll == SCATTER)
        b->out.counts[0] = p->counts[0][rank];
}

/* What comes out. to: the side in whose memory it lies; block of it. */
static void fill_output(const struct point *p, int rank, int nranks, const struct side *to,
                        int block)
{
    size_t bytes = types[p->type].bytes;
    char *at = wanted_at(p, to, block);

    if (p->coll == SCATTER)
        for (size_t i = 0; i < to->counts[block]; i++)
            put_number(p, at + i * bytes, sum_up(p, nranks, rank, i));
    else
        fill_block(p, block, p->coll == GATHER ? 0 : rank, to->counts[block], at);
}

static void buffers_init(struct buffers *b, const struct point *p, int rank, int nranks)
{
    set_counts(p, rank, nranks, b);
    side_init(p, p->seed + (uint64_t)rank, &b->in);
    side_init(p, p->seed * 3 + (uint64_t)rank, &b->out);
    b->send = p->coll == GATHER ? block_at(p, &b->in, 0) : b->in.base;
    b->recv = p->coll == SCATTER ? block_at(p, &b->out, 0) : b->out.base;
    if (p->in_place && p->coll == GATHER)
        b->send = block_at(p, &b->out, rank);
    if (p->in_place && p->coll == SCATTER)
        b->recv = block_at(p, &b->in, rank);
    if (p->coll == GATHER)
        fill_block(p, rank, 0, b->in.counts[0], b->send);
    for (int i = 0; i < b->in.blocks && p->coll != GATHER; i++)
        fill_block(p, rank, i, b->in.counts[i], block_at(p, &b->in, i));
    memcpy(b->in.wanted, b->in.memory, b->in.bytes);
    if (p->in_place && p->coll == SCATTER)
        fill_output(p, rank, nranks, &b->in, rank);
    for (int i = 0; i < b->out.blocks && !(p->in_place && p->coll == SCATTER); i++)
        fill_output(p, rank, nranks, &b->out, i);
}

_Noreturn static void fail_at(const struct point *p, int rank, int nranks, const char *what)
{
    static const char *const names[] = {"all-gather-v", "reduce-scatter-v", "all-to-all-v"};

    XT_FAIL("rank %d of %d: %s, round %d (type %d, op %d, in place %d, packed %d, offset %zu): %s",
            rank, nranks, names[p->coll], p->round, (int)types[p->type].type, (int)p->op,
            p->in_place, p->packed, p->offset, what);
}

static void side_check(const struct side *s, const char *name, const struct point *p, int rank,
                       int nranks)
{
    char text[100];
    size_t at = 0;

    if (memcmp(s->memory, s->wanted, s->bytes) == 0)
        return;
    while (s->memory[at] == s->wanted[at])
        at++;
    snprintf(text, sizeof text, "byte %ld of the %s buffer is %#x, not %#x",
             (long)(s->memory + at - s->base), name, (unsigned char)s->memory[at],
             (unsigned char)s->wanted[at]);
    fail_at(p, rank, nranks, text);
}

static void buffers_check(const struct buffers *b, const struct point *p, int rank, int nranks)
{
    side_check(&b->in, "send", p, rank, nranks);
    side_check(&b->out, "receive", p, rank, nranks);
}

static void buffers_fini(struct buffers *b)
{
    free(b->in.memory);
    free(b->in.wanted);
    free(b->out.memory);
    free(b->out.wanted);
}

/* ---- calls ---- */

/* The arrays are gone when it returns. */
static xcclResult_t call(const struct point *p, const struct buffers *b, xcclComm_t comm)
{
    xcclDataType_t type = types[p->type].type;
    struct side in = b->in, out = b->out;
    xcclResult_t rc;

    if (p->coll == GATHER)
        rc = xcclAllGatherv(b->send, in.counts[0], b->recv, out.counts,
                            p->packed ? NULL : out.displs, type, comm, NULL);
    else if (p->coll == SCATTER)
        rc = xcclReduceScatterv(b->send, in.counts, p->packed ? NULL : in.displs, b->recv,
                                out.counts[0], type, p->op, comm, NULL);
    else
        rc = xcclAlltoAllv(b->send, in.counts, p->packed ? NULL : in.displs, b->recv, out.counts,
                           p->packed ? NULL : out.displs, type, comm, NULL);
    memset(&in, 0xee, sizeof in);
    memset(&out, 0xee, sizeof out);
    return rc;
}

static void run_point(const struct point *p, xcclComm_t comm, int rank, int nranks)
{
    struct buffers b;
    int grouped = p->round % 4 == 1;

    buffers_init(&b, p, rank, nranks);
    if (grouped) {
        XT_OK(xcclGroupStart());
        XT_OK(xcclBarrier(comm, NULL));
    }
    if (call(p, &b, comm) || (grouped && xcclGroupEnd()))
        fail_at(p, rank, nranks, xcclGetLastError(NULL));
    buffers_check(&b, p, rank, nranks);
    if (p->round % 4 == 2) { /* the plan of the call before */
        buffers_fini(&b);
        buffers_init(&b, p, rank, nranks);
        if (call(p, &b, comm))
            fail_at(p, rank, nranks, xcclGetLastError(NULL));
        buffers_check(&b, p, rank, nranks);
    }
    buffers_fini(&b);
}

static void run_rank(int rank, int nranks, void *arg)
{
    struct job *job = arg;
    uint64_t state = job->seed;
    xcclComm_t comm;

    /* Ranks of one host without shared memory stand for hosts of their own. */
    if (job->transport == SOCKET || (job->transport == MIXED && rank % 3 == 2))
        xt_setenv("XCCL_SHM_DISABLE", "1");
    comm = world_join(&job->world, rank, nranks);
    for (int i = 0; i < job->draws; i++) {
        struct point p;

        draw_point(&state, nranks, i, &p);
        run_point(&p, comm, rank, nranks);
    }
    XT_OK(xcclCommDestroy(comm));
}

static struct job *job_create(enum transport transport, int draws)
{
    struct job *job = mmap(NULL, sizeof *job, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                           -1, 0);

    XT_CHECK(job != MAP_FAILED);
    xt_set_error_source(world_error);
    job->transport = transport;
    job->draws = draws;
    job->seed = xt_seed();
    return job;
}

#ifdef XCCL_SANITIZED
#define MOST_RANKS 5 /* all that there is to see; more only take longer */
#else
#define MOST_RANKS RANKS_MAX
#endif

static void every_number_of_ranks(enum transport transport)
{
    for (int n = 1; n <= MOST_RANKS; n++) {
        struct job *job = job_create(transport, 30);

        job->seed += (uint64_t)n;
        xt_mp_run(n, run_rank, job);
        munmap(job, sizeof *job);
    }
}

#define DEADLINE 240

XT_TEST_DEADLINE(any_sizes_over_shared_memory, DEADLINE)
{
    every_number_of_ranks(SHM);
}

XT_TEST_DEADLINE(any_sizes_over_sockets, DEADLINE)
{
    every_number_of_ranks(SOCKET);
}

XT_TEST_DEADLINE(any_sizes_over_both, DEADLINE)
{
    every_number_of_ranks(MIXED);
}

XT_TEST_DEADLINE(any_sizes_with_every_algorithm_that_serves_them, DEADLINE)
{
    static const char *const settings[] = {"ring",           "mesh",          "all_gather:rhd",
                                           "all_gather:nhr", "all_gather:nb", "all_gather:pat"};

    for (int i = 0; i < 6; i++) {
        struct job *job = job_create((enum transport)(i % 3), 20);

        xt_setenv("XCCL_ALGO", settings[i]);
        xt_mp_run(5 + i % 3, run_rank, job);
        munmap(job, sizeof *job);
    }
}

XT_TEST_DEADLINE(any_sizes_among_threads_of_one_process, DEADLINE)
{
    xt_threads_run(5, run_rank, job_create(SHM, 40));
}

XT_TEST_DEADLINE(any_sizes_for_all_ranks_of_one_thread_in_groups, DEADLINE)
{
    enum { N = 6 };
    struct job *job = job_create(SHM, 0);
    struct buffers b[N];
    xcclComm_t comms[N];
    uint64_t state = job->seed;

    XT_OK(xcclGetUniqueId(&job->world.ids[0]));
    XT_OK(xcclGroupStart());
    for (int r = 0; r < N; r++)
        XT_OK(xcclCommInitRank(&comms[r], N, job->world.ids[0], r));
    XT_OK(xcclGroupEnd());
    for (int i = 0; i < 40; i++) {
        struct point p;

        draw_point(&state, N, i, &p);
        for (int r = 0; r < N; r++)
            buffers_init(&b[r], &p, r, N);
        XT_OK(xcclGroupStart());
        for (int r = 0; r < N; r++)
            XT_OK(call(&p, &b[r], comms[r]));
        XT_OK(xcclGroupEnd());
        for (int r = 0; r < N; r++) {
            buffers_check(&b[r], &p, r, N);
            buffers_fini(&b[r]);
        }
    }
    XT_OK(xcclGroupStart());
    for (int r = 0; r < N; r++)
        XT_OK(xcclCommDestroy(comms[r]));
    XT_OK(xcclGroupEnd());
}

/* ---- ranks that disagree ---- */

/* Rank 1 of three is wrong about one count: of what it sends to rank 2. */
struct wrong {
    struct world world;
    enum coll coll;
    size_t right, wrong;
    int sockets;
};

static xcclResult_t call_wrongly(const struct wrong *w, int rank, size_t count, int *data,
                                 xcclComm_t comm)
{
    size_t some[3] = {5, 0, 7}, other[3] = {5, 0, 7};
    int *out = data + 4000000;

    if (w->coll == ALL_TO_ALL) {
        for (int i = 0; i < 3; i++)
            some[i] = other[i] = (size_t)rank + (size_t)i;
        if (rank == 1)
            some[2] = count;
        if (rank == 2)
            other[1] = w->right;
        return xcclAlltoAllv(data, some, NULL, out, other, NULL, xcclInt32, comm, NULL);
    }
    some[2] = rank == 1 ? count : w->right;
    if (w->coll == GATHER)
        return xcclAllGatherv(data, some[rank], out, some, NULL, xcclInt32, comm, NULL);
    return xcclReduceScatterv(data, some, NULL, out, some[rank], xcclInt32, xcclSum, comm, NULL);
}

static void be_wrong(int rank, int nranks, void *arg)
{
    struct wrong *w = arg;
    int *data = calloc(8000000, sizeof *data);
    const char *text;
    xcclComm_t comm;
    xcclResult_t rc;
    double start;

    XT_CHECK(data);
    if (w->sockets)
        xt_setenv("XCCL_SHM_DISABLE", "1");
    comm = world_join(&w->world, rank, nranks);
    XT_OK(call_wrongly(w, rank, w->right, data, comm));
    world_meet(&w->world, nranks);
    start = world_seconds();
    rc = call_wrongly(w, rank, w->wrong, data, comm);
    if (!rc) /* those that are not concerned may be done before the error is known */
        rc = xcclBarrier(comm, NULL);
    XT_CHECK_RC(rc, xcclInvalidUsage);
    text = xcclGetLastError(comm);
    XT_CHECK_HAS(text, "ranks disagree");
    XT_CHECK_HAS(text, "call 2");
    XT_CHECK_HAS(text, "rank 1");
    if (w->coll == ALL_TO_ALL) {
        XT_CHECK_HAS(text, "rank 2 is in call 2: all-to-all-v of 9 int32 sent and expects");
        XT_CHECK_HAS(text, "from rank 1, but rank 1 (host ");
        XT_CHECK_HAS(text, "sendcounts[2] of rank 1 must equal recvcounts[1] of rank 2");
    } else {
        XT_CHECK_HAS(text, w->coll == GATHER ? "all-gather-v of " : "reduce-scatter-v of ");
        XT_CHECK_HAS(text, " in total (hash of counts ");
        XT_CHECK_HAS(text, "with the same counts");
    }
    XT_CHECK(world_seconds() - start < 10);
    XT_OK(xcclCommDestroy(comm));
    free(data);
}

static void wrong(enum coll coll, size_t right, size_t wrong, int sockets)
{
    struct wrong *w = mmap(NULL, sizeof *w, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                           0);

    XT_CHECK(w != MAP_FAILED);
    xt_set_error_source(world_error);
    w->coll = coll;
    w->right = right;
    w->wrong = wrong;
    w->sockets = sockets;
    xt_mp_run(3, be_wrong, w);
    munmap(w, sizeof *w);
}

static void wrong_in_all_ways(enum coll coll, int sockets)
{
    static const size_t pairs[][2] = {{10, 11},
                                      {0, 10},
                                      {10, 0},
                                      {1000, 900000},
                                      {1u << 18, 1u << 19},
                                      {1u << 19, 1u << 18},
                                      {1u << 18, 0},
                                      {1u << 21, 1u << 16},
                                      {1u << 16, 1u << 21}};

    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        wrong(coll, pairs[i][0], pairs[i][1], sockets);
}

XT_TEST_DEADLINE(a_wrong_count_of_all_to_all_is_an_error_that_names_both_ranks, DEADLINE)
{
    wrong_in_all_ways(ALL_TO_ALL, 0);
}
XT_TEST_DEADLINE(a_wrong_count_of_all_to_all_over_sockets_is_an_error_too, DEADLINE)
{
    wrong_in_all_ways(ALL_TO_ALL, 1);
}
XT_TEST_DEADLINE(a_wrong_count_of_all_gather_is_an_error, DEADLINE)
{
    wrong_in_all_ways(GATHER, 0);
}
XT_TEST_DEADLINE(a_wrong_count_of_all_gather_over_sockets_is_an_error, DEADLINE)
{
    wrong_in_all_ways(GATHER, 1);
}
XT_TEST_DEADLINE(a_wrong_count_of_reduce_scatter_is_an_error, DEADLINE)
{
    wrong_in_all_ways(SCATTER, 0);
}
XT_TEST_DEADLINE(a_wrong_count_of_reduce_scatter_over_sockets_is_an_error, DEADLINE)
{
    wrong_in_all_ways(SCATTER, 1);
}

/* One rank makes the plain call of the same name, with the same counts. */
static void one_is_plain(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    size_t counts[3] = {4, 4, 4};
    xcclComm_t comm = world_join(world, rank, nranks);
    int in[12] = {0}, out[12];
    xcclResult_t rc;

    if (rank == 2)
        rc = xcclAlltoAll(in, out, 4, xcclInt32, comm, NULL);
    else
        rc = xcclAlltoAllv(in, counts, NULL, out, counts, NULL, xcclInt32, comm, NULL);
    if (!rc)
        rc = xcclBarrier(comm, NULL);
    XT_CHECK_RC(rc, xcclInvalidUsage);
    XT_CHECK_HAS(xcclGetLastError(comm), "all-to-all of 4 int32");
    XT_CHECK_HAS(xcclGetLastError(comm), "all-to-all-v of 12 int32 sent");
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(a_plain_call_among_v_calls_is_an_error_that_tells_them_apart)
{
    xt_mp_run(3, one_is_plain, world_create());
}

/* Calls with sizes count nothing, and so does an empty plain one: none is taken for another. */
static void in_turn(int rank, int nranks, void *arg)
{
    xcclComm_t comm = world_join(arg, rank, nranks);
    size_t counts[3] = {2, 2, 2};

    for (int round = 0; round < 6; round++) {
        int in[6], out[6] = {-1, -1, -1, -1, -1, -1};

        for (int i = 0; i < 6; i++)
            in[i] = 100 * rank + i;
        XT_OK(xcclAlltoAll(in, out, 0, xcclInt32, comm, NULL));
        if (round % 2)
            XT_OK(xcclAlltoAll(in, out, 0, xcclInt32, comm, NULL));
        for (int i = 0; i < 6; i++)
            XT_CHECK_INT(out[i], -1);
        XT_OK(xcclAlltoAllv(in, counts, NULL, out, counts, NULL, xcclInt32, comm, NULL));
        for (int i = 0; i < 6; i++)
            XT_CHECK_INT(out[i], 100 * (i / 2) + 2 * rank + i % 2);
    }
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(empty_plain_calls_between_those_with_sizes_move_nothing)
{
    xt_mp_run(3, in_turn, world_create());
}
