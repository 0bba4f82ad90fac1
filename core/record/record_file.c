/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes the file under another name, locked, and gives it its own when it is whole: who finds it
 * finds it complete. All of its memory is taken at once, so that no store into a block ever meets a
 * full file system. Thread: see the header. */
#include "record/record_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/inject.h"
#include "base/os.h"
#include "record/record_folder.h"
#include "xccl.h"

#define ALLOCATE_TRIES 100 /* that a signal may interrupt */

/* Takes memory for the file up to `end`. 0, or an errno. */
static int allocate(int fd, uint64_t end)
{
    struct rlimit limit;
    struct stat status;
    int err = EINTR;

    if (xccl_inject_due())
        return ENOSPC;
    /* Beyond the limit the kernel would not only refuse, but send a signal. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        end > limit.rlim_cur)
        return EFBIG;
    if (fstat(fd, &status) != 0)
        return errno;
    if ((uint64_t)status.st_size >= end)
        return 0;
    for (int i = 0; i < ALLOCATE_TRIES && err == EINTR; i++)
        err = posix_fallocate(fd, status.st_size, (off_t)end - status.st_size);
    return err;
}

static void *map_part(int fd, off_t offset, size_t bytes)
{
    void *at;

    if (xccl_inject_due()) {
        errno = ENOMEM;
        return NULL;
    }
    at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, offset);
    if (at == MAP_FAILED)
        return NULL;
    (void)madvise(at, bytes, MADV_DONTFORK); /* what a child writes: see record.c */
    return at;
}

static void fill_head(struct xccl_record_head *head, uint32_t events)
{
    head->magic = XCCL_RECORD_MAGIC;
    head->version = XCCL_RECORD_VERSION;
    head->head_bytes = XCCL_RECORD_PAGE;
    head->block_bytes = (uint32_t)xccl_record_block_bytes(events);
    head->events = events;
    head->clock = (uint32_t)xccl_record_clock_choose();
    head->pid = (uint32_t)getpid();
    head->uid = (uint32_t)geteuid();
    head->boot_hash = xccl_record_boot_hash();
    head->marks[0] = xccl_record_mark_now((enum xccl_record_clock)head->clock);
    snprintf(head->host, sizeof head->host, "%s", xccl_os_hostname());
    snprintf(head->program, sizeof head->program, "%s", program_invocation_short_name);
    snprintf(head->writer, sizeof head->writer, "%d.%d.%d", XCCL_MAJOR, XCCL_MINOR, XCCL_PATCH);
}

/* Everything but the name, which is still `draft`. */
static int fill_file(struct xccl_record_file *file, uint32_t events, const char **what_out)
{
    struct stat status;
    int err;

    *what_out = "lock";
    if (fstat(file->fd, &status) != 0 || xccl_record_lock(file->fd) != 0)
        return errno;
    file->inode = status.st_ino;
    *what_out = "allocate";
    err = allocate(file->fd, XCCL_RECORD_PAGE);
    if (err)
        return err;
    *what_out = "map";
    file->head = map_part(file->fd, 0, XCCL_RECORD_PAGE);
    if (!file->head)
        return errno;
    fill_head(file->head, events);
    return 0;
}

static int name_file(struct xccl_record_file *file, const char *draft)
{
    const struct xccl_record_mark *mark = &file->head->marks[0];

    snprintf(file->name, sizeof file->name, "%u-%llx%s", file->head->pid,
             (unsigned long long)mark->real_ns, XCCL_RECORD_SUFFIX);
    return renameat(file->folder_fd, draft, file->folder_fd, file->name) == 0 ? 0 : errno;
}

