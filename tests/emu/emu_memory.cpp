// SPDX-License-Identifier: BSD-3-Clause
/* A table of all ranges. A handle for other processes names a file descriptor of this one, which
 * they open through /proc. As with a real driver, a handle stands for a whole allocation, opening
 * it again gives the same address, and the process that made it cannot open it. Thread: any; a
 * lock. */
#include "emu_memory.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

extern "C" {
#include "base/cuda_driver.h"
}

#define PAGE       4096u
#define FILLED_MAX (4u << 20) /* larger memory stays untouched until it is used */

enum {
    OK,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_CONTEXT = 201,
    REGISTERED = 712,
    NOT_REGISTERED = 713
};

enum kind { DEVICE, OPENED, MAPPED, HOST, PINNED };

struct range {
    enum kind kind;
    size_t bytes;
    int file, device, opened;
    uint64_t made_of; /* MAPPED: the handle */
    uint64_t number; /* no other range has or had it */
    alignas(8) char handle[64];
};

/* What a handle of an allocation stands for, until it is released and nothing maps it. */
struct made {
    size_t bytes;
    int file, device, refs;
    int types; /* of handles that it may be exported by */
};

struct handle {
    char magic[8];
    int pid, file;
    uint64_t bytes, number;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static std::map<uint64_t, struct range> &ranges = *new std::map<uint64_t, struct range>;
static std::map<uint64_t, struct made> &all_made = *new std::map<uint64_t, struct made>;
static std::map<uint64_t, size_t> &reserved = *new std::map<uint64_t, size_t>;
static uint64_t allocations, handles, numbers;

/* With the lock. */
static std::map<uint64_t, struct range>::iterator find(uint64_t at)
{
    auto found = ranges.upper_bound(at);

    if (found == ranges.begin())
        return ranges.end();
    --found;
    return at - found->first < found->second.bytes ? found : ranges.end();
}

/* With the lock. */
static void insert(uint64_t at, struct range range)
{
    range.number = ++numbers;
    ranges[at] = range;
}

static void *map_file(int file, size_t bytes)
{
    return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
}

static size_t whole_pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

int emu_memory_alloc(uint64_t *at, size_t bytes, int device)
{
    int file = memfd_create("emu-device-memory", MFD_CLOEXEC);
    void *memory = MAP_FAILED;
    struct range range = {};

    bytes = whole_pages(bytes);
    if (!bytes)
        return INVALID_VALUE;
    if (file >= 0 && ftruncate(file, (off_t)bytes) == 0)
        memory = map_file(file, bytes);
    if (memory == MAP_FAILED) {
        if (file >= 0)
            close(file);
        return OUT_OF_MEMORY;
    }
    if (bytes <= FILLED_MAX)
        memset(memory, 0xa5, bytes); /* nobody may rely on zeroes */
    range.kind = DEVICE;
    range.bytes = bytes;
    range.file = file;
    range.device = device;
    pthread_mutex_lock(&lock);
    auto *handle = (struct handle *)range.handle;
    *handle = {{'e', 'm', 'u'}, (int)getpid(), file, bytes, ++allocations};
    insert((uintptr_t)memory, range);
    pthread_mutex_unlock(&lock);
    *at = (uintptr_t)memory;
    return OK;
}

/* A range of this kind that begins there leaves the table. */
static int take_out(uint64_t at, enum kind kind, struct range *range_out)
{
    int rc = INVALID_VALUE;

    pthread_mutex_lock(&lock);
    auto found = ranges.find(at);
    if (found != ranges.end() && found->second.kind == kind) {
        *range_out = found->second;
        ranges.erase(found);
        rc = OK;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

int emu_memory_free(uint64_t at)
{
    struct range range;
    int rc = take_out(at, DEVICE, &range);

    if (rc || !at)
        return at ? rc : OK;
    munmap((void *)(uintptr_t)at, range.bytes);
    close(range.file);
    return OK;
}

/* ---- the host's ---- */

static int add_host(void *at, size_t bytes, enum kind kind, int device)
{
    int rc = REGISTERED;
    struct range range = {};

    range.kind = kind;
    range.bytes = bytes;
    range.device = device;
    pthread_mutex_lock(&lock);
    if (find((uintptr_t)at) == ranges.end()) {
        insert((uintptr_t)at, range);
        rc = OK;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

int emu_host_alloc(void **at, size_t bytes, int device)
{
    void *memory = aligned_alloc(PAGE, whole_pages(bytes));

    if (!memory)
        return OUT_OF_MEMORY;
    memset(memory, 0x5e, whole_pages(bytes)); /* nobody may rely on zeroes */
    *at = memory;
    return add_host(memory, whole_pages(bytes), HOST, device);
}

int emu_host_free(void *at)
{
    struct range range;
    int rc = take_out((uintptr_t)at, HOST, &range);

    if (!rc)
        free(at);
    return rc;
}

int emu_host_register(void *at, size_t bytes, int device)
{
    return at && bytes ? add_host(at, bytes, PINNED, device) : INVALID_VALUE;
}

int emu_host_unregister(void *at)
{
    struct range range;

    return take_out((uintptr_t)at, PINNED, &range) ? NOT_REGISTERED : OK;
}

int emu_memory_kind(uint64_t at, int *device_out)
{
    int kind = 0;

    pthread_mutex_lock(&lock);
    auto found = find(at);
    if (found != ranges.end()) {
        kind = found->second.kind <= MAPPED ? 2 : 1;
        *device_out = found->second.device;
    }
    pthread_mutex_unlock(&lock);
    return kind;
}

uint64_t emu_memory_number(uint64_t at)
{
    uint64_t number = 0;

    pthread_mutex_lock(&lock);
    auto found = find(at);
    if (found != ranges.end())
        number = found->second.number;
    pthread_mutex_unlock(&lock);
    return number;
}

int emu_memory_any(int device)
{
    int any = 0;

    pthread_mutex_lock(&lock);
    for (auto &one : ranges)
        any |= one.second.device == device;
    pthread_mutex_unlock(&lock);
    return any;
}

int emu_memory_file(int *file_out, uint64_t at, size_t bytes)
{
    int rc = INVALID_VALUE;

    pthread_mutex_lock(&lock);
    auto found = find(at);
    if (found != ranges.end() && (found->second.kind == DEVICE || found->second.kind == MAPPED) &&
        bytes <= found->second.bytes - (at - found->first)) {
        *file_out = fcntl(found->second.file, F_DUPFD_CLOEXEC, 0);
        rc = *file_out < 0 ? OUT_OF_MEMORY : OK;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

/* ---- between processes ---- */

int emu_ipc_get(char *handle, uint64_t at)
{
    int rc = INVALID_VALUE;

    pthread_mutex_lock(&lock);
    auto found = find(at);
    if (found != ranges.end() && found->second.kind == DEVICE) {
        memcpy(handle, found->second.handle, sizeof found->second.handle);
        rc = OK;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

/* With the lock. */
static int open_again(const char *handle, uint64_t *at)
{
    for (auto &one : ranges)
        if (one.second.kind == OPENED &&
            memcmp(one.second.handle, handle, sizeof one.second.handle) == 0) {
            one.second.opened++;
            *at = one.first;
            return 1;
        }
    return 0;
}

static int reopen(const struct handle *handle)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/fd/%d", handle->pid, handle->file);
    return open(path, O_RDWR | O_CLOEXEC);
}

static void *open_file(const struct handle *handle)
{
    int file = reopen(handle);
    void *memory;

    if (file < 0)
        return MAP_FAILED;
    memory = map_file(file, handle->bytes);
    close(file);
    return memory;
}

int emu_ipc_open(uint64_t *at, const char *handle, int device)
{
    struct handle named;
    struct range range = {};
    void *memory;

    memcpy(&named, handle, sizeof named);
    if (memcmp(named.magic, "emu", 4) != 0)
        return INVALID_VALUE;
    if (named.pid == (int)getpid())
        return INVALID_CONTEXT;
    pthread_mutex_lock(&lock);
    if (open_again(handle, at)) {
        pthread_mutex_unlock(&lock);
        return OK;
    }
    memory = open_file(&named);
    if (memory != MAP_FAILED) {
        range.kind = OPENED;
        range.bytes = named.bytes;
        range.device = device;
        range.opened = 1;
        memcpy(range.handle, handle, sizeof range.handle);
        insert((uintptr_t)memory, range);
        *at = (uintptr_t)memory;
    }
    pthread_mutex_unlock(&lock);
    return memory == MAP_FAILED ? INVALID_VALUE : OK;
}

int emu_ipc_close(uint64_t at)
{
    int rc = INVALID_VALUE;

    pthread_mutex_lock(&lock);
    auto found = ranges.find(at);
    if (found != ranges.end() && found->second.kind == OPENED) {
        rc = OK;
        if (--found->second.opened == 0) {
            munmap((void *)(uintptr_t)at, found->second.bytes);
            ranges.erase(found);
        }
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

/* ---- allocations by handles ---- */

static uint64_t add_made(size_t bytes, int file, int device, int types)
{
    pthread_mutex_lock(&lock);
    uint64_t handle = ++handles;
    all_made[handle] = {bytes, file, device, 1, types};
    pthread_mutex_unlock(&lock);
    return handle;
}

int emu_handle_create(unsigned long long *handle, size_t bytes, int device, int types)
{
    int file = memfd_create("emu-device-memory", MFD_CLOEXEC);
    void *memory = MAP_FAILED;

    if (file >= 0 && ftruncate(file, (off_t)bytes) == 0)
        memory = map_file(file, bytes);
    if (memory == MAP_FAILED) {
        if (file >= 0)
            close(file);
        return OUT_OF_MEMORY;
    }
    if (bytes <= FILLED_MAX)
        memset(memory, 0xa5, bytes); /* nobody may rely on zeroes */
    munmap(memory, bytes);
    *handle = add_made(bytes, file, device, types);
    return OK;
}

/* With the lock. */
static int put_made(uint64_t handle)
{
    auto found = all_made.find(handle);

    if (found == all_made.end())
        return INVALID_VALUE;
    if (--found->second.refs == 0) {
        close(found->second.file);
        all_made.erase(found);
    }
    return OK;
}

int emu_handle_release(unsigned long long handle)
{
    int rc;

    pthread_mutex_lock(&lock);
    rc = put_made(handle);
    pthread_mutex_unlock(&lock);
    return rc;
}

int emu_handle_export(int *file_out, unsigned long long handle)
{
    int rc = INVALID_VALUE;

    pthread_mutex_lock(&lock);
    auto found = all_made.find(handle);
    if (found != all_made.end()) {
        *file_out = fcntl(found->second.file, F_DUPFD_CLOEXEC, 0);
        rc = *file_out < 0 ? OUT_OF_MEMORY : OK;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

int emu_handle_import(unsigned long long *handle, int file, int device)
{
    struct stat status;
    int own = fcntl(file, F_DUPFD_CLOEXEC, 0);

    if (own < 0)
        return INVALID_VALUE;
    if (fstat(own, &status) != 0 || !status.st_size) {
        close(own);
        return INVALID_VALUE;
    }
    *handle = add_made((size_t)status.st_size, own, device, 0);
    return OK;
}

int emu_fabric_export(unsigned char *fabric, unsigned long long handle)
{
    struct handle named = {};
    int rc = INVALID_VALUE;

    pthread_mutex_lock(&lock);
    auto found = all_made.find(handle);
    if (found != all_made.end() && (found->second.types & XCCL_CU_MEM_FABRIC)) {
        named = {{'f', 'a', 'b'}, (int)getpid(), found->second.file, found->second.bytes, handle};
        memset(fabric, 0, 64);
        memcpy(fabric, &named, sizeof named);
        rc = OK;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

int emu_fabric_import(unsigned long long *handle, const unsigned char *fabric, int device)
{
    struct handle named;
    int file, rc;

    memcpy(&named, fabric, sizeof named);
    if (memcmp(named.magic, "fab", 4) != 0)
        return INVALID_VALUE;
    file = reopen(&named);
    if (file < 0)
        return INVALID_VALUE;
    rc = emu_handle_import(handle, file, device);
    close(file);
    return rc;
}

int emu_reserve(uint64_t *at, size_t bytes)
{
    void *memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                        0);

    if (memory == MAP_FAILED)
        return OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    reserved[(uintptr_t)memory] = bytes;
    pthread_mutex_unlock(&lock);
    *at = (uintptr_t)memory;
    return OK;
}

/* With the lock: all of a reservation. */
static int is_reserved(uint64_t at, size_t bytes)
{
    auto found = reserved.find(at);

    return found != reserved.end() && found->second == bytes;
}

int emu_unreserve(uint64_t at, size_t bytes)
{
    int rc = INVALID_VALUE;

    pthread_mutex_lock(&lock);
    if (is_reserved(at, bytes) && ranges.find(at) == ranges.end()) {
        reserved.erase(at);
        munmap((void *)(uintptr_t)at, bytes);
        rc = OK;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

/* Nobody reaches it yet. */
int emu_map(uint64_t at, size_t bytes, unsigned long long handle)
{
    struct range range = {};
    int rc = INVALID_VALUE;

    pthread_mutex_lock(&lock);
    auto found = all_made.find(handle);
    if (found != all_made.end() && found->second.bytes == bytes && is_reserved(at, bytes) &&
        ranges.find(at) == ranges.end()) {
        rc = mmap((void *)(uintptr_t)at, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
                  found->second.file, 0) == MAP_FAILED
                 ? OUT_OF_MEMORY
                 : OK;
    }
    if (!rc) {
        range.kind = MAPPED;
        range.bytes = bytes;
        range.file = found->second.file;
        range.device = found->second.device;
        range.made_of = handle;
        insert(at, range);
        found->second.refs++;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

/* A whole mapping, or the end. With the lock. */
static std::map<uint64_t, struct range>::iterator find_mapped(uint64_t at, size_t bytes)
{
    auto found = ranges.find(at);
    int is_it = found != ranges.end() && found->second.kind == MAPPED &&
                found->second.bytes == bytes;

    return is_it ? found : ranges.end();
}

int emu_unmap(uint64_t at, size_t bytes)
{
    int rc = INVALID_VALUE;

    pthread_mutex_lock(&lock);
    auto found = find_mapped(at, bytes);
    if (found != ranges.end()) {
        (void)mmap((void *)(uintptr_t)at, bytes, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        rc = put_made(found->second.made_of);
        ranges.erase(found);
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

/* On host memory whoever reaches it, all do. */
int emu_set_access(uint64_t at, size_t bytes)
{
    int rc = INVALID_VALUE;

    pthread_mutex_lock(&lock);
    auto found = find_mapped(at, bytes);
    if (found != ranges.end()) {
        rc = mprotect((void *)(uintptr_t)at, bytes, PROT_READ | PROT_WRITE) ? INVALID_VALUE : OK;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}
