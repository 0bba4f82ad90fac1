/* SPDX-License-Identifier: BSD-3-Clause */
/* The loader matrix: which files are trusted, for each owner, group and mode of the file, of its
 * folder, of the folder above and of links on the way. A cell makes the entries with all owners and
 * modes good but one, looks as some user, and asks for the step that is named.
 *
 * Only root gives files away, so most tests need root; users and groups come from files of the
 * test's own, in a mount namespace. Files of others are made by root with chown, never by others.
 */
#include "base/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "unit/base/given_files.h"
#include "xt.h"

#define OTHER 12345 /* a user who is never trusted */
#define KEEP  ((id_t)-1)
#define ROOT  0

enum { ALICE = 2001, BOB, CAROL, DAVE, ERIN, FRANK, GRACE };

/* bob's group has a second member, carol's is dave's too, erin's has another name, frank's lists
 * him, grace's is not her primary one; sync has root's, as on some systems. */
static const char passwd_text[] = "root:x:0:0::/:/bin/sh\n"
                                  "alice:x:2001:2001::/:/bin/sh\n"
                                  "bob:x:2002:2002::/:/bin/sh\n"
                                  "carol:x:2003:2003::/:/bin/sh\n"
                                  "dave:x:2004:2003::/:/bin/sh\n"
                                  "erin:x:2005:2005::/:/bin/sh\n"
                                  "frank:x:2006:2006::/:/bin/sh\n"
                                  "grace:x:2007:2008::/:/bin/sh\n"
                                  "sync:x:5:0::/:/bin/sync\n";
static const char group_text[] = "root:x:0:\nalice:x:2001:\nbob:x:2002:alice\ncarol:x:2003:\n"
                                 "team:x:2005:\nfrank:x:2006:frank\ngrace:x:2007:\n";

static const char *place; /* of the trees; NULL: the test's folder */

/* The test's folder, which other users may enter. */
static const char *open_folder(void)
{
    const char *tests = xt_tmpdir();
    char above[512];

    XT_CHECK_INT(chmod(tests, 0755), 0);
    /* The harness makes two folders around it. */
    snprintf(above, sizeof(above), "%.500s", tests);
    for (int i = 0; i < 2; i++) {
        *strrchr(above, '/') = 0;
        XT_CHECK_INT(chmod(above, 0711), 0);
    }
    return tests;
}

/* A fresh tree, all of root: top/lib/a.so, and links to it. */
static void tree_make(void)
{
    static int count;

    place = place ? place : open_folder();
    snprintf(folder, sizeof(folder), "%.200s/%d", place, count++);
    XT_CHECK_INT(mkdir(folder, 0755), 0);
    XT_CHECK_INT(mkdir(in_folder("top"), 0755), 0);
    XT_CHECK_INT(mkdir(in_folder("top/lib"), 0755), 0);
    XT_CHECK_INT(mkdir(in_folder("links"), 0755), 0);
    write_text(in_folder("top/lib/a.so"), "x");
    XT_CHECK_INT(chmod(in_folder("top/lib/a.so"), 0644), 0);
    XT_CHECK_INT(symlink("../top/lib/a.so", in_folder("links/a.so")), 0);
    XT_CHECK_INT(symlink("a.so", in_folder("links/again.so")), 0);
    XT_CHECK_INT(symlink("../top/lib", in_folder("links/lib")), 0);
    XT_CHECK_INT(symlink("nowhere.so", in_folder("links/dangling.so")), 0);
    XT_CHECK_INT(symlink("loop.so", in_folder("links/loop.so")), 0);
    XT_CHECK_INT(symlink(in_folder("top/lib/a.so"), in_folder("links/absolute.so")), 0);
}

/* Says why a file is not trusted; "": it is. */
static const char *distrust(const char *path, const char *owners)
{
    static char why[4096];
    const struct xccl_trust_rules rules = {.owners = owners};
    struct xccl_file_id id;
    int trusted;

    why[0] = 0;
    trusted = xccl_trust_look(path, &rules, &id, why, sizeof(why));
    XT_CHECK_INT(trusted, why[0] == 0);
    return why;
}

