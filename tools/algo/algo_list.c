/* SPDX-License-Identifier: BSD-3-Clause */
/* xccl algo list: one line for each algorithm, proven for the given number of ranks.
 *
 * Thread: the program's main thread. */
#include <getopt.h>
#include <stdio.h>

#include "algo/algo_int.h"
#include "base/alloc.h"
#include "command.h"
#include "option.h"
#include "schedule/decode.h"

#define COMMAND       "algo list"
#define RANKS_DEFAULT 8

const char xccl_algo_list_help[] =
    "usage: xccl algo list [-n N|--nodes A,B,...] [--coll COLL] [--plugin FILE]\n"
    "\n"
    "Lists the built-in algorithms and those of XCCL_ALGO_PLUGIN. Each is proven for N ranks\n"
    "before its line is printed.\n"
    "\n"
    "  -n N, --ranks N   number of ranks (default 8)\n"
    "  --nodes A,B,...   for hierarchies: number of ranks on each node (default: 4 per node,\n"
    "                    the rest on the last)\n"
    "  --coll COLL       list only this collective: all_reduce, broadcast, reduce, all_gather,\n"
    "                    reduce_scatter, alltoall, gather, scatter or barrier\n"
    "  --plugin FILE     list only the algorithms of this plugin, a path (./x.so) or a name; or\n"
    "                    of several, separated by commas\n"
    "\n"
    "Columns:\n"
    "  records   length of the schedule on the rank where it is longest, in records of 32 bytes\n"
    "  sends     messages that the busiest rank sends, one message per chunk (part of the data)\n"
    "  bytes     amount that the busiest rank sends, as a multiple of the largest buffer of the\n"
    "            call: 1.5 is one and a half times that buffer\n"
    "  slots     slots (buffers) that each connection needs at least\n"
    "  class     reproducibility of results; 1: a repeated call gives the same bits; 2: in\n"
    "            addition, all ranks get the same bits; 3: in addition, the result of an element\n"
    "            does not depend on its position or on the number of elements\n"
    "  direct    transfers that may go to or from user memory instead of a slot\n"
    "  order     yes: ranks of a host stand together, whatever their numbers are; hier needs no\n"
    "            order, since it knows the hosts\n"
    "  the last  a description; n is the number of ranks, PARAM the parameter\n"
    "\n"
    "Exit status: 0; 1 if an algorithm is not proven; 2 for wrong arguments.\n";

/* What one rank does. */
struct work {
    uint32_t records;
    uint64_t sends;
    int direct_send, direct_recv;
};

static struct work work_of(const struct xccl_schedule *schedule)
{
    struct work work = {.records = schedule->nsteps};

    for (uint32_t lane = 0; lane < schedule->nlanes; lane++) {
        for (uint32_t i = 0; i < schedule->lanes[lane].nstep; i++) {
            const struct xccl_step *step = &schedule->steps[schedule->lanes[lane].step0 + i];

            if (step->op & XCCL_STEP_SEND)
                work.sends += (uint64_t)step->rep * step->cnt *
                              xccl_schedule_fan(schedule, lane, step->sconn, step->fan >> 4);
            work.direct_send |= (step->flags & XCCL_FLAG_DIRECT_SEND) != 0;
            work.direct_recv |= (step->flags & XCCL_FLAG_DIRECT_RECV) != 0;
        }
    }
    return work;
}

static void print_line(const struct xccl_generator *generator, struct xccl_schedule *const *ranks,
                       int nranks, const struct xccl_verdict *verdict)
{
    static const char *const direct[2][2] = {{"-", "recv"}, {"send", "send recv"}};
    struct work most = {0};

    for (int i = 0; i < nranks; i++) {
        struct work work = work_of(ranks[i]);

        most.records = work.records > most.records ? work.records : most.records;
        most.sends = work.sends > most.sends ? work.sends : most.sends;
        most.direct_send |= work.direct_send;
        most.direct_recv |= work.direct_recv;
    }
    printf("%-14s %-14s %7u %7llu %9.3f %5u %5u  %-9s  %-5s  %s\n", xccl_coll_name(generator->coll),
           generator->name, most.records, (unsigned long long)most.sends,
           (double)most.sends / ranks[0]->nchunks, verdict->minslots, verdict->class,
           direct[most.direct_send][most.direct_recv], generator->takes_order ? "yes" : "-",
           generator->help);
}

