//! Has the flow control of requests follow the stored flow schemas and priority levels, and lend seats between levels.

use std::time::Duration;

use keelson_controllers::FlowConfiguration;
use keelson_http::filters::FlowControl;
use keelson_supervision::TaskGroup;

/// The time between two adjustments of the seats of levels, as upstream has it.
const ADJUSTMENT: Duration = Duration::from_secs(10);

/// Starts both, in every server.
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
