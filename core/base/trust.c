/* SPDX-License-Identifier: BSD-3-Clause */
/* Walks a path as the kernel does, one name at a time, and looks at each folder, link and file by
 * its descriptor; the header says what for.
 *
 * Nothing can be changed after the look: to make the path lead elsewhere, somebody must replace an
 * entry of a folder on the way, which takes the right to write that folder, or, in a sticky one,
 * to own the entry or the folder. Only trusted owners have these rights. The superuser of the
 * machine has all rights and is not kept out. A mode says nothing of access control lists but their
 * mask, so a list is looked for where a group may write. Thread: any. */
#include "base/trust.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <link.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define LINKS_MAX    40 /* as the kernel */
#define NSS_BYTES    4096 /* a group that needs more has members */
#define NAME_BYTES   64 /* of a user in the setting */
#define WHY_BYTES    640
#define SHOWN        "%.300s"
#define ACCESS_LIST  "system.posix_acl_access"
#define UNMAPPED     65534 /* the kernel's number, where /proc is not there to ask */
#define SETTING      "XCCL_PLUGIN_OWNERS"
#define FOLDER_FLAGS (O_PATH | O_DIRECTORY | O_CLOEXEC)

enum kind { FOLDER, LINK, FILE_ITSELF };

/* The file that holds this code, and its folder. */
struct home {
    char folder[PATH_MAX]; /* "": not known */
    uid_t owner;
    gid_t groups[2]; /* that may write one of the two */
    int group_count;
};

struct walk {
    const struct xccl_trust_rules *rules;
    struct home home;
    char real[PATH_MAX]; /* the folder that was reached; "" for the root */
    char rest[PATH_MAX]; /* still to be walked */
    int fd; /* of that folder */
    int links;
    int is_me_mapped; /* of this user's number, see is_mapped(); -1: not asked yet */
    /* A step that is good only on the way to a folder that comes with this code; "": none. */
    char only_own[WHY_BYTES];
    char why[WHY_BYTES];
};

int xccl_file_id_is_same(const struct xccl_file_id *a, const struct xccl_file_id *b)
{
    return a->dev == b->dev && a->ino == b->ino && a->bytes == b->bytes &&
           a->modified.tv_sec == b->modified.tv_sec && a->modified.tv_nsec == b->modified.tv_nsec &&
           a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

static void id_take(const struct stat *about, struct xccl_file_id *id_out)
{
    id_out->dev = about->st_dev;
    id_out->ino = about->st_ino;
    id_out->bytes = about->st_size;
    id_out->modified = about->st_mtim;
    id_out->changed = about->st_ctim;
}

int xccl_file_id_get(const char *path, struct xccl_file_id *id_out)
{
    struct stat about;

    if (stat(path, &about) != 0)
        return 0;
    id_take(&about, id_out);
    return 1;
}

/* ---- where this code is ---- */

/* The path of the mapped file around an address, as the kernel has it now. */
static int mapped_file(const void *address, char path_out[PATH_MAX])
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[PATH_MAX + 128];
    int found = 0;

    while (maps && !found && fgets(line, sizeof(line), maps)) {
        char *dash, *path = strchr(line, '/');
        uintptr_t first = strtoull(line, &dash, 16);
        uintptr_t end = *dash == '-' ? strtoull(dash + 1, NULL, 16) : 0;

        if (!path || (uintptr_t)address < first || (uintptr_t)address >= end)
            continue;
        path[strcspn(path, "\n")] = 0;
        found = realpath(path, path_out) != NULL;
    }
    if (maps)
        fclose(maps);
    return found;
}

/* Believes neither the name by which a program was started nor a relative one: the user who starts
 * the program chooses the first, and the working folder may be another by now. */
int xccl_trust_home(char path_out[PATH_MAX])
{
    int (*here)(char *path_out) = xccl_trust_home;
    void *address, *map_found = NULL;
    struct link_map *map;
    Dl_info info;

    memcpy(&address, &here, sizeof(address));
    if (!dladdr1(address, &info, &map_found, RTLD_DL_LINKMAP) || !map_found)
        return 0;
    map = map_found;
    if (!map->l_name || !map->l_name[0])
        return realpath("/proc/self/exe", path_out) != NULL;
    if (map->l_name[0] == '/')
        return realpath(map->l_name, path_out) != NULL;
    return mapped_file(address, path_out);
}

