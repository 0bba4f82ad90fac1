/* SPDX-License-Identifier: BSD-3-Clause */
/* Covers: a point is made around a pair that has not met, the rest of it is the best of some draws;
 * a pair around which no point can be made is given up. Pure functions: any thread. */
#include "dev_world.h"

#include <stdlib.h>

#include "dev_points.h"
#include "xt.h"

#define DRAWS      24
#define POINTS_MAX 3000
#define VALUES_MAX DEV_ALGOS_MAX

/* Has every pair met? By dimension and value, the lesser dimension first. */
struct cover {
    uint8_t met[DEV_DIMENSIONS][DEV_DIMENSIONS][VALUES_MAX][VALUES_MAX];
};

unsigned dev_algos(struct dev_algo *algos_out)
{
    unsigned count = 0;

    for (int i = 0; xccl_generator_at(i); i++) {
        const struct xccl_generator *generator = xccl_generator_at(i);

        XT_CHECK(count + 2 <= DEV_ALGOS_MAX);
        algos_out[count++] = (struct dev_algo){generator, 0};
        if (generator->param_max)
            algos_out[count++] = (struct dev_algo){generator, generator->param_min};
    }
    return count;
}

/* Values of a dimension. */
static unsigned size_of(enum dev_dimension dimension)
{
    static const uint8_t sizes[DEV_DIMENSIONS] = {
        [DEV_PROTO] = XCCL_DEV_PROTOS,
        [DEV_TYPE] = xcclNumTypes,
        [DEV_OP] = DEV_OPS,
        [DEV_RANKS_LESS_1] = DEV_POINT_RANKS,
        [DEV_IN_AT] = 16,
        [DEV_OUT_AT] = 16,
        [DEV_IN_PLACE] = 2,
        [DEV_CHANNELS_LESS_1] = 4,
        [DEV_COUNT] = DEV_COUNTS,
        [DEV_SLOTS] = 3,
        [DEV_START] = 3,
    };
    struct dev_algo algos[DEV_ALGOS_MAX];

    return dimension == DEV_ALGO ? dev_algos(algos) : sizes[dimension];
}

int dev_point_normal(struct dev_point *point)
{
    struct dev_algo algos[DEV_ALGOS_MAX];
    unsigned count = dev_algos(algos);
    const struct dev_algo *algo = &algos[point->at[DEV_ALGO] % count];
    enum xccl_coll coll = algo->generator->coll;
    struct xccl_generator_for what = {.nranks = point->at[DEV_RANKS_LESS_1] + 1,
                                      .param = algo->param};

    if (algo->generator->serves && !algo->generator->serves(&what))
        return 0;
    if (!xccl_coll_reduces(coll))
        point->at[DEV_OP] = 0;
    if (coll == XCCL_COLL_ALL_TO_ALL)
        point->at[DEV_IN_PLACE] = 0;
    if (coll == XCCL_COLL_BARRIER)
        point->at[DEV_IN_PLACE] = point->at[DEV_TYPE] = point->at[DEV_COUNT] =
            point->at[DEV_IN_AT] = point->at[DEV_OUT_AT] = 0;
    if (point->at[DEV_IN_PLACE]) /* both lie where OUT does, or IN */
        point->at[DEV_IN_AT] = point->at[DEV_OUT_AT];
    return 1;
}

static struct dev_point draw(uint64_t *seed)
{
    struct dev_point point;

    for (int i = 0; i < DEV_DIMENSIONS; i++)
        point.at[i] = (uint8_t)(xt_random(seed) % size_of((enum dev_dimension)i));
    return point;
}

struct dev_point dev_point_random(uint64_t *seed)
{
    struct dev_point point;

    do {
        point = draw(seed);
    } while (!dev_point_normal(&point));
    return point;
}

/* Pairs of the point that have not met; with `mark` they have now. */
static unsigned count_new(struct cover *cover, const struct dev_point *point, int mark)
{
    unsigned count = 0;

    for (int a = 0; a < DEV_DIMENSIONS; a++)
        for (int b = a + 1; b < DEV_DIMENSIONS; b++) {
            uint8_t *met = &cover->met[a][b][point->at[a]][point->at[b]];

            count += !*met;
            *met |= (uint8_t)mark;
        }
    return count;
}

/* The best of some points in which this pair meets. 0: it does in none. */
static int around(struct cover *cover, int a, int b, const unsigned value[2], uint64_t *seed,
                  struct dev_point *point_out)
{
    unsigned best = 0;

    for (int i = 0; i < DRAWS; i++) {
        struct dev_point point = draw(seed);
        unsigned count;

        point.at[a] = (uint8_t)value[0];
        point.at[b] = (uint8_t)value[1];
        if (!dev_point_normal(&point) || point.at[a] != value[0] || point.at[b] != value[1])
            continue;
        count = count_new(cover, &point, 0);
        if (count > best) {
            best = count;
            *point_out = point;
        }
    }
    return best != 0;
}

static size_t cover_two(struct cover *cover, int a, int b, uint64_t *seed, struct dev_point *points)
{
    unsigned na = size_of((enum dev_dimension)a), nb = size_of((enum dev_dimension)b);
    size_t count = 0;

    for (unsigned i = 0; i < na * nb; i++) {
        const unsigned value[2] = {i / nb, i % nb};

        if (cover->met[a][b][value[0]][value[1]])
            continue;
        if (around(cover, a, b, value, seed, &points[count]))
            count_new(cover, &points[count++], 1);
    }
    return count;
}

struct dev_point *dev_points_pairs(uint64_t seed, size_t *count_out)
{
    struct cover *cover = calloc(1, sizeof *cover);
    struct dev_point *points = malloc(POINTS_MAX * sizeof *points);
    size_t count = 0;

    XT_CHECK(cover && points);
    /* First the dimensions with the most values, in whose points the others meet as well. */
    for (int turn = 0; turn < 2; turn++)
        for (int a = 0; a < DEV_DIMENSIONS; a++)
            for (int b = a + 1; b < DEV_DIMENSIONS; b++) {
                int is_large = size_of((enum dev_dimension)a) * size_of((enum dev_dimension)b) > 99;

                if (is_large == !turn)
                    count += cover_two(cover, a, b, &seed, points + count);
                XT_CHECK(count <= POINTS_MAX / 2);
            }
    free(cover);
    *count_out = count;
    return points;
}
