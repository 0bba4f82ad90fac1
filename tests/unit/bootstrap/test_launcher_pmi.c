/* SPDX-License-Identifier: BSD-3-Clause */
/* PMI servers whose every byte is written beforehand: into one end of a socket pair, before the
 * rank at the other end says its first word. What the rank said is read afterwards and compared.
 * What a rank keeps until its process ends is kept in a process that the test forks.
 *
 * Thread: one. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "bootstrap/job.h"
#include "bootstrap/launcher/launcher.h"
#include "bootstrap/launcher/pmi_wire.h"
#include "launcher_env.h"
#include "xt.h"

__attribute__((constructor)) static void sources(void)
{
    xt_set_error_source(xccl_error_text);
    xt_set_alloc_source(xccl_alloc_live);
}

#define TALK_BYTES 16384

static int server_fd = -1;

/* The rank of nranks finds a server that has said count bytes already, and then goes (1) or stays
 * silent (0). */
static void play(int rank, int nranks, const char *bytes, size_t count, int goes)
{
    char text[64];
    int ends[2];

    XT_CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    server_fd = ends[1];
    XT_CHECK_INT(write(server_fd, bytes, count), (ssize_t)count);
    if (goes)
        XT_CHECK_INT(shutdown(server_fd, SHUT_WR), 0);
    snprintf(text, sizeof(text), "PMI_FD=%d PMI_RANK=%d PMI_SIZE=%d", ends[0], rank, nranks);
    set_all(text);
}

/* All that the rank said; ends it too. */
static void heard(char text_out[TALK_BYTES])
{
    size_t used = 0;
    ssize_t got = 1;

    close(atoi(getenv("PMI_FD")));
    while (got > 0 && used < TALK_BYTES - 1) {
        got = read(server_fd, text_out + used, TALK_BYTES - 1 - used);
        used += got > 0 ? (size_t)got : 0;
    }
    text_out[used] = '\0';
    close(server_fd);
}

/* The id that rank 0 would have made, as the launcher carries it. */
static void id_text(char text_out[2 * XCCL_UNIQUE_ID_BYTES + 2])
{
    xcclUniqueId id;

    XT_OK(xccl_unique_id_create(&id));
    text_out[0] = 'I';
    for (int i = 0; i < XCCL_UNIQUE_ID_BYTES; i++)
        snprintf(text_out + 1 + 2 * i, 3, "%02x", (unsigned char)id.internal[i]);
}

#define PMI1_HELLO                                                                                 \
    "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"                                   \
    "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n"                                    \
    "cmd=my_kvsname kvsname=kvs_17\n"
#define PMI1_SAID "cmd=init pmi_version=1 pmi_subversion=1\ncmd=get_maxes\ncmd=get_my_kvsname\n"

/* What a PMI-1 server says to rank 1 for the value. */
static size_t pmi1_talk(char talk_out[TALK_BYTES], const char *value)
{
    return (size_t)snprintf(talk_out, TALK_BYTES,
                            PMI1_HELLO "cmd=barrier_out\n"
                                       "cmd=get_result rc=0 msg=success value=01%s\n",
                            value);
}

static size_t add_pmi2(char *talk, size_t used, const char *body)
{
    return used + (size_t)snprintf(talk + used, TALK_BYTES - used, "%6zu%s", strlen(body), body);
}

static size_t pmi2_talk(char talk_out[TALK_BYTES], const char *value)
{
    char body[1024];
    size_t used = (size_t)snprintf(talk_out, TALK_BYTES,
                                   "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n");

    used = add_pmi2(talk_out, used,
                    "cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=1;size=2;"
                    "appnum=-1;debugged=FALSE;pmiverbose=FALSE;");
    used = add_pmi2(talk_out, used, "cmd=kvs-fence-response;rc=0;");
    snprintf(body, sizeof(body), "cmd=kvs-get-response;flag=TRUE;value=01%s;rc=0;", value);
    return add_pmi2(talk_out, used, body);
}

XT_TEST(a_pmi1_rank_gets_the_id_of_rank_0)
{
    char value[2 * XCCL_UNIQUE_ID_BYTES + 2], talk[TALK_BYTES], got[2 * XCCL_UNIQUE_ID_BYTES + 2];
    struct xccl_launch launch;
    xcclUniqueId id;

    setup(ADDR);
    id_text(value);
    play(1, 2, talk, pmi1_talk(talk, value), 1);
    XT_OK(xccl_launcher_id(&id, &launch));
    XT_CHECK_INT(launch.rank, 1);
    XT_CHECK_INT(launch.nranks, 2);
    got[0] = 'I';
    for (int i = 0; i < XCCL_UNIQUE_ID_BYTES; i++)
        snprintf(got + 1 + 2 * i, 3, "%02x", (unsigned char)id.internal[i]);
    XT_CHECK_TEXT(got, value);
    heard(talk);
    XT_CHECK_TEXT(talk, PMI1_SAID "cmd=barrier_in\ncmd=get kvsname=kvs_17 key=xccl-id-0-0\n");
}