static void home_add_group(struct home *home, const struct stat *about)
{
    if ((about->st_mode & S_IWGRP))
        home->groups[home->group_count++] = about->st_gid;
}

static void home_find(struct home *home)
{
    struct stat file, folder;
    char *slash;

    home->group_count = 0;
    if (xccl_trust_home(home->folder) && stat(home->folder, &file) == 0) {
        slash = strrchr(home->folder, '/');
        slash[slash == home->folder] = 0;
        if (stat(home->folder, &folder) == 0) {
            home->owner = file.st_uid;
            home_add_group(home, &file);
            home_add_group(home, &folder);
            return;
        }
    }
    home->folder[0] = 0;
}

/* 1: that folder is above the one of this code. */
static int is_above_home(const struct home *home, const char *real)
{
    size_t bytes = real[1] ? strlen(real) : 0; /* the root */

    return strncmp(home->folder, real, bytes) == 0 && home->folder[bytes] == '/' &&
           home->folder[bytes + 1];
}

/* ---- whom to trust ---- */

/* 0: the number stands for all users that this user namespace does not map. */
static int is_mapped(uid_t uid)
{
    FILE *map = fopen("/proc/self/uid_map", "re");
    unsigned long first, outside, count;
    int mapped = !map && uid != UNMAPPED;

    while (map && !mapped && fscanf(map, "%lu %lu %lu", &first, &outside, &count) == 3)
        mapped = uid >= first && uid - first < count;
    if (map)
        fclose(map);
    return mapped;
}

/* One name or number of the setting; 0: no user here has that name. */
static int user_find(const char *name, unsigned long *uid_out)
{
    char *end, room[NSS_BYTES];
    struct passwd user, *found = NULL;

    *uid_out = strtoul(name, &end, 10);
    if (!*end)
        return 1;
    if (getpwnam_r(name, &user, room, sizeof(room), &found) != 0 || !found)
        return 0;
    *uid_out = found->pw_uid;
    return 1;
}

/* 1: the setting names that user. unknown_out: the first name in it that no user has; "": none. */
static int is_named(const char *list, uid_t uid, char unknown_out[NAME_BYTES])
{
    char name[NAME_BYTES];
    unsigned long number;

    unknown_out[0] = 0;
    while (list && *list) {
        const char *first = list + strspn(list, " \t,");
        size_t bytes = strcspn(first, " \t,");

        list = first + bytes;
        if (bytes == 0)
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)bytes, first);
        if (bytes < sizeof(name) && user_find(name, &number)) {
            if (number == uid)
                return 1;
        } else if (!unknown_out[0]) {
            memcpy(unknown_out, name, sizeof(name));
        }
    }
    return 0;
}

static int is_me(struct walk *walk, uid_t uid)
{
    if (uid != geteuid())
        return 0;
    if (walk->is_me_mapped < 0)
        walk->is_me_mapped = is_mapped(uid);
    return walk->is_me_mapped;
}

static int is_trusted(struct walk *walk, uid_t uid)
{
    char unknown[NAME_BYTES];

    return uid == 0 || is_me(walk, uid) || is_named(walk->rules->owners, uid, unknown);
}

/* 1: no line of the machine's own file gives that group to another user. A directory service is not
 * asked for all its users. */
static int is_group_of_one(gid_t gid, uid_t uid)
{
    FILE *file = fopen("/etc/passwd", "re");
    char room[NSS_BYTES];
    struct passwd user, *found;
    int others = 0;

    while (file && !others && fgetpwent_r(file, &user, room, sizeof(room), &found) == 0)
        others = user.pw_gid == gid && user.pw_uid != uid;
    if (file)
        fclose(file);
    return !others;
}

/* 1: all that the group lists are trusted. */
static int are_members_trusted(struct walk *walk, char *const *members)
{
    char room[NSS_BYTES];
    struct passwd user, *found;

    for (; members && *members; members++) {
        found = NULL;
        if (getpwnam_r(*members, &user, room, sizeof(room), &found) != 0 || !found ||
            !is_trusted(walk, found->pw_uid))
            return 0;
    }
    return 1;
}

