/* SPDX-License-Identifier: BSD-3-Clause */
/* Huge pages for buffers that are used again and again: after how many calls, whose, and what
 * happens where there are none to be had. */
#include "comm/comm_huge.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/os.h"
#include "huge_pages.h"
#include "xt.h"

#define BYTES (4 * XCCL_HUGE_PAGE)
#define CALLS (int)XCCL_HUGE_CALLS

static struct xccl_comm_huge *make_huge(void)
{
    struct xccl_comm_huge *huge = calloc(1, sizeof *huge);

    XT_CHECK(huge != NULL);
    huge->on = 1;
    return huge;
}

static char *map_pages(size_t bytes)
{
    char *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    XT_CHECK(pages != MAP_FAILED);
    return pages;
}

static void fill(char *pages, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 4096)
        pages[i] = (char)(i >> 12);
}

static void check(const char *pages, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 4096)
        XT_CHECK_INT(pages[i], (char)(i >> 12));
}

static void skip_without_huge_pages(void)
{
    char *probe = map_pages(BYTES);
    int made;

    fill(probe, BYTES);
    made = madvise(probe, BYTES, COLLAPSE) == 0;
    munmap(probe, BYTES);
    if (!made)
        XT_SKIP("this kernel makes no huge pages when it is asked");
}

/* So many calls with a buffer; what make() told, summed up. */
static int use(struct xccl_comm_huge *huge, char *at, size_t bytes, int calls)
{
    int first = 0;

    for (int i = 0; i < calls; i++) {
        xccl_comm_huge_note(huge, at, bytes);
        first += huge->due && xccl_comm_huge_make(huge);
    }
    return first;
}

static struct xccl_huge_buffer *entry_of(struct xccl_comm_huge *huge, const char *at)
{
    for (int i = 0; i < XCCL_HUGE_BUFFERS; i++) {
        if (huge->buffers[i].at == (uintptr_t)at)
            return &huge->buffers[i];
    }
    return NULL;
}

XT_TEST(a_buffer_gets_them_after_some_calls_and_keeps_its_data)
{
    struct xccl_comm_huge *huge = make_huge();
    char *pages = map_pages(BYTES);

    skip_without_huge_pages();
    fill(pages, BYTES);
    XT_CHECK_INT(use(huge, pages + 64, BYTES - 64, CALLS - 1), 0);
    XT_CHECK(!huge->due);
    XT_CHECK_INT(huge_kib(pages, "AnonHugePages"), 0);
    XT_CHECK_INT(use(huge, pages + 64, BYTES - 64, 1), 1);
    XT_CHECK(!huge->due);
    XT_CHECK(huge_kib(pages, "AnonHugePages") >= 2048);
    check(pages, BYTES);
    XT_CHECK_INT(use(huge, pages + 64, BYTES - 64, 3 * CALLS), 0); /* only the first time counts */
    munmap(pages, BYTES);
    free(huge);
}

/* As malloc does it: the memory goes, and other memory comes to the same address. */
XT_TEST(memory_that_comes_to_the_same_address_gets_them_too)
{
    struct xccl_comm_huge *huge = make_huge();
    char *pages = map_pages(BYTES);

    skip_without_huge_pages();
    fill(pages, BYTES);
    (void)use(huge, pages, BYTES, CALLS);
    XT_CHECK_INT(madvise(pages, BYTES, MADV_DONTNEED), 0);
    fill(pages, BYTES);
    XT_CHECK_INT(huge_kib(pages, "AnonHugePages"), 0);
    XT_CHECK_INT(use(huge, pages, BYTES, CALLS), 0);
    XT_CHECK(huge_kib(pages, "AnonHugePages") >= 2048);
    check(pages, BYTES);
    munmap(pages, BYTES);
    free(huge);
}

