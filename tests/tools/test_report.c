/* SPDX-License-Identifier: BSD-3-Clause */
/* `xccl report` through the built program, while ranks of this test are in calls, between calls and
 * killed. The JSON is held against its schema by python3-jsonschema. No test sleeps: it asks until
 * the report says what it must.
 *
 * Thread: one a test and rank. */
#include "../collective/world.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "record/record_layout.h"

#define XCCL     XT_BUILD_DIR "/bin/xccl"
#define SCHEMA   XT_SOURCE_DIR "/tools/schema/report.schema.json"
#define ARGS_MAX 16
#define COUNT    4096

/* Runs `xccl` with the words of args; returns the exit status. */
static int run_xccl(const char *args, const char **output_out)
{
    char words[1024];
    const char *argv[ARGS_MAX + 1] = {XCCL};
    char *rest = NULL;
    int count = 1, status;

    snprintf(words, sizeof(words), "%s", args);
    for (char *word = strtok_r(words, " ", &rest); word && count < ARGS_MAX;
         word = strtok_r(NULL, " ", &rest))
        argv[count++] = word;
    status = xt_run_program(argv, output_out);
    XT_CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Records of this test alone. */
static struct world *own_world(void)
{
    xt_setenv("XCCL_RECORD_DIR", xt_tmpdir());
    return world_create();
}

/* Until the report has all parts, which end with NULL. */
static const char *await_report(const char *args, const char *const *parts)
{
    const char *output;

    for (;;) { /* bounded by the test's deadline */
        size_t i = 0;

        (void)run_xccl(args, &output);
        while (parts[i] && strstr(output, parts[i]))
            i++;
        if (!parts[i])
            return output;
        sched_yield();
    }
}

/* Rank 0 begins one call more than the others, who stay outside until they may go on:
 * world->arrived becomes the number of all ranks. */
static void late_rank(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    static float in[COUNT], out[COUNT];
    xcclComm_t comm = world_join(world, rank, nranks);

    for (int i = 0; i < 16; i++)
        XT_OK(xcclAllReduce(in, out, COUNT, xcclFloat32, xcclSum, comm, NULL));
    if (rank)
        world_meet(world, nranks);
    if (xcclAllReduce(in, out, COUNT, xcclFloat32, xcclSum, comm, NULL) == xcclSuccess)
        XT_OK(xcclCommDestroy(comm));
    else
        XT_OK(xcclCommAbort(comm));
}

/* Ends the waiting of late ranks. */
static void let_go(struct world *world)
{
    atomic_fetch_add_explicit(&world->arrived, 1, memory_order_acq_rel);
}

XT_TEST(a_rank_that_is_behind_stands_out)
{
    static const char *const parts[] = {"in call 17, all_reduce of 4096 float32, sum, since ",
                                        "between calls",
                                        "2 ranks, 2 with a record",
                                        " 0 all_reduce              17         16",
                                        " 1 all_reduce              16         16",
                                        NULL};
    struct world *world = own_world();
    struct xt_mp *mp = xt_mp_start(2, late_rank, world);
    const char *output = await_report("report", parts);
    int statuses[2];
    char args[64];

    XT_CHECK(strstr(output, "dead") == NULL);
    snprintf(args, sizeof args, "report %d", (int)xt_mp_pid(mp, 1));
    XT_CHECK_INT(run_xccl(args, &output), 0);
    XT_CHECK_HAS(output, "2 ranks, 1 with a record");
    XT_CHECK(strstr(output, "in call") == NULL);
    let_go(world);
    xt_mp_wait(mp, statuses);
    XT_CHECK(!statuses[0] && !statuses[1]);
    XT_CHECK_INT(run_xccl("report", &output), 1);
    XT_CHECK_HAS(output, "no process of this user has a record");
}

XT_TEST(a_killed_rank_is_reported_with_what_it_was_doing)
{
    static const char *const before[] = {"in call 17", "between calls", NULL};
    struct world *world = own_world();
    struct xt_mp *mp = xt_mp_start(2, late_rank, world);
    const char *output;
    char args[64];
    int statuses[2];
    pid_t pid = xt_mp_pid(mp, 0);

    (void)await_report("report", before);
    xt_mp_kill(mp, 0, SIGKILL);
    let_go(world);
    xt_mp_wait(mp, statuses);
    XT_CHECK(WIFSIGNALED(statuses[0]));
    XT_CHECK_INT(statuses[1], 0); /* it has given its communicator back */
    snprintf(args, sizeof args, "report %d --events 2", (int)pid);
    XT_CHECK_INT(run_xccl(args, &output), 0);
    XT_CHECK_HAS(output, "dead; was in call 17, all_reduce of 4096 float32, sum, since ");
    XT_CHECK_HAS(output, " s before its last event");
    XT_CHECK_HAS(output, "call 17, all_reduce of 4096 float32, sum: issued");
    XT_CHECK_HAS(output, "call 16, all_reduce of 4096 float32, sum: done");
    XT_CHECK_HAS(output, "2 ranks, 1 with a record");
}

/* Calls until world->param says that it is enough. */
static void busy_rank(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    static float in[COUNT], out[COUNT];
    xcclComm_t comm = world_join(world, rank, nranks);
    float stop = 0, sum = 0;

    while (!(sum > 0)) {
        for (int i = 0; i < 20; i++)
            XT_OK(xcclAllReduce(in, out, COUNT, xcclFloat32, xcclSum, comm, NULL));
        stop = atomic_load_explicit(&world->arrived, memory_order_acquire) ? 1 : 0;
        XT_OK(xcclAllReduce(&stop, &sum, 1, xcclFloat32, xcclMax, comm, NULL));
    }
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST_DEADLINE(rates_are_told_of_an_interval, 60)
{
    static const char *const ready[] = {"2 ranks, 2 with a record", "all_reduce", NULL};
    struct world *world = own_world();
    struct xt_mp *mp = xt_mp_start(2, busy_rank, world);
    const char *output, *line;
    unsigned rank, issued, done, issued_rate, done_rate;
    int statuses[2];

    (void)await_report("report", ready);
    XT_CHECK_INT(run_xccl("report --interval 0.3 --count 2", &output), 0);
    let_go(world);
    xt_mp_wait(mp, statuses);
    XT_CHECK(!statuses[0] && !statuses[1]);
    XT_CHECK_HAS(output, "issued/s");
    line = strstr(output, "     0 all_reduce");
    XT_CHECK(line != NULL);
    XT_CHECK_INT(
        sscanf(line, "%u all_reduce %u %u %u %u", &rank, &issued, &done, &issued_rate, &done_rate),
        5);
    XT_CHECK(issued >= done && issued <= done + 1);
    XT_CHECK(issued_rate > 0 && done_rate > 0);
    XT_CHECK(issued_rate < issued * 10); /* it began to count before the interval */
}

/* Runs two ranks that reach each other over TCP alone, with a setting of XCCL_NET_ENCRYPT. */
static void protection_is_shown(const char *setting, const char *text)
{
    const char *const parts[] = {"2 ranks, 2 with a record", text, NULL};
    struct world *world;
    struct xt_mp *mp;
    int statuses[2];

    xt_setenv("XCCL_NET_ENCRYPT", setting);
    xt_setenv("XCCL_NET_PLUGIN", "socket");
    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("XCCL_SOCKET_UNIX", "0");
    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    world = own_world();
    mp = xt_mp_start(2, busy_rank, world);
    (void)await_report("report", parts);
    let_go(world);
    xt_mp_wait(mp, statuses);
    XT_CHECK(!statuses[0] && !statuses[1]);
}

XT_TEST_DEADLINE(protection_of_the_network_is_shown, 60)
{
    protection_is_shown("1", "socket lo (encrypted)\n");
    protection_is_shown("mac", "socket lo (authenticated)\n");
    protection_is_shown("0", "socket lo\n");
}

/* Skips the test where python3 has no such module. */
static void need_module(const char *module)
{
    char code[64];
    const char *argv[] = {"python3", "-c", code, NULL};
    const char *output = NULL;

    snprintf(code, sizeof(code), "import %s", module);
    if (xt_run_program(argv, &output) != 0)
        XT_SKIP("python3 has no module %s", module);
}

static const char *save(const char *folder, const char *name, const char *text)
{
    static char path[512];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "we");
    XT_CHECK(file != NULL);
    fputs(text, file);
    fclose(file);
    return path;
}

XT_TEST_DEADLINE(the_json_is_what_its_schema_says, 60)
{
    static const char code[] =
        "import json, sys, jsonschema\n"
        "schema = json.load(open(sys.argv[1]))\n"
        "jsonschema.Draft7Validator.check_schema(schema)\n"
        "found = [json.loads(line) for line in open(sys.argv[2])]\n"
        "assert len(found) == 1, found\n"
        "jsonschema.validate(found[0], schema)\n"
        "comms = sorted((r['communicators'][0] for r in found[0]['records']), key=lambda c: "
        "c['rank'])\n"
        "assert [c['state'] for c in comms] == ['calling', 'ready'], comms\n"
        "assert [c['collectives'][0]['issued_calls'] for c in comms] == [17, 16], comms\n"
        "assert [c['collectives'][0]['done_bytes'] for c in comms] == [16 * 16384] * 2, comms\n"
        "assert comms[0]['call']['name'] == 'all_reduce' and comms[0]['call']['seconds'] > 0\n"
        "assert comms[0]['call']['type'] == 'float32' and comms[0]['call']['operator'] == 'sum'\n"
        "assert comms[0]['collectives'][0]['per_second']['done_calls'] == 0, comms\n"
        "assert comms[0]['events'][-1]['kind'] == 'issued', comms\n"
        "assert len(comms[1]['events']) == 3, comms\n"
        "for damage in ('state', 'collectives', 'call', 'labels', 'ways'):\n"
        "    broken = json.loads(json.dumps(found[0]))\n"
        "    del broken['records'][0]['communicators'][0][damage]\n"
        "    try:\n"
        "        jsonschema.validate(broken, schema)\n"
        "    except jsonschema.ValidationError:\n"
        "        continue\n"
        "    raise SystemExit('the schema misses ' + damage)\n";
    static const char *const ready[] = {"in call 17", "between calls", NULL};
    static const char schema[] = SCHEMA;
    const char *argv[] = {"python3", "-c", code, schema, NULL, NULL};
    struct world *world = own_world();
    struct xt_mp *mp;
    const char *output;
    int statuses[2];

    need_module("jsonschema");
    mp = xt_mp_start(2, late_rank, world);
    (void)await_report("report", ready);
    XT_CHECK_INT(run_xccl("report -J --events 3 --interval 0.1 --count 1", &output), 0);
    let_go(world);
    xt_mp_wait(mp, statuses);
    argv[4] = save(xt_tmpdir(), "report.json", output);
    if (xt_run_program(argv, &output) != 0)
        XT_FAIL("the schema does not fit: %s", xt_why(output));
}

/* Rank 1 finds out that rank 0 was killed, and keeps the failed communicator for a while. */
static void bereaved_rank(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm = world_join(world, rank, nranks);
    float value = 1;

    if (rank)
        XT_CHECK_RC(xcclAllReduce(&value, &value, 1, xcclFloat32, xcclSum, comm, NULL),
                    xcclRemoteError);
    world_meet(world, nranks + 1);
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST_DEADLINE(failure_is_shown_with_kind_culprit_and_remedy, 60)
{
    static const char *const ready[] = {"in call 1", "between calls", NULL};
    static const char *const failed[] = {"failed (", ", culprit rank 0): rank 0 (host ", NULL};
    struct world *world = own_world();
    struct xt_mp *mp = xt_mp_start(2, bereaved_rank, world);
    const char *output;
    int statuses[2];

    (void)await_report("report", ready);
    xt_mp_kill(mp, 0, SIGKILL);
    (void)await_report("report", failed);
    XT_CHECK_INT(run_xccl("report -J", &output), 0);
    XT_CHECK_HAS(output, "\"kind\": \"");
    XT_CHECK_HAS(output, "\"culprit\": 0, \"finder\": 1, \"remedy\": \"check what that rank "
                         "logged, then destroy the communicator\"");
    let_go(world);
    xt_mp_wait(mp, statuses);
    XT_CHECK_INT(statuses[1], 0);
}

/* A communicator with labels that differ, and a split with labels that do not. */
static void labelled_rank(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclConfig_t config = XCCL_CONFIG_INITIALIZER;
    xcclComm_t comm, child;

    config.commName = "tensor";
    config.commLabels = rank ? "tp=0,dp=\"1\"" : "tp=0";
    XT_OK(xcclCommInitRankConfig(&comm, nranks, world_id(world, rank, 0), rank, &config));
    config.commName = NULL;
    config.commLabels = "pp=7,last";
    XT_OK(xcclCommSplit(comm, 0, 0, &child, &config));
    world_meet(world, nranks + 1);
    XT_OK(xcclCommDestroy(child));
    XT_OK(xcclCommDestroy(comm));
}

/* Bytes of a hostile process's record: no end, and what a terminal would obey. */
static void spoil_labels(pid_t pid)
{
    const char *records = getenv("XCCL_RECORD_DIR");
    struct xccl_record_head head;
    char labels[XCCL_RECORD_LABEL_BYTES], path[600];
    struct dirent *entry;
    DIR *folder = records ? opendir(records) : NULL;
    int fd = -1;

    XT_CHECK(folder != NULL);
    while (fd < 0 && (entry = readdir(folder))) {
        if (strtol(entry->d_name, NULL, 10) != pid)
            continue;
        snprintf(path, sizeof path, "%s/%s", records, entry->d_name);
        fd = open(path, O_RDWR | O_CLOEXEC);
    }
    closedir(folder);
    XT_CHECK(fd >= 0);
    XT_CHECK_INT(pread(fd, &head, sizeof head, 0), sizeof head);
    memset(labels, 0x1b, sizeof labels);
    labels[9] = labels[10] = ',';
    XT_CHECK_INT(pwrite(fd, labels, sizeof labels,
                        XCCL_RECORD_PAGE + head.block_bytes +
                            (off_t)offsetof(struct xccl_record_block, labels)),
                 sizeof labels);
    close(fd);
}

XT_TEST_DEADLINE(labels_are_shown_and_harmless, 60)
{
    static const char code[] =
        "import json, sys, jsonschema\n"
        "found = json.loads(open(sys.argv[2]).read())\n"
        "jsonschema.validate(found, json.load(open(sys.argv[1])))\n"
        "comms = sorted((c['rank'], c['name'] or '', c['labels']) for r in found['records'] for c "
        "in r['communicators'])\n"
        "assert comms[1] == (0, 'tensor', ['tp=0']), comms\n"
        "assert comms[2] == (1, '', ['pp=7', 'last']), comms\n"
        "assert comms[3] == (1, 'tensor', ['tp=0', 'dp=\"1\"']), comms\n"
        "assert comms[0] == (0, '', ['\\x1b' * 9, '', '\\x1b' * 116]), comms\n";
    static const char *const parts[] = {"communicator (pp=7,last) ", "communicator tensor ",
                                        " labels: tp=0\n", " labels: tp=0,dp=\"1\"\n", NULL};
    static const char *const spoiled[] = {" labels: ?????????,,????", " labels: pp=7,last", NULL};
    static const char schema[] = SCHEMA;
    const char *argv[] = {"python3", "-c", code, schema, NULL, NULL};
    struct world *world = own_world();
    struct xt_mp *mp;
    const char *output;
    int statuses[2];

    need_module("jsonschema");
    mp = xt_mp_start(2, labelled_rank, world);
    /* Acquire: both have all their communicators. Pairs with world_meet(). */
    while (atomic_load_explicit(&world->arrived, memory_order_acquire) < 2)
        sched_yield(); /* bounded by the test's deadline */
    output = await_report("report", parts);
    XT_CHECK(strstr(output, "tensor (") == NULL);
    spoil_labels(xt_mp_pid(mp, 0));
    output = await_report("report", spoiled);
    XT_CHECK(strchr(output, 0x1b) == NULL);
    XT_CHECK_INT(run_xccl("report -J", &output), 0);
    let_go(world);
    xt_mp_wait(mp, statuses);
    XT_CHECK(!statuses[0] && !statuses[1]);
    argv[4] = save(xt_tmpdir(), "report.json", output);
    if (xt_run_program(argv, &output) != 0)
        XT_FAIL("not as it must be: %s", xt_why(output));
}

XT_TEST(a_file_that_is_no_record_is_named)
{
    const char *path = save(xt_tmpdir(), "7-7.record", "nonsense"), *output;
    char args[600];

    snprintf(args, sizeof args, "report %s", path);
    XT_CHECK_INT(run_xccl(args, &output), 1);
    XT_CHECK_HAS(output, path);
    XT_CHECK_HAS(output, "it is not a record");
    XT_CHECK_INT(run_xccl("report /does/not/exist.record", &output), 1);
    XT_CHECK_HAS(output, "cannot be opened");
    xt_setenv("XCCL_RECORD_DIR", xt_tmpdir()); /* programs beside this test may be of any age */
    XT_CHECK_INT(run_xccl("report 1", &output), 1);
    XT_CHECK_HAS(output, "no record of process 1");
}

/* An upgrade leaves records behind that nobody needs to hear of one by one. */
XT_TEST(records_of_other_versions_are_one_line)
{
    const char *output, *path = NULL, *folder = xt_tmpdir();
    char name[32], args[600];

    xt_setenv("XCCL_RECORD_DIR", folder);
    for (int i = 1; i <= 3; i++) {
        struct xccl_record_head head = {.magic = XCCL_RECORD_MAGIC, .version = 1};
        FILE *file;

        snprintf(name, sizeof name, "%d-7.record", i);
        path = save(folder, name, "");
        file = fopen(path, "w");
        XT_CHECK(file && fwrite(&head, sizeof head, 1, file) == 1 && fclose(file) == 0);
    }
    XT_CHECK_INT(run_xccl("report", &output), 1);
    XT_CHECK_HAS(output, "left out 3 records of dead processes");
    XT_CHECK(!strstr(output, "version 1"));
    XT_CHECK_INT(run_xccl("report 2", &output), 1);
    XT_CHECK_HAS(output, "left out 1 record of");
    snprintf(args, sizeof args, "report %s", path);
    XT_CHECK_INT(run_xccl(args, &output), 1);
    XT_CHECK_HAS(output, "it is a record of version 1");
}

XT_TEST(wrong_arguments_are_named)
{
    static const struct {
        const char *args, *says;
    } cases[] = {
        {"report --intervall 1", "did you mean --interval?"},
        {"report --interval 0", "--interval must be more than 0"},
        {"report --interval soon", "--interval"},
        {"report --count 3", "--count needs --interval"},
        {"report --events -1", "--events"},
        {"report 1 2", "unexpected argument 2"},
    };
    const char *output = NULL;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        XT_CHECK_INT(run_xccl(cases[i].args, &output), 2);
        XT_CHECK_HAS(output, cases[i].says);
    }
    XT_CHECK_INT(run_xccl("help report", &output), 0);
    XT_CHECK_HAS(output, "usage: xccl report [PID|FILE]");
    XT_CHECK_INT(run_xccl("report --help", &output), 0);
    XT_CHECK_HAS(output, "--interval S");
}
