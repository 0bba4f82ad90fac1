/* SPDX-License-Identifier: BSD-3-Clause */
/* The product: every algorithm of every collective, with every type and operator (a created one
 * too), in place and not, on aligned pointers and on others, with counts 0, 1, odd and large, on
 * ranks 1 to 9, 16 and 64, over shared memory, over sockets, and over both between hosts; then many
 * ranks as threads, and one call of each kind beyond 4 GiB. What comes out is compared with what
 * product_data.h says, byte by byte, with the bytes around it and with what was only to be read.
 *
 * A job of ranks is started for each number of ranks, transport and row; row k has the k-th
 * algorithm of each collective. Without XT_PRODUCT=all in the environment there are fewer numbers
 * of ranks, and every two of algorithm, type and operator meet, with one form, pointer and count;
 * ci/nightly has all of them. XT_RANKS: how many threads; XT_LARGE_BYTES: how large the largest
 * call is.
 *
 * Left out of the product even there, so that it takes less than 40 minutes on two cores: large
 * counts have one form and pointer for each algorithm, type and operator, not all four; on 5 to 16
 * ranks each of those has a third of forms, pointers and counts, another one on each number of
 * ranks, and on 64 one of them; among threads each algorithm has some types and operators, and all
 * of them meet. Roots go round (all of them: test_collectives.c). Instruction sets go round by
 * rank, for what comes out here is the same with each of them (sums that round: test_bits.c; each
 * set alone: test_kernels_shapes.c). Collectives with a size for each rank: test_coll_v.c. */
#include <sys/resource.h>

#include "path_hosts.h"
#include "product_data.h"
#include "schedule/generators.h"
#include "world.h"

enum transport { SHM, SOCKETS, HOSTS };
static const char *const transports[] = {"shared memory", "sockets", "both between hosts"};

#define COLLS     (XCCL_COLL_BARRIER + 1)
#define RANKS_MAX 64 /* as processes */
#define SEVERAL   4 /* ranks; up to here the whole product */
#define MANY      16
#define ROWS_MAX  16
#define GUARD     64
#define PAGE      4096
#define SETTING   512
#define NODES_MAX 4
#define LARGE     1200009 /* bytes: several slices of every link */
#define FORMS     4 /* in place or not, aligned or not */
#define FEW       13 /* forms times three counts, and a large one */

/* Ranks without XT_PRODUCT=all. */
#ifdef XCCL_SANITIZED
#define FEW_LOCAL 3
#define FEW_APART 4
#define THREADS   6
#else
#define FEW_LOCAL 8
#define FEW_APART 6
#define THREADS   16
#endif

struct point {
    enum xccl_coll coll;
    int type, op;
    xcclRedOp_t created; /* what stands for OP_PREMUL */
    size_t count, offsets[2]; /* bytes that the buffers are off their alignment */
    int root, in_place, round;
};

struct job {
    struct world world;
    const struct product_data *data;
    struct path_hosts hosts;
    enum transport transport;
    char setting[SETTING]; /* XCCL_ALGO */
    int row, nranks, nodes, is_all, among_threads;
    _Atomic uint64_t calls; /* of rank 0 */
};

/* The memory of a call: what it is given, and what it must be afterwards. */
struct room {
    char *memory[2], *wanted[2];
    size_t bytes[2], most;
    char *send, *recv;
};

/* ---- what a call has and must get ---- */

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

/* count elements from number `first` on, of a rank's input or, rank nranks, of the result. */
static void put_data(const struct product_data *data, const struct point *p, int rank, char *at,
                     size_t first, size_t count)
{
    size_t bytes = product_bytes(p->type);

    if (reduces(p->coll))
        product_repeat(at, product_pattern(data, p->type, p->op, rank), PERIOD * bytes,
                       (first + (size_t)p->round * 7) % PERIOD * bytes, count * bytes);
    else
        product_repeat(at, data->noise, NOISE_BYTES,
                       first * bytes + (size_t)rank * 4099 + (size_t)p->round * 257, count * bytes);
}

