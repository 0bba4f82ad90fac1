/* SPDX-License-Identifier: BSD-3-Clause */
/* raw_sockets: what sockets give without a library, for socket_figures to set XCCL's beside.
 *
 *   raw_sockets blast     streams of bytes, one or both directions
 *   raw_sockets pingpong  one message there and back
 *   raw_sockets split     messages over N connections and T threads, as NCCL's transport does
 *
 * Two processes, a sender and a receiver; a third one, this, counts rounds. Prints one JSON object
 * a line: medians over rounds, processor seconds of both sides a GiB, voluntary switches.
 *
 * It stands alone: cc -O3 -D_GNU_SOURCE -pthread -o raw_sockets raw_*.c
 * Thread: one here; those of a side are told of in its files. */
#include "raw_sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S   UINT64_C(1000000000)
#define GIB        1073741824.0
#define FLIGHT     (UINT64_C(4) << 20) /* bytes of a stream's ring, unless --window is given */
#define TRIALS     16
#define GROWTH     16.0
#define ITERS_MAX  1e9
#define WINDOW_MAX 1024

static const char usage[] =
    "usage: raw_sockets blast|pingpong|split [options]\n"
    "  --family 4|6|unix   TCP over IPv4 (default) or IPv6, or Unix sockets\n"
    "  --address A         the receiver's address (default: loopback)\n"
    "  --hosts A,B         network namespaces (ip netns) of sender and receiver\n"
    "  --bytes N           of a message (default 1048576)\n"
    "  --call N            bytes of one call, at most (default: a message)\n"
    "  --streams N         connections a direction, 1 to 64 (default 1); pingpong: 2 for one\n"
    "                      there and another one back\n"
    "  --threads N         a side, 1 to 16 (default 1); split: helpers besides the caller\n"
    "  --window N          message slots of a stream (default: 4 MiB, 2 to 32)\n"
    "  --buffer N          SO_SNDBUF and SO_RCVBUF (default: the system's)\n"
    "  --congestion NAME   TCP_CONGESTION (default: the system's)\n"
    "  --both              blast: both directions at once\n"
    "  --poll              asks all the time instead of sleeping\n"
    "  --pin               the sender to the first core, the receiver to the second\n"
    "  --rounds N          (default 5), of --ms N milliseconds each (default 100)\n"
    "  --timeout S         ends a run that takes longer (default 120)\n";

/* ---- for all files ---- */

void raw_die(const char *fmt, ...)
{
    va_list args;

    fflush(stdout);
    fputs("raw_sockets: ", stderr);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    _exit(1);
}

uint64_t raw_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

void *raw_memory(uint64_t bytes)
{
    void *memory = aligned_alloc(RAW_PAGE, (bytes + RAW_PAGE - 1) / RAW_PAGE * RAW_PAGE);

    if (!memory)
        raw_die("no memory for %llu bytes", (unsigned long long)bytes);
    memset(memory, 0, bytes);
    return memory;
}

const char *raw_message(const struct raw_side *side, uint64_t number)
{
    return side->data + number * 7 % RAW_STEPS * RAW_STEP_BYTES;
}

void raw_expect(const struct raw_side *side, const char *got, uint64_t number)
{
    if (memcmp(got, raw_message(side, number), side->options->bytes) != 0)
        raw_die("message %llu came with wrong data", (unsigned long long)number);
}

/* ---- options ---- */

static const struct option long_options[] = {
    {"family", required_argument, NULL, 'f'},
    {"address", required_argument, NULL, 'a'},
    {"hosts", required_argument, NULL, 'h'},
    {"bytes", required_argument, NULL, 'b'},
    {"call", required_argument, NULL, 'c'},
    {"streams", required_argument, NULL, 's'},
    {"threads", required_argument, NULL, 't'},
    {"window", required_argument, NULL, 'w'},
    {"buffer", required_argument, NULL, 'B'},
    {"congestion", required_argument, NULL, 'C'},
    {"both", no_argument, NULL, '2'},
    {"poll", no_argument, NULL, 'p'},
    {"pin", no_argument, NULL, 'P'},
    {"rounds", required_argument, NULL, 'r'},
    {"ms", required_argument, NULL, 'm'},
    {"timeout", required_argument, NULL, 'T'},
    {NULL, 0, NULL, 0},
};

