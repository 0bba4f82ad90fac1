/* SPDX-License-Identifier: BSD-3-Clause */
/* What a test gets from its process: clock, environment, temporary folders, seed, programs to run,
 * and the captured output of processes that the harness forks. Thread: the main thread of a
 * process; xt_random any. */
#include "xt_int.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WHY_BYTES 700 /* of an output in a failure text, which has room for this and more */

/* Texts handed to the test, freed after it. */
struct kept {
    struct kept *next;
    char *text;
};
static struct kept *kept_list;
static const char *last_output;
struct pulse *xt_pulse;

int64_t xt_now_ms(void)
{
    /* The runner has no report of its own. Who asks for the time is alive: a loop that waits for
     * something other than a test beats too. */
    if (xt_pulse && !xt_self.report)
        pulse_beat(xt_pulse);
    return (int64_t)(pulse_now(xt_pulse) / 1000000);
}

double xt_seconds(void)
{
    return 1e-9 * (double)pulse_now(xt_pulse);
}

double xt_lost_seconds(void)
{
    return 1e-9 * (double)pulse_raw() - xt_seconds();
}

double xt_bound(double quiet_s, double busy_s)
{
    const char *text = getenv("XT_QUIET");

    return text && strcmp(text, "1") == 0 ? quiet_s : busy_s;
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

double xt_median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof(double), compare);
    return values[count / 2];
}

void *xt_shared_alloc(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        perror("xt: no shared memory for the reports of tests");
        _exit(1);
    }
    return memory;
}

void xt_shared_free(void *memory, size_t bytes)
{
    munmap(memory, bytes);
}

int xt_capture_open(void)
{
    int fd = memfd_create("xt-output", MFD_CLOEXEC);

    /* Several processes may write to it at once: without this some of their lines would be lost,
     * for a memory file's position is not moved atomically. */
    if (fd < 0 || fcntl(fd, F_SETFL, O_APPEND)) {
        perror("xt: no memory for the output of a test");
        _exit(1);
    }
    return fd;
}

char *xt_capture_read(int fd, size_t max_bytes)
{
    struct stat info;
    size_t bytes, used = 0, skip = 0;
    char *text;

    if (fstat(fd, &info) < 0)
        info.st_size = 0;
    bytes = (size_t)info.st_size;
    if (bytes > max_bytes) {
        skip = bytes - max_bytes;
        bytes = max_bytes;
    }
    text = malloc(bytes + 1);
    if (!text)
        abort();
    while (used < bytes) {
        ssize_t got = pread(fd, text + used, bytes - used, (off_t)(skip + used));

        if (got <= 0)
            break;
        used += (size_t)got;
    }
    text[used] = '\0';
    return text;
}

void xt_capture_redirect(int fd)
{
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    if (null_fd >= 0) {
        dup2(null_fd, STDIN_FILENO);
        close(null_fd);
    }
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
}

void xt_print_lines(const char *prefix, const char *text)
{
    while (text[0]) {
        size_t bytes = strcspn(text, "\n");

        printf("%s%.*s\n", prefix, (int)bytes, text);
        text += bytes + (text[bytes] == '\n');
    }
}

void xt_status_text(int status, char *text, size_t bytes)
{
    if (WIFSIGNALED(status))
        snprintf(text, bytes, "killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(text, bytes, "exit status %d", WEXITSTATUS(status));
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info;
    (void)kind;
    (void)walk;
    /* What cannot be removed stays; the next entries are still tried. */
    (void)remove(path);
    return 0;
}

void xt_remove_tree(const char *path)
{
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static char *keep(char *text)
{
    struct kept *item = malloc(sizeof(*item));

    if (!item || !text)
        abort();
    item->text = text;
    item->next = kept_list;
    kept_list = item;
    return text;
}

void xt_process_fini(void)
{
    struct kept *item;

    last_output = NULL;
    while ((item = kept_list)) {
        kept_list = item->next;
        free(item->text);
        free(item);
    }
}

const char *xt_tmpdir(void)
{
    char *path = NULL;

    /* The folder is private to this test; its ranks may have made it already. */
    mkdir(xt_self.report->tmp, 0700);
    if (asprintf(&path, "%s/XXXXXX", xt_self.report->tmp) < 0)
        abort();
    if (!mkdtemp(path))
        XT_FAIL("cannot make the folder %s: %s; set TMPDIR to a writable folder", path,
                strerror(errno));
    return keep(path);
}

void xt_setenv(const char *name, const char *value)
{
    int rc = value ? setenv(name, value, 1) : unsetenv(name);

    if (rc != 0)
        XT_FAIL("cannot set %s in the environment: %s", name, strerror(errno));
}

uint64_t xt_seed(void)
{
    static uint64_t seed;
    static bool known;
    const char *text = getenv("XT_SEED");

    if (known)
        return seed;
    if (text && text[0]) {
        seed = strtoull(text, NULL, 0);
    } else if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed)) {
        seed = (uint64_t)xt_now_ms();
    }
    known = true;
    return seed;
}

/* splitmix64: every state is good, so a seed is a state. */
uint64_t xt_random(uint64_t *state)
{
    uint64_t mixed = *state += 0x9e3779b97f4a7c15u;

    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
}

/* This line says that something went wrong. */
static bool line_tells(const char *line, size_t bytes)
{
    return (bytes >= 4 && strncasecmp(line, "fail", 4) == 0) || memmem(line, bytes, "FAILED", 6) ||
           memmem(line, bytes, "error: ", 7) || memmem(line, bytes, "ERROR: ", 7);
}

/* The end of a text, from the beginning of a line if one begins there. */
static const char *last_lines(const char *text)
{
    size_t bytes = strlen(text);
    const char *from = text + (bytes > WHY_BYTES ? bytes - WHY_BYTES : 0);
    const char *line = from > text ? strchr(from, '\n') : NULL;

    return line && line[1] ? line + 1 : from;
}

const char *xt_why(const char *output)
{
    char *why = keep(calloc(1, WHY_BYTES + 1));
    size_t used = 0;
    bool telling = false;

    printf("%s\n", output);
    for (const char *line = output; *line;) {
        size_t bytes = strcspn(line, "\n");
        size_t all = bytes + (line[bytes] == '\n');

        /* What is indented explains the line above it. */
        telling = line_tells(line, bytes) || (telling && line[0] == ' ');
        for (size_t i = 0; telling && i < all && used < WHY_BYTES; i++)
            why[used++] = line[i];
        line += all;
    }
    if (used == 0)
        used = (size_t)snprintf(why, WHY_BYTES + 1, "%s", last_lines(output));
    while (used > 0 && why[used - 1] == '\n')
        why[--used] = '\0';
    return why;
}

int xt_run_program(const char *const *argv, const char **output_out)
{
    int fd = xt_capture_open(), status = 0;
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid < 0)
        XT_FAIL("cannot fork to run %s: %s", argv[0], strerror(errno));
    if (pid == 0) {
        xt_capture_redirect(fd);
        execvp(argv[0], (char *const *)(uintptr_t)argv);
        fprintf(stderr, "cannot run %s: %s\n", argv[0], strerror(errno));
        _exit(127);
    }
    xt_forked(pid);
    /* The runner's deadline bounds this wait: it kills the whole process group. */
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            XT_FAIL("cannot wait for %s: %s", argv[0], strerror(errno));
    }
    last_output = keep(xt_capture_read(fd, XT_OUTPUT_BYTES));
    if (output_out)
        *output_out = last_output;
    close(fd);
    return status;
}

const char *xt_last_output(void)
{
    return last_output && last_output[0] ? last_output : NULL;
}
