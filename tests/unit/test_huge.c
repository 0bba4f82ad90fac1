/* SPDX-License-Identifier: BSD-3-Clause */
/* Huge pages for buffers that are used again and again: after how many calls, whose, what is left
 * alone, and what happens where there are none to be had. */
#include "comm/comm_huge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "huge_memory.h"

#define BYTES (4 * XCCL_HUGE_PAGE)
#define ALL   (long)(BYTES >> 10)
#define CALLS (int)XCCL_HUGE_CALLS

static _Atomic uint64_t now_ns = 5 * XCCL_NS_PER_S;

/* With a clock that stands. */
static struct xccl_comm_huge *make_huge(void)
{
    struct xccl_comm_huge *huge = calloc(1, sizeof *huge);

    XT_CHECK(huge != NULL);
    xccl_clock_set_virtual(&now_ns);
    huge->on = 1;
    return huge;
}

static char *map_pages(void)
{
    return huge_map(BYTES, MAP_PRIVATE);
}

static void fill(char *pages)
{
    for (size_t i = 0; i < BYTES; i += 4096)
        pages[i] = (char)(i >> 12 | 1);
}

static void check(const char *pages)
{
    for (size_t i = 0; i < BYTES; i += 4096)
        XT_CHECK_INT(pages[i], (char)(i >> 12 | 1));
}

static long anon_kib(const char *pages)
{
    return huge_kib(pages, "AnonHugePages");
}

/* So many calls with a buffer; in how many of them it was looked at. */
static int use(struct xccl_comm_huge *huge, char *at, size_t bytes, int calls)
{
    int looks = 0;

    for (int i = 0; i < calls; i++) {
        xccl_comm_huge_begin(huge);
        xccl_comm_huge_note(huge, at, bytes);
        looks += huge->due;
        if (huge->due)
            xccl_comm_huge_gather(huge, XCCL_NEVER_NS);
    }
    return looks;
}

static struct xccl_huge_buffer *entry_of(struct xccl_comm_huge *huge, const char *at)
{
    for (int i = 0; i < XCCL_HUGE_BUFFERS; i++) {
        if (huge->buffers[i].at == (uintptr_t)at)
            return &huge->buffers[i];
    }
    return NULL;
}

static int wait_of(struct xccl_comm_huge *huge, const char *at)
{
    return (int)entry_of(huge, at)->wait;
}

static void let_time_pass(void)
{
    now_ns += XCCL_NS_PER_S;
}

XT_TEST(a_buffer_gets_them_after_some_calls_and_keeps_its_data)
{
    struct xccl_comm_huge *huge = make_huge();
    char *pages = map_pages();

    huge_skip_unless_asked();
    fill(pages);
    XT_CHECK_INT(use(huge, pages + 64, BYTES - 64, CALLS - 1), 0);
    XT_CHECK_INT(anon_kib(pages), 0);
    XT_CHECK_INT(use(huge, pages + 64, BYTES - 64, 1), 1);
    XT_CHECK(anon_kib(pages) >= 2048);
    check(pages);
    munmap(pages, BYTES);
    free(huge);
}

/* As malloc does it: the memory goes, and other memory comes to the same address. But a look costs
 * something, so it is not taken more than once a second. */
XT_TEST(memory_that_comes_to_the_same_address_gets_them_too)
{
    struct xccl_comm_huge *huge = make_huge();
    char *pages = map_pages();

    huge_skip_unless_asked();
    fill(pages);
    XT_CHECK_INT(use(huge, pages, BYTES, CALLS), 1);
    XT_CHECK_INT(madvise(pages, BYTES, MADV_DONTNEED), 0);
    fill(pages);
    XT_CHECK_INT(anon_kib(pages), 0);
    XT_CHECK_INT(use(huge, pages, BYTES, 2 * CALLS), 0);
    let_time_pass();
    XT_CHECK_INT(use(huge, pages, BYTES, wait_of(huge, pages)), 1);
    XT_CHECK(anon_kib(pages) >= 2048);
    check(pages);
    munmap(pages, BYTES);
    free(huge);
}

