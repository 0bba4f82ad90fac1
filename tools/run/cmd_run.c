/* SPDX-License-Identifier: BSD-3-Clause */
/* xccl run: reads the arguments and hands the rest to the launcher.
 *
 * Thread: the program's main thread. */
#include "command.h"

#include <getopt.h>
#include <stddef.h>

#include "base/param.h"
#include "option.h"
#include "run/launch.h"

#define GRACE_MS    5000
#define GRACE_MAX_S 86400

static const struct option long_options[] = {
    {"ranks", required_argument, NULL, 'n'},
    {"grace", required_argument, NULL, 'g'},
    {"no-prefix", no_argument, NULL, 'p'},
    {"prefix", no_argument, NULL, 'P'},
    {NULL, 0, NULL, 0},
};

static int run_main(int argc, char **argv)
{
    struct xccl_launch_args args = {.title = "xccl run", .grace_ms = GRACE_MS, .prefix = 1};
    int64_t nranks = 0;
    int code = 0;

    opterr = 0;
    while ((code = getopt_long(argc, argv, "+:n:", long_options, NULL)) != -1) {
        switch (code) {
        case 'n':
            if (!xccl_option_int("run", "-n", optarg, 1, XCCL_LAUNCH_MAX_RANKS, &nranks))
                return XCCL_EXIT_USAGE;
            break;
        case 'g':
            if (!xccl_option_seconds("run", "--grace", optarg, GRACE_MAX_S, &args.grace_ms))
                return XCCL_EXIT_USAGE;
            break;
        case 'p':
        case 'P':
            args.prefix = code == 'P';
            break;
        default:
            return xccl_option_unknown("run", code, argc, argv, long_options);
        }
    }
    if (nranks == 0)
        return xccl_option_usage("run", "the number of ranks is missing: give -n N");
    if (optind >= argc)
        return xccl_option_usage("run", "the program to run is missing");
    /* A wrong setting is told once here rather than by every rank. */
    if (xccl_param_load() != xcclSuccess) {
        xccl_option_tell_error("xccl run");
        return XCCL_EXIT_FAILURE;
    }
    args.nranks = (int)nranks;
    args.prefix = args.prefix && nranks > 1;
    args.argv = argv + optind;
    args.program = args.argv[0];
    return xccl_launch(&args);
}

const struct xccl_command xccl_cmd_run = {
    .name = "run",
    .summary = "start a program as N ranks on this host",
    .run = run_main,
    .help =
        "usage: xccl run -n N [options] [--] PROGRAM [ARGUMENTS...]\n"
        "\n"
        "Starts PROGRAM N times on this host, as ranks 0 to N-1 of one job, and waits until all\n"
        "have ended. The environment of each rank holds all that xcclGetLaunch and\n"
        "xcclCommInitRank need: XCCL_RANK, XCCL_NRANKS, the address where the ranks meet, and\n"
        "the secret of the job, which is new for each run.\n"
        "\n"
        "  -n, --ranks N      number of ranks, 1 to 4096\n"
        "      --no-prefix    let the ranks write to the terminal directly; by default each\n"
        "                     line of up to 64 KiB is shown whole, with \"[rank] \" in front if\n"
        "                     there are several ranks\n"
        "      --grace S      seconds that the other ranks get to report their own errors after\n"
        "                     one rank has failed (default 5, fractions allowed); after that\n"
        "                     they get SIGTERM, and SIGKILL 2 s later\n"
        "\n"
        "Standard input goes to rank 0 unless it is a terminal; all other ranks read an empty\n"
        "input. SIGINT, SIGTERM and SIGHUP are passed on to the ranks; a second one kills them\n"
        "at once. No rank outlives the launcher, and processes that a rank leaves behind are\n"
        "killed when the rank ends. A line longer than 64 KiB is shown in pieces.\n"
        "\n"
        "Exit status: 0 if every rank exits with 0; otherwise that of the first rank that\n"
        "failed (128 plus the signal number if a signal killed it); 127 or 126 if PROGRAM\n"
        "cannot be started; 2 for wrong arguments.\n"
        "\n"
        "example: xccl run -n 4 -- build/release/examples/hello\n",
};
