/* SPDX-License-Identifier: BSD-3-Clause */
/* The ofi plugin passes the conformance suite over the providers that Debian's libfabric brings up
 * anywhere, and through NCCL's tables; collectives are right over it; and it says what is missing
 * where it cannot be used. A provider that is not in the libfabric of this host is skipped.
 *
 * Opening libfabric costs each process some 0.2 s of work: so plugins are not tried out in a
 * process of their own, FI_PROVIDER keeps libfabric from starting providers that are not tested,
 * and one file that it reads is hidden (fixtures/no_kallsyms.c). */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "xt.h"

#define PLUGIN XT_BUILD_DIR "/lib/xccl/libxccl-net-ofi.so"

/* A sanitizer sees both ends at once where they are threads. */
#if defined(XCCL_SANITIZED)
#define FORM "threads"
#else
#define FORM "single"
#endif

static const char program[] = XT_BUILD_DIR "/bin/xccl", file_of_plugin[] = PLUGIN;

static int run(const char *const *argv, const char **output_out)
{
    int status = xt_run_program(argv, output_out);

    XT_CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void need_library(void)
{
    void *library = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

    if (!library)
        XT_SKIP("libfabric1 is not installed");
    dlclose(library);
}

/* Also on a crowded machine. A sanitizer wants to be the first library. */
static void open_quickly(void)
{
    need_library();
#if !defined(XCCL_SANITIZED)
    xt_setenv("LD_PRELOAD", XT_BUILD_DIR "/lib/fixtures/no_kallsyms.so");
#endif
    xt_setenv("XCCL_PLUGIN_PROBE_S", "0");
    xt_setenv("FI_PROVIDER", "tcp,ofi_rxm,udp,ofi_rxd,net,shm");
}

static void need(const char *provider)
{
    const char *argv[] = {program, "net", "list", file_of_plugin, NULL}, *output = NULL;

    open_quickly();
    xt_setenv("XCCL_OFI_PROVIDER", provider);
    if (run(argv, &output) != 0 && strstr(output, "no provider: not here is "))
        XT_SKIP("this libfabric has no %s", provider);
    XT_CHECK_HAS(output, provider);
}

static void passes(const char *plugin, const char *forms, const char *cases)
{
    const char *argv[] = {program,  "net",  "check",  "--quick", "--within=0",
                          "--jobs", "2",    "--form", forms,     "--timeout",
                          "120",    plugin, "--case", cases,     NULL};
    const char *output = NULL;

    if (run(argv, &output) != 0)
        XT_FAIL("%s, %s, %s: %s", plugin, forms, cases, xt_why(output));
    XT_CHECK_HAS(output, " passed, 0 failed");
}

XT_TEST_DEADLINE(the_suite_passes_over_tcp, 600)
{
    need("tcp;ofi_rxm");
    /* An endpoint takes 80 MiB otherwise. The others have it so. */
    xt_setenv("FI_OFI_RXM_BUFFER_SIZE", "2048");
    passes(PLUGIN, FORM, "*");
    passes(PLUGIN, "processes", "*_killed*");
    passes(PLUGIN, "processes", "tags_*");
}

XT_TEST_DEADLINE(messages_pass_between_hosts, 300)
{
    need("tcp;ofi_rxm");
    passes(PLUGIN, "namespaces", "every_size_arrives");
}

XT_TEST_DEADLINE(the_suite_passes_over_net, 300)
{
    need("net");
    passes(PLUGIN, "threads", "*");
    passes(PLUGIN, "processes", "early_*");
}

/* --- the write path: messages above 8 KiB are written --- */

/* That it is taken shows in what the device is said to do. */
static void need_writes(const char *provider)
{
    const char *argv[] = {program, "net", "list", file_of_plugin, NULL}, *output = NULL;

    xt_setenv("XCCL_OFI_PATH", "write");
    xt_setenv("FI_OFI_RXM_BUFFER_SIZE", "2048");
    need(provider);
    xt_setenv("XCCL_DEBUG", "info");
    XT_CHECK_INT(run(argv, &output), 0);
    XT_CHECK_HAS(output, ": registered memory, ");
    XT_CHECK_HAS(output, ", large ones are written");
    xt_setenv("XCCL_DEBUG", NULL);
}

XT_TEST_DEADLINE(the_suite_passes_over_tcp_with_writes, 600)
{
    need_writes("tcp;ofi_rxm");
    passes(PLUGIN, FORM, "*");
    passes(PLUGIN, "threads", "early_*");
    passes(PLUGIN, "processes", "early_*");
    passes(PLUGIN, "processes", "tags_*");
    passes(PLUGIN, "processes", "*_killed*");
    passes(PLUGIN, "namespaces", "every_size_arrives");
    passes(PLUGIN "@v12", "threads", "every_size_arrives");
}

/* net keeps four messages that come early, and then stops the writes behind them too. */
XT_TEST_DEADLINE(writes_over_net_need_room_for_early_messages, 300)
{
    const char *argv[] = {program, "net", "list", file_of_plugin, NULL}, *output = NULL;

    need("net");
    xt_setenv("XCCL_OFI_PATH", "write");
    XT_CHECK_INT(run(argv, &output), 1);
    XT_CHECK_HAS(output, "set FI_NET_MAX_SAVED=64, or unset XCCL_OFI_PATH");
    xt_setenv("FI_NET_MAX_SAVED", "64");
    need_writes("net");
    passes(PLUGIN, "threads", "*");
}

XT_TEST_DEADLINE(writes_pass_over_udp, 300)
{
    need_writes("udp;ofi_rxd");
    passes(PLUGIN, "threads", "*_sends_*");
    passes(PLUGIN, "threads", "*_size*");
    passes(PLUGIN, "threads", "tags_*");
    passes(PLUGIN, "processes", "early_*");
    passes(PLUGIN, "processes", "receiver_is_killed");
}

/* Sends without receives are what it once stopped at, for good. */
XT_TEST_DEADLINE(messages_pass_over_udp, 300)
{
    need("udp;ofi_rxd");
    passes(PLUGIN, "threads", "*_sends_*");
    passes(PLUGIN, "threads", "messages_keep_their_order");
    passes(PLUGIN, "threads", "*group*");
    passes(PLUGIN, "threads", "tags_*");
    passes(PLUGIN, "processes", "receiver_is_killed");
}

XT_TEST_DEADLINE(registered_memory_passes, 300)
{
    need("tcp;ofi_rxm");
    xt_setenv("XCCL_OFI_REGISTER", "1");
    passes(PLUGIN, "single", "*regist*");
}

XT_TEST_DEADLINE(nccl_is_served_from_its_oldest_to_its_newest_table, 300)
{
    need("tcp;ofi_rxm");
    passes(PLUGIN "@v8", "threads", "every_size_arrives");
    passes(PLUGIN "@v12", "threads", "every_size_arrives");
}

static void use_seed(uint64_t number)
{
    char seed[24];

    snprintf(seed, sizeof(seed), "%llu", (unsigned long long)number);
    xt_setenv("FX_FABRIC_SEED", seed);
}

/* fixtures/fabric_strict.c: EFA's rules, -FI_EAGAIN at random, no order. That it is there shows in
 * what the device is said to take. */
static void make_strict(void)
{
    if (access(XT_BUILD_DIR "/lib/fixtures/fabric-strict/libfabric.so.1", R_OK) != 0)
        XT_SKIP("libfabric was not found when this was built");
    xt_setenv("LD_LIBRARY_PATH", XT_BUILD_DIR "/lib/fixtures/fabric-strict");
    use_seed(xt_seed());
}

/* With little memory an endpoint. */
static void make_strict_rails(void)
{
    need("tcp;ofi_rxm");
    make_strict();
    xt_setenv("FI_OFI_RXM_BUFFER_SIZE", "2048");
    xt_setenv("FI_OFI_RXM_MSG_RX_SIZE", "64");
}

XT_TEST_DEADLINE(a_network_as_strict_as_efa_is_enough, 600)
{
    const char *argv[] = {program, "net", "list", file_of_plugin, NULL}, *output = NULL;

    need("tcp;ofi_rxm");
    make_strict();
    xt_setenv("XCCL_DEBUG", "info");
    XT_CHECK_INT(run(argv, &output), 0);
    XT_CHECK_HAS(output, ": registered memory, manual progress, ");
    XT_CHECK_HAS(output, " bytes a message and 4 beside it, ");
    xt_setenv("XCCL_DEBUG", NULL);
    xt_setenv("FI_OFI_RXM_BUFFER_SIZE", "2048");
    passes(PLUGIN, "threads", "*");
    passes(PLUGIN, "single", "*_in_flight");
    passes(PLUGIN, "single", "*regist*");
    passes(PLUGIN, "processes", "*_killed*");
}

/* A message of 1,200,000 bytes has 15 pieces there, and 32 receives of it stand open: the longest
 * that a completion queue gets. */
XT_TEST_DEADLINE(a_network_as_strict_as_efa_is_enough_for_writes, 600)
{
    const char *argv[] = {program,    "net",     "perf", file_of_plugin, "-b",        "1200000",
                          "-e",       "1200000", "-w",   "32",           "-n",        "64",
                          "--rounds", "2",       "-T",   "60",           "--threads", NULL};
    const char *output = NULL;

    need("tcp;ofi_rxm");
    make_strict();
    need_writes("tcp;ofi_rxm");
    passes(PLUGIN, "threads", "*");
    passes(PLUGIN, "single", "*_in_flight");
    passes(PLUGIN, "single", "*regist*");
    passes(PLUGIN, "processes", "*_killed*");
    passes(PLUGIN, "processes", "early_*");
    if (run(argv, &output) != 0)
        XT_FAIL("%s", xt_why(output));
    xt_setenv("FX_FABRIC_ENDPOINT", "1");
    passes(PLUGIN, "threads", "every_*");
    passes(PLUGIN, "single", "*_in_flight");
    passes(PLUGIN, "single", "*regist*");
}

/* Orders that only a test can make are in plugins/ofi/test_ofi_messages.c. */
XT_TEST_DEADLINE(a_peer_that_keeps_to_no_rule_is_an_error_with_words, 120)
{
    static const struct {
        const char *damage, *text;
    } rows[] = {
        {"note", " sends what is no note of a receive"},
        {"large", " sends what is no note of a receive"},
        {"number", " sends a note of a receive that cannot be in flight"},
        {"twice", " sends a write that no receive in flight awaits"},
    };
    const char *argv[] = {
        program,   "net",       "check", "--quick", "--within=0",         "--form",
        "threads", "--timeout", "60",    "--case",  "every_size_arrives", PLUGIN,
        NULL};
    const char *output = NULL;

    need("tcp;ofi_rxm");
    make_strict();
    need_writes("tcp;ofi_rxm");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        xt_setenv("FX_FABRIC_DAMAGE", rows[i].damage);
        XT_CHECK_INT(run(argv, &output), 1);
        XT_CHECK_HAS(output, rows[i].text);
        XT_CHECK_HAS(output, "another rank or the network failed");
    }
}

