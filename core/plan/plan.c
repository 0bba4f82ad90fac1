/* SPDX-License-Identifier: BSD-3-Clause */
/* The cache of plans and the list of bindings. A full cache is emptied: plans are cheap, and a
 * program with over a thousand different calls in turn gains little from keeping them. Bindings
 * stay, since links stay. Thread: see plan.h. */
#include "plan/plan.h"

#include <sodium.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/wire.h"
#include "plan/plan_int.h"
#include "schedule/algo_plugin.h"

#define TABLE_SLOTS 2048u /* a power of two */
#define PLANS_MAX   1024u
#define KEY_SIZED   (1ull << 63) /* above every collective */

/* Signed bytes: 16 of the call, then tile, parameter, protocol, 8 of the order of ranks, and the
 * algorithm's name. */
#define SIGNED_HEAD 36u
#define SIGNED_NAME 228u

/* A binding, and what it is one of. */
struct xccl_kept_binding {
    struct xccl_choice choice;
    int root;
    struct xccl_binding *binding;
};

xcclResult_t xccl_planner_init(struct xccl_planner *planner, const char *setting)
{
    xcclResult_t rc = xccl_algo_setting_parse(setting, &planner->setting);

    if (rc)
        return rc;
    planner->table = xccl_calloc(TABLE_SLOTS, sizeof(struct xccl_plan *));
    return planner->table ? xcclSuccess : xcclSystemError;
}

static void plan_destroy(struct xccl_plan *plan)
{
    if (!plan)
        return;
    xccl_free(plan->moves);
    xccl_free(plan->lane_moves);
    xccl_free(plan->net_messages);
    xccl_free(plan);
}

static void drop_sized(struct xccl_planner *planner)
{
    plan_destroy(planner->sized);
    planner->sized = NULL;
    xccl_call_sizes_put(planner->sized_call.sizes);
    planner->sized_call.sizes = NULL;
}

static void drop_plans(struct xccl_planner *planner)
{
    drop_sized(planner);
    for (uint32_t i = 0; i < TABLE_SLOTS; i++) {
        plan_destroy(planner->table[i]);
        planner->table[i] = NULL;
    }
    planner->plan_count = 0;
    planner->last = NULL;
    planner->plans_made++; /* who kept one looks for it again, also where no other one is made */
}

void xccl_planner_fini(struct xccl_planner *planner)
{
    if (planner->table)
        drop_plans(planner);
    xccl_free(planner->table);
    planner->table = NULL;
    for (uint32_t i = 0; i < planner->binding_count; i++)
        xccl_binding_destroy(planner->bindings[i].binding);
    xccl_free(planner->bindings);
    planner->bindings = NULL;
    planner->binding_count = planner->binding_room = 0;
    xccl_free(planner->user_ops);
    planner->user_ops = NULL;
    xccl_free((void *)planner->op_holds);
    planner->op_holds = NULL;
}

static size_t plan_bytes(const struct xccl_plan *plan)
{
    if (!plan)
        return 0;
    return xccl_alloc_bytes(plan) + xccl_alloc_bytes(plan->moves) +
           xccl_alloc_bytes(plan->lane_moves) + xccl_alloc_bytes(plan->net_messages);
}

size_t xccl_planner_bytes(const struct xccl_planner *planner)
{
    size_t bytes = xccl_alloc_bytes(planner->table) + xccl_alloc_bytes(planner->bindings) +
                   xccl_alloc_bytes(planner->user_ops) + plan_bytes(planner->sized);

    for (uint32_t i = 0; i < TABLE_SLOTS && planner->table; i++)
        bytes += plan_bytes(planner->table[i]);
    for (uint32_t i = 0; i < planner->binding_count; i++)
        bytes += xccl_binding_bytes(planner->bindings[i].binding);
    return bytes;
}

static uint64_t mix(uint64_t value)
{
    value *= 0x9e3779b97f4a7c15ull;
    value ^= value >> 29;
    value *= 0xbf58476d1ce4e5b9ull;
    return value ^ value >> 32;
}