/* Asks in a child. enter() gives the child another identity, or says why it cannot: "skip: ...". */
static const char *distrust_in_child(const char *path, const char *owners,
                                     const char *(*enter)(void *user), void *user)
{
    static char why[4096];
    int fds[2], status;
    ssize_t got;
    pid_t pid;

    XT_CHECK_INT(pipe2(fds, O_CLOEXEC), 0);
    pid = fork();
    XT_CHECK(pid >= 0);
    if (pid == 0) {
        const char *text = enter(user);

        text = text ? text : distrust(path, owners);
        _exit(write(fds[1], text, strlen(text) + 1) < 0);
    }
    close(fds[1]);
    got = read(fds[0], why, sizeof(why) - 1);
    close(fds[0]);
    XT_CHECK_INT(waitpid(pid, &status, 0), pid);
    XT_CHECK_INT(status, 0);
    XT_CHECK(got > 0);
    why[got] = 0;
    if (strncmp(why, "skip: ", 6) == 0)
        XT_SKIP("%s", why + 6);
    return why;
}

static const char *become(void *user)
{
    uid_t uid = *(uid_t *)user;

    return setresgid(uid, uid, uid) || setresuid(uid, uid, uid) ? "cannot become that user" : NULL;
}

/* The accounts above, for this process and its children. */
static void accounts_make(void)
{
    static const struct {
        const char *text, *name, *at;
    } files[] = {{passwd_text, "passwd", "/etc/passwd"}, {group_text, "group", "/etc/group"}};
    char path[512];

    if (!own_mounts())
        XT_SKIP("no mount namespace for users of the test's own: %s", strerror(errno));
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        snprintf(path, sizeof(path), "%.400s/%s", xt_tmpdir(), files[i].name);
        write_text(path, files[i].text);
        if (mount(path, files[i].at, NULL, MS_BIND, NULL) != 0)
            XT_SKIP("cannot replace %s for this test: %s", files[i].at, strerror(errno));
    }
}

/* One change to the good tree. */
struct cell {
    const char *entry; /* what is changed */
    id_t owner, group; /* KEEP */
    mode_t mode; /* 0: stays */
    const char *path; /* what is looked at */
    const char *owners; /* the setting */
    const char *refused; /* part of the text; NULL: taken */
};

static void cell_run(const struct cell *cell, uid_t as)
{
    const char *entry, *why;

    tree_make();
    entry = in_folder(cell->entry);
    XT_CHECK_INT(lchown(entry, (uid_t)cell->owner, (gid_t)cell->group), 0);
    if (cell->mode)
        XT_CHECK_INT(chmod(entry, cell->mode), 0);
    why = as == geteuid() ? distrust(in_folder(cell->path), cell->owners)
                          : distrust_in_child(in_folder(cell->path), cell->owners, become, &as);
    if (!cell->refused && why[0])
        XT_FAIL("as %u, %s owner %d group %d mode %04o, looking at %s: refused: %s", (unsigned)as,
                cell->entry, (int)cell->owner, (int)cell->group, (unsigned)cell->mode, cell->path,
                why);
    if (cell->refused && !strstr(why, cell->refused))
        XT_FAIL("as %u, %s owner %d group %d mode %04o, looking at %s: \"%s\" is not in: %s",
                (unsigned)as, cell->entry, (int)cell->owner, (int)cell->group, (unsigned)cell->mode,
                cell->path, cell->refused, why);
}

static void cells_run(const struct cell *cells, size_t count, uid_t as)
{
    for (size_t i = 0; i < count; i++)
        cell_run(&cells[i], as);
}
#define CELLS_RUN(cells, as) cells_run(cells, sizeof(cells) / sizeof((cells)[0]), as)

#define SO   "top/lib/a.so"
#define NAME "name the owner in XCCL_PLUGIN_OWNERS"

