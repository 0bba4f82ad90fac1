/* SPDX-License-Identifier: BSD-3-Clause */
/* Walks through all states of a model in depth, each of them once: what every thread may do next is
 * tried, in every order that litmus.h allows, until all of them have ended or one has read what it
 * must not. Thread: one a model. */
#include "litmus.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pending {
    uint8_t block, at, width, value[LITMUS_WIDE];
};

/* Compared as bytes: no padding, and what is unused is zero. */
struct state {
    uint64_t done[LITMUS_THREADS]; /* by operation */
    uint8_t memory[LITMUS_CELLS];
    struct pending pending[LITMUS_PENDING];
    uint64_t npending;
};

struct search {
    const struct litmus *model;
    struct state *known;
    bool *is_known;
    uint64_t room, count; /* room: a power of 2 */
    char wrong[160];
};

struct litmus_op *litmus_add(struct litmus *model, int thread, struct litmus_op op)
{
    struct litmus_op *added = &model->ops[thread][model->nops[thread]++];

    if (model->nops[thread] > LITMUS_OPS || op.at + op.width > LITMUS_CELLS)
        abort();
    *added = op;
    return added;
}

/* --- states that were seen --- */

static uint64_t hash_of(const struct state *state)
{
    const unsigned char *bytes = (const unsigned char *)state;
    uint64_t hash = 0xcbf29ce484222325u;

    for (size_t i = 0; i < sizeof *state; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash ^ hash >> 29;
}

static bool add(struct search *search, const struct state *state);

static void grow(struct search *search)
{
    struct search larger = *search;

    larger.room = search->room ? 2 * search->room : 1024;
    larger.count = 0;
    larger.known = calloc(larger.room, sizeof *larger.known);
    larger.is_known = calloc(larger.room, sizeof *larger.is_known);
    if (!larger.known || !larger.is_known)
        abort();
    for (uint64_t i = 0; i < search->room; i++)
        if (search->is_known[i])
            add(&larger, &search->known[i]);
    free(search->known);
    free(search->is_known);
    *search = larger;
}

/* true: it is new. */
static bool add(struct search *search, const struct state *state)
{
    uint64_t at;

    if (2 * search->count >= search->room)
        grow(search);
    at = hash_of(state) & (search->room - 1);
    for (; search->is_known[at]; at = (at + 1) & (search->room - 1))
        if (memcmp(&search->known[at], state, sizeof *state) == 0)
            return false;
    search->is_known[at] = true;
    search->known[at] = *state;
    search->count++;
    return true;
}

/* --- what may be done next --- */

static bool share_cells(int at_a, int width_a, int at_b, int width_b)
{
    return at_a < at_b + width_b && at_b < at_a + width_a;
}

/* May the later one not be done before the former? */
static bool is_ordered(const struct litmus_op *former, const struct litmus_op *later)
{
    if (former->kind >= LITMUS_BARRIER || later->kind >= LITMUS_BARRIER)
        return true;
    if ((former->order & LITMUS_ACQUIRE) || (later->order & LITMUS_RELEASE))
        return true;
    /* Whether a store is done at all depends on the condition; a load may be done ahead of it. */
    if (former->kind == LITMUS_AWAIT && later->kind == LITMUS_STORE)
        return true;
    return share_cells(former->at, former->width, later->at, later->width);
}

static bool is_ready(const struct litmus *model, const struct state *state, int thread, int op)
{
    for (int i = 0; i < op; i++)
        if (!(state->done[thread] >> i & 1) &&
            is_ordered(&model->ops[thread][i], &model->ops[thread][op]))
            return false;
    return true;
}

static bool has_pending(const struct state *state, int block)
{
    for (uint64_t i = 0; i < state->npending; i++)
        if (state->pending[i].block == block)
            return true;
    return false;
}

/* A cell as a block sees it: its own latest store, or memory. */
static uint8_t cell_of(const struct state *state, int block, int cell)
{
    for (uint64_t i = state->npending; i-- > 0;) {
        const struct pending *one = &state->pending[i];

        if (one->block == block && share_cells(one->at, one->width, cell, 1))
            return one->value[cell - one->at];
    }
    return state->memory[cell];
}

static void store(const struct litmus *model, struct state *state, int thread,
                  const struct litmus_op *op)
{
    struct pending *one = &state->pending[state->npending];

    if (op->order & LITMUS_RELEASE) {
        memcpy(state->memory + op->at, op->value, op->width);
        return;
    }
    if (state->npending++ == LITMUS_PENDING)
        abort();
    one->block = (uint8_t)model->block[thread];
    one->at = op->at;
    one->width = op->width;
    memcpy(one->value, op->value, op->width);
}

/* false: the condition does not hold yet. A wrong value ends the search. */
static bool load(struct search *search, const struct state *state, int thread, int number)
{
    const struct litmus_op *op = &search->model->ops[thread][number];
    int block = search->model->block[thread];

    if (op->kind == LITMUS_AWAIT) {
        uint8_t have = cell_of(state, block, op->at + op->flag), want = op->value[op->flag];

        if (op->at_least ? have < want : have != want)
            return false;
    }
    for (int i = 0; i < op->width; i++) {
        uint8_t have = cell_of(state, block, op->at + i);

        if (have != op->value[i] && !(op->at_least && i == op->flag))
            snprintf(search->wrong, sizeof search->wrong,
                     "thread %d, operation %d: cell %d is %d, not %d", thread, number, op->at + i,
                     have, op->value[i]);
    }
    return true;
}

/* All of the block, at once. */
static bool pass_barrier(const struct litmus *model, struct state *state, int block)
{
    int next[LITMUS_THREADS];

    for (int t = 0; t < model->nthreads; t++) {
        int op = 0;

        while (op < model->nops[t] && (state->done[t] >> op & 1))
            op++;
        next[t] = op;
        if (model->block[t] == block &&
            (op == model->nops[t] || model->ops[t][op].kind != LITMUS_BARRIER))
            return false;
    }
    for (int t = 0; t < model->nthreads; t++)
        if (model->block[t] == block)
            state->done[t] |= 1ull << next[t];
    return true;
}

static bool do_op(struct search *search, struct state *state, int thread, int number)
{
    const struct litmus_op *op = &search->model->ops[thread][number];
    int block = search->model->block[thread];
    bool must_drain = op->kind == LITMUS_FENCE || (op->order & LITMUS_RELEASE);

    if ((state->done[thread] >> number & 1) || !is_ready(search->model, state, thread, number) ||
        (must_drain && has_pending(state, block)))
        return false;
    if (op->kind == LITMUS_BARRIER)
        return pass_barrier(search->model, state, block);
    if (op->kind == LITMUS_STORE)
        store(search->model, state, thread, op);
    else if (op->kind != LITMUS_FENCE && !load(search, state, thread, number))
        return false;
    state->done[thread] |= 1ull << number;
    return true;
}

/* A store leaves the buffer, unless an earlier one of the same cells is still there. */
static bool drain(struct state *state, uint64_t number)
{
    struct pending one = state->pending[number];

    for (uint64_t i = 0; i < number; i++)
        if (state->pending[i].block == one.block &&
            share_cells(state->pending[i].at, state->pending[i].width, one.at, one.width))
            return false;
    memcpy(state->memory + one.at, one.value, one.width);
    state->npending--;
    memmove(&state->pending[number], &state->pending[number + 1],
            (state->npending - number) * sizeof one);
    memset(&state->pending[state->npending], 0, sizeof one);
    return true;
}

/* --- the search --- */

static bool is_over(const struct litmus *model, const struct state *state)
{
    for (int t = 0; t < model->nthreads; t++)
        if (state->done[t] != (1ull << model->nops[t]) - 1)
            return false;
    return true;
}

static void go_on(struct search *search, const struct state *state)
{
    const struct litmus *model = search->model;
    bool has_moved = false;

    if (!add(search, state))
        return;
    for (int t = 0; t < model->nthreads; t++)
        for (int i = 0; i < model->nops[t] && !search->wrong[0]; i++) {
            struct state next = *state;

            if (!do_op(search, &next, t, i))
                continue;
            has_moved = true;
            if (!search->wrong[0])
                go_on(search, &next);
        }
    for (uint64_t i = 0; i < state->npending && !search->wrong[0]; i++) {
        struct state next = *state;

        if (!drain(&next, i))
            continue;
        has_moved = true;
        go_on(search, &next);
    }
    if (!has_moved && !search->wrong[0] && !is_over(model, state))
        snprintf(search->wrong, sizeof search->wrong, "threads wait for ever");
}

const char *litmus_run(const struct litmus *model, uint64_t *states_out)
{
    static char wrong[sizeof((struct search *)0)->wrong];
    struct search search = {.model = model};
    struct state first;

    memset(&first, 0, sizeof first);
    go_on(&search, &first);
    *states_out = search.count;
    free(search.known);
    free(search.is_known);
    memcpy(wrong, search.wrong, sizeof wrong);
    return wrong[0] ? wrong : NULL;
}
