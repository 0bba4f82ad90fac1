/* SPDX-License-Identifier: BSD-3-Clause */
/* xccl algo show: the schedule of an algorithm as text, as JSON, or event by event.
 *
 * Thread: the program's main thread. */
#include <getopt.h>
#include <stdio.h>

#include "algo/algo_int.h"
#include "base/alloc.h"
#include "command.h"
#include "option.h"
#include "schedule/decode.h"

#define COMMAND "algo show"

const char xccl_algo_show_help[] =
    "usage: xccl algo show NAME -n N|--nodes A,B,... [--coll COLL] [options]\n"
    "\n"
    "Prints the schedule of an algorithm: what each rank does, step by step. `xccl algo verify\n"
    "FILE` can read the text and the JSON.\n"
    "\n"
    "  -n N, --ranks N   number of ranks\n"
    "  --nodes A,B,...   for the algorithm hier, instead of -n: number of ranks on each node;\n"
    "                    with -n, each node has 4 ranks and the last one the rest\n"
    "  --inner NAME, --outer NAME\n"
    "                    for hier: the algorithms within and between nodes\n"
    "  --order R,R,...   the rank at each position, for algorithms that `xccl algo list` marks\n"
    "                    (default: by number); ranks of a host should stand together\n"
    "  --coll COLL       the collective, if NAME serves several\n"
    "  --root R          root of broadcast, reduce, gather and scatter (default 0)\n"
    "  --rank R          print only this rank\n"
    "  --plugin FILE     load an algorithm plugin, by path (./x.so) or name, instead of those\n"
    "                    in XCCL_ALGO_PLUGIN\n"
    "  --json            print JSON instead of text\n"
    "  --explicit        print each chunk of each step on a separate line\n"
    "\n"
    "Where `xccl algo list` says PARAM, a number may follow the name after a colon: pat:4.\n"
    "\n"
    "Exit status: 0; 1 if the schedule is not proven; 2 for wrong arguments.\n";

struct show {
    const char *name, *inner, *outer, *nodes_text, *order_text, *plugins;
    int *nodes;
    uint16_t *order;
    int coll, json, explicit;
    int64_t nranks, root, rank; /* rank -1: all */
};

/* ---- event by event ---- */

static void print_peers(const struct xccl_schedule *schedule, const char *word, uint32_t first,
                        uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct xccl_schedule_conn *conn = &schedule->conns[first + i];

        printf("%s%u%s", i ? "," : word, conn->peer, conn->kind == XCCL_CONN_MULTICAST ? "*" : "");
    }
}

static void print_event(const struct xccl_schedule *schedule, const struct xccl_event *event)
{
    static const char *const buffers[] = {"in", "out", "scratch", "zero"};
    const struct xccl_step *step = event->step;

    if (step->op & XCCL_STEP_XCHG)
        printf(" exchange");
    if (step->op & XCCL_STEP_RECV)
        print_peers(schedule, " from ", event->rconn, event->nrecv);
    if (step->op & XCCL_STEP_SRC)
        printf(" %s %s[%u]", step->op & XCCL_STEP_XCHG ? "send" : "source",
               buffers[xccl_step_src_buffer(step)], event->src);
    if (step->op & XCCL_STEP_DST)
        printf(" %s %s[%u]", step->op & XCCL_STEP_ACC ? "add to" : "store",
               buffers[xccl_step_dst_buffer(step)], event->dst);
    if (step->op & XCCL_STEP_SEND)
        print_peers(schedule, " to ", event->sconn, event->nsend);
    printf("%s%s%s\n", step->flags & XCCL_FLAG_PRE ? " pre" : "",
           step->flags & XCCL_FLAG_POST ? " post" : "",
           step->flags & XCCL_FLAG_ORDERED ? " ordered" : "");
}

static void print_events(const struct xccl_schedule *schedule)
{
    for (uint32_t lane = 0; lane < schedule->nlanes; lane++) {
        const struct xccl_schedule_lane *of = &schedule->lanes[lane];

        for (uint32_t i = 0; i < of->nstep; i++) {
            const struct xccl_step *step = &schedule->steps[of->step0 + i];

            for (uint32_t at = 0; at < (uint32_t)step->rep * step->cnt; at++) {
                struct xccl_event event;

                xccl_event_decode(schedule, lane, step, at / step->cnt, at % step->cnt, &event);
                printf("rank %u lane %u step %u.%u:", schedule->rank, lane, i, at);
                print_event(schedule, &event);
            }
        }
    }
}

/* ---- the command ---- */

static int print_all(const struct show *show, struct xccl_schedule *const *ranks)
{
    struct xccl_schedule *const *first = show->rank < 0 ? ranks : &ranks[show->rank];
    int count = show->rank < 0 ? (int)show->nranks : 1;

    if (show->explicit) {
        for (int i = 0; i < count; i++)
            print_events(first[i]);
        return 1;
    }
    return (show->json ? xccl_schedule_print_json(stdout, first, count)
                       : xccl_schedule_print(stdout, first, count)) == 0;
}

