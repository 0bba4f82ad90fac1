/* SPDX-License-Identifier: BSD-3-Clause */
/* What the suite says: a line a case and form, an explanation below a failure, a sum at the end;
 * the same as one JSON object; and the lists of cases that are skipped for a plugin.
 *
 * Thread: the runner's. */
#include "cf_run.h"

#include <errno.h>
#include <fnmatch.h>
#include <string.h>
#include <unistd.h>

#define LIST_COLUMNS 96

/* ---- skip lists ---- */

/* Lines "case-pattern: reason"; # begins a comment. */
static void skips_read(struct cf_skips *skips, FILE *file)
{
    char line[256];

    while (fgets(line, sizeof(line), file) &&
           skips->count < (int)(sizeof(skips->lines) / sizeof(skips->lines[0]))) {
        struct cf_skip_line *skip = &skips->lines[skips->count];
        char *colon = strchr(line, ':');

        line[strcspn(line, "\n")] = 0;
        if (line[0] == '#' || !colon)
            continue;
        *colon = 0;
        snprintf(skip->pattern, sizeof(skip->pattern), "%.63s", line + strspn(line, " \t"));
        snprintf(skip->reason, sizeof(skip->reason), "%.159s",
                 colon + 1 + strspn(colon + 1, " \t"));
        skips->count++;
    }
}

/* The list that is installed for a plugin: ../share/xccl/conformance, seen from the program. */
static int own_list(const char *plugin, char *path, size_t bytes)
{
    char program[512];
    ssize_t got = readlink("/proc/self/exe", program, sizeof(program) - 1);
    char *slash;

    if (got <= 0)
        return 0;
    program[got] = 0;
    slash = strrchr(program, '/');
    if (!slash)
        return 0;
    *slash = 0;
    snprintf(path, bytes, "%s/../share/xccl/conformance/%.40s.skip", program, plugin);
    return 1;
}

int cf_skips_load(struct cf_skips *skips, const char *path, const char *plugin)
{
    char own[600];
    FILE *file;

    if (!path) {
        if (!own_list(plugin, own, sizeof(own)))
            return 1;
        file = fopen(own, "re");
        if (!file)
            return 1;
    } else {
        file = fopen(path, "re");
        if (!file) {
            fprintf(stderr, "xccl net check: cannot read %s: %s\n", path, strerrordesc_np(errno));
            return 0;
        }
    }
    skips_read(skips, file);
    fclose(file);
    return 1;
}

const char *cf_skips_find(const struct cf_skips *skips, const char *test)
{
    for (int i = 0; i < skips->count; i++) {
        if (fnmatch(skips->lines[i].pattern, test, 0) == 0)
            return skips->lines[i].reason;
    }
    return NULL;
}

/* ---- output ---- */

static void json_text(FILE *file, const char *text)
{
    fputc('"', file);
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        if (*at == '"' || *at == '\\')
            fprintf(file, "\\%c", *at);
        else if (*at == '\n')
            fputs("\\n", file);
        else if (*at < 0x20 || *at >= 0x7f)
            fprintf(file, "\\u%04x", *at);
        else
            fputc(*at, file);
    }
    fputc('"', file);
}

static void json_field(FILE *file, const char *name, const char *text)
{
    fprintf(file, "\"%s\": ", name);
    json_text(file, text);
}

static void json_begin(FILE *file, const struct xccl_conformance_options *options,
                       const struct cf_shared *plugin)
{
    fputs("{", file);
    json_field(file, "xccl", XCCL_CONFORMANCE_VERSION);
    fputs(", ", file);
    json_field(file, "item", options->item);
    fputs(", ", file);
    json_field(file, "plugin", plugin->name);
    fputs(", ", file);
    json_field(file, "contract", plugin->contract);
    fputs(", ", file);
    json_field(file, "path", plugin->path);
    fprintf(file, ", \"device\": %d, \"quick\": %s, \"max_bytes\": %llu,\n \"cases\": [",
            (int)options->device, options->quick ? "true" : "false",
            (unsigned long long)options->max_bytes);
}

int cf_report_begin(struct cf_report *report, const struct xccl_conformance_options *options,
                    const struct cf_shared *plugin)
{
    *report = (struct cf_report){.lines = stdout, .json_path = options->json_path, .first = 1};
    report->options = options;
    report->brief = options->repeat > 1;
    if (options->json_path && strcmp(options->json_path, "-") == 0) {
        report->lines = stderr;
        report->json = stdout;
    } else if (options->json_path) {
        report->json = fopen(options->json_path, "we");
        if (!report->json) {
            fprintf(stderr, "xccl net check: cannot write %s: %s\n", options->json_path,
                    strerrordesc_np(errno));
            return 0;
        }
    }
    fprintf(report->lines, "# plugin %s, contract %s, device %d (%s), %s\n", plugin->name,
            plugin->contract, (int)options->device, plugin->device, plugin->path);
    if (report->json)
        json_begin(report->json, options, plugin);
    return 1;
}

static const char *verdict_name(int verdict)
{
    static const char *const names[] = {
        [CF_NONE] = "failed",     [CF_PASSED] = "passed", [CF_FAILED] = "failed",
        [CF_SKIPPED] = "skipped", [CF_NOTED] = "noted",   [CF_LEFT_OUT] = "left out"};

    return names[verdict];
}

