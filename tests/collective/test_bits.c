/* SPDX-License-Identifier: BSD-3-Clause */
/* The bits of reductions. Numbers whose sum depends on the order of adding go through every
 * algorithm that reduces, and the results are compared as bytes: among ranks; with those of the
 * same ranks in another run, with delays, with each instruction set, and over sockets; and for the
 * algorithms whose order is the same for every element, with those of parts of the vector.
 *
 * One job of ranks a row, set and transport; row k has the k-th algorithm of each collective.
 * XT_BITS=all in the environment: not on 5 ranks alone but on 2 to 9 and 16, and over both shared
 * memory and sockets too, as ci/nightly does. A set that the processor lacks is left out there by
 * the library, which takes the next one. */
#include "world.h"

#include "schedule/generators.h"

#define RANKS     5
#define RANKS_MAX 16
#define RANKS_D3  9
#define COUNT     3001
#define PARTS     4
#define TYPES     4
#define RUNS      7
#define ROWS      16
#define SETTING   256

static const xcclDataType_t types[TYPES] = {xcclFloat32, xcclFloat64, xcclFloat16, xcclBfloat16};
static const size_t type_bytes[TYPES] = {4, 8, 2, 2};

/* What differs between runs; the bits shall not. */
static const struct run {
    const char *kernels, *name;
    int sockets, delays; /* sockets 2: every third rank has them alone */
} runs[RUNS] = {{"auto", "one", 0, 0},
                {"auto", "the next", 0, 1},
                {"plain", "one without vector instructions", 0, 0},
                {"avx2", "one with AVX2", 0, 0},
                {"avx512", "one with AVX-512", 0, 0},
                {"auto", "one over sockets", 1, 1},
                {"auto", "one over both", 2, 1}};

struct results {
    char all_reduce[TYPES][COUNT * 8];
    char parts[TYPES][COUNT * 8]; /* the same vector, by PARTS calls */
    char reduce_scatter[TYPES][COUNT * 8];
    char reduce[TYPES][COUNT * 8]; /* the root's */
    char reduce_parts[TYPES][COUNT * 8];
    char blocks[TYPES][3 * 8], elements[TYPES][3 * 8]; /* of reduce_scatter: see below */
};

struct job {
    struct world world;
    const struct run *run;
    char setting[SETTING];
    int nranks;
    struct results ranks[RANKS_MAX];
};

/* From 2^-8 to 2^8 and of both signs, so that small ones get lost beside large ones. */
static void fill(char *at, int type, uint64_t seed)
{
    uint64_t state = seed;

    for (int i = 0; i < COUNT; i++) {
        uint64_t bits = xt_random(&state);
        uint32_t exponent = (uint32_t)(bits >> 32) % 17 - 8, sign = (uint32_t)(bits >> 63);
        float f = (sign ? -1.0f : 1.0f) * (1.0f + (float)(bits & 0x3ff) / 1024.0f);
        uint32_t word;
        uint16_t half;
        double d;

        f *= (int)exponent < 0 ? 1.0f / (float)(1 << -(int)exponent) : (float)(1 << exponent);
        memcpy(&word, &f, 4);
        if (types[type] == xcclFloat64) {
            d = (double)f + (double)(bits >> 20 & 0xffff) * 0x1p-60;
            memcpy(at + i * 8, &d, 8);
        } else if (types[type] == xcclFloat32) {
            memcpy(at + i * 4, &f, 4);
        } else {
            half = types[type] == xcclBfloat16
                       ? (uint16_t)(word >> 16)
                       : (uint16_t)(sign << 15 | (15 + exponent) << 10 | (word >> 13 & 0x3ff));
            memcpy(at + i * 2, &half, 2);
        }
    }
}

static void dawdle(const struct job *job, uint64_t *state)
{
    if (job->run->delays && xt_random(state) % 3 == 0)
        nanosleep(&(struct timespec){.tv_nsec = (long)(xt_random(state) % 3000000)}, NULL);
}

/* Three elements of each block of the reduce-scatter, and the same by calls of one element. */
static void scatter_elements(const char *in, struct results *r, int t, int nranks, xcclComm_t comm)
{
    static const size_t which[3] = {0, COUNT / RANKS_MAX / 2, COUNT / RANKS_MAX - 1};
    size_t bytes = type_bytes[t];
    char gathered[RANKS_MAX * 8];

    for (int k = 0; k < 3; k++) {
        for (int rank = 0; rank < nranks; rank++)
            memcpy(gathered + (size_t)rank * bytes,
                   in + ((size_t)rank * (COUNT / RANKS_MAX) + which[k]) * bytes, bytes);
        XT_OK(xcclReduceScatter(gathered, r->elements[t] + (size_t)k * bytes, 1, types[t], xcclSum,
                                comm, NULL));
        memcpy(r->blocks[t] + (size_t)k * bytes, r->reduce_scatter[t] + which[k] * bytes, bytes);
    }
}

