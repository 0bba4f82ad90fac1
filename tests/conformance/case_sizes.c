/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases about sizes and contents: every size arrives whole, at any address, and nothing is written
 * around it. Thread: the role's. */
#include "cf_int.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define QUICK_BYTES ((size_t)1 << 20)
#define MUCH_BYTES  ((size_t)64 << 20) /* more than this in form processes only */

static size_t memory_free(void)
{
    long pages = sysconf(_SC_AVPHYS_PAGES), page = sysconf(_SC_PAGESIZE);

    return pages > 0 && page > 0 ? (size_t)pages * (size_t)page : 0;
}

/* Both roles come to the same number: only what both see goes in, and the channel settles the rest.
 */
static size_t largest(struct cf *me)
{
    uint64_t mine = me->max_bytes, other;

    if (me->quick && mine > QUICK_BYTES)
        mine = QUICK_BYTES;
    if (me->form != CF_PROCESSES && mine > MUCH_BYTES)
        mine = MUCH_BYTES;
    while (mine > QUICK_BYTES && mine > memory_free() / 4)
        mine /= 2;
    cf_tell(me, &mine, sizeof(mine));
    cf_hear(me, &other, sizeof(other));
    return (size_t)(mine < other ? mine : other);
}

/* The next size after bytes: all small ones, then around powers of two; 0 at the end. */
static size_t next_size(size_t bytes, size_t most)
{
    size_t power = 1;

    if (bytes == most)
        return SIZE_MAX;
    if (bytes > MUCH_BYTES)
        return most;
    if (bytes < 9)
        return bytes + 1 < most ? bytes + 1 : most;
    while (power * 2 <= bytes + 1)
        power *= 2;
    if (bytes + 1 == power && bytes < power)
        bytes = power;
    else if (bytes == power)
        bytes = power + 1;
    else
        bytes = power * (power >= QUICK_BYTES ? 4 : 2) - 1;
    return bytes < most ? bytes : most;
}

/* Memory for one message of every size. What a machine gives slowly is there before the other end
 * waits for the message. */
static void make_ready(struct cf *me, void *comm, size_t bytes, struct cf_buffer *buffer)
{
    cf_buffer_make(me, comm, bytes, 0, buffer);
    if (bytes <= MUCH_BYTES)
        return;
    memset(buffer->data, 0, bytes);
    cf_barrier(me);
}

static void sizes_send(struct cf *me)
{
    void *comm = cf_open(me);
    size_t most = largest(me);

    for (size_t bytes = 0; bytes != SIZE_MAX; bytes = next_size(bytes, most)) {
        struct cf_buffer buffer;

        make_ready(me, comm, bytes, &buffer);
        cf_send(me, comm, &buffer, bytes, bytes);
        cf_buffer_free(me, &buffer);
    }
    cf_barrier(me);
    cf_close(me, comm);
}

static void sizes_recv(struct cf *me)
{
    void *comm = cf_open(me);
    size_t most = largest(me);

    for (size_t bytes = 0; bytes != SIZE_MAX; bytes = next_size(bytes, most)) {
        struct cf_buffer buffer;

        make_ready(me, comm, bytes, &buffer);
        cf_recv(me, comm, &buffer, bytes, bytes);
        cf_buffer_free(me, &buffer);
    }
    cf_barrier(me);
    cf_close(me, comm);
}

/* Sizes and shifts drawn from the seed, the same at both ends. */
#define SHIFTS 24

static struct cf drawing(struct cf *me)
{
    return cf_share(me, 77);
}

static void shifts_send(struct cf *me)
{
    struct cf draw = drawing(me);
    void *comm = cf_open(me);

    for (uint64_t i = 0; i < SHIFTS; i++) {
        size_t bytes = cf_pick(&draw, 20000), shift = cf_pick(&draw, 64);
        struct cf_buffer buffer;

        (void)cf_pick(&draw, 64);
        cf_buffer_make(me, comm, bytes, shift, &buffer);
        cf_send(me, comm, &buffer, bytes, i);
        cf_buffer_free(me, &buffer);
    }
    cf_barrier(me);
    cf_close(me, comm);
}

static void shifts_recv(struct cf *me)
{
    struct cf draw = drawing(me);
    void *comm = cf_open(me);

    for (uint64_t i = 0; i < SHIFTS; i++) {
        size_t bytes = cf_pick(&draw, 20000), shift;
        struct cf_buffer buffer;

        (void)cf_pick(&draw, 64);
        shift = cf_pick(&draw, 64);
        cf_buffer_make(me, comm, bytes, shift, &buffer);
        cf_recv(me, comm, &buffer, bytes, i);
        cf_buffer_free(me, &buffer);
    }
    cf_barrier(me);
    cf_close(me, comm);
}

/* Part of a registration, at odd places in it. */
static void inside_send(struct cf *me)
{
    void *comm = cf_open(me);
    struct cf_buffer whole;

    cf_buffer_make(me, comm, 65000, 3, &whole);
    for (size_t i = 0; i < 8; i++) {
        struct cf_buffer part = whole;

        part.data = whole.data + i * 7919;
        cf_send(me, comm, &part, i * 111, i);
    }
    cf_barrier(me);
    cf_buffer_free(me, &whole);
    cf_close(me, comm);
}

static void inside_recv(struct cf *me)
{
    void *comm = cf_open(me);
    struct cf_buffer whole;

    cf_buffer_make(me, comm, 65000, 5, &whole);
    for (size_t i = 0; i < 8; i++) {
        struct cf_buffer part = whole;

        part.data = whole.data + (7 - i) * 7919;
        part.bytes = i * 111;
        cf_recv(me, comm, &part, i * 111, i);
    }
    cf_barrier(me);
    cf_buffer_free(me, &whole);
    cf_close(me, comm);
}