/* --- device memory: fixtures/fabric_hmem.c says that it takes it --- */

#define CUDA XT_BUILD_DIR "/tests/libxccl-emu-cuda.so"

static void need_cuda(void)
{
    if (access(CUDA, R_OK) != 0)
        XT_SKIP("the stand-in for the CUDA driver is not built");
    need("tcp;ofi_rxm");
    make_strict();
    xt_setenv("FI_OFI_RXM_BUFFER_SIZE", "2048");
    xt_setenv("XCCL_CUDA_LIBRARY", CUDA);
    xt_setenv("FX_FABRIC_HMEM", "1");
}

/* Whatever the answer, the provider is the one that was asked for. */
XT_TEST_DEADLINE(device_memory_is_taken_where_all_have_it_and_the_others_are_named, 120)
{
    static const struct {
        const char *hmem, *version, *dmabuf, *driver, *gdr, *text;
    } rows[] = {
        {"1", NULL, NULL, CUDA, NULL, ": device memory: by address\n"},
        {"1", "1.20", "auto", CUDA, NULL, ": device memory: by address\n"},
        {"1", "1.20", "on", CUDA, NULL, ": device memory: by address and as DMA-BUF\n"},
        {"1", "1.19", "on", CUDA, NULL, ": device memory: by address\n"},
        {NULL, NULL, NULL, CUDA, NULL, ": libfabric's tcp;ofi_rxm does not offer FI_HMEM with"},
        {"copies", NULL, NULL, CUDA, NULL,
         ": cannot reach device memory without the help of CUDA on "},
        {"silent", NULL, NULL, CUDA, NULL, " (tcp;ofi_rxm): Protocol not available"},
        {"1", NULL, NULL, "/none", NULL, ": there is no CUDA driver: /none: No such file"},
        {"1", NULL, NULL, PLUGIN, NULL, ": there is no CUDA driver: "},
        {"1", NULL, NULL, CUDA, "off", ": XCCL_CUDA_GDR is off\n"},
    };
    const char *argv[] = {program, "net", "list", file_of_plugin, NULL}, *output = NULL;

    need_cuda();
    xt_setenv("XCCL_DEBUG", "info");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        xt_setenv("FX_FABRIC_HMEM", rows[i].hmem);
        xt_setenv("FX_FABRIC_VERSION", rows[i].version);
        xt_setenv("XCCL_OFI_DMABUF", rows[i].dmabuf);
        xt_setenv("XCCL_CUDA_LIBRARY", rows[i].driver);
        xt_setenv("XCCL_CUDA_GDR", rows[i].gdr);
        XT_CHECK_INT(run(argv, &output), 0);
        XT_CHECK_HAS(output, "tcp;ofi_rxm, as asked for");
        XT_CHECK_HAS(output, rows[i].text);
    }
}