static int show_main(const struct show *show)
{
    struct xccl_generator_for what = {.nranks = (int)show->nranks,
                                      .root = (int)show->root,
                                      .nodes = show->nodes,
                                      .inner = show->inner,
                                      .outer = show->outer,
                                      .order = show->order};
    const struct xccl_generator *generator = xccl_algo_named(COMMAND, show->name, show->coll,
                                                             &what.param);
    struct xccl_schedule **ranks;
    struct xccl_verdict verdict;
    int status = XCCL_EXIT_FAILURE;

    if (!generator)
        return XCCL_EXIT_USAGE;
    if (!generator->plan && (show->inner || show->outer || show->nodes_text))
        return xccl_option_usage(COMMAND, "--nodes does not apply to %s; it applies to hier",
                                 show->name);
    if (!generator->takes_order && show->order)
        return xccl_option_usage(COMMAND,
                                 "--order does not apply to %s, whose ranks are not in a "
                                 "line",
                                 show->name);
    ranks = xccl_algo_make(generator, &what);
    if (!ranks || xccl_prove(ranks, what.nranks, &verdict) != xcclSuccess) {
        xccl_option_tell_error(COMMAND);
    } else {
        if (verdict.kind == XCCL_VERDICT_PROVEN)
            status = XCCL_EXIT_OK;
        else
            fprintf(stderr, "xccl %s: refused: %s\n", COMMAND, verdict.text);
        if (!print_all(show, ranks))
            status = XCCL_EXIT_FAILURE;
    }
    xccl_algo_free(ranks, what.nranks);
    return status;
}

static int read_option(int code, struct show *show)
{
    switch (code) {
    case 'n':
        return xccl_option_int(COMMAND, "-n", optarg, 1, XCCL_ALGO_RANKS_MAX, &show->nranks);
    case 'o':
        return xccl_option_int(COMMAND, "--root", optarg, 0, XCCL_ALGO_RANKS_MAX, &show->root);
    case 'r':
        return xccl_option_int(COMMAND, "--rank", optarg, 0, XCCL_ALGO_RANKS_MAX, &show->rank);
    case 'c':
        show->coll = xccl_algo_coll(COMMAND, optarg);
        return show->coll >= 0;
    case 'd':
        show->nodes_text = optarg;
        return 1;
    case 'e':
        show->order_text = optarg;
        return 1;
    case 'i':
        show->inner = optarg;
        return 1;
    case 'u':
        show->outer = optarg;
        return 1;
    case 'p':
        show->plugins = optarg;
        return 1;
    case 'j':
        show->json = 1;
        return 1;
    default:
        show->explicit = 1;
        return 1;
    }
}

int xccl_algo_show_main(int argc, char **argv)
{
    static const struct option known[] = {
        {"ranks", required_argument, NULL, 'n'},  {"coll", required_argument, NULL, 'c'},
        {"root", required_argument, NULL, 'o'},   {"rank", required_argument, NULL, 'r'},
        {"nodes", required_argument, NULL, 'd'},  {"order", required_argument, NULL, 'e'},
        {"inner", required_argument, NULL, 'i'},  {"outer", required_argument, NULL, 'u'},
        {"json", no_argument, NULL, 'j'},         {"explicit", no_argument, NULL, 'x'},
        {"plugin", required_argument, NULL, 'p'}, {0}};
    struct show show = {.coll = -1, .rank = -1};
    int code, status;

    while ((code = getopt_long(argc, argv, ":n:", known, NULL)) != -1) {
        if (code == '?' || code == ':')
            return xccl_option_unknown(COMMAND, code, argc, argv, known);
        if (!read_option(code, &show))
            return XCCL_EXIT_USAGE;
    }
    if (optind + 1 != argc)
        return xccl_option_usage(COMMAND, "name one algorithm");
    if (show.nranks == 0 && !show.nodes_text)
        return xccl_option_usage(COMMAND, "give the number of ranks with -n");
    if (!xccl_algo_plugins(COMMAND, show.plugins))
        return XCCL_EXIT_FAILURE;
    show.nranks = xccl_algo_nodes(COMMAND, show.nodes_text, (int)show.nranks, &show.nodes);
    if (show.nranks == 0)
        return XCCL_EXIT_USAGE;
    show.name = argv[optind];
    show.order = show.order_text ? xccl_algo_order(COMMAND, show.order_text, (int)show.nranks)
                                 : NULL;
    if (show.order_text && !show.order)
        status = XCCL_EXIT_USAGE;
    else if (show.root >= show.nranks || show.rank >= show.nranks)
        status = xccl_option_usage(COMMAND, "ranks are numbered from 0 to %d",
                                   (int)show.nranks - 1);
    else
        status = show_main(&show);
    xccl_free(show.order);
    xccl_free(show.nodes);
    return status;
}
