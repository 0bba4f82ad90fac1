/* SPDX-License-Identifier: BSD-3-Clause */
/* Grouped receives of the ofi plugin over the fabric of ofi_fx.h: which part a message is for, also
 * of those that were under way when the first group was posted, notes that overtake each other,
 * messages that fit no part, and how much a sender takes. */
#include "ofi_fx.h"

static void says(uint32_t word, uint32_t number)
{
    uint32_t got = 0;

    XT_CHECK_INT(frame_gone(fx.control, &got), word);
    XT_CHECK_INT(got, number);
}

/* A grouped receive; part i is 100 bytes at fx.data + 100 * i. */
static xcclNetRequest_t receive_group(int count, const uint32_t *tags)
{
    xcclNetRequest_t request = NULL;
    xcclNetMem_t mems[OFI_PARTS];
    void *data[OFI_PARTS];
    size_t bytes[OFI_PARTS];

    for (int i = 0; i < count; i++) {
        data[i] = fx.data + (ptrdiff_t)100 * i;
        bytes[i] = 100;
        mems[i] = fx.mem;
    }
    XT_OK(ofi_irecv(fx.comm, count, data, bytes, tags, mems, &request));
    XT_CHECK(request != NULL);
    return request;
}

static xcclNetRequest_t send_tagged(uint32_t tag)
{
    xcclNetRequest_t request = NULL;

    XT_OK(ofi_isend(fx.comm, fx.data, 10, tag, fx.mem, &request));
    XT_CHECK(request != NULL);
    return request;
}

/* Where the receiver awaits message number. */
static int part_of(uint64_t number)
{
    for (int i = fx.receive_count - 1; i >= 0; i--) {
        if ((fx.receives[i].tag & OFI_TAG_NUMBER) == number)
            return (int)(((const char *)fx.receives[i].data - fx.data) / 100);
    }
    return -1;
}

/* As its provider puts it there: bytes of the letter. */
static void tagged_arrives(uint64_t number, uint32_t tag, size_t bytes, char letter)
{
    for (int i = fx.receive_count - 1; i >= 0; i--) {
        if ((fx.receives[i].tag & OFI_TAG_NUMBER) != number)
            continue;
        memset((void *)(uintptr_t)fx.receives[i].data, letter, bytes);
        complete(fx.receives[i].context, FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA, bytes, bytes);
        fx.entries[fx.end - 1].tag = (uint64_t)tag << OFI_TAG_SHIFT | number;
        return;
    }
    XT_FAIL("nobody awaits message %llu", (unsigned long long)number);
}

static void message_arrives(uint64_t number, size_t bytes)
{
    tagged_arrives(number, 0, bytes, 'x');
}

/* One that comes while the caller tests this request, which stays under way. */
static void early_arrives(xcclNetRequest_t request, uint64_t number, uint32_t tag, size_t bytes,
                          char letter)
{
    tagged_arrives(number, tag, bytes, letter);
    is_under_way(request);
}

/* --- the receiver --- */

XT_TEST(early_messages_go_to_the_parts_of_their_tags)
{
    static const uint32_t tags[4] = {7, 8, 7, 9};
    xcclNetRequest_t single, request;
    size_t sizes[OFI_PARTS] = {0};
    int done = 0;

    up_plain(0);
    single = receive_group(1, tags);
    XT_CHECK_INT(fx.receive_count, 1);
    request = receive_group(4, tags);
    says(GROUPS, 2);
    /* Message 2 may be an early one: it is awaited in one of the parts, and no other. */
    is_under_way(request);
    XT_CHECK_INT(fx.receive_count, 2);
    early_arrives(request, 2, 9, 22, 'b');
    XT_CHECK_INT(fx.receive_count, 3);
    early_arrives(request, 3, 7, 23, 'c');
    XT_CHECK(fx.data[0] == 'c' && fx.data[22] == 'c' && fx.data[300] == 'b' && fx.data[321] == 'b');
    XT_CHECK_INT(fx.receive_count, 4);
    XT_CHECK_INT(fx.note_count, 0);
    /* There are no more: the rest is chosen by the sender, and message 4 stays where it is. */
    frame_comes(SWITCH, 4);
    is_under_way(request);
    XT_CHECK_INT(fx.receive_count, 5);
    XT_CHECK_INT(part_of(4), 1);
    XT_CHECK_INT(part_of(5), 2);
    XT_CHECK_INT(fx.note_count, 1);
    XT_CHECK(fx.note.first == 2 && fx.note.count == 4 && fx.note.row == 0);
    XT_CHECK(fx.note.parts[0].number == 3 && fx.note.parts[1].number == 4);
    XT_CHECK(fx.note.parts[2].number == 5 && fx.note.parts[3].number == 2);
    XT_CHECK(fx.note.parts[3].tag == 9);
    complete(fx.sent, FI_SEND | FI_TAGGED, 0, 0);
    message_arrives(1, 0);
    is_done(single, 0);
    message_arrives(5, 25);
    is_under_way(request);
    message_arrives(4, 24);
    XT_OK(test_for_long(request, &done, sizes));
    XT_CHECK_INT(done, 1);
    XT_CHECK(sizes[0] == 23 && sizes[1] == 24 && sizes[2] == 25 && sizes[3] == 22);
    /* From now on each receive is announced. */
    (void)receive_group(1, tags);
    XT_CHECK_INT(fx.note_count, 2);
    XT_CHECK(fx.note.first == 6 && fx.note.count == 1 && fx.note.row == 1);
    down();
}

