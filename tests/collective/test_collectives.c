/* SPDX-License-Identifier: BSD-3-Clause */
/* Every algorithm of every collective, through the public calls and with data: 1 to 9 ranks over
 * shared memory, over sockets and over both, counts around every edge, all roots, in place and not.
 * What comes out is compared with what a few plain loops here say, byte by byte, with the bytes
 * around it and with the buffer that was only to be read.
 *
 * A job of ranks is started for each number of ranks, transport and row; row k has the k-th
 * algorithm of each collective. Within a job the cases are such that every two values of count,
 * place, root, type and alignment meet somewhere. XT_COLLECTIVES=all in the environment takes every
 * combination instead, and so for long. All types, operators and pointers: test_product.c. */
#include "world.h"

#include "schedule/generators.h"

enum transport { SHM, SOCKET, MIXED };

#define COLLS      (XCCL_COLL_BARRIER + 1) /* transfers between two ranks are no collective */
#define RANKS_MAX  9
#define ROWS_MAX   16
#define GUARD      64
#define SETTING    512
#define RANDOM_ALL 200 /* drawn cases, over all numbers of ranks */

static const size_t counts[] = {0, 1, 2, 3, 13, 31, 64, 257, 1000, 4097, 20011};
#define COUNTS (sizeof counts / sizeof counts[0])

static const xcclDataType_t moved_types[] = {xcclFloat32, xcclInt8, xcclFloat64, xcclBfloat16,
                                             xcclInt32};
static const xcclDataType_t reduced_types[] = {xcclFloat32, xcclInt32, xcclInt8,  xcclUint64,
                                               xcclFloat64, xcclUint8, xcclInt64, xcclUint32};
#define MOVED_TYPES   (sizeof moved_types / sizeof moved_types[0])
#define REDUCED_TYPES (sizeof reduced_types / sizeof reduced_types[0])

struct point {
    enum xccl_coll coll;
    xcclDataType_t type;
    xcclRedOp_t op;
    size_t count, offset; /* bytes that the buffers are off their alignment */
    int root, in_place, round;
};

struct job {
    struct world world;
    enum transport transport;
    char setting[SETTING]; /* XCCL_ALGO; "": the library chooses */
    int row, large, draws; /* a large count too; so many drawn cases in place of the fixed ones */
    uint64_t seed;
    int in_groups; /* every call as a group of two */
};

static size_t type_bytes(xcclDataType_t type)
{
    switch ((int)type) {
    case xcclInt64:
    case xcclUint64:
    case xcclFloat64:
        return 8;
    case xcclInt32:
    case xcclUint32:
    case xcclFloat32:
        return 4;
    case xcclBfloat16:
        return 2;
    default:
        return 1;
    }
}

static int is_float(xcclDataType_t type)
{
    return type == xcclFloat32 || type == xcclFloat64;
}

/* ---- the plain reference ---- */

static int reduces(enum xccl_coll coll)
{
    return coll == XCCL_COLL_ALL_REDUCE || coll == XCCL_COLL_REDUCE ||
           coll == XCCL_COLL_REDUCE_SCATTER;
}

/* Blocks that a buffer has on this rank. */
static int send_blocks(const struct point *p, int rank, int nranks)
{
    switch (p->coll) {
    case XCCL_COLL_BROADCAST:
        return rank == p->root;
    case XCCL_COLL_SCATTER:
        return rank == p->root ? nranks : 0;
    case XCCL_COLL_REDUCE_SCATTER:
    case XCCL_COLL_ALL_TO_ALL:
        return nranks;
    default:
        return 1;
    }
}

static int recv_blocks(const struct point *p, int rank, int nranks)
{
    switch (p->coll) {
    case XCCL_COLL_REDUCE:
        return rank == p->root;
    case XCCL_COLL_GATHER:
        return rank == p->root ? nranks : 0;
    case XCCL_COLL_ALL_GATHER:
    case XCCL_COLL_ALL_TO_ALL:
        return nranks;
    default:
        return 1;
    }
}

