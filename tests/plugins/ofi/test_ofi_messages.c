/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages of the ofi plugin over the fabric of ofi_fx.h. What a peer does wrong is an error with
 * words; a receiver whose sender has left loses no message that was whole; only memory that is
 * received into may be written to; and who sleeps is woken. Groups are in test_ofi_groups.c. */
#include <poll.h>
#include <sys/eventfd.h>

#include "ofi_fx.h"

/* --- a sender that has left --- */

XT_TEST(a_whole_message_needs_no_note)
{
    xcclNetRequest_t request;

    up(0);
    fx.send_says = -FI_EAGAIN;
    request = receive();
    is_under_way(request);
    message_comes(100);
    is_done(request, 100);
    XT_CHECK_INT(fx.comm->notes.due, 0);
    /* The next one is announced as ever. */
    fx.send_says = 0;
    request = receive();
    XT_CHECK(fx.sent != NULL);
    complete(fx.sent, FI_SEND | FI_TAGGED, 0, 0);
    is_under_way(request);
    message_comes(200);
    is_done(request, 200);
    down();
}

XT_TEST(a_note_that_the_sender_does_not_take_any_more_is_withdrawn)
{
    xcclNetRequest_t given, due;

    up(0);
    given = receive();
    message_comes(100);
    is_under_way(given); /* its note has not left yet */
    fx.send_says = -FI_EAGAIN;
    due = receive();
    goodbye(3);
    is_done(given, 100);
    message_comes(200);
    is_done(due, 200);
    /* Late, and nobody's. */
    complete(fx.sent, FI_SEND | FI_TAGGED, 0, 0);
    given = receive();
    message_comes(300);
    is_done(given, 300);
    XT_CHECK_INT(fx.comm->moved, 4);
    XT_CHECK_INT(fx.comm->notes.due, 0);
    XT_CHECK_INT(fx.comm->notes.out, 0);
    down();
}

XT_TEST(a_note_that_fails_loses_no_message)
{
    xcclNetRequest_t request;

    up(0);
    request = receive();
    message_comes(100);
    fails(fx.sent, FI_SEND | FI_TAGGED, FI_ENOTCONN);
    is_done(request, 100);
    /* Nor does one that the provider refuses at once. */
    fx.send_says = -FI_EHOSTUNREACH;
    request = receive();
    is_under_way(request);
    message_comes(200);
    is_done(request, 200);
    down();
}

/* The sender may have got the note all the same, so its writes are given some time. */
XT_TEST(a_message_to_be_written_whose_note_was_lost_fails_in_time)
{
    xcclNetRequest_t request;
    int done = 0;

    up(0);
    request = receive();
    fails(fx.sent, FI_SEND | FI_TAGGED, FI_EHOSTUNREACH);
    size_comes(LARGE);
    is_under_way(request);
    for (uint32_t piece = 0; piece < 3; piece++)
        piece_comes(1, piece);
    is_done(request, LARGE);
    request = receive();
    fails(fx.sent, FI_SEND | FI_TAGGED, FI_EHOSTUNREACH);
    size_comes(LARGE);
    is_under_way(request);
    fx.comm->groups[1].lost_ns -= 6 * XCCL_NS_PER_S;
    XT_CHECK_RC(test_for_long(request, &done, NULL), xcclRemoteError);
    XT_CHECK_HAS(xccl_error_text(), "announcing to the peer on fx0 (fake): unreachable");
    down();
}

/* --- a peer that keeps to no rule --- */

XT_TEST(a_write_that_nobody_awaits_is_an_error)
{
    static const struct {
        uint32_t number, piece;
    } rows[] = {{1, 3}, {1, 16}, {1, 255}, {2, 0}, {33, 0}, {0, 0}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        xcclNetRequest_t request;

        up(0);
        request = receive();
        complete(fx.sent, FI_SEND | FI_TAGGED, 0, 0);
        size_comes(LARGE);
        piece_comes(rows[i].number, rows[i].piece);
        is_damaged(request, "a write that no receive in flight awaits");
        down();
    }
}

