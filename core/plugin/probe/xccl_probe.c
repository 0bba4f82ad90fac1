/* SPDX-License-Identifier: BSD-3-Clause */
/* xccl-probe FILE CONTRACT load|init: tries a network plugin out for net_probe.c. Standard output
 * gets the name of each step before it is made, and `done` when all came back, whatever the plugin
 * said; `absent` when the loader finds no such file. It dies with the one who asked.
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
    void *handle;

    say("loading it");
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return net_is_absent(dlerror()) && !strchr(path, '/') ? NET_PROBE_WORD_ABSENT
                                                              : NET_PROBE_WORD_DONE;
    say("unloading it");
    dlclose(handle);
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

int main(int argc, char **argv)
{
    const char *word;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (argc != 4) {
        fprintf(stderr, "usage: xccl-probe FILE CONTRACT load|init; it is XCCL's own helper\n");
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
    if (strcmp(argv[3], "load") == 0)
        word = load_only(argv[1]);
    else
        word = load_and_init(argv[1], atoi(argv[2]));
    say(word);
    _exit(0); /* no destructors: what they do is not part of the question */
}
