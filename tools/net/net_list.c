/* SPDX-License-Identifier: BSD-3-Clause */
/* xccl net list: every plugin found, what it offers, and why others were refused; as a table for
 * people or as one JSON object (schema/net_list.schema.json).
 *
 * Plugins are named through the setting XCCL_NET_PLUGIN, also those of the command line, so that
 * they are found and refused by the very rules that a communicator follows.
 *
 * Thread: the program's main thread. */
#include "net/net_list.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/param.h"
#include "command.h"
#include "json_text.h"
#include "option.h"
#include "plugin/net_default.h"
#include "plugin/net_plugin.h"
#include "xccl.h"

#define COMMAND     "net list"
#define ITEMS_BYTES XCCL_PARAM_VALUE_BYTES
#define CELL_BYTES  64

/* ---- collecting ---- */

/* A terminal obeys control characters, so none comes from a plugin. */
static void copy_text(char *to, size_t bytes, const char *from)
{
    snprintf(to, bytes, "%s", from ? from : "");
    for (; *to; to++) {
        if ((unsigned char)*to < 0x20 || *to == 0x7f)
            *to = '?';
    }
}

static void device_copy(const struct xccl_net *net, int dev, struct xccl_net_list_device *device)
{
    xcclNetProperties_v1 *props = &device->props;
    xcclResult_t rc;

    memset(props, 0, sizeof(*props));
    props->size = sizeof(*props);
    rc = net->calls.properties(net->ctx, dev, props);
    if (rc != xcclSuccess) {
        const char *why = net->calls.lastError(net->ctx);
        char text[XCCL_NET_TEXT_BYTES];

        snprintf(text, sizeof(text), "properties failed: %s", why ? why : xccl_result_text(rc));
        copy_text(device->name, sizeof(device->name), text);
        return;
    }
    device->known = 1;
    copy_text(device->name, sizeof(device->name), props->name);
    copy_text(device->pci_path, sizeof(device->pci_path), props->pciPath);
    copy_text(device->provider, sizeof(device->provider), props->provider);
    props->name = props->pciPath = props->provider = NULL;
    if (props->memberCount < 0 || props->memberCount > XCCL_NET_MAX_MEMBERS)
        props->memberCount = 0;
}

static struct xccl_net_list_entry *entry_add(struct xccl_net_list *list)
{
    if (list->count == list->room) {
        int room = list->room ? 2 * list->room : 8;
        void *grown = xccl_realloc(list->entries, (size_t)room * sizeof(*list->entries));

        if (!grown) {
            list->short_of_memory = 1;
            return NULL;
        }
        list->entries = grown;
        list->room = room;
    }
    memset(&list->entries[list->count], 0, sizeof(*list->entries));
    return &list->entries[list->count++];
}

static void see(void *user, const struct xccl_net_candidate *candidate)
{
    struct xccl_net_list *list = user;
    struct xccl_net_list_entry *entry = entry_add(list);
    const struct xccl_net *net = candidate->net;

    if (!entry)
        return;
    copy_text(entry->item, sizeof(entry->item), candidate->item);
    copy_text(entry->path, sizeof(entry->path), candidate->path);
    copy_text(entry->contracts, sizeof(entry->contracts), candidate->contracts);
    copy_text(entry->reason, sizeof(entry->reason), candidate->reason);
    if (candidate->reason || !net)
        return;
    entry->taken = 1;
    copy_text(entry->name, sizeof(entry->name), net->calls.name);
    /* A loader that knows one contract only does not say which it took. */
    copy_text(entry->contract, sizeof(entry->contract),
              net->contract[0] ? net->contract : candidate->contracts);
    copy_text(entry->wire_id, sizeof(entry->wire_id), net->wire_id);
    copy_text(entry->said, sizeof(entry->said), net->said);
    entry->wire_version = net->calls.wireVersion;
    entry->device_count = net->device_count;
    entry->shown_count = net->device_count < XCCL_NET_LIST_DEVICES ? net->device_count
                                                                   : XCCL_NET_LIST_DEVICES;
    entry->devices = xccl_calloc((size_t)entry->shown_count, sizeof(*entry->devices));
    if (!entry->devices) {
        entry->shown_count = 0;
        list->short_of_memory = 1;
    }
    for (int i = 0; i < entry->shown_count; i++)
        device_copy(net, i, &entry->devices[i]);
}

