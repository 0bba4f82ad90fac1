/* SPDX-License-Identifier: BSD-3-Clause */
/* Unique ids: made, decoded, refused; and the ids that follow from XCCL_COMM_ID and a job key.
 * Roots made here live in the test's own service thread and end before the test does. One thread,
 * but for the service thread. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/param.h"
#include "bootstrap/bootstrap.h"
#include "xt.h"

__attribute__((constructor)) static void sources(void)
{
    xt_set_error_source(xccl_error_text);
    xt_set_alloc_source(xccl_alloc_live);
}

/* A communicator of one rank ends the root that its id made. */
static void id_spend(const xcclUniqueId *id)
{
    struct xccl_limit limit = xccl_limit_ms(5000, NULL);
    struct xccl_bootstrap *boot;
    struct xccl_job job;

    XT_OK(xccl_job_init(id, 1, 0, 1, &job));
    XT_OK(xccl_bootstrap_open(&job, 0, 1, &limit, &boot));
    xccl_bootstrap_close(boot);
}

static void id_setup(void)
{
    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    xt_setenv("XCCL_COMM_ID", NULL);
    xt_setenv("XCCL_JOB_KEY", NULL);
    xt_setenv("XCCL_JOB_KEY_FILE", NULL);
    xccl_param_reset();
}

static void comm_id_setup(const char *addr, const char *job_key)
{
    id_setup();
    xt_setenv("XCCL_COMM_ID", addr);
    xt_setenv("XCCL_JOB_KEY", job_key);
    xccl_param_reset();
}

XT_TEST(ids_are_fresh_and_name_a_root)
{
    xcclUniqueId first, second;
    struct xccl_meeting a, b;

    id_setup();
    XT_OK(xccl_unique_id_create(&first));
    XT_OK(xccl_unique_id_create(&second));
    XT_OK(xccl_unique_id_decode(&first, &a));
    XT_OK(xccl_unique_id_decode(&second, &b));
    XT_CHECK(memcmp(a.secret, b.secret, sizeof(a.secret)) != 0);
    XT_CHECK(memcmp(a.comm_id, b.comm_id, sizeof(a.comm_id)) != 0);
    XT_CHECK_INT(a.root_count, 1);
    XT_CHECK_INT(a.owns_root, 0);
    XT_CHECK(xccl_addr_port(&a.roots[0]) != 0);
    id_spend(&first);
    id_spend(&second);
}

XT_TEST(the_root_of_an_unused_id_ends_by_itself)
{
    struct xccl_limit limit = xccl_limit_ms(10000, NULL);
    xcclUniqueId id;
    uint64_t before = xccl_alloc_live();

    id_setup();
    xt_setenv("XCCL_TIMEOUT_INIT_S", "1");
    xccl_param_reset();
    XT_OK(xccl_unique_id_create(&id));
    while (xccl_alloc_live() != before && !xccl_limit_passed(&limit))
        usleep(1000); /* a poll with a bound: the service thread tells nobody when it ends */
    XT_CHECK_INT(xccl_alloc_live(), before);
}

XT_TEST(damaged_ids_are_refused_or_lead_nowhere)
{
    xcclUniqueId id, bad;
    struct xccl_meeting job;

    id_setup();
    XT_OK(xccl_unique_id_create(&id));
    for (size_t i = 0; i < sizeof(id.internal); i++) {
        bad = id;
        bad.internal[i] = (char)(bad.internal[i] ^ 0x40);
        /* Head and unused addresses must be right; the rest any value may be. */
        if (i < 3 || i == 3 || i >= 80)
            XT_CHECK(xccl_unique_id_decode(&bad, &job) != xcclSuccess);
        else
            (void)xccl_unique_id_decode(&bad, &job);
    }
    memset(&bad, 0, sizeof(bad));
    XT_CHECK_RC(xccl_unique_id_decode(&bad, &job), xcclInvalidArgument);
    memset(&bad, 0xff, sizeof(bad));
    XT_CHECK_RC(xccl_unique_id_decode(&bad, &job), xcclInvalidArgument);
    id_spend(&id);
}

XT_TEST(an_id_of_another_format_names_the_version_that_made_it)
{
    xcclUniqueId id, bad;
    struct xccl_meeting job;

    id_setup();
    XT_OK(xccl_unique_id_create(&id));
    bad = id;
    bad.internal[2] = 9;
    bad.internal[4] = (char)(20304 & 0xff);
    bad.internal[5] = (char)(20304 >> 8);
    bad.internal[6] = bad.internal[7] = 0;
    XT_CHECK_RC(xccl_unique_id_decode(&bad, &job), xcclInvalidArgument);
    XT_CHECK_HAS(xccl_error_text(), "format 9");
    XT_CHECK_HAS(xccl_error_text(), "xccl 2.3.4");
    id_spend(&id);
}

