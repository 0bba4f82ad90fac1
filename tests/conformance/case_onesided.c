/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases about one-sided transfers, where the plugin offers them: puts come before their signal, and
 * none leaves its range. Thread: the role's. */
#include "cf_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_BYTES 65536
#define PUTS         16
#define PUT_BYTES    (WINDOW_BYTES / PUTS)

/* Receiver: memory, a signal word and their keys, told to the sender. */
struct window {
    struct cf_buffer data, word;
    xcclNetMemKey_t data_key, word_key;
};

static int exported(struct cf *me, void *comm, struct cf_buffer *buffer, xcclNetMemKey_t *key)
{
    xcclResult_t rc;

    cf_enter(me, "exportMr");
    rc = me->net->calls.exportMr(comm, buffer->mem, key);
    if (rc == xcclInvalidUsage)
        cf_skip(me, "the plugin has no one-sided transfers");
    cf_ok(me, rc, "exportMr");
    return 1;
}

static void window_make(struct cf *me, void *comm, struct window *window)
{
    cf_buffer_make(me, comm, WINDOW_BYTES, 0, &window->data);
    cf_buffer_make(me, comm, 64, 0, &window->word);
    memset(window->word.data, 0, 64);
    exported(me, comm, &window->data, &window->data_key);
    exported(me, comm, &window->word, &window->word_key);
    cf_tell(me, &window->data_key, sizeof(window->data_key));
    cf_tell(me, &window->word_key, sizeof(window->word_key));
}

/* Acquire: what was put before the signal is seen after it. Pairs with the plugin's add. */
static void await(struct cf *me, struct window *window, uint64_t value)
{
    struct cf_patience patience = cf_patience("the arrival of a signal");
    _Atomic uint64_t *word = (void *)window->word.data;

    while (atomic_load_explicit(word, memory_order_acquire) != value)
        cf_turn(me, &patience);
}

static void put_recv(struct cf *me)
{
    void *comm = cf_open(me);
    struct window window;

    window_make(me, comm, &window);
    await(me, &window, 5);
    for (uint64_t i = 0; i < PUTS; i++)
        cf_expect(me, window.data.data + i * PUT_BYTES, PUT_BYTES, i, "a put before its signal");
    cf_expect_guards(me, &window.data, WINDOW_BYTES, "puts");
    cf_barrier(me);
    await(me, &window, 12);
    cf_barrier(me);
    cf_close(me, comm);
}

static void put_one(struct cf *me, void *comm, const struct cf_buffer *from, uint64_t i,
                    const xcclNetMemKey_t *key)
{
    struct cf_patience patience = cf_patience("an iput that is not busy");
    xcclNetRequest_t request = NULL;

    while (!request) {
        cf_enter(me, "iput");
        cf_ok(me,
              me->net->calls.iput(comm, from->data + i * PUT_BYTES, PUT_BYTES, from->mem, key,
                                  i * PUT_BYTES, &request),
              "iput");
        cf_turn(me, &patience);
    }
    cf_wait(me, request, NULL, "the end of an iput");
}

static void signal_one(struct cf *me, void *comm, const struct cf_buffer *from,
                       const xcclNetMemKey_t keys[2], uint64_t value)
{
    struct cf_patience patience = cf_patience("an iputSignal that is not busy");
    xcclNetRequest_t request = NULL;

    while (!request) {
        cf_enter(me, "iputSignal");
        cf_ok(me,
              me->net->calls.iputSignal(comm, from->data, 0, from->mem, &keys[0], 0, &keys[1], 0,
                                        value, &request),
              "iputSignal");
        cf_turn(me, &patience);
    }
    cf_wait(me, request, NULL, "the end of an iputSignal");
}

static void put_send(struct cf *me)
{
    void *comm = cf_open(me);
    xcclNetMemKey_t keys[2];
    struct cf_buffer from;

    cf_hear(me, keys, sizeof(keys));
    cf_buffer_make(me, comm, WINDOW_BYTES, 0, &from);
    for (uint64_t i = 0; i < PUTS; i++)
        cf_fill(from.data + i * PUT_BYTES, PUT_BYTES, i);
    for (uint64_t i = 0; i < PUTS; i++)
        put_one(me, comm, &from, (i * 5) % PUTS, &keys[0]);
    signal_one(me, comm, &from, keys, 5);
    cf_barrier(me);
    signal_one(me, comm, &from, keys, 7);
    cf_barrier(me);
    cf_close(me, comm);
}

static void outside_recv(struct cf *me)
{
    void *comm = cf_open(me);
    struct window window;

    window_make(me, comm, &window);
    cf_barrier(me);
    cf_sleep_ms(20);
    cf_expect_guards(me, &window.data, 0, "a put outside of its range");
    cf_close_recv(me, comm);
}

/* Refused here, or an error of the comm; never done. */
static void outside_send(struct cf *me)
{
    void *comm = cf_open(me);
    xcclNetMemKey_t keys[2];
    struct cf_buffer from;
    xcclNetRequest_t request = NULL;
    xcclResult_t rc;
    int done = 0;

    cf_hear(me, keys, sizeof(keys));
    cf_buffer_make(me, comm, WINDOW_BYTES, 0, &from);
    cf_enter(me, "iput");
    rc = me->net->calls.iput(comm, from.data, 100, from.mem, &keys[0], WINDOW_BYTES - 50, &request);
    for (uint64_t end_ns = cf_now() + 200 * CF_MS; rc == xcclSuccess && request && !done;) {
        rc = cf_test(me, request, &done, NULL);
        if (cf_now() > end_ns)
            break;
    }
    cf_barrier(me);
    cf_close_send(me, comm);
}

const struct cf_case cf_cases_onesided[] = {
    {.name = "puts_come_before_their_signal",
     .forms = CF_PAIRED,
     .flags = CF_OWN,
     .send = put_send,
     .recv = put_recv,
     .text = "a signal makes all earlier puts visible, and adds",
     .why = "it has no one-sided transfers"},
    {.name = "puts_stay_in_their_range",
     .forms = CF_PAIRED,
     .flags = CF_OWN,
     .send = outside_send,
     .recv = outside_recv,
     .text = "a put outside of its range is refused",
     .why = "it has no one-sided transfers"},
    {.name = NULL},
};