/* 1: it is the group of one trusted user alone: root's, or one with its user's name. */
static int is_private(struct walk *walk, gid_t gid)
{
    char room[NSS_BYTES], user_room[NSS_BYTES];
    struct passwd user, *user_found = NULL;
    struct group group, *found = NULL;

    if (getgrgid_r(gid, &group, room, sizeof(room), &found) != 0)
        return 0;
    if (gid == 0)
        return !found || are_members_trusted(walk, found->gr_mem);
    if (!found ||
        getpwnam_r(found->gr_name, &user, user_room, sizeof(user_room), &user_found) != 0 ||
        !user_found)
        return 0;
    return user.pw_gid == gid && is_trusted(walk, user.pw_uid) &&
           are_members_trusted(walk, found->gr_mem) && is_group_of_one(gid, user.pw_uid);
}

/* ---- one step ---- */

static const char *const kinds[] = {
    [FOLDER] = "the folder", [LINK] = "the link", [FILE_ITSELF] = "the file"};

__attribute__((format(printf, 2, 3))) static int refuse(struct walk *walk, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(walk->why, sizeof(walk->why), fmt, args);
    va_end(args);
    return 0;
}

/* The refusal counts only if the walk does not end in a folder that comes with this code. */
static int excuse(struct walk *walk)
{
    if (!walk->only_own[0])
        memcpy(walk->only_own, walk->why, sizeof(walk->only_own));
    return 1;
}

static int check_owner(struct walk *walk, enum kind kind, const char *path,
                       const struct stat *about)
{
    uid_t uid = about->st_uid;
    char unknown[NAME_BYTES];
    size_t used;

    if (is_trusted(walk, uid))
        return 1;
    refuse(walk,
           "%s " SHOWN " (owner %u%s, mode %04o) belongs neither to root nor to this user: %s",
           kinds[kind], path, (unsigned)uid, is_mapped(uid) ? "" : ", of another user namespace",
           (unsigned)(about->st_mode & 07777),
           walk->rules->owners ? "chown it, or name the owner in " SETTING : "chown it");
    used = strlen(walk->why);
    if (!is_named(walk->rules->owners, uid, unknown) && unknown[0])
        snprintf(walk->why + used, sizeof(walk->why) - used,
                 " by a name that is known here or by number (\"%s\" is not known)", unknown);
    return walk->home.folder[0] && uid == walk->home.owner && excuse(walk);
}

static int check_group(struct walk *walk, enum kind kind, const char *path,
                       const struct stat *about)
{
    const struct home *home = &walk->home;
    const char *what = "its group can write it, and is not one trusted user's own: chmod g-w it";

    if (is_private(walk, about->st_gid)) {
        /* The group's bits are the mask of a list, if there is one. */
        if (lgetxattr(path, ACCESS_LIST, NULL, 0) < 0)
            return 1;
        what = "an access control list may let others write it: setfacl -b it, or chmod g-w it";
    }
    refuse(walk, "%s " SHOWN " (owner %u, group %u, mode %04o): %s", kinds[kind], path,
           (unsigned)about->st_uid, (unsigned)about->st_gid, (unsigned)(about->st_mode & 07777),
           what);
    for (int i = 0; home->folder[0] && i < home->group_count; i++)
        if (home->groups[i] == about->st_gid)
            return excuse(walk);
    return 0;
}

/* path is the real one, and stays what it is: all above it was looked at before. */
static int check(struct walk *walk, enum kind kind, const char *path, const struct stat *about)
{
    int is_sticky = kind == FOLDER && (about->st_mode & S_ISVTX);
    int is_home = kind == FOLDER && strcmp(path, walk->home.folder) == 0;

    if (kind == FOLDER && is_above_home(&walk->home, path))
        return 1;
    if (!is_home && !check_owner(walk, kind, path, about))
        return 0;
    if (kind == LINK || is_sticky || S_ISCHR(about->st_mode))
        return 1;
    if (about->st_mode & S_IWOTH)
        return refuse(walk, "%s " SHOWN " (owner %u, mode %04o) is world-writable: chmod o-w it",
                      kinds[kind], path, (unsigned)about->st_uid,
                      (unsigned)(about->st_mode & 07777));
    return is_home || !(about->st_mode & S_IWGRP) || check_group(walk, kind, path, about);
}

