/* SPDX-License-Identifier: BSD-3-Clause */
/* Work of the stand-in's devices: operations in an order that streams, events and graphs give, all
 * of them run by one device thread, kernels side by side. A capture makes patterns of operations,
 * which a launch of their graph copies.
 *
 * Thread: any; the functions lock. */
#ifndef TESTS_EMU_EMU_DEVICE_H
#define TESTS_EMU_EMU_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include <memory>
#include <set>
#include <vector>

#define EMU_SMS 132 /* multiprocessors, without XCCL_EMU_SMS */

enum emu_kind { EMU_NOTHING, EMU_COPY, EMU_SET, EMU_KERNEL, EMU_WAIT, EMU_RECORD };

struct emu_graph;
struct emu_event;

struct emu_op {
    enum emu_kind kind = EMU_NOTHING;
    std::vector<std::shared_ptr<emu_op>> after; /* what must be done before */
    struct emu_graph *graph = nullptr; /* a pattern of it */
    struct emu_event *event = nullptr; /* that each launch of the graph waits for, or records */
    char *to = nullptr; /* copies and settings */
    const char *from = nullptr;
    std::vector<char> kept; /* a copy's source, where the caller may change it at once */
    size_t bytes = 0;
    int value = 0;
    void *kernel = nullptr;
    std::vector<char> parameter;
    uint32_t blocks = 0;
    int device = 0;
    struct emu_launch *launch = nullptr;
    int is_done = 0;
    double done_at = 0; /* milliseconds */
};
typedef std::shared_ptr<emu_op> emu_op_ptr;

/* Also of a graph that was instantiated. */
struct emu_graph {
    std::vector<emu_op_ptr> ops;
    std::set<struct emu_stream *> streams; /* that are captured */
    struct emu_stream *origin = nullptr;
    int mode = 0;
    uint64_t id = 0; /* of its capture */
    emu_op_ptr last; /* the end of its last launch */
};

struct emu_stream {
    emu_op_ptr last;
    uint64_t id = 0;
    struct emu_graph *graph = nullptr; /* captured into this one */
    emu_op_ptr before; /* meanwhile: what was last outside of it */
};

struct emu_event {
    emu_op_ptr op;
};

/* Results are those of the driver API. */
int emu_enqueue(struct emu_stream *stream, const emu_op_ptr &op);
int emu_stream_wait(struct emu_stream *stream, struct emu_event *event);
int emu_event_record(struct emu_event *event, struct emu_stream *stream);
int emu_op_sync(const emu_op_ptr &op); /* NULL: nothing to wait for */
int emu_op_query(const emu_op_ptr &op);
void emu_kernels_sync(void); /* those that are at work now */
int emu_capture_begin(struct emu_stream *stream, int mode);
int emu_capture_end(struct emu_stream *stream, struct emu_graph **graph_out);
int emu_graph_launch(struct emu_graph *graph, struct emu_stream *stream);
/* In captures: nodes of events, which each launch of the graph waits for or records. */
int emu_capture_wait(struct emu_stream *stream, struct emu_event *event);
int emu_capture_depend(struct emu_stream *stream, struct emu_op *const *ops, size_t count);
int emu_graph_record(struct emu_graph *graph, struct emu_op *const *after, size_t count,
                     struct emu_event *event, struct emu_op **op_out);
/* removes 0: each of `from` comes before its `to`; 1: not any more. */
int emu_graph_edges(struct emu_graph *graph, struct emu_op *const *from, struct emu_op *const *to,
                    size_t count, int removes);
int emu_is_capturing_for_all(void); /* a capture forbids all threads what is unsafe in it */

#endif
