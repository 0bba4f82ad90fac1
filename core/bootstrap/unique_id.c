/* SPDX-License-Identifier: BSD-3-Clause */
/* The 128 bytes that carry a communicator to its ranks: who, where, and the secret.
 *
 *   0 magic u16 | 2 format u8 | 3 flags u8: bits 0-1 root count, bit 2 no job key, bit 3 a short
 *     one, bit 7 rank 0 owns the root
 *   4 library version u32 | 8 communicator id 16 | 24 secret 32 | 56 three addresses of 24
 *
 * Little endian; unused addresses and flags are zero. Bytes 0 to 7 keep their meaning in every
 * format, so that a foreign id can be named. Thread: any. */
#include "bootstrap/job.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "base/param.h"
#include "base/wire.h"
#include "bootstrap/channel.h"
#include "bootstrap/root_int.h"

#define ID_MAGIC       0x6958u /* "Xi" */
#define ID_FORMAT      1
#define FLAG_COUNT     0x03
#define FLAG_PUBLIC    0x04
#define FLAG_SHORT     0x08
#define FLAG_OWNS      0x80
#define FLAGS_ALL      (FLAG_COUNT | FLAG_PUBLIC | FLAG_SHORT | FLAG_OWNS)
#define ROOTS_MAX      3
#define KEY_MAX_BYTES  1023
#define KEY_FINE_BYTES 16 /* shorter ones can be guessed from a recorded hello */

static_assert(ROOTS_MAX == XCCL_DOORS_MAX, "a root can listen at all addresses of an id");
static_assert(sizeof(xcclUniqueId) == 8 + 16 + 32 + ROOTS_MAX * XCCL_ADDR_WIRE_BYTES,
              "the id's layout");

/* Ids that this process made from XCCL_COMM_ID. Relaxed: only the count matters. */
static _Atomic uint64_t comm_ids_made;

static uint8_t id_flags(const struct xccl_meeting *meeting)
{
    return (uint8_t)(meeting->root_count | (meeting->owns_root ? FLAG_OWNS : 0) |
                     (meeting->key_is_public ? FLAG_PUBLIC : 0) |
                     (meeting->key_is_short ? FLAG_SHORT : 0));
}

static void id_encode(const struct xccl_meeting *meeting, xcclUniqueId *id_out)
{
    struct xccl_wire wire = xccl_wire_over(id_out->internal, sizeof(id_out->internal));

    xccl_wire_put_u16(&wire, ID_MAGIC);
    xccl_wire_put_u8(&wire, ID_FORMAT);
    xccl_wire_put_u8(&wire, id_flags(meeting));
    xccl_wire_put_u32(&wire, XCCL_VERSION_CODE);
    xccl_wire_put(&wire, meeting->comm_id, sizeof(meeting->comm_id));
    xccl_wire_put(&wire, meeting->secret, sizeof(meeting->secret));
    for (int i = 0; i < ROOTS_MAX; i++) {
        uint8_t addr[XCCL_ADDR_WIRE_BYTES] = {0};

        if (i < meeting->root_count)
            xccl_addr_encode(&meeting->roots[i], addr);
        xccl_wire_put(&wire, addr, sizeof(addr));
    }
    assert(!wire.bad && wire.at == wire.end);
}

static xcclResult_t id_fail(const char *why)
{
    return xccl_fail(xcclInvalidArgument, 0, "pass on all 128 bytes of xcclGetUniqueId unchanged",
                     "this is not a unique id: %s", why);
}

/* The head's eight bytes. */
static xcclResult_t id_decode_head(struct xccl_wire *wire, struct xccl_meeting *meeting)
{
    uint16_t magic = xccl_wire_get_u16(wire);
    uint8_t format = xccl_wire_get_u8(wire);
    uint8_t flags = xccl_wire_get_u8(wire);
    uint32_t version = xccl_wire_get_u32(wire);

    if (magic != ID_MAGIC)
        return id_fail("its first bytes are wrong");
    if (format != ID_FORMAT) {
        return xccl_fail(xcclInvalidArgument, 0, "use one version of xccl everywhere",
                         "a unique id of format %u, made by xccl %u.%u.%u; this is xccl %d.%d.%d "
                         "and knows format %d",
                         format, version / 10000, version / 100 % 100, version % 100, XCCL_MAJOR,
                         XCCL_MINOR, XCCL_PATCH, ID_FORMAT);
    }
    meeting->root_count = flags & FLAG_COUNT;
    meeting->owns_root = (flags & FLAG_OWNS) != 0;
    meeting->key_is_public = (flags & FLAG_PUBLIC) != 0;
    meeting->key_is_short = (flags & FLAG_SHORT) != 0;
    if (meeting->root_count == 0 || (flags & ~FLAGS_ALL))
        return id_fail("it has impossible flags");
    return xcclSuccess;
}

