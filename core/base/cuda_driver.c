/* SPDX-License-Identifier: BSD-3-Clause */
/* Opens the driver's library once a process, looks up every function of the table, and keeps the
 * reason where something is missing. The library stays open: the driver has threads of its own. In
 * a child of fork() the driver of the parent does not work, and says so only by failing calls; so
 * it is refused there. Thread: any. */
#include "base/cuda_driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fork.h"
#include "base/os.h"
#include "base/param.h"
#include "base/trust.h"

#define MAPS_BYTES    8192 /* some lines of /proc/self/maps, which have a path each */
#define VERSION_LEAST 11040 /* handles of memory between processes count their openings */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct xccl_cuda_driver driver;
static char why_not[512];
static _Atomic int is_open; /* 1: the library, which stays so */

static void refuse(const char *what, const char *detail)
{
    snprintf(why_not, sizeof why_not, "%s%s", what, detail);
}

static void in_child(void)
{
    refuse("CUDA cannot be used in a process that was forked after CUDA was opened", "");
}

static struct xccl_lock forks = XCCL_LOCK(in_child); /* never taken */

/* --- is it loaded? --- */

/* The last part of a path up to ".so", behind which versions differ: a program opens libcuda.so.1,
 * which is a link to libcuda.so.550.54. */
static size_t stem_of(const char *path, const char **stem_out)
{
    const char *slash = strrchr(path, '/'), *stem = slash ? slash + 1 : path;
    const char *end = strstr(stem, ".so");

    *stem_out = stem;
    return end ? (size_t)(end - stem) + 3 : strlen(stem);
}

/* A line of /proc/self/maps ends with the path of a file, if there is one. */
static int names_file(const char *line, const char *stem, size_t bytes)
{
    const char *slash = strrchr(line, '/');

    return slash && strncmp(slash + 1, stem, bytes) == 0;
}

/* Searches the whole lines of text and moves the rest of the last one to its head. 1: a line names
 * the file. */
static int find_in_lines(char *text, size_t *used, const char *stem, size_t bytes)
{
    char *line = text, *end;

    text[*used] = '\0';
    while ((end = strchr(line, '\n'))) {
        *end = '\0';
        if (names_file(line, stem, bytes))
            return 1;
        line = end + 1;
    }
    *used -= (size_t)(line - text);
    if (*used == MAPS_BYTES) /* no path is as long */
        *used = 0;
    memmove(text, line, *used);
    return 0;
}

static int is_mapped(const char *stem, size_t bytes)
{
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC), found = 0;
    char text[MAPS_BYTES + 1];
    size_t used = 0;
    ssize_t got = fd < 0 ? 0 : 1;

    while (got > 0 && !found) {
        do {
            got = read(fd, text + used, MAPS_BYTES - used);
        } while (got < 0 && errno == EINTR);
        used += got > 0 ? (size_t)got : 0;
        found = got > 0 && find_in_lines(text, &used, stem, bytes);
    }
    if (fd >= 0)
        close(fd);
    return found;
}

int xccl_cuda_driver_is_loaded(void)
{
    const char *path = xccl_param_string(XCCL_P_CUDA_LIBRARY), *stem;
    char real[PATH_MAX];
    size_t bytes;

    /* Acquire: pairs with open_driver(). */
    if (atomic_load_explicit(&is_open, memory_order_acquire))
        return 1;
    if (strchr(path, '/') && realpath(path, real))
        path = real;
    bytes = stem_of(path, &stem);
    return is_mapped(stem, bytes);
}

/* --- opening --- */

static const char *name_of(xccl_cu_result rc)
{
    const char *name = NULL;

    return driver.error_name && driver.error_name(rc, &name) == 0 && name ? name
                                                                          : "an unknown error";
}

/* 1: all functions are there. */
static int find_functions(void *library)
{
    static const struct {
        const char *symbol;
        size_t offset;
        int is_later;
    } functions[] = {
#define XCCL_CUDA_ROW(name, symbol, args) {#symbol, offsetof(struct xccl_cuda_driver, name), 0},
#define XCCL_CUDA_LATER_ROW(name, symbol, args)                                                    \
    {#symbol, offsetof(struct xccl_cuda_driver, name), 1},
        XCCL_CUDA_FUNCTIONS(XCCL_CUDA_ROW) XCCL_CUDA_LATER_FUNCTIONS(XCCL_CUDA_LATER_ROW)
#undef XCCL_CUDA_ROW
#undef XCCL_CUDA_LATER_ROW
    };

    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *found = dlsym(library, functions[i].symbol);

        if (!found && functions[i].is_later)
            continue;
        if (!found) {
            refuse("the CUDA driver is too old: it lacks ", functions[i].symbol);
            return 0;
        }
        memcpy((char *)&driver + functions[i].offset, &found, sizeof found);
    }
    return 1;
}

static void start(void)
{
    xccl_cu_result rc = driver.init(0);
    char detail[64];

    if (rc) {
        refuse("cuInit failed: ", name_of(rc));
        return;
    }
    rc = driver.driver_version(&driver.version);
    if (rc || driver.version < VERSION_LEAST) {
        snprintf(detail, sizeof detail, "%d.%d; version %d.%d or later is needed",
                 driver.version / 1000, driver.version % 1000 / 10, VERSION_LEAST / 1000,
                 VERSION_LEAST % 1000 / 10);
        refuse("the CUDA driver has version ", detail);
        return;
    }
    rc = driver.device_count(&driver.devices);
    if (rc || driver.devices < 1)
        refuse("there is no CUDA device: ", rc ? name_of(rc) : "the driver reports none");
}

static void open_driver(void)
{
    const char *path = xccl_param_string(XCCL_P_CUDA_LIBRARY);
    const char *cannot = xccl_os_cannot_load(), *owners = xccl_param_string(XCCL_P_PLUGIN_OWNERS);
    char why[400];
    void *library;

    if (!cannot && !xccl_trust_library(path, owners, why, sizeof why))
        cannot = why;
    library = cannot ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        refuse("there is no CUDA driver: ", cannot ? cannot : dlerror());
        return;
    }
    xccl_lock_list(&forks);
    /* Release: pairs with xccl_cuda_driver_is_loaded(). */
    atomic_store_explicit(&is_open, 1, memory_order_release);
    if (find_functions(library))
        start();
}

const struct xccl_cuda_driver *xccl_cuda_driver(void)
{
    pthread_once(&once, open_driver);
    return why_not[0] ? NULL : &driver;
}

const char *xccl_cuda_why_not(void)
{
    return why_not;
}

static const char *text_of(xccl_cu_result rc)
{
    const char *text = NULL;

    if (!driver.error_string || driver.error_string(rc, &text) || !text)
        return "the driver gives no details";
    return text;
}

xcclResult_t xccl_cuda_result(xccl_cu_result rc, const char *what)
{
    return rc ? xccl_fail(xcclUnhandledCudaError, 0, NULL, "%s: %s (%s)", what, name_of(rc),
                          text_of(rc))
              : xcclSuccess;
}

xcclResult_t xccl_cuda_result_quietly(xccl_cu_result rc, const char *what)
{
    return rc ? xccl_fail_quietly(xcclUnhandledCudaError, 0, NULL, "%s: %s (%s)", what, name_of(rc),
                                  text_of(rc))
              : xcclSuccess;
}
