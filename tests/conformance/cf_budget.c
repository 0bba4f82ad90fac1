/* SPDX-License-Identifier: BSD-3-Clause */
/* A run that must end in time (--within): which cases come first, how long each may take, and which
 * have to be left out. A case is only called failed for being slow where it had the time that every
 * case of such a run has; one that had less because the end was near is left out instead.
 *
 * Thread: the runner's, the only one of its process. */
#include "cf_run.h"

/* Of a case in such a run. Waits in it end after three quarters of that, which is more than the 5 s
 * that rule 11 leaves to a plugin. */
#define LIMITED_MS (8000ull * CF_SLOW)
#define START_MS   (100ull * CF_SLOW) /* with less a case is not begun */
#define SPARE_MS   1000ull /* for the last case to be ended and the report to be written */

uint64_t cf_budget_end(const struct xccl_conformance_options *options)
{
    uint64_t spare_ms = options->within_ms / 8;

    if (!options->within_ms)
        return UINT64_MAX;
    spare_ms = spare_ms < SPARE_MS ? spare_ms : SPARE_MS;
    return cf_now() + (options->within_ms - spare_ms) * CF_MS;
}

uint64_t cf_budget_left_ms(uint64_t end_ns)
{
    uint64_t now_ns = cf_now(), left_ms;

    if (end_ns == UINT64_MAX)
        return 0;
    left_ms = end_ns > now_ns ? (end_ns - now_ns) / CF_MS : 0;
    return left_ms ? left_ms : 1;
}

int cf_budget_give(uint64_t end_ns, const struct xccl_conformance_options *options,
                   struct cf_task *task)
{
    uint64_t left_ms = cf_budget_left_ms(end_ns);
    uint64_t usual_ms = options->timeout_ms ? options->timeout_ms : LIMITED_MS;

    task->give_ms = options->timeout_ms;
    if (!left_ms)
        return 1;
    if (left_ms < START_MS) {
        task->verdict = CF_LEFT_OUT;
        return 0;
    }
    task->limited = 1;
    task->squeezed = left_ms < usual_ms;
    task->cut = task->squeezed || !options->timeout_ms;
    task->give_ms = task->squeezed ? left_ms : usual_ms;
    return 1;
}

/* ---- the order ---- */

/* Subjects by what they tell about a plugin that has not been tried before. */
static const struct cf_case *const subjects[] = {
    cf_cases_device, cf_cases_life,     cf_cases_sizes,  cf_cases_tags,
    cf_cases_close,  cf_cases_requests, cf_cases_peer,   cf_cases_process,
    cf_cases_memory, cf_cases_threads,  cf_cases_extras, cf_cases_onesided,
};
#define SUBJECTS ((int)(sizeof(subjects) / sizeof(subjects[0])))

static int subject_of(const struct cf_case *test)
{
    for (int i = 0; i < SUBJECTS; i++) {
        for (const struct cf_case *at = subjects[i]; at->name; at++) {
            if (at == test)
                return i;
        }
    }
    return SUBJECTS;
}

/* Each case once before any case twice, between two processes if it can be: that is how the plugin
 * will be used. Then the other forms, and then what takes long. */
enum round { FIRST, OTHER_FORMS, LONG, ROUNDS };

static unsigned first_form(const struct cf_case *test, unsigned seen)
{
    static const unsigned forms[] = {CF_PROCESSES, CF_SINGLE, CF_THREADS, CF_NAMESPACES};

    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        if (test->forms & seen & forms[i])
            return forms[i];
    }
    return 0; /* CF_REMOTE: one form a case */
}

static enum round round_of(const struct cf_task *task, unsigned seen)
{
    unsigned first = first_form(task->test, seen);

    if (task->test->flags & CF_LONG)
        return LONG;
    return first && task->form != first ? OTHER_FORMS : FIRST;
}

void cf_budget_order(struct cf_task *tasks, struct cf_task *spare, int count)
{
    unsigned seen = 0;
    int placed = 0;

    for (int i = 0; i < count; i++) {
        spare[i] = tasks[i];
        seen |= tasks[i].form;
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int subject = 0; subject <= SUBJECTS; subject++) {
            for (int i = 0; i < count; i++) {
                if ((int)round_of(&spare[i], seen) == round && subject_of(spare[i].test) == subject)
                    tasks[placed++] = spare[i];
            }
        }
    }
}