XT_TEST(a_pmi2_rank_gets_the_id_of_rank_0)
{
    char value[2 * XCCL_UNIQUE_ID_BYTES + 2], talk[TALK_BYTES];
    struct xccl_launch launch;
    struct xccl_meeting meeting;
    xcclUniqueId id;

    setup(ADDR);
    id_text(value);
    xt_setenv("PMI_JOBID", "4.0");
    play(1, 2, talk, pmi2_talk(talk, value), 1);
    XT_OK(xccl_launcher_id(&id, &launch));
    XT_OK(xccl_unique_id_decode(&id, &meeting));
    XT_CHECK_INT(xccl_addr_port(&meeting.roots[0]), 23456);
    heard(talk);
    XT_CHECK_TEXT(talk, "cmd=init pmi_version=2 pmi_subversion=0\n"
                        "    51cmd=fullinit;pmijobid=4.0;pmirank=1;threaded=FALSE;"
                        "    14cmd=kvs-fence;"
                        "    47cmd=kvs-get;jobid=4.0;srcid=-1;key=xccl-id-0-0;");
}

XT_TEST(rank_0_cuts_the_id_to_the_size_of_the_servers_values)
{
    char value[2 * XCCL_UNIQUE_ID_BYTES + 2], talk[TALK_BYTES] = "", want[TALK_BYTES];
    struct xccl_launch launch;
    size_t used = 0;
    xcclUniqueId id;
    char whole[2 * XCCL_UNIQUE_ID_BYTES + 8];

    setup(ADDR);
    used = (size_t)snprintf(talk, sizeof(talk),
                            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
                            "cmd=maxes kvsname_max=64 keylen_max=32 vallen_max=101\n"
                            "cmd=my_kvsname kvsname=k\n"
                            "cmd=put_result rc=0\ncmd=put_result rc=0\ncmd=put_result rc=0\n"
                            "cmd=barrier_out rc=0\n");
    play(0, 2, talk, used, 1);
    XT_OK(xccl_launcher_id(&id, &launch));
    for (int i = 0; i < XCCL_UNIQUE_ID_BYTES; i++)
        snprintf(value + 2 * i, 3, "%02x", (unsigned char)id.internal[i]);
    snprintf(whole, sizeof(whole), "03I%s", value);
    used = (size_t)snprintf(want, sizeof(want), "%s", PMI1_SAID);
    for (int i = 0; i < 3; i++)
        used += (size_t)snprintf(want + used, sizeof(want) - used,
                                 "cmd=put kvsname=k key=xccl-id-0-%d value=%.100s\n", i,
                                 whole + (size_t)(100 * i));
    snprintf(want + used, sizeof(want) - used, "cmd=barrier_in\n");
    heard(talk);
    XT_CHECK_TEXT(talk, want);
}

XT_TEST(pieces_are_put_together_and_a_second_call_has_keys_of_its_own)
{
    char value[2 * XCCL_UNIQUE_ID_BYTES + 2], talk[TALK_BYTES];
    struct xccl_launch launch;
    size_t used = 0;
    xcclUniqueId first, second;

    setup(ADDR);
    id_text(value);
    used = (size_t)snprintf(talk, sizeof(talk),
                            PMI1_HELLO "cmd=barrier_out\n"
                                       "cmd=get_result rc=0 value=02%.100s\n"
                                       "cmd=get_result rc=0 value=%s\n",
                            value, value + 100);
    used += (size_t)snprintf(talk + used, sizeof(talk) - used,
                             "cmd=barrier_out\ncmd=get_result rc=0 value=01%s\n", value);
    play(1, 2, talk, used, 1);
    XT_OK(xccl_launcher_id(&first, &launch));
    XT_OK(xccl_launcher_id(&second, &launch));
    XT_CHECK(memcmp(&first, &second, sizeof(first)) == 0);
    heard(talk);
    XT_CHECK_TEXT(talk, PMI1_SAID "cmd=barrier_in\n"
                                  "cmd=get kvsname=kvs_17 key=xccl-id-0-0\n"
                                  "cmd=get kvsname=kvs_17 key=xccl-id-0-1\n"
                                  "cmd=barrier_in\n"
                                  "cmd=get kvsname=kvs_17 key=xccl-id-1-0\n");
}

