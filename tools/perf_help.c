/* SPDX-License-Identifier: BSD-3-Clause */
/* What `xccl help perf` and `xccl help perf latency` and the like print: usage first, then what it
 * measures, its options, exit statuses and examples.
 *
 * Thread: any. */
#include "perf_help.h"

#include <stddef.h>
#include <string.h>

#define STARTING                                                                                   \
    "      --ranks N        ranks to start on this host (default: one for each usable core, at\n"  \
    "                       least 2)\n"                                                            \
    "  -t, --nthreads N     ranks that are threads of one process; without --ranks there is one\n" \
    "                       process, and under a launcher each of its processes has N\n"           \
    "      --device D       host or cuda: where the buffers are (default: as XCCL_DEVICE says);\n" \
    "                       ranks of a host take its devices in turn\n"

const char xccl_perf_help[] =
    "usage: xccl perf COLLECTIVE [options]\n"
    "       xccl perf latency | groups | bootstrap [options]\n"
    "\n"
    "COLLECTIVE is all_reduce, all_gather, broadcast, reduce, reduce_scatter, alltoall, gather,\n"
    "scatter, sendrecv (to the next rank, from the one before), all_gatherv, reduce_scatterv,\n"
    "alltoallv or barrier. Measures it over a range of sizes, out of place and in place, and\n"
    "compares every element of a result with what it must be. The table has the columns of\n"
    "nccl-tests. Started by xccl run, mpirun, srun or torchrun it is one rank of that job; else "
    "it\n"
    "starts ranks on this host itself.\n"
    "\n"
    "  latency     half a round trip of messages, small collectives by ranks: percentiles\n"
    "  groups      random groups of calls over several communicators, all data checked\n"
    "  bootstrap   how ranks meet and talk before there is a communicator\n"
    "`xccl help perf latency` and the like say more.\n"
    "\n" STARTING
    "  -b, --minbytes B     smallest size (default 8); K, M and G may follow the number\n"
    "  -e, --maxbytes B     greatest size (default 8M)\n"
    "  -f, --stepfactor F   each size is F times the one before (default 4)\n"
    "  -i, --stepbytes B    each size is B more than the one before, instead of -f\n"
    "  -n, --iters N        calls that are timed together, exactly; without -n at least 20, and\n"
    "                       as many as take 20 ms\n"
    "  -w, --warmup_iters N calls before that, not timed (default 5)\n"
    "  -m, --agg_iters N    calls in one group (default 1); times are of one call all the same\n"
    "  -c, --check N        checked calls after the timed ones (default 1; 0: no check)\n"
    "  -d, --datatype T     int8, uint8, int32, uint32, int64, uint64, half, float, double,\n"
    "                       bfloat16, f8e4m3, f8e5m2 or all (default float)\n"
    "  -o, --op OP          sum, prod, max, min, avg or all, of collectives that reduce\n"
    "                       (default sum)\n"
    "  -r, --root N         root of broadcast, reduce, gather and scatter (default 0); all or -1:\n"
    "                       each rank in turn\n"
    "  -R, --local_register N  1: buffers of xcclMemAlloc, which ranks of one host read in place,\n"
    "                       and with --device cuda registered too; 2: registered ones, on the\n"
    "                       host private (default 0)\n"
    "  -G, --cudagraph N    the timed calls become a CUDA graph, which is launched N times\n"
    "  -I, --intervals      columns with percentiles of single calls, the slowest rank's of each;\n"
    "                       looking at the clock makes them longer than the mean\n"
    "      --vs-mpi         the same with the MPI of this host, in turn: five rounds, medians, "
    "and\n"
    "                       the ratio of our time to MPI's, below 1 where ours is quicker. N/A\n"
    "                       where MPI has no such call\n"
    "  -T, --timeout S      how long a call may wait for other ranks (sets XCCL_TIMEOUT_S)\n"
    "  -J, --output_json F  writes the figures to F as JSON too (share/xccl/schema)\n"
    "      --plot F         draws them into F (SVG)\n"
    "\n"
    "A size is that of the largest buffer: with all_gather, reduce_scatter, alltoall, gather and\n"
    "scatter all blocks together, each rounded down to 16 bytes; count is what the call is given.\n"
    "Where blocks have sizes of their own (all_gatherv and so on) they are as 1 to 2 to 3 and so\n"
    "on, and count is that of all. alltoall, alltoallv and sendrecv have no in-place form; "
    "barrier\n"
    "has no sizes, and in a check one rank comes late.\n"
    "\n"
    "time is that of one call on the slowest rank; algbw is size / time; busbw is algbw times\n"
    "2(n-1)/n for all_reduce, 1 for broadcast, reduce and sendrecv, else (n-1)/n: what the "
    "busiest\n"
    "wire would carry; #wrong counts the wrong elements, and the bytes beside the receive buffer\n"
    "that were written, over all ranks. A long run shows on a terminal how far it is.\n"
    "\n"
    "Exit status: 0; 1 when a value was wrong or a rank failed; 2 for wrong arguments.\n"
    "\n"
    "examples: xccl perf all_reduce --ranks 4\n"
    "          xccl perf reduce --ranks 3 -b 1M -e 1M -d all -o all -r all\n"
    "          xccl perf all_gather --ranks 2 --vs-mpi --plot all_gather.svg\n"
    "          xccl perf all_reduce --ranks 2 --device cuda -e 64M -G 10\n"
    "          mpirun -n 4 xccl perf all_reduce\n"
    "          xccl run -n 2 -- xccl perf all_reduce -b 1K -e 64M -f 2\n";

