/* SPDX-License-Identifier: BSD-3-Clause */
/* A program that runs set-user-id, set-group-id or with file capabilities neither loads nor writes
 * what the user who started it names. Each test has a control: a copy of the program without such
 * rights, run by the same user with the same settings, loads and writes all of it.
 *
 * Needs root, and a folder that is not mounted nosuid. One thread. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "unit/base/given_files.h"
#include "xt.h"

#define SHIPPED  XT_BUILD_DIR "/lib/xccl"
#define FIXTURES XT_BUILD_DIR "/lib/fixtures"
#define PROGRAM  XT_BUILD_DIR "/tests/raised_program"
#define USER     2001
#define WARNING  "this program has more privileges than its user"

static char output[65536];

static int exists(const char *name)
{
    return access(in_folder(name), F_OK) == 0;
}

/* Makes the program, its plugins and its folders; only what it is to write is not root's. */
static void start(void)
{
    struct statvfs system;

    need_root();
    /* Records must be in memory, and the folder may be nosuid. */
    if (!own_mounts() || mount("raised", "/mnt", "tmpfs", MS_NODEV, "mode=0755") != 0)
        XT_SKIP("no file system of the test's own: %s", strerror(errno));
    XT_CHECK_INT(statvfs("/mnt", &system), 0);
    if (system.f_flag & ST_NOSUID)
        XT_SKIP("programs cannot run set-user-id in /mnt");
    snprintf(folder, sizeof(folder), "/mnt/test");
    XT_CHECK_INT(mkdir(folder, 0755), 0);
    XT_CHECK_INT(mkdir(in_folder("plugins"), 0755), 0);
    XT_CHECK_INT(mkdir(in_folder("records"), 0755), 0);
    XT_CHECK_INT(mkdir(in_folder("home"), 0755), 0);
    XT_CHECK_INT(mkdir(in_folder("out"), 0777), 0);
    XT_CHECK_INT(chmod(in_folder("out"), 0777), 0);
    copy(FIXTURES "/libxccl-net-fx-minimal.so", "plugins/libxccl-net-a.so");
    copy(SHIPPED "/libxccl-net-trace.so", "plugins/libxccl-net-trace.so");
    copy(SHIPPED "/libxccl-algo-hello.so", "plugins/libxccl-algo-c.so");
    copy(SHIPPED "/libxccl-tuner.so", "plugins/libxccl-tuner-d.so");
    copy(PROGRAM, "program");
}

static void settings_make(void)
{
    xt_setenv("HOME", in_folder("home"));
    xt_setenv("XDG_RUNTIME_DIR", NULL);
    xt_setenv("XCCL_PLUGIN_PATH", in_folder("plugins"));
    xt_setenv("XCCL_NET_PLUGIN", "trace:a");
    xt_setenv("XCCL_TUNER_PLUGIN", "d");
    xt_setenv("XCCL_ALGO_PLUGIN", "c");
    xt_setenv("XCCL_NET_TRACE", in_folder("out/trace"));
    xt_setenv("XCCL_DEBUG_FILE", in_folder("out/log"));
    xt_setenv("XCCL_RECORD_DIR", in_folder("records"));
    xt_setenv("XCCL_OFI_LIBRARY", "/nowhere");
    xt_setenv("XCCL_IB_LIBRARY", "/nowhere");
    xt_setenv("XCCL_CUDA_LIBRARY", "/nowhere");
    xt_setenv("XCCL_TUNER_FILE", NULL);
    xt_setenv("XCCL_JOB_KEY_FILE", "/etc/shadow");
    xt_setenv("XCCL_PLUGIN_OWNERS", "2001");
    xt_setenv("XCCL_DEBUG", "info");
}

/* Runs the copy as a user of no rights; what it prints goes to output. */
static void run_as_user(void)
{
    const char *program = in_folder("program");
    int fds[2], status;
    size_t used = 0;
    ssize_t got;
    pid_t pid;

    XT_CHECK_INT(pipe2(fds, O_CLOEXEC), 0);
    pid = fork();
    XT_CHECK(pid >= 0);
    if (pid == 0) {
        char *const argv[] = {(char *)(uintptr_t)program, NULL};

        if (dup2(fds[1], 1) < 0 || dup2(fds[1], 2) < 0 || chdir("/") != 0 ||
            setresgid(USER, USER, USER) != 0 || setresuid(USER, USER, USER) != 0)
            _exit(90);
        execv(program, argv);
        _exit(91);
    }
    close(fds[1]);
    while ((got = read(fds[0], output + used, sizeof(output) - 1 - used)) > 0)
        used += (size_t)got;
    output[used] = 0;
    close(fds[0]);
    XT_CHECK_INT(waitpid(pid, &status, 0), pid);
    if (status != 0)
        XT_FAIL("status %x: %s", (unsigned)status, output);
}

/* The copy has no rights of its own: the settings do what they say. */
static void check_control(void)
{
    static const char *const mapped[] = {"mapped: /mnt/test/plugins/libxccl-algo-c.so",
                                         "mapped: /mnt/test/plugins/libxccl-tuner-d.so"};

    XT_CHECK_INT(chown(in_folder("records"), USER, USER), 0);
    settings_make();
    run_as_user();
    XT_CHECK_HAS(output, "settings: 0");
    XT_CHECK_HAS(output, "network: /mnt/test/plugins/libxccl-net-a.so");
    XT_CHECK_HAS(output, "from the environment: XCCL_JOB_KEY_FILE");
    for (size_t i = 0; i < sizeof(mapped) / sizeof(mapped[0]); i++)
        XT_CHECK_HAS(output, mapped[i]);
    XT_CHECK(exists("out/log"));
    XT_CHECK(exists("out/trace"));
    XT_CHECK_HAS(output, "mapped: /mnt/test/records/");
    XT_CHECK_INT(unlink(in_folder("out/log")), 0);
    XT_CHECK_INT(unlink(in_folder("out/trace")), 0);
}