XT_TEST(a_call_counts_once_for_each_of_its_buffers)
{
    struct xccl_comm_huge *huge = make_huge();
    char *pages = map_pages();

    for (int call = 0; call < CALLS; call++) {
        XT_CHECK(!huge->due);
        xccl_comm_huge_begin(huge);
        for (int k = 0; k < 3; k++)
            xccl_comm_huge_note(huge, pages, BYTES);
        xccl_comm_huge_note(huge, pages + BYTES / 2, BYTES / 2);
    }
    XT_CHECK(huge->due);
    XT_CHECK_INT(entry_of(huge, pages)->calls, CALLS);
    XT_CHECK_INT(entry_of(huge, pages + BYTES / 2)->calls, CALLS);
    xccl_comm_huge_begin(huge);
    XT_CHECK(!huge->due); /* a call that does not use it leaves it alone */
    xccl_comm_huge_gather(huge, XCCL_NEVER_NS);
    XT_CHECK_INT(entry_of(huge, pages)->calls, CALLS);
    munmap(pages, BYTES);
    free(huge);
}

/* Of a larger buffer that was there before only this one's memory is looked at. */
XT_TEST(only_what_the_call_uses_is_looked_at)
{
    struct xccl_comm_huge *huge = make_huge();
    char *pages = map_pages();

    huge_skip_unless_asked();
    fill(pages);
    (void)use(huge, pages, BYTES, CALLS - 1);
    XT_CHECK_INT(munmap(pages + BYTES / 2, BYTES / 2), 0);
    XT_CHECK_INT(use(huge, pages, BYTES / 2, 1), 1);
    XT_CHECK(anon_kib(pages) >= 2048);
    xccl_comm_huge_begin(huge);
    xccl_comm_huge_note(huge, pages, BYTES / 4);
    xccl_comm_huge_note(huge, pages, BYTES / 2);
    xccl_comm_huge_note(huge, pages, BYTES / 4);
    XT_CHECK(entry_of(huge, pages)->bytes == BYTES / 2); /* the most of one call */
    munmap(pages, BYTES / 2);
    free(huge);
}

/* As programs do that go from size to size. */
XT_TEST(more_of_a_buffer_than_before_gets_them_at_once)
{
    struct xccl_comm_huge *huge = make_huge();
    char *pages = map_pages();

    huge_skip_unless_asked();
    fill(pages);
    XT_CHECK_INT(use(huge, pages, BYTES / 4, CALLS), 1);
    XT_CHECK_INT(use(huge, pages, BYTES / 2, CALLS), 1);
    XT_CHECK(anon_kib(pages) >= 2048 && anon_kib(pages) <= ALL / 2);
    XT_CHECK_INT(use(huge, pages, BYTES / 4, CALLS), 0);
    XT_CHECK_INT(use(huge, pages, BYTES, 1), 1);
    XT_CHECK(anon_kib(pages) >= ALL / 2); /* some page may be in use for a moment */
    munmap(pages, BYTES);
    free(huge);
}

/* In whatever order: a call with less of a buffer does not hide one with more. */
XT_TEST(calls_that_use_less_now_and_then_change_nothing)
{
    struct xccl_comm_huge *huge = make_huge();
    char *pages = map_pages();

    huge_skip_unless_asked();
    fill(pages);
    for (int call = 0; call < 3 * CALLS; call++)
        (void)use(huge, pages, call % 2 ? BYTES / 4 : BYTES, 1);
    XT_CHECK(entry_of(huge, pages)->looked_bytes == BYTES);
    XT_CHECK(anon_kib(pages) >= ALL / 2);
    munmap(pages, BYTES);
    free(huge);
}

/* Many may lie in one page, and each look costs something. */
XT_TEST(few_buffers_a_second_are_looked_at_again)
{
    struct xccl_comm_huge *huge = make_huge();
    char *pages = map_pages();
    size_t part = 64 << 10;
    int calls = (int)(XCCL_HUGE_USED / part), looks[32] = {0};

    huge_skip_unless_asked();
    fill(pages);
    for (size_t i = 0; i < 32; i++)
        XT_CHECK_INT(use(huge, pages + i * part, part, calls), 1);
    for (int second = 1; second <= 10; second++) { /* each in its turn */
        let_time_pass();
        for (size_t i = 0; i < 32; i++)
            looks[i] += use(huge, pages + i * part, part, 64);
    }
    for (size_t i = 0; i < 32; i++)
        XT_CHECK_INT(looks[i], 10 / (1 + 32 / (int)XCCL_HUGE_AGAIN));
    check(pages);
    munmap(pages, BYTES);
    free(huge);
}

