// SPDX-License-Identifier: BSD-3-Clause
/* The device thread and what it is given. See emu_device.h. Thread: any; one lock. */
#include "emu_device.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "emu_fibers.h"

#define IDLE_ROUNDS 200 /* of nothing but polls, before the device thread sleeps between them */
#define SYNC_S      120 /* a kernel that has not ended by then never does */

enum { OK = 0, INVALID_VALUE = 1, NOT_READY = 600, NOT_IN_CAPTURE = 900, ISOLATION = 905 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static std::vector<emu_op_ptr> &pending = *new std::vector<emu_op_ptr>;
static std::set<struct emu_graph *> &captures = *new std::set<struct emu_graph *>;
static unsigned posted; /* operations ever, or ended */
static std::set<emu_op_ptr> &kernels = *new std::set<emu_op_ptr>; /* at work */

static double now_ms()
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* ---- the device thread ---- */

static int is_ready(emu_op *op)
{
    for (auto &before : op->after)
        if (!before->is_done)
            return 0;
    op->after.clear();
    return 1;
}

/* With the lock. */
static void finish(const emu_op_ptr &op)
{
    op->is_done = 1;
    kernels.erase(op);
    op->done_at = now_ms();
    posted++;
    pthread_cond_broadcast(&changed);
}

static void begin(const emu_op_ptr &op, std::vector<emu_op_ptr> *running)
{
    switch (op->kind) {
    case EMU_COPY:
        memmove(op->to, op->kept.empty() ? op->from : op->kept.data(), op->bytes);
        break;
    case EMU_SET:
        memset(op->to, op->value, op->bytes);
        break;
    case EMU_KERNEL:
        op->launch = emu_launch_create(op->kernel, op->parameter.data(), op->parameter.size(),
                                       op->blocks);
        running->push_back(op);
        pthread_mutex_lock(&lock);
        kernels.insert(op);
        pthread_mutex_unlock(&lock);
        return;
    default:
        break;
    }
    pthread_mutex_lock(&lock);
    finish(op);
    pthread_mutex_unlock(&lock);
}

/* What can begin now, in the order in which it was given. */
static std::vector<emu_op_ptr> take_ready()
{
    std::vector<emu_op_ptr> ready, rest;

    pthread_mutex_lock(&lock);
    for (auto &op : pending)
        (is_ready(op.get()) ? ready : rest).push_back(op);
    pending.swap(rest);
    pthread_mutex_unlock(&lock);
    return ready;
}

/* One round of all kernels; 1: something did more than to poll. */
static int run_round(std::vector<emu_op_ptr> *running)
{
    std::vector<emu_op_ptr> rest;
    int moved = 0;

    for (auto &op : *running) {
        moved |= emu_launch_round(op->launch);
        if (!emu_launch_is_over(op->launch)) {
            rest.push_back(op);
            continue;
        }
        emu_launch_destroy(op->launch);
        pthread_mutex_lock(&lock);
        finish(op);
        pthread_mutex_unlock(&lock);
    }
    running->swap(rest);
    return moved;
}

static void *device_thread(void *unused)
{
    std::vector<emu_op_ptr> running;
    unsigned seen = 0, idle = 0;

    (void)unused;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (running.empty() && seen == posted)
            pthread_cond_wait(&changed, &lock);
        unsigned have = posted;
        pthread_mutex_unlock(&lock);
        if (seen != have) {
            seen = have;
            for (auto &op : take_ready())
                begin(op, &running);
        }
        idle = run_round(&running) ? 0 : idle + 1;
        if (idle > IDLE_ROUNDS)
            usleep(50);
        else if (idle > 1)
            sched_yield();
    }
    return nullptr;
}

static void start_thread()
{
    pthread_t thread;

    if (pthread_create(&thread, nullptr, device_thread, nullptr))
        abort();
    pthread_detach(thread);
}

/* With the lock. */
static void post(const emu_op_ptr &op)
{
    pthread_once(&once, start_thread);
    pending.push_back(op);
    posted++;
    pthread_cond_broadcast(&changed);
}

/* ---- streams and events ---- */

/* Behind what the stream has. With the lock. */
static void append(struct emu_stream *stream, const emu_op_ptr &op)
{
    if (stream->last && (stream->graph || !stream->last->is_done))
        op->after.push_back(stream->last);
    stream->last = op;
    if (stream->graph) {
        op->graph = stream->graph;
        stream->graph->ops.push_back(op);
    } else {
        post(op);
    }
}

