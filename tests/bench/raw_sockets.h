/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of raw_sockets share: raw_sockets.c has options, processes and rounds,
 * raw_link.c makes connections, raw_moves.c is the blaster and the ping-pong, raw_split.c moves
 * messages the way of NCCL's socket transport. Nothing of XCCL is in it: it is what XCCL's own
 * transport is measured against.
 *
 * A side is a process. Errors end the program with a line, and --timeout ends it in any case.
 *
 * Thread: what a side's struct says; results are written before a gate and read behind it. */
#ifndef RAW_SOCKETS_H
#define RAW_SOCKETS_H

#include <pthread.h>
#include <stdint.h>
#include <sys/socket.h>

#define RAW_STREAMS 64
#define RAW_THREADS 16
#define RAW_ROUNDS  99
#define RAW_SAMPLES 65536u
/* Places of the pattern where a message may begin, as in `xccl net perf`: where in a page it does
 * decides how quick the kernel's copy is. */
#define RAW_STEPS      1021u
#define RAW_STEP_BYTES 64u
#define RAW_PAGE       4096u

enum raw_mode { RAW_BLAST, RAW_PINGPONG, RAW_SPLIT };

struct raw_options {
    enum raw_mode mode;
    int family; /* AF_INET, AF_INET6, AF_UNIX */
    const char *address; /* the receiver's; NULL: loopback */
    const char *hosts[2]; /* network namespaces of sender and receiver; NULL: this one */
    const char *congestion; /* NULL: the system's */
    uint64_t bytes; /* of a message */
    int64_t call_bytes; /* of one send or receive call, at most; 0: a message */
    int64_t buffer_bytes; /* of each socket; 0: the system's */
    int64_t streams, threads, window, rounds;
    uint64_t seconds_ms, timeout_ms;
    int both, pin, poll;
};

struct raw_result {
    uint64_t start_ns, end_ns, cpu_ns, switches;
    double p50_us, p99_us; /* half a round trip; the sender's */
};

/* Memory of all three processes. */
struct raw_shared {
    pthread_barrier_t gate;
    int stop;
    uint64_t iters; /* messages a stream, or round trips */
    struct sockaddr_storage address;
    socklen_t address_bytes;
    struct raw_result results[2];
};

struct raw_side {
    const struct raw_options *options;
    struct raw_shared *shared;
    int number; /* 0 sends, where only one does */
    int fds[2 * RAW_STREAMS + 1];
    int fd_count;
    uint64_t call_bytes;
    char *data; /* the pattern */
    char *room; /* window slots of a message for each stream that brings some */
    double *samples;
};

/* raw_sockets.c */
_Noreturn void raw_die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
uint64_t raw_now_ns(void);
void *raw_memory(uint64_t bytes);
/* Where in the pattern a message begins. */
const char *raw_message(const struct raw_side *side, uint64_t number);
/* Ends the program unless got is that message. */
void raw_expect(const struct raw_side *side, const char *got, uint64_t number);

/* raw_link.c: side->fd_count connections between the sides. The gate is passed once. */
void raw_connect(struct raw_side *side);

/* raw_moves.c, raw_split.c: one round. */
void raw_blast(struct raw_side *side);
void raw_pingpong(struct raw_side *side, struct raw_result *result);
void raw_split(struct raw_side *side);
/* Afterwards: the last message of each stream. */
void raw_blast_check(struct raw_side *side);
void raw_split_check(struct raw_side *side);
/* One call's worth, without waiting. 0: not now. */
uint64_t raw_send_some(int fd, const char *data, uint64_t bytes, int flags);
uint64_t raw_recv_some(int fd, char *data, uint64_t bytes, int flags);
/* All of it, asking all the time or sleeping. */
void raw_send_all(int fd, const char *data, uint64_t bytes);
void raw_recv_all(int fd, char *data, uint64_t bytes, int poll);

#endif