XT_TEST(the_programs_no_is_respected_and_it_is_asked_less_and_less_often)
{
    struct xccl_comm_huge *huge = make_huge();
    char *pages = map_pages();
    uint32_t wait = XCCL_HUGE_CALLS;

    huge_skip_unless_asked();
    XT_CHECK_INT(madvise(pages, BYTES, MADV_NOHUGEPAGE), 0);
    fill(pages);
    XT_CHECK_INT(use(huge, pages, BYTES, (int)wait), 1);
    while (wait < XCCL_HUGE_CALLS_MAX) {
        wait *= 2;
        XT_CHECK_INT(entry_of(huge, pages)->wait, wait);
        let_time_pass();
        XT_CHECK_INT(use(huge, pages, BYTES, (int)wait - 1), 0);
        XT_CHECK_INT(use(huge, pages, BYTES, 1), 1);
    }
    XT_CHECK_INT(entry_of(huge, pages)->wait, XCCL_HUGE_CALLS_MAX);
    XT_CHECK_INT(anon_kib(pages), 0);
    check(pages);
    munmap(pages, BYTES);
    free(huge);
}

XT_TEST(memory_that_is_gone_is_no_error)
{
    struct xccl_comm_huge *huge = make_huge();
    char *pages = map_pages();

    munmap(pages, BYTES);
    XT_CHECK_INT(use(huge, pages, BYTES, CALLS), 1);
    XT_CHECK_INT(entry_of(huge, pages)->wait, 2 * CALLS);
    for (int i = 0; i < 2; i++) {
        size_t done = 0, bytes = i ? BYTES : 0;

        XT_CHECK_INT(
            xccl_huge_pages_gather(i ? (void *)~(uintptr_t)4095 : NULL, bytes, 1, &done, 0), 1);
        XT_CHECK(done == bytes);
    }
    free(huge);
}

/* More than there is room for: that which rested longest makes room. */
XT_TEST(a_new_buffer_takes_the_place_of_the_oldest)
{
    struct xccl_comm_huge *huge = make_huge();
    char *base = (char *)((uintptr_t)1 << 40); /* nothing is there */

    for (int i = 0; i < XCCL_HUGE_BUFFERS; i++)
        (void)use(huge, base + (size_t)i * BYTES, BYTES, 1);
    (void)use(huge, base, BYTES, 1);
    for (int i = XCCL_HUGE_BUFFERS; i < XCCL_HUGE_BUFFERS + 3; i++)
        (void)use(huge, base + (size_t)i * BYTES, BYTES, 1);
    XT_CHECK_INT(entry_of(huge, base)->calls, 2);
    for (int i = 1; i < XCCL_HUGE_BUFFERS + 3; i++)
        XT_CHECK_INT(entry_of(huge, base + (size_t)i * BYTES) != NULL, i > 3);
    (void)use(huge, base + BYTES, BYTES, 1);
    XT_CHECK_INT(entry_of(huge, base + BYTES)->calls, 1); /* it begins anew */
    free(huge);
}

/* The time is up at once: a call looks at one part. */
static int use_briefly(struct xccl_comm_huge *huge, char *at, size_t bytes)
{
    int is_due;

    xccl_comm_huge_begin(huge);
    xccl_comm_huge_note(huge, at, bytes);
    is_due = huge->due;
    if (is_due)
        xccl_comm_huge_gather(huge, 0);
    return is_due;
}