/* Its messages are early ones alone: there is nothing to choose, and nobody answers. */
XT_TEST(a_group_of_a_sender_that_says_nothing_more_is_filled)
{
    static const uint32_t tags[2] = {1, 2};
    xcclNetRequest_t request;
    size_t sizes[OFI_PARTS] = {0};
    int done = 0;

    up_plain(0);
    goodbye(3);
    ofi_control_look(fx.comm);
    request = receive_group(2, tags);
    early_arrives(request, 1, 2, 11, 'a');
    tagged_arrives(2, 1, 12, 'b');
    XT_OK(test_for_long(request, &done, sizes));
    XT_CHECK_INT(done, 1);
    XT_CHECK(sizes[0] == 12 && sizes[1] == 11);
    XT_CHECK(fx.data[0] == 'b' && fx.data[11] == 'b' && fx.data[100] == 'a');
    XT_CHECK_INT(fx.note_count, 0);
    down();
}

/* The largest part takes whatever may come; the message is as large as its own part at most. */
XT_TEST(an_early_message_waits_in_the_largest_part)
{
    static const uint32_t tags[3] = {1, 2, 3};
    xcclNetMem_t mems[3];
    void *data[3] = {fx.data, fx.data + 1000, fx.data + 9000};
    const size_t bytes[3] = {10, 5000, 20};
    xcclNetRequest_t request = NULL;
    int done = 0;

    up_plain(0);
    for (int i = 0; i < 3; i++)
        mems[i] = fx.mem;
    XT_OK(ofi_irecv(fx.comm, 3, data, bytes, tags, mems, &request));
    XT_CHECK(fx.receives[0].data == data[1]);
    early_arrives(request, 1, 2, 4000, 'm');
    XT_CHECK(fx.receives[1].data == data[2]);
    tagged_arrives(2, 1, 11, 'n');
    XT_CHECK_RC(test_for_long(request, &done, NULL), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "larger than its receive");
    XT_CHECK(fx.data[0] == 0 && fx.data[1000] == 'm');
    down();
}

/* Its note has the number of the part that the message was moved to. */
XT_TEST(an_early_message_that_is_to_be_written_is_announced_with_its_part)
{
    static const uint32_t tags[2] = {1, 2};
    xcclNetRequest_t request = NULL;
    void *data[2] = {fx.data, fx.data};
    const size_t bytes[2] = {LARGE, LARGE};
    xcclNetMem_t mems[2];
    size_t sizes[OFI_PARTS] = {0};
    int done = 0;

    up(0);
    mems[0] = mems[1] = fx.mem;
    XT_OK(ofi_irecv(fx.comm, 2, data, bytes, tags, mems, &request));
    complete(fx.receives[0].context, FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA, 0, WRITTEN | LARGE);
    fx.entries[fx.end - 1].tag = (uint64_t)2 << OFI_TAG_SHIFT | 1;
    is_under_way(request);
    XT_CHECK_INT(fx.note_count, 0);
    tagged_arrives(2, 1, 5, 'x');
    is_under_way(request);
    XT_CHECK_INT(fx.note_count, 1);
    XT_CHECK(fx.note.row == OFI_NO_ROW && fx.note.count == 2);
    XT_CHECK(fx.note.parts[0].number == 2 && fx.note.parts[1].number == 1);
    XT_CHECK_INT(fx.note.parts[1].room, LARGE);
    complete(fx.sent, FI_SEND | FI_TAGGED, 0, 0);
    for (uint32_t piece = 0; piece < 3; piece++)
        piece_comes(1, piece);
    XT_OK(test_for_long(request, &done, sizes));
    XT_CHECK_INT(done, 1);
    XT_CHECK(sizes[0] == 5 && sizes[1] == LARGE);
    down();
}