/* What block `block` of this rank's output must be. */
static void put_wanted(const struct product_data *data, const struct point *p, int rank, int block,
                       char *at)
{
    size_t first = 0;
    int from = block;

    if (p->coll == XCCL_COLL_REDUCE_SCATTER || p->coll == XCCL_COLL_ALL_TO_ALL ||
        p->coll == XCCL_COLL_SCATTER)
        first = (size_t)rank * p->count;
    if (p->coll == XCCL_COLL_BROADCAST || p->coll == XCCL_COLL_SCATTER)
        from = p->root;
    if (reduces(p->coll))
        from = data->nranks;
    put_data(data, p, from, at, first, p->count);
}

/* ---- memory ---- */

static char *take(size_t bytes)
{
    char *memory = aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE);

    XT_CHECK(memory != NULL);
    return memory;
}

/* Has room for calls of so many bytes in a buffer; those that need more get more. */
static void room_fit(struct room *room, size_t bytes)
{
    bytes += 4 * GUARD;
    if (bytes <= room->most)
        return;
    for (int i = 0; i < 2; i++) {
        free(room->memory[i]);
        free(room->wanted[i]);
        room->memory[i] = take(bytes);
        room->wanted[i] = take(bytes);
    }
    room->most = bytes;
}

static void room_fini(struct room *room)
{
    for (int i = 0; i < 2; i++) {
        free(room->memory[i]);
        free(room->wanted[i]);
    }
}

static void room_fill(struct room *room, const struct product_data *data, const struct point *p,
                      int rank)
{
    int sends = send_blocks(p, rank, data->nranks), recvs = recv_blocks(p, rank, data->nranks);
    size_t block = p->count * product_bytes(p->type),
           most = (size_t)(sends > recvs ? sends : recvs);
    size_t send_at = p->in_place && recvs > sends ? block * (size_t)rank : 0;
    size_t recv_at = p->in_place && sends > recvs ? block * (size_t)rank : 0;
    int to = p->in_place ? 0 : 1;

    room_fit(room, block * most);
    for (int i = 0; i < 2; i++) {
        size_t blocks = p->in_place ? (i ? 0 : most) : (size_t)(i ? recvs : sends);

        room->bytes[i] = GUARD + p->offsets[i] + block * blocks + GUARD;
        memset(room->memory[i], 0x5a, room->bytes[i]);
    }
    room->send = sends ? room->memory[0] + GUARD + p->offsets[0] + send_at : NULL;
    room->recv = recvs ? room->memory[to] + GUARD + p->offsets[to] + recv_at : NULL;
    if (sends)
        put_data(data, p, rank, room->send, 0, p->count * (size_t)sends);
    for (int i = 0; i < 2; i++)
        memcpy(room->wanted[i], room->memory[i], room->bytes[i]);
    for (int i = 0; i < recvs; i++)
        put_wanted(data, p, rank, i,
                   room->wanted[to] + (room->recv - room->memory[to]) + block * (size_t)i);
}

/* Ends the test, with the point at which it went wrong. */
_Noreturn static void fail_at(const struct point *p, int rank, int nranks, const char *what)
{
    const char *setting = getenv("XCCL_ALGO");

    XT_FAIL("rank %d of %d: %s (count %zu, type %s, op %d, root %d, in place %d, offsets %zu %zu, "
            "round %d; XCCL_ALGO %s): %s",
            rank, nranks, xccl_coll_name(p->coll), p->count, number_types[p->type].name, p->op,
            p->root, p->in_place, p->offsets[0], p->offsets[1], p->round,
            setting ? setting : "auto", what);
}

