/* SPDX-License-Identifier: BSD-3-Clause */
/* Where records lie: which folders are used, what happens where there is no room, how many
 * communicators and files there may be, and what is read of files that are no records.
 * Thread: one. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/inject.h"
#include "base/log.h"
#include "record_files.h"

static const uint8_t comm_id[16];
static const struct xccl_record_who who = {
    .rank = 0, .nranks = 1, .id = comm_id, .name = "", .labels = ""};

static int warnings;
static char warning[1024];

static void count_warning(enum xccl_log_level level, const char *line)
{
    warnings += level == XCCL_LOG_WARN;
    snprintf(warning, sizeof warning, "%s", line);
}

/* Two communicators where no file can be had: they go on in memory of their own, and one warning
 * says why. */
static void check_no_file(const char *why)
{
    const struct xccl_record_call call = {xccl_record_call_word(1, 4, 0, 0, 0), 1,
                                          XCCL_RECORD_LARGE};
    struct xccl_record *records[2];

    warnings = 0;
    xccl_log_set_sink(count_warning);
    for (int i = 0; i < 2; i++) {
        records[i] = xccl_record_open(&who);
        XT_CHECK(records[i] != NULL);
        xccl_record_ready(records[i], 1, "", "");
        xccl_record_set_call(records[i], &call);
        xccl_record_begin(records[i], records[i]->call.word);
    }
    xccl_record_close(&records[0]);
    xccl_record_close(&records[1]);
    xccl_log_set_sink(NULL);
    XT_CHECK_INT(warnings, 1);
    XT_CHECK_HAS(warning, why);
    XT_CHECK_HAS(warning, "XCCL_RECORD_DIR");
}

static void use_folder(const char *path)
{
    xt_setenv("XCCL_RECORD_DIR", path);
    xccl_param_reset();
}

XT_TEST(a_folder_that_is_a_link_is_not_used)
{
    const char *folder = xt_tmpdir();
    char link_path[600];

    snprintf(link_path, sizeof link_path, "%s-link", folder);
    XT_CHECK_INT(symlink(folder, link_path), 0);
    use_folder(link_path);
    check_no_file("it is no folder");
    XT_CHECK_INT(xt_entries(folder), 0);
}

XT_TEST(a_folder_into_which_others_may_write_is_not_used)
{
    const char *folder = xt_tmpdir();

    XT_CHECK_INT(chmod(folder, 0770), 0);
    use_folder(folder);
    check_no_file("others may write");
    XT_CHECK_INT(xt_entries(folder), 0);
}

XT_TEST(a_folder_of_another_user_is_not_used)
{
    const char *folder = xt_tmpdir();

    if (geteuid() != 0)
        XT_SKIP("only root can give a folder away");
    XT_CHECK_INT(chown(folder, 12345, 12345), 0);
    use_folder(folder);
    check_no_file("belongs to user 12345");
    XT_CHECK_INT(xt_entries(folder), 0);
}

XT_TEST(the_folder_is_made_where_the_session_has_its_files)
{
    const char *folder = xt_tmpdir();
    struct xccl_record *record;
    struct stat status;
    char path[600], name[256];

    xt_setenv("XCCL_RECORD_DIR", NULL);
    xt_setenv("XDG_RUNTIME_DIR", folder);
    xccl_param_reset();
    record = xccl_record_open(&who);
    XT_CHECK(record != NULL);
    snprintf(path, sizeof path, "%s/xccl", folder);
    XT_CHECK_INT(stat(path, &status), 0);
    XT_CHECK_INT(status.st_mode & 0777, 0700);
    record_name_of(path, name, sizeof name);
    snprintf(path, sizeof path, "%s/xccl/%s", folder, name);
    XT_CHECK_INT(stat(path, &status), 0);
    XT_CHECK_INT(status.st_mode & 0777, 0600);
    /* All of its memory is there. */
    XT_CHECK(status.st_blocks * 512 >= status.st_size);
    XT_CHECK(status.st_size > XCCL_RECORD_PAGE);
    xccl_record_close(&record);
    XT_CHECK(stat(path, &status) != 0);
}

XT_TEST(a_full_file_system_is_one_warning)
{
    const char *folder = xt_tmpdir();

    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", folder, "tmpfs", 0, "size=64k,mode=0700") != 0)
        XT_SKIP("cannot mount a small file system: %s", strerror(errno));
    use_folder(folder);
    check_no_file("No space left on device");
    XT_CHECK_INT(xt_entries(folder), 0);
    XT_CHECK_INT(umount(folder), 0);
}

/* Beyond the limit the kernel would send a signal. */
XT_TEST(a_limit_of_file_sizes_is_one_warning)
{
    struct rlimit limit = {8192, 8192};
    const char *folder = xt_tmpdir();

    use_folder(folder);
    XT_CHECK_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
    check_no_file("File too large");
}

/* Each chance to fail in turn: a record or none, and no other harm. */
XT_TEST(failures_of_the_system_are_survived)
{
    const char *folder = record_folder_use();
    struct xccl_record *record;
    uint64_t chances;

    xccl_inject_arm(UINT64_MAX);
    record = xccl_record_open(&who);
    chances = xccl_inject_chances();
    xccl_record_close(&record);
    for (uint64_t k = 1; k <= chances; k++) {
        xccl_inject_arm(k);
        record = xccl_record_open(&who);
        xccl_inject_arm(0);
        if (record)
            xccl_record_ready(record, 1, "", "");
        xccl_record_close(&record);
        XT_CHECK_INT(xt_entries(folder), 0);
    }
    XT_CHECK(chances > 4);
}