static void reduce_all(const struct job *job, struct results *r, xcclComm_t comm, int rank,
                       int nranks)
{
    static char in[COUNT * 8];
    uint64_t state = (uint64_t)rank * 77 + 1;

    for (int t = 0; t < TYPES; t++) {
        size_t each = (COUNT + PARTS - 1) / PARTS, bytes = type_bytes[t];

        fill(in, t, (uint64_t)rank * 1000 + (uint64_t)t + 1);
        dawdle(job, &state);
        XT_OK(xcclAllReduce(in, r->all_reduce[t], COUNT, types[t], xcclSum, comm, NULL));
        for (size_t at = 0; at < COUNT; at += each) {
            size_t count = COUNT - at < each ? COUNT - at : each;

            XT_OK(xcclAllReduce(in + at * bytes, r->parts[t] + at * bytes, count, types[t], xcclSum,
                                comm, NULL));
        }
        for (size_t at = 0; at < COUNT; at += each)
            XT_OK(xcclReduce(in + at * bytes, r->reduce_parts[t] + at * bytes,
                             COUNT - at < each ? COUNT - at : each, types[t], xcclAvg, 1, comm,
                             NULL));
        dawdle(job, &state);
        XT_OK(xcclReduceScatter(in, r->reduce_scatter[t], COUNT / RANKS_MAX, types[t], xcclSum,
                                comm, NULL));
        scatter_elements(in, r, t, nranks, comm);
        XT_OK(xcclReduce(in, r->reduce[t], COUNT, types[t], xcclAvg, 1, comm, NULL));
    }
}

static void rank_main(int rank, int nranks, void *arg)
{
    struct job *job = arg;
    xcclComm_t comm;

    xt_setenv("XCCL_ALGO", job->setting);
    xt_setenv("XCCL_KERNELS", job->run->kernels);
    xt_setenv("XCCL_DEBUG", "error"); /* a processor may lack a set */
    if (job->run->sockets == 1 || (job->run->sockets == 2 && rank % 3 == 2))
        xt_setenv("XCCL_SHM_DISABLE", "1");
    comm = world_join(&job->world, rank, nranks);
    reduce_all(job, &job->ranks[rank], comm, rank, nranks);
    XT_OK(xcclCommDestroy(comm));
}

/* The row-th algorithm of a collective that serves the ranks, else the last one. */
static const char *algo_of(enum xccl_coll coll, int row, int nranks, int *found)
{
    struct xccl_generator_for what = {.nranks = nranks};
    const char *name = NULL;
    int number = 0;

    for (const struct xccl_generator *const *at = xccl_generators; *at; at++) {
        if ((*at)->coll != coll || ((*at)->serves && !(*at)->serves(&what)))
            continue;
        name = (*at)->name;
        *found |= number == row;
        if (number++ == row)
            break;
    }
    XT_CHECK(name);
    return name;
}

static struct job *job_create(const struct run *run)
{
    struct job *job = mmap(NULL, sizeof *job, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                           -1, 0);

    XT_CHECK(job != MAP_FAILED);
    job->run = run;
    return job;
}

/* *found: 1 when a collective has so many algorithms; else there is no run. */
static struct job *job_run(int row, int nranks, const struct run *run, int *found)
{
    struct job *job = job_create(run);

    job->nranks = nranks;
    snprintf(job->setting, sizeof job->setting, "all_reduce:%s;reduce_scatter:%s;reduce:%s",
             algo_of(XCCL_COLL_ALL_REDUCE, row, nranks, found),
             algo_of(XCCL_COLL_REDUCE_SCATTER, row, nranks, found),
             algo_of(XCCL_COLL_REDUCE, row, nranks, found));
    if (*found)
        xt_mp_run(nranks, rank_main, job);
    return job;
}

static void same_on_all_ranks(const struct job *job)
{
    const struct results *first = &job->ranks[0];

    for (int r = 1; r < job->nranks; r++)
        if (memcmp(first->all_reduce, job->ranks[r].all_reduce, sizeof first->all_reduce) != 0 ||
            memcmp(first->parts, job->ranks[r].parts, sizeof first->parts) != 0)
            XT_FAIL("%s: ranks 0 and %d have different bits", job->setting, r);
}