static unsigned char input_byte(const struct point *p, int rank, size_t i)
{
    return (unsigned char)((i * 31 + (i >> 8) * 7 + (size_t)rank * 101 + (size_t)p->round * 17) ^
                           i >> 11);
}

/* A number as the type keeps it. Floats of these tests are whole numbers. */
static int64_t wrap(xcclDataType_t type, int64_t value)
{
    switch ((int)type) {
    case xcclInt8:
        return (int8_t)value;
    case xcclUint8:
        return (uint8_t)value;
    case xcclInt32:
        return (int32_t)value;
    case xcclUint32:
        return (uint32_t)value;
    default:
        return value;
    }
}

/* Element i of a rank's input. Products of floats stay small enough to be exact. */
static int64_t input_number(const struct point *p, int rank, size_t i)
{
    int value = world_value(rank, i, p->round);

    if (p->op == xcclProd)
        value = value & 1 ? 2 : value & 2 ? -1 : 1;
    return wrap(p->type, value);
}

static int64_t combine(const struct point *p, int64_t a, int64_t b)
{
    int a_less = p->type == xcclUint64 ? (uint64_t)a < (uint64_t)b : a < b;

    switch ((int)p->op) {
    case xcclProd:
        return wrap(p->type, (int64_t)((uint64_t)a * (uint64_t)b));
    case xcclMax:
        return a_less ? b : a;
    case xcclMin:
        return a_less ? a : b;
    default:
        return wrap(p->type, (int64_t)((uint64_t)a + (uint64_t)b));
    }
}

static int64_t divide(const struct point *p, int64_t sum, int nranks)
{
    if (p->type == xcclUint64)
        return (int64_t)((uint64_t)sum / (uint64_t)nranks);
    return sum / nranks;
}

static void put_number(const struct point *p, char *at, int64_t value)
{
    double real = (double)value;
    float small = (float)value;

    if (p->type == xcclFloat64)
        memcpy(at, &real, sizeof real);
    else if (p->type == xcclFloat32)
        memcpy(at, &small, sizeof small);
    else
        memcpy(at, &value, type_bytes(p->type)); /* the low bytes come first */
}

static void fill_input(const struct point *p, int rank, char *at, size_t count)
{
    size_t bytes = type_bytes(p->type);

    for (size_t i = 0; reduces(p->coll) && i < count; i++)
        put_number(p, at + i * bytes, input_number(p, rank, i));
    for (size_t i = 0; !reduces(p->coll) && i < count * bytes; i++)
        at[i] = (char)input_byte(p, rank, i);
}

/* What block `block` of this rank's output must be. */
static void fill_output(const struct point *p, int rank, int nranks, int block, char *at)
{
    size_t bytes = type_bytes(p->type), first = 0;
    int from = block;

    if (p->coll == XCCL_COLL_REDUCE_SCATTER || p->coll == XCCL_COLL_ALL_TO_ALL ||
        p->coll == XCCL_COLL_SCATTER)
        first = (size_t)rank * p->count;
    if (p->coll == XCCL_COLL_BROADCAST || p->coll == XCCL_COLL_SCATTER)
        from = p->root;
    for (size_t i = 0; reduces(p->coll) && i < p->count; i++) {
        int64_t value = input_number(p, 0, first + i);

        for (int r = 1; r < nranks; r++)
            value = combine(p, value, input_number(p, r, first + i));
        put_number(p, at + i * bytes, p->op == xcclAvg ? divide(p, value, nranks) : value);
    }
    for (size_t i = 0; !reduces(p->coll) && i < p->count * bytes; i++)
        at[i] = (char)input_byte(p, from, first * bytes + i);
}

/* ---- one call ---- */

/* The memory of a call: what it is given, and copies of what it must be afterwards. */
struct buffers {
    char *memory[2], *wanted[2];
    size_t bytes[2];
    char *send, *recv;
};

static char *take(size_t bytes)
{
    char *memory = malloc(bytes);

    XT_CHECK(memory);
    memset(memory, 0x5a, bytes);
    return memory;
}

