/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI's all-reduce measured as `xccl perf all_reduce` measures XCCL's, so that side_by_side may set
 * the times beside each other: warm-up calls, then batches of back-to-back calls that grow until
 * one takes 20 ms, the slowest rank's time, out of place, sums of float. Prints "BYTES
 * MICROSECONDS" a line.
 *
 * usage: mpi_all_reduce MINBYTES MAXBYTES FACTOR. Thread: one; one rank a process. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define PAGE_BYTES   4096
#define WARMUP_ITERS 5
#define FIRST_ITERS  20
#define ITERS_MAX    1000000
#define BATCHES_MAX  16
#define ENOUGH_US    20000.0

/* The time of iters calls on the slowest rank. */
static double time_batch(const float *send, float *recv, int count, long iters)
{
    float one = 1;
    float ranks = 0;
    double start_s = 0;
    double own_s = 0;
    double slowest_s = 0;

    /* The ranks meet in a small all-reduce, as in xccl perf. */
    MPI_Allreduce(&one, &ranks, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    start_s = MPI_Wtime();
    for (long i = 0; i < iters; i++)
        MPI_Allreduce(send, recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    own_s = MPI_Wtime() - start_s;
    MPI_Allreduce(&own_s, &slowest_s, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest_s * 1e6;
}

static double measure_us(const float *send, float *recv, int count)
{
    long iters = FIRST_ITERS;
    double us = 0;

    for (int i = 0; i < WARMUP_ITERS; i++)
        MPI_Allreduce(send, recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (int batch = 0; batch < BATCHES_MAX; batch++) {
        double growth = 0;

        us = time_batch(send, recv, count, iters);
        if (us >= ENOUGH_US || iters >= ITERS_MAX)
            break;
        growth = 1.2 * ENOUGH_US / (us > 1 ? us : 1);
        if (growth > 100)
            growth = 100;
        iters = (long)((double)iters * growth) + 1;
        if (iters > ITERS_MAX)
            iters = ITERS_MAX;
    }
    return us / (double)iters;
}

/* Small whole numbers, whose sums are exact; 1 when every element is right. */
static int check(float *send, float *recv, int count, int rank, int nranks)
{
    for (int i = 0; i < count; i++) {
        send[i] = (float)(i % 251 + rank);
        recv[i] = -1;
    }
    MPI_Allreduce(send, recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++) {
        int sum = nranks * (i % 251) + nranks * (nranks - 1) / 2;

        if (recv[i] < (float)sum || recv[i] > (float)sum)
            return 0;
    }
    return 1;
}

static void *take_pages(size_t bytes)
{
    void *memory = aligned_alloc(PAGE_BYTES, (bytes / PAGE_BYTES + 1) * PAGE_BYTES);

    if (!memory) {
        fprintf(stderr, "mpi_all_reduce: no memory for %zu bytes\n", bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

int main(int argc, char **argv)
{
    size_t min_bytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 8;
    size_t max_bytes = argc > 2 ? strtoull(argv[2], NULL, 10) : 8u << 20;
    size_t factor = argc > 3 ? strtoull(argv[3], NULL, 10) : 4;
    float *send = NULL;
    float *recv = NULL;
    int rank = 0;
    int nranks = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    if (min_bytes < sizeof(float) || factor < 2 || max_bytes > INT32_MAX) {
        fprintf(stderr, "usage: mpi_all_reduce MINBYTES MAXBYTES FACTOR\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    send = take_pages(max_bytes);
    recv = take_pages(max_bytes);
    for (size_t bytes = min_bytes; bytes <= max_bytes; bytes *= factor) {
        int count = (int)(bytes / sizeof(float));
        double us = 0;

        if (!check(send, recv, count, rank, nranks)) {
            fprintf(stderr, "mpi_all_reduce: rank %d: a sum of %zu bytes is wrong\n", rank, bytes);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        us = measure_us(send, recv, count);
        if (rank == 0)
            printf("%zu %.4f\n", bytes, us);
    }
    free(recv);
    free(send);
    MPI_Finalize();
    return 0;
}