/* Host memory goes on as ever, with the registrations and endpoints that device memory wants. */
XT_TEST_DEADLINE(the_suite_passes_where_device_memory_is_taken, 600)
{
    need_cuda();
    passes(PLUGIN, "threads", "*");
    passes(PLUGIN, "single", "*regist*");
    xt_setenv("FX_FABRIC_ENDPOINT", "1");
    passes(PLUGIN, "single", "*_in_flight");
    need_writes("tcp;ofi_rxm");
    passes(PLUGIN, "threads", "every_*");
    passes(PLUGIN, "single", "*regist*");
}

/* --- several rails --- */

/* $1: the program, the rest: its arguments. Four interfaces of one host; XT_OFI_RAILS: the complete
 * suite over them, else the quick one. */
static const char on_rails[] =
    "PATH=$PATH:/usr/sbin:/sbin; unshare -n true 2>/dev/null || exit 77;"
    "exec unshare -n sh -c '"
    "for i in 0 1 2 3; do"
    "  ip link add rail$i type veth peer name peer$i && ip addr add 10.79.$i.1/24 dev rail$i &&"
    "  ip link set rail$i up && ip link set peer$i up || exit 77; done;"
    /* The kernel says a little later that a link runs, and libfabric takes no other. */
    "for try in 1 2 3 4 5 6 7 8 9 10; do"
    "  [ $(ip -o link show | grep -c \"rail[0-9].*state UP\") = 4 ] && break; sleep 0.1; done;"
    "ip link set lo up; exec \"$@\"' sh \"$@\"";