int xccl_net_list_collect(int all, struct xccl_net_list *list_out)
{
    memset(list_out, 0, sizeof(*list_out));
    if (xccl_net_survey(all, see, list_out) == xcclSuccess && !list_out->short_of_memory)
        return 1;
    xccl_net_list_free(list_out);
    return 0;
}

void xccl_net_list_free(struct xccl_net_list *list)
{
    for (int i = 0; i < list->count; i++)
        xccl_free(list->entries[i].devices);
    xccl_free(list->entries);
    memset(list, 0, sizeof(*list));
}

/* ---- words ---- */

void xccl_net_speed_text(uint32_t mbps, char *text_out, size_t bytes)
{
    if (mbps == 0)
        snprintf(text_out, bytes, "unknown");
    else if (mbps % 1000 == 0)
        snprintf(text_out, bytes, "%u Gb/s", mbps / 1000);
    else if (mbps > 1000)
        snprintf(text_out, bytes, "%.1f Gb/s", (double)mbps / 1000.0);
    else
        snprintf(text_out, bytes, "%u Mb/s", mbps);
}

static void bytes_text(uint64_t bytes, char text_out[CELL_BYTES])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t unit = 0;

    while (bytes && bytes % 1024 == 0 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text_out, CELL_BYTES, "%" PRIu64 " %s", bytes, units[unit]);
}

static const struct {
    uint32_t bit;
    const char *name;
} memories[] = {
    {XCCL_NET_PTR_HOST, "host"}, {XCCL_NET_PTR_CUDA, "cuda"}, {XCCL_NET_PTR_DMABUF, "dmabuf"}};
#define MEMORIES (sizeof(memories) / sizeof(memories[0]))

static void memory_text(uint32_t support, const char *between, char text_out[CELL_BYTES])
{
    size_t used = 0;

    snprintf(text_out, CELL_BYTES, "none");
    for (size_t i = 0; i < MEMORIES; i++) {
        if (support & memories[i].bit)
            used += (size_t)snprintf(text_out + used, CELL_BYTES - used, "%s%s",
                                     used ? between : "", memories[i].name);
    }
}

static void latency_text(float us, char text_out[CELL_BYTES])
{
    if (us > 0)
        snprintf(text_out, CELL_BYTES, "%.2f us", (double)us);
    else
        snprintf(text_out, CELL_BYTES, "unknown");
}

/* One line for people who read a list of facts. */
static void device_line(const struct xccl_net_list_device *device, char *text_out, size_t bytes)
{
    char speed[CELL_BYTES], memory[CELL_BYTES], largest[CELL_BYTES];

    if (!device->known) {
        snprintf(text_out, bytes, "device %s", device->name);
        return;
    }
    xccl_net_speed_text(device->props.speedMbps, speed, sizeof(speed));
    memory_text(device->props.ptrSupport, " and ", memory);
    bytes_text(device->props.maxBytes, largest);
    snprintf(
        text_out, bytes,
        "device %s%s, speed %s, %s memory%s, receives grouped up to %d, messages up to %s, %s%s%s",
        device->name, device->props.sameHost ? " (own host only)" : "", speed, memory,
        device->props.anyMemory ? " (registered or not)" : "", device->props.maxRecvs, largest,
        device->props.needsProgress ? "needs calls to deliver" : "delivers by itself",
        device->provider[0] ? ", provider " : "", device->provider);
}

void xccl_net_list_brief(const struct xccl_net_list_entry *entry, const char *title)
{
    char line[1024];

    if (!entry->taken) {
        printf("%s: %s: %s\n", title, entry->item, entry->reason);
        return;
    }
    printf("%s: %s: taken: %s, contract %s, %d device%s, wire %s\n", title, entry->item,
           entry->path, entry->contract, entry->device_count, entry->device_count == 1 ? "" : "s",
           entry->wire_id);
    for (int i = 0; i < entry->shown_count; i++) {
        device_line(&entry->devices[i], line, sizeof(line));
        printf("%s: %s: %s\n", title, entry->item, line);
    }
}

