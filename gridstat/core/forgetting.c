/* A channel closes: nothing in the core may point to it any more. */
#include "egress.h"
#include "forwarder.h"

static uint32_t leave_out(gs_channel **channels, uint32_t count, const gs_channel *channel)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++)
        if (channels[i] != channel)
            channels[kept++] = channels[i];
    return kept;
}

void gs_forget(gs_core *core, gs_channel *channel)
{
    core->backlog_count = leave_out(core->backlog, core->backlog_count, channel);
    core->probing_count = leave_out(core->probing, core->probing_count, channel);
    channel->is_backlogged = false;
    if (channel->queues != NULL)
        gs_egress_drop(channel, &core->pool);
}
