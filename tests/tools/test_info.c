/* SPDX-License-Identifier: BSD-3-Clause */
/* The network plugin that a machine's cards ask for, as a user sees it: `xccl info`, `xccl net
 * list` and the warning of a job. A test that needs cards is given a view of the file system of its
 * own, in which /sys/class has them, and /opt what their makers install; the libfabric there
 * answers for a card and opens nothing (fixtures/fabric_efa.c).
 *
 * Thread: one a test. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../unit/base/card_folders.h"
#include "xt.h"

#define XCCL   XT_BUILD_DIR "/bin/xccl"
#define PLUGIN XT_BUILD_DIR "/lib/xccl/libxccl-net-ofi.so"
#define FABRIC XT_BUILD_DIR "/lib/fixtures/fabric-efa/libfabric.so.1"
#define OLD    XT_BUILD_DIR "/lib/fixtures/fabric-old/libfabric.so.1"
#define CLASS  "/sys/class"

/* A view of the file system in which no card and no software of theirs is there. */
static void machine_begin(void)
{
    if (access(PLUGIN, R_OK) != 0)
        XT_SKIP("the ofi plugin is not built: no headers of libfabric");
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", CLASS, "tmpfs", 0, "size=1m,mode=0755") != 0 ||
        mount("tmpfs", "/opt", "tmpfs", 0, "size=1m,mode=0755") != 0)
        XT_SKIP("cannot mount over " CLASS " and /opt: %s", strerror(errno));
    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    xt_setenv("FI_PROVIDER", NULL);
    xt_setenv("LD_LIBRARY_PATH", NULL);
}

/* Software of a card: folder below /opt, and what its libfabric is. */
static void install(const char *folder, const char *library)
{
    char path[PATH_MAX], file[PATH_MAX + 32];

    card_folder("/opt", folder, path);
    snprintf(file, sizeof(file), "%s/libfabric.so.1", path);
    XT_CHECK_INT(symlink(library, file), 0);
}

/* A libfabric that hides those of the loader's own path, which this machine may have. */
static void hide_libfabric(void)
{
    const char *folder = xt_tmpdir();

    card_file(folder, "libfabric.so.1", "no library");
    xt_setenv("LD_LIBRARY_PATH", folder);
}

/* Words that are NULL end it. */
static const char *run_xccl(int status, const char *a, const char *b, const char *c)
{
    const char *argv[] = {XCCL, a, b, c, NULL}, *output = NULL;
    int got = xt_run_program(argv, &output);

    XT_CHECK(WIFEXITED(got));
    if (WEXITSTATUS(got) != status)
        XT_FAIL("xccl %s ended with %d: %s", a, WEXITSTATUS(got), xt_why(output));
    return output;
}

static const char *info(void)
{
    return run_xccl(0, "info", NULL, NULL);
}

/* Two ranks that must use a network. */
static const char *job(void)
{
    const char *argv[] = {XCCL, "perf", "all_reduce", "--ranks", "2",  "-b", "8",
                          "-e", "8",    "-n",         "1",       "-w", "1",  NULL};
    const char *output = NULL;

    xt_setenv("XCCL_SHM_DISABLE", "1");
    if (xt_run_program(argv, &output) != 0)
        XT_FAIL("the job failed: %s", xt_why(output));
    return output;
}

static int count_of(const char *text, const char *part)
{
    int count = 0;

    for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
        count++;
    return count;
}