static void room_check(const struct room *room, const struct point *p, int rank, int nranks)
{
    for (int i = 0; i < 2; i++) {
        char text[100];
        size_t at = 0;

        if (memcmp(room->memory[i], room->wanted[i], room->bytes[i]) == 0)
            continue;
        while (room->memory[i][at] == room->wanted[i][at])
            at++;
        snprintf(text, sizeof text, "byte %ld of the %s buffer is %#x, not %#x",
                 (long)at - GUARD - (long)p->offsets[i], i || p->in_place ? "receive" : "send",
                 (unsigned char)room->memory[i][at], (unsigned char)room->wanted[i][at]);
        fail_at(p, rank, nranks, text);
    }
}

/* ---- one call ---- */

static xcclResult_t call(const struct point *p, const struct room *room, xcclComm_t comm)
{
    xcclDataType_t type = (xcclDataType_t)p->type;
    xcclRedOp_t op = p->op == OP_PREMUL ? p->created : (xcclRedOp_t)p->op;

    switch (p->coll) {
    case XCCL_COLL_BROADCAST:
        if (p->in_place)
            return xcclBcast(room->recv, p->count, type, p->root, comm, NULL);
        return xcclBroadcast(room->send, room->recv, p->count, type, p->root, comm, NULL);
    case XCCL_COLL_REDUCE:
        return xcclReduce(room->send, room->recv, p->count, type, op, p->root, comm, NULL);
    case XCCL_COLL_ALL_GATHER:
        return xcclAllGather(room->send, room->recv, p->count, type, comm, NULL);
    case XCCL_COLL_REDUCE_SCATTER:
        return xcclReduceScatter(room->send, room->recv, p->count, type, op, comm, NULL);
    case XCCL_COLL_ALL_REDUCE:
        return xcclAllReduce(room->send, room->recv, p->count, type, op, comm, NULL);
    case XCCL_COLL_ALL_TO_ALL:
        return xcclAlltoAll(room->send, room->recv, p->count, type, comm, NULL);
    case XCCL_COLL_GATHER:
        return xcclGather(room->send, room->recv, p->count, type, p->root, comm, NULL);
    case XCCL_COLL_SCATTER:
        return xcclScatter(room->send, room->recv, p->count, type, p->root, comm, NULL);
    default:
        return xcclBarrier(comm, NULL);
    }
}

static void run_point(struct job *job, const struct point *p, struct room *room, xcclComm_t comm,
                      int rank)
{
    xcclResult_t rc;

    room_fill(room, job->data, p, rank);
    rc = call(p, room, comm);
    if (rc)
        fail_at(p, rank, job->nranks, xcclGetLastError(NULL));
    room_check(room, p, rank, job->nranks);
    if (rank == 0)
        atomic_fetch_add_explicit(&job->calls, 1, memory_order_relaxed);
}

/* Nobody leaves before all have come. */
static void barrier(struct job *job, xcclComm_t comm)
{
    int arrived = atomic_fetch_add_explicit(&job->world.arrived, 1, memory_order_acq_rel);
    int all = (arrived / job->nranks + 1) * job->nranks;

    XT_OK(xcclBarrier(comm, NULL));
    XT_CHECK(atomic_load_explicit(&job->world.arrived, memory_order_acquire) >= all);
    XT_OK(xcclBarrier(comm, NULL)); /* so that the next round does not count into this one */
}

/* ---- the points of a job ---- */

static size_t odd_count(const struct job *job, size_t number)
{
    static const size_t odd[] = {3, 257, 1001, 13, 4097, 20011};

    return odd[number % (job->nranks > RANKS_MAX ? 1 : job->nranks > 9 ? 3 : 6)];
}

static size_t large_count(const struct job *job, const struct point *p)
{
    int is_vector = p->coll == XCCL_COLL_ALL_REDUCE || p->coll == XCCL_COLL_BROADCAST ||
                    p->coll == XCCL_COLL_REDUCE;
    size_t bytes = job->nranks <= 9 ? LARGE : LARGE / 4;

    if (job->nranks > RANKS_MAX)
        bytes = is_vector ? 8000 : 256; /* there are a thousand buffers with a thousand blocks */
    else if (!is_vector && job->nranks > 2)
        bytes = 2 * LARGE / (size_t)job->nranks;
    return bytes / product_bytes(p->type) | 1;
}

