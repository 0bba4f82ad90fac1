/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests of records: a folder of the test's own, and what lies in it. Header only.
 * Thread: the test's own. */
#ifndef TESTS_UNIT_RECORD_RECORD_FILES_H
#define TESTS_UNIT_RECORD_RECORD_FILES_H

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/error.h"
#include "base/param.h"
#include "record/record.h"
#include "record/record_folder.h"
#include "record/record_read.h"
#include "xt.h"

/* A new folder, to which the settings point. */
static inline const char *record_folder_use(void)
{
    const char *folder = xt_tmpdir();

    xt_setenv("XCCL_RECORD_DIR", folder);
    xccl_param_reset();
    return folder;
}

/* The name of the only record in a folder. */
static inline void record_name_of(const char *folder, char *name_out, size_t bytes)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    int count = 0;

    XT_CHECK(dir != NULL);
    while ((entry = readdir(dir))) {
        if (!xccl_record_is_name(entry->d_name))
            continue;
        snprintf(name_out, bytes, "%s", entry->d_name);
        count++;
    }
    closedir(dir);
    XT_CHECK_INT(count, 1);
}

/* Reads the only record in a folder, with all of its events. */
static inline struct xccl_record_view record_view_of(const char *folder)
{
    struct xccl_record_view view;
    char name[256];
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    XT_CHECK(fd >= 0);
    record_name_of(folder, name, sizeof name);
    XT_OK(xccl_record_read(fd, name, UINT32_MAX, &view));
    close(fd);
    return view;
}

#endif
