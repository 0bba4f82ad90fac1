/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections at a plugin's door, over the loopback: a hello in pieces, one that does not come, one
 * that ends, and more of them than there are places. The clock is the test's own.
 *
 * Thread: one. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "kit/kit_doorstep.h"
#include "base/tcp.h"
#include "xt.h"

#define HELLO 8

static struct kit_doorstep step;
static struct xccl_addr addr;
static int port = -1, news;
static char said[400];

static void log_line(xcclNetLogLevel_t level, const char *line)
{
    (void)level;
    snprintf(said, sizeof(said), "%s", line);
}

static void count_new(void *user, int fd)
{
    XT_CHECK(user == &step && fd >= 0);
    news++;
}

static void door_open(void)
{
    struct xccl_addr any;

    XT_OK(xccl_addr_parse("127.0.0.1:1", 0, &any));
    xccl_addr_set_port(&any, 0);
    XT_OK(xccl_tcp_listen(&any, &port, &addr));
    step.log = log_line;
    step.device = "dev0";
    step.came = count_new;
    step.user = &step;
    XT_OK(kit_doorstep_init(&step, HELLO));
}

static void door_close(void)
{
    kit_doorstep_fini(&step);
    xccl_tcp_close(&port);
}

/* Somebody comes and says the first bytes of his hello. */
static int come(const char *bytes)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    XT_CHECK(fd >= 0);
    XT_CHECK_INT(connect(fd, &addr.sa.any, addr.bytes), 0);
    XT_CHECK_INT(send(fd, bytes, strlen(bytes), 0), strlen(bytes));
    return fd;
}

/* Fills until as many have come as were sent: the loopback takes its time. */
static void fill(int want, uint64_t now_ns)
{
    for (int i = 0; i < 2000 && news < want; i++) {
        XT_OK(kit_doorstep_fill(&step, port, now_ns));
        usleep(500);
    }
    XT_CHECK_INT(news, want);
}

static int read_soon(struct kit_stranger *stranger, size_t want, size_t have, uint64_t now_ns)
{
    int done = 0;

    for (int i = 0; i < 2000 && !done && stranger->fd >= 0 && stranger->have < have; i++) {
        done = kit_doorstep_read(&step, stranger, want, now_ns);
        usleep(500);
    }
    return done;
}

XT_TEST(a_hello_may_come_in_pieces)
{
    int fd;

    door_open();
    fd = come("abc");
    fill(1, 1);
    XT_CHECK_INT(read_soon(&step.places[0], HELLO, 3, 1), 0);
    XT_CHECK_INT(step.places[0].have, 3);
    XT_CHECK_INT(send(fd, "defgh", 5, 0), 5);
    XT_CHECK_INT(read_soon(&step.places[0], HELLO, HELLO, 1), 1);
    XT_CHECK(memcmp(step.places[0].hello, "abcdefgh", HELLO) == 0);
    /* A read of fewer bytes than have come is done at once. */
    XT_CHECK_INT(kit_doorstep_read(&step, &step.places[0], 4, 1), 1);
    close(fd);
    door_close();
}

XT_TEST(who_is_silent_for_five_seconds_is_dropped)
{
    int fd;

    door_open();
    fd = come("abc");
    fill(1, 1);
    XT_CHECK_INT(kit_doorstep_read(&step, &step.places[0], HELLO, 1 + 5 * XCCL_NS_PER_S), 0);
    XT_CHECK(step.places[0].fd >= 0);
    XT_CHECK_INT(kit_doorstep_read(&step, &step.places[0], HELLO, 2 + 5 * XCCL_NS_PER_S), 0);
    XT_CHECK_INT(step.places[0].fd, -1);
    XT_CHECK_HAS(said, "dropped a connection of 127.0.0.1:");
    XT_CHECK_HAS(said, "on dev0: no complete hello in 5 s");
    close(fd);
    door_close();
}

XT_TEST(who_leaves_is_dropped)
{
    door_open();
    close(come("abc"));
    fill(1, 1);
    for (int i = 0; i < 2000 && step.places[0].fd >= 0; i++) {
        XT_CHECK_INT(kit_doorstep_read(&step, &step.places[0], HELLO, 1), 0);
        usleep(500);
    }
    XT_CHECK_INT(step.places[0].fd, -1);
    XT_CHECK_HAS(said, "it has gone");
    door_close();
}

XT_TEST(the_oldest_makes_room)
{
    int fds[KIT_DOORSTEP_PLACES + 1], second;

    door_open();
    for (int i = 0; i < KIT_DOORSTEP_PLACES; i++) {
        fds[i] = come("a");
        fill(i + 1, i == 1 ? 1 : 2);
    }
    XT_CHECK_INT(said[0], 0);
    second = step.places[1].fd;
    fds[KIT_DOORSTEP_PLACES] = come("b");
    fill(KIT_DOORSTEP_PLACES + 1, 3);
    XT_CHECK_HAS(said, "too many at once have not said who they are");
    XT_CHECK_INT(step.places[1].since_ns, 3);
    XT_CHECK_INT(step.places[1].have, 0);
    XT_CHECK(second >= 0 && step.places[0].since_ns == 2);
    for (int i = 0; i <= KIT_DOORSTEP_PLACES; i++)
        close(fds[i]);
    door_close();
}