/* Form number i of FEW: which form, pointer and count. */
static void set_form(const struct job *job, struct point *p, size_t i)
{
    size_t salt = (size_t)p->type * OPS + (size_t)p->op, round = (size_t)p->round;
    size_t form = i < FEW - 1 ? i : salt;

    p->in_place = (int)(form & 1) && p->coll != XCCL_COLL_ALL_TO_ALL;
    p->offsets[0] = form & 2 ? 1 + round % 63 : 0;
    p->offsets[1] = form & 2 ? 1 + (round * 5 + 20) % 63 : 0;
    if (i == FEW - 1)
        p->count = large_count(job, p);
    else
        p->count = i / FORMS < 2 ? i / FORMS : odd_count(job, salt + i);
}

/* Of the FEW forms: all, or every third one where ranks are several, or a single one. */
static int has_form(const struct job *job, size_t i, size_t salt)
{
    if (!job->is_all || job->nranks > MANY)
        return i == salt % FEW;
    return job->nranks <= SEVERAL || i % 3 == salt % 3;
}

static void run_forms(struct job *job, struct point *p, struct room *room, xcclComm_t comm,
                      int rank)
{
    size_t salt = (size_t)p->type * OPS + (size_t)(p->op * 3 + job->row + job->nranks);

    for (size_t i = 0; i < FEW; i++) {
        if (!has_form(job, i, salt))
            continue;
        p->round++;
        p->root = p->round % job->nranks;
        set_form(job, p, i);
        run_point(job, p, room, comm, rank);
    }
}

static xcclRedOp_t create_op(int type, int rank, xcclComm_t comm)
{
    const struct number_type *of = &number_types[type];
    uint64_t factor = product_factor(of, rank), scalar = 0;
    xcclRedOp_t op = xcclSum;

    number_put(&scalar, 0, of, of->exponent_bits ? number_float_of(of, (double)factor) : factor);
    XT_OK(xcclRedOpCreatePreMulSum(&op, &scalar, (xcclDataType_t)type, xcclScalarHostImmediate,
                                   comm));
    return op;
}

/* Without all of them every two of algorithm, type and operator meet all the same; among threads an
 * algorithm of a collective meets two, since a hop costs all threads a turn. */
static int is_wanted(const struct job *job, const struct point *p)
{
    if (job->is_all)
        return 1;
    if (job->among_threads && reduces(p->coll))
        return (p->type * OPS + p->op + 5 * job->row) % 37 == 0;
    if (job->among_threads)
        return (p->type + job->row) % 6 == 0;
    return !reduces(p->coll) || (p->type + p->op + job->row) % 3 == 0;
}

static void run_coll(struct job *job, struct point *p, struct room *room, xcclComm_t comm, int rank)
{
    for (p->type = 0; p->type < xcclNumTypes; p->type++) {
        if (reduces(p->coll))
            p->created = create_op(p->type, rank, comm);
        for (p->op = 0; p->op < (reduces(p->coll) ? OPS : 1); p->op++)
            if (is_wanted(job, p))
                run_forms(job, p, room, comm, rank);
        if (reduces(p->coll))
            XT_OK(xcclRedOpDestroy(p->created, comm));
    }
}

/* ---- algorithms ---- */

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

/* The collectives that have an algorithm of this row, all on one communicator. */
static void run_row(struct job *job, xcclComm_t comm, int rank)
{
    struct room room = {.most = 0};
    struct point p = {.round = job->row * 31};
    char word[64];

    for (int coll = 0; coll < COLLS; coll++) {
        p.coll = (enum xccl_coll)coll;
        if (write_algo(p.coll, job->row, job->nranks, word, sizeof word) != job->row)
            continue;
        if (p.coll == XCCL_COLL_BARRIER)
            barrier(job, comm);
        else
            run_coll(job, &p, &room, comm, rank);
    }
    room_fini(&room);
}

