/* SPDX-License-Identifier: BSD-3-Clause */
/* PMI-1 and PMI-2 over the descriptor PMI_FD or the address PMI_PORT: MPICH's hydra, Intel MPI,
 * Slurm's mpi/pmi2. Rank 0 puts the id under keys of this call, all meet in a fence, the others get
 * it; a text longer than the server's values goes in pieces.
 *
 * PMI-2 is spoken where PMI_JOBID is set, as Slurm does, else PMI-1, which hydra speaks too. The
 * connection stays until the process exits, for a server takes no one twice; it is ended in order
 * then, or the launcher would see a failure.
 *
 * One party of a process can speak: where the program has MPI's functions, it is MPI's.
 *
 * Thread: the caller's, under launcher.c's lock; at exit, the exiting one. */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/netaddr.h"
#include "base/tcp.h"
#include "bootstrap/launcher/launcher_int.h"
#include "bootstrap/launcher/pmi_wire.h"

#define NAME_BYTES     256 /* of a key-value space, or a job */
#define KEY_BYTES      48
#define VALUE_LEAST    16
#define VALUE_MOST     512 /* so that a put fits into the 1,024 bytes of a PMI-1 line */
#define PIECES_MAX     64
#define FINALIZE_MS    2000
#define GREETING_LINES 8 /* that a server at PMI_PORT may send */

enum stage { APART, JOINED, BROKEN, ENDED };

static struct {
    enum stage stage;
    int fd; /* -1: none */
    int own_fd; /* by PMI_PORT: ours to close */
    pid_t pid; /* who joined; a child of fork must not speak */
    enum xccl_pmi_version version;
    int rank, nranks;
    size_t value_bytes; /* greatest value, without its end */
    char space[NAME_BYTES]; /* PMI-1: the key-value space; PMI-2: the job */
    size_t have, taken; /* bytes in in, and how many of them were a message already */
    char in[XCCL_PMI_MESSAGE_BYTES];
} pmi = {.fd = -1};

static const char advice[] =
    "see the launcher's output; or set XCCL_RANK, XCCL_NRANKS, XCCL_COMM_ID and XCCL_JOB_KEY";

static int pmi_present(void)
{
    return (xccl_launcher_env_has("PMI_FD") && xccl_launcher_env_has("PMI_RANK") &&
            xccl_launcher_env_has("PMI_SIZE")) ||
           (xccl_launcher_env_has("PMI_PORT") && xccl_launcher_env_has("PMI_ID"));
}

/* --- bytes --- */

static xcclResult_t wait_for(short events, const struct xccl_limit *limit)
{
    for (;;) {
        struct pollfd poll_fd = {.fd = pmi.fd, .events = events};
        int got = poll(&poll_fd, 1, xccl_limit_poll_ms(limit));

        if (got > 0)
            return xcclSuccess;
        if (got < 0 && errno != EINTR)
            return xccl_fail(xcclSystemError, errno, NULL, "cannot wait for the launcher's PMI");
        if (xccl_limit_passed(limit)) {
            return xccl_fail(xcclTimeout, 0,
                             "check whether all ranks were started and make the same number of "
                             "calls for ids; XCCL_TIMEOUT_INIT_S sets the limit",
                             "rank %d: the launcher's PMI server did not answer in time", pmi.rank);
        }
    }
}

static xcclResult_t gone(int error)
{
    return xccl_fail(xcclRemoteError, error, advice,
                     "rank %d: the launcher has closed its PMI connection", pmi.rank);
}