XT_TEST(a_piece_that_comes_twice_is_an_error)
{
    xcclNetRequest_t request;

    up(0);
    request = receive();
    piece_comes(1, 1);
    piece_comes(1, 1);
    is_damaged(request, "a write that no receive in flight awaits");
    down();
}

XT_TEST(a_write_before_its_note_was_given_is_an_error)
{
    xcclNetRequest_t request;

    up(0);
    fx.send_says = -FI_EAGAIN;
    request = receive();
    piece_comes(1, 0);
    is_damaged(request, "a write that no receive in flight awaits");
    down();
}

XT_TEST(a_size_that_its_writes_do_not_have_is_an_error)
{
    xcclNetRequest_t request;

    up(0);
    request = receive();
    piece_comes(1, 2);
    size_comes(PIECE + 1);
    is_damaged(request, "a size that its writes do not have");
    down();
}

XT_TEST(writes_of_a_message_that_came_whole_are_an_error)
{
    xcclNetRequest_t request;

    up(0);
    request = receive();
    piece_comes(1, 0);
    message_comes(100);
    is_damaged(request, "writes of a message that is not written");
    down();
    up(0);
    request = receive();
    message_comes(100);
    piece_comes(1, 0);
    is_damaged(request, "a write that no receive in flight awaits");
    down();
}

XT_TEST(a_message_without_its_size_is_an_error)
{
    xcclNetRequest_t request;

    up(0);
    request = receive();
    complete(fx.received, FI_RECV | FI_TAGGED, 0, 0);
    is_damaged(request, "a message without its size");
    down();
}

/* A send whose note has not come. */
static xcclNetRequest_t send_large(void)
{
    xcclNetRequest_t request = NULL;

    XT_OK(ofi_isend(fx.comm, fx.data, LARGE, 7, fx.mem, &request));
    XT_CHECK(request != NULL && fx.place != NULL);
    return request;
}

XT_TEST(a_write_to_a_sender_is_an_error)
{
    xcclNetRequest_t request;

    up(1);
    request = send_large();
    piece_comes(1, 0);
    is_damaged(request, "a write that nobody awaits");
    down();
    up_plain(0);
    request = receive();
    piece_comes(1, 0);
    is_damaged(request, "a write that nobody awaits");
    down();
}

static void note_comes(uint32_t number)
{
    const struct ofi_note note = {.first = number,
                                  .count = 1,
                                  .row = OFI_NO_ROW,
                                  .parts[0] = {.number = number, .room = LARGE}};
    const struct ofi_op *place = fx.place;
    size_t bytes = ofi_note_encode(&note, targets(),
                                   fx.comm->notes.bytes + place->place * fx.comm->notes.stride);

    complete(fx.place, FI_RECV | FI_TAGGED, bytes, 0);
}

XT_TEST(a_note_that_is_none_is_an_error)
{
    xcclNetRequest_t request;

    up(1);
    request = send_large();
    complete(fx.place, FI_RECV | FI_TAGGED, OFI_NOTE_BYTES, 0);
    is_damaged(request, "what is no note of a receive");
    down();
    up(1);
    request = send_large();
    fails(fx.place, FI_RECV | FI_TAGGED, FI_ETRUNC);
    is_damaged(request, "what is no note of a receive");
    down();
    up(1);
    request = send_large();
    note_comes(2 + OFI_MESSAGES);
    is_damaged(request, "a note of a receive that cannot be in flight");
    down();
}

/* --- sleeping --- */

/* The descriptor that the comm's caller sleeps on. */
static int fall_asleep(void)
{
    int fd = -1, again = -1;

    XT_OK(ofi_wait_fd(fx.comm, &fd));
    XT_CHECK_INT(fd, -1);
    fx.queue_fd = eventfd(0, EFD_CLOEXEC);
    XT_CHECK(fx.queue_fd >= 0);
    fx.comm->rails[0].end.can_wait = 1;
    fx.comm->rails[0].end.cq_fd = fx.queue_fd;
    XT_OK(ofi_wait_fd(fx.comm, &fd));
    XT_OK(ofi_wait_fd(fx.comm, &again));
    XT_CHECK(fd >= 0 && again == fd);
    return fd;
}

