/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes an ordinary test of a fuzz target: every file of corpus/NAME, then seeded mutations of
 * them, go through LLVMFuzzerTestOneInput. XT_FUZZ_RUNS sets how many mutations (default 20,000).
 * The same seed and corpus give the same inputs; a failure leaves the input in the output as hex
 * digits. Thread: one. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "xt.h"

#define MAX_FILES   256
#define INPUT_BYTES 12288 /* of a record: head and block */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct corpus {
    int nfiles;
    size_t bytes[MAX_FILES];
    uint8_t data[MAX_FILES][INPUT_BYTES];
    char name[MAX_FILES][256];
};

static struct corpus corpus;
static uint8_t current[INPUT_BYTES];
static size_t current_bytes;

static void show_current(int signal_number)
{
    char text[3];

    for (size_t i = 0; i < current_bytes; i++) {
        snprintf(text, sizeof(text), "%02x", current[i]);
        if (write(STDERR_FILENO, text, 2) != 2)
            break;
    }
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void run_input(const uint8_t *data, size_t bytes)
{
    uint8_t *exact = malloc(bytes ? bytes : 1);

    XT_CHECK(exact != NULL);
    memcpy(current, data, bytes);
    current_bytes = bytes;
    /* A block of just this size, so that a read past the end is a finding. */
    memcpy(exact, data, bytes);
    LLVMFuzzerTestOneInput(exact, bytes);
    free(exact);
}

static void corpus_read(void)
{
    char path[1024];
    struct dirent *entry;
    DIR *dir;

    snprintf(path, sizeof(path), XT_SOURCE_DIR "/tests/fuzz/corpus/%s",
             program_invocation_short_name);
    dir = opendir(path);

    while (dir && corpus.nfiles < MAX_FILES && (entry = readdir(dir))) {
        char name[1300];
        FILE *file;
        int i = corpus.nfiles;

        if (entry->d_name[0] == '.')
            continue;
        snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        file = fopen(name, "re");
        XT_CHECK(file != NULL);
        corpus.bytes[i] = fread(corpus.data[i], 1, INPUT_BYTES, file);
        snprintf(corpus.name[i], sizeof(corpus.name[i]), "%s", entry->d_name);
        corpus.nfiles++;
        fclose(file);
    }
    if (dir)
        closedir(dir);
}

/* One small change: a bit, a byte, a cut, a repeated part, or an extreme number. */
static size_t mutate(uint8_t *data, size_t bytes, uint64_t *state)
{
    static const uint8_t extremes[] = {0, 1, 0x7f, 0x80, 0xff};
    uint64_t dice = xt_random(state);
    size_t at = bytes ? (size_t)(xt_random(state) % bytes) : 0;

    switch (dice % 5) {
    case 0:
        if (bytes)
            data[at] ^= (uint8_t)(1u << (dice >> 8 & 7));
        return bytes;
    case 1:
        if (bytes)
            data[at] = extremes[(dice >> 8) % sizeof(extremes)];
        return bytes;
    case 2:
        return at;
    case 3:
        if (bytes + (bytes - at) > INPUT_BYTES)
            return bytes;
        memmove(data + bytes, data + at, bytes - at);
        return bytes + (bytes - at);
    default:
        if (bytes < INPUT_BYTES)
            data[bytes++] = (uint8_t)(dice >> 8);
        return bytes;
    }
}

XT_TEST(inputs_of_the_corpus_do_no_harm)
{
    signal(SIGSEGV, show_current);
    signal(SIGABRT, show_current);
    corpus_read();
    for (int i = 0; i < corpus.nfiles; i++) {
        printf("%s\n", corpus.name[i]);
        run_input(corpus.data[i], corpus.bytes[i]);
    }
    run_input(corpus.data[0], 0);
}

XT_TEST_DEADLINE(mutated_inputs_do_no_harm, 120)
{
    const char *runs_text = getenv("XT_FUZZ_RUNS");
    long runs = runs_text ? atol(runs_text) : 20000;
    uint64_t state = xt_seed();
    static uint8_t data[INPUT_BYTES];

    signal(SIGSEGV, show_current);
    signal(SIGABRT, show_current);
    corpus_read();
    for (long i = 0; i < runs; i++) {
        int file = corpus.nfiles ? (int)(xt_random(&state) % (uint64_t)corpus.nfiles) : 0;
        size_t bytes = corpus.bytes[file];
        uint64_t changes = 1 + xt_random(&state) % 8;

        memcpy(data, corpus.data[file], bytes);
        for (uint64_t change = 0; change < changes; change++)
            bytes = mutate(data, bytes, &state);
        run_input(data, bytes);
    }
}