static void buffers_init(struct buffers *b, const struct point *p, int rank, int nranks)
{
    size_t block = p->count * type_bytes(p->type);
    int sends = send_blocks(p, rank, nranks), recvs = recv_blocks(p, rank, nranks);
    size_t send_at = p->in_place && recvs > sends ? block * (size_t)rank : 0;
    size_t recv_at = p->in_place && sends > recvs ? block * (size_t)rank : 0;
    int to = p->in_place ? 0 : 1;

    for (int i = 0; i < 2; i++) {
        size_t blocks = (size_t)(p->in_place && recvs > sends ? recvs : i ? recvs : sends);

        b->bytes[i] = block * blocks + 2 * GUARD + 16;
        b->memory[i] = take(b->bytes[i]);
        b->wanted[i] = take(b->bytes[i]);
    }
    b->send = sends ? b->memory[0] + GUARD + p->offset + send_at : NULL;
    b->recv = recvs ? b->memory[to] + GUARD + p->offset + recv_at : NULL;
    if (sends)
        fill_input(p, rank, b->send, p->count * (size_t)sends);
    memcpy(b->wanted[0], b->memory[0], b->bytes[0]);
    for (int i = 0; i < recvs; i++)
        fill_output(p, rank, nranks, i,
                    b->wanted[to] + (b->recv - b->memory[to]) + block * (size_t)i);
}

/* Ends the test, with the point at which it went wrong. */
_Noreturn static void fail_at(const struct point *p, int rank, int nranks, const char *what)
{
    const char *setting = getenv("XCCL_ALGO");

    XT_FAIL("rank %d of %d: %s (count %zu, type %d, op %d, root %d, in place %d, offset %zu; "
            "XCCL_ALGO %s): %s",
            rank, nranks, xccl_coll_name(p->coll), p->count, (int)p->type, (int)p->op, p->root,
            p->in_place, p->offset, setting ? setting : "auto", what);
}

static void buffers_check(const struct buffers *b, const struct point *p, int rank, int nranks)
{
    for (int i = 0; i < 2; i++) {
        char text[100];
        size_t at = 0;

        if (memcmp(b->memory[i], b->wanted[i], b->bytes[i]) == 0)
            continue;
        while (b->memory[i][at] == b->wanted[i][at])
            at++;
        snprintf(text, sizeof text, "byte %ld of the %s buffer is %#x, not %#x",
                 (long)at - GUARD - (long)p->offset, i || p->in_place ? "receive" : "send",
                 (unsigned char)b->memory[i][at], (unsigned char)b->wanted[i][at]);
        fail_at(p, rank, nranks, text);
    }
}

static void buffers_fini(struct buffers *b)
{
    for (int i = 0; i < 2; i++) {
        free(b->memory[i]);
        free(b->wanted[i]);
    }
}

static xcclResult_t call(const struct point *p, const struct buffers *b, xcclComm_t comm)
{
    switch (p->coll) {
    case XCCL_COLL_BROADCAST:
        if (p->in_place)
            return xcclBcast(b->recv, p->count, p->type, p->root, comm, NULL);
        return xcclBroadcast(b->send, b->recv, p->count, p->type, p->root, comm, NULL);
    case XCCL_COLL_REDUCE:
        return xcclReduce(b->send, b->recv, p->count, p->type, p->op, p->root, comm, NULL);
    case XCCL_COLL_ALL_GATHER:
        return xcclAllGather(b->send, b->recv, p->count, p->type, comm, NULL);
    case XCCL_COLL_REDUCE_SCATTER:
        return xcclReduceScatter(b->send, b->recv, p->count, p->type, p->op, comm, NULL);
    case XCCL_COLL_ALL_REDUCE:
        return xcclAllReduce(b->send, b->recv, p->count, p->type, p->op, comm, NULL);
    case XCCL_COLL_ALL_TO_ALL:
        return xcclAlltoAll(b->send, b->recv, p->count, p->type, comm, NULL);
    case XCCL_COLL_GATHER:
        return xcclGather(b->send, b->recv, p->count, p->type, p->root, comm, NULL);
    case XCCL_COLL_SCATTER:
        return xcclScatter(b->send, b->recv, p->count, p->type, p->root, comm, NULL);
    default:
        return xcclBarrier(comm, NULL);
    }
}

