/* SPDX-License-Identifier: BSD-3-Clause */
/* Signs of life on a proven connection, while ranks join: between a root and each rank that has
 * reported, and between neighbours on the ring until the control plane has it. Both ends send one
 * each heartbeat (XCCL_HEARTBEAT_S), which also says who they are; who is silent for four is
 * stopped, or its host cannot be reached. A process of this host that runs, and only gets no time,
 * has thirty, and so has an end that has not said yet who it is. One in this process is not judged.
 *
 * Thread: callbacks of the service thread, or any with the loop's lock. */
#ifndef XCCL_BOOTSTRAP_ALIVE_H
#define XCCL_BOOTSTRAP_ALIVE_H

#include "bootstrap/conn_int.h"
#include "bootstrap/message.h"
#include "verdict/verdict.h"

/* One end's view of the other. Zero it before the first use. */
struct xccl_alive {
    struct xccl_boot_who who; /* of the other end, when known */
    int known;
    uint64_t beat_ns; /* own; 0: no signs are sent, and none is missed */
    uint64_t heard_ns; /* the last frame of any kind */
    uint64_t due_ns, look_ns; /* the next own sign; the next turn */
};

/* Sends the first sign, which names rank. Returns when the first turn is due; XCCL_NEVER_NS: never.
 * A sign that cannot be sent is an error of the connection, which its reader finds. */
uint64_t xccl_alive_begin(struct xccl_alive *alive, struct xccl_conn *conn, uint32_t rank);
/* Sends one more now, for another rank may be named. */
void xccl_alive_say(const struct xccl_alive *alive, struct xccl_conn *conn, uint32_t rank);
/* A frame of any kind came. */
void xccl_alive_hear(struct xccl_alive *alive);
/* XCCL_BOOT_ALIVE came. -1: it cannot be read. */
int xccl_alive_take(struct xccl_alive *alive, const struct xccl_frame *frame);
/* A turn is due, and all that has come was read. Sends what is due. 1: the other end is silent, and
 * no further turn is due. *next_ns_out: the next one. */
int xccl_alive_turn(struct xccl_alive *alive, struct xccl_conn *conn, uint32_t rank,
                    uint64_t now_ns, uint64_t *next_ns_out);
/* For the cause of a silence: 1 if nothing has come for two heartbeats from who should have sent
 * something. */
int xccl_alive_is_weak(const struct xccl_alive *alive, uint64_t now_ns);
int xccl_alive_is_here(const struct xccl_alive *alive); /* 1: the other end is in this process */

/* "rank 3 (host a, pid 12)"; who NULL: not known, "rank 3". */
void xccl_alive_name(uint32_t rank, const struct xccl_boot_who *who,
                     char text_out[XCCL_BOOT_NAME_BYTES]);

/* For texts (struct xccl_rank_places) about a rank of this process. */
int xccl_alive_find_self(const void *owner, int rank, struct xccl_rank_place *place_out);
/* 1: an error says that self, a rank's name with host and process, is silent. */
int xccl_alive_is_given_up(const char *error, const char *self);

#endif