static int check_on_rails(const char *rails, const char *forms, const char *cases,
                          const char **output_out)
{
    const char *extent = getenv("XT_OFI_RAILS") ? "--jobs=1" : "--quick";
    const char *argv[] = {"/bin/sh", "-c",   on_rails,     "sh",        program,   "net",  "check",
                          "--jobs",  "2",    "--form",     forms,       "--rails", rails,  "--case",
                          cases,     extent, "--within=0", "--timeout", "120",     PLUGIN, NULL};
    int status = run(argv, output_out);

    if (status == 77)
        XT_SKIP("needs root and the ip program");
    return status;
}

static void passes_on_rails(const char *rails, const char *forms, const char *cases)
{
    const char *output = NULL;

    if (check_on_rails(rails, forms, cases, &output) != 0)
        XT_FAIL("%s rails, %s, %s: %s", rails, forms, cases, xt_why(output));
    XT_CHECK_HAS(output, " passed, 0 failed");
}

XT_TEST_DEADLINE(the_suite_passes_over_rails, 600)
{
    need("tcp;ofi_rxm");
    xt_setenv("FI_OFI_RXM_BUFFER_SIZE", "2048");
    xt_setenv("FI_OFI_RXM_MSG_RX_SIZE", "64");
    passes_on_rails("2", FORM, "*");
    passes_on_rails("4", "threads", "*_size*");
    passes_on_rails("3", "processes", "tags_*");
    passes_on_rails("2", "processes", "*_killed*");
    xt_setenv("XCCL_OFI_WAIT", "1");
    passes_on_rails("2", "threads", "*sleeps_on*");
}

