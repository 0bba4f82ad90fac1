/* SPDX-License-Identifier: BSD-3-Clause */
/* Order of a communicator's launches. Its kernels share the number of the operation, links and
 * scratch memory, so that two of them must never run at a time; yet programs use several streams,
 * and replay graphs beside other calls.
 *
 * One event orders all of them, in the order in which the program gives them to the driver. It is
 * recorded behind each launch into a stream. A graph has two nodes of it: one that waits for it,
 * before the communicator's first kernel, and one that records it, behind the last one; both act
 * anew in each replay. The second node is no part of the captured stream, and moves along with each
 * further launch of the capture. Kernels inside of a graph depend on each other. (CUDA C++
 * Programming Guide, "Using Graph External Event Nodes".)
 *
 * A stream that is used alone needs no wait: once there was a capture, each launch waits, since a
 * graph may have been replayed anywhere.
 *
 * Thread: the user's, one at a time a communicator. */
#include "base/alloc.h"
#include "cuda/cuda_int.h"

#define CAPTURES_KEPT 256u /* a capture that so many later ones have followed has ended */

/* A capture into which the communicator has launched. */
struct xccl_cuda_captured {
    struct xccl_cuda_captured *next;
    uint64_t id;
    xccl_cu_stream stream; /* of the last launch, and */
    xccl_cu_node last; /* its kernel */
    xccl_cu_node record; /* behind it; NULL: not yet */
};

xcclResult_t xccl_cuda_order_init(struct xccl_cuda_comm *cuda)
{
    xccl_cu_event *events[] = {&cuda->worker.event, &cuda->joins};
    xcclResult_t rc = xccl_cuda_enter(cuda->device);

    if (rc)
        return rc;
    for (int i = 0; i < 2 && !rc; i++)
        rc = xccl_cuda_result(cuda->driver->event_create(events[i], XCCL_CU_EVENT_DISABLE_TIMING),
                              "creating an event");
    xccl_cuda_leave(cuda->device);
    if (!rc)
        xccl_cuda_worker_join(cuda->device, &cuda->worker);
    return rc;
}

void xccl_cuda_order_fini(struct xccl_cuda_comm *cuda)
{
    struct xccl_cuda_captured *captured;

    while ((captured = cuda->captured)) {
        cuda->captured = captured->next;
        xccl_free(captured);
    }
    if (!cuda->worker.event || xccl_cuda_enter(cuda->device))
        return;
    (void)cuda->driver->event_destroy(cuda->worker.event);
    if (cuda->joins)
        (void)cuda->driver->event_destroy(cuda->joins);
    xccl_cuda_leave(cuda->device);
}

/* A stream's number, unlike its handle, never is that of a later stream; 0: old drivers have none.
 */
static xcclResult_t number_of(const struct xccl_cuda_device *device, xccl_cu_stream stream,
                              uint64_t *number_out)
{
    return device->driver->stream_id
               ? xccl_cuda_result(device->driver->stream_id(stream, number_out),
                                  "querying a stream's number")
               : xcclSuccess;
}

xcclResult_t xccl_cuda_place_of(const struct xccl_cuda_device *device, xccl_cu_stream stream,
                                struct xccl_cuda_place *place_out)
{
    int status = XCCL_CU_CAPTURE_NONE;
    xcclResult_t rc = xccl_cuda_result(device->driver->stream_capturing(stream, &status),
                                       "querying the stream's capture");

    *place_out = (struct xccl_cuda_place){.stream = stream};
    if (rc || status != XCCL_CU_CAPTURE_ACTIVE)
        return rc ? rc : number_of(device, stream, &place_out->id);
    place_out->is_captured = 1;
    return xccl_cuda_result(device->driver->stream_capture_info(stream, &status, &place_out->id,
                                                                &place_out->graph, NULL, NULL),
                            "querying the stream's capture");
}

/* Forgets those behind the latest ones. */
static void drop_old(struct xccl_cuda_captured *captured)
{
    struct xccl_cuda_captured *old;

    for (uint32_t i = 1; i < CAPTURES_KEPT && captured; i++)
        captured = captured->next;
    while (captured && (old = captured->next)) {
        captured->next = old->next;
        xccl_free(old);
    }
}