static_assert(XCCL_PLANNER_KEY_BYTES == crypto_shorthash_KEYBYTES, "a key of SipHash");

static inline void make_key(const struct xccl_call *call, xcclRedOp_t op, uint64_t key_out[2])
{
    key_out[0] = call->count;
    key_out[1] = (uint64_t)call->coll << 56 | (uint64_t)call->type << 48 | (uint64_t)op << 32 |
                 (uint64_t)(uint32_t)call->root;
}

/* Numbers of the program's operators are each rank's own. */
uint64_t xccl_plan_signature(const struct xccl_planner *planner, const struct xccl_call *call,
                             const struct xccl_choice *choice)
{
    uint8_t text[SIGNED_HEAD + SIGNED_NAME], hash[crypto_shorthash_BYTES];
    struct xccl_wire wire = xccl_wire_over(text, sizeof text);
    size_t name_bytes = strnlen(choice->generator->name, SIGNED_NAME);
    uint64_t key[2];

    make_key(call, call->op < xcclNumOps ? call->op : xcclNumOps, key);
    if (call->sizes) {
        key[0] = call->sizes->hash;
        key[1] |= KEY_SIZED;
    }
    xccl_wire_put_u64(&wire, key[0]);
    xccl_wire_put_u64(&wire, key[1]);
    xccl_wire_put_u32(&wire, choice->tile_bytes);
    xccl_wire_put_u32(&wire, (uint32_t)choice->param);
    xccl_wire_put_u32(&wire, (uint32_t)choice->proto);
    xccl_wire_put_u64(&wire, xccl_plan_order(planner, choice->generator) ? planner->order_hash : 0);
    xccl_wire_put(&wire, choice->generator->name, name_bytes);
    (void)crypto_shorthash(hash, text, SIGNED_HEAD + name_bytes, planner->key);
    wire = xccl_wire_over(hash, sizeof hash);
    return xccl_wire_get_u64(&wire);
}

/* --- bindings --- */

static xcclResult_t keep_binding(struct xccl_planner *planner, const struct xccl_kept_binding *kept)
{
    if (planner->binding_count == planner->binding_room) {
        uint32_t room = planner->binding_room ? 2 * planner->binding_room : 16;
        struct xccl_kept_binding *grown = xccl_calloc(room, sizeof *grown);

        if (!grown)
            return xcclSystemError;
        if (planner->binding_count)
            memcpy(grown, planner->bindings, planner->binding_count * sizeof *grown);
        xccl_free(planner->bindings);
        planner->bindings = grown;
        planner->binding_room = room;
    }
    planner->bindings[planner->binding_count++] = *kept;
    return xcclSuccess;
}

/* Built-in algorithms have been proven long ago. Those of plugins, and hierarchies of them, never
 * run unproven; proofs know no multicast. */
static xcclResult_t make_schedule(const struct xccl_generator *generator,
                                  struct xccl_generator_for *what,
                                  struct xccl_schedule **schedule_out)
{
    if (!xccl_algo_plugin_path(generator))
        return xccl_generator_make(generator, what, schedule_out);
    what->multicast = NULL;
    return xccl_algo_plugin_prove(generator, what, schedule_out);
}

xcclResult_t xccl_plan_prove(const struct xccl_planner *planner)
{
    xcclResult_t rc = xcclSuccess;

    for (int coll = 0; coll < XCCL_COLL_WITH_SCHEDULES; coll++) {
        const struct xccl_algo_list *list = &planner->setting.lists[coll];

        for (uint32_t i = 0; i < list->count && !list->excludes && !rc; i++) {
            const struct xccl_generator *generator = list->algos[i].generator;
            struct xccl_generator_for what = xccl_plan_what(planner, generator,
                                                            list->algos[i].param, 0);

            what.multicast = NULL;
            if (xccl_algo_plugin_path(generator) &&
                (!generator->serves || generator->serves(&what)))
                rc = xccl_algo_plugin_prove(generator, &what, NULL);
        }
    }
    return rc;
}

