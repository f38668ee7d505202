/* What leaves the core: open datagrams at once, paced channels as their lines come free. */
#include "egress.h"
#include "forwarder.h"

static void note_backlog(gs_core *core, gs_channel *channel, uint64_t again_ns)
{
    if (again_ns == GS_IDLE_NS)
        return;
    channel->is_backlogged = true;
    core->backlog[core->backlog_count++] = channel;
    if (again_ns < core->wake_ns)
        core->wake_ns = again_ns;
}

static void pump_channel(gs_core *core, gs_channel *channel, uint64_t steady_ns)
{
    gs_pumping pumping = {.pool = &core->pool, .latency = &core->latency, .now_ns = steady_ns};
    note_backlog(core, channel, gs_egress_pump(channel, &pumping));
}

void gs_pump(gs_core *core, uint64_t steady_ns)
{
    uint32_t count = core->backlog_count;
    core->backlog_count = 0;
    core->wake_ns = GS_IDLE_NS;
    for (uint32_t i = 0; i < count; i++) {
        core->backlog[i]->is_backlogged = false;
        pump_channel(core, core->backlog[i], steady_ns);
    }
}

void gs_flush(gs_core *core, uint64_t steady_ns)
{
    for (uint32_t i = 0; i < core->dirty_count; i++) {
        gs_channel *channel = core->dirty[i];
        channel->is_dirty = false;
        if (channel->queues == NULL) {
            gs_channel_flush(channel);
            channel->sent_ns = steady_ns;
        } else if (!channel->is_backlogged) {
            pump_channel(core, channel, steady_ns);
        }
    }
    core->dirty_count = 0;
    if (core->wake_ns <= steady_ns)
        gs_pump(core, steady_ns);
}
