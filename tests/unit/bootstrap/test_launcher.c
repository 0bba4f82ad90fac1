/* SPDX-License-Identifier: BSD-3-Clause */
/* Launchers that are known by variables alone, with an environment of the test's own: which one
 * counts, what its variables must say, and where the ranks meet. Each asks in a process of its own,
 * since calls are counted.
 *
 * Thread: one. */
#include <stdio.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/param.h"
#include "bootstrap/job.h"
#include "bootstrap/launcher/launcher_int.h"
#include "launcher_env.h"
#include "xt.h"

__attribute__((constructor)) static void sources(void)
{
    xt_set_error_source(xccl_error_text);
    xt_set_alloc_source(xccl_alloc_live);
}

/* The id that a process with these variables gets. */
struct ask {
    const char *pairs;
    xcclResult_t rc;
    xcclUniqueId id;
    struct xccl_launch launch;
    char error[XCCL_ERROR_TEXT_BYTES];
};

static void ask_rank(int rank, int nranks, void *arg)
{
    struct ask *ask = arg;

    (void)rank;
    (void)nranks;
    set_all(ask->pairs);
    ask->rc = xccl_launcher_id(&ask->id, &ask->launch);
    snprintf(ask->error, sizeof(ask->error), "%s", xccl_error_text());
}

/* In a process of its own, since calls are counted. */
static struct ask ask(const char *pairs)
{
    struct ask *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct ask answer;

    XT_CHECK(shared != MAP_FAILED);
    shared->pairs = pairs;
    xt_mp_run(1, ask_rank, shared);
    answer = *shared;
    munmap(shared, sizeof(*shared));
    return answer;
}

/* Where the ranks meet, as HOST:PORT. */
static const char *meets_at(const struct ask *answer, int *port_out)
{
    static char text[XCCL_ADDR_TEXT_BYTES];
    struct xccl_meeting meeting;

    XT_CHECK_RC(answer->rc, xcclSuccess);
    XT_OK(xccl_unique_id_decode(&answer->id, &meeting));
    XT_CHECK(meeting.owns_root);
    xccl_addr_format(&meeting.roots[0], text);
    *port_out = xccl_addr_port(&meeting.roots[0]);
    return text;
}

static int equal(const struct ask *a, const struct ask *b)
{
    XT_CHECK_RC(a->rc, xcclSuccess);
    XT_CHECK_RC(b->rc, xcclSuccess);
    return memcmp(&a->id, &b->id, sizeof(a->id)) == 0;
}

XT_TEST(ranks_of_one_torchrun_meet_and_those_of_another_do_not)
{
#define TORCH "WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 LOCAL_WORLD_SIZE=2 "
    struct ask first, second, restarted, other;
    int port = 0;

    setup(NULL);
    first = ask(TORCH "RANK=0 LOCAL_RANK=0 TORCHELASTIC_RUN_ID=run-a");
    second = ask(TORCH "RANK=1 LOCAL_RANK=1 TORCHELASTIC_RUN_ID=run-a");
    restarted = ask(TORCH "RANK=1 TORCHELASTIC_RUN_ID=run-a TORCHELASTIC_RESTART_COUNT=1");
    other = ask(TORCH "RANK=1 TORCHELASTIC_RUN_ID=run-b");
    XT_CHECK(equal(&first, &second));
    /* Agents count restarts each for itself. */
    XT_CHECK(equal(&first, &restarted));
    XT_CHECK(!equal(&first, &other));
    XT_CHECK_INT(second.launch.rank, 1);
    XT_CHECK_INT(second.launch.nranks, 2);
    XT_CHECK_INT(second.launch.local_rank, 1);
    XT_CHECK_INT(second.launch.local_nranks, 2);
    XT_CHECK_HAS(meets_at(&first, &port), "127.0.0.1:");
    XT_CHECK(port >= 24000 && port <= 28999);
}

XT_TEST(the_port_range_is_kept_and_the_masters_port_left_alone)
{
    struct ask answer;
    int port = 0;

    setup(NULL);
    answer = ask(TORCH "RANK=1 XCCL_PORT_RANGE=29500-29501 TORCHELASTIC_RUN_ID=run-a");
    meets_at(&answer, &port);
    XT_CHECK_INT(port, 29501);
    answer = ask(TORCH "RANK=1 XCCL_PORT_RANGE=29500-29500");
    XT_CHECK_RC(answer.rc, xcclInvalidUsage);
    XT_CHECK_HAS(answer.error, "has no port where the ranks can meet (MASTER_PORT is not used)");
    for (int i = 0; i < 1000; i++) {
        char text[16];

        snprintf(text, sizeof(text), "run %d", i);
        port = xccl_launcher_port(text, "29499-29501", 29500);
        XT_CHECK(port == 29499 || port == 29501);
    }
    XT_CHECK_INT(xccl_launcher_port("x", "80", 0), 0);
    XT_CHECK_INT(xccl_launcher_port("x", "90-80", 0), 0);
    XT_CHECK_INT(xccl_launcher_port("x", "0-80", 0), 0);
    XT_CHECK_INT(xccl_launcher_port("x", "80-65536", 0), 0);
    XT_CHECK_INT(xccl_launcher_port("x", "80-90 ", 0), 0);
}