static xcclResult_t make_binding(struct xccl_planner *planner, const struct xccl_choice *choice,
                                 int root, struct xccl_binding **binding_out)
{
    struct xccl_generator_for what = xccl_plan_what(planner, choice->generator, choice->param,
                                                    root);
    struct xccl_kept_binding kept = {.choice = *choice, .root = root};
    struct xccl_schedule *schedule;
    xcclResult_t rc = make_schedule(choice->generator, &what, &schedule);

    if (!rc)
        rc = xccl_binding_create(schedule, choice->proto, &kept.binding);
    if (rc)
        return rc;
    rc = keep_binding(planner, &kept);
    if (rc)
        xccl_binding_destroy(kept.binding);
    else
        *binding_out = kept.binding;
    return rc;
}

xcclResult_t xccl_plan_binding(struct xccl_planner *planner, const struct xccl_choice *choice,
                               int root, struct xccl_binding **binding_out)
{
    for (uint32_t i = 0; i < planner->binding_count; i++) {
        const struct xccl_kept_binding *kept = &planner->bindings[i];

        if (kept->choice.generator != choice->generator || kept->choice.param != choice->param ||
            kept->choice.proto != choice->proto || kept->root != root)
            continue;
        *binding_out = kept->binding;
        return xcclSuccess;
    }
    return make_binding(planner, choice, root, binding_out);
}

xcclResult_t xccl_plan_schedule_of(const struct xccl_planner *planner,
                                   const struct xccl_binding *binding, int rank,
                                   struct xccl_schedule **schedule_out)
{
    for (uint32_t i = 0; i < planner->binding_count; i++) {
        const struct xccl_kept_binding *kept = &planner->bindings[i];
        struct xccl_generator_for what = xccl_plan_what(planner, kept->choice.generator,
                                                        kept->choice.param, kept->root);

        if (kept->binding != binding)
            continue;
        what.rank = rank;
        return make_schedule(kept->choice.generator, &what, schedule_out);
    }
    return xccl_fail(xcclInternalError, 0, "report this as a bug", "a binding that is not kept");
}

/* Is the binding one for this very call, too? */
static xcclResult_t check_binding(const struct xccl_planner *planner, const struct xccl_call *call,
                                  const struct xccl_binding *binding)
{
    const struct xccl_schedule *schedule = binding->schedule;

    if (xccl_plan_is_uneven(planner, call, schedule))
        return xccl_fail_quietly(xcclInvalidUsage, 0, NULL, "it needs a count that %u divides",
                                 schedule->nchunks);
    if (schedule->minslots > XCCL_SLOTS_MAX)
        return xccl_fail_quietly(xcclInvalidUsage, 0, NULL, "it needs %u slots a connection",
                                 schedule->minslots);
    return xcclSuccess;
}

/* Links of all with all are small where the budget wants it, whatever was chosen. */
static xcclResult_t bind_choice(struct xccl_planner *planner, const struct xccl_call *call,
                                struct xccl_choice *choice, struct xccl_binding **binding_out)
{
    if (planner->is_tight && choice->generator->links_all)
        choice->proto = XCCL_PROTO_TIGHT;
    return xccl_plan_binding(planner, choice, call->root, binding_out);
}

xcclResult_t xccl_plan_bind(struct xccl_planner *planner, const struct xccl_call *call,
                            struct xccl_choice *choice_out, struct xccl_binding **binding_out)
{
    xcclResult_t rc = xccl_plan_choose(planner, call, choice_out);

    if (rc)
        return rc;
    rc = bind_choice(planner, call, choice_out, binding_out);
    if (!choice_out->tuned)
        return rc;
    if (!rc)
        rc = check_binding(planner, call, *binding_out);
    if (!rc || rc == xcclSystemError)
        return rc;
    xccl_plan_tuner_refuse(planner, call, choice_out);
    rc = xccl_plan_choose_built_in(planner, call, choice_out);
    return rc ? rc : bind_choice(planner, call, choice_out, binding_out);
}

/* --- operators of the program --- */