void emu_kernels_sync(void)
{
    struct timespec end;

    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += SYNC_S;
    pthread_mutex_lock(&lock);
    const std::set<emu_op_ptr> before = kernels;

    for (auto &op : before)
        while (!op->is_done)
            if (pthread_cond_timedwait(&changed, &lock, &end)) {
                fputs("memory is freed while a kernel does not end\n", stderr);
                abort();
            }
    pthread_mutex_unlock(&lock);
}

int emu_enqueue(struct emu_stream *stream, const emu_op_ptr &op)
{
    pthread_mutex_lock(&lock);
    append(stream, op);
    pthread_mutex_unlock(&lock);
    return OK;
}

static int wait_locked(struct emu_stream *stream, struct emu_event *event)
{
    auto op = std::make_shared<emu_op>();

    if (!event->op)
        return OK;
    if (stream->graph && event->op->graph != stream->graph)
        return ISOLATION;
    if (event->op->graph && captures.count(event->op->graph) && !stream->graph) {
        stream->graph = event->op->graph;
        stream->last = nullptr;
        stream->graph->streams.insert(stream);
    } else if (event->op->graph && !stream->graph) {
        return NOT_IN_CAPTURE;
    }
    op->after.push_back(event->op);
    append(stream, op);
    return OK;
}

int emu_stream_wait(struct emu_stream *stream, struct emu_event *event)
{
    pthread_mutex_lock(&lock);
    int rc = wait_locked(stream, event);
    pthread_mutex_unlock(&lock);
    return rc;
}

int emu_event_record(struct emu_event *event, struct emu_stream *stream)
{
    auto op = std::make_shared<emu_op>();

    pthread_mutex_lock(&lock);
    append(stream, op);
    event->op = op;
    pthread_mutex_unlock(&lock);
    return OK;
}

int emu_op_sync(const emu_op_ptr &op)
{
    int rc = OK;

    pthread_mutex_lock(&lock);
    if (op && op->graph)
        rc = NOT_IN_CAPTURE;
    while (op && !rc && !op->is_done)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return rc;
}

int emu_op_query(const emu_op_ptr &op)
{
    pthread_mutex_lock(&lock);
    int rc = !op ? OK : op->graph ? NOT_IN_CAPTURE : op->is_done ? OK : NOT_READY;
    pthread_mutex_unlock(&lock);
    return rc;
}

/* ---- graphs ---- */

int emu_capture_begin(struct emu_stream *stream, int mode)
{
    int rc = OK;

    pthread_mutex_lock(&lock);
    if (stream->graph) {
        rc = NOT_IN_CAPTURE;
    } else {
        stream->graph = new emu_graph;
        stream->graph->origin = stream;
        stream->graph->mode = mode;
        stream->graph->streams.insert(stream);
        stream->last = nullptr;
        captures.insert(stream->graph);
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

int emu_capture_end(struct emu_stream *stream, struct emu_graph **graph_out)
{
    struct emu_graph *graph = stream->graph;

    if (!graph || graph->origin != stream)
        return NOT_IN_CAPTURE;
    pthread_mutex_lock(&lock);
    captures.erase(graph);
    for (auto *member : graph->streams) {
        member->graph = nullptr;
        member->last = nullptr;
    }
    graph->streams.clear();
    pthread_mutex_unlock(&lock);
    *graph_out = graph;
    return OK;
}

int emu_graph_launch(const struct emu_graph *graph, struct emu_stream *stream)
{
    std::map<emu_op *, emu_op_ptr> copies;
    auto end = std::make_shared<emu_op>();

    pthread_mutex_lock(&lock);
    emu_op_ptr before = stream->last;
    for (auto &pattern : graph->ops) {
        auto copy = std::make_shared<emu_op>(*pattern);

        copy->graph = nullptr;
        copy->after.clear();
        for (auto &one : pattern->after)
            copy->after.push_back(copies[one.get()]);
        if (before)
            copy->after.push_back(before);
        copies[pattern.get()] = copy;
        end->after.push_back(copy);
        post(copy);
    }
    append(stream, end);
    pthread_mutex_unlock(&lock);
    return OK;
}

int emu_is_capturing_for_all()
{
    int is = 0;

    pthread_mutex_lock(&lock);
    for (auto *graph : captures)
        is |= graph->mode == 0;
    pthread_mutex_unlock(&lock);
    return is;
}
