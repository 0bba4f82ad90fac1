/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests that look at what was logged: the log goes to a file whose path the test sets. Header
 * only; one test program each.
 * Thread: the test's own. */
#ifndef TESTS_UNIT_BASE_LOG_TEXT_H
#define TESTS_UNIT_BASE_LOG_TEXT_H

#include <fcntl.h>
#include <unistd.h>

#include "base/log.h"
#include "xt.h"

static char log_path[512]; /* XCCL_DEBUG_FILE */
static char text_buffer[69632];

/* What was logged so far. Closes the log, as every test that logs must. */
static const char *log_text(void)
{
    int fd = open(log_path, O_RDONLY | O_CLOEXEC);
    ssize_t got = 0;

    xccl_log_reset();
    if (fd >= 0) {
        got = read(fd, text_buffer, sizeof(text_buffer) - 1);
        close(fd);
    }
    XT_CHECK(got >= 0);
    text_buffer[got] = 0;
    return text_buffer;
}

#endif
