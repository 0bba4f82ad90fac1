// SPDX-License-Identifier: BSD-3-Clause
/* The device thread and what it is given. See emu_device.h. Thread: any; one lock. */
#include "emu_device.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
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
static uint64_t capture_ids;
static unsigned posted; /* operations ever, or ended */
static std::set<emu_op_ptr> &kernels = *new std::set<emu_op_ptr>; /* at work */
/* XCCL_EMU_HOLD: work goes on only for those who wait. */
static std::multiset<emu_op *> &awaited = *new std::multiset<emu_op *>;
static int asked; /* 1: somebody has asked, and waits for one round */

static double now_ms()
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* ---- the device thread ---- */

static int holds()
{
    static const int is_set = getenv("XCCL_EMU_HOLD") != nullptr;

    return is_set;
}

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
    awaited.erase(op.get());
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

/* How many more blocks the device has room for: one on each multiprocessor. */
static uint32_t *room_of(int device)
{
    static std::map<int, uint32_t> &rooms = *new std::map<int, uint32_t>;
    const char *text = getenv("XCCL_EMU_SMS");

    return &rooms.emplace(device, text ? (uint32_t)atoi(text) : EMU_SMS).first->second;
}

/* One round of all kernels; 1: something did more than to poll. */
static int run_round(std::vector<emu_op_ptr> *running)
{
    std::vector<emu_op_ptr> rest;
    int moved = 0;

    for (auto &op : *running) {
        moved |= emu_launch_round(op->launch, room_of(op->device));
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

/* With the lock: the round that somebody asked for is over. */
static void answer()
{
    if (!asked)
        return;
    asked = 0;
    pthread_cond_broadcast(&changed);
}

static void *device_thread(void *unused)
{
    std::vector<emu_op_ptr> running;
    unsigned seen = 0, idle = 0;

    (void)unused;
    for (;;) {
        pthread_mutex_lock(&lock);
        while ((running.empty() && seen == posted) || (holds() && awaited.empty() && !asked)) {
            answer();
            pthread_cond_wait(&changed, &lock);
        }
        unsigned have = posted;
        pthread_mutex_unlock(&lock);
        if (seen != have) {
            seen = have;
            for (auto &op : take_ready())
                begin(op, &running);
        }
        idle = run_round(&running) ? 0 : idle + 1;
        pthread_mutex_lock(&lock);
        answer();
        pthread_mutex_unlock(&lock);
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

/* With the lock. What the stream has outside of the graph stays as it is. */
static void join_capture(struct emu_stream *stream, struct emu_graph *graph)
{
    stream->graph = graph;
    stream->before = stream->last;
    stream->last = nullptr;
    graph->streams.insert(stream);
}

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

/* With the lock, before a wait for the end of an operation. */
static void await(const emu_op_ptr &op)
{
    if (op && !op->is_done) {
        awaited.insert(op.get());
        pthread_cond_broadcast(&changed);
    }
}

void emu_kernels_sync(void)
{
    struct timespec end;

    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += SYNC_S;
    pthread_mutex_lock(&lock);
    const std::set<emu_op_ptr> before = kernels;

    for (auto &op : before) {
        await(op);
        while (!op->is_done)
            if (pthread_cond_timedwait(&changed, &lock, &end)) {
                fputs("memory is freed while a kernel does not end\n", stderr);
                abort();
            }
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
        join_capture(stream, event->op->graph);
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
    else
        await(op);
    while (op && !rc && !op->is_done)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return rc;
}

int emu_op_query(const emu_op_ptr &op)
{
    pthread_mutex_lock(&lock);
    if (holds() && op && !op->graph && !op->is_done) {
        asked = 1;
        pthread_cond_broadcast(&changed);
        while (asked)
            pthread_cond_wait(&changed, &lock);
    }
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
        join_capture(stream, new emu_graph);
        stream->graph->origin = stream;
        stream->graph->mode = mode;
        stream->graph->id = ++capture_ids;
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
        member->last = member->before;
        member->before = nullptr;
    }
    graph->streams.clear();
    pthread_mutex_unlock(&lock);
    *graph_out = graph;
    return OK;
}

/* With the lock: a node of the graph by its handle; NULL: it has none such. */
static emu_op_ptr node_of(const struct emu_graph *graph, const struct emu_op *handle)
{
    for (auto &op : graph->ops)
        if (op.get() == handle)
            return op;
    return nullptr;
}

int emu_capture_wait(struct emu_stream *stream, struct emu_event *event)
{
    auto op = std::make_shared<emu_op>();
    int rc = INVALID_VALUE;

    op->kind = EMU_WAIT;
    op->event = event;
    pthread_mutex_lock(&lock);
    if (stream->graph) {
        append(stream, op);
        rc = OK;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

int emu_capture_depend(struct emu_stream *stream, struct emu_op *const *ops, size_t count)
{
    auto join = std::make_shared<emu_op>();
    int rc = OK;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count && !rc; i++) {
        emu_op_ptr op = stream->graph ? node_of(stream->graph, ops[i]) : nullptr;

        rc = op ? OK : INVALID_VALUE;
        join->after.push_back(op);
    }
    if (!rc)
        append(stream, join);
    pthread_mutex_unlock(&lock);
    return rc;
}

int emu_graph_record(struct emu_graph *graph, struct emu_op *const *after, size_t count,
                     struct emu_event *event, struct emu_op **op_out)
{
    auto op = std::make_shared<emu_op>();
    int rc = OK;

    op->kind = EMU_RECORD;
    op->event = event;
    op->graph = graph;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count && !rc; i++) {
        emu_op_ptr before = node_of(graph, after[i]);

        rc = before ? OK : INVALID_VALUE;
        op->after.push_back(before);
    }
    if (!rc) {
        graph->ops.push_back(op);
        *op_out = op.get();
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

/* With the lock. */
static int set_edge(const struct emu_graph *graph, const struct emu_op *from,
                    const struct emu_op *to, int removes)
{
    emu_op_ptr before = node_of(graph, from), op = node_of(graph, to);

    if (!before || !op)
        return INVALID_VALUE;
    auto at = std::find(op->after.begin(), op->after.end(), before);
    if ((at != op->after.end()) != removes)
        return INVALID_VALUE;
    if (removes)
        op->after.erase(at);
    else
        op->after.push_back(before);
    return OK;
}

int emu_graph_edges(struct emu_graph *graph, struct emu_op *const *from, struct emu_op *const *to,
                    size_t count, int removes)
{
    int rc = OK;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count && !rc; i++)
        rc = set_edge(graph, from[i], to[i], removes);
    pthread_mutex_unlock(&lock);
    return rc;
}

/* With the lock: what a launch of the graph makes of its nodes, without their order. */
static std::map<emu_op *, emu_op_ptr> copy_nodes(const struct emu_graph *graph)
{
    std::map<emu_op *, emu_op_ptr> copies;

    for (auto &pattern : graph->ops) {
        auto copy = std::make_shared<emu_op>(*pattern);

        copy->graph = nullptr;
        copy->after.clear();
        if (copy->kind == EMU_WAIT && copy->event->op)
            copy->after.push_back(copy->event->op);
        copies[pattern.get()] = copy;
    }
    return copies;
}

/* Behind what the stream has and behind the graph's launch before. Waits for events are for what
 * was recorded before this launch, by whichever call or launch. */
int emu_graph_launch(struct emu_graph *graph, struct emu_stream *stream)
{
    auto end = std::make_shared<emu_op>();

    pthread_mutex_lock(&lock);
    auto copies = copy_nodes(graph);
    for (auto &pattern : graph->ops) {
        auto &copy = copies[pattern.get()];

        for (auto &one : pattern->after)
            copy->after.push_back(copies[one.get()]);
        if (stream->last)
            copy->after.push_back(stream->last);
        if (graph->last)
            copy->after.push_back(graph->last);
        if (copy->kind == EMU_RECORD)
            copy->event->op = copy;
        end->after.push_back(copy);
        post(copy);
    }
    graph->last = end;
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