static int64_t number(int64_t low, int64_t high)
{
    char *end = NULL;
    long long value = strtoll(optarg, &end, 10);

    if (end == optarg || *end || value < low || value > high)
        raw_die("%s: must be a whole number from %lld to %lld", optarg, (long long)low,
                (long long)high);
    return value;
}

static void read_hosts(struct raw_options *options)
{
    char *comma = strchr(optarg, ',');

    if (!comma)
        raw_die("--hosts %s: must be two names, as in --hosts left,right", optarg);
    *comma = '\0';
    options->hosts[0] = optarg;
    options->hosts[1] = comma + 1;
}

static void read_number(int code, struct raw_options *options)
{
    switch (code) {
    case 'b':
        options->bytes = (uint64_t)number(1, INT64_C(1) << 32);
        break;
    case 'c':
        options->call_bytes = number(1, INT64_C(1) << 32);
        break;
    case 's':
        options->streams = number(1, RAW_STREAMS);
        break;
    case 't':
        options->threads = number(1, RAW_THREADS);
        break;
    case 'w':
        options->window = number(1, WINDOW_MAX);
        break;
    case 'B':
        options->buffer_bytes = number(1, 1 << 30);
        break;
    case 'r':
        options->rounds = number(1, RAW_ROUNDS);
        break;
    case 'm':
        options->seconds_ms = (uint64_t)number(1, 60000);
        break;
    default:
        options->timeout_ms = (uint64_t)number(1, 3600) * 1000;
    }
}

static void read_option(int code, struct raw_options *options)
{
    switch (code) {
    case 'f':
        options->family = strcmp(optarg, "unix") == 0 ? AF_UNIX
                          : strcmp(optarg, "6") == 0  ? AF_INET6
                                                      : AF_INET;
        break;
    case 'a':
        options->address = optarg;
        break;
    case 'h':
        read_hosts(options);
        break;
    case 'C':
        options->congestion = optarg;
        break;
    case '2':
        options->both = 1;
        break;
    case 'p':
        options->poll = 1;
        break;
    case 'P':
        options->pin = 1;
        break;
    case '?':
        fputs(usage, stderr);
        exit(2);
    default:
        read_number(code, options);
    }
}

static void read_arguments(int argc, char **argv, struct raw_options *options)
{
    static const char *const modes[] = {"blast", "pingpong", "split"};
    int code = 0, mode = 0;

    while ((code = getopt_long(argc, argv, "", long_options, NULL)) != -1)
        read_option(code, options);
    while (optind == argc - 1 && mode < 3 && strcmp(argv[optind], modes[mode]) != 0)
        mode++;
    if (optind != argc - 1 || mode == 3) {
        fputs(usage, stderr);
        exit(2);
    }
    options->mode = (enum raw_mode)mode;
    if (options->both && mode != RAW_BLAST)
        raw_die("--both is for blast");
    if (options->streams > 2 && mode == RAW_PINGPONG)
        raw_die("pingpong takes 1 or 2 streams");
    if (!options->window) {
        uint64_t fits = FLIGHT / options->bytes;

        options->window = fits < 2 ? 2 : fits > 32 ? 32 : (int64_t)fits;
    }
}

/* ---- a side ---- */

static void pin_to(int wanted)
{
    cpu_set_t may, own;

    CPU_ZERO(&own);
    if (sched_getaffinity(0, sizeof(may), &may) != 0 || CPU_COUNT(&may) < 2)
        raw_die("--pin needs two cores");
    for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&own) == 0; core++) {
        if (CPU_ISSET(core, &may) && wanted-- == 0)
            CPU_SET(core, &own);
    }
    sched_setaffinity(0, sizeof(own), &own);
}

static void enter_host(const char *name)
{
    char path[256];
    int fd = -1;

    snprintf(path, sizeof(path), "%s%s", strchr(name, '/') ? "" : "/run/netns/", name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0)
        raw_die("cannot enter the network namespace %s: %s", path, strerror(errno));
    close(fd);
}

