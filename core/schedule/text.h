/* SPDX-License-Identifier: BSD-3-Clause */
/* Schedules as text, for people, files and diffs: a line for each lane, connection, step, wait and
 * list; what is written can be read back exactly. And as JSON, to be drawn and processed. README.md
 * shows both.
 * Reading takes hostile input: everything is checked, and memory and time are bounded. But whether
 * a schedule does what its collective promises is not known before it was proven (verify.h): what
 * a proof writes (class, minslots, flags, direct marks) is only what the text says. Thread: any. */
#ifndef XCCL_SCHEDULE_TEXT_H
#define XCCL_SCHEDULE_TEXT_H

#include <stddef.h>
#include <stdio.h>

#include "schedule/schedule.h"

/* Checked schedules that belong together: of one name, collective and number of ranks. All ranks,
 * or some, which can then not be read back. 0, or -1 with errno: of the stream, or EINVAL when they
 * do not belong together or the name is not of at most 127 bytes from space to ~. */
int xccl_schedule_print(FILE *file, struct xccl_schedule *const *schedules, int nranks);
int xccl_schedule_print_json(FILE *file, struct xccl_schedule *const *schedules, int nranks);

/* Schedules that were read: of all ranks, by rank. They point to the set's name. */
struct xccl_schedule_set {
    int nranks;
    struct xccl_schedule **schedules;
    char *name;
};

/* xcclInvalidArgument names the line. where: what the errors call the text. set_out is written only
 * on success, and must then be freed with xccl_schedule_set_fini. */
xcclResult_t xccl_schedule_read(const char *text, size_t bytes, const char *where,
                                struct xccl_schedule_set *set_out);
xcclResult_t xccl_schedule_read_json(const char *text, size_t bytes, const char *where,
                                     struct xccl_schedule_set *set_out);
void xccl_schedule_set_fini(struct xccl_schedule_set *set);

#endif
