/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers from a seed. There is no generator to step on: draw N is computed from seed and N by the
 * finalizer of splitmix64, so that a test can ask for any of them again. Thread: any. */
#include "fault_int.h"

#define STEP      0x9e3779b97f4a7c15ull
#define HOLD_MOST 4
#define SWAP_MOST 16
#define POST_BITS 8 /* numbers of a fate's seed that fault_fate_draw uses; tests use later ones */
#define TWO_TO_53 9007199254740992.0

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

uint64_t fault_bits(uint64_t seed, uint32_t idx)
{
    return mix(seed + STEP * (idx + 1ull));
}

struct fault_stream fault_stream_open(const struct fault_ctx *ctx, enum fault_object object,
                                      uint32_t number)
{
    uint64_t seed = mix(ctx->setting.seed + STEP);

    seed = mix(seed ^ (uint64_t)(uint32_t)ctx->base.rank);
    seed = mix(seed ^ ((uint64_t)object << 32 | number));
    return (struct fault_stream){.seed = seed};
}

uint64_t fault_draw(struct fault_stream *stream)
{
    return mix(stream->seed + STEP * ++stream->draws);
}

int fault_chance(uint64_t bits, double rate)
{
    return (double)(bits >> 11) < rate * TWO_TO_53;
}

uint32_t fault_amount(uint64_t seed, uint32_t idx, double rate, uint32_t most)
{
    uint64_t bits = fault_bits(seed, idx);

    if (most == 0 || !fault_chance(bits, rate))
        return 0;
    return 1 + (uint32_t)(mix(bits) % most);
}

static enum fault_verdict verdict_draw(uint64_t seed, uint32_t idx, const struct fault_rates *rates)
{
    if (fault_chance(fault_bits(seed, idx), rates->dead))
        return FAULT_DEAD;
    return fault_chance(fault_bits(seed, idx + 1), rates->error) ? FAULT_ERROR : FAULT_NONE;
}

struct fault_fate fault_fate_draw(struct fault_stream *stream, const struct fault_setting *setting)
{
    const struct fault_rates *rates = &setting->rates;
    uint64_t seed = fault_draw(stream);
    struct fault_fate fate = {.draw = stream->draws, .seed = fault_bits(seed, POST_BITS)};

    fate.at_post = verdict_draw(seed, 0, rates);
    fate.at_test = verdict_draw(seed, 2, rates);
    fate.busy = fault_chance(fault_bits(seed, 4), rates->busy);
    fate.hold = fault_amount(seed, 5, rates->partial, HOLD_MOST);
    fate.late_us = fault_amount(seed, 6, rates->delay, setting->delay_us);
    fate.swap = fault_amount(seed, 7, rates->reorder, 1) * SWAP_MOST;
    return fate;
}