struct cut {
    int pmi2;
    size_t at; /* of so many bytes */
    const char *talk;
};

static void cut_rank(int rank, int nranks, void *arg)
{
    const struct cut *cut = arg;
    struct xccl_launch launch;
    char talk[TALK_BYTES];
    xcclUniqueId id;

    (void)rank;
    (void)nranks;
    if (cut->pmi2)
        xt_setenv("PMI_JOBID", "4.0");
    play(1, 2, cut->talk, cut->at, 1);
    XT_CHECK_RC(xccl_launcher_id(&id, &launch), xcclRemoteError);
    XT_CHECK_HAS(xccl_error_text(), "has closed its PMI connection");
    /* It has failed for good. */
    XT_CHECK_RC(xccl_launcher_id(&id, &launch), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "has failed before");
    heard(talk);
}

static void cut_everywhere(int pmi2)
{
    char value[2 * XCCL_UNIQUE_ID_BYTES + 2], talk[TALK_BYTES];
    struct cut cut = {.pmi2 = pmi2, .talk = talk};
    size_t bytes = 0;

    setup(ADDR);
    id_text(value);
    bytes = pmi2 ? pmi2_talk(talk, value) : pmi1_talk(talk, value);
    for (cut.at = 0; cut.at < bytes; cut.at++)
        xt_mp_run(1, cut_rank, &cut);
}

XT_TEST_DEADLINE(a_pmi1_server_that_goes_at_any_byte_is_an_error, 120)
{
    cut_everywhere(0);
}

XT_TEST_DEADLINE(a_pmi2_server_that_goes_at_any_byte_is_an_error, 120)
{
    cut_everywhere(1);
}

struct bad {
    const char *talk;
    const char *says;
    int pmi2;
    xcclResult_t rc; /* 0: a remote error */
};

static void bad_rank(int rank, int nranks, void *arg)
{
    const struct bad *bad = arg;
    struct xccl_launch launch;
    char said[TALK_BYTES];
    xcclUniqueId id;

    (void)rank;
    (void)nranks;
    if (bad->pmi2)
        xt_setenv("PMI_JOBID", "4.0");
    play(1, 2, bad->talk, strlen(bad->talk), 1);
    XT_CHECK_RC(xccl_launcher_id(&id, &launch), bad->rc ? bad->rc : xcclRemoteError);
    XT_CHECK_HAS(xccl_error_text(), bad->says);
    XT_CHECK_HAS(xccl_error_text(), "; "); /* and what to do */
    heard(said);
}

XT_TEST(wrong_answers_are_errors_that_say_what_was_wrong)
{
#define INIT1 "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
#define INIT2 "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n"
#define MAXES "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n"
#define SPACE "cmd=my_kvsname kvsname=k\n"
    static const struct bad bads[] = {
        {"cmd=response_to_init rc=-1 msg=no\n", "refused: response_to_init, code -1, no", 0, 0},
        {"cmd=response_to_init pmi_version=2 rc=0\n", "pmi_version=2, which is not a number from 1",
         0, 0},
        {"cmd=maxes\n", "answered \"maxes\" instead of response_to_init", 0, 0},
        {"hello=there\n", "does not begin with a command", 0, 0},
        {"cmd\n", "a field without a name or value", 0, 0},
        {"=cmd\n", "a field without a name or value", 0, 0},
        {"\n", "does not begin with a command", 0, 0},
        {INIT1 "cmd=maxes vallen_max=2\n", "vallen_max=2, which is not a number", 0, 0},
        {INIT1 "cmd=maxes vallen_max=99999999999999999999\n", "not a number", 0, 0},
        {INIT1 "cmd=maxes vallen_max=12x\n", "not a number", 0, 0},
        {INIT1 "cmd=maxes\n", "vallen_max=(nothing)", 0, 0},
        {INIT1 MAXES "cmd=my_kvsname\n", "no usable name of its key-value space", 0, 0},
        {INIT1 MAXES SPACE "cmd=barrier_out rc=1\n", "refused: barrier_out, code 1", 0, 0},
        {INIT1 MAXES SPACE "cmd=barrier_out\ncmd=get_result rc=-1 msg=key_not_found\n",
         "refused: get_result, code -1, key_not_found", 0, 0},
        {INIT1 MAXES SPACE "cmd=barrier_out\ncmd=get_result rc=0\n", "no usable value", 0, 0},
        {INIT1 MAXES SPACE "cmd=barrier_out\ncmd=get_result rc=0 value=\n", "is not a unique id", 0,
         0},
        {INIT1 MAXES SPACE "cmd=barrier_out\ncmd=get_result rc=0 value=99I00\n", "not a unique id",
         0, 0},
        {INIT1 MAXES SPACE "cmd=barrier_out\ncmd=get_result rc=0 value=01I00\n", "not a unique id",
         0, 0},
        {INIT1 MAXES SPACE "cmd=barrier_out\ncmd=get_result rc=0 value=01Exy\n", "not a unique id",
         0, 0},
        {INIT1 MAXES SPACE "cmd=barrier_out\ncmd=get_result rc=0 value=01E26e6f3b20646f\n",
         "rank 0 could not make a unique id: no; do", 0, xcclSystemError},
        {INIT2 "abcdef", "does not begin with its length", 1, 0},
        {INIT2 "999999cmd=", "has an impossible length", 1, 0},
        {INIT2 "     0cmd=", "has an impossible length", 1, 0},
        {INIT2 "     7cmd=abc", "has a field without an end", 1, 0},
        {INIT2 "    39cmd=fullinit-response;rank=0;size=2;rc=0;", "reports rank 0 of 2", 1, 0},
        {INIT2 "    31cmd=fullinit-response;rc=14;errm", "refused: fullinit-response, code 14", 1,
         0},
    };

    setup(ADDR);
    for (size_t i = 0; i < sizeof(bads) / sizeof(bads[0]); i++) {
        struct bad bad = bads[i];
        char talk[512];

        /* The length of the two last ones is counted here. */
        if (strstr(bad.talk, "fullinit-response")) {
            const char *body = strstr(bad.talk, "cmd=fullinit");
            int bytes = (int)(strrchr(body, ';') + 1 - body);

            snprintf(talk, sizeof(talk), "%s%6d%.*s", INIT2, bytes, bytes, body);
            bad.talk = talk;
        }
        xt_mp_run(1, bad_rank, &bad);
    }
}

