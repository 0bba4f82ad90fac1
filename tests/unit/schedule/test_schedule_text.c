/* SPDX-License-Identifier: BSD-3-Clause */
/* The text form and the JSON form of schedules: what is written comes back field by field and byte
 * by byte, and what cannot be right is refused with the line and without a leak. */
#include "schedule/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/inject.h"
#include "schedule_ranks.h"
#include "xt.h"

typedef int print_fn(FILE *file, struct xccl_schedule *const *schedules, int nranks);
typedef xcclResult_t read_fn(const char *text, size_t bytes, const char *where,
                             struct xccl_schedule_set *set_out);

static const struct form {
    print_fn *print;
    read_fn *read;
} forms[] = {{xccl_schedule_print, xccl_schedule_read},
             {xccl_schedule_print_json, xccl_schedule_read_json}};

/* Must be freed. */
static char *printed(print_fn *print, struct xccl_schedule *const *schedules, int nranks)
{
    size_t bytes = 0;
    char *text = NULL;
    FILE *file = open_memstream(&text, &bytes);

    XT_CHECK(file != NULL);
    XT_CHECK_INT(print(file, schedules, nranks), 0);
    XT_CHECK_INT(fclose(file), 0);
    return text;
}

static void check_table(const void *got, const void *want, size_t entries, size_t entry_bytes)
{
    XT_CHECK(entries == 0 || memcmp(got, want, entries * entry_bytes) == 0);
}

static void check_equal(const struct xccl_schedule *got, const struct xccl_schedule *want)
{
    XT_CHECK_TEXT(got->name, want->name);
    XT_CHECK_INT(got->coll, want->coll);
    XT_CHECK_INT(got->class, want->class);
    XT_CHECK_INT(got->flags, want->flags);
    XT_CHECK_INT(got->nranks, want->nranks);
    XT_CHECK_INT(got->rank, want->rank);
    XT_CHECK_INT(got->root, want->root);
    XT_CHECK_INT(got->nchunks, want->nchunks);
    XT_CHECK_INT(got->nlanes, want->nlanes);
    XT_CHECK_INT(got->nscratch, want->nscratch);
    XT_CHECK_INT(got->scrbufs, want->scrbufs);
    XT_CHECK_INT(got->minslots, want->minslots);
    XT_CHECK_INT(got->nsteps, want->nsteps);
    XT_CHECK_INT(got->nconns, want->nconns);
    XT_CHECK_INT(got->nwaits, want->nwaits);
    XT_CHECK_INT(got->nlist, want->nlist);
    check_table(got->steps, want->steps, want->nsteps, sizeof(*want->steps));
    check_table(got->conns, want->conns, want->nconns, sizeof(*want->conns));
    check_table(got->lanes, want->lanes, want->nlanes, sizeof(*want->lanes));
    check_table(got->waits, want->waits, want->nwaits, sizeof(*want->waits));
    check_table(got->list, want->list, want->nlist, sizeof(*want->list));
}

/* Through each form, and through each into the other. */
static void check_round_trip(struct xccl_schedule *const *schedules, int nranks)
{
    char *texts[2] = {printed(forms[0].print, schedules, nranks),
                      printed(forms[1].print, schedules, nranks)};

    for (int form = 0; form < 2; form++) {
        struct xccl_schedule_set set;

        XT_OK(forms[form].read(texts[form], strlen(texts[form]), "round trip", &set));
        XT_CHECK_INT(set.nranks, nranks);
        for (int r = 0; r < nranks; r++) {
            check_equal(set.schedules[r], schedules[r]);
            XT_CHECK(set.schedules[r]->name == set.name);
        }
        for (int again = 0; again < 2; again++) {
            char *text = printed(forms[again].print, set.schedules, nranks);

            XT_CHECK_TEXT(text, texts[again]);
            free(text);
        }
        xccl_schedule_set_fini(&set);
    }
    free(texts[0]);
    free(texts[1]);
}

XT_TEST(oneshot_with_and_without_multicast_comes_back_from_text_and_from_json)
{
    for (int n = 1; n <= RANKS_MAX; n++) {
        struct ranks ranks = oneshot_of(n, n / 2);

        check_round_trip(ranks.schedules, n);
        ranks_free(&ranks);
    }
}

