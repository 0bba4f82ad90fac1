/* SPDX-License-Identifier: BSD-3-Clause */
/* Which files are trusted with being loaded: nobody else can write them or their folders, and,
 * where that is asked, they belong to root or this user. Files of others only root can make. */
#include "base/trust.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "xt.h"

static char folder[PATH_MAX], path[PATH_MAX + 16];

static void file_make(void)
{
    FILE *file;

    snprintf(folder, sizeof(folder), "%.3000s/lib", xt_tmpdir());
    snprintf(path, sizeof(path), "%s/a.so", folder);
    XT_CHECK_INT(mkdir(folder, 0755), 0);
    file = fopen(path, "we");
    XT_CHECK(file != NULL);
    XT_CHECK_INT(fclose(file), 0);
    XT_CHECK_INT(chmod(path, 0644), 0);
}

/* Why that file is not trusted; "": it is. */
static const char *distrust(const char *file)
{
    static char why[PATH_MAX + 64];
    int trusted;

    why[0] = 0;
    trusted = xccl_trust_owned(file, why, sizeof(why));
    XT_CHECK_INT(trusted, why[0] == 0);
    return why;
}

XT_TEST(a_file_that_others_can_change_is_not_trusted)
{
    file_make();
    XT_CHECK_TEXT(distrust(path), "");
    XT_CHECK_INT(chmod(path, 0646), 0);
    XT_CHECK_HAS(distrust(path), "a.so is world-writable: chmod o-w it");
    XT_CHECK_INT(chmod(path, 0644), 0);
    XT_CHECK_INT(chmod(folder, 0777), 0);
    XT_CHECK_HAS(distrust(path), "lib is world-writable: chmod o-w it");
    XT_CHECK_INT(chmod(folder, 01777), 0);
    XT_CHECK_TEXT(distrust(path), "");
    XT_CHECK_HAS(distrust(folder), "is not a regular file");
    XT_CHECK_HAS(distrust("/nowhere/at/all"), "No such file or directory");
}

XT_TEST(a_file_of_another_user_is_not_trusted)
{
    char why[PATH_MAX];

    if (geteuid() != 0)
        XT_SKIP("only root gives files away");
    file_make();
    XT_CHECK_INT(chown(path, 12345, 0), 0);
    XT_CHECK_HAS(distrust(path), "a.so belongs to user 12345, not to root or this user");
    XT_CHECK(xccl_trust_file(path, why, sizeof(why)));
    XT_CHECK_INT(chown(path, 0, 0), 0);
    XT_CHECK_INT(chown(folder, 12345, 0), 0);
    XT_CHECK_HAS(distrust(path), "its folder ");
    XT_CHECK_HAS(distrust(path), "belongs to user 12345");
}
