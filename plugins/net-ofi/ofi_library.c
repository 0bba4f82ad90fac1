/* SPDX-License-Identifier: BSD-3-Clause */
/* libfabric, opened at run time: the file that XCCL_OFI_LIBRARY names, or else the first of
 *
 *   1. the one that this process has loaded already, for two do not go together
 *   2. the loader's, if a folder of LD_LIBRARY_PATH has one
 *   3. the one that comes with the cards of this machine: of AWS's EFA installer, of HPE's
 * Slingshot software. They are newer than the distributions', and containers often lack their
 * folders in the loader's cache
 *   4. the loader's
 *
 * A file that is named by its path is opened if nobody but trusted users can change it or what
 * leads to it (base/trust.h).
 * Symbols are taken in the version for which our headers describe struct fi_info (FABRIC_1.3, the
 * same from libfabric 1.3 to 1.22 at least); a library that has left it out gives its default. It
 * is never unloaded: providers leave threads' and exit handlers behind. Thread: any. */
#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/net_cards.h"
#include "base/param.h"
#include "base/trust.h"
#include "ofi_int.h"

#define SONAME      "libfabric.so.1"
#define ADVICE      "install libfabric 1.17 or later (libfabric1)"
#define ADVICE_EFA  "install AWS's EFA software, or set XCCL_OFI_LIBRARY"
#define ADVICE_CXI  "install HPE's libfabric, or set XCCL_OFI_LIBRARY"
#define ADVICE_PATH "set it to a file, or to a folder that has " SONAME ", or unset it"
#define WHY_BYTES   (OFI_TEXT_BYTES - 96) /* leaves room for an advice */
#define FILES_MAX   64 /* of one pattern */

/* Where the software of a kind of card puts libfabric, best first. */
struct place {
    int is_cxi; /* 0: for EFA */
    const char *pattern; /* several files: the greatest version first */
};
static const struct place places[] = {
    {0, "/opt/amazon/efa/lib64/" SONAME},
    {0, "/opt/amazon/efa/lib/" SONAME},
    {1, "/opt/cray/libfabric/*/lib64/" SONAME},
};

/* A pointer to a function, which ISO C does not make out of an object's. */
static int take(void *library, const char *name, const char *version, void *pointer_out)
{
    void *symbol = dlvsym(library, name, version);

    if (!symbol)
        symbol = dlsym(library, name);
    memcpy(pointer_out, &symbol, sizeof(symbol));
    return symbol != NULL;
}

/* What went wrong with one file after another. */
struct search {
    struct ofi_library *into;
    char why[WHY_BYTES];
};

static void refuse(struct search *search, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void refuse(struct search *search, const char *fmt, ...)
{
    size_t used = strlen(search->why);
    va_list args;

    if (used)
        snprintf(search->why + used, sizeof(search->why) - used, "; ");
    used = strlen(search->why);
    va_start(args, fmt);
    vsnprintf(search->why + used, sizeof(search->why) - used, fmt, args);
    va_end(args);
}

/* The loader knows where a bare name leads. */
static void find_path(void *handle, const char *path, struct ofi_library *library)
{
    struct link_map *map = NULL;

    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && map->l_name[0])
        path = map->l_name;
    snprintf(library->path, sizeof(library->path), "%s", path);
}

/* Takes what is needed out of it. It stays loaded only if it is taken: the loader answers a bare
 * name with whatever file of that name is loaded. */
static int bind_symbols(struct search *search, const char *path, void *handle)
{
    struct ofi_library *library = search->into;
    uint32_t version;
    int all = take(handle, "fi_version", "FABRIC_1.0", &library->version) &&
              take(handle, "fi_getinfo", "FABRIC_1.3", &library->getinfo) &&
              take(handle, "fi_freeinfo", "FABRIC_1.3", &library->freeinfo) &&
              take(handle, "fi_dupinfo", "FABRIC_1.3", &library->dupinfo) &&
              take(handle, "fi_fabric", "FABRIC_1.1", &library->fabric) &&
              take(handle, "fi_strerror", "FABRIC_1.0", &library->strerror);

    find_path(handle, path, library);
    if (!all) {
        refuse(search, "%.150s lacks a function that every libfabric has", library->path);
        dlclose(handle);
        return 0;
    }
    version = library->version();
    if (FI_VERSION_GE(version, OFI_API_VERSION)) {
        /* No more than a flag of what is loaded, and closed like the first one. */
        void *kept = dlopen(library->path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE | RTLD_NOLOAD);

        if (kept)
            dlclose(handle);
        return 1; /* else the handle keeps it */
    }
    refuse(search, "%.150s is libfabric %u.%u, which is too old", library->path, FI_MAJOR(version),
           FI_MINOR(version));
    dlclose(handle);
    return 0;
}