static void make_memory(struct raw_side *side)
{
    const struct raw_options *options = side->options;
    uint64_t pattern_bytes = options->bytes + (uint64_t)RAW_STEPS * RAW_STEP_BYTES, state = 0;
    uint64_t slots = options->mode == RAW_PINGPONG ? 1 : (uint64_t)options->window;

    if (options->mode == RAW_BLAST && (options->both || side->number == 1))
        slots *= (uint64_t)options->streams;
    side->call_bytes = options->call_bytes ? (uint64_t)options->call_bytes : options->bytes;
    side->samples = raw_memory(RAW_SAMPLES * sizeof(*side->samples));
    side->room = raw_memory(slots * options->bytes);
    side->data = raw_memory(pattern_bytes);
    for (uint64_t at = 0; at + sizeof(state) <= pattern_bytes; at += sizeof(state)) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        memcpy(side->data + at, &state, sizeof(state));
    }
}

static void usage_of(struct raw_result *result)
{
    struct rusage used;

    getrusage(RUSAGE_SELF, &used);
    result->cpu_ns = (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * NS_PER_S +
                     (uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1000;
    result->switches = (uint64_t)used.ru_nvcsw;
}

static void side_round(struct raw_side *side)
{
    struct raw_result before = {0}, result = {0};

    usage_of(&before);
    result.start_ns = raw_now_ns();
    if (side->options->mode == RAW_BLAST)
        raw_blast(side);
    else if (side->options->mode == RAW_PINGPONG)
        raw_pingpong(side, &result);
    else
        raw_split(side);
    result.end_ns = raw_now_ns();
    usage_of(&result);
    result.cpu_ns -= before.cpu_ns;
    result.switches -= before.switches;
    if (side->options->mode == RAW_BLAST)
        raw_blast_check(side);
    else if (side->options->mode == RAW_SPLIT)
        raw_split_check(side);
    side->shared->results[side->number] = result;
}

static _Noreturn void side_main(const struct raw_options *options, struct raw_shared *shared,
                                int idx, pid_t parent)
{
    struct raw_side side = {.options = options, .shared = shared, .number = idx};

    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
        _exit(1);
    if (options->pin)
        pin_to(idx);
    if (options->hosts[idx])
        enter_host(options->hosts[idx]);
    side.fd_count = (int)options->streams * (1 + options->both);
    if (options->mode == RAW_SPLIT)
        side.fd_count++;
    make_memory(&side);
    raw_connect(&side);
    for (;;) {
        pthread_barrier_wait(&shared->gate);
        if (shared->stop)
            _exit(0);
        side_round(&side);
        pthread_barrier_wait(&shared->gate);
    }
}

/* ---- rounds ---- */

struct figures {
    double value[RAW_ROUNDS], p99_us[RAW_ROUNDS], cpu[RAW_ROUNDS], switches[RAW_ROUNDS];
    double busy[RAW_ROUNDS]; /* cores of the busier side */
};

static double run_round(const struct raw_options *options, struct raw_shared *shared,
                        uint64_t iters, struct figures *figures, int64_t at)
{
    const struct raw_result *results = shared->results;
    double ns = 0, gib = 0, most = 0;

    shared->iters = iters;
    pthread_barrier_wait(&shared->gate);
    pthread_barrier_wait(&shared->gate);
    ns = (double)(results[1].end_ns > results[0].end_ns ? results[1].end_ns : results[0].end_ns) -
         (double)(results[1].start_ns < results[0].start_ns ? results[1].start_ns
                                                            : results[0].start_ns);
    gib = (double)iters * (double)options->bytes / GIB;
    if (options->mode == RAW_BLAST)
        gib *= (double)(options->streams * (1 + options->both));
    most = (double)(results[1].cpu_ns > results[0].cpu_ns ? results[1].cpu_ns : results[0].cpu_ns);
    figures->value[at] = options->mode == RAW_PINGPONG ? results[0].p50_us : gib * GIB / ns;
    figures->p99_us[at] = results[0].p99_us;
    figures->cpu[at] = (double)(results[0].cpu_ns + results[1].cpu_ns) / 1e9 / gib;
    figures->switches[at] = (double)(results[0].switches + results[1].switches) / (double)iters;
    figures->busy[at] = most / ns;
    return ns;
}

static int by_size(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

static double median(double *values, int64_t count)
{
    qsort(values, (size_t)count, sizeof(*values), by_size);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

static void print_point(const struct raw_options *options, struct figures *figures, uint64_t iters)
{
    static const char *const modes[] = {"blast", "pingpong", "split"};
    int64_t rounds = options->rounds;
    double value = median(figures->value, rounds);

    printf("{\"mode\": \"%s\", \"bytes\": %llu, \"streams\": %lld, \"threads\": %lld, "
           "\"directions\": %d, \"window\": %lld, \"poll\": %s, \"pin\": %s, \"congestion\": "
           "\"%s\", \"buffer\": %lld, \"iters\": %llu, \"rounds\": %lld, ",
           modes[options->mode], (unsigned long long)options->bytes, (long long)options->streams,
           (long long)options->threads, 1 + options->both, (long long)options->window,
           options->poll ? "true" : "false", options->pin ? "true" : "false",
           options->congestion ? options->congestion : "system", (long long)options->buffer_bytes,
           (unsigned long long)iters, (long long)rounds);
    printf("\"%s\": {\"median\": %.6g, \"low\": %.6g, \"high\": %.6g}, ",
           options->mode == RAW_PINGPONG ? "latency_us" : "gb_per_s", value, figures->value[0],
           figures->value[rounds - 1]);
    if (options->mode == RAW_PINGPONG)
        printf("\"p99_us\": %.6g, ", median(figures->p99_us, rounds));
    printf("\"cpu_s_per_gib\": %.6g, \"busy\": %.3f, \"switches_per_message\": %.4g}\n",
           median(figures->cpu, rounds), median(figures->busy, rounds),
           median(figures->switches, rounds));
    fflush(stdout);
}

static void measure(const struct raw_options *options, struct raw_shared *shared)
{
    static struct figures figures;
    double target_ns = (double)options->seconds_ms * 1e6, best_ns = 1e18, wanted = 1;
    uint64_t iters = 1;

    for (int i = 0; i < TRIALS; i++) {
        double ns = run_round(options, shared, iters, &figures, 0) / (double)iters;

        best_ns = ns < best_ns ? ns : best_ns;
        wanted = target_ns / best_ns < ITERS_MAX ? target_ns / best_ns : ITERS_MAX;
        if (wanted < 3 * (double)iters)
            break;
        iters = (uint64_t)(wanted < GROWTH * (double)iters ? wanted : GROWTH * (double)iters);
    }
    iters = wanted < 1 ? 1 : (uint64_t)wanted;
    for (int64_t at = 0; at < options->rounds; at++)
        run_round(options, shared, iters, &figures, at);
    print_point(options, &figures, iters);
}

/* A side that ends early has said why; what the main thread waits for will not come then. */
static void *watch_sides(void *unused)
{
    int status = 0;

    (void)unused;
    while (wait(&status) > 0) {
        if (status != 0)
            _exit(1);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    struct raw_options options = {.family = AF_INET,
                                  .bytes = 1 << 20,
                                  .streams = 1,
                                  .threads = 1,
                                  .rounds = 5,
                                  .seconds_ms = 100,
                                  .timeout_ms = 120000};
    struct raw_shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t attr;
    pthread_t watcher;
    pid_t own = getpid();

    read_arguments(argc, argv, &options);
    if (shared == MAP_FAILED)
        raw_die("no memory");
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->gate, &attr, 3);
    alarm((unsigned)(options.timeout_ms / 1000));
    for (int i = 0; i < 2; i++) {
        pid_t pid = fork();

        if (pid < 0)
            raw_die("no process: %s", strerror(errno));
        if (pid == 0)
            side_main(&options, shared, i, own);
    }
    if (pthread_create(&watcher, NULL, watch_sides, NULL) != 0)
        raw_die("no thread");
    pthread_barrier_wait(&shared->gate); /* the receiver listens */
    measure(&options, shared);
    shared->stop = 1;
    pthread_barrier_wait(&shared->gate);
    pthread_join(watcher, NULL);
    return 0;
}
