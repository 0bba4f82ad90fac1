/* SPDX-License-Identifier: BSD-3-Clause */
/* xccl report: what processes that use XCCL are doing, and what killed ones were doing, from the
 * records that the library keeps (core/record/README.md). It only reads; no process notices.
 *
 * Thread: the program's main thread. */
#include "command.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "option.h"
#include "report/report.h"

#define COMMAND    "report"
#define EVENTS_MAX 1000000
#define INTERVAL_S 86400
#define KEEP_SOME  1u /* enough to know the last sign of life */
#define COUNT_MAX  1000000000

enum { OPTION_INTERVAL = 256, OPTION_COUNT, OPTION_EVENTS };

static const struct option long_options[] = {
    {"interval", required_argument, NULL, OPTION_INTERVAL},
    {"count", required_argument, NULL, OPTION_COUNT},
    {"events", required_argument, NULL, OPTION_EVENTS},
    {"json", no_argument, NULL, 'J'},
    {NULL, 0, NULL, 0},
};

/* 0 after a message. */
static int read_option(int code, struct xccl_report_options *options)
{
    int64_t events = 0;

    switch (code) {
    case OPTION_INTERVAL:
        if (!xccl_option_seconds(COMMAND, "--interval", optarg, INTERVAL_S, &options->interval_ms))
            return 0;
        if (!options->interval_ms)
            xccl_option_usage(COMMAND, "--interval must be more than 0");
        return options->interval_ms != 0;
    case OPTION_COUNT:
        return xccl_option_int(COMMAND, "--count", optarg, 1, COUNT_MAX, &options->count);
    case OPTION_EVENTS:
        if (!xccl_option_int(COMMAND, "--events", optarg, 1, EVENTS_MAX, &events))
            return 0;
        options->events = (uint32_t)events;
        return 1;
    default:
        options->json = 1;
        return 1;
    }
}

static int read_arguments(int argc, char **argv, struct xccl_report_options *options)
{
    int code = 0;

    opterr = 0;
    while ((code = getopt_long(argc, argv, ":J", long_options, NULL)) != -1) {
        if (code == '?' || code == ':')
            return xccl_option_unknown(COMMAND, code, argc, argv, long_options);
        if (!read_option(code, options))
            return XCCL_EXIT_USAGE;
    }
    if (options->count && !options->interval_ms)
        return xccl_option_usage(COMMAND, "--count needs --interval");
    if (optind < argc - 1)
        return xccl_option_usage(COMMAND,
                                 "unexpected argument %s: give at most one process id or file",
                                 argv[optind + 1]);
    options->target = argv[optind];
    return XCCL_EXIT_OK;
}

static void tell_nothing(const struct xccl_report_options *options)
{
    char folders[XCCL_RECORD_FOLDERS][XCCL_RECORD_PATH_BYTES];
    int count = xccl_record_folders(folders);

    if (options->target)
        fprintf(stderr, "xccl report: there is no record of process %s", options->target);
    else
        fprintf(stderr, "xccl report: no process of this user has a record");
    for (int i = 0; i < count; i++)
        fprintf(stderr, "%s%s", i ? " or " : ", in ", folders[i]);
    fprintf(stderr, "\n");
}

static void tell_old(const struct xccl_report *report)
{
    if (report->old)
        fprintf(stderr,
                "xccl report: left out %d record%s of dead processes, written by other versions of "
                "XCCL; the xccl command of the same version shows them\n",
                report->old, report->old == 1 ? "" : "s");
}

static void show(const struct xccl_report *report, const struct xccl_report *earlier,
                 const struct xccl_report_options *options)
{
    if (options->json)
        xccl_report_json(report, earlier, options);
    else
        xccl_report_table(report, earlier, options);
}

static int any_live(const struct xccl_report *report)
{
    for (uint32_t i = 0; i < report->count; i++)
        if (report->records[i].view.live)
            return 1;
    return 0;
}

static void sleep_ms(uint64_t ms)
{
    struct timespec left = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};

    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        continue;
}

/* A report every interval, until count of them have been shown or nothing is alive. Takes report
 * over. 0: something went wrong. */
static int repeat(struct xccl_report *report, const struct xccl_report_options *options)
{
    uint32_t keep = options->events ? options->events : KEEP_SOME;
    struct xccl_report next;
    int fine = 1;

    for (int64_t i = 0; fine && any_live(report) && (!options->count || i < options->count); i++) {
        sleep_ms(options->interval_ms);
        fine = xccl_report_collect(options->target, keep, &next);
        if (!fine || !next.count)
            break;
        if (i && !options->json)
            putchar('\n');
        show(&next, report, options);
        fine = fflush(stdout) == 0;
        xccl_report_free(report);
        *report = next;
    }
    xccl_report_free(report);
    return fine;
}

static int report_main(int argc, char **argv)
{
    struct xccl_report_options options = {.target = NULL};
    struct xccl_report report;
    int status = read_arguments(argc, argv, &options), failed;

    if (status)
        return status;
    if (!xccl_report_collect(options.target, options.events ? options.events : KEEP_SOME, &report))
        return XCCL_EXIT_FAILURE;
    failed = report.failed;
    tell_old(&report);
    if (!report.count) {
        if (!failed)
            tell_nothing(&options);
        xccl_report_free(&report);
        return XCCL_EXIT_FAILURE;
    }
    if (options.interval_ms && any_live(&report))
        return repeat(&report, &options) && !failed ? XCCL_EXIT_OK : XCCL_EXIT_FAILURE;
    show(&report, NULL, &options);
    xccl_report_free(&report);
    return failed ? XCCL_EXIT_FAILURE : XCCL_EXIT_OK;
}

const struct xccl_command xccl_cmd_report = {
    .name = "report",
    .summary = "show the calls of running processes, and the last calls of killed ones",
    .run = report_main,
    .help =
        "usage: xccl report [PID|FILE] [--interval S [--count N]] [--events N] [-J]\n"
        "\n"
        "Shows the records that the library keeps of its communicators: those of one process\n"
        "(PID), those in one record file (FILE), or those of all processes of this user on this\n"
        "host. Ranks of one communicator are listed together, first with what each is doing, then\n"
        "with its calls issued and done: a rank that lags behind stands out. With several CUDA\n"
        "devices, the path between each two of them, and why it was chosen, are shown too. The\n"
        "record of a killed process remains until newer records take its place; a process that\n"
        "exits normally leaves none. Reading a record does not disturb its process.\n"
        "\n"
        "  --interval S   repeat every S seconds (2.5 is allowed), with rates, until no process\n"
        "                 with a record runs any more\n"
        "  --count N      stop after N repetitions\n"
        "  --events N     also show the last N events of each communicator, with their times\n"
        "  -J, --json     print one JSON object per line; the schema is\n"
        "                 share/xccl/schema/report.schema.json\n"
        "\n"
        "Bytes: `issued B` and `done B` are the bytes of the calls begun and ended; a call counts\n"
        "with the size of its largest buffer. `sent` and `recv` count the data that the rank\n"
        "exchanged with other ranks: `near` on its own host, `far` on other hosts. Settings:\n"
        "XCCL_RECORD, XCCL_RECORD_DIR, XCCL_RECORD_EVENTS.\n"
        "\n"
        "Exit status: 0; 1 if there is no record, or one cannot be read; 2 for wrong arguments.\n"
        "\n"
        "examples: xccl report\n"
        "          xccl report 4711 --interval 1\n"
        "          xccl report --events 20 /dev/shm/xccl-1000/4711-18ea6a1669241f16.record\n",
};
