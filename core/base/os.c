/* SPDX-License-Identifier: BSD-3-Clause */
/* Sealed shared memory, random bytes, host and thread identity.
 *
 * A memfd has no name in any file system, so nothing is left after kill -9; its size is sealed, so
 * no holder can make another's access raise SIGBUS. A descriptor from a peer is not trusted before
 * its seals and its size were looked at. Thread: any. */
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fork.h"
#include "base/hash.h"
#include "base/huge_pages.h"
#include "base/inject.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3 */
#endif

#define SIZE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

static pthread_once_t identity_once = PTHREAD_ONCE_INIT;
static char identity_host[256];
static uint64_t identity_hash, identity_netns;

/* Hosts may demand memory that can never be made executable (sysctl vm.memfd_noexec); kernels
 * before 6.3 do not know the flag. */
static int memfd_open(const char *name)
{
    int fd;

    if (xccl_inject_due()) {
        errno = EMFILE;
        return -1;
    }
    fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd;
}

/* An address from which huge pages of a file are such of its map, too, if nobody takes it before;
 * NULL: any. Memory below that size has none. */
static void *aligned_place(size_t bytes)
{
    size_t room = bytes + XCCL_HUGE_PAGE;
    void *first;

    if (bytes < XCCL_HUGE_PAGE)
        return NULL;
    first = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (first == MAP_FAILED)
        return NULL;
    munmap(first, room);
    return (void *)(((uintptr_t)first + XCCL_HUGE_PAGE - 1) & ~(uintptr_t)(XCCL_HUGE_PAGE - 1));
}

static void *map_shared(int fd, size_t bytes, int rights)
{
    if (xccl_inject_due()) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return mmap(aligned_place(bytes), bytes, rights, MAP_SHARED, fd, 0);
}

xcclResult_t xccl_map_create(const char *name, size_t bytes, struct xccl_map *map_out)
{
    xcclResult_t rc;
    void *base;
    int fd;

    if (bytes == 0 || bytes > INT64_MAX)
        return xccl_fail(xcclInvalidArgument, 0, NULL, "cannot create %zu bytes of shared memory",
                         bytes);
    fd = memfd_open(name);
    if (fd < 0)
        return xccl_fail(xcclSystemError, errno,
                         "raise ulimit -n if this process has no files left",
                         "cannot create shared memory %s of %zu bytes", name, bytes);
    if (ftruncate(fd, (off_t)bytes) != 0) {
        rc = xccl_fail(xcclSystemError, errno, "lower XCCL_BUFFER_BYTES",
                       "cannot extend shared memory %s to %zu bytes", name, bytes);
        goto err_fd;
    }
    if (fcntl(fd, F_ADD_SEALS, SIZE_SEALS | F_SEAL_SEAL) != 0) {
        rc = xccl_fail(xcclSystemError, errno, NULL, "cannot seal shared memory %s", name);
        goto err_fd;
    }
    base = map_shared(fd, bytes, PROT_READ | PROT_WRITE);
    if (base == MAP_FAILED) {
        rc = xccl_fail(xcclSystemError, errno, "lower XCCL_BUFFER_BYTES, or raise ulimit -v",
                       "cannot map shared memory %s of %zu bytes", name, bytes);
        goto err_fd;
    }
    *map_out = (struct xccl_map){.base = base, .bytes = bytes, .fd = fd};
    return xcclSuccess;
err_fd:
    close(fd);
    return rc;
}

/* What must hold before a peer's descriptor is mapped. */
static xcclResult_t map_check(int fd, size_t bytes)
{
    struct stat status;
    int seals;

    if (fstat(fd, &status) != 0)
        return xccl_fail(xcclRemoteError, errno, NULL, "a peer's shared memory cannot be examined");
    if (!S_ISREG(status.st_mode))
        return xccl_fail(xcclRemoteError, 0, NULL,
                         "a peer sent a descriptor that does not refer to shared memory");
    seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SIZE_SEALS) != SIZE_SEALS)
        return xccl_fail(xcclRemoteError, 0, NULL,
                         "a peer's shared memory is not sealed against resizing");
    if (bytes == 0 || (uint64_t)status.st_size != bytes)
        return xccl_fail(xcclRemoteError, 0, "start all ranks with the same settings",
                         "a peer's shared memory has %lld bytes instead of %zu",
                         (long long)status.st_size, bytes);
    return xcclSuccess;
}

