/* SPDX-License-Identifier: BSD-3-Clause */
/* Files and programs of a test that belong to one user and are looked at by another: a folder that
 * the test chooses, what it puts there, and mounts that nobody else sees.
 *
 * Thread: one. Header only. */
#ifndef TESTS_UNIT_BASE_GIVEN_FILES_H
#define TESTS_UNIT_BASE_GIVEN_FILES_H

#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "xt.h"

static char folder[256];

/* The path of an entry of the folder; good for the next 15 calls. */
static inline const char *in_folder(const char *name)
{
    static char paths[16][512];
    static int turn;

    turn = (turn + 1) % 16;
    snprintf(paths[turn], sizeof(paths[turn]), "%s/%s", folder, name);
    return paths[turn];
}

static inline void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");

    XT_CHECK(file != NULL);
    XT_CHECK(fputs(text, file) >= 0);
    XT_CHECK_INT(fclose(file), 0);
}

/* Copies a file or a folder into the folder; the copy belongs to this user and has mode 0755. */
static inline const char *copy(const char *from, const char *name)
{
    const char *path = in_folder(name), *text;
    const char *const cp[] = {"/bin/cp", "-rL", from, path, NULL};

    if (xt_run_program(cp, &text) != 0)
        XT_FAIL("cannot copy %s: %s", from, text);
    XT_CHECK_INT(chown(path, geteuid(), (gid_t)-1), 0);
    XT_CHECK_INT(chmod(path, 0755), 0);
    return path;
}

static inline void need_root(void)
{
    if (geteuid() != 0)
        XT_SKIP("only root gives files away and makes programs that run as another user");
}

/* 1: what this process mounts from now on, only it and its children see; 0 with errno. */
static inline int own_mounts(void)
{
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

#endif