XT_TEST(only_what_calls_have_used_since_is_looked_at)
{
    struct xccl_comm_huge *huge = make_huge();
    char *pages = map_pages(BYTES);

    xccl_comm_huge_note(huge, pages, BYTES / 2);
    xccl_comm_huge_note(huge, pages, BYTES);
    xccl_comm_huge_note(huge, pages, BYTES / 4);
    XT_CHECK(entry_of(huge, pages)->bytes == BYTES);
    (void)use(huge, pages, BYTES, CALLS - 3);
    XT_CHECK(entry_of(huge, pages)->bytes == 0);
    xccl_comm_huge_note(huge, pages, BYTES / 4);
    XT_CHECK(entry_of(huge, pages)->bytes == BYTES / 4);
    munmap(pages, BYTES);
    free(huge);
}

XT_TEST(the_programs_no_is_respected_and_asked_for_less_and_less_often)
{
    struct xccl_comm_huge *huge = make_huge();
    char *pages = map_pages(BYTES);
    uint32_t wait = XCCL_HUGE_CALLS;

    XT_CHECK_INT(madvise(pages, BYTES, MADV_NOHUGEPAGE), 0);
    fill(pages, BYTES);
    while (wait < XCCL_HUGE_CALLS_MAX) {
        XT_CHECK_INT(use(huge, pages, BYTES, (int)wait), 0);
        wait *= 2;
        XT_CHECK_INT(entry_of(huge, pages)->wait, wait);
    }
    XT_CHECK_INT(use(huge, pages, BYTES, (int)wait), 0);
    XT_CHECK_INT(entry_of(huge, pages)->wait, XCCL_HUGE_CALLS_MAX);
    XT_CHECK_INT(huge_kib(pages, "AnonHugePages"), 0);
    check(pages, BYTES);
    munmap(pages, BYTES);
    free(huge);
}

XT_TEST(memory_that_is_gone_is_no_error)
{
    struct xccl_comm_huge *huge = make_huge();
    char *pages = map_pages(BYTES);

    munmap(pages, BYTES);
    XT_CHECK_INT(use(huge, pages, BYTES, CALLS), 0);
    XT_CHECK_INT(entry_of(huge, pages)->wait, 2 * CALLS);
    free(huge);
}

XT_TEST(buffers_that_share_a_place_begin_anew)
{
    struct xccl_comm_huge *huge = make_huge();
    char *base = (char *)((uintptr_t)1 << 40), *other = base; /* nothing is there */

    xccl_comm_huge_note(huge, base, BYTES);
    do {
        other += 4096;
        xccl_comm_huge_note(huge, other, BYTES);
    } while (entry_of(huge, base));
    XT_CHECK_INT(entry_of(huge, other)->calls, 1);
    for (int i = 0; i < 4 * CALLS; i++) {
        xccl_comm_huge_note(huge, i % 2 ? base : other, BYTES);
        XT_CHECK(!huge->due);
    }
    free(huge);
}

XT_TEST(where_they_are_off_nothing_is_ever_due)
{
    struct xccl_comm_huge *huge = make_huge();
    char *pages = map_pages(BYTES);

    huge->on = 0;
    XT_CHECK_INT(use(huge, pages, BYTES, 100 * CALLS), 0);
    XT_CHECK(!huge->due && !entry_of(huge, pages));
    munmap(pages, BYTES);
    free(huge);
}

XT_TEST(a_process_that_wants_none_has_them_off)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        struct xccl_comm_huge huge = {.on = 1};

        if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0)
            _exit(2);
        xccl_comm_huge_init(&huge);
        _exit(huge.on);
    }
    XT_CHECK(child > 0 && waitpid(child, &status, 0) == child);
    XT_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

XT_TEST(the_setting_turns_them_off)
{
    struct xccl_comm_huge huge = {.on = 1};

    xt_setenv("XCCL_HUGE_PAGES", "0");
    xccl_comm_huge_init(&huge);
    XT_CHECK(!huge.on);
}