static void look_by_parts(int is_whole)
{
    struct xccl_comm_huge *huge = make_huge();
    size_t bytes = 3 * BYTES;
    char *pages = huge_map(bytes, MAP_PRIVATE);

    huge_skip_unless_asked();
    memset(pages, 3, bytes);
    XT_CHECK(madvise(pages, BYTES, MADV_NOHUGEPAGE) == 0);
    XT_CHECK_INT(use(huge, pages, bytes, CALLS - 1), 0);
    for (size_t part = 1; part <= 2; part++) {
        XT_CHECK_INT(use_briefly(huge, pages, bytes), 1);
        XT_CHECK(entry_of(huge, pages)->done == part * BYTES);
        XT_CHECK_INT(entry_of(huge, pages)->wait, CALLS);
    }
    XT_CHECK(anon_kib(pages + BYTES) >= 2048);
    if (is_whole)
        XT_CHECK_INT(use_briefly(huge, pages, bytes), 1);
    else /* less than was looked at already */
        XT_CHECK_INT(use_briefly(huge, pages, XCCL_HUGE_PAGE), 1);
    XT_CHECK_INT(entry_of(huge, pages)->wait, 2 * CALLS); /* for the first part */
    XT_CHECK_INT(use_briefly(huge, pages, bytes), 0);
    XT_CHECK(entry_of(huge, pages)->done == 0 && !entry_of(huge, pages)->missed);
    munmap(pages, bytes);
    free(huge);
}

/* One that takes long goes on in the next calls, from where it was, and counts at its end. */
XT_TEST(a_look_goes_on_with_the_next_call)
{
    look_by_parts(1);
}

XT_TEST(a_look_is_at_its_end_when_calls_use_no_more)
{
    look_by_parts(0);
}

XT_TEST(several_buffers_of_a_call_share_its_time)
{
    struct xccl_comm_huge *huge = make_huge();
    char *pages[2] = {map_pages(), map_pages()};

    huge_skip_unless_asked();
    fill(pages[0]);
    fill(pages[1]);
    for (int call = 0; call < CALLS + 1; call++) {
        xccl_comm_huge_begin(huge);
        xccl_comm_huge_note(huge, pages[0], BYTES);
        xccl_comm_huge_note(huge, pages[1], BYTES);
        if (huge->due)
            xccl_comm_huge_gather(huge, 0);
        for (int k = 0; k < 2; k++)
            XT_CHECK_INT(anon_kib(pages[k]) > 0, call >= CALLS - 1 + k);
    }
    munmap(pages[0], BYTES);
    munmap(pages[1], BYTES);
    free(huge);
}

XT_TEST(where_they_are_off_nothing_is_ever_due)
{
    struct xccl_comm_huge *huge = make_huge();
    char *pages = map_pages();

    huge->on = 0;
    XT_CHECK_INT(use(huge, pages, BYTES, 100 * CALLS), 0);
    XT_CHECK(!entry_of(huge, pages));
    munmap(pages, BYTES);
    free(huge);
}

XT_TEST(a_process_that_wants_none_has_them_off)
{
    struct xccl_comm_huge huge = {.on = 0};
    int status = 0;
    pid_t child;

    xt_setenv("XCCL_HUGE_PAGES", "1");
    xccl_comm_huge_init(&huge);
    XT_CHECK_INT(huge.on, xccl_huge_pages_wanted(XCCL_HUGE_PAGES_FOLDER));
    child = fork();
    if (child == 0) {
        if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0)
            _exit(2);
        xccl_comm_huge_init(&huge);
        _exit(huge.on);
    }
    XT_CHECK(child > 0 && waitpid(child, &status, 0) == child);
    XT_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void write_word(const char *folder, const char *name, const char *text)
{
    char path[300];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "w");
    XT_CHECK(file != NULL);
    fprintf(file, "%s\n", text);
    fclose(file);
}

XT_TEST(the_administrators_words_count)
{
    static const struct {
        const char *all, *own; /* own NULL: before Linux 6.8 */
        int wanted;
    } rows[] = {{"always madvise [never]", NULL, 0},
                {"always [madvise] never", NULL, 1},
                {"[always] madvise never", NULL, 1},
                {"always madvise [never]", "always [inherit] madvise never", 0},
                {"always [madvise] never", "always [inherit] madvise never", 1},
                {"[always] madvise never", "always inherit madvise [never]", 0},
                {"always madvise [never]", "always inherit [madvise] never", 1}};
    const char *folder = xt_tmpdir();
    char own[256];

    XT_CHECK_INT(xccl_huge_pages_wanted(folder), 0); /* no files */
    snprintf(own, sizeof own, "%s/hugepages-2048kB", folder);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        write_word(folder, "enabled", rows[i].all);
        if (rows[i].own) {
            (void)mkdir(own, 0700);
            write_word(own, "enabled", rows[i].own);
        }
        XT_CHECK_INT(xccl_huge_pages_wanted(folder), rows[i].wanted);
    }
}

