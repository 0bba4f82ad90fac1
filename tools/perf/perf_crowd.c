/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks as threads: all of them begin, or none.
 *
 * Thread: the one that starts them, and theirs. */
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>

#include "base/alloc.h"
#include "perf/perf.h"

#define STACK_BYTES (512u << 10)

struct xccl_perf_gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum { GATE_SHUT, GATE_OPEN, GATE_GONE } state;
};

struct xccl_perf_gate *xccl_perf_gate_create(void)
{
    struct xccl_perf_gate *gate = xccl_calloc(1, sizeof(*gate));

    if (!gate)
        return NULL;
    pthread_mutex_init(&gate->lock, NULL);
    pthread_cond_init(&gate->changed, NULL);
    return gate;
}

void xccl_perf_gate_destroy(struct xccl_perf_gate *gate)
{
    if (!gate)
        return;
    pthread_cond_destroy(&gate->changed);
    pthread_mutex_destroy(&gate->lock);
    xccl_free(gate);
}

int xccl_perf_gate_pass(struct xccl_perf_gate *gate)
{
    int open = 0;

    if (!gate)
        return 1;
    pthread_mutex_lock(&gate->lock);
    while (gate->state == GATE_SHUT)
        pthread_cond_wait(&gate->changed, &gate->lock);
    open = gate->state == GATE_OPEN;
    pthread_mutex_unlock(&gate->lock);
    return open;
}

static void set_gate(struct xccl_perf_gate *gate, int open)
{
    pthread_mutex_lock(&gate->lock);
    gate->state = open ? GATE_OPEN : GATE_GONE;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

/* Connections of many ranks meet in one table of descriptors. */
static void raise_file_limit(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files))
        return;
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
}

int xccl_perf_crowd_run(struct xccl_perf_gate *gate, void *items, size_t item_bytes, int count,
                        void *(*run)(void *item))
{
    pthread_t *threads = xccl_calloc((size_t)count, sizeof(*threads));
    pthread_attr_t attr;
    int started = 0, error = 0;

    if (!threads)
        return 0;
    raise_file_limit();
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    while (started < count && !error) {
        error = pthread_create(&threads[started], &attr, run,
                               (char *)items + (size_t)started * item_bytes);
        started += !error;
    }
    pthread_attr_destroy(&attr);
    set_gate(gate, !error);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    xccl_free(threads);
    if (error)
        fprintf(stderr, "xccl perf: only %d threads of %d could be started: %s\n", started, count,
                strerror(error));
    return !error;
}
