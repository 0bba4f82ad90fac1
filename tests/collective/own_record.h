/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests: what the record of their own process says, read as `xccl report` reads it. Header
 * only.
 *
 * Thread: any. */
#ifndef TESTS_COLLECTIVE_OWN_RECORD_H
#define TESTS_COLLECTIVE_OWN_RECORD_H

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include "record/record_folder.h"
#include "record/record_read.h"
#include "xt.h"

/* Of the calling process. 0: it has none. */
static inline int own_record(struct xccl_record_view *view_out)
{
    char paths[XCCL_RECORD_FOLDERS][XCCL_RECORD_PATH_BYTES], why[256];
    int fd, found = 0;
    struct dirent *entry;
    DIR *dir;

    (void)xccl_record_folders(paths);
    fd = xccl_record_folder_open(paths[0], 0, why, sizeof why);
    if (fd < 0)
        return 0;
    dir = fdopendir(fd);
    XT_CHECK(dir != NULL);
    while (!found && (entry = readdir(dir))) {
        /* Another rank's may go meanwhile. */
        if (!xccl_record_is_name(entry->d_name) ||
            xccl_record_read(dirfd(dir), entry->d_name, UINT32_MAX, view_out))
            continue;
        found = view_out->info.pid == (uint32_t)getpid();
        if (!found)
            xccl_record_view_free(view_out);
    }
    closedir(dir);
    return found;
}

#endif