/* Any user may run this test: no file changes hands. */
XT_TEST(what_anybody_can_write_is_refused)
{
    static const struct cell cells[] = {
        {SO, KEEP, KEEP, 0644, SO, "", NULL},
        {SO, KEEP, KEEP, 0600, SO, "", NULL},
        {SO, KEEP, KEEP, 0444, SO, "", NULL},
        {SO, KEEP, KEEP, 0646, SO, "", "a.so (owner"},
        {SO, KEEP, KEEP, 0646, SO, "", "mode 0646) is world-writable: chmod o-w it"},
        {"top/lib", KEEP, KEEP, 0757, SO, "", "the folder "},
        {"top/lib", KEEP, KEEP, 0757, SO, "", "top/lib (owner"},
        {"top/lib", KEEP, KEEP, 0757, SO, "", "mode 0757) is world-writable: chmod o-w it"},
        {"top/lib", KEEP, KEEP, 01777, SO, "", NULL},
        {"top", KEEP, KEEP, 0777, SO, "", "top (owner"},
        {"top", KEEP, KEEP, 0777, SO, "", "mode 0777) is world-writable: chmod o-w it"},
        {"top", KEEP, KEEP, 01777, SO, "", NULL},
        {"links", KEEP, KEEP, 0757, "links/a.so", "", "links (owner"},
        {"links", KEEP, KEEP, 0757, SO, "", NULL},
        {"links", KEEP, KEEP, 01777, "links/a.so", "", NULL},
        {"top/lib", KEEP, KEEP, 0757, "links/a.so", "", "top/lib (owner"},
    };

    CELLS_RUN(cells, geteuid());
}

XT_TEST(a_path_is_walked_as_the_kernel_walks_it)
{
    char rest[32];

    tree_make();
    XT_CHECK_TEXT(distrust(in_folder("links/a.so"), ""), "");
    XT_CHECK_TEXT(distrust(in_folder("links/again.so"), ""), "");
    XT_CHECK_TEXT(distrust(in_folder("links/absolute.so"), ""), "");
    XT_CHECK_TEXT(distrust(in_folder("links/lib/a.so"), ""), "");
    XT_CHECK_TEXT(distrust(in_folder("links/lib/../lib//./a.so"), ""), "");
    XT_CHECK_HAS(distrust(in_folder("links/lib/../a.so"), ""), "top/a.so: No such file");
    XT_CHECK_HAS(distrust(in_folder("links/dangling.so"), ""), "nowhere.so: No such file");
    XT_CHECK_HAS(distrust(in_folder("links/loop.so"), ""), "Too many levels of symbolic links");
    XT_CHECK_HAS(distrust(in_folder("links/a.so/"), ""), "a.so: Not a directory");
    XT_CHECK_HAS(distrust(in_folder("top/lib/a.so/b"), ""), "a.so: Not a directory");
    XT_CHECK_HAS(distrust(in_folder("top/lib"), ""), "top/lib: Is a directory");
    XT_CHECK_HAS(distrust("/", ""), "/: Is a directory");
    XT_CHECK_HAS(distrust("", ""), "No such file");
    XT_CHECK_HAS(distrust("/dev/null", ""), "/dev/null is not a regular file");
    XT_CHECK_INT(mkfifo(in_folder("pipe"), 0600), 0);
    XT_CHECK_HAS(distrust(in_folder("pipe"), ""), "pipe is not a regular file");
    snprintf(rest, sizeof(rest), "top/%s", "lib/a.so");
    XT_CHECK_INT(chdir(folder), 0);
    XT_CHECK_TEXT(distrust(rest, ""), "");
    XT_CHECK_TEXT(distrust("./links/../top/lib/a.so", ""), "");
    XT_CHECK_INT(chdir("/"), 0);
}

