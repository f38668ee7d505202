/* Signs of life: probes to those who listen to us, and the silence of those whom we listen to. */
#include "egress.h"
#include "forwarder.h"

void gs_find_probing(gs_core *core)
{
    core->probing_count = 0;
    core->probe_ns = GS_IDLE_NS;
    for (uint32_t i = 0; i < core->limits.channels_max; i++) {
        gs_channel *channel = __atomic_load_n(&core->channels[i], __ATOMIC_ACQUIRE);
        if (channel == NULL || channel->probe_interval_ns == 0)
            continue;
        core->probing[core->probing_count++] = channel;
        if (channel->next_probe_ns < core->probe_ns)
            core->probe_ns = channel->next_probe_ns;
    }
}

void gs_probe(gs_core *core, uint64_t steady_ns, uint32_t probes_max)
{
    core->probe_ns = GS_IDLE_NS;
    for (uint32_t i = 0; i < core->probing_count; i++) {
        gs_channel *channel = core->probing[i];
        if (channel->next_probe_ns <= steady_ns && probes_max > 0 &&
            gs_channel_needs_probe(channel, steady_ns)) {
            gs_channel_probe(channel, steady_ns);
            if (channel->queues != NULL) /* It overtakes what waits, but the line is the same. */
                gs_egress_charge(channel, GS_HEADER_BYTES, steady_ns);
            probes_max--;
        }
        if (channel->next_probe_ns < core->probe_ns)
            core->probe_ns = channel->next_probe_ns;
    }
}

gs_source_facts gs_core_source(const gs_core *core, uint32_t channel_id)
{
    const gs_source *source = gs_source_of(gs_table_sources(core->table), channel_id);
    if (source == NULL)
        return (gs_source_facts){0};
    return gs_source_tell(source->state, &core->attention);
}
