/* SPDX-License-Identifier: BSD-3-Clause */
/* A complete algorithm plugin: the mesh all-gather of HCCL. Everybody sends its block to everybody
 * at once, the nearest above first, so that not all begin with the same receiver: one hop.
 * README.md walks through it; the rules are in xccl_algo.h. Thread: any, as its rules say. */
#include <xccl_algo.h>

/* Two fans: to rank + 1, rank + 2 and so on, then from 0, 1 and so on. The numbers of their
 * connections count from 0, so the second fan begins with n - 1. */
static void connect_all(const xcclAlgoBuilder_v1_t *build, const xcclAlgoFor_v1_t *what, int lane)
{
    int n = what->nranks, first = 1;

    for (int i = 1; i < n; i++)
        build->conn(build, lane, xcclAlgoSend, (what->rank + i) % n, 0, i > 1);
    for (int peer = 0; peer < n; peer++) {
        if (peer == what->rank)
            continue;
        build->conn(build, lane, xcclAlgoRecv, peer, 0, !first);
        first = 0;
    }
}

/* In is this rank's block; chunk r of Out is that of rank r. */
static void emit(const xcclAlgoBuilder_v1_t *build, const xcclAlgoFor_v1_t *what)
{
    int n = what->nranks, lane = build->lane(build);
    xcclAlgoStep_v1_t own = {.size = sizeof(own),
                             .op = XCCL_ALGO_SRC | XCCL_ALGO_DST,
                             .src = {.buffer = xcclAlgoIn, .count = 1, .first = 0},
                             .dst = {.buffer = xcclAlgoOut, .count = 1, .first = what->rank}};

    if (n > 1) {
        connect_all(build, what, lane);
        own.op |= XCCL_ALGO_SEND;
        own.sconn = 0;
        own.nsend = XCCL_ALGO_FAN_ALL;
    }
    build->step(build, lane, &own);
    for (int i = 1; i < n; i++) { /* the nearest below first: it sends to the nearest above first */
        int peer = (what->rank - i + n) % n;
        xcclAlgoStep_v1_t step = {.size = sizeof(step),
                                  .op = XCCL_ALGO_RECV | XCCL_ALGO_DST,
                                  .dst = {.buffer = xcclAlgoOut, .count = 1, .first = peer},
                                  .rconn = n - 1 + (peer < what->rank ? peer : peer - 1),
                                  .nrecv = 1};

        build->step(build, lane, &step);
    }
}

static const xcclAlgorithm_v1_t hello = {.size = sizeof(hello),
                                         .name = "hello",
                                         .help = "all send to all, as HCCL's mesh: one hop",
                                         .coll = xcclAlgoAllGather,
                                         .emit = emit};
static const xcclAlgorithm_v1_t *const algorithms[] = {&hello};

XCCL_ALGO_EXPORT const xcclAlgoPlugin_v1_t xcclAlgoPlugin_v1 = {
    .size = sizeof(xcclAlgoPlugin_v1), .name = "hello", .count = 1, .algorithms = algorithms};