XT_TEST(the_setting_turns_them_off)
{
    struct xccl_comm_huge huge = {.on = 1};

    xt_setenv("XCCL_HUGE_PAGES", "0");
    xccl_comm_huge_init(&huge);
    XT_CHECK(!huge.on);
}

/* ---- what is left alone ---- */

static int gather_once(char *pages)
{
    size_t done = 0;
    int all = xccl_huge_pages_gather(pages, BYTES, 1, &done, XCCL_NEVER_NS);

    XT_CHECK(done == BYTES);
    return all;
}

/* Some page may be in use for a moment. */
static int gather(char *pages)
{
    int all = gather_once(pages);

    for (int i = 0; i < 20 && !all; i++) {
        usleep(1000);
        all = gather_once(pages);
    }
    return all;
}

/* Until it is: some page may be in use for a moment. */
static int is_gathered(char *pages, size_t at, size_t bytes, size_t edge, long kib)
{
    for (int i = 0; i < 20 && anon_kib(pages) != kib; i++) {
        size_t done = 0;

        usleep(i ? 1000 : 0);
        XT_CHECK_INT(xccl_huge_pages_gather(pages + at, bytes, edge, &done, XCCL_NEVER_NS), 1);
        XT_CHECK(done == bytes);
    }
    return anon_kib(pages) == kib;
}

/* As malloc gives it, with other memory of the program around. */
XT_TEST(a_buffer_gets_one_that_has_enough_of_it)
{
    char *pages = map_pages();
    size_t half = XCCL_HUGE_PAGE / 2, less = half - 64, done = 0;

    huge_skip_unless_asked();
    fill(pages);
    for (size_t i = 0; i < 3; i++) {
        XT_CHECK_INT(xccl_huge_pages_gather(pages + i * half, less, half, &done, 0), 1);
        XT_CHECK(done == less);
        done = 0;
    }
    XT_CHECK_INT(xccl_huge_pages_gather(pages + 2 * half - less, 2 * less, half, &done, 0), 1);
    XT_CHECK_INT(anon_kib(pages), 0);
    XT_CHECK(is_gathered(pages, 4096 + 16, 2 * half, half, 2048)); /* the first one */
    XT_CHECK(is_gathered(pages, 2 * half + 4096, half, half, 4096)); /* inside the next */
    XT_CHECK(is_gathered(pages, 5 * half, 2 * half, half, ALL)); /* one half of each of two */
    check(pages);
    munmap(pages, BYTES);
}

/* The less a call uses of it, the more calls there are before it is worth while. */
XT_TEST(smaller_buffers_get_them_after_more_calls)
{
    static const size_t sizes[] = {64 << 10, 128 << 10, 512 << 10, 1 << 20, 2 << 20, 8 << 20};
    struct xccl_comm_huge *huge = make_huge();
    char *pages = map_pages();

    huge_skip_unless_asked();
    fill(pages);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        /* All of a small one lies on both sides of the end of a page. */
        char *at = sizes[i] < BYTES / 2 ? pages + BYTES / 2 - sizes[i] / 2 : pages;
        int calls = (int)(XCCL_HUGE_USED / sizes[i]) > CALLS ? (int)(XCCL_HUGE_USED / sizes[i])
                                                             : CALLS;

        XT_CHECK_INT(madvise(pages, BYTES, MADV_DONTNEED), 0);
        fill(pages);
        XT_CHECK_INT(use(huge, at, sizes[i], calls - 1), 0);
        XT_CHECK_INT(anon_kib(pages), 0);
        XT_CHECK_INT(use(huge, at, sizes[i], 1), 1);
        XT_CHECK(anon_kib(pages) >= 2048);
    }
    check(pages);
    munmap(pages, BYTES);
    free(huge);
}