const struct xccl_user_op *xccl_planner_op(const struct xccl_planner *planner, xcclRedOp_t op)
{
    unsigned at = (unsigned)op - xcclNumOps;

    return planner->user_ops && at < XCCL_USER_OPS_MAX && planner->user_ops[at].used
               ? &planner->user_ops[at]
               : NULL;
}

static int find_operator(const struct xccl_planner *planner, const struct xccl_call *call,
                         struct xccl_operator *operator_out)
{
    unsigned at = (unsigned)call->op - xcclNumOps;

    if (call->op < xcclNumOps)
        return xccl_operator_find(call->type, call->op, planner->nranks, operator_out);
    if (!planner->user_ops || at >= XCCL_USER_OPS_MAX || planner->user_ops[at].type != call->type)
        return 0;
    *operator_out = planner->user_ops[at].how; /* it may have been destroyed in a group */
    return operator_out->reduce != NULL;
}

/* Plans of a number outlive the operator: each use takes the scalar that it has now. A number that
 * serves another type by now is that of a call which a group has noted too long ago. */
static void renew_plan(const struct xccl_planner *planner, const struct xccl_call *call,
                       struct xccl_plan *plan)
{
    if (call->op >= xcclNumOps &&
        planner->user_ops[(unsigned)call->op - xcclNumOps].type == call->type)
        plan->reduction = planner->user_ops[(unsigned)call->op - xcclNumOps].how;
}

/* Acquire: the last call's look at the operator. Pairs with xccl_planner_release_op(). */
static int is_free(const struct xccl_planner *planner, unsigned at)
{
    return !planner->user_ops[at].used &&
           !atomic_load_explicit(&planner->op_holds[at], memory_order_acquire);
}

static int is_equal(const struct xccl_user_op *a, const struct xccl_user_op *b)
{
    return a->how.reduce && b->how.reduce && a->type == b->type &&
           a->device_scalar == b->device_scalar &&
           memcmp(&a->how.scalar, &b->how.scalar, sizeof a->how.scalar) == 0;
}

/* A free place, that of an equal operator if there is one: programs make one, call, and destroy it,
 * again and again. */
static unsigned choose_op(const struct xccl_planner *planner, const struct xccl_user_op *user)
{
    unsigned at = planner->next_op;

    for (unsigned i = 0; i < XCCL_USER_OPS_MAX; i++) {
        const struct xccl_user_op *other = &planner->user_ops[i];

        if (!other->used && is_equal(other, user))
            return i;
    }
    for (unsigned i = 0; i < XCCL_USER_OPS_MAX; i++, at = (at + 1) % XCCL_USER_OPS_MAX)
        if (is_free(planner, at))
            return at;
    return XCCL_USER_OPS_MAX;
}

xcclResult_t xccl_planner_add_op(struct xccl_planner *planner, xcclDataType_t type,
                                 const void *scalar, const void *device_scalar, xcclRedOp_t *op_out)
{
    struct xccl_user_op user = {.used = 1, .type = type, .device_scalar = device_scalar};
    unsigned at;

    if (!xccl_operator_premul(type, scalar, &user.how))
        return xccl_fail(xcclInvalidArgument, 0, NULL, "there is no datatype %d", (int)type);
    if (!planner->op_holds)
        planner->op_holds = xccl_calloc(XCCL_USER_OPS_MAX, sizeof *planner->op_holds);
    if (planner->op_holds && !planner->user_ops)
        planner->user_ops = xccl_calloc(XCCL_USER_OPS_MAX, sizeof *planner->user_ops);
    if (!planner->user_ops)
        return xcclSystemError;
    at = choose_op(planner, &user);
    if (at == XCCL_USER_OPS_MAX)
        return xccl_fail(xcclInvalidUsage, 0, "destroy operators that are no longer needed",
                         "the communicator already has %d operators, the largest number possible",
                         XCCL_USER_OPS_MAX);
    if (is_equal(&planner->user_ops[at], &user))
        planner->user_ops[at].used = 1; /* a call that is held may look at the rest */
    else
        planner->user_ops[at] = user;
    planner->next_op = (at + 1) % XCCL_USER_OPS_MAX;
    *op_out = (xcclRedOp_t)(xcclNumOps + at);
    return xcclSuccess;
}

