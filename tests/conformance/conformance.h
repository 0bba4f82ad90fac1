/* SPDX-License-Identifier: BSD-3-Clause */
/* The conformance suite of the network contract (include/xccl_net.h), as `xccl net check` runs it
 * on any plugin that the loader can open. Every case checks one rule, in a process of its own with
 * a deadline, so that a plugin that crashes, hangs or leaks fails that case and no other.
 *
 * Thread: one, the only one of the process: the suite forks. */
#ifndef XCCL_CONFORMANCE_H
#define XCCL_CONFORMANCE_H

#include <stddef.h>
#include <stdint.h>

/* How the two ends of a connection are spread. A bit set. */
enum xccl_conformance_form {
    XCCL_CONFORMANCE_SINGLE = 1, /* one thread drives both ends */
    XCCL_CONFORMANCE_THREADS = 2, /* a thread each, one instance */
    XCCL_CONFORMANCE_PROCESSES = 4, /* a process each */
    XCCL_CONFORMANCE_NAMESPACES = 8, /* a process each, in two network namespaces: two hosts */
    XCCL_CONFORMANCE_REMOTE = 16 /* a process each, the other on a host that serves: see remote */
};
#define XCCL_CONFORMANCE_FORMS 15 /* of one host */

struct xccl_conformance_options {
    const char *item; /* as xccl_net_open_item takes it */
    const char *case_pattern; /* shell pattern over case names; NULL: all */
    const char *skip_path; /* NULL: the list that is installed for the plugin, if there is one */
    const char *json_path; /* NULL: none; "-": standard output, and the lines to standard error */
    unsigned forms; /* XCCL_CONFORMANCE_* */
    uint64_t max_bytes; /* of a message */
    uint64_t seed;
    int64_t repeat; /* runs, with successive seeds */
    int64_t jobs; /* cases at the same time */
    int64_t device;
    int64_t rails; /* above 1: of so many devices, the first of which is that one, merged */
    uint64_t timeout_ms; /* of a case; 0: each case's own */
    uint64_t within_ms; /* of a run with one seed; what does not fit is left out; 0: no limit */
    int quick;
    /* Two hosts: the address at which the other one serves; NULL: form remote is not run. token is
     * what both were told, 1 to 32 characters. reverse: here is the receiver, not the sender. */
    const char *remote, *token;
    int reverse;
};

/* What a run returns, which is the exit status of the program. */
enum {
    XCCL_CONFORMANCE_PASSED = 0, /* or skipped, or noted */
    XCCL_CONFORMANCE_FAILED = 1, /* a case; or the plugin does not open */
    XCCL_CONFORMANCE_USAGE = 2, /* wrong options */
    XCCL_CONFORMANCE_PARTLY = 3 /* nothing failed, but within_ms left cases out */
};
int xccl_conformance_run(const struct xccl_conformance_options *options);
/* The other side of form remote: runs the other role of each case of one run, whose runner connects
 * to address ("10.0.0.2:7000"; port 0: any), and ends with it. 0 then; 1: the plugin cannot be
 * opened, or nobody can connect; 2 wrong options. */
int xccl_conformance_serve(const struct xccl_conformance_options *options, const char *address);
/* Prints each case with its rule and the forms it has. */
void xccl_conformance_list(void);
/* The form's bit, or 0. */
unsigned xccl_conformance_form(const char *name);

#endif
