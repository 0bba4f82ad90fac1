/* SPDX-License-Identifier: BSD-3-Clause */
/* From a call to a plan: which algorithm, which protocol, what geometry. The choice follows from
 * tables, settings and the tuner alone, so all ranks choose alike. Plans are kept: a repeated call
 * costs one comparison. What plans of one algorithm share, the schedule and its links, is a
 * binding; it is made at the first call that needs it, and its owner gives it links.
 *
 * Thread: the holder of the crank, between runs. */
#ifndef XCCL_PLAN_PLAN_H
#define XCCL_PLAN_PLAN_H

#include "exec/exec.h"
#include "plan/algo_setting.h"
#include "plan/call_sizes.h"
#include "plan/proto_setting.h"
#include "xccl_tuner.h"

#define XCCL_MESH_NET_MAX   8 /* ranks up to which all send to all over a network by default */
#define XCCL_MESH_LOCAL_MAX 64 /* and over shared memory */

/* What is planned. count is what the public call of the collective takes: elements of the vector
 * (all-reduce, broadcast, reduce), or of one rank's block. */
struct xccl_call {
    enum xccl_coll coll;
    xcclDataType_t type;
    xcclRedOp_t op; /* of reductions, else 0; from xcclNumOps on a program's own */
    size_t count;
    int root; /* of rooted collectives, else 0 */
    /* Of v-collectives, whose count does not matter: all-gather, reduce-scatter, all-to-all. Who
     * has the call holds a reference. NULL: blocks are alike. */
    const struct xccl_call_sizes *sizes;
};

/* How a call is done. */
struct xccl_choice {
    const struct xccl_generator *generator;
    int param;
    enum xccl_proto proto;
    uint32_t tile_bytes; /* the largest slice; 0: as large as slots are */
    int tuned; /* 1: by the tuner, which the built-in choice stands behind */
};

/* Who is asked about choices. All of it the owner's, and good as long as the planner. */
struct xccl_plan_tuner {
    const xcclTunerPlugin_v1_t *calls; /* complete but for lastError; NULL: nobody is asked */
    void *ctx;
    const char *name; /* for texts */
    _Atomic int *warned; /* of the process: its one warning was given */
};

struct xccl_kept_binding;

#define XCCL_USER_OPS_MAX 64 /* a communicator's operators of the program, at one time */

/* The sum of contributions that each rank multiplies by a number of its own first. One that was
 * destroyed still serves calls that a group has noted, so its number is given away late. */
struct xccl_user_op {
    int used;
    xcclDataType_t type;
    struct xccl_operator how;
    const void *device_scalar; /* in device memory; NULL: it is in how */
};

#define XCCL_ADDRESS_MIN (64u << 10) /* bytes of a call or a group that goes by address */

/* Which calls leave what is large in private memory, for ranks of the host to read by address. */
enum xccl_by_address {
    XCCL_BY_ADDRESS_NEVER,
    XCCL_BY_ADDRESS_PAYS, /* where that is quicker */
    XCCL_BY_ADDRESS_ALWAYS, /* that do not reduce */
};

#define XCCL_PLANNER_KEY_BYTES 16

struct xccl_planner {
    int nranks, rank;
    int all_local; /* 1: all ranks share memory */
    int is_tight; /* 1: and are so many that links of all with all must be small */
    int is_crowded; /* 1: and are more than the cores that they may use */
    enum xccl_by_address by_address;
    int is_device; /* 1: kernels of a device do the calls */
    const uint8_t *multicast; /* by rank, as generators take it; the owner's */
    const int *nodes; /* likewise */
    /* The rank at each position of rings, chains and trees, and its hash: the same on all ranks.
     * NULL: each rank at its own number. The owner's. */
    const uint16_t *order;
    uint64_t order_hash;
    int any_place; /* 1: an element's bits do not depend on its place or the count */
    struct xccl_algo_setting setting;
    struct xccl_plan *last;
    struct xccl_plan **table; /* open addressing */
    uint32_t plan_count;
    uint64_t plans_made; /* ever; that all are dropped counts, too */
    struct xccl_plan *sized; /* of the last v-collective, which the table does not take */
    struct xccl_call sized_call; /* with a reference to its sizes */
    struct xccl_kept_binding *bindings;
    uint32_t binding_count, binding_room;
    /* By number less xcclNumOps; NULL: there never was one. The thread that calls adds, removes and
     * looks; an entry that is in use or held does not change. */
    struct xccl_user_op *user_ops;
    _Atomic uint32_t *op_holds; /* likewise: calls that still have to be made */
    unsigned next_op; /* where a free number is looked for */
    struct xccl_proto_setting protos;
    struct xccl_plan_tuner tuner;
    uint8_t key[XCCL_PLANNER_KEY_BYTES]; /* of signatures; only the communicator's ranks have it */
};