XT_TEST_DEADLINE(what_every_generator_makes_comes_back_from_text_and_from_json, 60)
{
    for (const struct xccl_generator *const *at = xccl_generators; *at; at++) {
        for (int n = 1; n <= 9; n++) {
            const struct xccl_generator_for what = {.nranks = n, .root = n / 2};
            struct xccl_schedule *schedules[RANKS_MAX];

            XT_OK(xccl_generator_make_all(*at, &what, schedules));
            check_round_trip(schedules, n);
            for (int r = 0; r < n; r++)
                xccl_schedule_destroy(schedules[r]);
        }
    }
}

/* ---- schedules with everything ---- */

enum { RICH_LIST = 40, RICH_STEPS = 5 };

static void rich_tables(struct xccl_schedule *s)
{
    static const struct xccl_schedule_conn conns[] = {
        {.peer = 0, .dir = XCCL_CONN_SEND, .kind = XCCL_CONN_MULTICAST, .group = 0},
        {.peer = 1, .dir = XCCL_CONN_SEND, .group = 0, .id = 65535},
        {.peer = 2, .dir = XCCL_CONN_RECV, .group = 65535},
        {.peer = 1, .dir = XCCL_CONN_SEND, .group = 7, .id = 3},
        {.peer = 2, .dir = XCCL_CONN_RECV, .kind = XCCL_CONN_MULTICAST, .group = 8},
        {.peer = 2, .dir = XCCL_CONN_RECV, .group = 8},
    };
    static const struct xccl_schedule_wait waits[] = {
        {.lane = 2, .dist = 0, .sig = 1}, {.lane = 0, .dist = 255, .sig = 65535},
        {.lane = 1, .dist = 2, .sig = 9}, {.lane = 0, .dist = 1, .sig = 0},
        {.lane = 2, .dist = 3, .sig = 4},
    };

    memcpy(s->conns, conns, sizeof(conns));
    memcpy(s->waits, waits, sizeof(waits));
    for (int i = 0; i < RICH_LIST; i++)
        s->list[i] = (uint16_t)(i % 6);
    s->lanes[0].nstep = 2;
    s->lanes[0].nconn = 3;
    s->lanes[1] = (struct xccl_schedule_lane){
        .step0 = 2, .conn0 = 3, .order = XCCL_STEP_MAJOR, .block = 255, .part = 3, .nparts = 4};
    s->lanes[2] = (struct xccl_schedule_lane){
        .step0 = 2, .conn0 = 3, .nstep = 3, .nconn = 3, .part = 254, .nparts = 255};
}

/* They mean nothing, but every field is in use somewhere. */
static const struct xccl_step rich_steps[RICH_STEPS] = {
    {.op = XCCL_STEP_SRC | XCCL_STEP_SEND,
     .bufs = XCCL_STEP_BUFS(XCCL_BUFFER_ZERO, XCCL_BUFFER_ZERO),
     .fan = XCCL_STEP_FAN(0, 2),
     .cnt = 3,
     .cstride = -2,
     .run = 2,
     .rep = 65535,
     .dsrc = -32768,
     .ddst = 32767,
     .wait = 1,
     .flags = XCCL_FLAG_WAITS(2) | XCCL_FLAG_DIRECT_SEND},
    {.op = XCCL_STEP_SRC | XCCL_STEP_DST | XCCL_STEP_RECV | XCCL_STEP_SEND | XCCL_STEP_XCHG |
           XCCL_STEP_ACC,
     .bufs = XCCL_STEP_BUFS(XCCL_BUFFER_SCRATCH, XCCL_BUFFER_OUT) | XCCL_STEP_SRC_LIST |
             XCCL_STEP_DST_LIST,
     .fan = XCCL_STEP_FAN(1, 1),
     .rconn = 2,
     .sconn = 1,
     .src = 4,
     .dst = 30,
     .cnt = 10,
     .run = 1,
     .rep = 1,
     .sig = 65535,
     .flags = XCCL_FLAG_SIGNAL | XCCL_FLAG_POST | XCCL_FLAG_DIRECT_RECV | XCCL_FLAG_WAITS(3)},
    {.op = XCCL_STEP_SRC | XCCL_STEP_RECV | XCCL_STEP_DST,
     .bufs = XCCL_STEP_BUFS(XCCL_BUFFER_IN, XCCL_BUFFER_SCRATCH),
     .fan = XCCL_STEP_FAN(XCCL_FAN_ALL, 0),
     .rconn = 2,
     .sconn = 9,
     .src = 6,
     .dst = 5,
     .cnt = 1,
     .run = 1,
     .rep = 1,
     .flags = XCCL_FLAG_PRE | XCCL_FLAG_ORDERED},
    {.op = XCCL_STEP_SRC | XCCL_STEP_SEND,
     .fan = XCCL_STEP_FAN(0, XCCL_FAN_ALL),
     .cnt = 1,
     .run = 1,
     .rep = 1,
     .dst = 44,
     .wait = 5,
     .reserved = 65535},
    {.op = XCCL_STEP_RECV | XCCL_STEP_DST,
     .bufs = 0xc0,
     .fan = XCCL_STEP_FAN(1, 0),
     .rconn = 1,
     .cnt = 1,
     .run = 1,
     .rep = 2,
     .dconn = 1,
     .flags = XCCL_FLAG_WAITS(1),
     .wait = 2},
};