/* ---- the walk ---- */

/* A step failed by itself, not by the rules. */
static int stop(struct walk *walk, const char *path, int err)
{
    refuse(walk, SHOWN ": %s", path, strerrordesc_np(err));
    errno = err;
    return XCCL_TRUST_ERROR;
}

static int walk_enter(struct walk *walk, int fd, const char *real)
{
    struct stat about;

    if (walk->fd >= 0)
        close(walk->fd);
    walk->fd = fd;
    if (real != walk->real)
        memcpy(walk->real, real, strlen(real) + 1);
    real = real[0] ? real : "/";
    if (fstat(fd, &about) != 0)
        return stop(walk, real, errno);
    return check(walk, FOLDER, real, &about) ? 0 : XCCL_TRUST_REFUSED;
}

static int walk_to_root(struct walk *walk)
{
    int fd = open("/", FOLDER_FLAGS);

    return fd < 0 ? stop(walk, "/", errno) : walk_enter(walk, fd, "");
}

static int walk_up(struct walk *walk)
{
    int fd = openat(walk->fd, "..", FOLDER_FLAGS);
    char *slash = strrchr(walk->real, '/');

    if (fd < 0)
        return stop(walk, walk->real, errno);
    if (slash)
        *slash = 0;
    return walk_enter(walk, fd, walk->real);
}

/* Puts the target of a link in front of the rest. */
static int walk_link(struct walk *walk, int fd, const char *path)
{
    char target[PATH_MAX], joined[PATH_MAX];
    ssize_t bytes = readlinkat(fd, "", target, sizeof(target) - 1);

    if (bytes < 0)
        return stop(walk, path, errno);
    if (++walk->links > LINKS_MAX)
        return stop(walk, path, ELOOP);
    target[bytes] = 0;
    if ((size_t)snprintf(joined, sizeof(joined), "%s/%s", target, walk->rest) >= sizeof(joined))
        return stop(walk, path, ENAMETOOLONG);
    /* A slash behind the last name would ask for a folder. */
    if (!walk->rest[0])
        joined[bytes] = 0;
    memcpy(walk->rest, joined, strlen(joined) + 1);
    return target[0] == '/' ? walk_to_root(walk) : 0;
}

/* Takes the next name off the rest; its length, 0 at the end. */
static size_t next_name(struct walk *walk, char name_out[NAME_MAX + 1])
{
    const char *first = walk->rest + strspn(walk->rest, "/");
    size_t bytes = strcspn(first, "/");

    if (bytes <= NAME_MAX) {
        memcpy(name_out, first, bytes);
        name_out[bytes] = 0;
        memmove(walk->rest, first + bytes, strlen(first + bytes) + 1);
    }
    return bytes;
}

