/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds the records that are asked for and reads them. A file that goes away meanwhile is passed
 * over; one that cannot be read is told and counted, one that a dead process of another version has
 * left is only counted.
 *
 * Thread: the program's main thread. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "record/record_clock.h"
#include "report/report.h"

/* A place for one more, NULL without memory. */
static struct xccl_report_record *add(struct xccl_report *report)
{
    if (report->count == report->room) {
        uint32_t room = report->room ? 2 * report->room : 16;
        struct xccl_report_record *grown = realloc(report->records, room * sizeof *grown);

        if (!grown) {
            fputs("xccl report: no memory\n", stderr);
            return NULL;
        }
        report->records = grown;
        report->room = room;
    }
    memset(&report->records[report->count], 0, sizeof report->records[0]);
    return &report->records[report->count];
}

/* The process id that a text is, up to `end`. 0: it is none. */
static uint32_t pid_of(const char *text, char end)
{
    char *rest = NULL;
    unsigned long value;

    if (!isdigit((unsigned char)text[0]))
        return 0;
    value = strtoul(text, &rest, 10);
    return *rest != end || value > UINT32_MAX ? 0 : (uint32_t)value;
}

/* pid 0: whichever. 0: no memory. */
static int read_one(struct xccl_report *report, int folder_fd, const char *folder, const char *name,
                    uint32_t pid, uint32_t keep)
{
    struct xccl_report_record *record = add(report);
    xcclResult_t rc;

    if (!record)
        return 0;
    snprintf(record->path, sizeof record->path, "%s%s%s", folder, folder[0] ? "/" : "", name);
    errno = 0;
    rc = xccl_record_read(folder_fd, name, keep, &record->view);
    if (rc && errno == ENOENT && folder[0])
        return 1;
    if (rc && folder[0] && record->view.other_version && !record->view.live) {
        report->old += !pid || pid_of(name, '-') == pid;
        return 1;
    }
    if (rc) {
        fprintf(stderr, "xccl report: %s: %s\n", record->path, xccl_error_text());
        report->failed++;
        return 1;
    }
    if (pid && record->view.info.pid != pid)
        xccl_record_view_free(&record->view);
    else
        report->count++;
    return 1;
}

static int read_folder(struct xccl_report *report, const char *folder, uint32_t pid, uint32_t keep)
{
    char why[XCCL_RECORD_PATH_BYTES + 64];
    int fd = xccl_record_folder_open(folder, 0, why, sizeof why), fine = 1;
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    if (fd < 0 && why[0]) {
        fprintf(stderr, "xccl report: %s\n", why);
        report->failed++;
    }
    if (!dir && fd >= 0)
        close(fd);
    while (fine && dir && (entry = readdir(dir)))
        if (xccl_record_is_name(entry->d_name))
            fine = read_one(report, dirfd(dir), folder, entry->d_name, pid, keep);
    if (dir)
        closedir(dir);
    return fine;
}

int xccl_report_collect(const char *target, uint32_t keep, struct xccl_report *report_out)
{
    char folders[XCCL_RECORD_FOLDERS][XCCL_RECORD_PATH_BYTES];
    uint32_t pid = target ? pid_of(target, '\0') : 0;
    int count = xccl_record_folders(folders), fine = 1;

    *report_out = (struct xccl_report){.mono_ns = xccl_record_monotonic()};
    if (target && !pid)
        fine = read_one(report_out, AT_FDCWD, "", target, 0, keep);
    for (int i = 0; i < count && fine && (!target || pid); i++)
        fine = read_folder(report_out, folders[i], pid, keep);
    if (!fine)
        xccl_report_free(report_out);
    return fine;
}

void xccl_report_free(struct xccl_report *report)
{
    for (uint32_t i = 0; i < report->count; i++)
        xccl_record_view_free(&report->records[i].view);
    free(report->records);
    *report = (struct xccl_report){.count = 0};
}

const struct xccl_record_comm *xccl_report_earlier(const struct xccl_report *earlier,
                                                   const struct xccl_report_record *record,
                                                   const struct xccl_record_comm *comm)
{
    for (uint32_t i = 0; earlier && i < earlier->count; i++) {
        const struct xccl_report_record *other = &earlier->records[i];

        for (uint32_t j = 0; j < other->view.count && strcmp(other->path, record->path) == 0; j++)
            if (other->view.comms[j].join_tick == comm->join_tick &&
                memcmp(other->view.comms[j].id, comm->id, sizeof comm->id) == 0)
                return &other->view.comms[j];
    }
    return NULL;
}