static struct xccl_schedule *rich(int rank)
{
    struct xccl_schedule *s;

    XT_OK(xccl_schedule_create(&(struct xccl_schedule_shape){.name = "rich \"\\ 'name' #1",
                                                             .coll = XCCL_COLL_ALL_TO_ALL,
                                                             .nranks = 3,
                                                             .rank = (uint16_t)rank,
                                                             .nchunks = 7,
                                                             .nlanes = 3,
                                                             .nscratch = 6,
                                                             .scrbufs = 3,
                                                             .nsteps = RICH_STEPS,
                                                             .nconns = 6,
                                                             .nwaits = 5,
                                                             .nlist = RICH_LIST},
                               &s));
    rich_tables(s);
    memcpy(s->steps, rich_steps, sizeof(rich_steps));
    if (rank == 2) { /* other than the head says */
        s->minslots = 65535;
        s->class = 3;
        s->flags = XCCL_SCHEDULE_EQUAL | 0x8100;
        s->nchunks = 65535;
        s->root = 2;
        s->scrbufs = 1;
    }
    XT_OK(xccl_schedule_check(s));
    return s;
}

XT_TEST(every_field_comes_back_also_where_nothing_uses_it)
{
    struct xccl_schedule *schedules[3] = {rich(0), rich(1), rich(2)};

    check_round_trip(schedules, 3);
    for (int r = 0; r < 3; r++)
        xccl_schedule_destroy(schedules[r]);
}

XT_TEST(schedule_without_lanes_comes_back)
{
    struct xccl_schedule *schedule;

    XT_OK(xccl_schedule_create(
        &(struct xccl_schedule_shape){
            .name = "", .coll = XCCL_COLL_BARRIER, .nranks = 1, .nchunks = 1},
        &schedule));
    check_round_trip(&schedule, 1);
    xccl_schedule_destroy(schedule);
}

/* ---- the form ---- */

static const char pair_text[] =
    "schedule pair all_reduce ranks 2 root 0 chunks 1 scratch 1 minslots 1 class 2 flags equal\n"
    "rank 0\n"
    "  lane 0 tile_major\n"
    "    conn 0 send fifo peer 1 group 0\n"
    "    conn 1 recv fifo peer 1 group 1\n"
    "    step 0 src+dst+recv+send+acc+xchg src in:0 dst out:0 recv 1 send 0 pre post signal\n"
    "rank 1 class 1 flags -\n"
    "  list @0 0 0\n"
    "  lane 0 tile_major\n"
    "    conn 0 send fifo peer 0 group 0\n"
    "    conn 1 recv fifo peer 0 group 1\n"
    "    wait 0 lane 0 sig 0 dist 1\n"
    "    step 0 src+dst+recv+send+acc+xchg src in:0 dst out:0 recv 1 send 0 pre post waits 0\n"
    "    step 1 src+dst src out@0 dst scratch:0 cnt 2 cstride -1\n";

static char *read_and_print(const char *text, size_t bytes)
{
    struct xccl_schedule_set set;
    char *again;

    XT_OK(xccl_schedule_read(text, bytes, "form", &set));
    again = printed(xccl_schedule_print, set.schedules, set.nranks);
    xccl_schedule_set_fini(&set);
    return again;
}

XT_TEST(text_has_the_form_that_people_know)
{
    char *again = read_and_print(pair_text, strlen(pair_text));

    XT_CHECK_TEXT(again, pair_text);
    free(again);
}