static xcclResult_t map_open(int fd, size_t bytes, int rights, struct xccl_map *map_out)
{
    xcclResult_t rc;
    void *base;

    rc = map_check(fd, bytes);
    if (rc)
        goto err_fd;
    base = map_shared(fd, bytes, rights);
    if (base == MAP_FAILED) {
        /* EACCES and EPERM: opened for reading only, or sealed against writing. */
        rc = (errno == EACCES || errno == EPERM) ? xcclRemoteError : xcclSystemError;
        rc = xccl_fail(rc, errno, NULL, "cannot map %zu bytes of a peer's shared memory", bytes);
        goto err_fd;
    }
    *map_out = (struct xccl_map){.base = base, .bytes = bytes, .fd = fd};
    return xcclSuccess;
err_fd:
    if (fd >= 0)
        close(fd);
    return rc;
}

xcclResult_t xccl_map_open(int fd, size_t bytes, struct xccl_map *map_out)
{
    return map_open(fd, bytes, PROT_READ | PROT_WRITE, map_out);
}

xcclResult_t xccl_map_open_to_read(int fd, size_t bytes, struct xccl_map *map_out)
{
    return map_open(fd, bytes, PROT_READ, map_out);
}

xcclResult_t xccl_map_limit_to_reading(struct xccl_map *map)
{
    char path[32];
    xcclResult_t rc;
    int fd;

    snprintf(path, sizeof path, "/proc/self/fd/%d", map->fd);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        rc = xccl_fail_quietly(xcclSystemError, errno, "mount /proc",
                               "cannot open shared memory for reading");
        xccl_map_close(map);
        return rc;
    }
    close(map->fd);
    map->fd = fd;
    return xcclSuccess;
}

void xccl_map_close(struct xccl_map *map)
{
    if (map->base) {
        munmap(map->base, map->bytes);
        if (map->fd >= 0)
            close(map->fd);
    }
    *map = (struct xccl_map){.fd = -1};
}

/* Page by page, for kernels before 5.14: an addition of nothing is a write that changes nothing,
 * even while another process writes there. */
static void touch_pages(char *first, const char *end, size_t page)
{
    for (char *at = first; at < end; at += page)
        (void)atomic_fetch_add_explicit((_Atomic unsigned char *)at, 0, memory_order_relaxed);
}

xcclResult_t xccl_map_touch(void *at, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *first = (char *)at - ((uintptr_t)at & (page - 1));
    char *end = (char *)at + bytes;

    if (!bytes)
        return xcclSuccess;
    if (xccl_inject_due())
        errno = ENOMEM;
    else if (madvise(first, (size_t)(end - first), MADV_POPULATE_WRITE) == 0)
        return xcclSuccess;
    if (errno != EINVAL)
        return xccl_fail(xcclSystemError, errno, "lower XCCL_BUFFER_BYTES, or free memory",
                         "cannot allocate %zu bytes of shared memory", bytes);
    touch_pages(first, end, page);
    return xcclSuccess;
}

xcclResult_t xccl_os_random(void *bytes_out, size_t bytes)
{
    uint8_t *at = bytes_out;

    while (bytes > 0) {
        ssize_t got = getrandom(at, bytes, 0);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return xccl_fail(xcclSystemError, errno, NULL,
                             "the kernel does not provide random bytes");
        at += got;
        bytes -= (size_t)got;
    }
    return xcclSuccess;
}

/* The text of a small file of /proc; 0 bytes when it cannot be read. */
static size_t read_small_file(const char *path, char *text_out, size_t max)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = -1;

    if (fd < 0)
        return 0;
    do {
        got = read(fd, text_out, max);
    } while (got < 0 && errno == EINTR);
    close(fd);
    return got > 0 ? (size_t)got : 0;
}

/* Descriptors travel over abstract Unix sockets, whose names belong to a network namespace:
 * processes of one kernel in different ones cannot meet, so they count as different hosts. */