static xcclResult_t send_message(struct xccl_pmi_writer *writer, const struct xccl_limit *limit)
{
    size_t bytes = xccl_pmi_end(writer), sent = 0;

    if (bytes == 0)
        return xccl_fail(xcclInternalError, 0, advice, "a PMI message is too long to be sent");
    while (sent < bytes) {
        ssize_t put = send(pmi.fd, writer->bytes + sent, bytes - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        xcclResult_t rc = xcclSuccess;

        if (put >= 0) {
            sent += (size_t)put;
            continue;
        }
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return gone(errno);
        rc = wait_for(POLLOUT, limit);
        if (rc)
            return rc;
    }
    return xcclSuccess;
}

/* The next message. Its texts are good until the next call. */
static xcclResult_t read_message(enum xccl_pmi_version version, const struct xccl_limit *limit,
                                 struct xccl_pmi_message *message_out)
{
    size_t bytes = 0;

    pmi.have -= pmi.taken;
    memmove(pmi.in, pmi.in + pmi.taken, pmi.have);
    pmi.taken = 0;
    for (;;) {
        xcclResult_t rc = xccl_pmi_frame(version, pmi.in, pmi.have, &bytes);
        ssize_t got = 0;

        if (!rc && bytes) {
            pmi.taken = bytes;
            rc = xccl_pmi_parse(version, pmi.in, bytes, message_out);
            if (!rc)
                return xcclSuccess;
        }
        if (rc)
            return xccl_fail(xcclRemoteError, 0, advice, "%s", xccl_error_text());
        rc = wait_for(POLLIN, limit);
        if (rc)
            return rc;
        /* There is room: a message that fills the buffer is whole, or wrong. */
        got = recv(pmi.fd, pmi.in + pmi.have, sizeof(pmi.in) - pmi.have, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN))
            return gone(got < 0 ? errno : 0);
        if (got > 0)
            pmi.have += (size_t)got;
    }
}

/* --- requests and answers --- */

/* Waits for the answer of this name, and takes no other. */
static xcclResult_t read_answer(enum xccl_pmi_version version, const char *name,
                                const struct xccl_limit *limit, struct xccl_pmi_message *answer_out)
{
    xcclResult_t rc = xcclSuccess;
    const char *said = NULL;

    do {
        rc = read_message(version, limit, answer_out);
        if (rc)
            return rc;
        /* A server at PMI_PORT may still be telling what it thinks we should know. */
    } while (strcmp(answer_out->values[0], "set") == 0);
    if (strcmp(answer_out->values[0], name) != 0) {
        return xccl_fail(xcclRemoteError, 0,
                         "if other code in this process uses PMI, pass the id by MPI_Bcast",
                         "the launcher's PMI server answered \"%.40s\" instead of %s",
                         answer_out->values[0], name);
    }
    said = xccl_pmi_value(answer_out, "rc");
    if (said && strcmp(said, "0") != 0) {
        const char *why = xccl_pmi_value(answer_out, version == XCCL_PMI_1 ? "msg" : "errmsg");

        return xccl_fail(xcclRemoteError, 0, advice,
                         "the launcher's PMI server refused: %s, code %.16s, %.100s", name, said,
                         why ? why : "no reason given");
    }
    return xcclSuccess;
}

static xcclResult_t ask(struct xccl_pmi_writer *writer, const char *answer_name,
                        const struct xccl_limit *limit, struct xccl_pmi_message *answer_out)
{
    xcclResult_t rc = send_message(writer, limit);

    return rc ? rc : read_answer(writer->version, answer_name, limit, answer_out);
}

/* A field of an answer as a number from low to high. */
static xcclResult_t answer_int(const struct xccl_pmi_message *answer, const char *name, int low,
                               int high, int *value_out)
{
    const char *text = xccl_pmi_value(answer, name);
    char *end = NULL;
    long value = text && *text >= '0' && *text <= '9' ? strtol(text, &end, 10) : -1;

    if (!end || *end || value < low || value > high) {
        return xccl_fail(
            xcclRemoteError, 0, advice,
            "the launcher's PMI server reports %s=%.40s, which is not a number from %d to %d", name,
            text ? text : "(nothing)", low, high);
    }
    *value_out = (int)value;
    return xcclSuccess;
}

static xcclResult_t wrong_place(int rank, int nranks)
{
    return xccl_fail(
        xcclRemoteError, 0, "start the ranks with one launcher",
        "the launcher's PMI server reports rank %d of %d, its variables say rank %d of %d", rank,
        nranks, pmi.rank, pmi.nranks);
}

/* --- joining --- */