/* 0.0.0.0 and :: are where one listens, not where one is. */
static int is_nowhere(const struct xccl_addr *addr)
{
    if (addr->sa.any.sa_family == AF_INET)
        return addr->sa.in4.sin_addr.s_addr == 0;
    return IN6_IS_ADDR_UNSPECIFIED(&addr->sa.in6.sin6_addr);
}

xcclResult_t xccl_unique_id_decode(const xcclUniqueId *id, struct xccl_meeting *meeting_out)
{
    static const uint8_t zeroes[XCCL_ADDR_WIRE_BYTES];
    xcclUniqueId copy = *id;
    struct xccl_wire wire = xccl_wire_over(copy.internal, sizeof(copy.internal));
    struct xccl_meeting meeting = {0};
    xcclResult_t rc = id_decode_head(&wire, &meeting);

    if (rc)
        goto out;
    xccl_wire_get(&wire, meeting.comm_id, sizeof(meeting.comm_id));
    xccl_wire_get(&wire, meeting.secret, sizeof(meeting.secret));
    for (int i = 0; i < ROOTS_MAX && !rc; i++) {
        uint8_t addr[XCCL_ADDR_WIRE_BYTES];

        xccl_wire_get(&wire, addr, sizeof(addr));
        if (i >= meeting.root_count) {
            if (memcmp(addr, zeroes, sizeof(addr)) != 0)
                rc = id_fail("bytes that must be zero are not");
        } else if (xccl_addr_decode(addr, &meeting.roots[i]) != xcclSuccess ||
                   !meeting.roots[i].bytes || !xccl_addr_port(&meeting.roots[i]) ||
                   is_nowhere(&meeting.roots[i])) {
            rc = id_fail("it has an impossible address");
        }
    }
    if (!rc)
        *meeting_out = meeting;
out:
    sodium_memzero(&copy, sizeof(copy));
    sodium_memzero(&meeting, sizeof(meeting));
    return rc;
}

void xccl_job_key_secret(const char *job_key, uint8_t secret_out[32])
{
    static const char label[] = "xccl 1 job key";

    crypto_generichash(secret_out, 32, (const uint8_t *)job_key, strlen(job_key),
                       (const uint8_t *)label, sizeof(label));
}

/* Only we, or root, may own a key file, and nobody else may read it. */
static xcclResult_t key_file_check(int fd, const char *path)
{
    struct stat st;

    if (fstat(fd, &st) != 0)
        return xccl_fail(xcclSystemError, errno, NULL, "cannot examine the key file %s", path);
    if (!S_ISREG(st.st_mode) || (st.st_uid != geteuid() && st.st_uid != 0) || (st.st_mode & 0077)) {
        return xccl_fail(xcclInvalidUsage, 0, "chown it to this user and chmod 600 it",
                         "the key file %s is not a file that only its owner can read (mode %o, "
                         "owner %u)",
                         path, (unsigned)(st.st_mode & 07777), (unsigned)st.st_uid);
    }
    return xcclSuccess;
}