/* What came before it is given some time to come. */
static void has_no_receive(xcclNetRequest_t request, const char *text)
{
    uint64_t end_ns = xccl_clock_ns() + 5 * XCCL_NS_PER_S;
    xcclResult_t rc = xcclSuccess;
    int done = 0;

    while (rc == xcclSuccess && xccl_clock_ns() < end_ns)
        rc = ofi_test(request, &done, NULL);
    XT_CHECK_RC(rc, xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), text);
    XT_CHECK_INT(fx.comm->cause, xcclNetCauseProtocol);
}

XT_TEST(an_early_message_that_fits_no_part_is_an_error)
{
    static const uint32_t tags[2] = {1, 2}, more[2] = {3, 4};
    xcclNetRequest_t first, second;
    int done = 0;

    up_plain(0);
    first = receive_group(2, tags);
    second = receive_group(2, more);
    early_arrives(second, 1, 2, 1, 'x');
    early_arrives(second, 2, 1, 1, 'x');
    tagged_arrives(3, 1, 1, 'x');
    XT_OK(test_for_long(first, &done, NULL));
    XT_CHECK_INT(done, 1);
    has_no_receive(second, "the peer sends a message with tag 1, for which there is no receive");
    down();
}

XT_TEST(a_later_message_that_fits_no_part_is_what_the_sender_says)
{
    static const uint32_t tags[2] = {1, 2};
    xcclNetRequest_t request;

    up_plain(0);
    request = receive_group(2, tags);
    frame_comes(NO_PART, 77);
    has_no_receive(request, "the peer sends a message with tag 77, for which there is no receive");
    down();
}

static void poll_once(void)
{
    ofi_request_poll(fx.comm);
    fx.first = fx.end = 0;
}

static void notes_leave(void)
{
    while (fx.comm->notes.out) {
        complete(&fx.comm->notes.ops[__builtin_ctz(fx.comm->notes.out)], FI_SEND | FI_TAGGED, 0, 0);
        poll_once();
    }
}