/* The descriptor that the launcher left us. */
static xcclResult_t open_fd(void)
{
    struct stat st;
    int fd = -1;
    xcclResult_t rc = xccl_launcher_env_int("PMI_FD", 0, 1 << 20, &fd);

    if (rc)
        return rc;
    if (fstat(fd, &st) || !S_ISSOCK(st.st_mode)) {
        return xccl_fail(xcclInvalidUsage, 0,
                         "start the program by mpirun or srun itself, or by a wrapper that leaves "
                         "descriptors open; or set XCCL_RANK, XCCL_NRANKS and XCCL_COMM_ID",
                         "PMI_FD is %d, which is not an open socket in this process", fd);
    }
    pmi.fd = fd;
    return xcclSuccess;
}

/* Connects to PMI_PORT, says who we are, and is told rank and size. */
static xcclResult_t open_port(const struct xccl_limit *limit)
{
    struct xccl_pmi_writer writer;
    struct xccl_pmi_message message;
    struct xccl_addr addr;
    int rank = -1, nranks = -1;
    xcclResult_t rc = xccl_error_tell(xccl_addr_parse(getenv("PMI_PORT"), 1, &addr));

    if (!rc)
        rc = xccl_tcp_connect(&addr, limit, &pmi.fd);
    if (rc)
        return rc;
    pmi.own_fd = 1;
    xccl_pmi_begin(&writer, XCCL_PMI_1, "initack");
    xccl_pmi_add(&writer, "pmiid", getenv("PMI_ID"));
    rc = ask(&writer, "initack", limit, &message);
    for (int i = 0; !rc && i < GREETING_LINES && (rank < 0 || nranks < 0); i++) {
        rc = read_message(XCCL_PMI_1, limit, &message);
        if (!rc && xccl_pmi_value(&message, "rank"))
            rc = answer_int(&message, "rank", 0, (1 << 20) - 1, &rank);
        if (!rc && xccl_pmi_value(&message, "size"))
            rc = answer_int(&message, "size", 1, 1 << 20, &nranks);
    }
    if (rc)
        return rc;
    if (rank < 0 || rank >= nranks)
        return wrong_place(rank, nranks);
    pmi.rank = rank;
    pmi.nranks = nranks;
    return xcclSuccess;
}

static xcclResult_t join_pmi1(const struct xccl_limit *limit)
{
    struct xccl_pmi_writer writer;
    struct xccl_pmi_message answer;
    const char *space = NULL;
    int value_max = 0;
    xcclResult_t rc = xcclSuccess;

    xccl_pmi_begin(&writer, XCCL_PMI_1, "get_maxes");
    rc = ask(&writer, "maxes", limit, &answer);
    if (!rc)
        rc = answer_int(&answer, "vallen_max", VALUE_LEAST, 1 << 30, &value_max);
    if (rc)
        return rc;
    pmi.value_bytes = value_max - 1 < VALUE_MOST ? (size_t)value_max - 1 : VALUE_MOST;
    xccl_pmi_begin(&writer, XCCL_PMI_1, "get_my_kvsname");
    rc = ask(&writer, "my_kvsname", limit, &answer);
    if (rc)
        return rc;
    space = xccl_pmi_value(&answer, "kvsname");
    if (!space || !*space || strlen(space) >= NAME_BYTES) {
        return xccl_fail(
            xcclRemoteError, 0, advice,
            "the launcher's PMI server returned no usable name of its key-value space");
    }
    snprintf(pmi.space, sizeof(pmi.space), "%s", space);
    return xcclSuccess;
}

static xcclResult_t join_pmi2(const struct xccl_limit *limit)
{
    struct xccl_pmi_writer writer;
    struct xccl_pmi_message answer;
    const char *job = getenv("PMI_JOBID");
    char rank_text[16];
    int rank = 0, nranks = 0;
    xcclResult_t rc = xcclSuccess;

    if (!job || !*job || strlen(job) >= NAME_BYTES)
        return xccl_fail(xcclInvalidUsage, 0, advice, "PMI_JOBID is not a usable job name");
    snprintf(pmi.space, sizeof(pmi.space), "%s", job);
    snprintf(rank_text, sizeof(rank_text), "%d", pmi.rank);
    xccl_pmi_begin(&writer, XCCL_PMI_2, "fullinit");
    xccl_pmi_add(&writer, "pmijobid", job);
    xccl_pmi_add(&writer, "pmirank", rank_text);
    xccl_pmi_add(&writer, "threaded", "FALSE");
    rc = ask(&writer, "fullinit-response", limit, &answer);
    if (!rc)
        rc = answer_int(&answer, "rank", 0, 1 << 20, &rank);
    if (!rc)
        rc = answer_int(&answer, "size", 1, 1 << 20, &nranks);
    if (!rc && (rank != pmi.rank || nranks != pmi.nranks))
        rc = wrong_place(rank, nranks);
    pmi.value_bytes = VALUE_MOST;
    return rc;
}

