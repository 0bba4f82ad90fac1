/* SPDX-License-Identifier: BSD-3-Clause */
/* Which of libfabric's providers is used, and the line that says so. The fast networks are taken by
 * themselves, best first; what runs anywhere (tcp, net, udp, shm) only when it is asked for: there
 * XCCL's socket plugin is the better one. shm is refused: the README has what was seen.
 * Pure: any thread. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "ofi_int.h"

static const char *const ranking[] = {"efa-direct", "efa", "cxi", "verbs;ofi_rxm"};

int ofi_name_matches(const char *asked, const char *provider)
{
    size_t core = strcspn(provider, ";");

    return strcasecmp(asked, provider) == 0 ||
           (strlen(asked) == core && strncasecmp(asked, provider, core) == 0);
}

static const char *find(const char *const *names, int count, const char *asked)
{
    for (int i = 0; i < count; i++) {
        if (strcasecmp(asked, names[i]) == 0)
            return names[i];
    }
    for (int i = 0; i < count; i++) {
        if (ofi_name_matches(asked, names[i]))
            return names[i];
    }
    return NULL;
}

static void append(struct ofi_choice *choice, const char *text)
{
    size_t used = strlen(choice->line);

    snprintf(choice->line + used, sizeof(choice->line) - used, "%s", text);
}

static int is_ranked(const char *name)
{
    for (size_t i = 0; i < sizeof(ranking) / sizeof(ranking[0]); i++) {
        if (strcasecmp(ranking[i], name) == 0)
            return 1;
    }
    return 0;
}

static int seen_before(const char *const *names, int idx)
{
    for (int i = 0; i < idx; i++) {
        if (strcmp(names[i], names[idx]) == 0)
            return 1;
    }
    return 0;
}

/* Those that are here and were left. */
static void append_others(const char *const *names, int count, struct ofi_choice *choice)
{
    const char *lead = "; only when asked for (XCCL_OFI_PROVIDER): ";

    for (int i = 0; i < count; i++) {
        if (seen_before(names, i) || is_ranked(names[i]))
            continue;
        append(choice, lead);
        append(choice, names[i]);
        lead = ", ";
    }
}

static void choose_asked(const char *const *names, int count, const char *asked,
                         struct ofi_choice *choice)
{
    const char *provider = find(names, count, asked);

    if (ofi_name_matches("shm", asked)) {
        append(choice, "no provider: shm loses messages and crashes (libfabric 1.17); leave the "
                       "ranks of a host to XCCL's own shared memory, or take tcp;ofi_rxm");
        return;
    }
    choice->provider = provider;
    append(choice, provider ? provider : "no provider: not here is ");
    append(choice, provider ? ", as asked for" : asked);
}

void ofi_choose(const char *const *names, int count, const char *asked,
                struct ofi_choice *choice_out)
{
    const char *lead = "; ";

    choice_out->provider = NULL;
    choice_out->line[0] = 0;
    if (asked) {
        choose_asked(names, count, asked, choice_out);
        return;
    }
    for (size_t i = 0; i < sizeof(ranking) / sizeof(ranking[0]) && !choice_out->provider; i++)
        choice_out->provider = find(names, count, ranking[i]);
    append(choice_out, choice_out->provider ? choice_out->provider : "no provider");
    for (size_t i = 0; i < sizeof(ranking) / sizeof(ranking[0]); i++) {
        if (choice_out->provider && strcasecmp(choice_out->provider, ranking[i]) == 0)
            break;
        append(choice_out, lead);
        append(choice_out, ranking[i]);
        lead = ", ";
    }
    if (strcmp(lead, ", ") == 0)
        append(choice_out,
               choice_out->provider ? " would be better and are not here" : " are not here");
    append_others(names, count, choice_out);
}
