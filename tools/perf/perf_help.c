/* SPDX-License-Identifier: BSD-3-Clause */
/* What `xccl help perf` and `xccl help perf latency` and the like print: usage first, then what it
 * measures, its options, exit statuses and examples.
 *
 * Thread: any. */
#include "perf/perf_help.h"

#include <stddef.h>
#include <string.h>

#include "perf/perf.h"

#define STARTING                                                                                   \
    "      --ranks N        number of ranks to start on this host (default: one per usable\n"      \
    "                       core, at least 2)\n"                                                   \
    "  -t, --nthreads N     run N ranks as threads of one process (default 1): with --ranks M,\n"  \
    "                       M/N processes; without --ranks, one process; under a launcher, N\n"    \
    "                       ranks in each of its processes\n"                                      \
    "      --device D       location of the buffers, host or cuda (default: as XCCL_DEVICE\n"      \
    "                       says); the ranks of a host take its CUDA devices in turn\n"

const char xccl_perf_help[] =
    "usage: xccl perf COLLECTIVE [options]\n"
    "       xccl perf latency | groups | bootstrap [options]\n"
    "\n"
    "Measures a collective over a range of sizes, out of place and in place. After the timed\n"
    "calls of a size, one more call is checked: every element of its result is compared with\n"
    "the expected value. The table has the columns of nccl-tests. Under xccl run, mpirun, srun\n"
    "or torchrun, this command is one rank of that job; otherwise it starts ranks on this host\n"
    "itself. COLLECTIVE is all_reduce, all_gather, broadcast, reduce, reduce_scatter, alltoall,\n"
    "gather, scatter, sendrecv (each rank sends to the next one), all_gatherv, reduce_scatterv,\n"
    "alltoallv or barrier.\n"
    "\n"
    "  latency     latency of messages and of small collectives, with percentiles\n"
    "  groups      random groups of calls over several communicators, all data checked\n"
    "  bootstrap   startup: how ranks meet and exchange data before there is a communicator\n"
    "Details: `xccl help perf latency`, `xccl help perf groups`, `xccl help perf bootstrap`.\n"
    "\n" STARTING
    "  -b, --minbytes B     smallest size (default 8); K, M or G may follow the number\n"
    "  -e, --maxbytes B     no size is larger than B (default 8M)\n"
    "  -f, --stepfactor F   factor from each size to the next (default 4)\n"
    "  -i, --stepbytes B    bytes from each size to the next, instead of -f\n"
    "  -n, --iters N        number of calls in one measurement (default: as many as take 20 ms,\n"
    "                       at least 20)\n"
    "  -w, --warmup_iters N calls before the timed ones (default 5)\n"
    "  -m, --agg_iters N    calls in one group, that is between xcclGroupStart and\n"
    "                       xcclGroupEnd (default 1); times are still those of one call\n"
    "  -c, --check N        checked calls after the timed ones (default 1; 0: no check)\n"
    "  -d, --datatype T     int8, uint8, int32, uint32, int64, uint64, half, float, double,\n"
    "                       bfloat16, f8e4m3, f8e5m2 or all (default float)\n"
    "  -o, --op OP          sum, prod, max, min, avg or all, for collectives that reduce\n"
    "                       (default sum)\n"
    "  -r, --root N         root of broadcast, reduce, gather and scatter (default 0); all or\n"
    "                       -1: each rank in turn\n"
    "  -R, --local_register N\n"
    "                       memory of the buffers; 0: ordinary (default); 1: from xcclMemAlloc\n"
    "                       (ranks of one host read it in place; CUDA memory is registered too);\n"
    "                       2: ordinary and registered\n"
    "  -G, --cudagraph N    capture the timed calls in a CUDA graph and launch it N times\n"
    "  -I, --intervals      add percentiles of single calls, each timed on its slowest rank;\n"
    "                       reading the clock adds overhead, so these are higher than the mean\n"
    "      --vs-mpi         run the MPI of this host too, in five alternating rounds, and show\n"
    "                       the medians and MPI's time divided by XCCL's (above 1, XCCL is\n"
    "                       faster; N/A if MPI has no such call)\n"
    "  -T, --timeout S      seconds that a call may wait for other ranks (sets XCCL_TIMEOUT_S)\n"
    "  -J, --output_json F  also write the figures to file F as JSON (schema:\n"
    "                       share/xccl/schema)\n"
    "      --plot F         also draw the figures into file F (SVG)\n"
    "\n"
    "A size is that of the largest buffer. For all_gather, reduce_scatter, alltoall, gather\n"
    "and scatter, that buffer holds all blocks, each rounded down to a multiple of 16 bytes,\n"
    "so a smaller block is empty; count is what the call is given: the elements of one block.\n"
    "For all_gatherv, reduce_scatterv and alltoallv, the blocks have sizes in the ratio 1:2:3\n"
    "and so on, and count is the sum. alltoall, alltoallv and sendrecv have no in-place form.\n"
    "barrier has no sizes; in its check, one rank enters late, and no other rank may return\n"
    "before it has entered.\n"
    "\n"
    "time is the time of one call on the slowest rank. algbw is size / time. busbw is algbw\n"
    "times 2(n-1)/n for all_reduce, 1 for broadcast, reduce and sendrecv, and (n-1)/n for all\n"
    "others, with n ranks: the bandwidth that each rank needs if the algorithm sends the least\n"
    "possible data.\n"
    "#wrong is the number of wrong elements plus the number of bytes that were written outside\n"
    "the receive buffer, of all ranks together; 0 is correct. In place means that a rank's\n"
    "result replaces its input in the same buffer. On a terminal, a long run shows its\n"
    "progress.\n"
    "\n"
    "Exit status: 0; 1 if a value was wrong or a rank failed; 2 for wrong arguments.\n"
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
    "Measures latency: half a round trip of a message between ranks 0 and 1 (send_recv); and\n"
    "all_reduce, broadcast, reduce and barrier on the first 2, 4, 8 and so on ranks, and on all\n"
    "ranks. There are two measurements: the mean of calls back to back, and percentiles of\n"
    "calls that are timed singly, each on its slowest rank, which include the time to read the\n"
    "clock. The mean of a broadcast or reduce may be shorter than one message, because a rank\n"
    "may finish it before other ranks have begun. The data of every row is checked.\n"
    "\n" STARTING "  -b, --minbytes B     smallest size (default 8)\n"
    "  -e, --maxbytes B     no size is larger than B (default 8K)\n"
    "  -f, --stepfactor F   factor from each size to the next (default 32)\n"
    "  -i, --stepbytes B    bytes from each size to the next, instead of -f\n"
    "  -n, --iters N        number of calls (default: as many as take 20 ms)\n"
    "  -w, -c, -T, -J       as for a collective: `xccl help perf`\n"
    "\n"
    "Exit status: 0; 1 if a value was wrong or a rank failed; 2 for wrong arguments.\n"
    "\n"
    "examples: xccl perf latency --ranks 4\n"
    "          srun -n 64 xccl perf latency -e 64\n";