/* Takes the capture to the head of the list; NULL: the communicator has not launched into it. */
static struct xccl_cuda_captured *find(struct xccl_cuda_comm *cuda, uint64_t id)
{
    struct xccl_cuda_captured **at = &cuda->captured, *found;

    while (*at && (*at)->id != id)
        at = &(*at)->next;
    found = *at;
    if (!found)
        return NULL;
    *at = found->next;
    found->next = cuda->captured;
    cuda->captured = found;
    return found;
}

static struct xccl_cuda_captured *add(struct xccl_cuda_comm *cuda, uint64_t id)
{
    struct xccl_cuda_captured *captured = xccl_calloc(1, sizeof *captured);

    if (!captured)
        return NULL;
    captured->id = id;
    captured->next = cuda->captured;
    cuda->captured = captured;
    drop_old(captured);
    return captured;
}

static xcclResult_t order_captured(struct xccl_cuda_comm *cuda, const struct xccl_cuda_place *place)
{
    struct xccl_cuda_captured *captured = find(cuda, place->id);

    if (!captured)
        captured = add(cuda, place->id);
    if (!captured)
        return xcclSystemError;
    if (!captured->last) /* behind what was launched by the time of a replay */
        return xccl_cuda_result(
            cuda->driver->stream_wait(place->stream, cuda->worker.event, XCCL_CU_WAIT_EXTERNAL),
            "capturing a wait for the communicator's last launch");
    if (captured->stream == place->stream)
        return xcclSuccess;
    return xccl_cuda_result(cuda->driver->stream_capture_depends(place->stream, &captured->last, 1,
                                                                 XCCL_CU_CAPTURE_DEPENDS_ALSO),
                            "capturing a wait for the communicator's last stream");
}

xcclResult_t xccl_cuda_order(struct xccl_cuda_comm *cuda, const struct xccl_cuda_place *place)
{
    if (place->is_captured)
        return order_captured(cuda, place);
    if (!cuda->worker.has_launched ||
        (place->id && cuda->stream == place->id && !cuda->worker.is_captured))
        return xcclSuccess;
    return xccl_cuda_result(cuda->driver->stream_wait(place->stream, cuda->worker.event, 0),
                            "waiting for the communicator's last launch");
}

/* The kernel that was just captured is the only node that the stream's next one depends on. */
static xcclResult_t leave_captured(struct xccl_cuda_comm *cuda, const struct xccl_cuda_place *place)
{
    const struct xccl_cuda_driver *driver = cuda->driver;
    struct xccl_cuda_captured *captured = find(cuda, place->id);
    const xccl_cu_node *nodes = NULL;
    xccl_cu_node before;
    size_t count = 0;
    uint64_t id;
    int status;
    xcclResult_t rc = xccl_cuda_result(
        driver->stream_capture_info(place->stream, &status, &id, NULL, &nodes, &count),
        "querying the captured kernel");

    if (!rc && (!captured || count != 1))
        return xccl_fail(xcclInternalError, 0, "report this as a bug",
                         "a captured stream depends on %zu nodes behind a kernel", count);
    if (rc)
        return rc;
    before = captured->last;
    captured->last = nodes[0];
    captured->stream = place->stream;
    if (!captured->record)
        return xccl_cuda_result(driver->graph_add_record(&captured->record, place->graph,
                                                         &captured->last, 1, cuda->worker.event),
                                "capturing an event");
    rc = xccl_cuda_result(driver->graph_depend(place->graph, &captured->last, &captured->record, 1),
                          "capturing an event behind a kernel");
    return rc ? rc
              : xccl_cuda_result(driver->graph_release(place->graph, &before, &captured->record, 1),
                                 "capturing an event behind a kernel");
}

xcclResult_t xccl_cuda_launched(struct xccl_cuda_comm *cuda, const struct xccl_cuda_place *place)
{
    cuda->worker.has_launched = 1;
    if (place->is_captured) {
        cuda->worker.is_captured = 1;
        return leave_captured(cuda, place);
    }
    cuda->stream = place->id;
    return xccl_cuda_result(cuda->driver->event_record(cuda->worker.event, place->stream),
                            "recording an event");
}
