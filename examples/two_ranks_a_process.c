/* SPDX-License-Identifier: BSD-3-Clause */
/* One thread with two ranks, in each process of an MPI program: joins them in a group, adds a
 * vector over all ranks on a stream of each, and checks the sums.
 * Build and start it: mpicc two_ranks_a_process.c -lxccl && mpirun -n 2 ./a.out
 * A program for NCCL has this very shape, with devices for the ranks. Thread: one. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <xccl.h>

#define RANKS 2 /* of this process */
#define COUNT (1 << 20)

static void check(xcclResult_t result)
{
    if (result == xcclSuccess)
        return;
    fprintf(stderr, "two_ranks_a_process: %s: %s\n", xcclGetErrorString(result),
            xcclGetLastError(NULL));
    MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char **argv)
{
    float *sendbuff[RANKS], *recvbuff[RANKS];
    int process, processes, wrong = 0;
    xcclStream_t streams[RANKS];
    xcclComm_t comms[RANKS];
    xcclUniqueId id;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &process);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);

    /* One process makes the id, and all get it. */
    if (process == 0)
        check(xcclGetUniqueId(&id));
    MPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, MPI_COMM_WORLD);

    for (int i = 0; i < RANKS; i++) {
        check(xcclMemAlloc((void **)&sendbuff[i], COUNT * sizeof(float)));
        check(xcclMemAlloc((void **)&recvbuff[i], COUNT * sizeof(float)));
        check(xcclStreamCreate(&streams[i]));
        for (int k = 0; k < COUNT; k++)
            sendbuff[i][k] = (float)(process * RANKS + i);
    }

    /* Calls that wait for each other, by one thread: a group. */
    check(xcclGroupStart());
    for (int i = 0; i < RANKS; i++)
        check(xcclCommInitRank(&comms[i], processes * RANKS, id, process * RANKS + i));
    check(xcclGroupEnd());

    check(xcclGroupStart());
    for (int i = 0; i < RANKS; i++)
        check(xcclAllReduce(sendbuff[i], recvbuff[i], COUNT, xcclFloat, xcclSum, comms[i],
                            streams[i]));
    check(xcclGroupEnd());

    for (int i = 0; i < RANKS; i++)
        check(xcclStreamSynchronize(streams[i]));

    for (int i = 0; i < RANKS; i++)
        for (int k = 0; k < COUNT; k++)
            wrong += recvbuff[i][k] != (float)(processes * RANKS * (processes * RANKS - 1) / 2);
    printf("process %d of %d: two ranks, %d sums each, %d wrong\n", process, processes, COUNT,
           wrong);

    for (int i = 0; i < RANKS; i++) {
        check(xcclMemFree(sendbuff[i]));
        check(xcclMemFree(recvbuff[i]));
        check(xcclStreamDestroy(streams[i]));
    }
    for (int i = 0; i < RANKS; i++)
        check(xcclCommDestroy(comms[i]));
    MPI_Finalize();
    return wrong != 0;
}