/* The folder is open. */
static int make_file(struct xccl_record_file *file, uint32_t events, char *why_out, size_t bytes)
{
    const char *what = "make";
    char draft[64];
    int err;

    snprintf(draft, sizeof draft, ".%u-%llx%s", (unsigned)getpid(),
             (unsigned long long)xccl_record_monotonic(), XCCL_RECORD_SUFFIX);
    file->fd = xccl_inject_due() ? -1
                                 : openat(file->folder_fd, draft,
                                          O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    err = file->fd < 0 ? errno : fill_file(file, events, &what);
    if (file->fd >= 0 && !err) {
        what = "name";
        err = name_file(file, draft);
    }
    if (file->fd >= 0 && !err)
        return 0;
    if (file->head)
        munmap(file->head, XCCL_RECORD_PAGE);
    if (file->fd >= 0) {
        (void)unlinkat(file->folder_fd, draft, 0);
        close(file->fd);
    }
    file->head = NULL;
    snprintf(why_out, bytes, "cannot %s a file of records: %s", what, strerror(err));
    return -1;
}

int xccl_record_file_make(struct xccl_record_file *file, uint32_t events, char *why_out,
                          size_t bytes)
{
    char paths[XCCL_RECORD_FOLDERS][XCCL_RECORD_PATH_BYTES];
    int count = xccl_record_folders(paths);

    *file = (struct xccl_record_file){.fd = -1, .folder_fd = -1, .pid = (uint32_t)getpid()};
    /* XDG_RUNTIME_DIR may be another user's, after su. */
    for (int i = 0; i < count && file->folder_fd < 0; i++)
        file->folder_fd = xccl_record_folder_open(paths[i], 1, why_out, bytes);
    if (file->folder_fd < 0)
        return -1;
    xccl_record_reap(file->folder_fd);
    if (make_file(file, events, why_out, bytes) == 0)
        return 0;
    close(file->folder_fd);
    file->folder_fd = -1;
    return -1;
}

struct xccl_record_block *xccl_record_file_block(struct xccl_record_file *file, uint32_t idx,
                                                 char *why_out, size_t bytes)
{
    size_t block_bytes = file->head->block_bytes;
    uint64_t first = XCCL_RECORD_PAGE + (uint64_t)idx * block_bytes;
    int err = allocate(file->fd, first + block_bytes);
    struct xccl_record_block *block = NULL;

    if (!err) {
        block = map_part(file->fd, (off_t)first, block_bytes);
        err = block ? 0 : errno;
    }
    if (err) {
        snprintf(why_out, bytes, "cannot add %zu bytes to a file of records: %s", block_bytes,
                 strerror(err));
        return NULL;
    }
    /* Release: its memory is there. Readers look at the size of the file all the same. */
    if (atomic_load_explicit(&file->head->blocks, memory_order_relaxed) <= idx)
        atomic_store_explicit(&file->head->blocks, idx + 1, memory_order_release);
    return block;
}

void xccl_record_file_mark(struct xccl_record_file *file)
{
    struct xccl_record_head *head = file->head;
    uint32_t last;

    if (!head)
        return;
    last = atomic_load_explicit(&head->last, memory_order_relaxed) == 1 ? 2 : 1;
    head->marks[last] = xccl_record_mark_now((enum xccl_record_clock)head->clock);
    /* Release: the mark before its number; a process killed between leaves the older one. */
    atomic_store_explicit(&head->last, last, memory_order_release);
}

static void close_file(struct xccl_record_file *file)
{
    if (!file->head)
        return;
    munmap(file->head, XCCL_RECORD_PAGE);
    close(file->fd);
    close(file->folder_fd);
    *file = (struct xccl_record_file){.fd = -1, .folder_fd = -1};
}

void xccl_record_file_remove(struct xccl_record_file *file)
{
    if (!file->head)
        return;
    if (file->pid == (uint32_t)getpid())
        (void)unlinkat(file->folder_fd, file->name, 0);
    close_file(file);
}

/* The number may be another file's: a thread of the parent may have closed and opened one while the
 * process was copied. */
void xccl_record_file_leave(struct xccl_record_file *file)
{
    struct stat status;

    if (file->fd >= 0 && fstat(file->fd, &status) == 0 && status.st_ino == file->inode)
        close(file->fd);
    *file = (struct xccl_record_file){.fd = -1, .folder_fd = -1};
}
