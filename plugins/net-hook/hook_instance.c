/* SPDX-License-Identifier: BSD-3-Clause */
/* An instance of a hook around an instance of the wrapped plugin, which gets a copy of what XCCL
 * told us, with the next plugin of the chain as its own inner. Thread: as the contract says. */
#include "net_hook.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

/* Whether a struct is large enough to have this pointer. */
#define HAS_POINTER(object, type, field) ((object)->size >= offsetof(type, field) + sizeof(void *))

xcclResult_t hook_pass(const struct hook_ctx *ctx, xcclResult_t rc)
{
    if (rc != xcclSuccess)
        xccl_error_set_text(ctx->plugin->lastError(ctx->inner));
    return rc;
}

int hook_is_given(const xcclNetInit_v1 *init)
{
    const xcclNetInner_v1 *inner = HAS_POINTER(init, xcclNetInit_v1, inner) ? init->inner : NULL;

    return inner && HAS_POINTER(inner, xcclNetInner_v1, plugin) && inner->plugin;
}

/* What is wrapped, NULL after an error text. */
static const xcclNetInner_v1 *wrapped_find(const struct hook_shape *shape,
                                           const xcclNetInit_v1 *init)
{
    if (!hook_is_given(init)) {
        xccl_fail_quietly(xcclInvalidUsage, 0, NULL,
                          "%s is a hook around another network plugin: write %s:socket",
                          shape->name, shape->name);
        return NULL;
    }
    if (init->inner->plugin->size < sizeof(xcclNetPlugin_v1_t)) {
        xccl_fail_quietly(xcclInvalidUsage, 0, "use hooks and libxccl of one build",
                          "the table of the plugin that %s wraps has %zu bytes, but %zu are needed",
                          shape->name, init->inner->plugin->size, sizeof(xcclNetPlugin_v1_t));
        return NULL;
    }
    return init->inner;
}

xcclResult_t hook_init(const struct hook_shape *shape, const xcclNetInit_v1 *init,
                       struct hook_ctx **ctx_out)
{
    const xcclNetInner_v1 *inner = wrapped_find(shape, init);
    xcclNetInit_v1 copy = {.size = 0};
    struct hook_ctx *ctx;
    xcclResult_t rc;

    if (!inner)
        return xcclInvalidUsage;
    ctx = xccl_calloc_aligned(64, shape->ctx_bytes);
    if (!ctx)
        return xcclSystemError;
    copy.size = sizeof(copy) < init->size ? sizeof(copy) : init->size;
    memcpy((char *)&copy + sizeof(copy.size), (const char *)init + sizeof(copy.size),
           copy.size - sizeof(copy.size));
    copy.inner = HAS_POINTER(inner, xcclNetInner_v1, inner) ? inner->inner : NULL;
    ctx->shape = shape;
    ctx->plugin = inner->plugin;
    ctx->log = init->log;
    ctx->rank = init->rank;
    rc = ctx->plugin->init(&copy, &ctx->inner);
    if (rc != xcclSuccess) {
        xccl_error_set_text(ctx->plugin->lastError(NULL));
        xccl_free(ctx);
        return rc;
    }
    pthread_mutex_init(&ctx->lock, NULL);
    *ctx_out = ctx;
    return xcclSuccess;
}

xcclResult_t hook_finalize(xcclNetContext_t ctx_)
{
    struct hook_ctx *ctx = ctx_;
    xcclResult_t rc;

    while (ctx->connects)
        hook_close_connect(ctx, ctx->connects);
    rc = ctx->plugin->finalize(ctx->inner);
    if (rc != xcclSuccess)
        xccl_error_set_text(ctx->plugin->lastError(NULL)); /* the instance is gone */
    pthread_mutex_destroy(&ctx->lock);
    xccl_free(ctx);
    return rc;
}

xcclResult_t hook_devices(xcclNetContext_t ctx_, int *count)
{
    const struct hook_ctx *ctx = ctx_;

    return hook_pass(ctx, ctx->plugin->devices(ctx->inner, count));
}

xcclResult_t hook_properties(xcclNetContext_t ctx_, int dev, xcclNetProperties_v1 *props)
{
    const struct hook_ctx *ctx = ctx_;

    return hook_pass(ctx, ctx->plugin->properties(ctx->inner, dev, props));
}

xcclResult_t hook_stats(xcclNetContext_t ctx_, int dev, xcclNetStats_v1 *stats)
{
    const struct hook_ctx *ctx = ctx_;

    return hook_pass(ctx, ctx->plugin->stats(ctx->inner, dev, stats));
}

xcclResult_t hook_progress(xcclNetContext_t ctx_, int *pending)
{
    const struct hook_ctx *ctx = ctx_;

    return hook_pass(ctx, ctx->plugin->progress(ctx->inner, pending));
}

xcclResult_t hook_merge_devices(xcclNetContext_t ctx_, const int *devs, int count, int *dev)
{
    const struct hook_ctx *ctx = ctx_;

    return hook_pass(ctx, ctx->plugin->mergeDevices(ctx->inner, devs, count, dev));
}

const char *hook_last_error(xcclNetContext_t ctx)
{
    (void)ctx;
    return xccl_error_text();
}
