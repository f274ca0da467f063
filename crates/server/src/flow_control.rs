//! Applies the stored flow schemas and priority levels to the flow control of requests, and lends seats between levels.
//!
//! Both tasks run in every server, since each server has its own seats.

use std::time::Duration;

use keelson_controllers::FlowConfiguration;
use keelson_http::filters::FlowControl;
use keelson_registry::Registry;
use keelson_supervision::TaskGroup;

/// The interval at which the seats of levels are adjusted, as upstream.
const ADJUSTMENT: Duration = Duration::from_secs(10);

/// The flow schemas and priority levels in the cache of a server.
///
/// # Errors
/// When they are not cached.
pub(crate) fn objects(registry: &Registry) -> anyhow::Result<FlowConfiguration> {
    let prefix = |plural| keelson_builtin::key_prefix("flowcontrol.apiserver.k8s.io", plural);
    let prefixes = prefix("flowschemas").and_then(|schemas| Ok([schemas, prefix("prioritylevelconfigurations")?]));
    let [schemas, levels] = prefixes.map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(FlowConfiguration::new(registry.cache(), [&schemas, &levels])?)
}

/// Starts both tasks.
pub(crate) fn follow(objects: FlowConfiguration, control: &FlowControl, background: &TaskGroup) {
    let configured = control.clone();
    let apply = move |schemas, levels| configured.configure(schemas, levels);
    background.spawn("flow-control", objects.run(background.stopping().clone(), apply));
    let (control, stopping) = (control.clone(), background.stopping().clone());
    background.spawn("flow-control-seats", async move {
        let adjusting = async {
            loop {
                tokio::time::sleep(ADJUSTMENT).await;
                control.adjust();
            }
        };
        let _: Option<()> = stopping.run_until_cancelled(adjusting).await;
    });
}