/* ---- jobs of processes ---- */

/* Of instructions every kind in one job, whatever the processor has. */
static void set_settings(const struct job *job, int rank)
{
    static const char *const kernels[] = {"auto", "avx2", "plain"};

    xt_setenv("XCCL_ALGO", job->setting);
    xt_setenv("XCCL_KERNELS", kernels[(rank + job->row) % 3]);
    xt_setenv("XCCL_DEBUG", "error"); /* a processor may lack a set */
    /* Many processes on few cores may be silent for long; it is data that is looked at here. */
    xt_setenv("XCCL_HEARTBEAT_S", "10");
}

/* Nodes of many ranks and of few, next to each other or not. */
static int node_of(const struct job *job, int rank)
{
    return job->row % 2 ? rank % job->nodes : rank * job->nodes / job->nranks;
}

static void run_rank(int rank, int nranks, void *arg)
{
    struct job *job = arg;
    xcclComm_t comm;

    if (job->transport == SOCKETS)
        xt_setenv("XCCL_SHM_DISABLE", "1");
    if (job->transport == HOSTS)
        path_hosts_enter(&job->hosts, node_of(job, rank));
    set_settings(job, rank);
    comm = world_join(&job->world, rank, nranks);
    run_row(job, comm, rank);
    XT_OK(xcclCommDestroy(comm));
}

static int is_all(void)
{
    const char *how = getenv("XT_PRODUCT");

    return how && *how;
}

/* The only number of ranks; 0: all of them. */
static int only_ranks(void)
{
    const char *how = getenv("XT_PRODUCT");

    return how ? atoi(how) : 0;
}

/* Calls and time, into the file XT_FIGURES too, if there is that variable. */
static void tell(const char *what, int nranks, uint64_t calls, double since)
{
    const char *path = getenv("XT_FIGURES");
    FILE *file = path ? fopen(path, "ae") : NULL;
    double took = xt_seconds() - since;

    printf("%-20s %5d ranks %8llu calls %8.1f s\n", what, nranks, (unsigned long long)calls, took);
    if (!file)
        return;
    fprintf(file, "%-20s %5d ranks %8llu calls %8.1f s\n", what, nranks, (unsigned long long)calls,
            took);
    fclose(file);
}

/* Number 0 is where the wires of the others meet, in a bridge where there are more than two. */
static void make_hosts(struct job *job)
{
    struct path_rail rails[NODES_MAX - 1] = {{.host = 1}, {.host = 2}, {.host = 3}};
    int most = job->is_all ? NODES_MAX : 2;

    job->nodes = job->nranks < most ? job->nranks : most;
    path_hosts_make(&job->hosts, rails, job->nodes > 1 ? job->nodes - 1 : 1);
    if (job->nodes > 2)
        path_hosts_run(&job->hosts, 0,
                       "ip link add bridge type bridge;"
                       "for i in 0 1 2; do ip link show rail$i > /dev/null 2>&1 || continue;"
                       "ip addr flush dev rail$i; ip link set rail$i master bridge; done;"
                       "ip addr add 10.77.0.100/24 dev bridge; ip link set bridge up");
}

static struct job *job_create(int nranks, enum transport transport)
{
    struct job *job = mmap(NULL, sizeof *job, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                           -1, 0);

    XT_CHECK(job != MAP_FAILED);
    xt_set_error_source(world_error);
    job->is_all = is_all();
    job->nranks = nranks;
    job->transport = transport;
    return job;
}

static void product_of(int nranks, enum transport transport)
{
    struct product_data *data = product_create(nranks);
    struct job *job = job_create(nranks, transport);
    double since = xt_seconds();

    job->data = data;
    if (transport == HOSTS)
        make_hosts(job);
    for (job->row = 0; write_setting(job->row, nranks, job->setting); job->row++) {
        XT_CHECK(job->row < ROWS_MAX);
        memset(&job->world, 0, sizeof job->world);
        xt_mp_run(nranks, run_rank, job);
    }
    tell(transports[transport], nranks, job->calls, since);
    if (transport == HOSTS)
        path_hosts_drop(&job->hosts);
    munmap(job, sizeof *job);
    product_destroy(data);
}