XT_TEST(switched_off_there_is_none)
{
    const char *folder = record_folder_use();

    xt_setenv("XCCL_RECORD", "0");
    xccl_param_reset();
    XT_CHECK(xccl_record_open(&who) == NULL);
    XT_CHECK_INT(xt_entries(folder), 0);
}

XT_TEST(a_process_has_one_file_and_so_many_blocks)
{
    struct xccl_record *records[XCCL_RECORD_BLOCKS_MAX];
    struct xccl_record_view view;
    const char *folder;

    xt_setenv("XCCL_RECORD_EVENTS", "64");
    folder = record_folder_use();
    for (uint32_t i = 0; i < XCCL_RECORD_BLOCKS_MAX; i++) {
        records[i] = xccl_record_open(&who);
        XT_CHECK(records[i] != NULL);
    }
    XT_CHECK(xccl_record_open(&who) == NULL);
    view = record_view_of(folder);
    XT_CHECK_INT(view.count, XCCL_RECORD_BLOCKS_MAX);
    xccl_record_view_free(&view);
    xccl_record_close(&records[7]);
    view = record_view_of(folder);
    XT_CHECK_INT(view.comms[7].state, XCCL_RECORD_LEFT);
    xccl_record_view_free(&view);
    records[7] = xccl_record_open(&who); /* the block of the one that has left */
    XT_CHECK(records[7] != NULL);
    view = record_view_of(folder);
    XT_CHECK_INT(view.comms[7].state, XCCL_RECORD_JOINING);
    XT_CHECK_INT(view.info.blocks, XCCL_RECORD_BLOCKS_MAX);
    xccl_record_view_free(&view);
    for (uint32_t i = 0; i < XCCL_RECORD_BLOCKS_MAX; i++)
        xccl_record_close(&records[i]);
    XT_CHECK_INT(xt_entries(folder), 0);
}

static void make_file(const char *folder, const char *name, const void *bytes, size_t count)
{
    char path[700];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "we");
    XT_CHECK(file != NULL);
    XT_CHECK(fwrite(bytes, 1, count, file) == count);
    fclose(file);
}

XT_TEST(old_records_of_dead_processes_are_removed)
{
    const char *folder = record_folder_use();
    struct xccl_record *record;
    char name[64];

    for (int i = 1; i <= XCCL_RECORD_DEAD_MAX + 20; i++) {
        snprintf(name, sizeof name, "%d-1.record", i);
        make_file(folder, name, "dead", 4);
    }
    make_file(folder, "notes", "mine", 4); /* of no concern */
    record = xccl_record_open(&who);
    XT_CHECK(record != NULL);
    XT_CHECK_INT(xt_entries(folder), XCCL_RECORD_DEAD_MAX + 2);
    xccl_record_close(&record);
    XT_CHECK_INT(xt_entries(folder), XCCL_RECORD_DEAD_MAX + 1);
}

/* Reads a file of these bytes, which must be refused. */
static void check_refused(const char *folder, const void *bytes, size_t count, const char *why)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct xccl_record_view view;

    make_file(folder, "7-7.record", bytes, count);
    XT_CHECK_RC(xccl_record_read(fd, "7-7.record", 10, &view), xcclInvalidArgument);
    XT_CHECK_HAS(xccl_error_text(), why);
    close(fd);
}

XT_TEST(what_is_no_record_is_refused)
{
    const char *folder = xt_tmpdir();
    struct xccl_record_head head = {.magic = XCCL_RECORD_MAGIC,
                                    .version = XCCL_RECORD_VERSION,
                                    .head_bytes = XCCL_RECORD_PAGE,
                                    .events = 64,
                                    .block_bytes = (uint32_t)xccl_record_block_bytes(64),
                                    .blocks = 1,
                                    .clock = XCCL_RECORD_MONOTONIC};
    char page[XCCL_RECORD_PAGE] = {0};
    struct xccl_record_head broken = head;
    struct xccl_record_view view;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    check_refused(folder, "", 0, "cut off");
    check_refused(folder, page, sizeof page, "begins otherwise");
    memcpy(page, &head, sizeof head);
    check_refused(folder, page, sizeof page, "cut off"); /* there is no block */
    broken.version = 9;
    memcpy(page, &broken, sizeof broken);
    check_refused(folder, page, sizeof page, "version 9");
    broken = head;
    broken.events = 1u << 31;
    memcpy(page, &broken, sizeof broken);
    check_refused(folder, page, sizeof page, "sizes");
    broken = head;
    broken.clock = 3;
    memcpy(page, &broken, sizeof broken);
    check_refused(folder, page, sizeof page, "clock");
    XT_CHECK_INT(mkfifoat(fd, "8-8.record", 0600), 0);
    XT_CHECK_RC(xccl_record_read(fd, "8-8.record", 10, &view), xcclInvalidArgument);
    XT_CHECK_RC(xccl_record_read(fd, "9-9.record", 10, &view), xcclSystemError);
    close(fd);
}
