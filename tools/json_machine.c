/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine as /proc and uname tell it. What is not told is null.
 *
 * Thread: any; one at a time a file. */
#include "json_machine.h"

#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "base/os.h"
#include "json_text.h"

void xccl_proc_value(const char *path, const char *key, char *value_out, size_t bytes)
{
    char line[512];
    FILE *file = fopen(path, "re");

    value_out[0] = '\0';
    while (file && fgets(line, sizeof(line), file)) {
        char *colon = strchr(line, ':');

        if (strncmp(line, key, strlen(key)) != 0 || !colon)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(value_out, bytes, "%s", colon + 1 + strspn(colon + 1, " \t"));
        break;
    }
    if (file)
        fclose(file);
}

void xccl_json_machine(FILE *file)
{
    char date[32] = "", processor[128], memory[64];
    struct utsname system;
    time_t now = time(NULL);
    struct tm utc;

    if (gmtime_r(&now, &utc))
        strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", &utc);
    if (uname(&system) != 0)
        memset(&system, 0, sizeof(system));
    xccl_proc_value("/proc/cpuinfo", "model name", processor, sizeof(processor));
    xccl_proc_value("/proc/meminfo", "MemTotal", memory, sizeof(memory));
    fprintf(file, "  \"date\": \"%s\",\n  \"machine\": {\"host\": ", date);
    xccl_json_text(file, xccl_os_hostname());
    fprintf(file, ", \"cores\": %d, \"processor\": ", xccl_os_cores());
    xccl_json_text_or_null(file, processor);
    fprintf(file, ", \"memory\": ");
    xccl_json_text_or_null(file, memory);
    fprintf(file, ", \"system\": ");
    xccl_json_text(file, system.sysname);
    fprintf(file, ", \"release\": ");
    xccl_json_text(file, system.release);
    fprintf(file, ", \"architecture\": ");
    xccl_json_text(file, system.machine);
    fprintf(file, "},\n");
}
