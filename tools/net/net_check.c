/* SPDX-License-Identifier: BSD-3-Clause */
/* `xccl net check`: reads the options and runs the conformance suite on one plugin.
 *
 * Thread: the program's main thread, its only one: the suite forks. */
#include "net/net_check.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "conformance.h"
#include "option.h"
#include "xccl_net.h"

#define NAME      "net check"
#define TOKEN_MAX 32

/* Sanitized programs are slower. */
#ifdef XCCL_SANITIZED
#define QUICK_MS 120000u
#else
#define QUICK_MS 30000u
#endif

const char xccl_net_check_help[] =
    "usage: xccl net check [options] PLUGIN\n"
    "       xccl net check --serve HOST:PORT --token T [--device N] [--rails N]\n"
    "                      [--max-bytes N] PLUGIN\n"
    "\n"
    "Checks a network plugin against every rule of its contract, without a GPU or a second\n"
    "host: xccl_net.h, or of it what NCCL's contract has too. PLUGIN is named as in\n"
    "XCCL_NET_PLUGIN: socket, ./libxccl-net-my.so, fault:socket, /opt/x/libnccl-net.so@v10.\n"
    "Each test case runs in a separate process with a deadline, so a crash or a hang fails\n"
    "only that case. A case has one or more forms:\n"
    "\n"
    "  single       one thread drives both ends\n"
    "  threads      one thread per end, in one instance of the plugin\n"
    "  processes    one process per end\n"
    "  namespaces   one process per end, in two network namespaces (needs root or user\n"
    "               namespaces)\n"
    "  remote       one end here, the other on the host that runs --serve; only with --remote\n"
    "\n"
    "  --form LIST       run only these forms, separated by commas\n"
    "  --case PATTERN    run only cases whose name matches, for example 'close_*'\n"
    "  --list            list the cases with their rules and forms; run nothing\n"
    "  --quick           use messages up to 1 MiB and fewer rounds, and --within 30; a quick\n"
    "                    plugin takes a few seconds\n"
    "  --within S        end within S seconds; 0: no limit (default 0, with --quick 30). The most\n"
    "                    telling cases run first, a case gets 8 s at most unless --timeout says\n"
    "                    otherwise, and a call that may not wait gets 3 s. Cases for which no\n"
    "                    time is left are named and counted as left out\n"
    "  --max-bytes N     largest message (K, M, G; default 1G, less if memory is short)\n"
    "  --device N        number of the plugin's device (default 0)\n"
    "  --rails N         number of devices, from --device on, to merge into one (default 1)\n"
    "  --seed N          seed of random sizes and orders (default 1)\n"
    "  --repeat N        run all cases N times, with consecutive seeds, and show only failures;\n"
    "                    under the fault plugin, the seed is also that of the injected faults,\n"
    "                    unless XCCL_NET_FAULT sets one\n"
    "  --jobs N          number of cases to run at the same time (default 1, because some cases\n"
    "                    measure time)\n"
    "  --timeout S       deadline of a case in seconds (default 30)\n"
    "  --skip FILE       cases to leave out, one 'PATTERN: reason' per line (default: the list\n"
    "                    installed for the plugin in share/xccl/conformance)\n"
    "  --remote HOST:PORT\n"
    "                    use two hosts: the other end of each case is where --serve runs, and\n"
    "                    this end sends\n"
    "  --reverse         with --remote: the other end sends\n"
    "  --serve HOST:PORT\n"
    "                    be the other end for one run; HOST is an address of this host; port 0\n"
    "                    takes any free port and prints it\n"
    "  --token T         password of 1 to 32 characters, the same on both hosts; --serve\n"
    "                    rejects a connection without it. It is sent unencrypted\n"
    "  -J FILE           also write the results as JSON; - is standard output\n"
    "\n"
    "The last line counts the cases. passed, failed: as judged by the contract. skipped: not for\n"
    "this plugin or machine. noted: something that NCCL's contract allows and XCCL's does not.\n"
    "left out: no time, see --within.\n"
    "\n"
    "Exit status: 0 if no case failed and none was left out; 1 if a case failed or the plugin "
    "does\n"
    "not open; 2 for wrong arguments; 3 if no case failed, but some were left out.\n";

