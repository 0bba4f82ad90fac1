/* SPDX-License-Identifier: BSD-3-Clause */
/* A first program: adds four numbers over all ranks and prints the sums on each.
 * Start it as four ranks: xccl run -n 4 -- build/release/examples/hello
 * Thread: one. */
#include <stdio.h>
#include <stdlib.h>
#include <xccl.h>

/* Every call returns xcclSuccess or an error; the text says what failed and what to do about it. */
static void check(xcclResult_t result)
{
    if (result == xcclSuccess)
        return;
    fprintf(stderr, "hello: %s: %s\n", xcclGetErrorString(result), xcclGetLastError(NULL));
    exit(1);
}

int main(void)
{
    const char *rank_text = getenv("XCCL_RANK"); /* both are set by `xccl run` */
    const char *nranks_text = getenv("XCCL_NRANKS"); /* without it: a job of one rank */
    int rank = rank_text ? atoi(rank_text) : 0;
    int nranks = nranks_text ? atoi(nranks_text) : 1;
    float mine[4], sum[4];
    xcclUniqueId id;
    xcclComm_t comm;

    for (int i = 0; i < 4; i++)
        mine[i] = (float)(rank + i);

    /* Under `xccl run` all ranks get the same id; elsewhere rank 0 makes it and hands it out. */
    check(xcclGetUniqueId(&id));
    check(xcclCommInitRank(&comm, nranks, id, rank));

    /* A NULL stream: the sums are there when the call returns. */
    check(xcclAllReduce(mine, sum, 4, xcclFloat32, xcclSum, comm, NULL));
    printf("rank %d of %d: sum = %g %g %g %g\n", rank, nranks, sum[0], sum[1], sum[2], sum[3]);

    check(xcclCommDestroy(comm));
    return 0;
}