const char *xccl_net_list_first(const struct xccl_net_list *list)
{
    for (int i = 0; i < list->count; i++) {
        if (list->entries[i].taken)
            return list->entries[i].item;
    }
    return NULL;
}

/* The machine's own list; NULL: a user has named another one. */
static const struct xccl_net_default *own_list(void)
{
    return xccl_net_is_auto(xccl_param_string(XCCL_P_NET_PLUGIN)) ? xccl_net_default() : NULL;
}

void xccl_net_list_why(const struct xccl_net_list *list, const char *title)
{
    const struct xccl_net_default *own = own_list();
    const char *first = xccl_net_list_first(list);

    printf("%s: between hosts: %s%s\n", title, first ? first : "none, ranks on one host only",
           first ? ", if the other hosts have it too" : "");
    if (!own)
        printf("%s: list: %s (XCCL_NET_PLUGIN)\n", title, xccl_param_string(XCCL_P_NET_PLUGIN));
    else
        printf("%s: list: %s (XCCL_NET_PLUGIN is " XCCL_NET_AUTO ")\n", title, own->list);
    for (int i = 0; own && i < XCCL_NET_DEFAULTS; i++)
        printf("%s: list: %s is %s: %s\n", title, own->items[i].name,
               own->items[i].listed ? "in it" : "not in it", own->items[i].why);
}

/* ---- the table ---- */

enum { COLUMNS = 9 };
static const char *const heads[COLUMNS] = {"device", "reaches",         "speed",
                                           "memory", "largest message", "receives",
                                           "sends",  "latency",         "provider"};

static void device_cells(const struct xccl_net_list_device *device,
                         char cells[COLUMNS][XCCL_NET_TEXT_BYTES])
{
    memset(cells, 0, (size_t)COLUMNS * XCCL_NET_TEXT_BYTES);
    snprintf(cells[0], XCCL_NET_TEXT_BYTES, "%s", device->name);
    if (!device->known)
        return;
    snprintf(cells[1], XCCL_NET_TEXT_BYTES, "%s",
             device->props.sameHost ? "own host" : "all hosts");
    xccl_net_speed_text(device->props.speedMbps, cells[2], XCCL_NET_TEXT_BYTES);
    memory_text(device->props.ptrSupport, "+", cells[3]);
    if (device->props.anyMemory)
        strncat(cells[3], " (any)", XCCL_NET_TEXT_BYTES - strlen(cells[3]) - 1);
    bytes_text(device->props.maxBytes, cells[4]);
    snprintf(cells[5], XCCL_NET_TEXT_BYTES, "by %d", device->props.maxRecvs);
    snprintf(cells[6], XCCL_NET_TEXT_BYTES, "%s",
             device->props.needsProgress ? "need calls" : "by themselves");
    latency_text(device->props.latencyUs, cells[7]);
    snprintf(cells[8], XCCL_NET_TEXT_BYTES, "%s", device->provider[0] ? device->provider : "none");
}

static void print_devices(const struct xccl_net_list_entry *entry)
{
    char cells[COLUMNS][XCCL_NET_TEXT_BYTES];
    int widths[COLUMNS];

    for (int i = 0; i < COLUMNS; i++)
        widths[i] = (int)strlen(heads[i]);
    for (int row = 0; row < entry->shown_count; row++) {
        device_cells(&entry->devices[row], cells);
        for (int i = 0; i < COLUMNS; i++) {
            if ((int)strlen(cells[i]) > widths[i])
                widths[i] = (int)strlen(cells[i]);
        }
    }
    printf("  ");
    for (int i = 0; i < COLUMNS; i++)
        printf(" %-*s%s", i + 1 < COLUMNS ? widths[i] : 0, heads[i], i + 1 < COLUMNS ? " " : "\n");
    for (int row = 0; row < entry->shown_count; row++) {
        device_cells(&entry->devices[row], cells);
        printf("  ");
        for (int i = 0; i < COLUMNS; i++)
            printf(" %-*s%s", i + 1 < COLUMNS ? widths[i] : 0, cells[i],
                   i + 1 < COLUMNS ? " " : "\n");
        if (entry->devices[row].pci_path[0])
            printf("     at %s\n", entry->devices[row].pci_path);
    }
    if (entry->device_count > entry->shown_count)
        printf("   and %d more\n", entry->device_count - entry->shown_count);
}