XT_TEST(a_line_without_an_end_is_refused_at_4096_bytes)
{
    static char talk[8000];
    struct bad bad = {talk, "more than 4,096 bytes", 0, 0};

    setup(ADDR);
    memset(talk, 'a', sizeof(talk) - 1);
    xt_mp_run(1, bad_rank, &bad);
    snprintf(talk, sizeof(talk), "cmd=x");
    for (int i = 0; i < 40; i++)
        snprintf(talk + strlen(talk), sizeof(talk) - strlen(talk), " a%d=b", i);
    snprintf(talk + strlen(talk), sizeof(talk) - strlen(talk), "\n");
    bad.says = "more than 32 fields";
    xt_mp_run(1, bad_rank, &bad);
}

XT_TEST(a_silent_server_ends_in_a_timeout)
{
    struct xccl_launch launch;
    char said[TALK_BYTES];
    xcclUniqueId id;

    setup(ADDR);
    set_all("XCCL_TIMEOUT_INIT_S=1");
    play(1, 2, PMI1_HELLO, strlen(PMI1_HELLO), 0);
    XT_CHECK_RC(xccl_launcher_id(&id, &launch), xcclTimeout);
    XT_CHECK_HAS(xccl_error_text(), "rank 1: the launcher's PMI server did not answer in time");
    heard(said);
}

/* In a process of its own: takes an id and exits, as a program does. What it said comes back. */
static void say_and_exit(const char *talk, size_t bytes, char said_out[TALK_BYTES])
{
    int status = 0;
    pid_t pid = -1;

    play(1, 2, talk, bytes, 0);
    pid = fork();
    XT_CHECK(pid >= 0);
    if (pid == 0) {
        struct xccl_launch launch;
        xcclUniqueId id;

        if (xccl_launcher_id(&id, &launch))
            _exit(1);
        exit(0); /* runs what a program's end runs */
    }
    XT_CHECK_INT(waitpid(pid, &status, 0), pid);
    XT_CHECK_INT(status, 0);
    heard(said_out);
}

XT_TEST(a_process_takes_its_leave_at_exit)
{
    char value[2 * XCCL_UNIQUE_ID_BYTES + 2], talk[TALK_BYTES], said[TALK_BYTES];
    size_t bytes = 0;

    setup(ADDR);
    id_text(value);
    bytes = pmi1_talk(talk, value);
    bytes += (size_t)snprintf(talk + bytes, sizeof(talk) - bytes, "cmd=finalize_ack\n");
    say_and_exit(talk, bytes, said);
    XT_CHECK_HAS(said, "cmd=get kvsname=kvs_17 key=xccl-id-0-0\ncmd=finalize\n");
    bytes = pmi2_talk(talk, value);
    bytes = add_pmi2(talk, bytes, "cmd=finalize-response;rc=0;");
    xt_setenv("PMI_JOBID", "4.0");
    say_and_exit(talk, bytes, said);
    XT_CHECK_HAS(said, "key=xccl-id-0-0;    13cmd=finalize;");
}

