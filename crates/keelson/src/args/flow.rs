//! Flags of `serve` for the number of concurrent requests.
//!
//! Their names and defaults are those of kube-apiserver.

use clap::Args as ClapArgs;
use keelson_server::FlowLimits;

use super::kinds::switch;

/// Limits of requests at once.
#[derive(ClapArgs)]
pub(crate) struct Flow {
    /// Schedule requests by FlowSchemas and PriorityLevelConfigurations. Without it two numbers limit concurrent
    /// requests.
    #[arg(
        long,
        env = "KEELSON_ENABLE_PRIORITY_AND_FAIRNESS",
        default_value_t = true,
        action = clap::ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true",
        value_parser = switch
    )]
    enable_priority_and_fairness: bool,
    /// The number of concurrent requests that change nothing. With priority and fairness this number and that of mutating requests
    /// together are the seats of the server. 0 is no limit.
    #[arg(long, env = "KEELSON_MAX_REQUESTS_INFLIGHT", default_value_t = FlowLimits::default().requests as u32)]
    max_requests_inflight: u32,
    /// The number of concurrent requests that change something. 0 is no limit.
    #[arg(long, env = "KEELSON_MAX_MUTATING_REQUESTS_INFLIGHT", default_value_t = FlowLimits::default().mutating as u32)]
    max_mutating_requests_inflight: u32,
}

impl Flow {
    /// The limits from these flags. The limit of watches is not changed.
    ///
    /// # Errors
    /// When the flags leave no seats for priority and fairness.
    pub(crate) fn limits(&self, usual: FlowLimits) -> anyhow::Result<FlowLimits> {
        let (requests, mutating) = (self.max_requests_inflight as usize, self.max_mutating_requests_inflight as usize);
        anyhow::ensure!(
            !self.enable_priority_and_fairness || requests + mutating > 0,
            "--max-requests-inflight and --max-mutating-requests-inflight are both 0, but priority and fairness needs seats"
        );
        Ok(FlowLimits { is_fair: self.enable_priority_and_fairness, requests, mutating, ..usual })
    }
}
