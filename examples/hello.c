/* SPDX-License-Identifier: BSD-3-Clause */
/* A first program: adds four numbers over all ranks and prints the sums on each.
 * Start it as four ranks: xccl run -n 4 -- build/release/examples/hello
 * or by mpirun, srun or torchrun; it needs no other arguments there. Thread: one. */
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
    float mine[4], sum[4];
    int rank, nranks;
    xcclUniqueId id;
    xcclComm_t comm;

    /* The launcher gives each rank its number, and all ranks the same id. */
    check(xcclGetLaunch(&id, &nranks, &rank));
    check(xcclCommInitRank(&comm, nranks, id, rank));

    for (int i = 0; i < 4; i++)
        mine[i] = (float)(rank + i);

    /* With a NULL stream and host memory, the sums are there when the call returns. */
    check(xcclAllReduce(mine, sum, 4, xcclFloat32, xcclSum, comm, NULL));
    printf("rank %d of %d: sum = %g %g %g %g\n", rank, nranks, sum[0], sum[1], sum[2], sum[3]);

    check(xcclCommDestroy(comm));
    return 0;
}