XT_TEST_DEADLINE(the_suite_passes_over_rails_with_writes, 600)
{
    need_writes("tcp;ofi_rxm");
    xt_setenv("FI_OFI_RXM_MSG_RX_SIZE", "64");
    passes_on_rails("2", FORM, "*");
    passes_on_rails("4", "threads", "*_size*");
    passes_on_rails("3", "processes", "tags_*");
    passes_on_rails("2", "processes", "*_killed*");
}

XT_TEST_DEADLINE(rails_as_strict_as_efa_are_enough, 600)
{
    make_strict_rails();
    passes_on_rails("2", "threads", "*");
    passes_on_rails("2", "single", "*_in_flight");
    need_writes("tcp;ofi_rxm");
    passes_on_rails("3", "threads", "*");
    passes_on_rails("2", "single", "*_in_flight");
    xt_setenv("FX_FABRIC_ENDPOINT", "1");
    passes_on_rails("2", "single", "*regist*");
    passes_on_rails("2", "threads", "tags_*");
    need_cuda();
    passes_on_rails("2", "threads", "every_*");
}

/* Cards that fail under traffic (fixtures/fabric_cut.c): all but one, after up to that many steps.
 */
static void cut_rails(int spare, int steps)
{
    char cut[32];

    snprintf(cut, sizeof(cut), "%d,%d", spare, steps);
    xt_setenv("FX_FABRIC_CUT", cut);
}

#define EARLY_CUTS 4 /* seeds a number of rails */

/* A program may be through before the last of its rails is. */
XT_TEST_DEADLINE(a_connection_all_of_whose_rails_fail_ends_in_time, 120)
{
    make_strict_rails();
    cut_rails(-1, 20);
    for (int seed = 1; seed <= 4; seed++) {
        const char *output = NULL;

        use_seed((uint64_t)seed);
        if (check_on_rails("2", "threads", "every_size_arrives", &output) == 0)
            continue;
        if (strstr(output, "did not happen within") || !strstr(output, " on rail"))
            XT_FAIL("seed %d: %s", seed, xt_why(output));
        return;
    }
    XT_FAIL("no card has failed");
}

XT_TEST_DEADLINE(rails_that_fail_under_traffic_lose_nothing, 600)
{
    make_strict_rails();
    for (int write = 0; write < 2; write++) {
        if (write)
            need_writes("tcp;ofi_rxm");
        cut_rails(0, 200);
        passes_on_rails("2", "threads", "*");
        cut_rails(1, 60);
        passes_on_rails("2", "single", "*_in_flight");
        cut_rails(2, 400);
        passes_on_rails("4", "threads", "every_*");
        cut_rails(1, 100);
        passes_on_rails("3", "threads", "*group*");
        passes_on_rails("3", "processes", "tags_*");
        passes_on_rails("3", "processes", "*_killed*");
    }
}

XT_TEST_DEADLINE(connections_come_up_without_rails_that_fail_meanwhile, 300)
{
    make_strict_rails();
    for (int write = 0; write < 2; write++) {
        if (write)
            need_writes("tcp;ofi_rxm");
        for (int rails = 2; rails <= 4; rails++) {
            char text[2] = {(char)('0' + rails), 0};

            /* From the first step on: connections come up without these cards. */
            xt_setenv("FX_FABRIC_CUT", rails % 2 ? "1,4,1" : "0,4,1");
            for (unsigned i = 0; i < EARLY_CUTS; i++) {
                use_seed(xt_seed() + i);
                passes_on_rails(text, "threads", "every_size_arrives");
            }
        }
    }
}

/* --- sleeping callers --- */

/* 1: waitFd gives a descriptor. */
static int sleeps(const char *form)
{
    const char *argv[] = {program, "net",    "check",       "--quick", "--within=0", "--form",
                          form,    "--case", "*sleeps_on*", PLUGIN,    NULL};
    const char *output = NULL;

    if (run(argv, &output) != 0)
        XT_FAIL("%s: %s", form, xt_why(output));
    if (strstr(output, "2 passed, 0 failed, 0 skipped"))
        return 1;
    XT_CHECK_HAS(output, "waitFd returned -1: there is nothing to wait on");
    XT_CHECK_HAS(output, "0 passed, 0 failed, 2 skipped");
    return 0;
}