static int up_asleep(uint64_t piece_bytes)
{
    up_on(0, 1, piece_bytes);
    return fall_asleep();
}

static void down_asleep(void)
{
    down();
    close(fx.queue_fd);
}

static int is_awake(int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};

    return poll(&wait, 1, 0) == 1;
}

/* The poll for a request takes the completion of another one, of which nobody tells again. */
XT_TEST(who_sleeps_is_woken_by_what_the_test_of_another_request_has_found)
{
    xcclNetRequest_t first, second, third;
    int fd = up_asleep(0), done = 1;

    first = receive();
    message_comes(100);
    second = receive();
    message_comes(200);
    fx.end = 0;
    is_under_way(first);
    is_under_way(second);
    XT_CHECK_INT(is_awake(fd), 0);
    fx.end = 2;
    XT_OK(ofi_test(second, &done, NULL));
    XT_CHECK_INT(done, 0);
    XT_CHECK_INT(is_awake(fd), 1);
    XT_OK(ofi_test(second, &done, NULL));
    XT_CHECK_INT(done, 1);
    third = receive();
    is_under_way(third);
    XT_CHECK_INT(is_awake(fd), 1); /* the first one is not known yet */
    is_done(first, 100);
    is_under_way(third);
    XT_CHECK_INT(is_awake(fd), 0);
    down_asleep();
}

XT_TEST(who_sleeps_is_woken_by_what_progress_has_found)
{
    xcclNetRequest_t request;
    int fd = up_asleep(0), pending = 0;

    request = receive();
    is_under_way(request);
    fx.ctx.comms = fx.comm;
    XT_OK(ofi_progress(&fx.ctx, &pending));
    XT_CHECK_INT(is_awake(fd), 0);
    message_comes(100);
    XT_OK(ofi_progress(&fx.ctx, &pending));
    XT_CHECK_INT(is_awake(fd), 1);
    is_done(request, 100);
    down_asleep();
}

static xcclNetRequest_t send_small(void)
{
    xcclNetRequest_t request = NULL;

    XT_OK(ofi_isend(fx.comm, fx.data, 10, 7, fx.mem, &request));
    XT_CHECK(request != NULL);
    return request;
}

/* Progress reads the frame that gives room, of which nobody tells again, and sends nothing. */
XT_TEST(who_sleeps_is_woken_by_room_that_progress_has_found)
{
    xcclNetRequest_t first, last;
    int fd, pending = 0;

    up_plain(1);
    fd = fall_asleep();
    first = send_small();
    for (uint32_t i = 1; i < OFI_WINDOW; i++)
        (void)send_small();
    last = send_small();
    XT_CHECK_INT(fx.send_count, OFI_WINDOW);
    complete(fx.sends[0].context, FI_SEND | FI_TAGGED, 0, 0);
    is_done(first, 10); /* there is an operation for the last one, and no room */
    is_under_way(last);
    XT_CHECK_INT(is_awake(fd), 0);
    frame_comes(COUNT, 2); /* two have come in all, with message 0 */
    fx.ctx.comms = fx.comm;
    XT_OK(ofi_progress(&fx.ctx, &pending));
    XT_CHECK_INT(is_awake(fd), 1);
    is_under_way(last);
    XT_CHECK_INT(fx.send_count, OFI_WINDOW + 1);
    XT_CHECK_INT(is_awake(fd), 0);
    down_asleep();
}

