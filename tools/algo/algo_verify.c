/* SPDX-License-Identifier: BSD-3-Clause */
/* xccl algo verify: proves algorithms, built-in ones and those of plugins, for ranges of ranks, all
 * their roots and parameters, or the schedules of a file.
 *
 * Cases are drawn one by one from a list that is never written down: generator, ranks, parameter,
 * root. Thread: one for each core, which take cases under a lock; the main thread prints. */
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "algo/algo_int.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "command.h"
#include "option.h"

#define COMMAND     "algo verify"
#define THREADS_MAX 64
#define ROOTS_ALL   16 /* up to so many ranks each of them is root once */
#define FILE_MAX    ((size_t)64 << 20)
#define GENERATORS  128
#define RANKS_USUAL 16 /* 1 to so many */

const char xccl_algo_verify_help[] =
    "usage: xccl algo verify NAME|--all [-n N|A..B|--nodes A,B,...] [--coll COLL] [options]\n"
    "       xccl algo verify --plugin FILE [NAME|--all] [-n N|A..B] [options]\n"
    "       xccl algo verify FILE...\n"
    "\n"
    "Proves of a schedule, for messages of any size: no rank waits for ever, no message is lost\n"
    "or taken for another one, and the result is right. Each schedule is proven in place and out\n"
    "of place, in three ways: with the fewest slots (buffers of a connection) that it needs;\n"
    "with 8 slots; and with messages that go from user memory to user memory. FILE holds the\n"
    "output of `xccl algo show` for all ranks, as text or JSON.\n"
    "\n"
    "  --all             prove all algorithms, built-in ones and those of plugins\n"
    "  --plugin FILE     load an algorithm plugin, by path (./x.so) or name, instead of those\n"
    "                    in XCCL_ALGO_PLUGIN; without NAME and --all, prove only this plugin\n"
    "  -n N|A..B         number of ranks, or each number from A to B (default 1..16)\n"
    "  --coll COLL       the collective, if NAME serves several\n"
    "  --nodes A,B,...   for the algorithm hier, instead of -n: number of ranks on each node\n"
    "                    (default: 4 per node, the rest on the last)\n"
    "  --inner NAME, --outer NAME\n"
    "                    for hier: the algorithms within and between nodes\n"
    "  --sample K        for a range: only K numbers of ranks, spread evenly and including both\n"
    "                    ends\n"
    "  -j J              number of threads (default: one per core)\n"
    "\n"
    "A collective with a root is proven once for each root if there are up to 16 ranks; for\n"
    "more ranks, the roots are the first two ranks, the middle one and the last one. An\n"
    "algorithm with a parameter (pat:4) is proven for its lowest value, then for each doubling\n"
    "of it, as long as the value is less than twice the number of ranks.\n"
    "\n"
    "Exit status: 0 if all schedules are proven; 1 if one is refused, with its smallest\n"
    "counter-example; 2 for wrong arguments.\n"
    "\n"
    "examples: xccl algo verify --all -n 1..64\n"
    "          xccl algo verify nhr --coll all_reduce -n 1000\n"
    "          xccl algo verify hier --coll all_reduce --nodes 3,1,4\n"
    "          xccl algo verify --plugin ./libxccl-algo-mine.so -n 1..32\n"
    "          xccl algo show ring --coll all_reduce -n 4 > ring.txt; xccl algo verify ring.txt\n";

/* Of one generator. */
struct tally {
    uint64_t cases, refused;
    uint16_t minslots;
    uint8_t class;
    double seconds;
};

struct verify {
    const struct xccl_generator *only; /* NULL: all */
    int coll, param; /* param of only; 0: each one in turn */
    int first, last, sample; /* first 0: not given */
    const char *nodes_text, *plugins;
    int plugins_only;
    pthread_mutex_t lock; /* of all below */
    int at_generator, at_pick;
    struct xccl_generator_for at; /* the next case; nranks 0: of the next generator */
    struct tally tallies[GENERATORS];
    int failed; /* an error that is no refusal */
};

/* ---- cases ---- */

/* The pick-th number of ranks, or 0 behind the last one. */
static int ranks_at(const struct verify *verify, int pick)
{
    int span = verify->last - verify->first;

    if (verify->sample == 0 || verify->sample > span)
        return pick <= span ? verify->first + pick : 0;
    if (pick >= verify->sample)
        return 0;
    return verify->sample == 1 ? verify->last
                               : verify->first + (int)((int64_t)span * pick / (verify->sample - 1));
}