/* Opens a file, or a bare name that the loader finds. A path that is trusted leads to the file that
 * was looked at, and so does its real path. */
static int open_one(struct search *search, const char *path)
{
    const char *owners = xccl_param_string(XCCL_P_PLUGIN_OWNERS), *at = path;
    char why[WHY_BYTES], real[PATH_MAX];
    void *handle;

    if (strchr(path, '/')) {
        at = realpath(path, real);
        if (!at) {
            refuse(search, "%s: %s", path, strerror(errno));
            return 0;
        }
    }
    if (!xccl_trust_library(path, owners, why, sizeof(why))) {
        refuse(search, "%s", why);
        return 0;
    }
    handle = dlopen(at, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *text = dlerror();

        refuse(search, "cannot open %.100s: %s", path, text ? text : "no reason given");
        return 0;
    }
    return bind_symbols(search, path, handle);
}

/* ---- the file that the setting names ---- */

static xcclResult_t open_named(struct search *search, const char *named)
{
    char path[XCCL_PARAM_VALUE_BYTES + sizeof(SONAME) + 2];
    struct stat about;
    int is_folder = strchr(named, '/') && stat(named, &about) == 0 && S_ISDIR(about.st_mode);

    snprintf(path, sizeof(path), "%s%s", named, is_folder ? "/" SONAME : "");
    if (open_one(search, path))
        return xcclSuccess;
    return xccl_fail_quietly(xcclInvalidUsage, 0, ADVICE_PATH, "XCCL_OFI_LIBRARY=%.120s: %.300s",
                             named, search->why);
}

/* ---- without the setting ---- */

/* 1: a folder of LD_LIBRARY_PATH has the file, so the user means that one. */
static int is_users_choice(void)
{
    const char *at = getenv("LD_LIBRARY_PATH");
    char path[1024];

    while (at && *at) {
        int bytes = (int)strcspn(at, ":;");

        if ((size_t)snprintf(path, sizeof(path), "%.*s/" SONAME, bytes, at) < sizeof(path) &&
            bytes && access(path, R_OK) == 0)
            return 1;
        at += bytes + (at[bytes] != 0);
    }
    return 0;
}

/* 1: this process has one. */
static int is_loaded(void)
{
    void *handle = dlopen(SONAME, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);

    if (handle)
        dlclose(handle);
    return handle != NULL;
}

/* The files of a place, those of greater versions first. */
static int open_at(struct search *search, const struct place *place)
{
    glob_t found = {.gl_pathc = 0};
    size_t count;
    int done = 0;

    if (glob(place->pattern, GLOB_NOSORT, NULL, &found) != 0 || found.gl_pathc == 0)
        refuse(search, "no %s", place->pattern);
    count = found.gl_pathc < FILES_MAX ? found.gl_pathc : FILES_MAX;
    for (size_t i = 0; i < count && !done; i++) {
        size_t best = i;

        for (size_t k = i + 1; k < found.gl_pathc; k++)
            best = strverscmp(found.gl_pathv[k], found.gl_pathv[best]) > 0 ? k : best;
        if (best != i) {
            char *other = found.gl_pathv[i];

            found.gl_pathv[i] = found.gl_pathv[best];
            found.gl_pathv[best] = other;
        }
        done = open_one(search, found.gl_pathv[i]);
    }
    globfree(&found);
    return done;
}

static int open_by_cards(struct search *search, const struct xccl_net_cards *cards)
{
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        int is_here = places[i].is_cxi ? cards->cxi.count : cards->efa.count;

        if (is_here && open_at(search, &places[i]))
            return 1;
    }
    return 0;
}

xcclResult_t ofi_library_open(struct ofi_library *library_out)
{
    const char *named = xccl_param_string(XCCL_P_OFI_LIBRARY), *advice = ADVICE;
    struct search search = {.into = library_out, .why = ""};
    struct xccl_net_cards cards;

    if (*named)
        return open_named(&search, named);
    xccl_net_cards_find(XCCL_CARDS_SYSFS, &cards);
    if (!is_loaded() && !is_users_choice() && open_by_cards(&search, &cards))
        return xcclSuccess;
    if (open_one(&search, SONAME))
        return xcclSuccess;
    if (cards.efa.count)
        advice = ADVICE_EFA;
    else if (cards.cxi.count)
        advice = ADVICE_CXI;
    return xccl_fail_quietly(xcclSystemError, 0, advice, "%s", search.why);
}