XT_TEST(without_cards_info_names_socket_and_why_not_the_others)
{
    const char *output;

    machine_begin();
    output = info();
    XT_CHECK_HAS(output, "network: between hosts: socket, if the other hosts have it too\n");
    XT_CHECK_HAS(output, "network: list: socket (XCCL_NET_PLUGIN is auto)\n");
    XT_CHECK_HAS(output, "ofi is not in it: no EFA or Slingshot card on this machine\n");
    XT_CHECK_HAS(output, "ib is not in it: no InfiniBand or RoCE card on this machine\n");
    XT_CHECK_HAS(output, "socket is in it: it works on every machine\n");
    XT_CHECK_INT(count_of(output, "net plugin: ofi"), 0);
    output = run_xccl(0, "net", "list", NULL);
    XT_CHECK_HAS(output, "not in the list (XCCL_NET_PLUGIN is auto):\n   ofi: no EFA");
    output = run_xccl(0, "net", "list", "--json");
    XT_CHECK_HAS(output, "\"choice\": {\"plugin\": \"socket\", \"automatic\": true, ");
    XT_CHECK_HAS(output, "{\"item\": \"ofi\", \"listed\": false, \"why\": \"no EFA or");
    output = job();
    XT_CHECK_HAS(output, "network plugin: socket,");
    XT_CHECK_INT(count_of(output, "warn"), 0);
}

XT_TEST(a_list_of_the_users_is_named_as_theirs)
{
    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    xt_setenv("XCCL_NET_PLUGIN", "nonesuch,socket");
    XT_CHECK_HAS(info(), "network: between hosts: socket, if the other hosts have it too\n");
    XT_CHECK_HAS(info(), "network: list: nonesuch,socket (XCCL_NET_PLUGIN)\n");
    XT_CHECK_INT(count_of(info(), " in it: "), 0);
    XT_CHECK_HAS(run_xccl(0, "net", "list", "--json"), "\"automatic\": false, \"items\": []}");
    XT_CHECK_INT(count_of(run_xccl(0, "net", "list", "--all"), "not in the list"), 0);
    xt_setenv("XCCL_NET_PLUGIN", "none");
    XT_CHECK_HAS(info(), "network: between hosts: none, ranks on one host only\n");
}

/* The kernel's folders alone decide: the loader, which says what it is asked for, is not asked for
 * libraries of networks. */
XT_TEST(without_cards_libfabric_is_not_opened)
{
    const char *output;

    machine_begin();
    xt_setenv("LD_DEBUG", "files");
    output = info();
    XT_CHECK_HAS(output, "file=libc.so.6");
    XT_CHECK_INT(count_of(output, "libfabric"), 0);
    XT_CHECK_INT(count_of(output, "libxccl-net-ofi"), 0);
    XT_CHECK_INT(count_of(output, "libibverbs"), 0);
}

XT_TEST(with_efa_cards_ofi_is_taken_with_the_libfabric_of_aws)
{
    const char *output;

    machine_begin();
    card_make_efa(CLASS, "rdmap0s6");
    install("amazon/efa/lib64", FABRIC);
    output = info();
    XT_CHECK_HAS(output, "network: between hosts: ofi, if the other hosts have it too\n");
    XT_CHECK_HAS(output, "network: list: ofi,socket (XCCL_NET_PLUGIN is auto)\n");
    XT_CHECK_HAS(output, "ofi is in it: this machine has EFA card rdmap0s6\n");
    XT_CHECK_HAS(output, "net plugin: ofi: taken: ");
    XT_CHECK_HAS(output, "provider efa\n");
    xt_setenv("XCCL_DEBUG", "info");
    XT_CHECK_HAS(info(), "libfabric 1.22: /");
    XT_CHECK_HAS(info(), "fixtures/fabric-efa/libfabric.so.1\n");
}

XT_TEST(the_other_folder_of_aws_is_looked_at_where_the_first_is_too_old)
{
    const char *output;

    machine_begin();
    card_make_efa(CLASS, "rdmap0s6");
    install("amazon/efa/lib64", OLD);
    install("amazon/efa/lib", FABRIC);
    output = info();
    XT_CHECK_HAS(output, "network: between hosts: ofi");
}