static const char latency_help[] =
    "usage: xccl perf latency [options]\n"
    "\n"
    "Measures single calls: half a round trip of a message between ranks 0 and 1, and all_reduce,\n"
    "broadcast, reduce and barrier on the first 2, 4, 8 and so on ranks, and on all. Shows the "
    "mean\n"
    "of calls back to back, and percentiles of single ones, of each the slowest rank's, which\n"
    "include a look at the clock. A broadcast or reduce may be done on a rank before the others\n"
    "have begun it. Every row's data is checked.\n"
    "\n" STARTING "  -b, --minbytes B     smallest size (default 8)\n"
    "  -e, --maxbytes B     greatest size (default 8K)\n"
    "  -f, --stepfactor F   each size is F times the one before (default 32)\n"
    "  -i, --stepbytes B    each size is B more than the one before, instead of -f\n"
    "  -n, --iters N        calls, exactly; without -n as many as take 20 ms\n"
    "  -w, -c, -T, -J       as of a collective: `xccl help perf`\n"
    "\n"
    "Exit status: 0; 1 when a value was wrong or a rank failed; 2 for wrong arguments.\n"
    "\n"
    "examples: xccl perf latency --ranks 4\n"
    "          srun -n 64 xccl perf latency -e 64\n";

static const char groups_help[] =
    "usage: xccl perf groups [options]\n"
    "\n"
    "Makes random groups of calls: collectives of every kind, messages, messages of a rank to\n"
    "itself, calls without elements, groups within groups, and calls outside of groups, of every\n"
    "type, operator, root and form. They go over several communicators, which are split from each\n"
    "other at random; within a group each rank has its calls in another order. Every element of\n"
    "every result is compared with what it must be. All follows from the seed: the same seed and\n"
    "number of ranks give the same groups.\n"
    "\n" STARTING "      --groups N       groups (default 100)\n"
    "      --comms M        communicators, the first of all ranks (default 3, at most 32)\n"
    "      --seed S         the seed, as it is printed; without it a random one\n"
    "  -e, --maxbytes B     greatest size of a call (default 64K); most are small\n"
    "  -c, --check N        0: data is not compared\n"
    "  -T, -J               as of a collective: `xccl help perf`\n"
    "\n"
    "Exit status: 0; 1 when a value was wrong or a rank failed; 2 for wrong arguments.\n"
    "\n"
    "examples: xccl perf groups --ranks 8 --groups 1000\n"
    "          xccl perf groups -t 8 --comms 5 --seed 0x5eed\n";

static const char bootstrap_help[] =
    "usage: xccl perf bootstrap [--ranks N] [--threads] [-n N] [-J F]\n"
    "\n"
    "Measures how ranks meet and talk before there is a communicator: joining, barrier,\n"
    "all-gather, broadcast, and messages there and back; medians, of the slowest rank.\n"
    "\n"
    "      --ranks N        ranks to start (default: one for each usable core, at least 2)\n"
    "      --threads        the ranks are threads of this process\n"
    "  -n, --iters N        operations; without -n as many as take 200 ms\n"
    "  -J, --output_json F  writes the figures to F as JSON too\n"
    "\n"
    "Exit status: 0; 1 when a byte was wrong or a rank failed; 2 for wrong arguments.\n"
    "\n"
    "example: mpirun -n 4 xccl perf bootstrap\n";

const char *xccl_perf_part_help(const char *part)
{
    if (strcmp(part, "latency") == 0)
        return latency_help;
    if (strcmp(part, "groups") == 0)
        return groups_help;
    return strcmp(part, "bootstrap") == 0 ? bootstrap_help : NULL;
}