/* 1: it is proven, or does not serve so many. */
static int list_one(const struct xccl_generator *generator, int nranks, const int *nodes)
{
    struct xccl_generator_for what = {.nranks = nranks, .nodes = nodes};
    struct xccl_verdict verdict;
    struct xccl_schedule **ranks;
    int good;

    if (generator->serves && !generator->serves(&what)) {
        printf("%-14s %-14s does not support %d ranks\n", xccl_coll_name(generator->coll),
               generator->name, nranks);
        return 1;
    }
    ranks = xccl_algo_make(generator, &what);
    good = ranks && xccl_prove(ranks, nranks, &verdict) == xcclSuccess;
    if (!good)
        xccl_option_tell_error(generator->name);
    else if (verdict.kind == XCCL_VERDICT_PROVEN)
        print_line(generator, ranks, nranks, &verdict);
    else
        printf("%-14s %-14s REFUSED: %s\n", xccl_coll_name(generator->coll), generator->name,
               verdict.text);
    good = good && verdict.kind == XCCL_VERDICT_PROVEN;
    xccl_algo_free(ranks, nranks);
    return good;
}

static int list_all(int nranks, const int *nodes, int coll, int plugins_only)
{
    const struct xccl_generator *generator;
    int good = 1;

    printf("# %d ranks\n%-14s %-14s %7s %7s %9s %5s %5s  %-9s  %s\n", nranks, "# collective",
           "algorithm", "records", "sends", "bytes", "slots", "class", "direct", "order");
    for (int i = 0; (generator = xccl_generator_at(i)); i++) {
        if ((coll < 0 || generator->coll == (enum xccl_coll)coll) &&
            (!plugins_only || xccl_algo_plugin_path(generator)))
            good &= list_one(generator, nranks, nodes);
    }
    return good;
}

int xccl_algo_list_main(int argc, char **argv)
{
    static const struct option known[] = {{"ranks", required_argument, NULL, 'n'},
                                          {"coll", required_argument, NULL, 'c'},
                                          {"nodes", required_argument, NULL, 'd'},
                                          {"plugin", required_argument, NULL, 'p'},
                                          {0}};
    const char *text = NULL, *plugins = NULL;
    int coll = -1, good, code, count, *nodes;
    int64_t nranks = 0;

    while ((code = getopt_long(argc, argv, ":n:", known, NULL)) != -1) {
        if (code == 'c') {
            coll = xccl_algo_coll(COMMAND, optarg);
            if (coll < 0)
                return XCCL_EXIT_USAGE;
        } else if (code == 'd') {
            text = optarg;
        } else if (code == 'p') {
            plugins = optarg;
        } else if (code != 'n') {
            return xccl_option_unknown(COMMAND, code, argc, argv, known);
        } else if (!xccl_option_int(COMMAND, "-n", optarg, 1, XCCL_ALGO_RANKS_MAX, &nranks)) {
            return XCCL_EXIT_USAGE;
        }
    }
    if (optind < argc)
        return xccl_option_usage(COMMAND, "unexpected argument %s", argv[optind]);
    if (!xccl_algo_plugins(COMMAND, plugins))
        return XCCL_EXIT_FAILURE;
    if (!text && nranks == 0)
        nranks = RANKS_DEFAULT;
    count = xccl_algo_nodes(COMMAND, text, (int)nranks, &nodes);
    if (count == 0)
        return XCCL_EXIT_USAGE;
    good = list_all(count, nodes, coll, plugins != NULL);
    xccl_free(nodes);
    return good ? XCCL_EXIT_OK : XCCL_EXIT_FAILURE;
}
