/* SPDX-License-Identifier: BSD-3-Clause */
/* How messages are told from no message, in every order that a device allows: LL, LL128 and SIMPLE
 * as the kernels do them (exec/cuda/dev_lines.h, dev_simple.h), one slot, few messages. Each way of
 * doing a little less must be found wrong, or the model shows nothing. Thread: one. */
#include <stdio.h>

#include "harness/xt.h"
#include "litmus.h"

#define HEAD 0 /* the cell of messages given back, in all models */

/* What is done less, or otherwise. */
enum {
    TORN_STORE = 1, /* two stores for one */
    TORN_LOAD = 2, /* data after their flag, by a load of their own */
    FLAG_FIRST = 4, /* before data */
    HEAD_FIRST = 8, /* before the reads */
    NO_RELEASE = 16, /* of the flag */
    NO_ACQUIRE = 32, /* of the flag */
    NO_HEAD_RELEASE = 64,
    NO_WRITER_BARRIER = 128, /* after the wait for a free slot */
    NO_READER_BARRIER = 256, /* before the slot is given back */
    NO_DATA_BARRIER = 512, /* between data and flag */
    NO_SEEN_BARRIER = 1024, /* between flag and data */
    FENCE = 2048, /* and relaxed stores, for releases of flag and head */
    NO_END = 8192, /* of operations: a release, between messages */
    LANES = 4096 /* store their parts of a line one after another */
};

static void store(struct litmus *model, int thread, int at, int order, int value)
{
    litmus_add(model, thread,
               (struct litmus_op){.kind = LITMUS_STORE,
                                  .order = (uint8_t)order,
                                  .at = (uint8_t)at,
                                  .width = 1,
                                  .value = {(uint8_t)value}});
}

static void load(struct litmus *model, int thread, int at, int value)
{
    litmus_add(model, thread,
               (struct litmus_op){
                   .kind = LITMUS_LOAD, .at = (uint8_t)at, .width = 1, .value = {(uint8_t)value}});
}

static void await(struct litmus *model, int thread, int at, int order, int value)
{
    litmus_add(model, thread,
               (struct litmus_op){.kind = LITMUS_AWAIT,
                                  .order = (uint8_t)order,
                                  .at = (uint8_t)at,
                                  .width = 1,
                                  .value = {(uint8_t)value}});
}

static void barrier(struct litmus *model, int thread)
{
    litmus_add(model, thread, (struct litmus_op){.kind = LITMUS_BARRIER});
}

/* Until the slot is free for this message. */
static void await_head(struct litmus *model, int thread, int message)
{
    litmus_add(model, thread,
               (struct litmus_op){.kind = LITMUS_AWAIT,
                                  .order = LITMUS_ACQUIRE,
                                  .at = HEAD,
                                  .width = 1,
                                  .at_least = 1,
                                  .value = {(uint8_t)message}});
}

static void give_back(struct litmus *model, int thread, int message, int less)
{
    if (less & FENCE)
        litmus_add(model, thread, (struct litmus_op){.kind = LITMUS_FENCE});
    store(model, thread, HEAD, less & (NO_HEAD_RELEASE | FENCE) ? 0 : LITMUS_RELEASE, message + 1);
}

static void check(const struct litmus *model, const char *what, int less, int must_hold)
{
    uint64_t states;
    const char *wrong = litmus_run(model, &states);

    printf("%s, %#x: %llu states, %s\n", what, (unsigned)less, (unsigned long long)states,
           wrong ? wrong : "holds");
    if (must_hold && wrong)
        XT_FAIL("%s, %#x: %s", what, (unsigned)less, wrong);
    if (!must_hold && !wrong)
        XT_FAIL("%s, %#x: nothing was found wrong", what, (unsigned)less);
}

/* --- LL: lines of {data, flag} --- */

static int line_at(int line)
{
    return 1 + 2 * line;
}