/* Nobody leaves before all have come. */
static void barrier(struct job *job, xcclComm_t comm, int nranks)
{
    int arrived = atomic_fetch_add_explicit(&job->world.arrived, 1, memory_order_acq_rel);
    int all = (arrived / nranks + 1) * nranks;

    XT_OK(xcclBarrier(comm, NULL));
    XT_CHECK(atomic_load_explicit(&job->world.arrived, memory_order_acquire) >= all);
    XT_OK(xcclBarrier(comm, NULL)); /* so that the next round does not count into this one */
}

static void run_point(struct job *job, const struct point *p, xcclComm_t comm, int rank, int nranks)
{
    struct buffers b;
    xcclResult_t rc;

    if (p->coll == XCCL_COLL_BARRIER) {
        barrier(job, comm, nranks);
        return;
    }
    buffers_init(&b, p, rank, nranks);
    if (job->in_groups) {
        XT_OK(xcclGroupStart());
        XT_OK(xcclBarrier(comm, NULL));
    }
    rc = call(p, &b, comm);
    if (job->in_groups && !rc)
        rc = xcclGroupEnd();
    if (rc)
        fail_at(p, rank, nranks, xcclGetLastError(NULL));
    buffers_check(&b, p, rank, nranks);
    buffers_fini(&b);
}

/* ---- cases ---- */

/* The operator goes round with the type; averages of floats, which may round, are left to others.
 */
static void set_type(struct point *p, size_t number)
{
    p->type = reduces(p->coll) ? reduced_types[number % REDUCED_TYPES]
                               : moved_types[number % MOVED_TYPES];
    p->op = (xcclRedOp_t)(number % xcclNumOps);
    if (p->op == xcclAvg && is_float(p->type))
        p->op = xcclSum;
}

/* Several slices of every link: over 1 MiB in all. */
static size_t large_count(const struct point *p)
{
    int is_vector = p->coll == XCCL_COLL_ALL_REDUCE || p->coll == XCCL_COLL_BROADCAST ||
                    p->coll == XCCL_COLL_REDUCE;

    return (is_vector ? 1200009 : 600009) / type_bytes(p->type);
}

static int is_all(void)
{
    const char *how = getenv("XT_COLLECTIVES");

    return how && strcmp(how, "all") == 0;
}

/* Case number i of a collective when all are wanted. Few are large. */
static int any_point(const struct job *job, int nranks, size_t i, struct point *p)
{
    size_t at = i / (COUNTS + 1), types = reduces(p->coll) ? REDUCED_TYPES : MOVED_TYPES;
    size_t n = xccl_coll_rooted(p->coll) ? (size_t)nranks : 1;

    p->in_place = (int)(at & 1);
    p->root = (int)(at / 2 % n);
    set_type(p, at / 2 / n + i);
    p->offset = i % 3 ? 0 : i % 16;
    if (i % (COUNTS + 1) < COUNTS)
        p->count = counts[i % (COUNTS + 1)];
    else
        p->count = at / 2 == (size_t)job->row % n ? large_count(p) : 5003;
    return at < 2 * n * types;
}

/* Case number i of a collective in this job; 0: there are no more. */
static int fixed_point(const struct job *job, int nranks, size_t i, struct point *p)
{
    size_t salt = (size_t)job->row + (size_t)nranks + (size_t)job->transport;

    p->round = (int)i;
    if (is_all())
        return any_point(job, nranks, i, p);
    p->in_place = (int)(i + salt / 2) & 1;
    p->root = (int)((i * 2 + salt) % (size_t)nranks);
    p->offset = (salt + i) % 3 ? 0 : (salt + i) % 16;
    set_type(p, i + salt);
    p->count = i < COUNTS ? counts[i] : large_count(p);
    return i < COUNTS + (size_t)job->large;
}