static void check_ignored(const char *text)
{
    static const char *const names[] = {
        "XCCL_PLUGIN_PATH",   "XCCL_NET_PLUGIN", "XCCL_TUNER_PLUGIN", "XCCL_ALGO_PLUGIN",
        "XCCL_NET_TRACE",     "XCCL_DEBUG_FILE", "XCCL_RECORD_DIR",   "XCCL_OFI_LIBRARY",
        "XCCL_CUDA_LIBRARY",  "XCCL_IB_LIBRARY", "XCCL_JOB_KEY_FILE", "XCCL_CONF_FILE",
        "XCCL_PLUGIN_OWNERS", "XCCL_TUNER_FILE"};
    const char *warning = strstr(text, WARNING);
    char told[64];

    XT_CHECK_HAS(text, WARNING);
    XT_CHECK(strstr(warning + 1, WARNING) == NULL);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        XT_CHECK_HAS(warning, names[i]);
        snprintf(told, sizeof(told), "from the environment: %s\n", names[i]);
        XT_CHECK(strstr(text, told) == NULL);
    }
    XT_CHECK_HAS(text, "from the environment: XCCL_DEBUG\n");
}

/* The copy has rights that its user lacks. owner: as whom it writes. */
static void check_raised(uid_t owner)
{
    settings_make();
    xt_setenv("XCCL_TUNER_FILE", "/nowhere");
    write_text(in_folder("conf"), "XCCL_NRANKS=5\n");
    XT_CHECK_INT(chown(in_folder("conf"), owner, owner), 0);
    xt_setenv("XCCL_CONF_FILE", in_folder("conf"));
    write_text(in_folder("home/.xccl.conf"), "XCCL_RANK=4\n");
    XT_CHECK_INT(chown(in_folder("records"), owner, owner), 0);
    run_as_user();
    XT_CHECK_HAS(output, "settings: 0");
    check_ignored(output);
    XT_CHECK_HAS(output, "~/.xccl.conf");
    XT_CHECK(strstr(output, "XCCL_RANK=4") == NULL && strstr(output, "XCCL_NRANKS=5") == NULL);
    XT_CHECK(strstr(output, "communicator: ") == NULL); /* there was one, without a record there */
    XT_CHECK(strstr(output, "mapped: ") == NULL);
    XT_CHECK(strstr(output, "/mnt/test/plugins") == NULL);
    XT_CHECK_HAS(output, "the program ends"); /* the log goes to standard error */
    XT_CHECK(!exists("out/log"));
    XT_CHECK(!exists("out/trace"));
    /* Root's own file counts as a whole. */
    if (mount("etc", "/etc", "tmpfs", MS_NODEV, "mode=0755") != 0)
        XT_FAIL("cannot replace /etc for this test: %s", strerror(errno));
    write_text("/etc/xccl.conf", "XCCL_TUNER_PLUGIN=/mnt/test/plugins/libxccl-tuner-d.so\n");
    run_as_user();
    XT_CHECK_HAS(output, "from /etc/xccl.conf: XCCL_TUNER_PLUGIN=/mnt/test/plugins/");
    XT_CHECK_HAS(output, "mapped: /mnt/test/plugins/libxccl-tuner-d.so");
    XT_CHECK_INT(chown("/etc/xccl.conf", USER, USER), 0);
    run_as_user();
    if (owner == USER) /* the program's user is the one who runs it */
        XT_CHECK_HAS(output, "from /etc/xccl.conf: XCCL_TUNER_PLUGIN=");
    else
        XT_CHECK_HAS(output,
                     "the settings file /etc/xccl.conf is not read: the file /etc/xccl.conf "
                     "(owner 2001, mode 0644) belongs neither to root nor to this user");
    XT_CHECK_INT(umount("/etc"), 0);
}

XT_TEST(a_set_user_id_program_takes_neither_code_nor_files_from_its_user)
{
    start();
    check_control();
    XT_CHECK_INT(chown(in_folder("program"), 0, 0), 0);
    XT_CHECK_INT(chmod(in_folder("program"), 04755), 0);
    check_raised(0);
}

XT_TEST(a_set_group_id_program_takes_neither_code_nor_files_from_its_user)
{
    start();
    check_control();
    XT_CHECK_INT(chmod(in_folder("program"), 02755), 0);
    check_raised(USER);
}

XT_TEST(a_program_with_capabilities_takes_neither_code_nor_files_from_its_user)
{
    /* The bytes that setcap cap_net_raw+ep writes. */
    const struct {
        uint32_t magic, permitted, inheritable, permitted_high, inheritable_high;
    } capabilities = {0x02000001, 1u << 13, 0, 0, 0};

    start();
    check_control();
    if (setxattr(in_folder("program"), "security.capability", &capabilities, sizeof(capabilities),
                 0) != 0)
        XT_SKIP("no file capabilities in /mnt: %s", strerror(errno));
    check_raised(USER);
}