static void product(enum transport transport)
{
    static const int all[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 64, 0};
    static const int few[][3] = {{2, FEW_LOCAL, 0}, {3, 0}, {FEW_APART, 0}};

    int only = only_ranks();

    for (const int *at = is_all() ? all : few[transport]; *at; at++)
        if (!only || only == *at)
            product_of(*at, transport);
}

#define DEADLINE 240 /* XT_DEADLINE_FACTOR for all of them */

XT_TEST_DEADLINE(product_over_shared_memory, DEADLINE)
{
    product(SHM);
}

XT_TEST_DEADLINE(product_over_sockets, DEADLINE)
{
    product(SOCKETS);
}

XT_TEST_DEADLINE(product_over_both_between_hosts, DEADLINE)
{
    product(HOSTS);
}

/* ---- threads ---- */

static void run_thread(int rank, int nranks, void *arg)
{
    struct job *job = arg;
    xcclComm_t comm = world_join(&job->world, rank, nranks);

    run_row(job, comm, rank);
    XT_OK(xcclCommDestroy(comm));
}

/* A process for each row: settings are read once. */
static void run_threads(int rank, int nranks, void *arg)
{
    struct job *job = arg;

    (void)nranks;
    set_settings(job, rank);
    xt_setenv("XCCL_DEBUG", "warn"); /* of limits that so many ranks meet */
    xt_threads_run(job->nranks, run_thread, job);
}

static void want_descriptors(int nranks)
{
    struct rlimit limit;

    XT_CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    XT_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    if (limit.rlim_max < 16u * (unsigned)nranks + 100)
        XT_SKIP("%d ranks in one process need ulimit -n %d", nranks, 16 * nranks + 100);
}

XT_TEST_DEADLINE(product_among_many_threads, DEADLINE)
{
    const char *ranks = getenv("XT_RANKS");
    int nranks = ranks ? atoi(ranks) : THREADS;
    struct product_data *data;
    struct job *job = job_create(nranks, SHM);

    want_descriptors(nranks);
    data = product_create(nranks);
    job->data = data;
    job->is_all = 0;
    job->among_threads = 1;
    for (job->row = 0; write_setting(job->row, nranks, job->setting); job->row++) {
        double since = xt_seconds();

        memset(&job->world, 0, sizeof job->world);
        job->calls = 0;
        xt_mp_run(1, run_threads, job);
        tell(job->setting, nranks, job->calls, since);
    }
    munmap(job, sizeof *job);
    product_destroy(data);
}

/* ---- one call of each kind that is larger than 4 GiB ---- */

static const struct {
    enum xccl_coll coll;
    enum transport transport;
} largest[] = {{XCCL_COLL_ALL_REDUCE, SHM},         {XCCL_COLL_ALL_GATHER, SHM},
               {XCCL_COLL_REDUCE_SCATTER, SOCKETS}, {XCCL_COLL_BROADCAST, SOCKETS},
               {XCCL_COLL_REDUCE, SOCKETS},         {XCCL_COLL_SCATTER, SHM}};
#define LARGEST (sizeof largest / sizeof largest[0])

struct vast {
    struct world world;
    const struct product_data *data;
    struct point point;
    enum transport transport;
    size_t bytes; /* of each rank's one buffer */
};

static size_t vast_bytes(void)
{
    const char *text = getenv("XT_LARGE_BYTES");

    return text ? strtoull(text, NULL, 10) : ((size_t)24 << 20) + 5;
}