static void drawn_point(uint64_t *state, int nranks, int round, struct point *p)
{
    p->coll = (enum xccl_coll)(xt_random(state) % COLLS);
    p->count = counts[xt_random(state) % COUNTS] + xt_random(state) % 5;
    p->in_place = (int)(xt_random(state) & 1);
    p->root = (int)(xt_random(state) % (size_t)nranks);
    p->offset = xt_random(state) % 16;
    p->round = round;
    set_type(p, xt_random(state));
}

static void run_cases(struct job *job, xcclComm_t comm, int rank, int nranks)
{
    uint64_t state = job->seed;
    struct point p = {.coll = XCCL_COLL_BARRIER};

    for (int i = 0; i < job->draws; i++) {
        drawn_point(&state, nranks, i, &p);
        p.in_place = p.in_place && p.coll != XCCL_COLL_ALL_TO_ALL;
        run_point(job, &p, comm, rank, nranks);
    }
    for (int coll = 0; coll < COLLS && !job->draws; coll++) {
        p.coll = (enum xccl_coll)coll;
        for (size_t i = 0; fixed_point(job, nranks, i, &p); i++) {
            p.in_place = p.in_place && p.coll != XCCL_COLL_ALL_TO_ALL;
            run_point(job, &p, comm, rank, nranks);
        }
    }
}

static void run_rank(int rank, int nranks, void *arg)
{
    struct job *job = arg;
    xcclComm_t comm;

    /* Ranks of one host without shared memory stand for hosts of their own. */
    if (job->transport == SOCKET || (job->transport == MIXED && rank % 3 == 2))
        xt_setenv("XCCL_SHM_DISABLE", "1");
    if (*job->setting)
        xt_setenv("XCCL_ALGO", job->setting);
    comm = world_join(&job->world, rank, nranks);
    run_cases(job, comm, rank, nranks);
    XT_OK(xcclCommDestroy(comm));
}

/* ---- jobs ---- */

static struct job *job_create(enum transport transport)
{
    struct job *job = mmap(NULL, sizeof *job, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                           -1, 0);

    XT_CHECK(job != MAP_FAILED);
    xt_set_error_source(world_error);
    job->transport = transport;
    job->seed = xt_seed();
    return job;
}

/* Writes algorithm number row of a collective, or its last one: those that serve so many ranks,
 * and of one with a parameter some values. Returns its number. */
static int write_algo(enum xccl_coll coll, int row, int nranks, char *word, size_t bytes)
{
    static const int params[] = {0, 1, 8};
    int number = -1;

    for (const struct xccl_generator *const *at = xccl_generators; *at; at++) {
        for (int i = 0; i < ((*at)->param_max ? 3 : 1); i++) {
            struct xccl_generator_for what = {.nranks = nranks, .param = params[i]};
            char param[16] = "";

            if ((*at)->coll != coll || ((*at)->serves && !(*at)->serves(&what)))
                continue;
            if (i)
                snprintf(param, sizeof param, ":%d", params[i]);
            snprintf(word, bytes, "%s:%s%s", xccl_coll_name(coll), (*at)->name, param);
            if (++number == row)
                return number;
        }
    }
    return number;
}

/* The setting that takes algorithm number row of each collective, the last where there are fewer.
 * 0: no collective has so many. */
static int write_setting(int row, int nranks, char *setting)
{
    size_t used = 0;
    int found = 0;

    for (int coll = 0; coll < COLLS; coll++) {
        char word[64];
        int number = write_algo((enum xccl_coll)coll, row, nranks, word, sizeof word);

        XT_CHECK(number >= 0);
        found |= number == row;
        used += (size_t)snprintf(setting + used, SETTING - used, "%s%s", used ? ";" : "", word);
        XT_CHECK(used < SETTING);
    }
    return found;
}

static void every_algorithm(int nranks, enum transport transport)
{
    for (int row = 0; row < ROWS_MAX; row++) {
        struct job *job = job_create(transport);

        job->row = row;
        job->large = nranks == 3 + (int)transport;
        if (!write_setting(row, nranks, job->setting))
            return;
        xt_mp_run(nranks, run_rank, job);
        munmap(job, sizeof *job);
    }
    XT_FAIL("there are more than %d algorithms of a collective", ROWS_MAX);
}

