/* SPDX-License-Identifier: BSD-3-Clause */
/* Silent connections at a port of a library: which ones are cut, in which order, and which are left
 * alone. The library is a socket of the test's that accepts everybody. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "kit/kit_silent.h"
#include "xt.h"

#define GUESTS (KIT_SILENT_MAX + 36)

struct door {
    int listen_fd;
    struct sockaddr_in at;
    int ours[GUESTS], theirs[GUESTS];
};

/* Time of the looks alone: a second goes by between two. */
static _Atomic uint64_t now_ns = 1;

static int look(void)
{
    atomic_fetch_add_explicit(&now_ns, XCCL_NS_PER_S, memory_order_relaxed);
    xccl_clock_set_virtual(&now_ns);
    return kit_silent_look(NULL);
}

static void door_open(struct door *door)
{
    socklen_t bytes = sizeof(door->at);

    door->at = (struct sockaddr_in){.sin_family = AF_INET,
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    door->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    XT_CHECK(door->listen_fd >= 0);
    XT_CHECK_INT(bind(door->listen_fd, (struct sockaddr *)&door->at, sizeof(door->at)), 0);
    XT_CHECK_INT(listen(door->listen_fd, GUESTS), 0);
    XT_CHECK_INT(getsockname(door->listen_fd, (struct sockaddr *)&door->at, &bytes), 0);
}

/* A guest comes, says so many bytes, and is accepted. */
static void come(struct door *door, int guest, size_t says)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    XT_CHECK(fd >= 0);
    XT_CHECK_INT(connect(fd, (struct sockaddr *)&door->at, sizeof(door->at)), 0);
    if (says)
        XT_CHECK_INT(send(fd, "hello, hello", says, 0), (ssize_t)says);
    door->theirs[guest] = fd;
    door->ours[guest] = accept(door->listen_fd, NULL, NULL);
    XT_CHECK(door->ours[guest] >= 0);
}

static int is_cut(const struct door *door, int guest)
{
    struct pollfd end = {.fd = door->theirs[guest], .events = POLLIN};
    char byte;

    return poll(&end, 1, 0) == 1 && recv(end.fd, &byte, 1, MSG_DONTWAIT) == 0;
}

static int cut_count(const struct door *door, int from, int to)
{
    int count = 0;

    for (int i = from; i < to; i++)
        count += is_cut(door, i);
    return count;
}

static void door_close(struct door *door, int guests)
{
    for (int i = 0; i < guests; i++) {
        close(door->ours[i]);
        close(door->theirs[i]);
    }
    close(door->listen_fd);
}

static void watch(struct kit_silent *crowd, struct door *door)
{
    struct kit_fds before;

    kit_fds_note(&before);
    door_open(door);
    kit_silent_watch(crowd, &before, &door->at, sizeof(door->at));
    XT_CHECK_INT(crowd->count, 1);
    XT_CHECK_INT(crowd->ports[0], ntohs(door->at.sin_port));
}

XT_TEST(of_a_crowd_the_longest_silent_are_cut)
{
    int fds = xt_entries("/proc/self/fd");
    struct kit_silent crowd = {.count = 0};
    struct door door;

    watch(&crowd, &door);
    for (int i = 0; i < 36; i++)
        come(&door, i, 0);
    XT_CHECK_INT(look(), 0); /* there is room for them */
    (void)poll(NULL, 0, 50);
    for (int i = 36; i < GUESTS; i++)
        come(&door, i, 0);
    XT_CHECK_INT(look(), 36);
    XT_CHECK_INT(cut_count(&door, 0, 36), 36);
    XT_CHECK_INT(cut_count(&door, 36, GUESTS), 0);
    XT_CHECK_INT(look(), 0);
    kit_silent_forget(&crowd);
    door_close(&door, GUESTS);
    XT_CHECK_INT(xt_entries("/proc/self/fd"), fds);
}

XT_TEST(whoever_has_said_enough_is_the_librarys)
{
    struct kit_silent crowd = {.count = 0};
    struct door door;

    watch(&crowd, &door);
    for (int i = 0; i < GUESTS; i++)
        come(&door, i, i % 2 ? 8 : 7);
    XT_CHECK_INT(look(), 0); /* half of them are silent */
    (void)poll(NULL, 0, 20);
    for (int i = 0; i < GUESTS; i += 2) {
        close(door.ours[i]);
        close(door.theirs[i]);
        come(&door, i, 8);
    }
    XT_CHECK_INT(look(), 0);
    kit_silent_forget(&crowd);
    door_close(&door, GUESTS);
}

XT_TEST_DEADLINE(nobody_is_silent_for_more_than_five_seconds, 30)
{
    struct kit_silent crowd = {.count = 0};
    struct door door;

    watch(&crowd, &door);
    come(&door, 0, 0);
    come(&door, 1, 8);
    (void)poll(NULL, 0, 3000);
    XT_CHECK_INT(look(), 0);
    (void)poll(NULL, 0, 2100);
    come(&door, 2, 0);
    XT_CHECK_INT(look(), 1);
    XT_CHECK(is_cut(&door, 0) && !is_cut(&door, 1) && !is_cut(&door, 2));
    kit_silent_forget(&crowd);
    door_close(&door, 3);
}

/* The program's own ports are none of ours, even if an address has their numbers in it. */
XT_TEST(ports_that_were_open_before_are_left_alone)
{
    struct kit_silent crowd = {.count = 0};
    struct kit_fds before;
    struct door door;

    door_open(&door);
    kit_fds_note(&before);
    kit_silent_watch(&crowd, &before, &door.at, sizeof(door.at));
    XT_CHECK_INT(crowd.count, 0);
    for (int i = 0; i < GUESTS; i++)
        come(&door, i, 0);
    XT_CHECK_INT(look(), 0);
    XT_CHECK_INT(cut_count(&door, 0, GUESTS), 0);
    door_close(&door, GUESTS);
}

XT_TEST(other_addresses_do_not_make_a_port_watched)
{
    uint8_t zeros[64] = {0};
    struct kit_silent crowd = {.count = 0};
    struct kit_fds before;
    struct door door;

    kit_fds_note(&before);
    door_open(&door);
    kit_silent_watch(&crowd, &before, zeros, sizeof(zeros));
    XT_CHECK_INT(crowd.count, 0);
    door_close(&door, 0);
}

/* No descriptor is left for a look. */
XT_TEST(a_full_table_of_descriptors_hinders_no_look)
{
    struct kit_silent crowd = {.count = 0};
    struct door door;
    struct rlimit limit;
    int filler[200], count = 0;

    XT_CHECK_INT(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = 2 * GUESTS + 60;
    XT_CHECK_INT(setrlimit(RLIMIT_NOFILE, &limit), 0);
    watch(&crowd, &door);
    XT_CHECK(kit_fds_have_room(8));
    for (int i = 0; i < GUESTS; i++)
        come(&door, i, 0);
    while (count < 200 && (filler[count] = dup(door.listen_fd)) >= 0)
        count++;
    XT_CHECK_INT(errno, EMFILE);
    XT_CHECK(!kit_fds_have_room(1));
    XT_CHECK_INT(look(), 36);
    while (count > 0)
        close(filler[--count]);
    kit_silent_forget(&crowd);
    door_close(&door, GUESTS);
}