static const char groups_help[] =
    "usage: xccl perf groups [options]\n"
    "\n"
    "Tests groups: the calls between xcclGroupStart and xcclGroupEnd, which XCCL runs\n"
    "together. The calls are random, with every data type, operator and root, in place and out\n"
    "of place: collectives of every kind, messages, messages of a rank to itself, calls\n"
    "without elements, groups within groups, and calls outside groups. They use several\n"
    "communicators, which are split from each other at random; within a group, each rank makes\n"
    "its calls in a different order, but those of one communicator in the same order. Every\n"
    "element of every result is compared with its expected value. The seed determines all\n"
    "choices: an equal seed, number of ranks and options give equal groups.\n"
    "\n"
    "" STARTING "      --groups N       number of groups (default 100)\n"
    "      --comms M        number of communicators (default 3, at most 32); the first has all\n"
    "                       ranks\n"
    "      --seed S         seed, as an earlier run printed it (default: random)\n"
    "  -e, --maxbytes B     largest size of a call (default 64K); most are small\n"
    "  -c, --check N        0: do not compare data (default 1: compare)\n"
    "  -T, -J               as for a collective: `xccl help perf`\n"
    "\n"
    "Exit status: 0; 1 if a value was wrong or a rank failed; 2 for wrong arguments.\n"
    "\n"
    "examples: xccl perf groups --ranks 8 --groups 1000\n"
    "          xccl perf groups -t 8 --comms 5 --seed 0x5eed\n";

static const char bootstrap_help[] =
    "usage: xccl perf bootstrap [--ranks N] [--threads] [-n N] [-J F]\n"
    "\n"
    "Measures the startup of a job: the time until all ranks have met, and the operations with\n"
    "which they exchange addresses before there is a communicator: barrier, all-gather,\n"
    "broadcast, and a message to another rank and back. Figures are medians; each operation is\n"
    "timed on its slowest rank.\n"
    "\n"
    "      --ranks N        number of ranks to start (default: one per usable core, at least 2)\n"
    "      --threads        run all ranks as threads of one process\n"
    "  -n, --iters N        number of operations (default: as many as take 200 ms)\n"
    "  -J, --output_json F  also write the figures to file F as JSON\n"
    "\n"
    "Exit status: 0; 1 if a byte was wrong or a rank failed; 2 for wrong arguments.\n"
    "\n"
    "example: mpirun -n 4 xccl perf bootstrap\n";

const char *xccl_perf_part_help(const char *part)
{
    if (strcmp(part, "latency") == 0)
        return latency_help;
    if (strcmp(part, "groups") == 0)
        return groups_help;
    if (strcmp(part, "bootstrap") == 0)
        return bootstrap_help;
    return xccl_perf_coll_find(part) ? xccl_perf_help : NULL;
}