static void same_in_both(const struct job *a, const struct job *b)
{
    for (int r = 0; r < a->nranks; r++)
        if (memcmp(&a->ranks[r], &b->ranks[r], sizeof a->ranks[r]) != 0)
            XT_FAIL("%s: rank %d has other bits in %s than in %s", a->setting, r, b->run->name,
                    a->run->name);
}

static int is_all(void)
{
    const char *how = getenv("XT_BITS");

    return how && strcmp(how, "all") == 0;
}

/* Runs that show something on this machine. */
static int has_run(const struct run *run)
{
    if (strcmp(run->kernels, "avx512") == 0)
        return __builtin_cpu_supports("avx512f") != 0;
    return run->sockets < 2 || is_all();
}

static void same_in_all_runs(int nranks)
{
    for (int row = 0; row < ROWS; row++) {
        int found = 0;
        struct job *first = job_run(row, nranks, &runs[0], &found);

        if (!found)
            return;
        same_on_all_ranks(first);
        for (int i = 1; i < RUNS; i++) {
            struct job *other;

            if (!has_run(&runs[i]))
                continue;
            other = job_run(row, nranks, &runs[i], &found);
            same_on_all_ranks(other);
            same_in_both(first, other);
            munmap(other, sizeof *other);
        }
        munmap(first, sizeof *first);
    }
    XT_FAIL("there are more than %d algorithms of a collective", ROWS);
}

XT_TEST_DEADLINE(bits_are_the_same_on_all_ranks_and_in_all_runs, 240)
{
    xt_set_error_source(world_error);
    if (!is_all()) {
        same_in_all_runs(RANKS);
        return;
    }
    for (int n = 2; n <= RANKS_D3; n++)
        same_in_all_runs(n);
    same_in_all_runs(RANKS_MAX);
}

/* 1: parts of the vector have the bits of the whole. */
static int parts_are_alike(int nranks, const struct run *run, const char *algo)
{
    struct job *job = job_create(run);
    int alike;

    snprintf(job->setting, sizeof job->setting, "%s", algo);
    xt_mp_run(nranks, rank_main, job);
    alike = memcmp(job->ranks[0].all_reduce, job->ranks[0].parts, sizeof job->ranks[0].parts) == 0;
    if (getenv("XCCL_DETERMINISM")) { /* of all that reduces */
        const struct results *root = &job->ranks[1];

        alike &= memcmp(root->reduce, root->reduce_parts, sizeof root->reduce) == 0;
        for (int r = 0; r < nranks; r++)
            alike &= memcmp(job->ranks[r].blocks, job->ranks[r].elements,
                            sizeof job->ranks[r].blocks) == 0;
    }
    munmap(job, sizeof *job);
    return alike;
}

XT_TEST(some_algorithms_give_an_element_the_same_bits_wherever_it_lies)
{
    static const char *const wherever[] = {"all_reduce:oneshot", "all_reduce:twoshot",
                                           "all_reduce:rd", "all_reduce:rhd"};

    xt_set_error_source(world_error);
    for (int i = 0; i < 4; i++)
        if (!parts_are_alike(RANKS, &runs[0], wherever[i]))
            XT_FAIL("%s: parts of the vector have other bits than the whole", wherever[i]);
    /* Else the numbers would show nothing. */
    XT_CHECK(!parts_are_alike(RANKS, &runs[0], "all_reduce:ring"));
}

/* Whole vectors are large, and parts of them small, for the choice of algorithms. */
XT_TEST_DEADLINE(determinism_3_gives_an_element_the_same_bits_in_calls_of_any_size, 60)
{
    static const struct run sockets = {"auto", "one over sockets", 1, 0};

    xt_set_error_source(world_error);
    XT_CHECK(!parts_are_alike(9, &sockets, "auto")); /* what has changed is the setting */
    xt_setenv("XCCL_DETERMINISM", "3");
    for (int n = 2; n <= RANKS_D3; n++) {
        XT_CHECK(parts_are_alike(n, &runs[0], "auto"));
        XT_CHECK(parts_are_alike(n, &sockets, "auto"));
    }
}

static void asks_for_ring(int rank, int nranks, void *arg)
{
    xcclComm_t comm = NULL;

    XT_CHECK(xcclCommInitRank(&comm, nranks, world_id(arg, rank, 0), rank) != xcclSuccess);
    XT_CHECK_HAS(xcclGetLastError(NULL), "XCCL_ALGO with XCCL_DETERMINISM=3 leaves no algorithm");
}

XT_TEST(determinism_3_and_an_algorithm_without_it_are_refused)
{
    xt_setenv("XCCL_DETERMINISM", "3");
    xt_setenv("XCCL_ALGO", "all_reduce:ring");
    xt_mp_run(2, asks_for_ring, world_create());
}