/* What a send's test tells. */
static void send_size_send(struct cf *me)
{
    void *comm = cf_open(me);
    struct cf_buffer buffer;

    cf_buffer_make(me, comm, 5000, 0, &buffer);
    for (size_t bytes = 0; bytes <= 5000; bytes += 1000) {
        size_t sizes[XCCL_NET_MAX_RECVS] = {77};

        cf_fill(buffer.data, bytes, bytes);
        cf_wait(me, cf_send_post(me, comm, &buffer, bytes, 7), sizes, "the end of a send");
        if (sizes[0] != bytes)
            cf_fail(me,
                    "test of a send of %zu bytes set bytes[0] to %zu; it must be the size that was "
                    "sent",
                    bytes, sizes[0]);
    }
    cf_barrier(me);
    cf_close(me, comm);
}

static void send_size_recv(struct cf *me)
{
    void *comm = cf_open(me);
    struct cf_buffer buffer;

    cf_buffer_make(me, comm, 5000, 0, &buffer);
    for (size_t bytes = 0; bytes <= 5000; bytes += 1000)
        cf_recv(me, comm, &buffer, bytes, bytes);
    cf_barrier(me);
    cf_close(me, comm);
}

static const size_t short_sends[] = {0, 1, 100, 4095, 4096, 4097, 60000, 65000};
#define SHORTS (sizeof(short_sends) / sizeof(short_sends[0]))

static void larger_receive_send(struct cf *me)
{
    void *comm = cf_open(me);
    struct cf_buffer buffer;

    cf_buffer_make(me, comm, 65536, 0, &buffer);
    for (size_t i = 0; i < SHORTS; i++)
        cf_send(me, comm, &buffer, short_sends[i], i);
    cf_barrier(me);
    cf_buffer_free(me, &buffer);
    cf_close(me, comm);
}

static void larger_receive_recv(struct cf *me)
{
    void *comm = cf_open(me);
    struct cf_buffer buffer;

    cf_buffer_make(me, comm, 65536, 0, &buffer);
    for (size_t i = 0; i < SHORTS; i++)
        cf_recv(me, comm, &buffer, short_sends[i], i);
    cf_barrier(me);
    cf_buffer_free(me, &buffer);
    cf_close(me, comm);
}

/* A send of 5000 into a receive of 1000. What the sender sees is not said: both are fine. */
static void larger_send_send(struct cf *me)
{
    void *comm = cf_open(me);
    struct cf_buffer buffer;
    xcclNetRequest_t request;
    uint64_t end_ns = xccl_clock_ns() + 2 * XCCL_NS_PER_S;
    int done = 0;

    cf_buffer_make(me, comm, 5000, 0, &buffer);
    cf_fill(buffer.data, 5000, 1);
    request = cf_send_post(me, comm, &buffer, 5000, 7);
    /* It may be the sender that finds out, once the receive has been announced to it. */
    while (!done && xccl_clock_ns() < end_ns) {
        if (cf_test(me, request, &done, NULL) != xcclSuccess)
            break;
    }
    cf_barrier(me);
    cf_close_send(me, comm);
}

static void larger_send_recv(struct cf *me)
{
    void *comm = cf_open(me);
    struct cf_buffer buffer;
    xcclResult_t rc;

    cf_buffer_make(me, comm, 5000, 0, &buffer);
    rc = cf_wait_error(me, cf_recv_post(me, comm, &buffer, 1000, 7),
                       "a receive of 1000 bytes for a message of 5000");
    if (rc == xcclSuccess)
        cf_fail(me, "a message of 5000 bytes ended in a receive of 1000 without an error");
    if (me->props.anyMemory && rc != xcclInvalidUsage)
        cf_fail(me,
                "the error of a message larger than its receive is %d: with anyMemory it must "
                "be xcclInvalidUsage",
                (int)rc);
    cf_expect_guards(me, &buffer, 1000, "a message larger than its receive");
    cf_barrier(me);
    cf_close_recv(me, comm);
}

const struct cf_case cf_cases_sizes[] = {
    {.name = "every_size_arrives",
     .rule = 5,
     .forms = CF_PAIRED,
     .send = sizes_send,
     .recv = sizes_recv,
     .text = "0 bytes to the largest, contents and guards checked"},
    {.name = "any_address_will_do",
     .forms = CF_PAIRED,
     .send = shifts_send,
     .recv = shifts_recv,
     .text = "data need not be aligned, at either end"},
    {.name = "parts_of_a_registration",
     .forms = CF_PAIRED,
     .send = inside_send,
     .recv = inside_recv,
     .text = "data lies anywhere inside its registration"},
    {.name = "send_gives_its_size",
     .forms = CF_PAIRED,
     .send = send_size_send,
     .recv = send_size_recv,
     .text = "test of a send sets bytes[0] to the size that was sent"},
    {.name = "larger_receive_gives_true_size",
     .rule = 5,
     .forms = CF_PAIRED,
     .send = larger_receive_send,
     .recv = larger_receive_recv,
     .text = "a receive may be larger than its send"},
    {.name = "larger_send_is_an_error",
     .rule = 5,
     .forms = CF_PAIRED,
     .flags = CF_OWN,
     .send = larger_send_send,
     .recv = larger_send_recv,
     .text = "a send larger than its receive fails and writes nothing beyond it",
     .why = "NCCL never sends more than was posted, so its plugins need not notice"},
    {.name = NULL},
};