static void print_taken(const struct xccl_net_list_entry *entry)
{
    printf("%s\n", entry->item);
    printf("   file      %s\n", entry->path);
    printf("   contract  %s", entry->contract);
    if (strcmp(entry->contracts, entry->contract) != 0)
        printf(" (of %s)", entry->contracts);
    printf("\n   wire      %s\n", entry->wire_id);
    if (entry->device_count > 0 && entry->devices[0].props.flags & XCCL_NET_DEVICE_ENCRYPTS)
        printf("   encrypts  on request (XCCL_NET_ENCRYPT)\n");
    if (entry->said[0])
        printf("   says      %s\n", entry->said);
    printf("\n");
    print_devices(entry);
    printf("\n");
}

/* What the machine's own list leaves out. */
static void print_left_out(void)
{
    const struct xccl_net_default *own = own_list();
    int shown = 0;

    for (int i = 0; own && i < XCCL_NET_DEFAULTS; i++) {
        if (own->items[i].listed)
            continue;
        printf("%s   %s: %s\n", shown++ ? "" : "not in the list (XCCL_NET_PLUGIN is auto):\n",
               own->items[i].name, own->items[i].why);
    }
}

static void print_table(const struct xccl_net_list *list)
{
    int refused = 0;

    for (int i = 0; i < list->count; i++) {
        if (list->entries[i].taken)
            print_taken(&list->entries[i]);
        else
            refused++;
    }
    if (refused)
        printf("refused:\n");
    for (int i = 0; i < list->count; i++) {
        const struct xccl_net_list_entry *entry = &list->entries[i];

        if (entry->taken)
            continue;
        printf("   %s", entry->item);
        if (entry->path[0] && !strstr(entry->reason, entry->path) &&
            strcmp(entry->path, entry->item) != 0)
            printf(" (%s)", entry->path);
        printf(": %s\n", entry->reason);
    }
    if (list->count == 0)
        printf("no plugin: %s\n", strcmp(xccl_param_string(XCCL_P_NET_PLUGIN), "none") == 0
                                      ? "XCCL_NET_PLUGIN is none"
                                      : "nothing was found in the folders searched");
}

/* ---- JSON ---- */

static void json_words(const char *words)
{
    char copy[256];
    char *rest = NULL;
    const char *between = "";

    snprintf(copy, sizeof(copy), "%s", words);
    fputc('[', stdout);
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        fputs(between, stdout);
        xccl_json_text(stdout, word);
        between = ", ";
    }
    fputc(']', stdout);
}

static void json_members(const xcclNetProperties_v1 *props)
{
    const char *between = "";

    printf("\"memory\": [");
    for (size_t i = 0; i < MEMORIES; i++) {
        if (!(props->ptrSupport & memories[i].bit))
            continue;
        printf("%s\"%s\"", between, memories[i].name);
        between = ", ";
    }
    printf("], \"members\": [");
    for (int i = 0; i < props->memberCount; i++)
        printf("%s%d", i ? ", " : "", props->members[i]);
    printf("]");
}

/* 0 means "not known" in the contract, and null here. */
static void json_known(const char *name, uint64_t value)
{
    if (value)
        printf(", \"%s\": %" PRIu64, name, value);
    else
        printf(", \"%s\": null", name);
}