XT_TEST(a_file_tells_whether_it_was_changed)
{
    const struct xccl_trust_rules rules = {.owners = ""};
    struct xccl_file_id id, again;
    char why[4096];

    tree_make();
    XT_CHECK(xccl_trust_look(in_folder(SO), &rules, &id, why, sizeof(why)));
    XT_CHECK(xccl_file_id_get(in_folder("links/a.so"), &again));
    XT_CHECK(xccl_file_id_is_same(&id, &again));
    write_text(in_folder(SO), "xy");
    XT_CHECK(xccl_file_id_get(in_folder(SO), &again));
    XT_CHECK(!xccl_file_id_is_same(&id, &again));
    XT_CHECK_INT(unlink(in_folder(SO)), 0);
    XT_CHECK(!xccl_file_id_get(in_folder(SO), &again));
}

/* The folder of the program's own file: who can change that can change the program. */
XT_TEST(folders_above_the_program_are_not_asked)
{
    char home[PATH_MAX], why[4096] = "";
    const struct xccl_trust_rules rules = {.owners = ""};
    struct xccl_file_id id;

    XT_CHECK(xccl_trust_home(home));
    XT_CHECK_HAS(home, "/test_trust");
    if (!xccl_trust_look(home, &rules, &id, why, sizeof(why)))
        XT_CHECK_HAS(why, home); /* the file itself may be another's, nothing above it */
}

XT_TEST(root_takes_what_is_roots_or_a_named_owners)
{
    static const struct cell cells[] = {
        {SO, OTHER, KEEP, 0, SO, "", "the file "},
        {SO, OTHER, KEEP, 0, SO, "",
         "a.so (owner 12345, mode 0644) belongs neither to root nor to"},
        {SO, OTHER, KEEP, 0, SO, "", "chown it, or " NAME},
        {SO, OTHER, KEEP, 0, SO, NULL, "this user: chown it"},
        {SO, OTHER, KEEP, 0, SO, "12345", NULL},
        {SO, OTHER, KEEP, 0, SO, " nobody-at-all , 12345", NULL},
        {SO, OTHER, KEEP, 0, SO, "12346,1234,123456,root", NAME},
        {SO, OTHER, KEEP, 0, SO, "0,12345x,12346", "or by number (\"12345x\" is not known)"},
        {SO, OTHER, KEEP, 0666, SO, "12345", "is world-writable"},
        {SO, OTHER, OTHER, 0664, SO, "12345", "its group can write it, and is not"},
        {"top/lib", OTHER, KEEP, 0, SO, "", "the folder "},
        {"top/lib", OTHER, KEEP, 0, SO, "", "top/lib (owner 12345, mode 0755) belongs neither"},
        {"top/lib", OTHER, KEEP, 0, SO, "12345", NULL},
        {"top/lib", OTHER, KEEP, 01777, SO, "", "top/lib (owner 12345, mode 1777) belongs"},
        {"top", OTHER, KEEP, 0, SO, "", "top (owner 12345, mode 0755) belongs neither"},
        {"top", OTHER, KEEP, 0, SO, "12345", NULL},
        {"links", OTHER, KEEP, 0, "links/a.so", "", "links (owner 12345, mode 0755) belongs"},
        {"links", OTHER, KEEP, 0, SO, "", NULL},
        {"links/a.so", OTHER, KEEP, 0, "links/a.so", "", "the link "},
        {"links/a.so", OTHER, KEEP, 0, "links/a.so", "", "links/a.so (owner 12345, mode 0777)"},
        {"links/a.so", OTHER, KEEP, 0, "links/again.so", "", "links/a.so (owner 12345"},
        {"links/again.so", OTHER, KEEP, 0, "links/again.so", "", "again.so (owner 12345"},
        {"links/lib", OTHER, KEEP, 0, "links/lib/a.so", "", "links/lib (owner 12345"},
        {"links/lib", OTHER, KEEP, 0, "links/lib/a.so", "12345", NULL},
        {"top/lib", OTHER, KEEP, 0, "links/a.so", "", "top/lib (owner 12345"},
        {"top", OTHER, KEEP, 0, "links/lib/a.so", "", "top (owner 12345"},
        {"links/loop.so", OTHER, KEEP, 0, "links/loop.so", "", "loop.so (owner 12345"},
    };

    need_root();
    CELLS_RUN(cells, ROOT);
}