/* Of the provider's receives there are as many as messages may be on their way. */
XT_TEST(all_groups_are_taken_and_posted_as_messages_come)
{
    static const uint32_t tags[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    xcclNetRequest_t requests[OFI_REQUESTS], over = fx.data;
    size_t bytes[8] = {0};
    void *data[8] = {NULL};
    xcclNetMem_t mems[8] = {NULL};
    int done = 0;

    up_plain(0);
    for (int i = 0; i < OFI_REQUESTS; i++)
        requests[i] = receive_group(8, tags);
    XT_OK(ofi_irecv(fx.comm, 8, data, bytes, tags, mems, &over));
    XT_CHECK(over == NULL);
    says(GROUPS, 1);
    frame_comes(SWITCH, 1);
    is_under_way(requests[0]);
    XT_CHECK_INT(fx.receive_count, OFI_WINDOW);
    XT_CHECK_INT(fx.note_count, OFI_WINDOW / 8);
    for (uint32_t number = 1; number <= OFI_MESSAGES; number++) {
        notes_leave();
        message_arrives(number, 5);
        poll_once();
        /* A test posts what waits. */
        if (number < OFI_MESSAGES)
            is_under_way(requests[OFI_REQUESTS - 1]);
    }
    notes_leave();
    for (int i = 0; i < OFI_REQUESTS; i++) {
        XT_OK(ofi_test(requests[i], &done, NULL));
        XT_CHECK_INT(done, 1);
    }
    XT_CHECK_INT(fx.receive_count, OFI_MESSAGES);
    XT_CHECK_INT(fx.note_count, OFI_REQUESTS);
    down();
}

/* --- the sender --- */

static void row_comes(uint32_t row, uint32_t first, uint32_t count, const uint32_t *tags,
                      const uint32_t *numbers)
{
    struct ofi_note note = {.first = first, .count = count, .row = row};
    uint32_t place = (uint32_t)__builtin_ctz(~fx.comm->notes.idle);
    size_t bytes;

    for (uint32_t i = 0; i < count; i++)
        note.parts[i] = (struct ofi_part){
            .tag = tags[i], .number = numbers ? numbers[i] : first + i, .room = 100};
    bytes = ofi_note_encode(&note, targets(), fx.comm->notes.bytes + place * fx.comm->notes.stride);
    complete(&fx.comm->notes.ops[place], FI_RECV | FI_TAGGED, bytes, 0);
}

static void group_asked(uint32_t from)
{
    frame_comes(GROUPS, from);
    ofi_control_look(fx.comm);
    ofi_note_push(fx.comm);
}

/* The test that polls. */
static void turn(xcclNetRequest_t request)
{
    int done = 0;

    XT_OK(ofi_test(request, &done, NULL));
    XT_CHECK_INT(done, 0);
}

XT_TEST(a_sender_gives_each_message_the_number_of_its_part)
{
    static const uint32_t tags[4] = {7, 8, 7, 9}, more[2] = {5, 6}, numbers[4] = {3, 4, 5, 2};
    xcclNetRequest_t last;

    up_plain(1);
    (void)send_tagged(7);
    (void)send_tagged(9);
    (void)send_tagged(7);
    XT_CHECK_INT(fx.send_count, 3);
    group_asked(2);
    says(SWITCH, 4);
    /* The rest waits for its part. */
    last = send_tagged(7);
    XT_CHECK_INT(fx.send_count, 3);
    row_comes(1, 6, 2, more, NULL); /* it has overtaken the first one */
    turn(last);
    XT_CHECK_INT(fx.send_count, 3);
    row_comes(0, 2, 4, tags, numbers);
    turn(last);
    XT_CHECK_INT(fx.send_count, 4);
    XT_CHECK_INT((fx.sends[3].tag & OFI_TAG_NUMBER), 5); /* the second part with tag 7 */
    (void)send_tagged(8);
    (void)send_tagged(6);
    (void)send_tagged(5);
    XT_CHECK_INT(fx.send_count, 7);
    XT_CHECK_INT((fx.sends[4].tag & OFI_TAG_NUMBER), 4);
    XT_CHECK_INT((fx.sends[5].tag & OFI_TAG_NUMBER), 7);
    XT_CHECK_INT((fx.sends[6].tag & OFI_TAG_NUMBER), 6);
    down();
}

/* Rows come again after 2^31, and none is that of a receive without one. */
XT_TEST(rows_wrap)
{
    static const uint32_t tags[2] = {1, 2};
    xcclNetRequest_t last;

    up_plain(0);
    fx.comm->match.row = OFI_ROW_MASK;
    last = receive_group(2, tags);
    is_under_way(last);
    frame_comes(SWITCH, 1);
    is_under_way(last);
    XT_CHECK_INT(fx.note_count, 1);
    XT_CHECK_INT(fx.note.row, OFI_ROW_MASK);
    (void)receive_group(2, tags);
    XT_CHECK_INT(fx.note_count, 2);
    XT_CHECK_INT(fx.note.row, 0);
    down();
    up_plain(1);
    fx.comm->match.row = OFI_ROW_MASK;
    group_asked(1);
    says(SWITCH, 1);
    last = send_tagged(2);
    row_comes(0, 3, 2, tags, NULL);
    turn(last);
    row_comes(OFI_ROW_MASK, 1, 2, tags, NULL);
    turn(last);
    (void)send_tagged(1);
    (void)send_tagged(1);
    XT_CHECK_INT(fx.send_count, 3);
    XT_CHECK_INT((fx.sends[2].tag & OFI_TAG_NUMBER), 3);
    down();
}

/* Singles before the first group have been posted by their numbers. */
XT_TEST(a_sender_that_is_behind_the_first_group_sends_up_to_it_unasked)
{
    static const uint32_t tags[2] = {1, 2};
    xcclNetRequest_t last;

    up_plain(1);
    group_asked(3);
    says(SWITCH, 3);
    (void)send_tagged(50);
    (void)send_tagged(60);
    last = send_tagged(2);
    XT_CHECK_INT(fx.send_count, 2);
    XT_CHECK((fx.sends[0].tag & OFI_TAG_NUMBER) == 1 && (fx.sends[1].tag & OFI_TAG_NUMBER) == 2);
    row_comes(0, 3, 2, tags, NULL);
    turn(last);
    XT_CHECK_INT((fx.sends[2].tag & OFI_TAG_NUMBER), 4);
    down();
}

XT_TEST(a_message_that_fits_no_part_ends_the_sender_once_those_before_it_have_come)
{
    static const uint32_t tags[2] = {1, 2};
    xcclNetRequest_t first, second;
    int done = 0;

    up_plain(1);
    group_asked(1);
    says(SWITCH, 1);
    first = send_tagged(2);
    row_comes(0, 1, 2, tags, NULL);
    turn(first);
    second = send_tagged(2);
    turn(second);
    complete(fx.sends[0].context, FI_SEND | FI_TAGGED, 0, 0);
    XT_OK(ofi_test(first, &done, NULL));
    XT_CHECK_INT(done, 1);
    is_under_way(second); /* the receiver has not counted the first one */
    says(NO_PART, 2);
    frame_comes(COUNT, 2);
    XT_CHECK_RC(test_for_long(second, &done, NULL), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "the peer has no receive for a message with tag 2");
    down();
}

/* Beyond the window they wait here. */
XT_TEST(a_sender_takes_a_message_for_each_part_of_all_groups)
{
    xcclNetRequest_t over = fx.data;

    up_plain(1);
    for (uint32_t i = 0; i < OFI_MESSAGES; i++)
        (void)send_tagged(i);
    XT_CHECK_INT(fx.send_count, OFI_WINDOW);
    XT_OK(ofi_isend(fx.comm, fx.data, 10, 0, fx.mem, &over));
    XT_CHECK(over == NULL);
    down();
}

static void breaks(const char *text)
{
    xcclNetRequest_t request = send_tagged(1);

    is_damaged(request, text);
    down();
}

XT_TEST(rows_that_cannot_be_are_errors)
{
    static const uint32_t tags[2] = {1, 2};

    up(1);
    (void)send_tagged(1);
    row_comes(0, 2, 2, tags, NULL);
    breaks("a note of a receive that cannot be in flight"); /* nobody has asked for rows */
    up(1);
    group_asked(1);
    row_comes(OFI_REQUESTS, 1, 2, tags, NULL);
    breaks("a note of a receive that cannot be in flight");
    up(1);
    group_asked(1);
    row_comes(0, 3, 2, tags, NULL);
    breaks("notes of receives that do not follow each other");
    up(1);
    (void)send_tagged(2);
    (void)send_tagged(1);
    group_asked(1);
    (void)send_tagged(1);
    row_comes(0, 1, 2, tags, NULL); /* all of its messages are early */
    breaks("a note of a receive that cannot be in flight");
    up(1);
    group_asked(1);
    row_comes(0, 1, 2, tags, (const uint32_t[]){2, 2});
    breaks("a note of a receive that cannot be in flight");
    up(1);
    group_asked(1);
    row_comes(0, 1, 2, tags, (const uint32_t[]){1, 3});
    breaks("a note of a receive that cannot be in flight");
}

XT_TEST(frames_that_the_other_end_never_says_are_errors)
{
    static const struct {
        int is_send;
        uint32_t words[2];
    } rows[] = {
        {1, {SWITCH, SWITCH}}, {1, {NO_PART, NO_PART}}, {1, {GROUPS, GROUPS}},
        {0, {SWITCH, SWITCH}}, {0, {GROUPS, GROUPS}},   {0, {COUNT, COUNT}},
        {0, {99, 99}},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        up(rows[i].is_send);
        frame_comes(rows[i].words[0], 1);
        frame_comes(rows[i].words[1], 1);
        ofi_control_look(fx.comm);
        XT_CHECK_RC(fx.comm->rc, xcclRemoteError);
        XT_CHECK_HAS(fx.comm->error_text, "does not follow the protocol of the control connection");
        down();
    }
}

/* What is told beside the number does not reach it. */
XT_TEST(the_callers_tag_travels_beside_the_number)
{
    up_plain(1);
    (void)send_tagged(UINT32_MAX);
    XT_CHECK(fx.sends[0].tag == (OFI_TAG_CALLER | 1));
    down();
}

/* Without room for it there are no groups. */
/* Two versions of libfabric may differ in how long tags are, so both ends tell. */
XT_TEST(short_tags_of_either_end_allow_one_receive_at_a_time)
{
    static const uint32_t tags[2] = {1, 2};
    void *data[2] = {fx.data, fx.data};
    const size_t bytes[2] = {1, 1};
    const xcclNetMem_t mems[2] = {NULL, NULL};
    xcclNetRequest_t request = NULL;

    up_plain(0);
    XT_CHECK_INT(ofi_comm_tells(fx.comm), OFI_TELLS_SIZE | OFI_TELLS_TAG);
    ofi_comm_hear(fx.comm, OFI_TELLS_SIZE);
    XT_CHECK_INT(ofi_comm_tells(fx.comm), OFI_TELLS_SIZE);
    XT_CHECK_RC(ofi_irecv(fx.comm, 2, data, bytes, tags, mems, &request), xcclInvalidArgument);
    XT_CHECK_HAS(xccl_error_text(), "cannot post 2 receives together: at most 1 are possible");
    XT_CHECK_HAS(xccl_error_text(), "use the same libfabric on all hosts");
    fx.ep_attr.mem_tag_format = UINT32_MAX;
    XT_CHECK_INT(ofi_device_parts(&fx.device), 1);
    down();
}