static void store_line(struct litmus *model, int thread, int line, int data, int flag, int less)
{
    if (!(less & (TORN_STORE | FLAG_FIRST))) {
        litmus_add(model, thread,
                   (struct litmus_op){.kind = LITMUS_STORE,
                                      .at = (uint8_t)line_at(line),
                                      .width = 2,
                                      .value = {(uint8_t)data, (uint8_t)flag}});
        return;
    }
    if (less & TORN_STORE)
        store(model, thread, line_at(line), 0, data);
    store(model, thread, line_at(line) + 1, 0, flag);
    if (less & FLAG_FIRST)
        store(model, thread, line_at(line), LITMUS_RELEASE, data);
}

static void read_line(struct litmus *model, int thread, int line, int data, int flag, int less)
{
    if (less & TORN_LOAD) {
        await(model, thread, line_at(line) + 1, 0, flag);
        load(model, thread, line_at(line), data);
        return;
    }
    litmus_add(model, thread,
               (struct litmus_op){.kind = LITMUS_AWAIT,
                                  .at = (uint8_t)line_at(line),
                                  .width = 2,
                                  .flag = 1,
                                  .value = {(uint8_t)data, (uint8_t)flag}});
}

/* Two threads at each end, of which the first is the link's owner; a line each. */
static void ll(int less, int must_hold)
{
    struct litmus model = {.nthreads = 4, .block = {0, 0, 1, 1}};

    for (int m = 0; m < 2; m++) {
        await_head(&model, 0, m);
        for (int t = 0; t < 2; t++) {
            if (!(less & NO_WRITER_BARRIER))
                barrier(&model, t);
            store_line(&model, t, t, 10 + 2 * m + t, m + 1, less);
        }
        if (less & HEAD_FIRST)
            give_back(&model, 2, m, less);
        for (int t = 0; t < 2; t++) {
            read_line(&model, 2 + t, t, 10 + 2 * m + t, m + 1, less);
            if (!(less & NO_READER_BARRIER))
                barrier(&model, 2 + t);
        }
        if (!(less & HEAD_FIRST))
            give_back(&model, 2, m, less);
    }
    check(&model, "LL", less, must_hold);
}

XT_TEST(ll_holds)
{
    ll(0, 1);
}

XT_TEST(ll_needs_all_it_has)
{
    static const int less[] = {TORN_STORE, TORN_LOAD,         FLAG_FIRST,
                               HEAD_FIRST, NO_WRITER_BARRIER, NO_READER_BARRIER};

    for (size_t i = 0; i < sizeof less / sizeof less[0]; i++)
        ll(less[i], 0);
}

/* --- step numbers that come again --- */

#define NUMBERS 8 /* flags are step + 1 modulo this, as they are modulo 2^32 on devices */

/* A message of one line in each step, of two where long_at has the step's bit. Every so many steps
 * (0: never) the slot is filled to its end. The reader's barrier keeps a load of a later message
 * from going ahead of all those in between, to a line that is as old as the numbers. Nobody waits
 * for a line that only fills a slot: the release at the end of an operation makes it arrive. */
static void ll_wrap(unsigned long_at, int steps, int clean_every, int less, int must_hold)
{
    struct litmus model = {.nthreads = 2, .block = {0, 1}};

    for (int step = 0; step < steps; step++) {
        int flag = (step + 1) % NUMBERS, is_long = long_at >> step & 1;

        await_head(&model, 0, step);
        store_line(&model, 0, 0, 10 + 2 * step, flag, 0);
        if (is_long)
            store_line(&model, 0, 1, 11 + 2 * step, flag, 0);
        else if (clean_every && step % clean_every == 0)
            store_line(&model, 0, 1, 0, flag, 0);
        if (!(less & NO_END))
            litmus_add(&model, 0, (struct litmus_op){.kind = LITMUS_FENCE});
        read_line(&model, 1, 0, 10 + 2 * step, flag, 0);
        if (is_long)
            read_line(&model, 1, 1, 11 + 2 * step, flag, 0);
        if (!(less & NO_READER_BARRIER))
            barrier(&model, 1);
        give_back(&model, 1, step, 0);
    }
    check(&model, "LL, numbers again", less, must_hold);
}