XT_TEST(text_written_by_hand_may_leave_out_numbers_and_plain_values)
{
    static const char by_hand[] =
        "# An exchange between two.\r\n"
        "\n"
        "schedule \"pair\" all_reduce flags equal scratch 1 class 2 chunks 1 ranks 2 # all of us\n"
        "rank 1\tclass 1 flags -\n"
        "lane\n"
        "list 0\nlist 0\n"
        "wait dist 1 sig 0 lane 0\n"
        "conn peer 0 group 0 send\n"
        "step xchg+acc+src+dst+send+recv dst out:0 src in:0 post pre recv 1*1 send 0 waits 0*1\n"
        "conn recv peer 0 group 1\n"
        "step src+dst cstride -1 cnt 2 src out@0 dst scratch:0\n"
        "rank 0\n"
        "lane conn\n";
    char text[sizeof(by_hand) + 256];
    char *again;

    /* Without the line end, and with a byte behind it that does not belong to the text. */
    (void)snprintf(text, sizeof(text), "%.*s%s", (int)(strlen(by_hand) - strlen(" conn\n")),
                   by_hand,
                   "\nconn send peer 1 group 0\nconn recv peer 1 group 1\n"
                   "step src+dst+recv+send+acc+xchg src in:0 dst out:0 recv 1 send 0 pre post "
                   "signal!");
    again = read_and_print(text, strlen(text) - 1);
    XT_CHECK_TEXT(again, pair_text);
    free(again);
}

XT_TEST(ranks_may_be_shown_alone_but_not_read_so)
{
    struct xccl_schedule *schedule;
    struct xccl_schedule_set set;
    char *text;

    schedule = ring_at(4, 2);
    text = printed(xccl_schedule_print, &schedule, 1);
    XT_CHECK_HAS(text,
                 "schedule ring all_reduce ranks 4 root 0 chunks 4 minslots 2 class 0\nrank 2\n");
    XT_CHECK_RC(xccl_schedule_read(text, strlen(text), "one", &set), xcclInvalidArgument);
    XT_CHECK_HAS(xccl_error_text(), "1 of 4 ranks, rank 0 is missing");
    free(text);
    xccl_schedule_destroy(schedule);
}

XT_TEST(what_does_not_belong_together_is_not_written)
{
    struct xccl_schedule *schedules[2];

    schedules[0] = ring_at(2, 0);
    schedules[1] = ring_at(3, 1);
    for (int form = 0; form < 2; form++) {
        errno = 0;
        XT_CHECK_INT(forms[form].print(stdout, schedules, 2), -1);
        XT_CHECK_INT(errno, EINVAL);
        schedules[0]->name = "new\nline";
        XT_CHECK_INT(forms[form].print(stdout, schedules, 1), -1);
        schedules[0]->name = NULL;
        XT_CHECK_INT(forms[form].print(stdout, schedules, 1), -1);
        XT_CHECK_INT(forms[form].print(stdout, schedules, 0), -1);
        schedules[0]->name = "ring";
    }
    xccl_schedule_destroy(schedules[0]);
    xccl_schedule_destroy(schedules[1]);
}

XT_TEST(full_device_is_an_error_of_the_stream)
{
    struct xccl_schedule *schedule;

    schedule = ring_at(2, 0);
    for (int form = 0; form < 2; form++) {
        FILE *file = fopen("/dev/full", "we");

        if (!file)
            XT_SKIP("there is no /dev/full");
        errno = 0;
        XT_CHECK_INT(forms[form].print(file, &schedule, 1), -1);
        XT_CHECK_INT(errno, ENOSPC);
        (void)fclose(file);
    }
    xccl_schedule_destroy(schedule);
}

/* ---- what is refused ---- */

#define HEAD   "schedule x all_reduce ranks 1 chunks 2\n"
#define LANE   HEAD "rank 0\nlane\n"
#define CONNS  LANE "conn send fifo peer 0 group 0\nconn recv fifo peer 0 group 1\n"
#define LETTER "\x01"