XT_TEST(with_slingshot_cards_the_newest_libfabric_of_hpe_is_taken)
{
    machine_begin();
    card_make_cxi(CLASS, "cxi0");
    xt_setenv("FX_FABRIC_PROVIDER", "cxi");
    install("cray/libfabric/1.9.1/lib64", OLD);
    install("cray/libfabric/1.22.0/lib64", FABRIC);
    XT_CHECK_HAS(info(), "network: between hosts: ofi");
    XT_CHECK_HAS(info(), "provider cxi\n");
    xt_setenv("LD_DEBUG", "files"); /* the older one is not even looked at */
    XT_CHECK_INT(count_of(info(), "fabric-old"), 0);
}

/* Without cards of theirs, their folders are nothing to look at. */
XT_TEST(the_folders_of_aws_count_on_machines_with_efa_alone)
{
    machine_begin();
    install("amazon/efa/lib64", FABRIC);
    card_make_mlx5(CLASS, "mlx5_0");
    xt_setenv("XCCL_NET_PLUGIN", "ofi,socket");
    xt_setenv("LD_DEBUG", "files");
    XT_CHECK_INT(count_of(info(), "fabric-efa"), 0);
    XT_CHECK_HAS(info(), "network: list: ofi,socket (XCCL_NET_PLUGIN)\n");
}

XT_TEST(a_folder_of_the_users_comes_before_that_of_aws)
{
    machine_begin();
    card_make_efa(CLASS, "rdmap0s6");
    install("amazon/efa/lib64", OLD);
    xt_setenv("LD_LIBRARY_PATH", "/nowhere:" XT_BUILD_DIR "/lib/fixtures/fabric-efa");
    xt_setenv("XCCL_DEBUG", "info");
    XT_CHECK_INT(count_of(info(), "amazon"), 0);
    XT_CHECK_HAS(info(), "network: between hosts: ofi");
}

XT_TEST(without_libfabric_a_job_on_efa_warns_once_a_process_and_uses_sockets)
{
    const char *output;

    machine_begin();
    card_make_efa(CLASS, "rdmap0s6");
    hide_libfabric();
    output = info();
    XT_CHECK_HAS(output, "network: between hosts: socket");
    XT_CHECK_HAS(output, "ofi is in it: this machine has EFA card rdmap0s6\n");
    XT_CHECK_HAS(output, "cannot open libfabric.so.1");
    output = job();
    XT_CHECK_INT(count_of(output, "this machine has EFA card rdmap0s6, but network plugin ofi "
                                  "cannot use it: "),
                 2);
    XT_CHECK_HAS(output, "cannot open libfabric.so.1");
    XT_CHECK_HAS(output, "install AWS's EFA software, or set XCCL_OFI_LIBRARY");
    XT_CHECK_HAS(output, "going on with socket\n");
}

/* As on a machine where the distribution's libfabric has none of the cards' provider. */
XT_TEST(a_libfabric_without_the_provider_is_passed_over_with_the_reason)
{
    const char *output;

    machine_begin();
    card_make_efa(CLASS, "rdmap0s6");
    card_make_mlx5(CLASS, "mlx5_0");
    install("amazon/efa/lib64", FABRIC);
    xt_setenv("FX_FABRIC_PROVIDER", "verbs;ofi_rxm");
    output = job();
    XT_CHECK_HAS(output, "libfabric has no provider for these cards that works here, only "
                         "verbs;ofi_rxm; install AWS's EFA software");
    XT_CHECK_HAS(output, "going on with ib,socket\n");
    xt_setenv("FX_FABRIC_PROVIDER", "none");
    output = job();
    XT_CHECK_HAS(output, "it finds no device on this machine: libfabric 1.22: no provider; "
                         "efa-direct, efa, cxi, verbs;ofi_rxm are not here");
    /* Nothing of it twice: one warning a process. */
    XT_CHECK_INT(count_of(output, "are not here"), 2);
}

/* ---- XCCL_OFI_LIBRARY, which needs no cards ---- */