static void id_in_child(int rank, int nranks, void *arg)
{
    xcclUniqueId first, second;
    int fd = *(int *)arg;

    (void)nranks;
    comm_id_setup("127.0.0.1:4000", "swordfish");
    XT_OK(xccl_unique_id_create(&first));
    XT_OK(xccl_unique_id_create(&second));
    XT_CHECK(memcmp(&first, &second, sizeof(first)) != 0);
    XT_CHECK_INT(pwrite(fd, &first, sizeof(first), (2 * rank) * (off_t)sizeof(first)),
                 sizeof(first));
    XT_CHECK_INT(pwrite(fd, &second, sizeof(first), (2 * rank + 1) * (off_t)sizeof(first)),
                 sizeof(first));
}

XT_TEST(every_process_makes_the_same_ids_from_comm_id)
{
    xcclUniqueId ids[4];
    struct xccl_meeting job;
    char path[512];
    int fd;

    snprintf(path, sizeof(path), "%s/ids", xt_tmpdir());
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    XT_CHECK(fd >= 0);
    xt_mp_run(2, id_in_child, &fd);
    XT_CHECK_INT(pread(fd, ids, sizeof(ids), 0), sizeof(ids));
    close(fd);
    XT_CHECK(memcmp(&ids[0], &ids[2], sizeof(ids[0])) == 0);
    XT_CHECK(memcmp(&ids[1], &ids[3], sizeof(ids[0])) == 0);
    XT_OK(xccl_unique_id_decode(&ids[0], &job));
    XT_CHECK_INT(job.owns_root, 1);
    XT_CHECK_INT(xccl_addr_port(&job.roots[0]), 4000);
}

XT_TEST(the_launchers_root_is_not_rank_zeros)
{
    struct xccl_meeting job;
    uint8_t secret[32];
    xcclUniqueId id;

    comm_id_setup("127.0.0.1:4000", "swordfish");
    xt_setenv("XCCL_ROOT", "launcher");
    xccl_param_reset();
    XT_OK(xccl_unique_id_create(&id));
    XT_OK(xccl_unique_id_decode(&id, &job));
    XT_CHECK_INT(job.owns_root, 0);
    xccl_job_key_secret("swordfish", secret);
    XT_CHECK(memcmp(secret, job.secret, sizeof(secret)) == 0);
}

static char warning[512];
static int warnings;
static void keep_warning(enum xccl_log_level level, const char *line)
{
    if (level != XCCL_LOG_WARN || !strstr(line, "job key"))
        return;
    warnings++;
    snprintf(warning, sizeof(warning), "%s", line);
}

/* Each rank makes the id; the one that has the root speaks for the job. */
static void check_warnings(const char *job_key, const char *part)
{
    struct xccl_meeting meeting;
    xcclUniqueId id;

    comm_id_setup("127.0.0.1:4000", job_key);
    xccl_log_set_sink(keep_warning);
    for (int i = 0; i < 2; i++) {
        XT_OK(xccl_unique_id_create(&id));
        XT_OK(xccl_unique_id_decode(&id, &meeting));
        XT_CHECK_INT(warnings, i && part[0]);
        xccl_unique_id_warn(&meeting);
        XT_CHECK_INT(warnings, part[0] != 0);
    }
    xccl_log_set_sink(NULL);
    XT_CHECK_HAS(warning, part);
}

XT_TEST(without_a_key_one_warning_says_that_the_promise_is_off)
{
    check_warnings(NULL, "127.0.0.1:4000 without a job key");
}

XT_TEST(a_short_key_is_named_once)
{
    check_warnings("fifteen letters", "with a job key of fewer than 16 characters");
}

XT_TEST(a_key_of_16_characters_needs_no_warning)
{
    check_warnings("sixteen letters!", "");
}

XT_TEST(key_files_must_be_private)
{
    struct xccl_meeting job, from_text;
    char path[512];
    xcclUniqueId id;
    int fd;

    snprintf(path, sizeof(path), "%s/key", xt_tmpdir());
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    XT_CHECK(fd >= 0);
    comm_id_setup("127.0.0.1:4000", NULL);
    xt_setenv("XCCL_JOB_KEY_FILE", path);
    xccl_param_reset();
    XT_CHECK(xccl_unique_id_create(&id) == xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "holds no key");
    XT_CHECK_INT(write(fd, "swordfish\n", 10), 10);
    XT_OK(xccl_unique_id_create(&id));
    XT_OK(xccl_unique_id_decode(&id, &job));
    XT_CHECK_INT(fchmod(fd, 0640), 0);
    XT_CHECK(xccl_unique_id_create(&id) == xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "chmod 600");
    close(fd);
    comm_id_setup("127.0.0.1:4000", "swordfish");
    XT_OK(xccl_unique_id_create(&id));
    XT_OK(xccl_unique_id_decode(&id, &from_text));
    XT_CHECK(memcmp(job.secret, from_text.secret, sizeof(job.secret)) == 0);
}

XT_TEST(a_bad_comm_id_is_named)
{
    xcclUniqueId id;

    comm_id_setup("127.0.0.1:99999", "k");
    XT_CHECK(xccl_unique_id_create(&id) == xcclInvalidArgument);
    XT_CHECK_HAS(xccl_error_text(), "99999");
}