static const struct refusal {
    const char *text, *error;
} text_refusals[] = {
    {"", "t:1: there is no schedule"},
    {"# nothing\n\n", "t:3: there is no schedule"},
    {"rank 0\n", "t:1: a rank stands before the schedule's head"},
    {"lane\n", "t:1: lanes must be inside a rank"},
    {"hello\n", "t:1: found \"hello\" where a line begins; begin with schedule, rank"},
    {LETTER "\n", "t:1: found \"?\" where a line begins"},
    {"schedule\n", "t:1: the line ends where the algorithm's name is expected"},
    {"schedule \"a\n", "t:1: the name does not end"},
    {"schedule \"a" LETTER "\" all_reduce\n", "t:1: the name does not end"},
    {"schedule x\n", "t:1: \"\" is not a collective"},
    {"schedule x all_of_it ranks 1 chunks 1\n", "t:1: \"all_of_it\" is not a collective; name one"},
    {"schedule x send_recv ranks 1 chunks 1\n", "t:1: \"send_recv\" is not a collective; name one"},
    {"schedule x all_reduce ranks 1 chunks 1\nrank 0\nsends 0\n", "t:3: found \"sends\" where a"},
    {"schedule x all_reduce chunks 1\n", "t:1: a schedule lacks the field ranks; add it"},
    {"schedule x all_reduce ranks 1\n", "t:1: a schedule lacks the field chunks; add it"},
    {"schedule x all_reduce ranks 0 chunks 1\n", "t:1: ranks 0 is out of range; give 1 to 65535"},
    {"schedule x all_reduce ranks 65536 chunks 1\n", "t:1: ranks 65536 is out of range"},
    {"schedule x all_reduce ranks -1 chunks 1\n", "t:1: ranks -1 is out of range"},
    {"schedule x all_reduce ranks 99999999999 chunks 1\n",
     "t:1: found \"99999999999\" where a number"},
    {"schedule x all_reduce ranks 1x chunks 1\n", "t:1: found \"1x\" where a number is expected"},
    {"schedule x all_reduce ranks\n", "t:1: the line ends where a number is expected"},
    {"schedule x all_reduce ranks 1 chunks 1 root 1\nrank 0\n",
     "t:2: root 1 does not exist: the number of ranks is 1; name an existing rank"},
    {"schedule x all_reduce ranks 1 ranks 1\n",
     "t:1: \"ranks\" occurs a second time; name it once"},
    {"schedule x all_reduce ranks 1 colour 1\n",
     "t:1: found \"colour\" where a field of the record"},
    {"schedule x all_reduce ranks 1 flags equal+\n",
     "t:1: found \"equal+\" where flags are expected; join"},
    {"schedule x all_reduce ranks 1 flags equal+equal\n",
     "t:1: \"equal\" occurs a second time; name it once"},
    {"schedule x all_reduce ranks 1 flags 0x12345\n",
     "t:1: found \"0x12345\" where flags are expected"},
    {"schedule x all_reduce ranks 1 class 4 chunks 1\n", "t:1: class 4 is out of range; give 0 to"},
    {HEAD HEAD, "t:2: the file has a second schedule"},
    {HEAD, "t:2: the schedule ends after 0 of 1 ranks, rank 0 is missing"},
    {HEAD "rank\n", "t:2: the line ends where a number is expected"},
    {HEAD "rank rank\n", "t:2: found \"rank\" where a number is expected"},
    {HEAD "rank 0 root 1\n",
     "t:2: root 1 does not exist: the number of ranks is 1; name an existing rank"},
    {HEAD "rank 1\n\n\n",
     "t:2: rank 1 does not exist: the number of ranks is 1; raise ranks in the head"},
    {HEAD "rank 0\nrank 0\n", "t:3: rank 0 occurs a second time"},
    {HEAD "rank 0\nconn send peer 0 group 0\n", "t:3: connections must be inside a lane"},
    {HEAD "rank 0\nstep src+dst\n", "t:3: steps must be inside a lane"},
    {HEAD "rank 0\nlane 1\n", "t:3: found number 1 where 0 is expected; number them in order"},
    {LANE "conn 1 send\n", "t:4: found number 1 where 0 is expected"},
    {LANE "step 7 src+dst\n", "t:4: found number 7 where 0 is expected"},
    {LANE "conn peer 0 group 0\n", "t:4: a conn lacks the field dir; add it"},
    {LANE "conn send group 0\n", "t:4: a conn lacks the field peer; add it"},
    {LANE "conn send peer 0\n", "t:4: a conn lacks the field group; add it"},
    {LANE "conn send recv peer 0 group 0\n", "t:4: \"recv\" occurs a second time; name it once"},
    {LANE "conn send peer 1 group 0\n", "t:2: x schedule of rank 0: connection 0 names rank 1"},
    {HEAD "rank 0\nlane part 1 parts 1\n",
     "t:2: x schedule of rank 0 of 1: its tables are inconsistent"},
    {LANE "wait 0 lane 256 sig 0\n", "t:4: lane 256 is out of range; give 0 to 255"},
    {LANE "wait lane 0\n", "t:4: a wait lacks the field sig"},
    {LANE "list 0 1 2 65536\n",
     "t:4: found \"65536\" where a chunk is expected; give a number from 0"},
    {LANE "list 0 x\n", "t:4: found \"x\" where a chunk is expected"},
    {LANE "list @0 1\nlist @2 1\n", "t:5: found \"@2\" where the next entry is expected"},
    {HEAD "list 1\n", "t:2: list entries must be inside a rank"},
    {CONNS "step\n", "t:6: the line ends where the operation of the step is expected"},
    {CONNS "step 0\n", "t:6: the line ends where the operation of the step is expected"},
    {CONNS "step fly\n", "t:6: found \"fly\" where flags are expected; join words with +"},
    {CONNS "step src+dst src in:0\n", "t:6: a step with dst lacks the field dst"},
    {CONNS "step src+send src in:0\n", "t:6: a step with send lacks the field send"},
    {CONNS "step recv src in:0\n", "t:6: a step with recv lacks the field recv"},
    {CONNS "step src src in\n", "t:6: found \"in\" where chunks are expected; write BUFFER:CHUNK"},
    {CONNS "step src src in:65536\n", "t:6: found \"in:65536\" where chunks are expected"},
    {CONNS "step src src up:1\n", "t:6: found \"up:1\" where chunks are expected"},
    {CONNS "step src src in:1:2\n", "t:6: found \"in:1:2\" where chunks are expected"},
    {CONNS "step recv recv 1*15\n",
     "t:6: found \"1*15\" where connections are expected; write FIRST"},
    {CONNS "step recv recv 1*\n", "t:6: found \"1*\" where connections are expected"},
    {CONNS "step recv recv 1*allx\n", "t:6: found \"1*allx\" where connections are expected"},
    {CONNS "step recv recv one\n", "t:6: found \"one\" where connections are expected"},
    {CONNS "step recv recv 65536\n", "t:6: found \"65536\" where connections are expected"},
    {CONNS "step recv recv\n", "t:6: the line ends where connections are expected"},
    {CONNS "step src waits 1*4\n",
     "t:6: found \"1*4\" where waits are expected; write FIRST or FIRST*COUNT"},
    {CONNS "step src waits 1*all\n", "t:6: found \"1*all\" where waits are expected"},
    {CONNS "step src pre pre\n", "t:6: \"pre\" occurs a second time; name it once"},
    {CONNS "step src rep 1 rep 1\n", "t:6: \"rep\" occurs a second time; name it once"},
    {CONNS "step src src in:0 src in:0\n", "t:6: \"src\" occurs a second time; name it once"},
    {CONNS "step src rep 0\n", "t:6: rep 0 is out of range; give 1 to 65535"},
    {CONNS "step src dsrc -32769\n", "t:6: dsrc -32769 is out of range; give -32768 to 32767"},
    {CONNS "step src nrecv 3\n", "t:6: found \"nrecv\" where a field of the step is expected"},
    {CONNS "step src " LETTER "\n", "t:6: found \"?\" where a field of the step is expected"},
    {CONNS "step recv recv 1\n", "t:2: x schedule of rank 0: step 0 of lane 0 (op 4)"},
    {CONNS "step src+dst src in:2 dst out:0\n", "t:2: x schedule of rank 0: step 0 of lane 0"},
    {CONNS "step src+dst src in@0 dst out:0\n", "t:2: x schedule of rank 0: step 0 of lane 0"},
    {CONNS "step src+dst+0x40 src in:0 dst out:0\n", "t:2: x schedule of rank 0: step 0 of lane 0"},
};

