/* SPDX-License-Identifier: BSD-3-Clause */
/* The few things asked of the operating system: sealed shared memory without a name, random bytes,
 * who and where this process is, how many cores it may use. Any thread. */
#ifndef XCCL_BASE_OS_H
#define XCCL_BASE_OS_H

#include <stddef.h>
#include <stdint.h>

#include "xccl_types.h"

/* A memfd map. Made with size seals, so that no holder can shrink it under another's feet. */
struct xccl_map {
    void *base;
    size_t bytes;
    int fd; /* -1: none */
};

/* Zeroed, sealed (shrink, grow, seal) and mapped. Pages take memory when they are touched. name:
 * for /proc only. */
xcclResult_t xccl_map_create(const char *name, size_t bytes, struct xccl_map *map_out);
/* Maps a descriptor that a peer sent: refuses one without the seals or of another size than bytes.
 * Takes fd over, also on failure. */
xcclResult_t xccl_map_open(int fd, size_t bytes, struct xccl_map *map_out);
/* Maps a peer's descriptor for reading, after the checks of xccl_map_open(). A read-only descriptor
 * is enough. */
xcclResult_t xccl_map_open_to_read(int fd, size_t bytes, struct xccl_map *map_out);
/* Replaces the descriptor by one for reading, to be handed out. Closes the map on failure. */
xcclResult_t xccl_map_limit_to_reading(struct xccl_map *map);
void xccl_map_close(
    struct xccl_map *map); /* unmaps, closes, zeroes; a zeroed one with fd -1 or 0 base is fine */

/* Takes the memory of these bytes of a map, and enters it in this process's tables, without
 * changing what it holds: whoever uses it then meets no fault. */
xcclResult_t xccl_map_touch(void *at, size_t bytes);

xcclResult_t xccl_os_random(void *bytes_out, size_t bytes);
const char *xccl_os_hostname(void); /* up to the first dot; kept */
/* 64 bits that are equal for processes that may share memory: boot id and pid-independent parts. */
uint64_t xccl_os_host_hash(void);
/* 64 bits that are equal for processes of one kernel in one network namespace. 0: not known. Names
 * play no part in it. */
uint64_t xccl_os_netns_hash(void);
int xccl_os_cores(void); /* usable by this process: affinity mask */
/* The usable cores as a set, for unions over processes; above 256 cores several share a bit. */
#define XCCL_CORE_WORDS 4
void xccl_os_core_set(uint64_t set_out[XCCL_CORE_WORDS]);
int xccl_os_core_count(const uint64_t set[XCCL_CORE_WORDS]);
int64_t xccl_os_thread_id(void);
/* 64 random bits that this process alone has; a child of fork() has others. */
xcclResult_t xccl_os_process_id(uint64_t *id_out);
/* Whether a process of this host runs, or would run if it were given time; 0: it is stopped, has
 * ended, or is not to be seen from here. */
int xccl_os_process_runs(uint32_t pid);
/* 1: this program runs set-user-id, set-group-id or with file capabilities: who started it has
 * fewer privileges and chose its environment. */
int xccl_os_is_raised(void);
/* NULL if this program can open shared libraries, else why not. A program linked with -static has
 * no dynamic loader: dlopen would bring a second C library, whose threads and memory are not ours.
 */
const char *xccl_os_cannot_load(void);

/* Between two polls of a spinning wait: tells the core that nothing is lost by a short rest. */
static inline void xccl_os_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

#endif