XT_TEST(a_master_address_of_ipv6_and_a_missing_one)
{
    struct ask answer;
    int port = 0;

    setup(NULL);
    answer = ask("RANK=0 WORLD_SIZE=2 MASTER_ADDR=::1");
    XT_CHECK_HAS(meets_at(&answer, &port), "[::1]:");
    answer = ask("RANK=0 WORLD_SIZE=2");
    XT_CHECK_RC(answer.rc, xcclInvalidUsage);
    XT_CHECK_HAS(answer.error, "MASTER_ADDR is not; set MASTER_ADDR");
    answer = ask("RANK=2 WORLD_SIZE=2 MASTER_ADDR=::1");
    XT_CHECK_HAS(answer.error, "RANK is \"2\", not a number from 0 to 1");
    answer = ask("RANK=0 TORCHELASTIC_RUN_ID=none");
    XT_CHECK_HAS(answer.error, "started by torchrun, but WORLD_SIZE is not set");
}

XT_TEST(without_a_key_ids_follow_from_the_run_all_the_same)
{
    struct ask first, second;

    setup(NULL);
    xt_setenv("XCCL_JOB_KEY", NULL);
    first = ask(TORCH "RANK=0 TORCHELASTIC_RUN_ID=run-a");
    second = ask(TORCH "RANK=1 TORCHELASTIC_RUN_ID=run-a");
    XT_CHECK(equal(&first, &second));
}

XT_TEST(steps_of_slurm_meet_at_their_first_host)
{
#define STEP "SLURM_JOB_ID=9 SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=4 "
    struct ask first, second, other, one;
    int port = 0;

    setup(NULL);
    first = ask(STEP "SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NODELIST=localhost,nowhere[1-2]");
    second = ask(STEP "SLURM_STEP_ID=0 SLURM_PROCID=3 SLURM_STEP_NODELIST=localhost,nowhere[1-2] "
                      "SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_STEP_TASKS_PER_NODE=2(x2)");
    other = ask(STEP "SLURM_STEP_ID=1 SLURM_PROCID=3 SLURM_STEP_NODELIST=localhost,nowhere[1-2]");
    one = ask(STEP "SLURM_STEP_ID=1 SLURM_PROCID=3 SLURM_STEP_NUM_NODES=1");
    XT_CHECK(equal(&first, &second));
    XT_CHECK(!equal(&first, &other));
    XT_CHECK_INT(second.launch.nranks, 4);
    XT_CHECK_INT(second.launch.local_rank, 1);
    XT_CHECK_INT(second.launch.local_nranks, 2);
    XT_CHECK_HAS(meets_at(&one, &port), "127.0.0.1:");
    one = ask(STEP "SLURM_STEP_ID=1 SLURM_PROCID=3 SLURM_STEP_NODELIST=a[b");
    XT_CHECK_HAS(one.error, "cannot be determined; use srun --mpi=pmix");
    /* A batch script is no step. */
    one = ask("SLURM_JOB_ID=9 SLURM_NTASKS=8 SLURM_PROCID=0 XCCL_COMM_ID=" ADDR);
    XT_CHECK_RC(one.rc, xcclSuccess);
    XT_CHECK_INT(one.launch.nranks, 1);
}

XT_TEST(lists_of_slurm_are_read_or_refused)
{
    static const char *const lists[][2] = {
        {"vm", "vm"},        {"a,b", "a"},     {"node[07-09,12],x", "node07"},
        {"n[1]", "n1"},      {"n[3,5]", "n3"}, {"", NULL},
        {"[", NULL},         {"n[", NULL},     {"n[]", NULL},
        {"n[a]", NULL},      {"n[1", NULL},    {"n[1]-ib[2]", NULL},
        {"n[1-2]-ib", NULL}, {",", NULL},      {"n[1x]", NULL},
    };
    char host[16];

    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        int read = xccl_slurm_first_host(lists[i][0], host, sizeof(host));

        XT_CHECK_INT(read, lists[i][1] != NULL);
        if (read)
            XT_CHECK_TEXT(host, lists[i][1]);
    }
    XT_CHECK_INT(xccl_slurm_first_host("a-name-of-17-more", host, sizeof(host)), 0);
    XT_CHECK_INT(xccl_slurm_first_host(NULL, host, sizeof(host)), 0);
    XT_CHECK_INT(xccl_slurm_tasks_on("4(x2),3", 0), 4);
    XT_CHECK_INT(xccl_slurm_tasks_on("4(x2),3", 1), 4);
    XT_CHECK_INT(xccl_slurm_tasks_on("4(x2),3", 2), 3);
    XT_CHECK_INT(xccl_slurm_tasks_on("4(x2),3", 3), 0);
    XT_CHECK_INT(xccl_slurm_tasks_on("", 0), 0);
    XT_CHECK_INT(xccl_slurm_tasks_on(NULL, 0), 0);
    XT_CHECK_INT(xccl_slurm_tasks_on("99999999999999999999", 0), 0);
}