XT_TEST(ll_stale_flags_are_told)
{
    ll_wrap(1u << 0 | 1u << NUMBERS, NUMBERS + 1, 2, 0, 1);
    ll_wrap(1u << 3 | 1u << (NUMBERS + 3), NUMBERS + 4, 2, 0, 1);
    ll_wrap(1u << (NUMBERS - 1), NUMBERS, 2, 0, 1);
}

XT_TEST(ll_stale_flags_need_filled_slots)
{
    ll_wrap(1u << 0 | 1u << NUMBERS, NUMBERS + 1, 0, 0, 0);
    ll_wrap(1u << 3 | 1u << (NUMBERS + 3), NUMBERS + 4, 0, 0, 0);
    /* The flag of the last number is that of memory which nobody has written. */
    ll_wrap(1u << (NUMBERS - 1), NUMBERS, 0, 0, 0);
}

XT_TEST(ll_stale_flags_need_the_barrier)
{
    ll_wrap(1u << 0 | 1u << NUMBERS, NUMBERS + 1, 2, NO_READER_BARRIER, 0);
}

XT_TEST(ll_stale_flags_need_ends_of_operations)
{
    ll_wrap(1u << 0 | 1u << NUMBERS, NUMBERS + 1, 2, NO_END, 0);
}

/* --- LL128: a line of {data, data, flag}, behind the slot's first --- */

#define LOW   1 /* whose call it is */
#define FIRST 2 /* the flag of the first line */
#define LINE  3

static void store_line128(struct litmus *model, int message, int less)
{
    struct litmus_op op = {
        .kind = LITMUS_STORE,
        .at = LINE,
        .width = 3,
        .value = {(uint8_t)(20 + message), (uint8_t)(30 + message), (uint8_t)(message + 1)}};

    if (less & (TORN_STORE | LANES)) {
        store(model, 0, LINE, 0, op.value[0]);
        op = (struct litmus_op){
            .kind = LITMUS_STORE, .at = LINE + 1, .width = 2, .value = {op.value[1], op.value[2]}};
    }
    if (less & LANES)
        op.order = less & NO_RELEASE ? 0 : LITMUS_RELEASE;
    litmus_add(model, 0, op);
}

static void read_line128(struct litmus *model, int message, int less)
{
    struct litmus_op op = {
        .kind = LITMUS_AWAIT,
        .at = LINE,
        .width = 3,
        .flag = 2,
        .value = {(uint8_t)(20 + message), (uint8_t)(30 + message), (uint8_t)(message + 1)}};

    if (less & (TORN_LOAD | LANES)) {
        await(model, 1, LINE + 2, less & LANES && !(less & NO_ACQUIRE) ? LITMUS_ACQUIRE : 0,
              message + 1);
        op.kind = LITMUS_LOAD;
        op.width = 2;
    }
    litmus_add(model, 1, op);
}

static void ll128(int less, int must_hold)
{
    struct litmus model = {.nthreads = 2, .block = {0, 1}};

    for (int m = 0; m < 2; m++) {
        await_head(&model, 0, m);
        if (less & FLAG_FIRST)
            store(&model, 0, FIRST, 0, m + 1);
        store(&model, 0, LOW, 0, 40 + m);
        if (!(less & FLAG_FIRST))
            store(&model, 0, FIRST, less & NO_RELEASE ? 0 : LITMUS_RELEASE, m + 1);
        store_line128(&model, m, less);
        if (less & HEAD_FIRST)
            give_back(&model, 1, m, less);
        await(&model, 1, FIRST, less & NO_ACQUIRE ? 0 : LITMUS_ACQUIRE, m + 1);
        load(&model, 1, LOW, 40 + m);
        read_line128(&model, m, less);
        if (!(less & HEAD_FIRST))
            give_back(&model, 1, m, less);
    }
    check(&model, "LL128", less, must_hold);
}

