/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared memory that cannot be resized, and refusal of everything a peer may send in its place.
 * Thread: one. */
#include "base/os.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/huge_pages.h"
#include "base/inject.h"
#include "huge_memory.h"
#include "xt.h"

#define BYTES ((size_t)16384)

__attribute__((constructor)) static void use_sources(void)
{
    xt_set_error_source(xccl_error_text);
    xt_set_alloc_source(xccl_alloc_live);
}

XT_TEST(a_map_is_zeroed_sealed_and_close_on_exec)
{
    struct xccl_map map;
    const char *bytes;
    int seals;

    XT_OK(xccl_map_create("test", BYTES, &map));
    bytes = map.base;
    for (size_t i = 0; i < BYTES; i++)
        XT_CHECK(bytes[i] == 0);
    seals = fcntl(map.fd, F_GET_SEALS);
    XT_CHECK((seals & F_SEAL_SHRINK) && (seals & F_SEAL_GROW) && (seals & F_SEAL_SEAL));
    XT_CHECK(ftruncate(map.fd, 0) != 0);
    XT_CHECK(ftruncate(map.fd, (off_t)BYTES * 2) != 0);
    XT_CHECK(fcntl(map.fd, F_GETFD) & FD_CLOEXEC);
    xccl_map_close(&map);
}

XT_TEST(both_holders_see_the_same_memory)
{
    struct xccl_map mine, theirs;

    XT_OK(xccl_map_create("test", BYTES, &mine));
    XT_OK(xccl_map_open(dup(mine.fd), BYTES, &theirs));
    XT_CHECK(mine.base != theirs.base);
    strcpy(mine.base, "seen");
    XT_CHECK_TEXT((const char *)theirs.base, "seen");
    xccl_map_close(&mine);
    XT_CHECK_TEXT((const char *)theirs.base, "seen");
    xccl_map_close(&theirs);
    XT_CHECK(theirs.base == NULL && theirs.fd == -1 && theirs.bytes == 0);
    xccl_map_close(&theirs);
}

