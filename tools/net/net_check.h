/* SPDX-License-Identifier: BSD-3-Clause */
/* `xccl net check`: the conformance suite (tests/conformance) on one plugin. cmd_net.c finds it.
 *
 * Thread: the program's main thread. */
#ifndef XCCL_TOOLS_NET_NET_CHECK_H
#define XCCL_TOOLS_NET_NET_CHECK_H

/* argv[0] is "check". Returns the exit status. */
int xccl_net_check_main(int argc, char **argv);
extern const char xccl_net_check_help[];

#endif
