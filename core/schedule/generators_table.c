/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of all algorithms that XCCL brings, by collective. Constant; a new one is a line in
 * gen_int.h and a line here. Thread: any. */
#include "schedule/gen_int.h"

const struct xccl_generator *const xccl_generators[] = {
    &xccl_generator_ring_all_reduce,       &xccl_generator_dtree_all_reduce,
    &xccl_generator_oneshot_all_reduce,    &xccl_generator_twoshot_all_reduce,
    &xccl_generator_rd_all_reduce,         &xccl_generator_rhd_all_reduce,
    &xccl_generator_nhr_all_reduce,        &xccl_generator_nb_all_reduce,
    &xccl_generator_pat_all_reduce,        &xccl_generator_ring_reduce_scatter,
    &xccl_generator_mesh_reduce_scatter,   &xccl_generator_rhd_reduce_scatter,
    &xccl_generator_nhr_reduce_scatter,    &xccl_generator_nb_reduce_scatter,
    &xccl_generator_pat_reduce_scatter,    &xccl_generator_ring_all_gather,
    &xccl_generator_mesh_all_gather,       &xccl_generator_rhd_all_gather,
    &xccl_generator_nhr_all_gather,        &xccl_generator_nb_all_gather,
    &xccl_generator_pat_all_gather,        &xccl_generator_chain_broadcast,
    &xccl_generator_binomial_broadcast,    &xccl_generator_sag_broadcast,
    &xccl_generator_chain_reduce,          &xccl_generator_binomial_reduce,
    &xccl_generator_binomial_scatter,      &xccl_generator_direct_scatter,
    &xccl_generator_binomial_gather,       &xccl_generator_direct_gather,
    &xccl_generator_pairwise_alltoall,     &xccl_generator_bruck_alltoall,
    &xccl_generator_dissemination_barrier, &xccl_generator_hier_all_reduce,
    &xccl_generator_hier_reduce_scatter,   &xccl_generator_hier_all_gather,
    &xccl_generator_hier_broadcast,        &xccl_generator_hier_reduce,
    &xccl_generator_hier_barrier,          NULL,
};