XT_TEST(a_sticky_folder_helps_only_entries_of_trusted_owners)
{
    static const struct cell cells[] = {
        {SO, OTHER, KEEP, 0, SO, "", "a.so (owner 12345"},
        {SO, KEEP, KEEP, 0644, SO, "", NULL},
        {"links/a.so", OTHER, KEEP, 0, "links/a.so", "", "links/a.so (owner 12345"},
    };

    need_root();
    for (size_t i = 0; i < sizeof(cells) / sizeof(cells[0]); i++) {
        const char *why;

        tree_make();
        XT_CHECK_INT(chmod(in_folder("top/lib"), 01777), 0);
        XT_CHECK_INT(chmod(in_folder("links"), 01777), 0);
        XT_CHECK_INT(lchown(in_folder(cells[i].entry), (uid_t)cells[i].owner, KEEP), 0);
        why = distrust(in_folder(cells[i].path), "");
        if (cells[i].refused)
            XT_CHECK_HAS(why, cells[i].refused);
        else
            XT_CHECK_TEXT(why, "");
    }
}

XT_TEST(root_takes_what_its_own_group_can_write)
{
    static const struct cell cells[] = {
        {SO, KEEP, 0, 0664, SO, "", NULL},
        {"top/lib", KEEP, 0, 0775, SO, "", NULL},
        {SO, KEEP, OTHER, 0664, SO, "", "a.so (owner 0, group 12345, mode 0664): its group can"},
        {SO, KEEP, OTHER, 0664, SO, "", "one trusted user's own: chmod g-w it"},
        {SO, KEEP, OTHER, 0644, SO, "", NULL},
        {"top/lib", KEEP, OTHER, 0775, SO, "", "top/lib (owner 0, group 12345, mode 0775): its"},
        {"top/lib", KEEP, OTHER, 01775, SO, "", NULL},
        {"top", KEEP, OTHER, 0775, SO, "", "top (owner 0, group 12345, mode 0775): its group"},
        {"links", KEEP, OTHER, 0775, "links/a.so", "", "links (owner 0, group 12345"},
    };

    need_root();
    CELLS_RUN(cells, ROOT);
}

XT_TEST(a_group_is_private_if_it_is_one_trusted_users_alone)
{
    static const struct cell as_alice[] = {
        {SO, ALICE, ALICE, 0664, SO, "", NULL},
        {SO, KEEP, ALICE, 0664, SO, "", NULL},
        {SO, ALICE, 0, 0664, SO, "", NULL},
        {SO, ALICE, BOB, 0664, SO, "", "its group can write it, and is not"},
        {SO, ALICE, FRANK, 0664, SO, "", "its group can write it, and is not"},
        {SO, ALICE, FRANK, 0664, SO, "frank", NULL},
        {SO, ALICE, OTHER, 0664, SO, "", "group 12345, mode 0664): its group"},
        {"top/lib", ALICE, ALICE, 0775, SO, "", NULL},
        {"top/lib", ALICE, ERIN, 0775, SO, "", "top/lib (owner 2001, group 2005, mode 0775): its"},
        {"top", ALICE, ALICE, 02775, SO, "", NULL},
    };
    static const struct cell as_bob[] = {
        {SO, BOB, BOB, 0664, SO, "", "its group can write it, and is not"},
        {SO, BOB, BOB, 0664, SO, "alice", NULL},
        {SO, BOB, BOB, 0644, SO, "", NULL},
    };
    static const struct cell as_carol[] = {
        {SO, CAROL, CAROL, 0664, SO, "", "its group can write it, and is not"},
        {SO, CAROL, ALICE, 0664, SO, "", "its group can write it, and is not"},
    };
    static const struct cell as_erin[] = {
        {SO, ERIN, ERIN, 0664, SO, "", "its group can write it, and is not"},
    };
    static const struct cell as_frank[] = {{SO, FRANK, FRANK, 0664, SO, "", NULL}};
    static const struct cell as_grace[] = {
        {SO, GRACE, GRACE, 0664, SO, "", "its group can write it, and is not"},
    };
    static const struct cell as_root[] = {
        {SO, KEEP, 0, 0664, SO, "", NULL},
        {SO, KEEP, ALICE, 0664, SO, "", "its group can write it, and is not"},
        {SO, KEEP, ALICE, 0664, SO, "alice", NULL},
        {SO, KEEP, ALICE, 0664, SO, "2001", NULL},
        {SO, ALICE, KEEP, 0644, SO, "alice", NULL},
        {SO, ALICE, KEEP, 0644, SO, "bob", "a.so (owner 2001"},
    };

    need_root();
    accounts_make();
    CELLS_RUN(as_alice, ALICE);
    CELLS_RUN(as_bob, BOB);
    CELLS_RUN(as_carol, CAROL);
    CELLS_RUN(as_erin, ERIN);
    CELLS_RUN(as_frank, FRANK);
    CELLS_RUN(as_grace, GRACE);
    CELLS_RUN(as_root, ROOT);
}

