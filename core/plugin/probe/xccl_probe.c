/* SPDX-License-Identifier: BSD-3-Clause */
/* xccl-probe FILE CONTRACT load|init|tuner ID: tries a network plugin or a tuner out for
 * net_probe.c. Standard output gets the name of each step before it is made, and `done` when all
 * came back, whatever the plugin said; `absent` when the loader finds no such file. It dies with
 * the one who asked. ID says which file was looked at, and no other is loaded; empty: FILE is a
 * soname.
 *
 * Thread: one, and what the plugin makes. */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/param.h"
#include "plugin/net_plugin_int.h"
#include "plugin/tuner_library.h"

static int answer_fd;

static void say(const char *word)
{
    char line[128];
    int bytes = snprintf(line, sizeof(line), "%s\n", word);

    if (write(answer_fd, line, (size_t)bytes) != bytes)
        _exit(2);
}

/* Loading alone: a hook, or a name that the loader's own path may know. */
static const char *load_only(const char *path)
{
    struct net_reason why = {""};
    void *handle;

    say("loading it");
    if (net_file_to_try)
        handle = net_file_load(path, net_file_to_try, &why);
    else
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle && net_file_to_try)
        return NET_PROBE_WORD_DONE;
    if (!handle)
        return net_is_absent(dlerror()) ? NET_PROBE_WORD_ABSENT : NET_PROBE_WORD_DONE;
    say("unloading it");
    net_file_close(handle);
    return NET_PROBE_WORD_DONE;
}

/* Opens the plugin as the library does afterwards, without another probe. */
static const char *load_and_init(const char *path, int contract)
{
    static const struct xccl_net_open_args args = {
        .nranks = 1, .comm_name = "probe", .traffic_class = -1};
    struct net_reason why = {""};
    struct xccl_net *net = net_file_open(path, contract, &args, &why);

    xccl_net_close(net);
    return NET_PROBE_WORD_DONE;
}

static void keep_line(const char *level, const char *line)
{
    (void)level, (void)line;
}

/* Asks about one call, as the library does, with two candidates. */
static void choose(const struct xccl_tuner_library *library, void *ctx, uint64_t bytes)
{
    static const xcclTunerCandidate_v1_t usual = {.size = sizeof(usual),
                                                  .algorithm = "ring",
                                                  .protocol = "slices",
                                                  .cost = 1,
                                                  .tileBytes = 131072,
                                                  .tileMin = 64,
                                                  .tileMax = 131072,
                                                  .tileAlign = 32};
    xcclTunerQuery_v1_t query = {
        .size = sizeof(query), .collective = "all_reduce", .bytes = bytes, .elemBytes = 4};
    xcclTunerCandidate_v1_t candidates[2] = {usual, usual}, *list[2] = {candidates, candidates + 1};

    candidates[1].algorithm = "dtree";
    candidates[1].cost = 2;
    (void)library->calls.choose(ctx, &query, list, 2);
}

/* Begins for a communicator of 16 ranks on 2 hosts. What the tuner answers is looked at in earnest
 * only. */
static const char *load_and_choose(const char *path)
{
    static const xcclTunerComm_v1_t comm = {.size = sizeof(comm),
                                            .commId = 1,
                                            .nranks = 16,
                                            .nnodes = 2,
                                            .minRanksPerNode = 8,
                                            .maxRanksPerNode = 8,
                                            .log = keep_line};
    struct xccl_tuner_library *library = NULL;
    void *ctx = NULL;

    say("loading it");
    if (xccl_tuner_library_load(path, &library) != xcclSuccess || !library)
        return NET_PROBE_WORD_DONE;
    say("init");
    if (!xccl_tuner_start(library, &comm, &ctx))
        return NET_PROBE_WORD_DONE;
    say("choose");
    choose(library, ctx, 8);
    choose(library, ctx, 1 << 20);
    say("finalize");
    library->calls.finalize(ctx);
    return NET_PROBE_WORD_DONE;
}

int main(int argc, char **argv)
{
    struct xccl_file_id id;
    const char *word;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (argc != 5 || (argv[4][0] && !net_probe_id_parse(argv[4], &id))) {
        fprintf(stderr,
                "usage: xccl-probe FILE CONTRACT load|init|tuner ID; it is XCCL's own helper\n");
        return 2;
    }
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    /* What a plugin prints must not be taken for an answer. */
    answer_fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (answer_fd < 0 || !freopen("/dev/null", "w", stdout))
        return 2;
    setenv("XCCL_PLUGIN_PROBE_S", "0", 1);
    setenv("XCCL_DEBUG", "error", 1);
    unsetenv("XCCL_DEBUG_FILE");
    if (xccl_param_load() != xcclSuccess)
        return 2;
    net_stage_hook = say;
    net_file_to_try = argv[4][0] ? &id : NULL;
    if (strcmp(argv[3], "load") == 0)
        word = load_only(argv[1]);
    else if (strcmp(argv[3], "tuner") == 0)
        word = load_and_choose(argv[1]);
    else
        word = load_and_init(argv[1], atoi(argv[2]));
    say(word);
    _exit(0); /* no destructors: what they do is not part of the question */
}