static int next_root(const struct xccl_generator *generator, int nranks, int root)
{
    const int some[] = {1, nranks / 2, nranks - 1};

    if (!xccl_coll_rooted(generator->coll))
        return 0;
    if (nranks <= ROOTS_ALL)
        return root + 1 < nranks ? root + 1 : 0;
    for (int i = 0; i < 3; i++)
        if (some[i] > root)
            return some[i];
    return 0;
}

static int wanted(const struct verify *verify, const struct xccl_generator *generator)
{
    if (verify->only)
        return generator == verify->only;
    return (verify->coll < 0 || generator->coll == (enum xccl_coll)verify->coll) &&
           (!verify->plugins_only || xccl_algo_plugin_path(generator));
}

static int first_param(const struct verify *verify, const struct xccl_generator *generator)
{
    return verify->param ? verify->param : xccl_algo_next_param(generator, verify->at.nranks, 0);
}

/* Goes on to the next case, of those that are left. Returns its generator, or NULL. */
static const struct xccl_generator *next_case(struct verify *verify)
{
    struct xccl_generator_for *at = &verify->at;

    for (;;) {
        const struct xccl_generator *generator = xccl_generator_at(verify->at_generator);

        if (!generator)
            return NULL;
        if (!wanted(verify, generator)) {
            verify->at_generator++;
            continue;
        }
        if (at->nranks > 0)
            at->root = next_root(generator, at->nranks, at->root);
        if (at->nranks > 0 && at->root == 0)
            at->param = verify->param ? 0 : xccl_algo_next_param(generator, at->nranks, at->param);
        if (at->nranks == 0 || (at->root == 0 && at->param == 0)) {
            at->nranks = ranks_at(verify, verify->at_pick++);
            at->param = at->nranks ? first_param(verify, generator) : 0;
            at->root = 0;
        }
        if (at->nranks == 0) {
            verify->at_generator++;
            verify->at_pick = 0;
        } else if (!generator->serves || generator->serves(at)) {
            return generator;
        } else {
            at->root = at->nranks - 1; /* no other root either */
        }
    }
}

/* ---- proofs ---- */

static void tell_case(const struct xccl_generator *generator, const struct xccl_generator_for *what,
                      const char *text)
{
    char param[24] = "";

    if (what->param)
        snprintf(param, sizeof(param), ":%d", what->param);
    printf("REFUSED %s %s%s, %d ranks, root %d: %s\n", xccl_coll_name(generator->coll),
           generator->name, param, what->nranks, what->root, text);
}

static void count_case(struct verify *verify, const struct xccl_generator *generator,
                       const struct xccl_generator_for *what, const struct xccl_verdict *verdict,
                       double seconds)
{
    struct tally *tally;
    int idx = 0;

    while (xccl_generator_at(idx) != generator)
        idx++;
    tally = &verify->tallies[idx];
    pthread_mutex_lock(&verify->lock);
    tally->cases++;
    tally->seconds += seconds;
    if (verdict->kind != XCCL_VERDICT_PROVEN) {
        if (tally->refused++ == 0)
            tell_case(generator, what, verdict->text);
    } else {
        if (verdict->minslots > tally->minslots)
            tally->minslots = verdict->minslots;
        if (tally->class == 0 || verdict->class < tally->class)
            tally->class = verdict->class;
    }
    pthread_mutex_unlock(&verify->lock);
}

static void *prove_main(void *verify_)
{
    struct verify *verify = verify_;

    for (;;) {
        const struct xccl_generator *generator = NULL;
        struct xccl_generator_for what;
        struct xccl_schedule **ranks;
        struct xccl_verdict verdict;
        uint64_t begin_ns;
        int good;

        pthread_mutex_lock(&verify->lock);
        if (!verify->failed)
            generator = next_case(verify);
        what = verify->at;
        pthread_mutex_unlock(&verify->lock);
        if (!generator)
            return NULL;
        begin_ns = xccl_clock_ns();
        ranks = xccl_algo_make(generator, &what);
        good = ranks && xccl_prove(ranks, what.nranks, &verdict) == xcclSuccess;
        xccl_algo_free(ranks, what.nranks);
        if (good) {
            count_case(verify, generator, &what, &verdict,
                       (double)(xccl_clock_ns() - begin_ns) * 1e-9);
            continue;
        }
        pthread_mutex_lock(&verify->lock);
        verify->failed = 1;
        xccl_option_tell_error(generator->name);
        pthread_mutex_unlock(&verify->lock);
    }
}