static void rule_text(const struct cf_case *test, char *text, size_t bytes)
{
    if (test->rule)
        snprintf(text, bytes, "rule %d: %s", test->rule, test->text);
    else
        snprintf(text, bytes, "%s", test->text);
}

static void json_task(struct cf_report *report, const struct cf_task *task)
{
    FILE *file = report->json;

    fputs(report->first ? "\n  {" : ",\n  {", file);
    report->first = 0;
    json_field(file, "case", task->test->name);
    fputs(", ", file);
    json_field(file, "form", cf_form_name(task->form));
    fprintf(file, ", \"rule\": %d, ", task->test->rule);
    json_field(file, "text", task->test->text);
    fputs(", ", file);
    json_field(file, "verdict", verdict_name(task->verdict));
    fputs(", ", file);
    json_field(file, "reason", task->text);
    fprintf(file, ", \"seed\": %llu, \"ms\": %llu}", (unsigned long long)task->seed,
            (unsigned long long)task->ms);
}

/* The explanation, each line indented. */
static void print_text(FILE *file, const char *text)
{
    while (*text) {
        size_t bytes = strcspn(text, "\n");

        fprintf(file, "      %.*s\n", (int)bytes, text);
        text += bytes + (text[bytes] == '\n');
    }
}

static void count(struct cf_report *report, const struct cf_task *task)
{
    unsigned *forms = task->verdict == CF_LEFT_OUT ? report->left_forms : report->run_forms;
    const struct cf_case *test;

    report->passed += task->verdict == CF_PASSED;
    report->failed += task->verdict == CF_FAILED;
    report->skipped += task->verdict == CF_SKIPPED;
    report->noted += task->verdict == CF_NOTED;
    report->left_out += task->verdict == CF_LEFT_OUT;
    for (int i = 0; i < CF_CASES_MAX && (test = cf_case_at(i)); i++)
        forms[i] |= test == task->test ? task->form : 0;
}

void cf_report_task(struct cf_report *report, const struct cf_task *task)
{
    /* What was not even begun is in the list at the end. */
    int told = task->verdict == CF_LEFT_OUT ? task->text[0] != 0
                                            : !report->brief || task->verdict == CF_FAILED;
    char rule[160];

    rule_text(task->test, rule, sizeof(rule));
    if (told)
        fprintf(report->lines, "%-7s %-34s %-10s %6llu ms  %s\n",
                task->verdict == CF_LEFT_OUT ? "cut off" : verdict_name(task->verdict),
                task->test->name, cf_form_name(task->form), (unsigned long long)task->ms, rule);
    if (told && (task->verdict != CF_PASSED || task->again))
        print_text(report->lines, task->text);
    if (task->verdict == CF_FAILED)
        fprintf(report->lines, "      again: --case %s --form %s --seed %llu\n", task->test->name,
                cf_form_name(task->form), (unsigned long long)task->seed);
    fflush(report->lines);
    count(report, task);
    if (report->json)
        json_task(report, task);
}

/* A word of the list below, on a new line where this one is full. */
static void list_word(FILE *file, const char *word, int *column)
{
    if (*column && *column + (int)strlen(word) + 1 > LIST_COLUMNS) {
        fputc('\n', file);
        *column = 0;
    }
    *column += fprintf(file, "%s%s", *column ? " " : "   ", word);
}

/* Which cases were left out, with their forms where others of the case did run. */
static void list_left_out(const struct cf_report *report)
{
    const struct xccl_conformance_options *options = report->options;
    const struct cf_case *test;
    int column = 0;

    fprintf(report->lines, "left out, since the run had to end within %llu.%llu s:\n",
            (unsigned long long)(options->within_ms / 1000),
            (unsigned long long)(options->within_ms % 1000 / 100));
    for (int i = 0; i < CF_CASES_MAX && (test = cf_case_at(i)); i++) {
        char word[160];
        size_t used = 0;

        if (!report->left_forms[i])
            continue;
        used = (size_t)snprintf(word, sizeof(word), "%s", test->name);
        for (unsigned form = 1; report->run_forms[i] && form < CF_FORM_END; form <<= 1) {
            if (report->left_forms[i] & form)
                used += (size_t)snprintf(word + used, sizeof(word) - used, "/%s",
                                         cf_form_name(form));
        }
        list_word(report->lines, word, &column);
    }
    fprintf(report->lines,
            "\nfor all of them, repeat this command with --within 0; for one, with --case NAME\n");
}

int cf_report_end(struct cf_report *report, uint64_t ms)
{
    int good = 1;

    if (report->left_out)
        list_left_out(report);
    fprintf(report->lines,
            "%d passed, %d failed, %d skipped, %d noted, %d left out in %llu.%llu s\n",
            report->passed, report->failed, report->skipped, report->noted, report->left_out,
            (unsigned long long)(ms / 1000), (unsigned long long)(ms % 1000 / 100));
    if (!report->json)
        return 1;
    fprintf(report->json,
            "\n ],\n \"passed\": %d, \"failed\": %d, \"skipped\": %d, \"noted\": %d, "
            "\"left_out\": %d, \"ms\": %llu}\n",
            report->passed, report->failed, report->skipped, report->noted, report->left_out,
            (unsigned long long)ms);
    good = !ferror(report->json);
    if (report->json == stdout)
        return fflush(stdout) == 0 && good;
    if (fclose(report->json) != 0 || !good) {
        fprintf(stderr, "xccl net check: cannot write %s\n", report->json_path);
        return 0;
    }
    return 1;
}