/* Also the first exchange of PMI-2. */
static xcclResult_t greet(const struct xccl_limit *limit)
{
    struct xccl_pmi_writer writer;
    struct xccl_pmi_message answer;
    int version = 0;
    xcclResult_t rc = xcclSuccess;

    xccl_pmi_begin(&writer, XCCL_PMI_1, "init");
    xccl_pmi_add(&writer, "pmi_version", pmi.version == XCCL_PMI_2 ? "2" : "1");
    xccl_pmi_add(&writer, "pmi_subversion", pmi.version == XCCL_PMI_2 ? "0" : "1");
    rc = ask(&writer, "response_to_init", limit, &answer);
    if (!rc)
        rc = answer_int(&answer, "pmi_version", (int)pmi.version, (int)pmi.version, &version);
    return rc;
}

static void hang_up(void)
{
    if (pmi.own_fd)
        xccl_tcp_close(&pmi.fd);
    pmi.fd = -1;
    pmi.own_fd = 0;
    pmi.have = pmi.taken = 0;
    explicit_bzero(pmi.in, sizeof(pmi.in));
}

/* A launcher takes a process that goes without a word for a failed one. */
static void finalize_at_exit(void)
{
    struct xccl_pmi_writer writer;
    struct xccl_pmi_message answer;
    struct xccl_limit limit = xccl_limit_ms(FINALIZE_MS, NULL);

    if (pmi.stage != JOINED || pmi.pid != getpid())
        return;
    pmi.stage = ENDED;
    xccl_pmi_begin(&writer, pmi.version, "finalize");
    /* It may fail: the process is ending either way. */
    (void)ask(&writer, pmi.version == XCCL_PMI_1 ? "finalize_ack" : "finalize-response", &limit,
              &answer);
    hang_up();
}

/* MPI in this process speaks PMI itself, or will. */
static xcclResult_t check_alone(void)
{
    if (!dlsym(RTLD_DEFAULT, "MPI_Init"))
        return xcclSuccess;
    return xccl_fail(xcclInvalidUsage, 0,
                     "take rank and size from MPI, call xcclGetUniqueId on rank 0 and pass the id "
                     "by MPI_Bcast",
                     "this program uses MPI, which holds the only PMI connection that a process "
                     "has to its launcher");
}

static xcclResult_t join_open(const struct xccl_limit *limit)
{
    int by_fd = xccl_launcher_env_has("PMI_FD");
    xcclResult_t rc = check_alone();

    if (rc)
        return rc;
    if (pmi.stage == BROKEN || pmi.stage == ENDED) {
        return xccl_fail(xcclInvalidUsage, 0, "restart the job",
                         "rank %d: the PMI connection to the launcher has %s", pmi.rank,
                         pmi.stage == ENDED ? "ended" : "failed before");
    }
    pmi.version = xccl_launcher_env_has("PMI_JOBID") ? XCCL_PMI_2 : XCCL_PMI_1;
    rc = by_fd ? open_fd() : open_port(limit);
    if (!rc)
        rc = greet(limit);
    if (!rc)
        rc = pmi.version == XCCL_PMI_1 ? join_pmi1(limit) : join_pmi2(limit);
    if (!rc && atexit(finalize_at_exit))
        rc = xccl_fail(xcclSystemError, 0, NULL,
                       "cannot register a function to call at exit: out of memory");
    if (rc) {
        hang_up();
        pmi.stage = BROKEN;
        return rc;
    }
    pmi.pid = getpid();
    pmi.stage = JOINED;
    xccl_log(XCCL_LOG_DEBUG, "joined the launcher by PMI-%d", (int)pmi.version);
    return xcclSuccess;
}