static char *map_private(size_t bytes, int rights)
{
    char *memory = mmap(NULL, bytes, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    XT_CHECK(memory != MAP_FAILED);
    return memory;
}

XT_TEST(huge_pages_hold_what_was_there)
{
    size_t bytes = 16u << 20, inner = bytes - 300;
    char *memory = map_private(bytes, PROT_READ | PROT_WRITE);
    char *probe = map_private(bytes, PROT_READ | PROT_WRITE);
    long kib;

    for (size_t i = 0; i < bytes; i += 4096)
        memory[i] = probe[i] = (char)(i >> 12);
    xccl_huge_pages_make(memory + 100, inner);
    kib = huge_kib(memory, "AnonHugePages"); /* before the probe, which may be its neighbour */
    for (size_t i = 0; i < bytes; i += 4096)
        XT_CHECK_INT(memory[i], (char)(i >> 12));
    if (madvise(probe, bytes, MADV_COLLAPSE) != 0)
        XT_SKIP("this kernel makes no huge pages when it is asked");
    XT_CHECK(kib >= 2048); /* some page may be in use for a moment */
    munmap(memory, bytes);
    munmap(probe, bytes);
}

XT_TEST(huge_pages_of_what_has_none_change_nothing)
{
    size_t bytes = 8u << 20;
    char *sealed = map_private(bytes, PROT_READ), *gone = map_private(bytes, PROT_NONE), few[100];

    munmap(gone, bytes);
    xccl_huge_pages_make(NULL, 0);
    xccl_huge_pages_make(few, sizeof few);
    xccl_huge_pages_make(gone, bytes);
    xccl_huge_pages_make(sealed, bytes);
    for (size_t i = 0; i < bytes; i += 4096)
        XT_CHECK_INT(sealed[i], 0);
    munmap(sealed, bytes);
}

XT_TEST(large_maps_begin_where_huge_pages_do)
{
    static const size_t sizes[] = {XCCL_HUGE_PAGE, XCCL_HUGE_PAGE + 1, 5 * XCCL_HUGE_PAGE - 4096};

    for (int i = 0; i < 3; i++) {
        struct xccl_map mine, theirs;

        XT_OK(xccl_map_create("test", sizes[i], &mine));
        XT_OK(xccl_map_open(dup(mine.fd), sizes[i], &theirs));
        XT_CHECK_INT((uintptr_t)mine.base % XCCL_HUGE_PAGE, 0);
        XT_CHECK_INT((uintptr_t)theirs.base % XCCL_HUGE_PAGE, 0);
        ((char *)mine.base)[sizes[i] - 1] = 7;
        XT_CHECK_INT(((const char *)theirs.base)[sizes[i] - 1], 7);
        xccl_map_close(&mine);
        xccl_map_close(&theirs);
    }
}

XT_TEST(closing_a_map_that_was_never_made_closes_nothing)
{
    struct xccl_map map = {0};

    XT_CHECK(fcntl(0, F_GETFD) >= 0 || open("/dev/null", O_RDONLY) == 0);
    xccl_map_close(&map);
    XT_CHECK(fcntl(0, F_GETFD) >= 0);
    XT_CHECK_INT(map.fd, -1);
}

XT_TEST(impossible_sizes_are_errors)
{
    struct xccl_map map = {.fd = -1};

    XT_CHECK_RC(xccl_map_create("test", 0, &map), xcclInvalidArgument);
    XT_CHECK_RC(xccl_map_create("test", SIZE_MAX, &map), xcclInvalidArgument);
    XT_CHECK_RC(xccl_map_create("test", (size_t)1 << 60, &map), xcclSystemError);
    XT_CHECK(map.base == NULL);
}

/* The descriptor is closed by the refusal; the harness looks for those left open. */
static void check_refused(int fd, size_t bytes, const char *why)
{
    struct xccl_map map = {.fd = -1};

    XT_CHECK_RC(xccl_map_open(fd, bytes, &map), xcclRemoteError);
    XT_CHECK_HAS(xccl_error_text(), why);
    XT_CHECK(map.base == NULL);
}

static int memfd(size_t bytes, int seals)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    XT_CHECK(fd >= 0);
    XT_CHECK(ftruncate(fd, (off_t)bytes) == 0);
    XT_CHECK(seals == 0 || fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

XT_TEST(memory_without_both_size_seals_is_refused)
{
    int fd = memfd_create("test", MFD_CLOEXEC);

    XT_CHECK(ftruncate(fd, (off_t)BYTES) == 0);
    check_refused(fd, BYTES, "not sealed");
    check_refused(memfd(BYTES, 0), BYTES, "not sealed");
    check_refused(memfd(BYTES, F_SEAL_GROW | F_SEAL_SEAL), BYTES, "not sealed");
    check_refused(memfd(BYTES, F_SEAL_SHRINK | F_SEAL_SEAL), BYTES, "not sealed");
}

XT_TEST(memory_of_another_size_is_refused_with_both_sizes)
{
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW;

    check_refused(memfd(BYTES - 1, seals), BYTES, "has 16383 bytes instead of 16384");
    check_refused(memfd(BYTES * 2, seals), BYTES, "has 32768 bytes instead of 16384");
    check_refused(memfd(0, seals), 0, "has 0 bytes");
}

XT_TEST(memory_that_cannot_be_written_is_refused)
{
    int fd = memfd(BYTES, F_SEAL_SHRINK | F_SEAL_GROW), read_only;
    char path[64];

    check_refused(memfd(BYTES, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), BYTES, "cannot map");
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    read_only = open(path, O_RDONLY | O_CLOEXEC);
    close(fd);
    XT_CHECK(read_only >= 0);
    check_refused(read_only, BYTES, "cannot map");
}

XT_TEST(what_is_no_memory_is_refused)
{
    char path[4096];
    int pipe_fds[2], file;

    XT_CHECK(pipe(pipe_fds) == 0);
    check_refused(pipe_fds[0], BYTES, "does not refer to shared memory");
    check_refused(pipe_fds[1], BYTES, "does not refer to shared memory");
    check_refused(open("/dev/null", O_RDWR), BYTES, "does not refer to shared memory");
    check_refused(open("/", O_RDONLY), BYTES, "does not refer to shared memory");
    snprintf(path, sizeof(path), "%s/file", xt_tmpdir());
    file = open(path, O_RDWR | O_CREAT, 0600);
    XT_CHECK(ftruncate(file, (off_t)BYTES) == 0);
    check_refused(file, BYTES, "not sealed");
    check_refused(-1, BYTES, "cannot be examined");
}

XT_TEST(each_failure_in_turn_leaks_nothing_while_mapping)
{
    struct xccl_map map;
    uint64_t k;

    for (k = 1;; k++) {
        xcclResult_t rc;

        xccl_inject_arm(k);
        rc = xccl_map_create("test", BYTES, &map);
        if (rc == xcclSuccess)
            break;
        XT_CHECK_RC(rc, xcclSystemError);
    }
    XT_CHECK(k > 2);
    xccl_inject_arm(1);
    XT_CHECK_RC(xccl_map_open(dup(map.fd), BYTES, &map), xcclSystemError);
    xccl_inject_arm(0);
    xccl_map_close(&map);
}

XT_TEST(random_bytes_differ)
{
    uint8_t a[300] = {0}, b[300] = {0};

    XT_OK(xccl_os_random(a, sizeof(a)));
    XT_OK(xccl_os_random(b, sizeof(b)));
    XT_CHECK(memcmp(a, b, sizeof(a)) != 0);
    XT_OK(xccl_os_random(NULL, 0));
}

static void hash_matches(int rank, int nranks, void *arg)
{
    const uint64_t *want = arg;

    (void)rank;
    (void)nranks;
    XT_CHECK(xccl_os_host_hash() == *want);
}

XT_TEST(processes_of_one_host_have_one_hash)
{
    uint64_t hash = xccl_os_host_hash();

    XT_CHECK(hash != 0);
    xt_mp_run(2, hash_matches, &hash);
}

XT_TEST(identity_is_plausible)
{
    XT_CHECK(xccl_os_hostname()[0] != '\0');
    XT_CHECK(strchr(xccl_os_hostname(), '.') == NULL);
    XT_CHECK(xccl_os_cores() >= 1);
    XT_CHECK_INT(xccl_os_thread_id(), getpid());
}

XT_TEST(processes_that_run_are_told_from_stopped_and_ended_ones)
{
    pid_t pid = fork();
    int status;

    XT_CHECK(pid >= 0);
    if (pid == 0) {
        pause();
        _exit(0);
    }
    XT_CHECK(xccl_os_process_runs((uint32_t)getpid()));
    XT_CHECK(xccl_os_process_runs((uint32_t)pid)); /* it waits */
    XT_CHECK(kill(pid, SIGSTOP) == 0);
    XT_CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
    XT_CHECK(!xccl_os_process_runs((uint32_t)pid));
    XT_CHECK(kill(pid, SIGKILL) == 0);
    XT_CHECK(waitpid(pid, &status, 0) == pid);
    XT_CHECK(!xccl_os_process_runs((uint32_t)pid));
    XT_CHECK(!xccl_os_process_runs(UINT32_MAX));
}

/* ci/jobs/package has the program linked with -static, which is refused. */
XT_TEST(a_program_with_a_loader_can_load_libraries)
{
    XT_CHECK(xccl_os_cannot_load() == NULL);
}
