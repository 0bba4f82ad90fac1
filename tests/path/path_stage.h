/* SPDX-License-Identifier: BSD-3-Clause */
/* What the processes of a test on a path share: words to wait for each other, the place where two
 * of them meet, a clock, and a plain TCP stream to compare with.
 *
 * Thread: the main one of each process. */
#ifndef PATH_STAGE_H
#define PATH_STAGE_H

#include <stdatomic.h>
#include <stdint.h>

#include "xccl_net.h"
#include "xt.h"

#define PATH_WAIT_MS 20000 /* for another process of the test */

/* One connection, or one plain stream, in shared memory. All zero at first. */
struct path_meet {
    _Atomic uint32_t ready; /* the receiver listens; handle or port is set */
    _Atomic uint32_t stop; /* number of windows that the receiver has ended */
    _Atomic uint32_t stopped; /* number of windows whose total is set */
    xcclNetHandle_t handle;
    uint16_t port;
    uint64_t total; /* messages that the sender has posted up to then */
};

double path_seconds(void); /* monotonic */
void path_nap_ms(long ms);

/* Memory of this process and those that it forks from now on, all zero. */
void *path_shared(size_t bytes);

/* Sets a word and wakes who waits for it. */
void path_word_set(_Atomic uint32_t *word, uint32_t value);
uint32_t path_word_get(const _Atomic uint32_t *word);
/* Asleep until the word has reached value; the test fails when that takes PATH_WAIT_MS. */
void path_word_await(_Atomic uint32_t *word, uint32_t value);
/* Asleep until the word has reached value; 0 when it has not after ms. */
int path_word_within(_Atomic uint32_t *word, uint32_t value, int ms);

/* A process tells yes or no, again and again, number counting from 1; the others ask for it. */
void path_tell(_Atomic uint32_t *word, uint32_t number, int yes);
int path_ask(_Atomic uint32_t *word, uint32_t number);

/* Prints a line of figures, also to the end of the file that XT_PATH_FIGURES names, if any. */
void path_figure(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Ends a test of xt_mp_start: the ranks whose bits are set in killed were killed, all others
 * passed, or the test fails. */
void path_ranks_end(struct xt_mp *mp, int nranks, unsigned killed);

/* Both ends of one TCP stream with the options of the plugin, for warm_s and then time_s. address
 * is the receiver's. Returns the receiver's bytes per second, and 0 to the sender. */
double path_plain_rate(struct path_meet *meet, int is_send, const char *address, double warm_s,
                       double time_s);

#endif