static xcclResult_t join(const struct xccl_limit *limit)
{
    return pmi.stage == JOINED ? xcclSuccess : join_open(limit);
}

/* --- the id --- */

static void key_name(char key_out[KEY_BYTES], unsigned number, unsigned piece)
{
    snprintf(key_out, KEY_BYTES, "xccl-id-%u-%u", number, piece);
}

static xcclResult_t put_piece(unsigned number, unsigned piece, const char *text, size_t bytes,
                              const struct xccl_limit *limit)
{
    struct xccl_pmi_writer writer;
    struct xccl_pmi_message answer;
    char key[KEY_BYTES], value[VALUE_MOST + 1];
    xcclResult_t rc = xcclSuccess;

    key_name(key, number, piece);
    snprintf(value, sizeof(value), "%.*s", (int)bytes, text);
    xccl_pmi_begin(&writer, pmi.version, pmi.version == XCCL_PMI_1 ? "put" : "kvs-put");
    if (pmi.version == XCCL_PMI_1)
        xccl_pmi_add(&writer, "kvsname", pmi.space);
    xccl_pmi_add(&writer, "key", key);
    xccl_pmi_add(&writer, "value", value);
    rc = ask(&writer, pmi.version == XCCL_PMI_1 ? "put_result" : "kvs-put-response", limit,
             &answer);
    explicit_bzero(value, sizeof(value));
    explicit_bzero(&writer, sizeof(writer));
    return rc;
}

/* Appends one piece to text, whose *used bytes may become at most room. */
static xcclResult_t get_piece(unsigned number, unsigned piece, char *text, size_t room,
                              const struct xccl_limit *limit)
{
    struct xccl_pmi_writer writer;
    struct xccl_pmi_message answer;
    const char *value = NULL, *found = NULL;
    char key[KEY_BYTES];
    size_t used = strlen(text);
    xcclResult_t rc = xcclSuccess;

    key_name(key, number, piece);
    xccl_pmi_begin(&writer, pmi.version, pmi.version == XCCL_PMI_1 ? "get" : "kvs-get");
    if (pmi.version == XCCL_PMI_1) {
        xccl_pmi_add(&writer, "kvsname", pmi.space);
    } else {
        xccl_pmi_add(&writer, "jobid", pmi.space);
        xccl_pmi_add(&writer, "srcid", "-1");
    }
    xccl_pmi_add(&writer, "key", key);
    rc = ask(&writer, pmi.version == XCCL_PMI_1 ? "get_result" : "kvs-get-response", limit,
             &answer);
    if (rc)
        return rc;
    value = xccl_pmi_value(&answer, "value");
    found = xccl_pmi_value(&answer, "found");
    if (!found)
        found = xccl_pmi_value(&answer, "flag");
    if (!value || (found && strcmp(found, "FALSE") == 0) || strlen(value) >= room - used) {
        return xccl_fail(
            xcclRemoteError, 0,
            "make the same number of calls for ids on every rank, with one version of xccl",
            "the launcher's PMI server has no usable value for %s", key);
    }
    snprintf(text + used, room - used, "%s", value);
    return xcclSuccess;
}

static xcclResult_t fence(const struct xccl_limit *limit)
{
    struct xccl_pmi_writer writer;
    struct xccl_pmi_message answer;

    xccl_pmi_begin(&writer, pmi.version, pmi.version == XCCL_PMI_1 ? "barrier_in" : "kvs-fence");
    return ask(&writer, pmi.version == XCCL_PMI_1 ? "barrier_out" : "kvs-fence-response", limit,
               &answer);
}

/* Two digits with the number of pieces go in front. */
static xcclResult_t put_text(unsigned number, const char *text, const struct xccl_limit *limit)
{
    char whole[XCCL_LAUNCH_TEXT_BYTES + 3];
    size_t bytes = strlen(text) + 2, pieces = (bytes + pmi.value_bytes - 1) / pmi.value_bytes;
    xcclResult_t rc = xcclSuccess;

    if (pieces > PIECES_MAX) {
        return xccl_fail(
            xcclRemoteError, 0, advice,
            "the launcher's PMI server accepts values of at most %zu bytes, which is too short",
            pmi.value_bytes);
    }
    snprintf(whole, sizeof(whole), "%02zu%s", pieces % 100, text);
    for (size_t i = 0; i < pieces && !rc; i++) {
        size_t at = i * pmi.value_bytes;
        size_t left = bytes - at;

        rc = put_piece(number, (unsigned)i, whole + at,
                       left < pmi.value_bytes ? left : pmi.value_bytes, limit);
    }
    explicit_bzero(whole, sizeof(whole));
    return rc;
}

