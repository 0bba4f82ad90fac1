/* SPDX-License-Identifier: BSD-3-Clause */
/* Where a socket listens: XCCL_PORT_RANGE read strictly, used wholly and shared between processes;
 * and ports that may be used again, but never by two at a time.
 * Thread: one a process. */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/param.h"
#include "base/tcp.h"
#include "xt.h"

__attribute__((constructor)) static void use_sources(void)
{
    xt_set_error_source(xccl_error_text);
    xt_set_alloc_source(xccl_alloc_live);
}

static struct xccl_addr ip_addr(const char *text)
{
    struct xccl_addr addr;

    XT_OK(xccl_addr_parse(text, 0, &addr));
    xccl_addr_set_port(&addr, 0);
    return addr;
}

static void set_range(const char *text)
{
    xt_setenv("XCCL_PORT_RANGE", text);
    xccl_param_reset();
}

XT_TEST(a_bad_port_range_is_refused)
{
    static const char *const texts[] = {"1",    "5-",  "-5",    "9-8",  "0-5",         "1-65536",
                                        "1 -2", "a-b", "1-2-3", "01-2", "99999-99999", "1-2 "};
    struct xccl_addr addr = ip_addr("127.0.0.1:1");
    int fd = -1;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        set_range(texts[i]);
        XT_CHECK_RC(xccl_tcp_listen(&addr, &fd, NULL), xcclInvalidArgument);
        XT_CHECK_HAS(xccl_error_text(), "XCCL_PORT_RANGE");
        XT_CHECK_INT(fd, -1);
    }
}

static int option_of(int fd, int option)
{
    socklen_t bytes = sizeof(int);
    int value = -1;

    XT_CHECK_INT(getsockopt(fd, SOL_SOCKET, option, &value, &bytes), 0);
    return value;
}

/* With SO_REUSEPORT another process of the same user could take connections that are meant for us.
 */
XT_TEST(a_port_may_be_used_again_but_never_shared)
{
    struct xccl_addr addr = ip_addr("127.0.0.1:1"), bound;
    int first_fd, second_fd = -1;

    XT_OK(xccl_tcp_listen(&addr, &first_fd, &bound));
    XT_CHECK_INT(option_of(first_fd, SO_REUSEADDR), 1);
    XT_CHECK_INT(option_of(first_fd, SO_REUSEPORT), 0);
    XT_CHECK_RC(xccl_tcp_listen(&bound, &second_fd, NULL), xcclSystemError);
    xccl_tcp_close(&first_fd);
    XT_OK(xccl_tcp_listen(&bound, &second_fd, NULL));
    xccl_tcp_close(&second_fd);
}

#define SHARED_PORTS 16

/* Each process takes two ports; none may be told that there is none left. Waits for the others
 * before it gives them back. */
static void take_two_ports(int rank, int nranks, void *arg)
{
    struct xccl_addr addr = ip_addr("127.0.0.1:1"), bound;
    _Atomic int *taken = arg; /* how many, then by whom each of the range's ports */
    unsigned low = (unsigned)taken[1];
    int fds[2];

    for (int i = 0; i < 2; i++) {
        unsigned port;

        XT_OK(xccl_tcp_listen(&addr, &fds[i], &bound));
        port = xccl_addr_port(&bound);
        XT_CHECK(port >= low && port < low + SHARED_PORTS);
        /* Relaxed: only who came first matters. */
        XT_CHECK_INT(
            atomic_exchange_explicit(&taken[2 + port - low], rank + 1, memory_order_relaxed), 0);
    }
    /* Relaxed: nothing is read but the count. */
    atomic_fetch_add_explicit(taken, 1, memory_order_relaxed);
    while (atomic_load_explicit(taken, memory_order_relaxed) < nranks)
        sched_yield(); /* bounded by the test's deadline */
    xccl_tcp_close(&fds[0]);
    xccl_tcp_close(&fds[1]);
}

/* So many free ports in a row; 0: none were found. */
static unsigned free_ports(void)
{
    uint64_t state = xt_seed();

    for (int i = 0; i < 1000; i++) {
        unsigned low = 1024 + (unsigned)(xt_random(&state) % 60000), count = 0;

        while (count < SHARED_PORTS) {
            struct sockaddr_in addr = {.sin_family = AF_INET,
                                       .sin_port = htons((uint16_t)(low + count)),
                                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
            int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            int taken = bind(fd, (struct sockaddr *)&addr, sizeof(addr));

            xccl_tcp_close(&fd);
            if (taken)
                break;
            count++;
        }
        if (count == SHARED_PORTS)
            return low;
    }
    return 0;
}

XT_TEST(processes_that_share_a_range_find_free_ports)
{
    _Atomic int *taken = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                              0);
    unsigned low = free_ports();
    char text[32];

    XT_CHECK(taken != MAP_FAILED);
    if (!low)
        XT_SKIP("no %d free ports in a row", SHARED_PORTS);
    taken[1] = (int)low;
    snprintf(text, sizeof(text), "%u-%u", low, low + SHARED_PORTS - 1);
    set_range(text);
    xt_mp_run(SHARED_PORTS / 4, take_two_ports, (void *)taken);
    munmap((void *)taken, 4096);
}

XT_TEST(a_range_without_a_free_port_is_named)
{
    struct xccl_addr addr = ip_addr("127.0.0.1:1"), bound;
    int taken_fd, fd = -1;
    char text[64];

    XT_OK(xccl_tcp_listen(&addr, &taken_fd, &bound));
    snprintf(text, sizeof(text), "%u-%u", xccl_addr_port(&bound), xccl_addr_port(&bound));
    set_range(text);
    XT_CHECK_RC(xccl_tcp_listen(&addr, &fd, NULL), xcclSystemError);
    snprintf(text, sizeof(text), "no port of XCCL_PORT_RANGE %u-%u is free", xccl_addr_port(&bound),
             xccl_addr_port(&bound));
    XT_CHECK_HAS(xccl_error_text(), text);
    XT_CHECK_HAS(xccl_error_text(), "widen XCCL_PORT_RANGE");
    XT_CHECK_INT(fd, -1);
    xccl_tcp_close(&taken_fd);
}

XT_TEST(listening_takes_the_ports_of_the_range_and_no_other)
{
    struct xccl_addr addr = ip_addr("127.0.0.1:1"), first, second;
    int first_fd, second_fd = -1;
    char text[32];
    unsigned low, high;

    XT_OK(xccl_tcp_listen(&addr, &first_fd, &first));
    low = xccl_addr_port(&first);
    snprintf(text, sizeof(text), "%u-%u", low, low);
    set_range(text);
    XT_CHECK_RC(xccl_tcp_listen(&addr, &second_fd, NULL), xcclSystemError);
    XT_CHECK_HAS(xccl_error_text(), text);
    XT_CHECK_INT(second_fd, -1);
    high = low + 200 < 65535 ? low + 200 : 65535;
    low = high - 200;
    snprintf(text, sizeof(text), "%u-%u", low, high);
    set_range(text);
    XT_OK(xccl_tcp_listen(&addr, &second_fd, &second));
    XT_CHECK(xccl_addr_port(&second) >= low && xccl_addr_port(&second) <= high);
    XT_CHECK(xccl_addr_port(&second) != xccl_addr_port(&first));
    xccl_tcp_close(&first_fd);
    xccl_tcp_close(&second_fd);
}