/* The first line of the key file. */
static xcclResult_t key_file_read(const char *path, char key_out[KEY_MAX_BYTES + 2])
{
    /* Not blocking: a path that names a pipe must not stop us here. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    size_t got = 0;
    ssize_t bytes = 1;
    xcclResult_t rc;

    if (fd < 0)
        return xccl_fail(xcclSystemError, errno, "set XCCL_JOB_KEY_FILE to a readable file",
                         "cannot open the key file %s", path);
    rc = key_file_check(fd, path);
    while (!rc && bytes > 0 && got < KEY_MAX_BYTES + 1) {
        bytes = read(fd, key_out + got, KEY_MAX_BYTES + 1 - got);
        if (bytes < 0 && errno == EINTR)
            bytes = 1;
        else if (bytes < 0)
            rc = xccl_fail(xcclSystemError, errno, NULL, "cannot read the key file %s", path);
        else
            got += (size_t)bytes;
    }
    close(fd);
    if (rc)
        return rc;
    key_out[got] = '\0';
    key_out[strcspn(key_out, "\r\n")] = '\0';
    if (!key_out[0] || strlen(key_out) > KEY_MAX_BYTES) {
        return xccl_fail(xcclInvalidUsage, 0, "put one line of 1 to 1023 characters into it",
                         "the key file %s holds no key", path);
    }
    return xcclSuccess;
}

/* The secret of a job that meets at a known address; salt tells apart what has no key. */
static xcclResult_t comm_id_secret(const char *addr_text, const char *salt,
                                   struct xccl_meeting *meeting)
{
    const char *key = xccl_param_string(XCCL_P_JOB_KEY);
    const char *path = xccl_param_string(XCCL_P_JOB_KEY_FILE);
    char text[KEY_MAX_BYTES + 2];
    xcclResult_t rc = xcclSuccess;

    if (!key[0] && path[0]) {
        rc = key_file_read(path, text);
        key = text;
    } else if (!key[0]) {
        meeting->key_is_public = 1;
        snprintf(text, sizeof(text), "%s%s%s", addr_text, salt[0] ? " " : "", salt);
        key = text;
    }
    if (!rc) {
        meeting->key_is_short = !meeting->key_is_public && strlen(key) < KEY_FINE_BYTES;
        xccl_job_key_secret(key, meeting->secret);
    }
    sodium_memzero(text, sizeof(text));
    return rc;
}

void xccl_unique_id_warn(const struct xccl_meeting *meeting)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    char text[XCCL_ADDR_TEXT_BYTES];

    /* Relaxed: who warns does not matter, only that one does. */
    if ((!meeting->key_is_public && !meeting->key_is_short) ||
        atomic_flag_test_and_set_explicit(&warned, memory_order_relaxed))
        return;
    xccl_addr_format(&meeting->roots[0], text);
    if (meeting->key_is_public)
        xccl_log(XCCL_LOG_WARN,
                 "the ranks meet at %s without a job key: anyone who can reach this port can join "
                 "and read; set XCCL_JOB_KEY or XCCL_JOB_KEY_FILE to the same secret on every rank",
                 text);
    else
        xccl_log(XCCL_LOG_WARN,
                 "the ranks meet at %s with a job key of fewer than %d characters: who records one "
                 "message can try all such keys; give every rank the same %d random characters or "
                 "more in XCCL_JOB_KEY or XCCL_JOB_KEY_FILE",
                 text, KEY_FINE_BYTES, KEY_FINE_BYTES);
}

/* The k-th call in each process gives the same id. */
static xcclResult_t meeting_at(const char *addr_text, const char *salt,
                               struct xccl_meeting *meeting)
{
    uint8_t count[8];
    struct xccl_wire wire = xccl_wire_over(count, sizeof(count));
    crypto_generichash_state state;
    uint8_t hash[32];
    xcclResult_t rc = xccl_error_tell(xccl_addr_parse(addr_text, 1, &meeting->roots[0]));

    if (rc)
        return rc;
    if (is_nowhere(&meeting->roots[0])) {
        return xccl_fail(xcclInvalidArgument, 0,
                         "give an address of rank 0's host that all ranks can reach",
                         "cannot meet at %s", addr_text);
    }
    meeting->root_count = 1;
    rc = comm_id_secret(addr_text, salt, meeting);
    if (rc)
        return rc;
    xccl_wire_put_u64(&wire, atomic_fetch_add_explicit(&comm_ids_made, 1, memory_order_relaxed));
    crypto_generichash_init(&state, NULL, 0, sizeof(hash));
    crypto_generichash_update(&state, (const uint8_t *)"xccl 1 comm id", 15);
    crypto_generichash_update(&state, count, sizeof(count));
    crypto_generichash_update(&state, (const uint8_t *)addr_text, strlen(addr_text) + 1);
    crypto_generichash_update(&state, (const uint8_t *)salt, strlen(salt));
    crypto_generichash_final(&state, hash, sizeof(hash));
    memcpy(meeting->comm_id, hash, sizeof(meeting->comm_id));
    return xcclSuccess;
}

/* A new communicator with its root in this process, at up to three interfaces: the first may not
 * be the one that reaches the other hosts. */
static xcclResult_t meeting_create(struct xccl_meeting *meeting)
{
    struct xccl_netif ifs[ROOTS_MAX];
    int count = 0;
    xcclResult_t rc = xccl_netif_choose(ifs, ROOTS_MAX, &count);

    if (rc)
        return rc;
    rc = xccl_os_random(meeting->comm_id, sizeof(meeting->comm_id));
    if (rc)
        return rc;
    rc = xccl_os_random(meeting->secret, sizeof(meeting->secret));
    if (rc)
        return rc;
    for (int i = 0; i < count; i++)
        meeting->roots[i] = ifs[i].addr;
    meeting->root_count = count;
    return xccl_root_start_single(meeting, (uint64_t)xccl_param_int(XCCL_P_TIMEOUT_INIT_S) * 1000);
}

static xcclResult_t id_make(const char *addr_text, const char *salt, int owns_root,
                            xcclUniqueId *id_out)
{
    struct xccl_meeting meeting = {0};
    xcclResult_t rc = xccl_channel_library_init();

    if (rc)
        return rc;
    rc = addr_text[0] ? meeting_at(addr_text, salt, &meeting) : meeting_create(&meeting);
    if (addr_text[0])
        meeting.owns_root = owns_root;
    if (!rc)
        id_encode(&meeting, id_out);
    sodium_memzero(&meeting, sizeof(meeting));
    return rc;
}

