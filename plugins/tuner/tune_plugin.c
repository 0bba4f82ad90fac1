/* SPDX-License-Identifier: BSD-3-Clause */
/* The tuner that comes with XCCL: it looks calls up in a table, XCCL_TUNER_FILE's or its own. The
 * table is read once a process; one that cannot be read makes init fail with its line, which leaves
 * the library's own choice. Thread: any. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/param.h"
#include "tune_builtin.h"
#include "tune_table.h"

#define ERROR_BYTES 480
#define PATH_SHOWN  140

static struct tune_table table;
static uint64_t digest; /* of the text, or of why there is none */
static char error[ERROR_BYTES]; /* "": there is a table */
static pthread_once_t once = PTHREAD_ONCE_INIT; /* of these; afterwards they are constant */

static void cannot_read(const char *path, const char *why)
{
    snprintf(error, sizeof error, "cannot read XCCL_TUNER_FILE %.*s: %s", PATH_SHOWN, path, why);
}

/* A file of at most TUNE_TEXT_BYTES_MAX, to be freed; NULL after saying why. Nothing that blocks or
 * never ends is read. */
static char *read_file(const char *path, size_t *bytes_out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat about;
    char *text = NULL;
    ssize_t got = 1;
    size_t bytes = 0;

    if (fd < 0) {
        cannot_read(path, strerror(errno));
        return NULL;
    }
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode))
        cannot_read(path, "it is not a regular file");
    else if (about.st_size > (off_t)TUNE_TEXT_BYTES_MAX)
        cannot_read(path, "it has more than 1 MiB");
    else
        text = malloc(TUNE_TEXT_BYTES_MAX);
    while (text && got > 0 && bytes < TUNE_TEXT_BYTES_MAX) {
        got = read(fd, text + bytes, TUNE_TEXT_BYTES_MAX - bytes);
        bytes += got > 0 ? (size_t)got : 0;
        if (got < 0 && errno == EINTR)
            got = 1;
    }
    if (text && got < 0) {
        cannot_read(path, strerror(errno));
        free(text);
        text = NULL;
    }
    close(fd);
    if (!text && !error[0])
        cannot_read(path, "no memory");
    *bytes_out = bytes;
    return text;
}

static void read_table(const char *name, const char *text, size_t bytes)
{
    char why[TUNE_ERROR_BYTES];

    digest = xccl_hash_bytes(XCCL_HASH_START, text, bytes);
    if (!tune_table_read(text, bytes, &table, why))
        snprintf(error, sizeof error, "%.*s, %s", PATH_SHOWN, name, why);
}

static void load(void)
{
    const char *path = xccl_param_string(XCCL_P_TUNER_FILE);
    size_t bytes = 0;
    char *text;

    if (!path[0]) {
        read_table("the built-in table", tune_builtin, sizeof tune_builtin - 1);
        return;
    }
    text = read_file(path, &bytes);
    if (text)
        read_table(path, text, bytes);
    else
        digest = xccl_hash_bytes(XCCL_HASH_START, error, strlen(error));
    free(text);
}

static uint64_t tune_digest(void)
{
    pthread_once(&once, load);
    return digest;
}

static int32_t tune_init(const xcclTunerComm_v1_t *comm, void **ctx)
{
    xcclTunerComm_v1_t *copy;

    pthread_once(&once, load);
    copy = error[0] ? NULL : calloc(1, sizeof *copy);
    if (!copy)
        return -1;
    memcpy(copy, comm, comm->size < sizeof *copy ? comm->size : sizeof *copy);
    *ctx = copy;
    return 0;
}

static int32_t tune_choose(void *ctx, const xcclTunerQuery_v1_t *query,
                           xcclTunerCandidate_v1_t *const *candidates, int32_t count)
{
    return tune_table_choose(&table, ctx, query, candidates, count);
}

static void tune_finalize(void *ctx)
{
    free(ctx);
}

static const char *tune_last_error(void)
{
    return error[0] ? error : "no memory";
}

XCCL_TUNER_EXPORT const xcclTunerPlugin_v1_t xcclTunerPlugin_v1 = {
    .size = sizeof(xcclTunerPlugin_v1_t),
    .name = "table",
    .digest = tune_digest,
    .init = tune_init,
    .choose = tune_choose,
    .finalize = tune_finalize,
    .lastError = tune_last_error,
};