static const char *named(int status, const char *library)
{
    xt_setenv("XCCL_OFI_LIBRARY", library);
    xt_setenv("XCCL_NET_PLUGIN", "ofi");
    if (access(PLUGIN, R_OK) != 0)
        XT_SKIP("the ofi plugin is not built: no headers of libfabric");
    return run_xccl(status, "net", "list", NULL);
}

XT_TEST(a_library_is_named_by_its_file_its_folder_or_its_name)
{
    XT_CHECK_HAS(named(0, FABRIC), "rdmap0s6-rdm");
    XT_CHECK_HAS(named(0, XT_BUILD_DIR "/lib/fixtures/fabric-efa"), "rdmap0s6-rdm");
    xt_setenv("LD_LIBRARY_PATH", XT_BUILD_DIR "/lib/fixtures/fabric-efa");
    XT_CHECK_HAS(named(0, "libfabric.so.1"), "rdmap0s6-rdm");
}

XT_TEST(a_named_library_that_cannot_be_used_is_an_error_with_the_setting_and_the_reason)
{
    const char *folder = xt_tmpdir(), *output;
    char path[PATH_MAX], want[PATH_MAX + 64];

    output = named(1, "/nowhere/libfabric.so.1");
    XT_CHECK_HAS(output, "XCCL_OFI_LIBRARY=/nowhere/libfabric.so.1: /nowhere/libfabric.so.1: No "
                         "such file or directory; set it to a file, or to a folder that has "
                         "libfabric.so.1, or unset it");
    card_file(folder, "libfabric.so.1", "no library");
    output = named(1, folder);
    snprintf(want, sizeof(want), "cannot open %s/libfabric.so.1: ", folder);
    XT_CHECK_HAS(output, "XCCL_OFI_LIBRARY=");
    XT_CHECK_HAS(output, want);
    XT_CHECK_HAS(named(1, "libnonesuch.so.7"), "cannot open libnonesuch.so.7: ");
    XT_CHECK_HAS(named(1, OLD), "is libfabric 1.16, which is too old");
    snprintf(path, sizeof(path), "%s/libfabric.so.1", folder);
    XT_CHECK_INT(chmod(path, 0666), 0);
    XT_CHECK_HAS(named(1, path), "mode 0666) is world-writable: chmod o-w it");
    /* Another one is not tried. */
    xt_setenv("LD_LIBRARY_PATH", XT_BUILD_DIR "/lib/fixtures/fabric-efa");
    XT_CHECK_HAS(named(1, path), "world-writable");
}

/* The system's libfabric, named by the file that it is in, moves messages. */
XT_TEST_DEADLINE(the_systems_libfabric_by_its_path_moves_messages, 120)
{
    static const char *const paths[] = {"/usr/lib/x86_64-linux-gnu/libfabric.so.1",
                                        "/usr/lib/aarch64-linux-gnu/libfabric.so.1",
                                        "/usr/lib64/libfabric.so.1", "/usr/lib/libfabric.so.1"};
    size_t at = 0;

    while (at < sizeof(paths) / sizeof(paths[0]) && access(paths[at], R_OK) != 0)
        at++;
    if (at == sizeof(paths) / sizeof(paths[0]))
        XT_SKIP("libfabric1 is not installed");
    if (XT_SANITIZED)
        XT_SKIP("libfabric is not instrumented");
    xt_setenv("LD_PRELOAD", XT_BUILD_DIR "/lib/fixtures/no_kallsyms.so");
    xt_setenv("XCCL_PLUGIN_PROBE_S", "0");
    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    xt_setenv("XCCL_OFI_PROVIDER", "tcp;ofi_rxm");
    xt_setenv("FI_PROVIDER", "tcp,ofi_rxm");
    XT_CHECK_HAS(named(0, paths[at]), "tcp;ofi_rxm");
    XT_CHECK_HAS(job(), "# Out of bounds values : 0 OK");
}