void xccl_planner_hold_op(const struct xccl_planner *planner, xcclRedOp_t op)
{
    if (op >= xcclNumOps) /* relaxed: who holds it can use it */
        atomic_fetch_add_explicit(&planner->op_holds[(unsigned)op - xcclNumOps], 1,
                                  memory_order_relaxed);
}

void xccl_planner_release_op(const struct xccl_planner *planner, xcclRedOp_t op)
{
    if (op >= xcclNumOps) /* release: pairs with is_free() */
        atomic_fetch_sub_explicit(&planner->op_holds[(unsigned)op - xcclNumOps], 1,
                                  memory_order_release);
}

void xccl_planner_remove_op(struct xccl_planner *planner, xcclRedOp_t op)
{
    if (xccl_planner_op(planner, op))
        planner->user_ops[(unsigned)op - xcclNumOps].used = 0;
}

/* --- plans --- */

/* What a call moves; how many messages, network links must know. */
static xcclResult_t count_plan(const struct xccl_planner *planner, struct xccl_plan *plan)
{
    const struct xccl_binding *binding = plan->binding;
    uint32_t *messages;

    if (!binding->net_count) {
        xccl_plan_count(plan, planner->nodes, NULL, &plan->traffic);
        return xcclSuccess;
    }
    plan->net_messages = xccl_calloc(binding->net_count, sizeof *plan->net_messages);
    messages = xccl_calloc(binding->schedule->nconns, sizeof *messages);
    if (!messages || !plan->net_messages) {
        xccl_free(messages);
        return xcclSystemError;
    }
    xccl_plan_count(plan, planner->nodes, messages, &plan->traffic);
    for (uint32_t i = 0; i < binding->net_count; i++)
        plan->net_messages[i] = messages[binding->net_conns[i]];
    xccl_free(messages);
    return xcclSuccess;
}

/* A call that reduces reads a slot as it would read its own memory, so nothing is won. One copy by
 * the kernel is quicker than two through slots, but not where one rank reads from all others: those
 * fill slots while it reads. */
static bool goes_by_address(const struct xccl_planner *planner, const struct xccl_call *call,
                            const struct xccl_plan *plan)
{
    uint64_t bytes = (uint64_t)plan->chunk_bytes * plan->binding->schedule->nchunks;

    if (planner->by_address == XCCL_BY_ADDRESS_NEVER || plan->reduction.reduce)
        return false;
    return bytes >= XCCL_ADDRESS_MIN &&
           (planner->by_address == XCCL_BY_ADDRESS_ALWAYS || call->coll != XCCL_COLL_GATHER);
}

/* Everything but the key, for a binding that is ready. */
static xcclResult_t fill_plan(const struct xccl_planner *planner, const struct xccl_call *call,
                              uint32_t tile_bytes, struct xccl_plan *plan)
{
    xcclResult_t rc;

    if (xccl_coll_reduces(call->coll) && !find_operator(planner, call, &plan->reduction))
        return xccl_fail(xcclInvalidArgument, 0, NULL, "there is no operator %d of type %d",
                         (int)call->op, (int)call->type);
    rc = xccl_plan_cut(planner, call, tile_bytes, plan);
    if (!rc)
        plan->by_address = goes_by_address(planner, call, plan);
    if (!rc)
        rc = xccl_plan_resolve(plan);
    return rc ? rc : count_plan(planner, plan);
}

static xcclResult_t make_plan(struct xccl_planner *planner, const struct xccl_call *call,
                              const uint64_t key[2], struct xccl_found *found)
{
    struct xccl_plan *plan;
    struct xccl_choice choice;
    xcclResult_t rc = xccl_plan_bind(planner, call, &choice, &found->binding);

    if (rc)
        return rc;
    found->signature = xccl_plan_signature(planner, call, &choice);
    if (!found->binding->ready)
        return xcclSuccess;
    plan = xccl_calloc_aligned(64, sizeof *plan);
    if (!plan)
        return xcclSystemError;
    plan->binding = found->binding;
    plan->key[0] = key[0];
    plan->key[1] = key[1];
    plan->signature = found->signature;
    rc = fill_plan(planner, call, choice.tile_bytes, plan);
    if (rc) {
        plan_destroy(plan);
        return rc;
    }
    planner->plans_made++;
    xccl_plan_tell(planner, call, &choice, plan);
    found->plan = plan;
    return xcclSuccess;
}