static int print_tallies(const struct verify *verify, double seconds)
{
    const struct xccl_generator *generator;
    uint64_t cases = 0, refused = 0;

    printf("%-14s %-14s %7s %7s %5s %5s %9s\n", "# collective", "algorithm", "cases", "refused",
           "slots", "class", "seconds");
    for (int i = 0; (generator = xccl_generator_at(i)); i++) {
        const struct tally *tally = &verify->tallies[i];

        if (tally->cases == 0)
            continue;
        printf("%-14s %-14s %7llu %7llu %5u %5u %9.3f\n", xccl_coll_name(generator->coll),
               generator->name, (unsigned long long)tally->cases,
               (unsigned long long)tally->refused, tally->minslots, tally->class, tally->seconds);
        cases += tally->cases;
        refused += tally->refused;
    }
    printf("%llu proven, %llu refused, in %.1f s\n", (unsigned long long)(cases - refused),
           (unsigned long long)refused, seconds);
    if (cases == 0 && !verify->failed)
        fprintf(stderr, "xccl %s: nothing to prove: no such algorithm supports these ranks\n",
                COMMAND);
    return cases > 0 && refused == 0;
}

static int prove_all(struct verify *verify, int threads)
{
    pthread_t others[THREADS_MAX];
    uint64_t begin_ns = xccl_clock_ns();
    int started = 0;

    pthread_mutex_init(&verify->lock, NULL);
    while (started < threads - 1 && pthread_create(&others[started], NULL, prove_main, verify) == 0)
        started++;
    (void)prove_main(verify);
    while (started > 0)
        pthread_join(others[--started], NULL);
    pthread_mutex_destroy(&verify->lock);
    if (!print_tallies(verify, (double)(xccl_clock_ns() - begin_ns) * 1e-9) || verify->failed)
        return XCCL_EXIT_FAILURE;
    return XCCL_EXIT_OK;
}

/* ---- files ---- */

static char *file_read(const char *path, size_t *bytes_out)
{
    FILE *file = fopen(path, "r");
    size_t used = 0, room = 0;
    int whole = 0;
    char *text = NULL;

    while (file && used < FILE_MAX) {
        char *grown;

        room += 64 << 10;
        grown = xccl_realloc(text, room);
        if (!grown)
            break;
        text = grown;
        used += fread(text + used, 1, room - used, file);
        whole = used < room;
        if (whole)
            break;
    }
    if (!whole || ferror(file)) {
        fprintf(stderr, "xccl %s: cannot read %s: %s\n", COMMAND, path,
                used >= FILE_MAX ? "it is larger than 64 MiB" : strerror(errno));
        xccl_free(text);
        text = NULL;
    }
    if (file)
        fclose(file);
    *bytes_out = used;
    return text;
}

/* 1: all of it is proven. */
static int prove_file(const char *path)
{
    struct xccl_schedule_set set = {0};
    struct xccl_verdict verdict;
    xcclResult_t rc;
    size_t bytes;
    char *text = file_read(path, &bytes);

    if (!text)
        return 0;
    rc = bytes > 0 && text[0] == '{' ? xccl_schedule_read_json(text, bytes, path, &set)
                                     : xccl_schedule_read(text, bytes, path, &set);
    xccl_free(text);
    if (rc == xcclSuccess)
        rc = xccl_prove(set.schedules, set.nranks, &verdict);
    if (rc != xcclSuccess)
        xccl_option_tell_error(COMMAND);
    else if (verdict.kind == XCCL_VERDICT_PROVEN)
        printf("%s: %s of %d ranks is proven: %u slots, class %u\n", path, set.name, set.nranks,
               verdict.minslots, verdict.class);
    else
        printf("%s: REFUSED: %s\n", path, verdict.text);
    xccl_schedule_set_fini(&set);
    return rc == xcclSuccess && verdict.kind == XCCL_VERDICT_PROVEN;
}

/* ---- the command ---- */

