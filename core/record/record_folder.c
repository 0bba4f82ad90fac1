/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds and checks the folder of records, tells live files from dead ones, and removes old ones.
 * Thread: any; two processes that clean up at the same time do no harm. */
#include "record/record_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/param.h"

#define SEEN_MAX  256 /* dead files that are looked at, on the stack */
#define DRAFT_AGE 60 /* seconds: a file that is being made does not take so long */

int xccl_record_folders(char paths_out[XCCL_RECORD_FOLDERS][XCCL_RECORD_PATH_BYTES])
{
    const char *own = xccl_param_string(XCCL_P_RECORD_DIR), *run = secure_getenv("XDG_RUNTIME_DIR");
    int count = 0;

    if (own[0]) {
        snprintf(paths_out[0], XCCL_RECORD_PATH_BYTES, "%s", own);
        return 1;
    }
    if (run && run[0] == '/' && strlen(run) + sizeof "/xccl" <= XCCL_RECORD_PATH_BYTES)
        snprintf(paths_out[count++], XCCL_RECORD_PATH_BYTES, "%s/xccl", run);
    snprintf(paths_out[count++], XCCL_RECORD_PATH_BYTES, "/dev/shm/xccl-%u", (unsigned)geteuid());
    return count;
}

int xccl_record_folder_open(const char *path, int make, char *why_out, size_t bytes)
{
    struct stat status;
    int fd;

    why_out[0] = '\0';
    if (make && mkdir(path, 0700) != 0 && errno != EEXIST) {
        snprintf(why_out, bytes, "cannot make %s: %s", path, strerror(errno));
        return -1;
    }
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return -1;
    if (fd < 0 || fstat(fd, &status) != 0) {
        snprintf(why_out, bytes, "cannot open %s: %s", path,
                 errno == ENOTDIR || errno == ELOOP ? "it is no folder" : strerror(errno));
    } else if (status.st_uid != geteuid()) {
        snprintf(why_out, bytes, "%s belongs to user %u", path, (unsigned)status.st_uid);
    } else if (status.st_mode & (S_IWGRP | S_IWOTH)) {
        snprintf(why_out, bytes, "others may write into %s", path);
    } else {
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

static int ends_with(const char *name, const char *end)
{
    size_t bytes = strlen(name), end_bytes = strlen(end);

    return bytes > end_bytes && strcmp(name + bytes - end_bytes, end) == 0;
}

int xccl_record_is_name(const char *name)
{
    return name[0] >= '1' && name[0] <= '9' && ends_with(name, XCCL_RECORD_SUFFIX);
}

int xccl_record_lock(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    return fcntl(fd, F_OFD_SETLK, &lock);
}

int xccl_record_is_live(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* A record that nobody holds. */
struct dead {
    char name[64];
    struct timespec time;
    off_t bytes;
};

struct dead_list {
    struct dead files[SEEN_MAX];
    int count;
};

static void look_at(int folder_fd, const char *name, struct dead_list *list)
{
    int is_draft = name[0] == '.' && ends_with(name, XCCL_RECORD_SUFFIX);
    struct dead *dead = &list->files[list->count];
    struct stat status;
    struct timespec now;
    int fd;

    if ((!is_draft && !xccl_record_is_name(name)) || strlen(name) >= sizeof dead->name)
        return;
    fd = openat(folder_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && !xccl_record_is_live(fd) &&
        (!is_draft || now.tv_sec - status.st_mtim.tv_sec > DRAFT_AGE)) {
        memcpy(dead->name, name, strlen(name) + 1); /* it was measured above */
        dead->time = status.st_mtim;
        dead->bytes = is_draft ? (off_t)XCCL_RECORD_DEAD_BYTES + 1 : status.st_size;
        list->count++;
    }
    close(fd);
}

/* Newest first. */
static int compare(const void *a, const void *b)
{
    const struct timespec *left = &((const struct dead *)a)->time;
    const struct timespec *right = &((const struct dead *)b)->time;

    if (left->tv_sec != right->tv_sec)
        return left->tv_sec < right->tv_sec ? 1 : -1;
    if (left->tv_nsec != right->tv_nsec)
        return left->tv_nsec < right->tv_nsec ? 1 : -1;
    return 0;
}

/* A draft counts as too large, and is always removed. */
static void remove_old(int folder_fd, struct dead_list *list)
{
    off_t bytes = 0;
    int kept = 0;

    qsort(list->files, (size_t)list->count, sizeof list->files[0], compare);
    for (int i = 0; i < list->count; i++) {
        const struct dead *dead = &list->files[i];

        if (kept < XCCL_RECORD_DEAD_MAX && bytes + dead->bytes <= (off_t)XCCL_RECORD_DEAD_BYTES) {
            bytes += dead->bytes;
            kept++;
        } else {
            (void)unlinkat(folder_fd, dead->name, 0);
        }
    }
}

void xccl_record_reap(int folder_fd)
{
    struct dead_list list = {.count = 0};
    int fd = openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    if (!folder && fd >= 0)
        close(fd);
    while (folder && list.count < SEEN_MAX && (entry = readdir(folder)))
        look_at(folder_fd, entry->d_name, &list);
    if (folder)
        closedir(folder);
    remove_old(folder_fd, &list);
}