static void check_refused(read_fn *read, const struct refusal *refusal)
{
    struct xccl_schedule_set set;
    uint64_t live = xccl_alloc_live();
    xcclResult_t rc = read(refusal->text, strlen(refusal->text), "t", &set);

    if (rc != xcclInvalidArgument || !strstr(xccl_error_text(), refusal->error))
        XT_FAIL("%s\ngives %d and\n  %s\nin place of\n  %s", refusal->text, (int)rc,
                xccl_error_text(), refusal->error);
    XT_CHECK(!strstr(xccl_error_text(), "report this"));
    XT_CHECK_INT(xccl_alloc_live(), live);
}

XT_TEST(each_error_of_a_text_names_its_line)
{
    for (size_t i = 0; i < sizeof(text_refusals) / sizeof(text_refusals[0]); i++)
        check_refused(xccl_schedule_read, &text_refusals[i]);
}

#define JHEAD                                                                                      \
    "{\"schedule\": {\"name\": \"x\", \"coll\": \"all_reduce\", \"ranks\": 1, \"chunks\": 2},\n"
#define JRANK JHEAD "\"ranks\": [{\"rank\": 0,\n"
#define JSTEP JRANK "\"lanes\": [{\"steps\": [{"

static const struct refusal json_refusals[] = {
    {"", "t:1: the text ends where { is expected"},
    {"\n[", "t:2: found \"[\" where { is expected"},
    {"{}", "t:1: a file lacks the field schedule; add it"},
    {"{\"ranks\": []}", "t:1: a file lacks the field schedule"},
    {"{\"ranks\": [{}]}", "t:1: a rank stands before the schedule's head"},
    {"{\"schedule\": {}}", "t:1: a schedule lacks the field ranks"},
    {"{\"schedule\": {\"ranks\": 1}}", "t:1: a schedule lacks the field name"},
    {"{\"schedule\": {\"ranks\": 1, \"name\": \"x\"}}", "t:1: a schedule lacks the field coll"},
    {"{\"schedule\": {\"name\": 1}}", "t:1: found \"1}}\" where a string is expected"},
    {"{\"schedule\": {\"name\": \"x\", \"name\": \"x\"}}", "t:1: a schedule has two \"name\""},
    {"{\"schedule\": {\"name\": \"\\u0041\"}}",
     "t:1: found \"u0041\"}}\" where \" or \\ is expected"},
    {"{\"schedule\": {\"name\": \"a\nb\"}}", "where an ASCII character of a string is expected"},
    {"{\"schedule\": {\"name\": \"abc", "t:1: the text ends where the end of a string is expected"},
    {"{\"schedule\": {\"name\": \"abc\\", "t:1: the text ends where \" or \\ is expected"},
    {"{\"schedule\": {\"coll\": \"x\"}}", "t:1: \"x\" is not a collective"},
    {"{\"schedule\": {\"coll\": \"send_recv\"}}", "t:1: \"send_recv\" is not a collective"},
    {"{\"schedule\": {\"colour\": 1}}", "t:1: a schedule has no field \"colour\""},
    {"{\"schedule\": {\"ranks\": 0}}", "t:1: ranks 0 is out of range"},
    {"{\"schedule\": {\"ranks\": 01}}", "t:1: found \"01}}\" where an integer is expected"},
    {"{\"schedule\": {\"ranks\": 1.5}}", "where an integer of at most ten digits is expected"},
    {"{\"schedule\": {\"ranks\": 1e3}}", "where an integer of at most ten digits is expected"},
    {"{\"schedule\": {\"ranks\": 12345678901}}",
     "where an integer of at most ten digits is expected"},
    {"{\"schedule\": {\"ranks\": -}}", "where an integer is expected"},
    {"{\"schedule\": {\"ranks\": true}}", "t:1: found \"true}}\" where an integer is expected"},
    {"{\"schedule\": {\"flags\": [\"x\"]}}", "t:1: flags has an unknown flag"},
    {"{\"schedule\": {\"flags\": [\"equal\", 1]}}", "t:1: flags has an unknown flag"},
    {"{\"schedule\": {\"flags\": [65536]}}", "t:1: flags has an unknown flag"},
    {"{\"schedule\": {\"flags\": [\"equal\",]}}",
     "t:1: found \"]}}\" where an integer is expected"},
    {"{\"schedule\" 1}", "t:1: found \"1}\" where : is expected"},
    {JHEAD "\"ranks\": [[[[", "t:2: found \"[[[\" where { is expected"},
    {JHEAD "\"ranks\": []}", "t:2: the schedule ends after 0 of 1 ranks"},
    {JHEAD "\"ranks\": [{}]}", "t:2: a rank lacks the field rank"},
    {JRANK "\"root\": 1}]}", "t:2: root 1 does not exist: the number of ranks is 1"},
    {JRANK "\"list\": [65536]}]}", "t:3: chunk 65536 is out of range"},
    {JRANK "\"sends\": [0]}]}", "t:3: a rank has no field \"sends\""},
    {JRANK "\"waits\": [{}]}]}", "t:3: a wait lacks the field lane"},
    {JRANK "\"lanes\": [{\"order\": \"none\"}]}]}", "t:3: \"none\" is not a valid order"},
    {JRANK "\"lanes\": [{\"conns\": [{}]}]}]}", "t:3: a connection lacks the field dir"},
    {JSTEP "}]}]}]}", "t:3: a step lacks the field op"},
    {JSTEP "\"op\": [\"src\"], \"nwaits\": 4}]}]}]}", "t:3: nwaits 4 is out of range"},
    {JSTEP "\"op\": [\"src\"]}]}]}]}", "t:2: x schedule of rank 0: step 0 of lane 0 (op 1)"},
    {JRANK "\"lanes\": []} {", "t:3: found \"{\" where ] is expected"},
    {JRANK "\"lanes\": []}]}\n x", "t:4: found \"x\" where the end is expected"},
};

