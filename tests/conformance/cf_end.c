/* SPDX-License-Identifier: BSD-3-Clause */
/* How a case ends, and the small things that every case needs: time, random numbers, patience. A
 * verdict goes into the memory shared with the runner; the first one stays. The process then ends
 * without tidying up: it was made for this case alone.
 *
 * Thread: any. */
#include "cf_int.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "pulse.h"

#define TEXT_MS     1000
#define EXIT_FAILED 3 /* any number but 0: the verdict is in the shared memory */

void cf_settle(struct cf_shared *shared, int verdict, const char *text)
{
    int none = CF_NONE;

    /* Only the winner writes the text; release pairs with the acquire of the runner's look at
     * text_ready. */
    if (!atomic_compare_exchange_strong_explicit(&shared->verdict, &none, verdict,
                                                 memory_order_acq_rel, memory_order_acquire)) {
        /* The caller ends the process, in which the winner may be writing: it is waited for, unless
         * it has died. Acquire: pairs with the release below. */
        for (int i = 0; i < TEXT_MS; i++) {
            if (atomic_load_explicit(&shared->text_ready, memory_order_acquire))
                return;
            cf_sleep_ms(1);
        }
        return;
    }
    snprintf(shared->text, sizeof(shared->text), "%s", text);
    atomic_store_explicit(&shared->text_ready, 1, memory_order_release);
}

/* Ends the process with this verdict; the text begins with the role where there are two. */
__attribute__((format(printf, 3, 0))) _Noreturn static void settle_as(struct cf *me, int verdict,
                                                                      const char *fmt, va_list args)
{
    char text[CF_TEXT_BYTES];
    size_t used = 0;

    if (me->test->forms & CF_PAIRED && me->form != CF_SINGLE)
        used = (size_t)snprintf(text, sizeof(text),
                                "%s: ", me->role == CF_SENDER ? "sender" : "receiver");
    vsnprintf(text + used, sizeof(text) - used, fmt, args);
    cf_settle(me->shared, verdict, text);
    _exit(EXIT_FAILED);
}

void cf_fail(struct cf *me, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    settle_as(me, CF_FAILED, fmt, args);
}

void cf_note(struct cf *me, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    settle_as(me, CF_NOTED, fmt, args);
}

void cf_breach(struct cf *me, const char *fmt, ...)
{
    char text[CF_TEXT_BYTES];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (me->own_contract)
        cf_fail(me, "%s", text);
    cf_note(me, "%s; NCCL's contract does not ask for it", text);
}

void cf_skip(struct cf *me, const char *fmt, ...)
{
    char text[CF_TEXT_BYTES];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    cf_settle(me->shared, CF_SKIPPED, text);
    _exit(EXIT_FAILED);
}

const char *cf_result_name(xcclResult_t rc)
{
    return xccl_result_text(rc);
}

void cf_ok(struct cf *me, xcclResult_t rc, const char *what)
{
    const char *text;

    if (rc == xcclSuccess)
        return;
    text = me->net ? me->net->calls.lastError(me->net->ctx) : xccl_error_text();
    cf_fail(me, "%s failed, but must succeed: %s (%d), lastError: %s", what, xccl_result_text(rc),
            (int)rc, text && *text ? text : "(no text)");
}

/* Set by the runner, which forks all others. */
static struct pulse *pulse;

uint64_t cf_now(void)
{
    return pulse_now(pulse);
}

void cf_beat(void)
{
    if (!pulse) {
        pulse = mmap(NULL, sizeof(*pulse), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                     0);
        if (pulse == MAP_FAILED)
            pulse = NULL;
    }
    if (pulse)
        pulse_beat(pulse);
}

/* SplitMix64. */
uint64_t cf_random(struct cf *me)
{
    uint64_t x = me->random += 0x9e3779b97f4a7c15u;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

size_t cf_pick(struct cf *me, size_t below)
{
    return (size_t)(cf_random(me) % below);
}

size_t cf_at_most(const struct cf *me, size_t bytes)
{
    return bytes < me->max_bytes ? bytes : (size_t)me->max_bytes;
}

void cf_sleep_ms(uint64_t ms)
{
    struct timespec rest = {(time_t)(ms / 1000), (long)(ms % 1000 * CF_MS)};

    nanosleep(&rest, NULL);
}

struct cf cf_share(struct cf *me, uint64_t salt)
{
    struct cf other = *me;

    other.random = me->seed * 31 + salt;
    return other;
}

/* A machine with much else to do moves 64 MB a second. */
#define BUSY_BYTES_A_MS (64u << 10)

/* Set before the process has a second thread. The more is for large messages. */
static uint64_t wait_ms = CF_WAIT_MS, more_ms;

void cf_patience_set(uint64_t timeout_ms)
{
    uint64_t most_ms = timeout_ms * 3 / 4;

    if (!timeout_ms)
        return;
    if (most_ms < wait_ms)
        wait_ms = most_ms;
    more_ms = most_ms - wait_ms;
}

uint64_t cf_patience_ms(const struct cf *me)
{
    uint64_t ms = me->largest_bytes / BUSY_BYTES_A_MS;

    return wait_ms + (ms < more_ms ? ms : more_ms);
}

struct cf_patience cf_patience(const char *what)
{
    return (struct cf_patience){cf_now(), 0, what};
}

void cf_turn(struct cf *me, struct cf_patience *patience)
{
    int pending = 0;

    if (me->props.needsProgress) {
        uint64_t begin_ns = cf_enter_short(me, "progress");

        cf_ok(me, me->net->calls.progress(me->net->ctx, &pending), "progress");
        cf_leave(me, "progress", begin_ns);
    }
    if (++patience->turns % 8 == 0)
        sched_yield();
    if (patience->turns % 64 == 0 && cf_now() > patience->begin_ns + cf_patience_ms(me) * CF_MS) {
        /* Not where this role only follows another verdict. Relaxed: the process ends before the
         * runner reads it. */
        if (!atomic_load_explicit(&me->shared->verdict, memory_order_relaxed))
            atomic_store_explicit(&me->shared->waited, 1, memory_order_relaxed);
        cf_fail(me, "%s " CF_WAITED " %.1f s", patience->what, (double)cf_patience_ms(me) / 1000);
    }
}
