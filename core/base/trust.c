/* SPDX-License-Identifier: BSD-3-Clause */
/* A look at a file and at its folder before the file is loaded; the header says what for.
 *
 * Thread: any. */
#include "base/trust.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Both, as they are behind all links. */
struct look {
    char file[PATH_MAX], folder[PATH_MAX];
    struct stat about_file, about_folder;
};

static int look_at(const char *path, struct look *look, char *why_out, size_t bytes)
{
    char *slash;

    if (!realpath(path, look->file) || stat(look->file, &look->about_file) != 0) {
        snprintf(why_out, bytes, "%s", strerror(errno));
        return 0;
    }
    memcpy(look->folder, look->file, strlen(look->file) + 1);
    slash = strrchr(look->folder, '/');
    slash[slash == look->folder] = 0;
    if (stat(look->folder, &look->about_folder) == 0)
        return 1;
    snprintf(why_out, bytes, "%s: %s", look->folder, strerror(errno));
    return 0;
}

static int is_closed(const struct look *look, char *why_out, size_t bytes)
{
    mode_t folder = look->about_folder.st_mode;

    if (!S_ISREG(look->about_file.st_mode))
        snprintf(why_out, bytes, "%s is not a regular file", look->file);
    else if (look->about_file.st_mode & S_IWOTH)
        snprintf(why_out, bytes, "%s is world-writable: chmod o-w it", look->file);
    else if ((folder & S_IWOTH) && !(folder & S_ISVTX))
        snprintf(why_out, bytes, "its folder %s is world-writable: chmod o-w it", look->folder);
    else
        return 1;
    return 0;
}

static int is_ours(uid_t owner)
{
    return owner == 0 || owner == geteuid();
}

int xccl_trust_file(const char *path, char *why_out, size_t bytes)
{
    struct look look;

    return look_at(path, &look, why_out, bytes) && is_closed(&look, why_out, bytes);
}

int xccl_trust_owned(const char *path, char *why_out, size_t bytes)
{
    struct look look;

    if (!look_at(path, &look, why_out, bytes) || !is_closed(&look, why_out, bytes))
        return 0;
    if (!is_ours(look.about_file.st_uid))
        snprintf(why_out, bytes, "%s belongs to user %u, not to root or this user", look.file,
                 (unsigned)look.about_file.st_uid);
    else if (!is_ours(look.about_folder.st_uid))
        snprintf(why_out, bytes, "its folder %s belongs to user %u, not to root or this user",
                 look.folder, (unsigned)look.about_folder.st_uid);
    else
        return 1;
    return 0;
}