XT_TEST(each_error_of_json_names_its_line)
{
    for (size_t i = 0; i < sizeof(json_refusals) / sizeof(json_refusals[0]); i++)
        check_refused(xccl_schedule_read_json, &json_refusals[i]);
}

/* ---- bounds ---- */

struct long_text {
    char *text;
    size_t bytes;
    FILE *file;
};

static void long_begin(struct long_text *text)
{
    *text = (struct long_text){0};
    text->file = open_memstream(&text->text, &text->bytes);
    XT_CHECK(text->file != NULL);
}

static void long_repeat(struct long_text *text, const char *line, int times)
{
    for (int i = 0; i < times; i++)
        fputs(line, text->file);
}

static void long_refused(struct long_text *text, const char *error)
{
    struct xccl_schedule_set set;

    fclose(text->file);
    XT_CHECK_RC(xccl_schedule_read(text->text, text->bytes, "long", &set), xcclInvalidArgument);
    XT_CHECK_HAS(xccl_error_text(), error);
    free(text->text);
}

XT_TEST(tables_are_as_long_as_their_numbers_allow)
{
    struct long_text text;

    long_begin(&text);
    long_repeat(&text, HEAD "rank 0\n", 1);
    long_repeat(&text, "list 0 1 0 1 0 1 0 1\n", 8192);
    long_refused(&text, "long:8194: a rank has more than 65535 list entries");
}