static void json_device(const struct xccl_net_list_device *device, int index)
{
    const xcclNetProperties_v1 *props = &device->props;

    printf("%s\n      {\"index\": %d, ", index ? "," : "", index);
    if (!device->known) {
        printf("\"name\": null, \"error\": ");
        xccl_json_text(stdout, device->name);
        printf("}");
        return;
    }
    printf("\"name\": ");
    xccl_json_text(stdout, device->name);
    printf(", \"pci_path\": ");
    xccl_json_text_or_null(stdout, device->pci_path);
    printf(", \"provider\": ");
    xccl_json_text_or_null(stdout, device->provider);
    printf(",\n       ");
    json_members(props);
    json_known("speed_mbps", props->speedMbps);
    printf(", \"latency_us\": ");
    if (props->latencyUs > 0)
        xccl_json_number(stdout, (double)props->latencyUs, 3);
    else
        printf("null");
    json_known("max_comms", props->maxComms > 0 ? (uint64_t)props->maxComms : 0);
    json_known("chunk_bytes", props->chunkBytes);
    /* 64 bits do not fit the numbers of most readers of JSON. */
    printf(",\n       \"guid\": \"%016" PRIx64 "\", \"port\": %d, \"max_recvs\": %d"
           ", \"max_bytes\": %" PRIu64 ", \"store_bytes\": %u, \"rail_id\": %d, \"plane_id\": %d",
           props->guid, props->port, props->maxRecvs, (uint64_t)props->maxBytes, props->storeBytes,
           props->railId, props->planeId);
    printf(",\n       \"needs_progress\": %s, \"force_flush\": %s, \"registration_is_global\": %s"
           ", \"same_host\": %s, \"any_memory\": %s}",
           props->needsProgress ? "true" : "false", props->forceFlush ? "true" : "false",
           props->regIsGlobal ? "true" : "false", props->sameHost ? "true" : "false",
           props->anyMemory ? "true" : "false");
}

static void json_entry(const struct xccl_net_list_entry *entry, int first)
{
    printf("%s\n    {\"item\": ", first ? "" : ",");
    xccl_json_text(stdout, entry->item);
    printf(", \"taken\": %s, \"path\": ", entry->taken ? "true" : "false");
    xccl_json_text_or_null(stdout, entry->path);
    printf(", \"reason\": ");
    xccl_json_text_or_null(stdout, entry->reason);
    printf(",\n     \"contracts\": ");
    json_words(entry->contracts);
    if (!entry->taken) {
        printf(", \"devices\": []}");
        return;
    }
    printf(", \"contract\": ");
    xccl_json_text(stdout, entry->contract);
    printf(", \"name\": ");
    xccl_json_text(stdout, entry->name);
    printf(", \"wire_id\": ");
    xccl_json_text(stdout, entry->wire_id);
    printf(", \"says\": ");
    xccl_json_text_or_null(stdout, entry->said);
    printf(", \"wire_version\": %u,\n     \"device_count\": %d, \"devices\": [",
           entry->wire_version, entry->device_count);
    for (int i = 0; i < entry->shown_count; i++)
        json_device(&entry->devices[i], i);
    printf("]}");
}

/* Which plugin it would be, and why those of the machine's own list are in it or not. */
static void json_choice(const struct xccl_net_list *list)
{
    const struct xccl_net_default *own = own_list();
    const char *first = xccl_net_list_first(list);

    printf("  \"choice\": {\"plugin\": ");
    xccl_json_text_or_null(stdout, first ? first : "");
    printf(", \"automatic\": %s, \"items\": [", own ? "true" : "false");
    for (int i = 0; own && i < XCCL_NET_DEFAULTS; i++) {
        printf("%s\n    {\"item\": ", i ? "," : "");
        xccl_json_text(stdout, own->items[i].name);
        printf(", \"listed\": %s, \"why\": ", own->items[i].listed ? "true" : "false");
        xccl_json_text(stdout, own->items[i].why);
        printf("}");
    }
    printf("]},\n");
}

/* all 1: every file that was found, not a list of which one is chosen. */
static void print_json(const struct xccl_net_list *list, int all)
{
    printf("{\n  \"xccl_version\": \"%d.%d.%d\",\n", XCCL_MAJOR, XCCL_MINOR, XCCL_PATCH);
    if (!all)
        json_choice(list);
    printf("  \"plugins\": [");
    for (int i = 0; i < list->count; i++)
        json_entry(&list->entries[i], i == 0);
    printf("\n  ]\n}\n");
}

/* ---- the command ---- */

static const struct option long_options[] = {
    {"all", no_argument, NULL, 'a'}, {"json", no_argument, NULL, 'j'}, {NULL, 0, NULL, 0}};

