/* SPDX-License-Identifier: BSD-3-Clause */
/* Host names and a name server that does not answer: the wait ends with the deadline or the abort
 * flag, and the thread that is left behind takes its memory with it. This program's own
 * getaddrinfo() stands in the place of the C library's: names that begin with "silent" wait until
 * the test lets them go.
 * Thread: the test's, and those that look names up. */
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/param.h"
#include "base/resolve.h"
#include "xt.h"

__attribute__((constructor)) static void sources(void)
{
    xt_set_error_source(xccl_error_text);
    xt_set_alloc_source(xccl_alloc_live);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int silent = 1, waiting; /* guarded by mutex */
static struct sockaddr_in home = {.sin_family = AF_INET, .sin_port = 7};
static struct addrinfo home_info = {
    .ai_family = AF_INET, .ai_addr = (struct sockaddr *)&home, .ai_addrlen = sizeof(home)};
static struct addrinfo foreign = {.ai_family = AF_UNIX, .ai_next = NULL};

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                struct addrinfo **found_out)
{
    (void)service;
    (void)hints;
    pthread_mutex_lock(&mutex);
    waiting++;
    pthread_cond_broadcast(&changed);
    while (silent && strncmp(host, "silent", 6) == 0)
        pthread_cond_wait(&changed, &mutex);
    waiting--;
    pthread_mutex_unlock(&mutex);
    if (strcmp(host, "nobody.example") == 0)
        return EAI_NONAME;
    home.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    foreign.ai_next = strcmp(host, "foreign.example") == 0 ? NULL : &home_info;
    *found_out = &foreign;
    return 0;
}

void freeaddrinfo(struct addrinfo *found)
{
    XT_CHECK(found == &foreign);
}

/* The threads that were left behind end, and give back what they have. */
static void let_go(void)
{
    struct xccl_limit limit = xccl_limit_ms(10000, NULL);

    pthread_mutex_lock(&mutex);
    silent = 0;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    while (xccl_alloc_live() && !xccl_limit_passed(&limit))
        usleep(1000); /* bounded poll on the threads' end */
    XT_CHECK_INT(xccl_alloc_live(), 0);
}

XT_TEST(names_are_resolved_and_wrong_ones_named)
{
    struct xccl_limit limit = xccl_limit_ms(10000, NULL);
    char text[XCCL_ADDR_TEXT_BYTES];
    struct xccl_addr addr;

    XT_OK(xccl_resolve("here.example:1", "here.example", &limit, &addr));
    xccl_addr_format(&addr, text);
    XT_CHECK_TEXT(text, "127.0.0.1:0");
    XT_OK(xccl_addr_parse("here.example:4000", 1, &addr));
    XT_CHECK_INT(xccl_addr_port(&addr), 4000);
    XT_CHECK_RC(xccl_addr_parse("nobody.example:4000", 1, &addr), xcclSystemError);
    XT_CHECK_HAS(xccl_error_text(), "cannot resolve \"nobody.example:4000\": ");
    XT_CHECK_RC(xccl_addr_parse("foreign.example:4000", 1, &addr), xcclSystemError);
    XT_CHECK_HAS(xccl_error_text(), "has neither an IPv4 nor an IPv6 address");
}

XT_TEST(a_name_server_that_does_not_answer_costs_no_more_than_the_deadline)
{
    struct xccl_addr addr = {.bytes = 5};
    uint64_t start_ns = xccl_clock_ns(), took_ns;

    xt_setenv("XCCL_TIMEOUT_INIT_S", "1");
    xccl_param_reset();
    XT_OK(xccl_param_load());
    XT_CHECK_RC(xccl_addr_parse("silent.example:4000", 1, &addr), xcclTimeout);
    took_ns = xccl_clock_ns() - start_ns;
    XT_CHECK(took_ns >= XCCL_NS_PER_S * 9 / 10 && took_ns < 5 * XCCL_NS_PER_S);
    XT_CHECK_HAS(xccl_error_text(), "cannot resolve \"silent.example:4000\": no answer within 1 s");
    XT_CHECK_HAS(xccl_error_text(), "numeric address");
    XT_CHECK_INT(addr.bytes, 5);
    let_go();
}

static _Atomic int aborted;

static void *abort_soon(void *arg)
{
    pthread_mutex_lock(&mutex);
    while (!waiting)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
    /* Relaxed: only the flag matters. */
    atomic_store_explicit(&aborted, 1, memory_order_relaxed);
    return arg;
}

XT_TEST(an_abort_ends_the_wait)
{
    struct xccl_limit limit = xccl_limit_ms(60000, &aborted);
    uint64_t start_ns = xccl_clock_ns();
    struct xccl_addr addr;
    pthread_t thread;

    XT_CHECK_INT(pthread_create(&thread, NULL, abort_soon, NULL), 0);
    XT_CHECK_RC(xccl_resolve("silent:1", "silent", &limit, &addr), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "aborted while looking up \"silent:1\"");
    XT_CHECK(xccl_clock_ns() - start_ns < 5 * XCCL_NS_PER_S);
    XT_CHECK_INT(pthread_join(thread, NULL), 0);
    let_go();
}

/* With a thread left behind, a process can fork and end. */
XT_TEST(a_thread_left_behind_holds_up_neither_fork_nor_exit)
{
    struct xccl_limit limit = xccl_limit_ms(50, NULL);
    struct xccl_addr addr;
    int status = -1;
    pid_t pid = fork();

    XT_CHECK(pid >= 0);
    if (pid == 0) {
        int child_status = -1;
        pid_t child;

        if (xccl_resolve("silent:1", "silent", &limit, &addr) != xcclTimeout)
            _exit(1);
        child = fork();
        if (child == 0) {
            limit = xccl_limit_ms(10000, NULL);
            exit(!XT_TSAN &&
                         /* it ends a process that starts threads after such a fork */ xccl_resolve(
                             "here:1", "here", &limit, &addr) != xcclSuccess
                     ? 2
                     : 0);
        }
        if (child < 0 || waitpid(child, &child_status, 0) != child || child_status != 0)
            _exit(3);
        exit(0);
    }
    XT_CHECK_INT(waitpid(pid, &status, 0), pid);
    XT_CHECK_INT(status, 0);
}