XT_TEST(open_mpi_without_pmix_is_told_what_is_missing)
{
    struct ask answer;

    setup(NULL);
    answer = ask("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2");
    XT_CHECK_RC(answer.rc, xcclInvalidUsage);
    XT_CHECK_HAS(answer.error, "rank 1 of 2, but PMIX_NAMESPACE and PMIX_RANK");
    answer = ask("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 XCCL_COMM_ID=" ADDR);
    XT_CHECK_RC(answer.rc, xcclSuccess);
}

XT_TEST(settings_of_our_own_come_first_and_must_fit)
{
    struct ask answer;
    int port = 0;

    setup(NULL);
    answer = ask("XCCL_RANK=1 XCCL_NRANKS=3 XCCL_COMM_ID=127.0.0.1:4000 PMI_FD=3 PMI_RANK=0 "
                 "PMI_SIZE=9 RANK=0 WORLD_SIZE=7");
    XT_CHECK_TEXT(meets_at(&answer, &port), "127.0.0.1:4000");
    XT_CHECK_INT(answer.launch.rank, 1);
    XT_CHECK_INT(answer.launch.nranks, 3);
    XT_CHECK_INT(answer.launch.local_rank, -1);
    XT_CHECK_INT(answer.launch.local_nranks, 0);
    answer = ask("XCCL_RANK=1 XCCL_NRANKS=3");
    XT_CHECK_RC(answer.rc, xcclInvalidUsage);
    XT_CHECK_HAS(answer.error, "no address where the ranks meet; set XCCL_COMM_ID");
    answer = ask("XCCL_RANK=3 XCCL_NRANKS=3 XCCL_COMM_ID=127.0.0.1:4000");
    XT_CHECK_HAS(answer.error, "XCCL_RANK is 3 and XCCL_NRANKS is 3");
    answer = ask("XCCL_RANK=0");
    XT_CHECK_HAS(answer.error, "XCCL_RANK is 0 and XCCL_NRANKS is 0");
    /* The address that a user gives is taken under torchrun as well. */
    answer = ask(TORCH "RANK=1 XCCL_COMM_ID=127.0.0.1:4000");
    XT_CHECK_TEXT(meets_at(&answer, &port), "127.0.0.1:4000");
}

XT_TEST(the_first_of_several_launchers_counts)
{
    static const struct {
        const char *variable, *value, *name;
    } steps[] = {
        {NULL, NULL, "xccl run"},
        {"XCCL_RANK", NULL, "torchrun"},
        {"TORCHELASTIC_RUN_ID", NULL, "PMIx"},
        {"PMIX_NAMESPACE", NULL, "PMI ("},
        {"PMI_SIZE", NULL, "RANK and WORLD_SIZE"},
        {"WORLD_SIZE", NULL, "Slurm without PMI"},
        {"SLURM_STEP_ID", NULL, "Open MPI's variables"},
        {"OMPI_COMM_WORLD_SIZE", NULL, "no launcher"},
        {"PMI_PORT", "host:1", "PMI ("},
        {"PMI_ID", "", "no launcher"},
    };
    int is_job = 0;

    setup(NULL);
    set_all("XCCL_RANK=0 TORCHELASTIC_RUN_ID=x RANK=0 WORLD_SIZE=1 PMIX_NAMESPACE=n PMIX_RANK=0 "
            "PMI_FD=3 PMI_RANK=0 PMI_SIZE=1 SLURM_PROCID=0 SLURM_STEP_ID=0 PMI_ID=0 "
            "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1");
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        if (steps[i].variable)
            xt_setenv(steps[i].variable, steps[i].value);
        xccl_param_reset();
        XT_CHECK_HAS(xccl_launcher_name(&is_job), steps[i].name);
        XT_CHECK_INT(is_job, strcmp(steps[i].name, "no launcher") != 0);
    }
}

XT_TEST(a_process_that_nobody_started_is_a_job_of_one)
{
    struct xccl_launch launch;

    setup(NULL);
    XT_OK(xccl_launcher_place(&launch));
    XT_CHECK_INT(launch.rank, 0);
    XT_CHECK_INT(launch.nranks, 1);
    XT_CHECK_INT(launch.local_rank, 0);
    XT_CHECK_INT(launch.local_nranks, 1);
}