/* The fields above `setting`, protos, tuner and key are the owner's to set first. setting: of
 * XCCL_ALGO. */
xcclResult_t xccl_planner_init(struct xccl_planner *planner, const char *setting);
/* Frees plans and bindings; a zeroed one is fine. */
void xccl_planner_fini(struct xccl_planner *planner);

/* Memory of plans, bindings and schedules. */
size_t xccl_planner_bytes(const struct xccl_planner *planner);

/* A new operator of the program. The scalar is of this type, and each rank's is its own: calls of
 * ranks whose scalars or numbers differ are the same call. device_scalar: where it is read when the
 * call takes place, in place of *scalar; NULL: it is that. */
xcclResult_t xccl_planner_add_op(struct xccl_planner *planner, xcclDataType_t type,
                                 const void *scalar, const void *device_scalar,
                                 xcclRedOp_t *op_out);
/* NULL: there is no such operator. */
const struct xccl_user_op *xccl_planner_op(const struct xccl_planner *planner, xcclRedOp_t op);
void xccl_planner_remove_op(struct xccl_planner *planner, xcclRedOp_t op);
/* A call with this operator, known or built in, is made later, maybe by another thread: until it is
 * released as often, the number serves no other operator. release: any thread. */
void xccl_planner_hold_op(const struct xccl_planner *planner, xcclRedOp_t op);
void xccl_planner_release_op(const struct xccl_planner *planner, xcclRedOp_t op);

/* Proves what the setting asks of algorithm plugins, for root 0: a wrong one is found before calls.
 * Each is proven again for what it is used for. */
xcclResult_t xccl_plan_prove(const struct xccl_planner *planner);

/* What there is for a call. */
struct xccl_found {
    const struct xccl_plan *plan; /* NULL: its binding has no links yet. Good until the next get. */
    struct xccl_binding *binding; /* without a plan: that binding */
    uint64_t signature; /* of the call */
};

/* The plan of a call, made when it is new and its binding ready. xcclInvalidUsage: the settings
 * leave no way to do it. */
xcclResult_t xccl_plan_get(struct xccl_planner *planner, const struct xccl_call *call,
                           struct xccl_found *found_out);
/* Logs a call that the settings leave no way to do; returns rc. */
xcclResult_t xccl_plan_told(xcclResult_t rc);
/* Does the same as get for callers that can do without: xcclInvalidUsage is not logged, here and in
 * what follows. */
xcclResult_t xccl_plan_try(struct xccl_planner *planner, const struct xccl_call *call,
                           struct xccl_found *found_out);

/* The choice alone. */
xcclResult_t xccl_plan_choose(const struct xccl_planner *planner, const struct xccl_call *call,
                              struct xccl_choice *choice_out);
/* The binding of a choice, made when it is new. */
xcclResult_t xccl_plan_binding(struct xccl_planner *planner, const struct xccl_choice *choice,
                               int root, struct xccl_binding **binding_out);
/* What another rank runs for that binding. The caller frees it. */
xcclResult_t xccl_plan_schedule_of(const struct xccl_planner *planner,
                                   const struct xccl_binding *binding, int rank,
                                   struct xccl_schedule **schedule_out);
/* The choice of a call with its binding: where that of the tuner cannot be used, the built-in one.
 */
xcclResult_t xccl_plan_bind(struct xccl_planner *planner, const struct xccl_call *call,
                            struct xccl_choice *choice_out, struct xccl_binding **binding_out);
/* Signature of a call and the choice for it: the same on all ranks, and another one where anything
 * differs. Without the planner's key it cannot be made up. */
uint64_t xccl_plan_signature(const struct xccl_planner *planner, const struct xccl_call *call,
                             const struct xccl_choice *choice);

/* How long a call will take, and a message to one peer (estimate.c). */
xcclResult_t xccl_plan_estimate_ns(struct xccl_planner *planner, const struct xccl_call *call,
                                   double *ns_out);
double xccl_plan_message_ns(const struct xccl_planner *planner, size_t bytes);

#endif