enum {
    OPTION_FORM = 256,
    OPTION_CASE,
    OPTION_LIST,
    OPTION_QUICK,
    OPTION_MAX_BYTES,
    OPTION_DEVICE,
    OPTION_RAILS,
    OPTION_SEED,
    OPTION_REPEAT,
    OPTION_JOBS,
    OPTION_TIMEOUT,
    OPTION_SKIP,
    OPTION_REMOTE,
    OPTION_REVERSE,
    OPTION_SERVE,
    OPTION_TOKEN,
    OPTION_WITHIN
};

static const struct option options_known[] = {
    {"form", required_argument, NULL, OPTION_FORM},
    {"case", required_argument, NULL, OPTION_CASE},
    {"list", no_argument, NULL, OPTION_LIST},
    {"quick", no_argument, NULL, OPTION_QUICK},
    {"max-bytes", required_argument, NULL, OPTION_MAX_BYTES},
    {"device", required_argument, NULL, OPTION_DEVICE},
    {"rails", required_argument, NULL, OPTION_RAILS},
    {"seed", required_argument, NULL, OPTION_SEED},
    {"repeat", required_argument, NULL, OPTION_REPEAT},
    {"jobs", required_argument, NULL, OPTION_JOBS},
    {"timeout", required_argument, NULL, OPTION_TIMEOUT},
    {"skip", required_argument, NULL, OPTION_SKIP},
    {"remote", required_argument, NULL, OPTION_REMOTE},
    {"reverse", no_argument, NULL, OPTION_REVERSE},
    {"serve", required_argument, NULL, OPTION_SERVE},
    {"token", required_argument, NULL, OPTION_TOKEN},
    {"within", required_argument, NULL, OPTION_WITHIN},
    {"json", required_argument, NULL, 'J'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* What the command line says. */
struct said {
    struct xccl_conformance_options options;
    const char *serve;
    uint32_t seen; /* a bit for each option */
};

static uint32_t bit_of(int code)
{
    return code >= OPTION_FORM ? UINT32_C(1) << (code - OPTION_FORM) : UINT32_C(1) << 31;
}

/* Names with commas between. 0: one is unknown, which has been told. */
static int read_forms(const char *text, unsigned *forms_out)
{
    *forms_out = 0;
    while (*text) {
        char name[32];
        size_t bytes = strcspn(text, ",");
        unsigned form;

        snprintf(name, sizeof(name), "%.*s", (int)(bytes < 31 ? bytes : 31), text);
        form = xccl_conformance_form(name);
        if (!form || form == XCCL_CONFORMANCE_REMOTE) {
            xccl_option_usage(NAME,
                              form ? "the form %s is selected by --remote"
                                   : "--form takes single, threads, processes and namespaces, not "
                                     "%s",
                              name);
            return 0;
        }
        *forms_out |= form;
        text += bytes + (text[bytes] == ',');
    }
    return 1;
}

/* One option with a number. 0: wrong, which has been told. */
static int read_number(int code, const char *text, struct xccl_conformance_options *options)
{
    int64_t seed = 0;

    switch (code) {
    case OPTION_MAX_BYTES:
        return xccl_option_bytes(NAME, "--max-bytes", text, &options->max_bytes);
    case OPTION_DEVICE:
        return xccl_option_int(NAME, "--device", text, 0, 1 << 20, &options->device);
    case OPTION_RAILS:
        return xccl_option_int(NAME, "--rails", text, 1, XCCL_NET_MAX_MEMBERS, &options->rails);
    case OPTION_REPEAT:
        return xccl_option_int(NAME, "--repeat", text, 1, 1000000, &options->repeat);
    case OPTION_JOBS:
        return xccl_option_int(NAME, "--jobs", text, 1, 64, &options->jobs);
    case OPTION_TIMEOUT:
        return xccl_option_seconds(NAME, "--timeout", text, 3600, &options->timeout_ms);
    case OPTION_WITHIN:
        return xccl_option_seconds(NAME, "--within", text, 86400, &options->within_ms);
    default:
        if (!xccl_option_int(NAME, "--seed", text, 0, INT64_MAX / 4, &seed))
            return 0;
        options->seed = (uint64_t)seed;
        return 1;
    }
}

/* One option. 0: go on; else the exit status plus one. */
static int read_option(int code, struct said *said)
{
    struct xccl_conformance_options *options = &said->options;

    said->seen |= bit_of(code);
    switch (code) {
    case OPTION_REMOTE:
        options->remote = optarg;
        return 0;
    case OPTION_REVERSE:
        options->reverse = 1;
        return 0;
    case OPTION_SERVE:
        said->serve = optarg;
        return 0;
    case OPTION_TOKEN:
        options->token = optarg;
        return 0;
    case OPTION_FORM:
        return read_forms(optarg, &options->forms) ? 0 : XCCL_EXIT_USAGE + 1;
    case OPTION_CASE:
        options->case_pattern = optarg;
        return 0;
    case OPTION_LIST:
        xccl_conformance_list();
        return XCCL_EXIT_OK + 1;
    case OPTION_QUICK:
        options->quick = 1;
        return 0;
    case OPTION_SKIP:
        options->skip_path = optarg;
        return 0;
    case 'J':
        options->json_path = optarg;
        return 0;
    case 'h':
        fputs(xccl_net_check_help, stdout);
        return XCCL_EXIT_OK + 1;
    default:
        return read_number(code, optarg, options) ? 0 : XCCL_EXIT_USAGE + 1;
    }
}

/* An option that the host that runs decides, not the one that serves; NULL: none was said. */
static const char *runners_option(uint32_t seen)
{
    const uint32_t own = bit_of(OPTION_SERVE) | bit_of(OPTION_TOKEN) | bit_of(OPTION_DEVICE) |
                         bit_of(OPTION_RAILS) | bit_of(OPTION_MAX_BYTES);

    for (const struct option *known = options_known; known->name; known++) {
        if (known->val != 'h' && seen & ~own & bit_of(known->val))
            return known->name;
    }
    return NULL;
}

/* What --remote and --serve need, and take. 0: it does not fit, which has been told. */
static int is_consistent(const struct said *said)
{
    const struct xccl_conformance_options *options = &said->options;
    const char *serve = said->serve;

    if (options->remote && serve)
        xccl_option_usage(NAME, "use --serve on one host and --remote on the other");
    else if ((options->remote || serve) &&
             (!options->token || !options->token[0] || strlen(options->token) > TOKEN_MAX))
        xccl_option_usage(NAME, "--remote and --serve need the same --token, 1 to %d characters",
                          TOKEN_MAX);
    else if (options->remote && options->jobs > 1)
        xccl_option_usage(NAME, "--remote runs one case at a time: --jobs 1");
    else if (options->remote && said->seen & bit_of(OPTION_FORM))
        xccl_option_usage(NAME, "--remote cannot be combined with --form");
    else if (options->reverse && !options->remote)
        xccl_option_usage(NAME, "--reverse needs --remote");
    else if (options->token && !options->remote && !serve)
        xccl_option_usage(NAME, "--token needs --remote or --serve");
    else if (serve && runners_option(said->seen))
        xccl_option_usage(NAME,
                          "--%s cannot be combined with --serve; give it on the host with --remote",
                          runners_option(said->seen));
    else
        return 1;
    return 0;
}

int xccl_net_check_main(int argc, char **argv)
{
    struct said said = {.options = {
                            .forms = XCCL_CONFORMANCE_FORMS,
                            .max_bytes = 1ull << 30,
                            .seed = 1,
                            .repeat = 1,
                            .jobs = 1,
                        }};
    int code;

    optind = 1;
    opterr = 0;
    while ((code = getopt_long(argc, argv, ":J:h", options_known, NULL)) != -1) {
        int status;

        if (code == '?' || code == ':')
            return xccl_option_unknown(NAME, code, argc, argv, options_known);
        status = read_option(code, &said);
        if (status)
            return status - 1;
    }
    if (optind + 1 != argc)
        return xccl_option_usage(NAME, "name one plugin, for example `xccl net check socket`");
    said.options.item = argv[optind];
    if (!is_consistent(&said))
        return XCCL_EXIT_USAGE;
    if (said.options.quick && !(said.seen & bit_of(OPTION_WITHIN)))
        said.options.within_ms = QUICK_MS;
    if (said.options.remote)
        said.options.forms = XCCL_CONFORMANCE_REMOTE;
    return said.serve ? xccl_conformance_serve(&said.options, said.serve)
                      : xccl_conformance_run(&said.options);
}
