/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the plugins of this installation are, as the build was configured. Only libxccl.a has this
 * file: a program that holds the library may lie anywhere, so its own place says nothing of the
 * plugins. Thread: any. */
#include "plugin/net_plugin_int.h"

const char *const xccl_plugin_home = XCCL_PLUGIN_HOME;