static void identity_load(void)
{
    uint64_t hash = XCCL_HASH_START;
    char boot_id[64];
    size_t bytes = read_small_file("/proc/sys/kernel/random/boot_id", boot_id, sizeof(boot_id));
    struct stat status;

    if (gethostname(identity_host, sizeof(identity_host) - 1) != 0 || identity_host[0] == '\0')
        snprintf(identity_host, sizeof(identity_host), "unknown");
    if (bytes > 0)
        hash = xccl_hash_bytes(hash, boot_id, bytes);
    else
        hash = xccl_hash_bytes(hash, identity_host, strlen(identity_host));
    if (stat("/proc/self/ns/net", &status) == 0) {
        hash = xccl_hash_bytes(hash, &status.st_ino, sizeof(status.st_ino));
        if (bytes > 0)
            identity_netns = xccl_hash_bytes(hash, &status.st_dev, sizeof(status.st_dev));
    }
    identity_hash = hash;
    identity_host[strcspn(identity_host, ".")] = '\0';
}

const char *xccl_os_hostname(void)
{
    pthread_once(&identity_once, identity_load);
    return identity_host;
}

uint64_t xccl_os_host_hash(void)
{
    pthread_once(&identity_once, identity_load);
    return identity_hash;
}

uint64_t xccl_os_netns_hash(void)
{
    pthread_once(&identity_once, identity_load);
    return identity_netns;
}

int xccl_os_cores(void)
{
    cpu_set_t set;
    long online;

    if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0)
        return CPU_COUNT(&set);
    /* More cores than a cpu_set_t holds. */
    online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

void xccl_os_core_set(uint64_t set_out[XCCL_CORE_WORDS])
{
    cpu_set_t set;
    int cores = xccl_os_cores(), known = sched_getaffinity(0, sizeof(set), &set) == 0;

    memset(set_out, 0, XCCL_CORE_WORDS * sizeof(set_out[0]));
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (known ? CPU_ISSET(i, &set) : i < cores)
            set_out[i / 64 % XCCL_CORE_WORDS] |= 1ull << (i % 64);
}

int xccl_os_core_count(const uint64_t set[XCCL_CORE_WORDS])
{
    int count = 0;

    for (int i = 0; i < XCCL_CORE_WORDS; i++)
        count += __builtin_popcountll(set[i]);
    return count;
}

int xccl_os_process_runs(uint32_t pid)
{
    char path[32], text[128];
    const char *end;
    size_t bytes;

    snprintf(path, sizeof(path), "/proc/%u/stat", pid);
    bytes = read_small_file(path, text, sizeof(text) - 1);
    text[bytes] = '\0';
    /* "pid (name) state": the name may hold anything. */
    end = strrchr(text, ')');
    return end && end[1] == ' ' && strchr("RSD", end[2]) != NULL && end[2] != '\0';
}

/* Process numbers are not enough: two containers of one host may have the same. */
static uint64_t process_id; /* 0: not drawn yet */

static void process_child(void)
{
    process_id = 0;
}

static struct xccl_lock process_lock = XCCL_LOCK(process_child);

xcclResult_t xccl_os_process_id(uint64_t *id_out)
{
    xcclResult_t rc = xcclSuccess;

    xccl_lock_take(&process_lock);
    if (!process_id)
        rc = xccl_os_random(&process_id, sizeof process_id);
    if (!rc)
        *id_out = process_id;
    xccl_lock_give(&process_lock);
    return rc;
}

int64_t xccl_os_thread_id(void)
{
    return (int64_t)syscall(SYS_gettid);
}

int xccl_os_is_raised(void)
{
    return getauxval(AT_SECURE) != 0;
}

const char *xccl_os_cannot_load(void)
{
    const ElfW(Phdr) *header = (const void *)getauxval(AT_PHDR); /* the kernel's, of the program */
    unsigned long count = getauxval(AT_PHNUM);

    if (!header)
        return NULL;
    for (unsigned long i = 0; i < count; i++) {
        if (header[i].p_type == PT_INTERP)
            return NULL;
    }
    return "this program is linked with -static and can open no shared library: link libxccl.a "
           "without -static";
}