/* Progress reads the frame that says where early messages end, of which nobody tells again. */
XT_TEST(who_sleeps_is_woken_by_an_answer_that_progress_has_found)
{
    static const uint32_t tags[2] = {1, 2};
    void *data[2] = {fx.data, fx.data + 100};
    const size_t bytes[2] = {100, 100};
    xcclNetMem_t mems[2];
    xcclNetRequest_t request = NULL;
    int fd = up_asleep(0), pending = 0;

    mems[0] = mems[1] = fx.mem;
    XT_OK(ofi_irecv(fx.comm, 2, data, bytes, tags, mems, &request));
    is_under_way(request);
    XT_CHECK_INT(is_awake(fd), 0);
    XT_CHECK_INT(fx.receive_count, 1);
    frame_comes(SWITCH, 1); /* none is early */
    fx.ctx.comms = fx.comm;
    XT_OK(ofi_progress(&fx.ctx, &pending));
    XT_CHECK_INT(is_awake(fd), 1);
    is_under_way(request);
    XT_CHECK_INT(fx.receive_count, 2);
    XT_CHECK_INT(fx.note_count, 1);
    down_asleep();
}

XT_TEST(nobody_sleeps_while_the_provider_has_something_to_do)
{
    xcclNetRequest_t request;
    int fd = up_asleep(0);

    request = receive();
    fx.look_says = -FI_EAGAIN;
    is_under_way(request);
    XT_CHECK_INT(is_awake(fd), 1);
    fx.look_says = 0;
    is_under_way(request);
    XT_CHECK_INT(is_awake(fd), 0);
    /* Its own descriptor wakes, too. */
    XT_CHECK_INT(eventfd_write(fx.queue_fd, 1), 0);
    XT_CHECK_INT(is_awake(fd), 1);
    down_asleep();
}

/* A note that the provider refuses is given by a later call; nothing from outside tells when. */
XT_TEST(nobody_sleeps_while_a_note_is_refused)
{
    xcclNetRequest_t request;
    int fd = up_asleep(PIECE);

    fx.send_says = -FI_EAGAIN;
    request = receive();
    is_under_way(request);
    XT_CHECK_INT(is_awake(fd), 1);
    fx.send_says = 0;
    is_under_way(request);
    XT_CHECK_INT(is_awake(fd), 0);
    down_asleep();
}

/* Time passes until it is an error; then, and once its request is done, nobody has to ask. */
XT_TEST(who_sleeps_is_woken_for_a_lost_note_as_long_as_it_matters)
{
    xcclNetRequest_t request;
    int fd = up_asleep(PIECE), done = 0;

    request = receive();
    fails(fx.sent, FI_SEND | FI_TAGGED, FI_EHOSTUNREACH);
    is_under_way(request);
    XT_CHECK_INT(is_awake(fd), 1);
    message_comes(100);
    is_done(request, 100);
    request = receive();
    complete(fx.sent, FI_SEND | FI_TAGGED, 0, 0);
    is_under_way(request);
    XT_CHECK_INT(is_awake(fd), 0);
    message_comes(100);
    is_done(request, 100);
    request = receive();
    fails(fx.sent, FI_SEND | FI_TAGGED, FI_EHOSTUNREACH);
    is_under_way(request);
    XT_CHECK_INT(is_awake(fd), 1);
    fx.comm->groups[2].lost_ns -= 6 * XCCL_NS_PER_S;
    is_under_way(request);
    XT_CHECK_INT(is_awake(fd), 0); /* a message that comes whole is done without it */
    size_comes(LARGE);
    XT_CHECK_RC(test_for_long(request, &done, NULL), xcclRemoteError);
    XT_CHECK_HAS(xccl_error_text(), "announcing to the peer");
    down_asleep();
}