static int read_option(int code, struct verify *verify, int64_t *threads)
{
    int64_t sample;

    switch (code) {
    case 'n':
        return xccl_algo_range(COMMAND, optarg, &verify->first, &verify->last);
    case 'c':
        verify->coll = xccl_algo_coll(COMMAND, optarg);
        return verify->coll >= 0;
    case 'd':
        verify->nodes_text = optarg;
        return 1;
    case 'i':
        verify->at.inner = optarg;
        return 1;
    case 'u':
        verify->at.outer = optarg;
        return 1;
    case 'p':
        verify->plugins = optarg;
        return 1;
    case 's':
        if (!xccl_option_int(COMMAND, "--sample", optarg, 1, XCCL_ALGO_RANKS_MAX, &sample))
            return 0;
        verify->sample = (int)sample;
        return 1;
    default:
        return xccl_option_int(COMMAND, "-j", optarg, 1, THREADS_MAX, threads);
    }
}

/* Numbers of ranks, and a layout for all of them. 0 after a message. */
static int set_ranks(struct verify *verify, int **nodes_out)
{
    int given = verify->first > 0, count;

    if (!given) {
        verify->first = 1;
        verify->last = RANKS_USUAL;
    }
    if (verify->nodes_text && verify->first < verify->last && given) {
        (void)xccl_option_usage(COMMAND, "--nodes needs a single number of ranks");
        return 0;
    }
    count = xccl_algo_nodes(COMMAND, verify->nodes_text,
                            verify->nodes_text && !given ? 0 : verify->last, nodes_out);
    if (verify->nodes_text)
        verify->first = count;
    verify->last = count;
    verify->at.nodes = *nodes_out;
    return count;
}

/* A name has no dot or slash, a file has one. */
static int is_file(const char *word)
{
    return strpbrk(word, "./") != NULL;
}

static int run_words(struct verify *verify, int threads, int count, char **words)
{
    int good = 1;

    if (count == 0)
        return xccl_option_usage(COMMAND, "name an algorithm, a file, or --all");
    if (is_file(words[0])) {
        for (int i = 0; i < count; i++)
            good &= prove_file(words[i]);
        return good ? XCCL_EXIT_OK : XCCL_EXIT_FAILURE;
    }
    if (count > 1)
        return xccl_option_usage(COMMAND, "only one name is allowed; %s is one too many", words[1]);
    verify->only = xccl_algo_named(COMMAND, words[0], verify->coll, &verify->param);
    if (!verify->only)
        return XCCL_EXIT_USAGE;
    if (!verify->only->plan && (verify->at.inner || verify->at.outer || verify->nodes_text))
        return xccl_option_usage(COMMAND, "--nodes does not apply to %s; it applies to hier",
                                 words[0]);
    return prove_all(verify, threads);
}

int xccl_algo_verify_main(int argc, char **argv)
{
    static const struct option known[] = {{"all", no_argument, NULL, 'a'},
                                          {"ranks", required_argument, NULL, 'n'},
                                          {"coll", required_argument, NULL, 'c'},
                                          {"nodes", required_argument, NULL, 'd'},
                                          {"inner", required_argument, NULL, 'i'},
                                          {"outer", required_argument, NULL, 'u'},
                                          {"sample", required_argument, NULL, 's'},
                                          {"plugin", required_argument, NULL, 'p'},
                                          {0}};
    static struct verify verify = {.coll = -1};
    int64_t threads = sysconf(_SC_NPROCESSORS_ONLN);
    int all = 0, code, status, *nodes = NULL;

    while ((code = getopt_long(argc, argv, ":n:j:", known, NULL)) != -1) {
        if (code == '?' || code == ':')
            return xccl_option_unknown(COMMAND, code, argc, argv, known);
        if (code == 'a')
            all = 1;
        else if (!read_option(code, &verify, &threads))
            return XCCL_EXIT_USAGE;
    }
    if (threads < 1 || threads > THREADS_MAX)
        threads = threads < 1 ? 1 : THREADS_MAX;
    if (all && optind < argc)
        return xccl_option_usage(COMMAND, "--all takes no name, but %s was given", argv[optind]);
    if (!xccl_algo_plugins(COMMAND, verify.plugins))
        return XCCL_EXIT_FAILURE;
    verify.plugins_only = verify.plugins && !all && optind == argc;
    all |= verify.plugins_only;
    if (!set_ranks(&verify, &nodes))
        return XCCL_EXIT_USAGE;
    status = all ? prove_all(&verify, (int)threads)
                 : run_words(&verify, (int)threads, argc - optind, argv + optind);
    xccl_free(nodes);
    return status;
}
