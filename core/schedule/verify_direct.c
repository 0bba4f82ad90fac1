/* SPDX-License-Identifier: BSD-3-Clause */
/* Marks of direct sends: each cell has a list of the messages that are still to be read from it. A
 * message is read when all receivers have posted; then its mark goes, at the next look. */
#include "schedule/verify_int.h"

#include "base/alloc.h"

int xccl_verify_mark_done(const struct xccl_verify_run *run, const struct xccl_verify_mark *mark)
{
    const struct xccl_verify_queue *queue = &run->net->queues[mark->queue];

    for (uint32_t i = 0; i < queue->nreaders; i++)
        if (run->readers[queue->reader0 + i].posted <= mark->message)
            return 0;
    return 1;
}

xcclResult_t xccl_verify_mark_add(struct xccl_verify_run *run, const struct xccl_verify_lane *at,
                                  size_t cell, uint32_t queue)
{
    uint32_t number = run->marks_free;

    if (number != XCCL_NO_MARK) {
        run->marks_free = run->marks[number].next;
    } else {
        if (run->nmarks == run->marks_room) {
            uint32_t room = run->marks_room ? 2 * run->marks_room : 256;
            void *marks = xccl_realloc(run->marks, room * sizeof(*run->marks));

            if (!marks)
                return xcclSystemError;
            run->marks = marks;
            run->marks_room = room;
        }
        number = run->nmarks++;
    }
    /* marks0 counts from 1, so that zeroed memory has no marks. */
    run->marks[number] = (struct xccl_verify_mark){
        .queue = queue,
        .message = run->queues[queue].sent,
        .next = run->marks0[cell] ? run->marks0[cell] - 1 : XCCL_NO_MARK,
        .from = xccl_verify_spot(at),
    };
    run->marks0[cell] = number + 1;
    return xcclSuccess;
}

uint32_t xccl_verify_mark_pending(struct xccl_verify_run *run, size_t cell)
{
    while (run->marks0[cell]) {
        uint32_t number = run->marks0[cell] - 1, next = run->marks[number].next;

        if (!xccl_verify_mark_done(run, &run->marks[number]))
            return number;
        run->marks0[cell] = next == XCCL_NO_MARK ? 0 : next + 1;
        run->marks[number].next = run->marks_free;
        run->marks_free = number;
    }
    return XCCL_NO_MARK;
}