#define DEADLINE                                                                                   \
    240 /* most of it for crowded machines; XT_DEADLINE_FACTOR for all combinations                \
         */
#define ON_RANKS(n, word)                                                                          \
    XT_TEST_DEADLINE(every_algorithm_on_##word##_over_shared_memory, DEADLINE)                     \
    {                                                                                              \
        every_algorithm(n, SHM);                                                                   \
    }                                                                                              \
    XT_TEST_DEADLINE(every_algorithm_on_##word##_over_sockets, DEADLINE)                           \
    {                                                                                              \
        every_algorithm(n, SOCKET);                                                                \
    }

ON_RANKS(1, one_rank)
ON_RANKS(2, two_ranks)
ON_RANKS(3, three_ranks)
ON_RANKS(4, four_ranks)
XT_TEST_DEADLINE(every_algorithm_on_four_ranks_over_both, DEADLINE)
{
    every_algorithm(4, MIXED);
}
#ifndef XCCL_SANITIZED /* sanitizers see every line of it on up to four ranks, and take longer */
ON_RANKS(5, five_ranks)
ON_RANKS(6, six_ranks)
ON_RANKS(7, seven_ranks)
ON_RANKS(8, eight_ranks)
ON_RANKS(9, nine_ranks)

XT_TEST_DEADLINE(every_algorithm_on_five_ranks_over_both, DEADLINE)
{
    every_algorithm(5, MIXED);
}
XT_TEST_DEADLINE(every_algorithm_on_eight_ranks_over_both, DEADLINE)
{
    every_algorithm(8, MIXED);
}
#endif

/* What the library chooses by itself, in cases that are drawn. */
XT_TEST_DEADLINE(drawn_cases_with_the_librarys_choice, DEADLINE)
{
    uint64_t state = xt_seed();

    for (int done = 0; done < RANDOM_ALL; done += 20) {
        struct job *job = job_create((enum transport)(xt_random(&state) % 3));

        job->draws = 20;
        job->seed = xt_random(&state);
        job->in_groups = (int)(xt_random(&state) & 1);
        xt_mp_run(1 + (int)(xt_random(&state) % RANKS_MAX), run_rank, job);
        munmap(job, sizeof *job);
    }
}

XT_TEST_DEADLINE(threads_of_one_process_run_every_collective, DEADLINE)
{
    xt_threads_run(5, run_rank, job_create(SHM));
}

/* One thread that owns all ranks calls for them in groups. */
static void one_thread(struct job *job, int nranks)
{
    xcclComm_t comms[RANKS_MAX];
    struct buffers b[RANKS_MAX];
    uint64_t state = job->seed;

    XT_OK(xcclGetUniqueId(&job->world.ids[0]));
    XT_OK(xcclGroupStart());
    for (int r = 0; r < nranks; r++)
        XT_OK(xcclCommInitRank(&comms[r], nranks, job->world.ids[0], r));
    XT_OK(xcclGroupEnd());
    for (int i = 0; i < 60; i++) {
        struct point p = {.coll = XCCL_COLL_BARRIER};

        drawn_point(&state, nranks, i, &p);
        p.in_place = p.in_place && p.coll != XCCL_COLL_ALL_TO_ALL;
        p.count = p.coll == XCCL_COLL_BARRIER ? 0 : p.count;
        for (int r = 0; r < nranks; r++)
            buffers_init(&b[r], &p, r, nranks);
        XT_OK(xcclGroupStart());
        for (int r = 0; r < nranks; r++)
            XT_OK(call(&p, &b[r], comms[r]));
        XT_OK(xcclGroupEnd());
        for (int r = 0; r < nranks; r++) {
            buffers_check(&b[r], &p, r, nranks);
            buffers_fini(&b[r]);
        }
    }
    XT_OK(xcclGroupStart());
    for (int r = 0; r < nranks; r++)
        XT_OK(xcclCommDestroy(comms[r]));
    XT_OK(xcclGroupEnd());
}

XT_TEST_DEADLINE(one_thread_runs_every_collective_for_all_its_ranks, DEADLINE)
{
    one_thread(job_create(SHM), 6);
}