/* From then on time passes until it is an error, of which nothing tells. */
XT_TEST(who_sleeps_is_woken_by_the_end_of_the_peer)
{
    for (int is_send = 0; is_send < 2; is_send++) {
        xcclNetRequest_t request;
        xcclResult_t rc = xcclSuccess;
        int fd, done = 0;

        up_on(is_send, 1, 0);
        fd = fall_asleep();
        request = is_send ? send_bytes(100) : receive();
        is_under_way(request);
        XT_CHECK_INT(is_awake(fd), 0);
        shutdown(fx.control, SHUT_RDWR);
        while (rc == xcclSuccess) {
            XT_CHECK_INT(is_awake(fd), 1);
            rc = ofi_test(request, &done, NULL);
        }
        XT_CHECK_HAS(xccl_error_text(), "the peer has closed it or has ended");
        down_asleep();
    }
}

/* --- what may be written to --- */

static uint64_t access_of(xcclNetMem_t mem)
{
    return ((struct ofi_mem *)mem)->regions[0]->access;
}

XT_TEST(only_memory_that_is_received_into_may_be_written_to)
{
    const uint64_t both = FI_SEND | FI_RECV;
    struct ofi_target target;

    up(1);
    XT_CHECK(access_of(fx.comm->notes.mem) == both);
    XT_CHECK(access_of(fx.mem) == (both | FI_WRITE));
    XT_CHECK(!ofi_mem_remote(&fx.comm->rails[0], fx.mem, fx.data, &target));
    down();
    up(0);
    XT_CHECK(access_of(fx.comm->notes.mem) == both);
    XT_CHECK(access_of(fx.mem) == (both | FI_REMOTE_WRITE));
    XT_CHECK(ofi_mem_remote(&fx.comm->rails[0], fx.mem, fx.data, &target));
    XT_CHECK(target.key == ((struct ofi_mem *)fx.mem)->regions[0]->mr->key);
    XT_CHECK(!ofi_mem_remote(&fx.comm->rails[0], fx.comm->notes.mem, fx.data, &target));
    down();
}

/* --- a sender that closes --- */

/* One that waits here is given up, and its memory is not touched any more. */
XT_TEST(a_sender_that_closes_with_a_message_that_waits_stays_for_those_that_are_done)
{
    xcclNetRequest_t request;

    up_plain(1);
    request = send_small();
    complete(fx.sent, FI_SEND | FI_TAGGED, 0, 0);
    is_done(request, 10);
    fx.send_says = -FI_EAGAIN;
    (void)send_small();
    XT_CHECK_INT(fx.comm->taken - fx.comm->posted, 1);
    XT_CHECK_INT(ofi_request_left(fx.comm), 2); /* what the goodbye says */
    fx.send_says = 0;
    XT_OK(ofi_close_comm(fx.comm));
    XT_CHECK(fx.ctx.lingering == fx.comm);
    for (int i = 0; i < 200; i++)
        ofi_comm_sweep(&fx.ctx, 0);
    XT_CHECK(fx.ctx.lingering == fx.comm); /* the receiver has not counted the first one */
    XT_CHECK_INT(fx.send_count, 1);
    fx.ctx.lingering = NULL; /* this fabric's endpoints are not to be closed */
    down();
}

/* --- what strangers cannot know --- */

XT_TEST(messages_and_writes_are_hidden_by_the_secret)
{
    xcclNetRequest_t request;

    up_with(0, 1, PIECE, OFI_TELLS_SIZE | OFI_TELLS_TAG);
    fx.comm->tag_bits = 64;
    fx.comm->links[0].side.proof.session[0] = 9;
    ofi_comm_key(fx.comm);
    request = receive();
    XT_CHECK((fx.receives[0].tag ^ fx.comm->secret) == (1 | 7ull << OFI_TAG_SHIFT));
    complete(fx.sent, FI_SEND | FI_TAGGED, 0, 0);
    size_comes(LARGE);
    for (uint32_t piece = 0; piece < 3; piece++)
        complete(NULL, FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA, 0, (1u << 8 | piece) ^ fx.comm->beside);
    is_done(request, LARGE);
    request = receive();
    complete(fx.sent, FI_SEND | FI_TAGGED, 0, 0);
    size_comes(LARGE);
    complete(NULL, FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA, 0, 2u << 8);
    is_damaged(request, "a write that no receive in flight awaits");
    down();
}