static xcclResult_t get_text(unsigned number, char text[XCCL_LAUNCH_TEXT_BYTES],
                             const struct xccl_limit *limit)
{
    char whole[XCCL_LAUNCH_TEXT_BYTES + 3] = "";
    unsigned pieces = 0;
    xcclResult_t rc = get_piece(number, 0, whole, sizeof(whole), limit);

    if (!rc && strspn(whole, "0123456789") >= 2)
        pieces = (unsigned)(whole[0] - '0') * 10 + (unsigned)(whole[1] - '0');
    if (!rc && (pieces < 1 || pieces > PIECES_MAX)) {
        rc = xccl_fail(xcclRemoteError, 0, "use one version of xccl everywhere",
                       "the data that the launcher passed on from rank 0 is not a unique id");
    }
    for (unsigned i = 1; i < pieces && !rc; i++)
        rc = get_piece(number, i, whole, sizeof(whole), limit);
    if (!rc)
        snprintf(text, XCCL_LAUNCH_TEXT_BYTES, "%.*s", XCCL_LAUNCH_TEXT_BYTES - 1, whole + 2);
    explicit_bzero(whole, sizeof(whole));
    return rc;
}

static xcclResult_t pmi_share(const struct xccl_launch *launch, unsigned number,
                              char text[XCCL_LAUNCH_TEXT_BYTES], const struct xccl_limit *limit)
{
    xcclResult_t rc = join(limit);

    if (rc)
        return rc;
    if (launch->rank == 0)
        rc = put_text(number, text, limit);
    if (!rc)
        rc = fence(limit);
    if (!rc && launch->rank != 0)
        rc = get_text(number, text, limit);
    explicit_bzero(pmi.in, pmi.taken);
    if (rc) {
        /* What comes next on the line is anybody's guess. */
        hang_up();
        pmi.stage = BROKEN;
    }
    return rc;
}

static xcclResult_t pmi_meet(const struct xccl_launch *launch, unsigned number,
                             const struct xccl_limit *limit, xcclUniqueId *id_out)
{
    /* Before rank 0 makes an id: the error is the same on all ranks. */
    xcclResult_t rc = launch->nranks > 1 ? check_alone() : xcclSuccess;

    return rc ? rc : xccl_launcher_carry(launch, number, pmi_share, limit, id_out);
}

static xcclResult_t pmi_place(struct xccl_launch *launch, const struct xccl_limit *limit)
{
    xcclResult_t rc = xcclSuccess;

    if (xccl_launcher_env_has("PMI_FD")) {
        rc = xccl_launcher_env_place("PMI_RANK", "PMI_SIZE", launch);
        pmi.rank = launch->rank;
        pmi.nranks = launch->nranks;
    } else {
        /* Only the server knows. */
        rc = join(limit);
        launch->rank = pmi.rank;
        launch->nranks = pmi.nranks;
    }
    if (xccl_launcher_env_has("SLURM_LOCALID")) {
        launch->local_rank = xccl_launcher_env_maybe("SLURM_LOCALID", -1);
        launch->local_nranks = xccl_slurm_tasks_on(getenv("SLURM_STEP_TASKS_PER_NODE"),
                                                   xccl_launcher_env_maybe("SLURM_NODEID", 0));
    } else {
        launch->local_rank = xccl_launcher_env_maybe("MPI_LOCALRANKID", -1);
        launch->local_nranks = xccl_launcher_env_maybe("MPI_LOCALNRANKS", 0);
    }
    return rc;
}

const struct xccl_launcher xccl_launcher_pmi = {"PMI (MPICH's mpirun or Slurm)", pmi_present,
                                                pmi_place, pmi_meet};