/* Makes the items of the command line the setting's value. An exit status. */
static int set_items(int count, char **items)
{
    char value[ITEMS_BYTES + 1];
    size_t used = 0;

    for (int i = 0; i < count; i++) {
        size_t bytes = strlen(items[i]);

        if (bytes == 0 || strpbrk(items[i], ",\n") || strcmp(items[i], "none") == 0)
            return xccl_option_usage(COMMAND, "\"%s\" is not the name or path of a plugin",
                                     items[i]);
        if (used + bytes + 2 > sizeof(value))
            return xccl_option_usage(COMMAND, "too many plugins for one call");
        used += (size_t)snprintf(value + used, sizeof(value) - used, "%s%s", used ? "," : "",
                                 items[i]);
    }
    if (count && setenv("XCCL_NET_PLUGIN", value, 1))
        return xccl_option_usage(COMMAND, "no memory for these plugins");
    return XCCL_EXIT_OK;
}

/* With items: 1 when each of them was taken at least once. Else: when any was. */
static int all_well(const struct xccl_net_list *list, int item_count, char **items)
{
    int taken = 0, missing = 0;

    for (int i = 0; i < list->count; i++)
        taken += list->entries[i].taken;
    for (int k = 0; k < item_count; k++) {
        int found = 0;

        for (int i = 0; i < list->count; i++)
            found += list->entries[i].taken && strcmp(list->entries[i].item, items[k]) == 0;
        missing += !found;
    }
    return item_count ? !missing : taken > 0;
}

int xccl_net_list_main(int argc, char **argv)
{
    struct xccl_net_list list;
    int all = 0, json = 0, code = 0, status = XCCL_EXIT_OK;

    opterr = 0;
    while ((code = getopt_long(argc, argv, ":", long_options, NULL)) != -1) {
        if (code == '?' || code == ':')
            return xccl_option_unknown(COMMAND, code, argc, argv, long_options);
        all |= code == 'a';
        json |= code == 'j';
    }
    if (all && optind < argc)
        return xccl_option_usage(COMMAND, "--all takes no plugin names, but %s was given",
                                 argv[optind]);
    status = set_items(argc - optind, argv + optind);
    if (status)
        return status;
    if (xccl_param_load() != xcclSuccess) {
        xccl_option_tell_error("xccl " COMMAND);
        return XCCL_EXIT_FAILURE;
    }
    if (!xccl_net_list_collect(all, &list)) {
        xccl_option_tell_error("xccl " COMMAND);
        return XCCL_EXIT_FAILURE;
    }
    if (json)
        print_json(&list, all);
    else
        print_table(&list);
    if (!json && !all)
        print_left_out();
    if (!all_well(&list, argc - optind, argv + optind))
        status = XCCL_EXIT_FAILURE;
    xccl_net_list_free(&list);
    return status;
}

const char xccl_net_list_help[] =
    "usage: xccl net list [--all] [--json] [ITEM...]\n"
    "\n"
    "Opens plugins as a communicator would and shows what each offers: its file, the versions\n"
    "of the plugin contract that it exports and the one in use, its wire id (two ends can\n"
    "communicate if their wire ids are equal), what it reports about itself and its library's\n"
    "settings, and its devices. Without arguments, shows the plugins of XCCL_NET_PLUGIN.\n"
    "\n"
    "  ITEM     a plugin's name or path, as in XCCL_NET_PLUGIN: socket, fault:socket,\n"
    "           /opt/x/libnccl-net.so, socket@v10\n"
    "  --all    show every plugin file in the folders that are searched\n"
    "  --json   print one JSON object; the schema is share/xccl/schema/net_list.schema.json\n"
    "\n"
    "Columns of a device:\n"
    "  device, provider  its name, and the provider of its network library if there is one\n"
    "  reaches           `all hosts`, or only ranks on its `own host` and network namespace\n"
    "  speed, latency    as the device reports them; not measured\n"
    "  memory            memory that the device reads and writes itself (host, cuda, dmabuf);\n"
    "                    `(any)`: unregistered memory too, so XCCL need not copy large messages\n"
    "  largest message   the size limit of one message\n"
    "  receives          `by 4`: up to four receives may be posted together\n"
    "  sends             `by themselves`: once a send is reported as done, its data arrives even\n"
    "                    if the sender makes no further calls; `need calls`: the sender must keep\n"
    "                    calling the plugin\n"
    "\n"
    "Exit status: 0; 1 if a plugin that was named cannot be used, or none can be; 2 for wrong\n"
    "arguments.\n";