/* count elements at `at` must be those from number `first` on of a rank, or of the result. */
static void check_vast(const struct vast *vast, int from, const char *at, size_t first, int rank)
{
    static char piece[1 << 20];

    for (size_t done = 0; done < vast->point.count; done += sizeof piece) {
        size_t left = vast->point.count - done, part = left < sizeof piece ? left : sizeof piece;

        put_data(vast->data, &vast->point, from, piece, first + done, part);
        if (memcmp(piece, at + done, part) != 0)
            fail_at(&vast->point, rank, 2, "a byte of the receive buffer is wrong");
    }
}

/* In place, with bytes for elements. */
static void run_vast(int rank, int nranks, void *arg)
{
    struct vast *vast = arg;
    const struct point *p = &vast->point;
    int sends = send_blocks(p, rank, nranks), recvs = recv_blocks(p, rank, nranks);
    struct room room = {.most = 0};
    char *memory;
    xcclComm_t comm;

    if (vast->transport == SOCKETS)
        xt_setenv("XCCL_SHM_DISABLE", "1");
    comm = world_join(&vast->world, rank, nranks);
    memory = take(vast->bytes + GUARD + 1);
    memset(memory + vast->bytes, 0x5a, GUARD + 1);
    room.send = sends ? memory + (recvs > sends ? (size_t)rank * p->count : 0) : NULL;
    room.recv = recvs ? memory + (sends > recvs ? (size_t)rank * p->count : 0) : NULL;
    if (sends)
        put_data(vast->data, p, rank, room.send, 0, p->count * (size_t)sends);
    XT_OK(call(p, &room, comm));
    for (int i = 0; i < recvs; i++) {
        int is_moved = !reduces(p->coll), is_own = recvs == 1 && nranks > 1;
        int from = !is_moved ? nranks : p->coll == XCCL_COLL_ALL_GATHER ? i : p->root;
        int part = p->coll == XCCL_COLL_REDUCE_SCATTER || p->coll == XCCL_COLL_SCATTER;

        check_vast(vast, from, room.recv + (size_t)i * p->count,
                   is_own && part ? (size_t)rank * p->count : 0, rank);
    }
    for (size_t i = 0; i < GUARD; i++)
        XT_CHECK(memory[vast->bytes + i] == 0x5a);
    free(memory);
    XT_OK(xcclCommDestroy(comm));
}

static void want_memory(size_t bytes)
{
    FILE *file = fopen("/proc/meminfo", "re");
    char line[256];
    size_t kib = 0;

    XT_CHECK(file != NULL);
    while (fgets(line, sizeof line, file))
        (void)sscanf(line, "MemAvailable: %zu kB", &kib);
    fclose(file);
    if (kib < bytes >> 10)
        XT_SKIP("needs %zu MiB of memory, and %zu are free", bytes >> 20, kib >> 10);
}

XT_TEST_DEADLINE(calls_may_be_very_large, DEADLINE)
{
    size_t bytes = vast_bytes();
    struct product_data *data = product_create(2);
    struct vast *vast = mmap(NULL, sizeof *vast, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                             -1, 0);

    XT_CHECK(vast != MAP_FAILED);
    xt_set_error_source(world_error);
    want_memory(2 * bytes + ((size_t)1 << 29));
    for (size_t i = 0; i < LARGEST; i++) {
        enum xccl_coll coll = largest[i].coll;
        int is_vector = coll == XCCL_COLL_ALL_REDUCE || coll == XCCL_COLL_BROADCAST ||
                        coll == XCCL_COLL_REDUCE;
        double since = xt_seconds();

        memset(vast, 0, sizeof *vast);
        vast->data = data;
        vast->transport = largest[i].transport;
        vast->point = (struct point){.coll = coll, .type = xcclUint8, .in_place = 1, .root = 1};
        vast->point.count = is_vector ? bytes : bytes / 2;
        vast->bytes = is_vector ? bytes : vast->point.count * 2;
        xt_mp_run(2, run_vast, vast);
        tell(xccl_coll_name(coll), 2, 1, since);
    }
    munmap(vast, sizeof *vast);
    product_destroy(data);
}