xcclResult_t xccl_unique_id_create(xcclUniqueId *id_out)
{
    const char *addr_text;
    char why[XCCL_ERROR_TEXT_BYTES];
    xcclResult_t rc = xccl_param_load();

    if (rc)
        return rc;
    addr_text = xccl_param_string(XCCL_P_COMM_ID);
    /* XCCL_ROOT: "launcher" is the other word. */
    rc = id_make(addr_text, "", xccl_param_int(XCCL_P_ROOT) == 0, id_out);
    if ((rc != xcclInvalidArgument && rc != xcclTimeout) || !addr_text[0])
        return rc;
    snprintf(why, sizeof(why), "%s", xccl_error_text());
    return xccl_fail(rc, 0, NULL, "XCCL_COMM_ID: %.480s", why);
}

xcclResult_t xccl_unique_id_create_here(xcclUniqueId *id_out)
{
    xcclResult_t rc = xccl_param_load();

    return rc ? rc : id_make("", "", 0, id_out);
}

xcclResult_t xccl_unique_id_at(const char *addr_text, const char *salt, xcclUniqueId *id_out)
{
    xcclResult_t rc = xccl_param_load();

    if (rc)
        return rc;
    if (!addr_text[0])
        return xccl_fail(xcclInvalidArgument, 0, "give HOST:PORT",
                         "the address where the ranks meet is empty");
    return id_make(addr_text, salt, 1, id_out);
}

/* --- from ids to what one rank needs of them: of several, a hash over all in order --- */

int xccl_job_first_rank(int nranks, int meeting_count, int idx)
{
    return (int)((int64_t)nranks * idx / meeting_count);
}

/* The share that a rank belongs to. */
static int share_of(int rank, int nranks, int meeting_count)
{
    int idx = (int)((int64_t)rank * meeting_count / nranks);

    /* The division above may be one too low where the shares are not of one size. */
    while (idx + 1 < meeting_count && xccl_job_first_rank(nranks, meeting_count, idx + 1) <= rank)
        idx++;
    return idx;
}

/* Whoever has all ids in the right order has the key. */
static void hash_ids(const xcclUniqueId *ids, int id_count, struct xccl_job *job)
{
    static const char label[] = "xccl 1 several ids";
    crypto_generichash_state state;
    uint8_t hash[48];

    crypto_generichash_init(&state, NULL, 0, sizeof(hash));
    crypto_generichash_update(&state, (const uint8_t *)label, sizeof(label));
    for (int i = 0; i < id_count; i++)
        crypto_generichash_update(&state, (const uint8_t *)ids[i].internal,
                                  sizeof(ids[i].internal));
    crypto_generichash_final(&state, hash, sizeof(hash));
    memcpy(job->comm_id, hash, sizeof(job->comm_id));
    memcpy(job->secret, hash + sizeof(job->comm_id), sizeof(job->secret));
    sodium_memzero(hash, sizeof(hash));
    sodium_memzero(&state, sizeof(state));
}

xcclResult_t xccl_job_init(const xcclUniqueId *ids, int id_count, int rank, int nranks,
                           struct xccl_job *job_out)
{
    struct xccl_job job = {.meeting_count = id_count};
    xcclResult_t rc;

    if (nranks < 1 || rank < 0 || rank >= nranks) {
        return xccl_fail(xcclInvalidArgument, 0, "use 0 <= rank < nranks",
                         "rank %d is out of range for %d ranks", rank, nranks);
    }
    if (id_count < 1 || id_count > nranks) {
        return xccl_fail(xcclInvalidArgument, 0, "give at least one id, and at most one per rank",
                         "%d unique ids for %d ranks", id_count, nranks);
    }
    job.meeting_idx = share_of(rank, nranks, id_count);
    job.guest = id_count > 1 && rank == xccl_job_first_rank(nranks, id_count, job.meeting_idx);
    rc = xccl_unique_id_decode(&ids[job.meeting_idx], &job.own);
    if (!rc && job.guest)
        rc = xccl_unique_id_decode(&ids[(job.meeting_idx + id_count - 1) % id_count], &job.before);
    if (!rc && id_count > 1) {
        hash_ids(ids, id_count, &job);
    } else if (!rc) {
        memcpy(job.comm_id, job.own.comm_id, sizeof(job.comm_id));
        memcpy(job.secret, job.own.secret, sizeof(job.secret));
    }
    if (!rc)
        *job_out = job;
    sodium_memzero(&job, sizeof(job));
    return rc;
}