/* When it was used for long enough, also the part of a buffer that is but a little of one. */
XT_TEST(the_last_part_of_a_buffer_comes_later)
{
    struct xccl_comm_huge *huge = make_huge();
    char *pages = map_pages();
    size_t part = XCCL_HUGE_PAGE / 8;
    int calls = CALLS;

    huge_skip_unless_asked();
    fill(pages);
    XT_CHECK_INT(use(huge, pages, XCCL_HUGE_PAGE + part, CALLS), 1);
    XT_CHECK(anon_kib(pages) <= 2048);
    while (calls < (int)(XCCL_HUGE_USED / 2 / part)) {
        int more = wait_of(huge, pages);

        XT_CHECK(anon_kib(pages) <= 2048);
        let_time_pass();
        XT_CHECK_INT(use(huge, pages, XCCL_HUGE_PAGE + part, more), 1);
        calls += more;
    }
    for (int i = 0; i < 20 && anon_kib(pages) < 4096; i++) { /* one may be in use for a moment */
        let_time_pass();
        (void)use(huge, pages, XCCL_HUGE_PAGE + part, wait_of(huge, pages));
    }
    XT_CHECK_INT(anon_kib(pages), 4096);
    munmap(pages, BYTES);
    free(huge);
}

/* Nor is that a reason to look less often. */
XT_TEST(where_memory_beside_a_buffer_is_not_there_it_stays_away)
{
    struct xccl_comm_huge *huge = make_huge();
    char *pages = map_pages(), *at = pages + 8192;

    huge_skip_unless_asked();
    fill(pages);
    XT_CHECK_INT(madvise(pages, 4096, MADV_DONTNEED), 0);
    XT_CHECK_INT(munmap(pages + BYTES - 4096, 4096), 0);
    for (int i = 0; i < 2; i++) { /* a page that is away, one that is not mapped */
        XT_CHECK_INT(use(huge, at, XCCL_HUGE_PAGE, CALLS), 1);
        XT_CHECK_INT(entry_of(huge, at)->wait, CALLS);
        at = pages + BYTES - 8192 - XCCL_HUGE_PAGE;
    }
    XT_CHECK_INT(anon_kib(pages), 0);
    XT_CHECK_INT(huge_kib(pages, "Rss"), ALL - 8);
    munmap(pages, BYTES);
    free(huge);
}

XT_TEST(no_memory_is_taken_that_was_not_there)
{
    char *pages = map_pages();

    huge_skip_unless_asked();
    fill(pages);
    XT_CHECK_INT(madvise(pages + XCCL_HUGE_PAGE + 40960, 4096, MADV_DONTNEED), 0);
    XT_CHECK(!gather(pages));
    XT_CHECK_INT(huge_kib(pages, "Rss"), ALL - 4);
    XT_CHECK_INT(anon_kib(pages), ALL - 2048); /* those behind, too */
    pages[XCCL_HUGE_PAGE + 40960] = (char)((XCCL_HUGE_PAGE + 40960) >> 12 | 1);
    check(pages);
    XT_CHECK(gather(pages));
    XT_CHECK_INT(anon_kib(pages), ALL);
    munmap(pages, BYTES);
}

XT_TEST(memory_that_others_share_is_left_as_it_is)
{
    char *pages = huge_map(BYTES, MAP_SHARED);

    huge_skip_unless_asked();
    fill(pages);
    XT_CHECK(!gather(pages));
    XT_CHECK_INT(huge_kib(pages, "ShmemPmdMapped"), 0);
    check(pages);
    munmap(pages, BYTES);
}

XT_TEST(pages_that_a_child_has_are_not_copied)
{
    char *pages = map_pages();
    int ends[2], status = 0;
    char word = 0;
    pid_t child;

    huge_skip_unless_asked();
    fill(pages);
    XT_CHECK_INT(pipe(ends), 0);
    child = fork();
    if (child == 0) {
        close(ends[1]);
        _exit(read(ends[0], &word, 1) != 0); /* until the parent closes its end */
    }
    XT_CHECK(child > 0);
    pages[0] = 1; /* one of them is the parent's alone */
    XT_CHECK(!gather(pages));
    XT_CHECK_INT(anon_kib(pages), 0);
    close(ends[0]);
    close(ends[1]);
    XT_CHECK(waitpid(child, &status, 0) == child && status == 0);
    XT_CHECK(gather(pages));
    XT_CHECK_INT(anon_kib(pages), ALL);
    check(pages);
    munmap(pages, BYTES);
}