XT_TEST_DEADLINE(callers_sleep_where_that_is_asked_for, 300)
{
    need("tcp;ofi_rxm");
    xt_setenv("FI_OFI_RXM_BUFFER_SIZE", "2048");
    XT_CHECK_INT(sleeps("threads"), 0);
    xt_setenv("XCCL_OFI_WAIT", "1");
    XT_CHECK_INT(sleeps("threads"), 1);
    XT_CHECK_INT(sleeps("processes"), 1);
    passes(PLUGIN, "single", "*_exec*");
    passes(PLUGIN, "threads", "*_size*");
    xt_setenv("XCCL_OFI_PATH", "write");
    XT_CHECK_INT(sleeps("threads"), 1);
    XT_CHECK_INT(sleeps("processes"), 1);
}

XT_TEST_DEADLINE(nobody_sleeps_over_a_network_whose_descriptor_does_not_tell, 120)
{
    need("udp;ofi_rxd");
    xt_setenv("XCCL_OFI_WAIT", "1");
    XT_CHECK_INT(sleeps("threads"), 0);
    need("net");
    XT_CHECK_INT(sleeps("threads"), 0);
}

/* As EFA has it. */
XT_TEST_DEADLINE(nobody_sleeps_over_a_network_without_a_descriptor, 120)
{
    xt_setenv("XCCL_OFI_WAIT", "1");
    need("tcp;ofi_rxm");
    make_strict();
    xt_setenv("FI_OFI_RXM_BUFFER_SIZE", "2048");
    XT_CHECK_INT(sleeps("threads"), 0);
}

/* --- a host that vanishes --- */

/* $1: the program, $2: the plugin. The cable is cut once both connections are there, in the middle
 * of messages. */
static const char vanish[] =
    "PATH=$PATH:/usr/sbin:/sbin; a=xofi-a-$$ b=xofi-b-$$; umask 077;"
    "ip netns add $a 2>/dev/null || exit 77; trap 'ip netns del $a; ip netns del $b' EXIT;"
    "ip netns add $b; ip link add va netns $a type veth peer name vb netns $b || exit 77;"
    "ip -n $a addr add 10.78.0.1/24 dev va; ip -n $a link set lo up; ip -n $a link set va up;"
    "ip -n $b addr add 10.78.0.2/24 dev vb; ip -n $b link set lo up; ip -n $b link set vb up;"
    "$1 net perf $2 --hosts=$a,$b -b 64K -e 64K --seconds 30 -T 60 2>&1 & pid=$!;"
    "for i in $(seq 200); do"
    "  n=$(ip netns exec $a awk '$4 == \"01\"' /proc/net/tcp | wc -l);"
    "  [ $n -ge 2 ] && break; sleep 0.1; done;"
    "sleep 0.5; ip -n $b link set vb down; wait $pid";

XT_TEST_DEADLINE(a_host_that_vanishes_is_an_error_in_time, 120)
{
    const char *argv[] = {"/bin/sh", "-c", vanish, "sh", program, file_of_plugin, NULL};
    const char *output = NULL;
    int status;

    need("tcp;ofi_rxm");
    xt_setenv("XCCL_SOCKET_SILENCE_S", "2");
    xt_setenv("FI_OFI_RXM_BUFFER_SIZE", "2048");
    status = run(argv, &output);
    if (status == 77)
        XT_SKIP("needs root and the ip program");
    XT_CHECK_INT(status, 1);
    XT_CHECK_HAS(output, "its host no longer answers");
}

/* --- collectives over it --- */

static void computes(const char *call, const char *plugins)
{
    const char *argv[] = {program, "perf", call, "--ranks", "2", "-b", "4K", "-e",
                          "16M",   "-f",   "64", "-n",      "2", "-w", "1",  NULL};
    const char *output = NULL;

    xt_setenv("XCCL_NET_PLUGIN", plugins);
    xt_setenv("XCCL_SHM_DISABLE", "1");
    if (run(argv, &output) != 0)
        XT_FAIL("%s: %s", call, xt_why(output));
    XT_CHECK_HAS(output, "    16777216 ");
    XT_CHECK_HAS(output, "# Out of bounds values : 0 OK");
}

XT_TEST_DEADLINE(collectives_are_right_over_tcp, 300)
{
    need("tcp;ofi_rxm");
    computes("all_reduce", "ofi");
    computes("sendrecv", "ofi");
    xt_setenv("XCCL_OFI_PATH", "write");
    computes("all_reduce", "ofi");
}

/* Rank 0 writes, rank 1 does not: so both send. Where a device takes larger messages by pieces than
 * it can send, that is an error, which the sender tells. */