static void child_rank(int rank, int nranks, void *arg)
{
    struct xccl_launch launch;
    xcclUniqueId id;

    (void)rank;
    (void)nranks;
    (void)arg;
    XT_CHECK_RC(xccl_launcher_id(&id, &launch), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "this process was forked by process ");
}

XT_TEST(a_forked_child_of_a_rank_is_told_so)
{
    char value[2 * XCCL_UNIQUE_ID_BYTES + 2], talk[TALK_BYTES];
    struct xccl_launch launch;
    xcclUniqueId id;

    setup(ADDR);
    id_text(value);
    play(1, 2, talk, pmi1_talk(talk, value), 0);
    XT_OK(xccl_launcher_id(&id, &launch));
    xt_mp_run(1, child_rank, NULL);
    heard(talk);
}

XT_TEST(a_descriptor_that_is_no_socket_is_refused)
{
    struct xccl_launch launch;
    xcclUniqueId id;

    setup(ADDR);
    set_all("PMI_FD=987 PMI_RANK=1 PMI_SIZE=2");
    XT_CHECK_RC(xccl_launcher_id(&id, &launch), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "PMI_FD is 987, which is not an open socket in this process");
    /* Who asks for the place alone needs no server. */
    XT_OK(xccl_launcher_place(&launch));
    XT_CHECK_INT(launch.rank, 1);
}

XT_TEST(a_program_with_mpi_is_told_to_pass_the_id_itself)
{
    void *mpi = dlopen("libmpich.so.12", RTLD_LAZY | RTLD_GLOBAL);
    struct xccl_launch launch;
    xcclUniqueId id;

    if (!mpi)
        XT_SKIP("no libmpich.so.12");
    xt_allow_leaks("libraries that libmpich loads keep what they opened");
    setup(ADDR);
    play(1, 2, "", 0, 0);
    XT_CHECK_RC(xccl_launcher_id(&id, &launch), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "MPI_Bcast");
}

/* --- the words --- */

XT_TEST(what_is_written_is_read_back)
{
    static const enum xccl_pmi_version versions[] = {XCCL_PMI_1, XCCL_PMI_2};

    for (int i = 0; i < 2; i++) {
        struct xccl_pmi_writer writer;
        struct xccl_pmi_message message;
        size_t bytes = 0, framed = 0;

        xccl_pmi_begin(&writer, versions[i], "put");
        xccl_pmi_add(&writer, "key", "a=b");
        xccl_pmi_add(&writer, "value", i ? "one;two;;" : "one;two");
        bytes = xccl_pmi_end(&writer);
        XT_CHECK(bytes > 0);
        for (size_t part = 0; part < bytes; part++) {
            XT_OK(xccl_pmi_frame(versions[i], writer.bytes, part, &framed));
            XT_CHECK_INT(framed, 0);
        }
        XT_OK(xccl_pmi_parse(versions[i], writer.bytes, bytes, &message));
        XT_CHECK_INT(message.count, 3);
        XT_CHECK_TEXT(xccl_pmi_value(&message, "cmd"), "put");
        XT_CHECK_TEXT(xccl_pmi_value(&message, "key"), "a=b");
        XT_CHECK_TEXT(xccl_pmi_value(&message, "value"), i ? "one;two;;" : "one;two");
        XT_CHECK(xccl_pmi_value(&message, "other") == NULL);
    }
}

XT_TEST(what_the_protocol_cannot_carry_is_not_written)
{
    static const char *const values[] = {"a b", "a\nb", "a\177", "\001"};
    struct xccl_pmi_writer writer;
    static char much[XCCL_PMI_MESSAGE_BYTES];

    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        xccl_pmi_begin(&writer, XCCL_PMI_1, "put");
        xccl_pmi_add(&writer, "value", values[i]);
        XT_CHECK_INT(xccl_pmi_end(&writer), 0);
    }
    xccl_pmi_begin(&writer, XCCL_PMI_2, "put");
    xccl_pmi_add(&writer, "a=b", "c");
    XT_CHECK_INT(xccl_pmi_end(&writer), 0);
    memset(much, 'x', sizeof(much) - 1);
    for (int version = XCCL_PMI_1; version <= XCCL_PMI_2; version++) {
        xccl_pmi_begin(&writer, (enum xccl_pmi_version)version, "put");
        xccl_pmi_add(&writer, "value", much);
        XT_CHECK_INT(xccl_pmi_end(&writer), 0);
    }
}