/* With an operator of the program it is looked for each time, and renewed. */
static void find(struct xccl_found *found, struct xccl_planner *planner,
                 const struct xccl_call *call, struct xccl_plan *plan)
{
    found->plan = plan;
    found->signature = plan->signature;
    renew_plan(planner, call, plan);
    if (call->op < xcclNumOps)
        planner->last = plan;
}

static xcclResult_t get_other(struct xccl_planner *planner, const struct xccl_call *call,
                              const uint64_t key[2], struct xccl_found *found)
{
    struct xccl_plan *plan;
    uint32_t slot;
    xcclResult_t rc;

    if (planner->plan_count == PLANS_MAX)
        drop_plans(planner);
    slot = (uint32_t)(mix(key[0]) + key[1]) & (TABLE_SLOTS - 1);
    for (plan = planner->table[slot]; plan; plan = planner->table[slot]) {
        if (plan->key[0] == key[0] && plan->key[1] == key[1]) {
            find(found, planner, call, plan);
            return xcclSuccess;
        }
        slot = (slot + 1) & (TABLE_SLOTS - 1);
    }
    rc = make_plan(planner, call, key, found);
    if (rc || !found->plan)
        return rc;
    planner->table[slot] = (struct xccl_plan *)(uintptr_t)found->plan;
    planner->plan_count++;
    find(found, planner, call, planner->table[slot]);
    return xcclSuccess;
}

static int is_same_call(const struct xccl_call *a, const struct xccl_call *b)
{
    return a->coll == b->coll && a->type == b->type && a->op == b->op &&
           xccl_call_sizes_equal(a->sizes, b->sizes);
}

/* Sizes are no key: there are too many of them. One plan is kept. */
static xcclResult_t get_sized(struct xccl_planner *planner, const struct xccl_call *call,
                              uint64_t key_high, struct xccl_found *found)
{
    const uint64_t key[2] = {call->sizes->hash, key_high | KEY_SIZED};
    xcclResult_t rc;

    if (!planner->sized || !is_same_call(call, &planner->sized_call)) {
        drop_sized(planner);
        rc = make_plan(planner, call, key, found);
        if (rc || !found->plan)
            return rc;
        planner->sized = (struct xccl_plan *)(uintptr_t)found->plan;
        planner->sized_call = *call;
        xccl_call_sizes_get(call->sizes);
    }
    renew_plan(planner, call, planner->sized);
    found->plan = planner->sized;
    found->signature = planner->sized->signature;
    return xcclSuccess;
}

xcclResult_t xccl_plan_try(struct xccl_planner *planner, const struct xccl_call *call,
                           struct xccl_found *found_out)
{
    const struct xccl_plan *plan = planner->last;
    uint64_t key[2];

    make_key(call, call->op, key);
    found_out->plan = NULL;
    found_out->binding = NULL;
    if (__builtin_expect(call->sizes != NULL, 0))
        return get_sized(planner, call, key[1], found_out);
    if (__builtin_expect(plan && plan->key[0] == key[0] && plan->key[1] == key[1], 1)) {
        found_out->plan = plan;
        found_out->signature = plan->signature;
        return xcclSuccess;
    }
    return get_other(planner, call, key, found_out);
}

xcclResult_t xccl_plan_told(xcclResult_t rc)
{
    return __builtin_expect(rc == xcclInvalidUsage, 0) ? xccl_error_tell(rc) : rc;
}

xcclResult_t xccl_plan_get(struct xccl_planner *planner, const struct xccl_call *call,
                           struct xccl_found *found_out)
{
    return xccl_plan_told(xccl_plan_try(planner, call, found_out));
}