XT_TEST(memory_of_all_ranks_is_bounded)
{
    struct long_text text;

    long_begin(&text);
    long_repeat(&text, "schedule x all_reduce ranks 65535 chunks 1\n", 1);
    for (int r = 0; r < 65; r++) {
        fprintf(text.file, "rank %d\n", r);
        long_repeat(&text, "lane\n", 65535);
    }
    long_refused(&text, "the schedules need more than 64 MiB");
}

XT_TEST(steps_that_name_everything_again_and_again_are_refused_in_time)
{
    struct long_text text;

    long_begin(&text);
    long_repeat(&text, LANE, 1);
    long_repeat(&text, "conn send peer 0 group 0\n", 65535);
    long_repeat(&text, "step src+send src in:0 send 0*all\n", 65535);
    long_refused(&text, "long:2: the steps name more than 67108864 connections");
    long_begin(&text);
    long_repeat(&text, LANE, 1);
    long_repeat(&text, "conn send peer 0 group 0\n", 65535);
    long_repeat(&text, "step src+send src in:0 send 0*all rep 65535 dconn 1\n", 1);
    long_refused(&text, "long:2: the steps name more than 67108864 connections");
}

XT_TEST(names_and_words_of_any_length_do_no_harm)
{
    struct long_text text;

    for (int quoted = 0; quoted < 2; quoted++) {
        long_begin(&text);
        long_repeat(&text, quoted ? "schedule \"" : "schedule ", 1);
        long_repeat(&text, "n", 128);
        long_repeat(&text, quoted ? "\" all_reduce ranks 1\n" : " all_reduce ranks 1\n", 1);
        long_refused(&text, "long:1: the name has 128 bytes; use at most 127");
    }
    long_begin(&text);
    long_repeat(&text, "word", 100000);
    long_refused(&text,
                 "long:1: found \"wordwordwordwordwordwordwordwordwordwordword...\" where a line");
}

/* ---- no memory ---- */

static void check_without_memory(read_fn *read, const char *text)
{
    struct xccl_schedule_set set;
    uint64_t live = xccl_alloc_live(), k = 0;
    xcclResult_t rc;

    do {
        xccl_inject_arm(++k);
        rc = read(text, strlen(text), "memory", &set);
        if (rc) {
            XT_CHECK_RC(rc, xcclSystemError);
            XT_CHECK_INT(xccl_alloc_live(), live);
        }
    } while (rc);
    XT_CHECK_INT(xccl_inject_chances(), k - 1);
    xccl_inject_arm(0);
    /* The name, the ranks, each rank, and the five tables, one of which grows. */
    XT_CHECK(k > 2 + 3 + 5);
    xccl_schedule_set_fini(&set);
    XT_CHECK_INT(xccl_alloc_live(), live);
}

XT_TEST(without_memory_reading_fails_and_leaks_nothing)
{
    struct xccl_schedule *schedules[3] = {rich(0), rich(1), rich(2)};

    for (int form = 0; form < 2; form++) {
        char *text = printed(forms[form].print, schedules, 3);

        check_without_memory(forms[form].read, text);
        free(text);
    }
    for (int r = 0; r < 3; r++)
        xccl_schedule_destroy(schedules[r]);
}