/* Takes the last name: checks the file and opens it for reading. */
static int walk_file(struct walk *walk, const char *name, const char *path,
                     const struct stat *about, struct xccl_file_id *id_out)
{
    struct xccl_file_id id;
    struct stat again;
    int fd;

    if (walk->rest[0])
        return stop(walk, path, ENOTDIR);
    if (!S_ISREG(about->st_mode) && !(walk->rules->may_be_device && S_ISCHR(about->st_mode))) {
        refuse(walk, SHOWN " is not a regular file", path);
        errno = EINVAL;
        return XCCL_TRUST_ERROR;
    }
    if (!check(walk, FILE_ITSELF, path, about))
        return XCCL_TRUST_REFUSED;
    fd = openat(walk->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return stop(walk, path, errno);
    id_take(about, &id);
    if (fstat(fd, &again) == 0) {
        id_take(&again, id_out);
        if (id.dev == id_out->dev && id.ino == id_out->ino)
            return fd;
    }
    close(fd);
    refuse(walk, SHOWN " was replaced while it was looked at: try again", path);
    return XCCL_TRUST_REFUSED;
}

/* Takes one name. done_out: the result is that of the whole path. */
static int walk_step(struct walk *walk, const char *name, struct xccl_file_id *id_out,
                     int *done_out)
{
    char path[PATH_MAX];
    struct stat about;
    int fd, rc;

    if (strcmp(name, ".") == 0)
        return 0;
    if (strcmp(name, "..") == 0)
        return walk_up(walk);
    if ((size_t)snprintf(path, sizeof(path), "%s/%s", walk->real, name) >= sizeof(path))
        return stop(walk, walk->real, ENAMETOOLONG);
    fd = openat(walk->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return stop(walk, path, errno);
    if (fstat(fd, &about) != 0)
        rc = stop(walk, path, errno);
    else if (S_ISDIR(about.st_mode))
        return walk_enter(walk, fd, path);
    else if (!S_ISLNK(about.st_mode))
        rc = walk_file(walk, name, path, &about, id_out);
    else if (!check(walk, LINK, path, &about))
        rc = XCCL_TRUST_REFUSED;
    else
        rc = walk_link(walk, fd, path);
    *done_out = rc >= 0 && !S_ISLNK(about.st_mode); /* a failed fstat() leaves about unset */
    close(fd);
    return rc;
}

/* 1: the folder that was reached comes with this code. */
static int is_own(const struct walk *walk)
{
    for (int i = 0; i < walk->rules->own_count; i++)
        if (strcmp(walk->rules->own[i], walk->real[0] ? walk->real : "/") == 0)
            return 1;
    return 0;
}

static int walk_all(struct walk *walk, struct xccl_file_id *id_out)
{
    char name[NAME_MAX + 1];
    int rc = walk_to_root(walk), done = 0;

    /* Bounded by LINKS_MAX: a turn takes a name, and a link adds less than PATH_MAX of them. */
    while (rc >= 0 && !done) {
        size_t bytes = next_name(walk, name);

        if (bytes > NAME_MAX)
            return stop(walk, walk->rest, ENAMETOOLONG);
        if (bytes == 0)
            return stop(walk, walk->real[0] ? walk->real : "/", EISDIR);
        rc = walk_step(walk, name, id_out, &done);
    }
    if (rc >= 0 && walk->only_own[0] && !is_own(walk)) {
        close(rc);
        memcpy(walk->why, walk->only_own, sizeof(walk->why));
        return XCCL_TRUST_REFUSED;
    }
    return rc;
}

/* The path from the root; 0 with errno. */
static int make_absolute(const char *path, char absolute_out[PATH_MAX])
{
    size_t used = 0;

    if (path[0] != '/') {
        if (!getcwd(absolute_out, PATH_MAX))
            return 0;
        used = strlen(absolute_out);
    }
    if ((size_t)snprintf(absolute_out + used, PATH_MAX - used, "/%s", path) < PATH_MAX - used)
        return 1;
    errno = ENAMETOOLONG;
    return 0;
}

int xccl_trust_open(const char *path, const struct xccl_trust_rules *rules,
                    struct xccl_file_id *id_out, char *why_out, size_t bytes)
{
    struct walk walk;
    int rc, err;

    walk.rules = rules;
    walk.real[0] = walk.only_own[0] = walk.why[0] = 0;
    walk.fd = -1;
    walk.links = 0;
    walk.is_me_mapped = -1;
    home_find(&walk.home);
    if (!path[0] || !make_absolute(path, walk.rest))
        rc = stop(&walk, path, path[0] ? errno : ENOENT);
    else
        rc = walk_all(&walk, id_out);
    err = errno;
    if (walk.fd >= 0)
        close(walk.fd);
    if (rc < 0)
        snprintf(why_out, bytes, "%s", walk.why);
    errno = err;
    return rc;
}

int xccl_trust_look(const char *path, const struct xccl_trust_rules *rules,
                    struct xccl_file_id *id_out, char *why_out, size_t bytes)
{
    int fd = xccl_trust_open(path, rules, id_out, why_out, bytes);

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

int xccl_trust_library(const char *name, const char *owners, char *why_out, size_t bytes)
{
    const struct xccl_trust_rules rules = {.owners = owners};
    struct xccl_file_id id;
    int fd;

    if (!strchr(name, '/'))
        return 1;
    fd = xccl_trust_open(name, &rules, &id, why_out, bytes);
    if (fd >= 0)
        close(fd);
    else if (fd == XCCL_TRUST_ERROR && errno == ENOENT) /* whichever step is missing */
        snprintf(why_out, bytes, SHOWN ": %s", name, strerrordesc_np(errno));
    return fd >= 0;
}