XT_TEST_DEADLINE(ends_with_different_paths_send_where_that_is_possible, 120)
{
    const char *script = "[ $XCCL_RANK = 0 ] && export XCCL_OFI_PATH=write;"
                         "exec $0 perf all_reduce -b 4K -e 1M -f 16 -n 2 -w 1";
    const char *argv[] = {program, "run", "-n", "2", "sh", "-c", script, program, NULL};
    const char *output = NULL;

    need("tcp;ofi_rxm");
    xt_setenv("FI_OFI_RXM_BUFFER_SIZE", "2048");
    xt_setenv("XCCL_NET_PLUGIN", "ofi");
    xt_setenv("XCCL_SHM_DISABLE", "1");
    if (run(argv, &output) != 0)
        XT_FAIL("%s", xt_why(output));
    XT_CHECK_HAS(output, "# Out of bounds values : 0 OK");
    make_strict();
    XT_CHECK(run(argv, &output) != 0);
    XT_CHECK_HAS(output, "set the same XCCL_OFI_PATH on all ranks");
}

/* --- where it cannot be used --- */

/* `xccl net list` fails and says why. */
static const char *refusal(void)
{
    const char *argv[] = {program, "net", "list", file_of_plugin, NULL}, *output = NULL;

    XT_CHECK_INT(run(argv, &output), 1);
    return output;
}

XT_TEST_DEADLINE(a_provider_that_is_not_there_is_named_and_the_next_plugin_is_used, 120)
{
    const char *output;

    open_quickly();
    xt_setenv("XCCL_OFI_PROVIDER", "nonesuch");
    output = refusal();
    XT_CHECK_HAS(output, "no provider: not here is nonesuch");
    XT_CHECK_HAS(output, "set XCCL_OFI_PROVIDER to a provider that fi_info -l lists");
    computes("all_reduce", "ofi,socket");
}

XT_TEST_DEADLINE(shared_memory_of_libfabric_is_refused, 120)
{
    open_quickly();
    xt_setenv("XCCL_OFI_PROVIDER", "shm");
    XT_CHECK_HAS(refusal(), "no provider: shm loses messages and crashes");
}

/* One that must be asked for is not taken, and the warning names it. */
XT_TEST_DEADLINE(without_a_fast_network_it_says_what_may_be_asked_for, 120)
{
    const char *output;

    need("tcp;ofi_rxm");
    xt_setenv("XCCL_OFI_PROVIDER", NULL);
    output = refusal();
    XT_CHECK_HAS(output, "efa-direct, efa, cxi, verbs;ofi_rxm are not here");
    XT_CHECK_HAS(output, "only when asked for (XCCL_OFI_PROVIDER): ");
    XT_CHECK_HAS(output, "tcp;ofi_rxm");
    XT_CHECK_HAS(output, "it finds no device on this machine");
}

/* A file that is no library stands in the way of the one that is installed. */
XT_TEST_DEADLINE(without_libfabric_it_says_so_and_the_next_plugin_is_used, 120)
{
    const char *dir = xt_tmpdir(), *output;
    char path[512];
    FILE *file;

    snprintf(path, sizeof(path), "%s/libfabric.so.1", dir);
    file = fopen(path, "we");
    XT_CHECK(file != NULL);
    XT_CHECK_INT(fclose(file), 0);
    xt_setenv("LD_LIBRARY_PATH", dir);
    output = refusal();
    XT_CHECK_HAS(output, "cannot open libfabric.so.1");
    XT_CHECK_HAS(output, "install libfabric 1.17 or later");
    computes("all_reduce", "ofi,socket");
}

XT_TEST_DEADLINE(a_libfabric_that_is_too_old_is_refused, 120)
{
    const char *output;

    xt_setenv("LD_LIBRARY_PATH", XT_BUILD_DIR "/lib/fixtures/fabric-old");
    output = refusal();
    XT_CHECK_HAS(output, "libfabric.so.1 is libfabric 1.16, which is too old");
    XT_CHECK_HAS(output, "install libfabric 1.17 or later");
    xt_setenv("LD_LIBRARY_PATH", XT_BUILD_DIR "/lib/fixtures/fabric-bare");
    XT_CHECK_HAS(refusal(), "libfabric.so.1 lacks a function that every libfabric has");
}
