/* SPDX-License-Identifier: BSD-3-Clause */
/* The setting XCCL_ALGO, in the form of NCCL's: for each collective a list of algorithms that may
 * be used, or, behind ^, of those that may not.
 *
 *   ring                                   wherever there is an algorithm of that name
 *   all_reduce:ring,nhr;all_gather:pat:4   names may be written as NCCL's: allreduce
 *   ^oneshot                               any but that one
 *
 * Thread: any. */
#ifndef XCCL_PLAN_ALGO_SETTING_H
#define XCCL_PLAN_ALGO_SETTING_H

#include "schedule/generators.h"

#define XCCL_ALGO_LIST_MAX 8

struct xccl_algo_named {
    const struct xccl_generator *generator;
    int param; /* 0: none was said */
};

struct xccl_algo_list {
    struct xccl_algo_named algos[XCCL_ALGO_LIST_MAX];
    uint32_t count;
    int excludes;
};

struct xccl_algo_setting {
    struct xccl_algo_list lists[XCCL_COLL_WITH_SCHEDULES]; /* an empty one allows all */
};

/* xcclInvalidUsage says which word is no algorithm. "" and "auto" allow all. */
xcclResult_t xccl_algo_setting_parse(const char *text, struct xccl_algo_setting *setting_out);
/* The collective that a setting calls so, "all_reduce" or as NCCL writes it, or
 * XCCL_COLL_WITH_SCHEDULES: there is none. */
enum xccl_coll xccl_setting_coll(const char *word, size_t length);
/* 1: the setting leaves it to be chosen. */
int xccl_algo_setting_allows(const struct xccl_algo_setting *setting,
                             const struct xccl_generator *generator, int param);

#endif