XT_TEST(ll128_holds)
{
    ll128(0, 1);
    ll128(LANES, 1); /* with order where lines do not stay whole */
}

XT_TEST(ll128_needs_all_it_has)
{
    static const int less[] = {TORN_STORE,      TORN_LOAD,          FLAG_FIRST,
                               HEAD_FIRST,      NO_RELEASE,         NO_ACQUIRE,
                               NO_HEAD_RELEASE, LANES | NO_RELEASE, LANES | NO_ACQUIRE};

    for (size_t i = 0; i < sizeof less / sizeof less[0]; i++)
        ll128(less[i], 0);
}

/* --- SIMPLE: payload, bytes, flag --- */

#define FLAG    1
#define BYTES   2
#define PAYLOAD 3

static void write_simple(struct litmus *model, int message, int less)
{
    await_head(model, 0, message);
    if (less & FLAG_FIRST)
        store(model, 0, FLAG, LITMUS_RELEASE, message + 1);
    for (int t = 0; t < 2; t++) {
        if (!(less & NO_WRITER_BARRIER))
            barrier(model, t);
        store(model, t, PAYLOAD + t, 0, 10 + 2 * message + t);
        if (!(less & NO_DATA_BARRIER))
            barrier(model, t);
    }
    store(model, 0, BYTES, 0, 40 + message);
    if (less & FENCE)
        litmus_add(model, 0, (struct litmus_op){.kind = LITMUS_FENCE});
    if (!(less & FLAG_FIRST))
        store(model, 0, FLAG, less & (NO_RELEASE | FENCE) ? 0 : LITMUS_RELEASE, message + 1);
}

/* By two threads, or by one, whose reads no barrier puts before the head. */
static void read_simple(struct litmus *model, int readers, int message, int less)
{
    await(model, 2, FLAG, less & NO_ACQUIRE ? 0 : LITMUS_ACQUIRE, message + 1);
    load(model, 2, BYTES, 40 + message);
    if (less & HEAD_FIRST)
        give_back(model, 2, message, less);
    for (int t = 0; t < readers; t++) {
        if (readers > 1 && !(less & NO_SEEN_BARRIER))
            barrier(model, 2 + t);
        load(model, 2 + t, PAYLOAD + t, 10 + 2 * message + t);
        if (readers > 1 && !(less & NO_READER_BARRIER))
            barrier(model, 2 + t);
    }
    if (readers == 1)
        load(model, 2, PAYLOAD + 1, 11 + 2 * message);
    if (!(less & HEAD_FIRST))
        give_back(model, 2, message, less);
}

static void simple(int readers, int less, int must_hold)
{
    struct litmus model = {.nthreads = 2 + readers, .block = {0, 0, 1, 1}};

    for (int m = 0; m < 2; m++) {
        write_simple(&model, m, less);
        read_simple(&model, readers, m, less);
    }
    check(&model, readers == 2 ? "SIMPLE" : "SIMPLE, one reader", less, must_hold);
}

XT_TEST(simple_holds)
{
    simple(2, 0, 1);
    simple(1, 0, 1);
    simple(2, FENCE, 1); /* as schedules do it; the others are messages */
    simple(1, FENCE, 1);
}

XT_TEST(simple_needs_all_it_has)
{
    static const int less[] = {NO_RELEASE,        NO_ACQUIRE,       FLAG_FIRST,
                               HEAD_FIRST,        NO_DATA_BARRIER,  NO_SEEN_BARRIER,
                               NO_WRITER_BARRIER, NO_READER_BARRIER};

    for (size_t i = 0; i < sizeof less / sizeof less[0]; i++)
        simple(2, less[i], 0);
    simple(1, NO_HEAD_RELEASE, 0);
}