XT_TEST(a_user_takes_what_is_roots_or_the_users)
{
    static const struct cell cells[] = {
        {SO, KEEP, KEEP, 0644, SO, "", NULL},
        {SO, ALICE, KEEP, 0644, SO, "", NULL},
        {SO, OTHER, KEEP, 0644, SO, "", "a.so (owner 12345, mode 0644) belongs neither"},
        {SO, BOB, KEEP, 0644, SO, "2002", NULL},
        {"top/lib", ALICE, KEEP, 0755, SO, "", NULL},
        {"top/lib", BOB, KEEP, 0755, SO, "", "top/lib (owner 2002"},
        {"top", BOB, KEEP, 0755, SO, "", "top (owner 2002"},
        {"links/a.so", ALICE, KEEP, 0, "links/a.so", "", NULL},
        {"links/a.so", BOB, KEEP, 0, "links/a.so", "", "links/a.so (owner 2002"},
        {SO, KEEP, KEEP, 0600, SO, "", "a.so: Permission denied"},
        {"top", KEEP, KEEP, 0700, SO, "", "top/lib: Permission denied"},
        {"top", KEEP, KEEP, 0711, SO, "", NULL},
    };

    need_root();
    CELLS_RUN(cells, ALICE);
}

/* A list in the form in which the kernel keeps it: this user may write. */
static int acl_set(const char *path, uint32_t uid)
{
    const struct {
        uint32_t version;
        struct {
            uint16_t tag, perm;
            uint32_t id;
        } entries[5];
    } list = {2,
              {{0x01, 6, UINT32_MAX},
               {0x02, 6, uid},
               {0x04, 4, UINT32_MAX},
               {0x10, 6, UINT32_MAX},
               {0x20, 4, UINT32_MAX}}};

    return setxattr(path, "system.posix_acl_access", &list, sizeof(list), 0);
}

XT_TEST(an_access_control_list_is_not_taken_for_a_private_group)
{
    need_root();
    tree_make();
    XT_CHECK_INT(chmod(in_folder(SO), 0664), 0);
    XT_CHECK_TEXT(distrust(in_folder(SO), ""), "");
    if (acl_set(in_folder(SO), OTHER) != 0)
        XT_SKIP("no access control lists in %s: %s", folder, strerror(errno));
    XT_CHECK_HAS(distrust(in_folder(SO), ""), "an access control list may let others write it");
    XT_CHECK_HAS(distrust(in_folder(SO), ""), "setfacl -b it, or chmod g-w it");
    XT_CHECK_INT(chmod(in_folder(SO), 0644), 0); /* the mask leaves the list nothing */
    XT_CHECK_TEXT(distrust(in_folder(SO), ""), "");
}

static const char *enter_without_proc(void *user)
{
    (void)user;
    if (!own_mounts() || mount("none", "/proc", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755") != 0)
        return "skip: no mount namespace to hide /proc in";
    return NULL;
}

XT_TEST(the_rules_hold_without_proc)
{
    need_root();
    tree_make();
    XT_CHECK_TEXT(distrust_in_child(in_folder("links/a.so"), "", enter_without_proc, NULL), "");
    XT_CHECK_INT(lchown(in_folder("links/a.so"), OTHER, (gid_t)KEEP), 0);
    XT_CHECK_HAS(distrust_in_child(in_folder("links/a.so"), "", enter_without_proc, NULL),
                 "links/a.so (owner 12345, mode 0777) belongs neither to root nor to this user");
}

/* ---- user namespaces ---- */

static const char *enter_namespace(const char *map)
{
    uid_t alice = ALICE;
    static char text[256];
    int fd;

    if (become(&alice))
        return "cannot become alice";
    prctl(PR_SET_DUMPABLE, 1);
    if (unshare(CLONE_NEWUSER) != 0) {
        snprintf(text, sizeof(text), "skip: no user namespace: %s", strerror(errno));
        return text;
    }
    fd = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);
    if (map && write(fd, map, strlen(map)) < 0) {
        snprintf(text, sizeof(text), "skip: cannot map users: %s", strerror(errno));
        return text;
    }
    close(fd);
    return NULL;
}

/* alice is root inside, and real root is one of those that are not mapped. */
static const char *enter_as_root(void *user)
{
    (void)user;
    return enter_namespace("0 2001 1");
}

/* alice has no number inside, as little as anybody else. */
static const char *enter_unmapped(void *user)
{
    (void)user;
    return enter_namespace(NULL);
}

/* A tree of alice's, below a folder that no other user owns. */
static void tree_make_for_alice(void)
{
    static const char *const entries[] = {"top/lib/a.so", "top/lib", "top", ""};
    const uid_t uid = ALICE;

    need_root();
    if (!own_mounts() ||
        mount("alice", "/mnt", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,uid=2001") != 0)
        XT_SKIP("no file system of the test's own: %s", strerror(errno));
    place = "/mnt";
    tree_make();
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++)
        XT_CHECK_INT(chown(in_folder(entries[i]), uid, (gid_t)KEEP), 0);
}

#define INSIDE(owners) distrust_in_child(in_folder(SO), owners, enter_as_root, NULL)

XT_TEST(root_of_a_user_namespace_trusts_its_own_number_and_not_the_others)
{
    tree_make_for_alice();
    XT_CHECK_TEXT(INSIDE(""), "");
    /* Real root cannot be told from any other user outside. */
    XT_CHECK_INT(chown(in_folder(SO), 0, (gid_t)KEEP), 0);
    XT_CHECK_HAS(INSIDE(""), "a.so (owner 65534, of another user namespace, mode 0644) belongs");
    XT_CHECK_HAS(INSIDE(""), NAME);
    XT_CHECK_TEXT(INSIDE("65534"), "");
    XT_CHECK_INT(chown(in_folder(SO), OTHER, (gid_t)KEEP), 0);
    XT_CHECK_HAS(INSIDE(""), "a.so (owner 65534, of another user namespace");
    XT_CHECK_INT(chown(in_folder(SO), ALICE, (gid_t)KEEP), 0);
    XT_CHECK_INT(chown(in_folder("top"), OTHER, (gid_t)KEEP), 0);
    XT_CHECK_HAS(INSIDE(""), "top (owner 65534, of another user namespace, mode 0755) belongs");
}

XT_TEST(a_user_without_a_number_is_not_taken_for_all_that_have_none)
{
    tree_make_for_alice();
    XT_CHECK_HAS(distrust_in_child(in_folder(SO), "", enter_unmapped, NULL),
                 "(owner 65534, of another user namespace, mode 0755) belongs neither");
    XT_CHECK_TEXT(distrust_in_child(in_folder(SO), "65534", enter_unmapped, NULL), "");
}
