//! Early warnings for the operator: certificates that expire soon, and settings that differ between the servers on the
//! store. The log and the metrics contain them.

use std::sync::Arc;

use keelson_aggregator::Aggregator;
use keelson_controllers::RegisteredServers;
use keelson_http::metrics::Sample;
use keelson_registry::Registry;
use keelson_supervision::TaskGroup;

use crate::certificate_ends::CertificateEnds;
use crate::config::Config;
use crate::keys::LiveKeys;
use crate::settings::SettingsComparison;

/// The notices of a running server.
pub(crate) struct Notices {
    certificates: Arc<CertificateEnds>,
    /// None if no other server can use the store.
    settings: Option<Arc<SettingsComparison>>,
}

impl Notices {
    /// Starts the checks.
    pub(crate) fn start(
        config: &Config,
        keys: &Arc<LiveKeys>,
        (aggregator, registry): (&Arc<Aggregator>, &Arc<Registry>),
        servers: &Arc<RegisteredServers>,
        background: &TaskGroup,
    ) -> Self {
        let certificates = CertificateEnds::new(keys.clone(), aggregator, registry);
        background.spawn("certificate-ends", certificates.clone().run(background.stopping().clone()));
        let settings = config.store.is_shared().then(|| SettingsComparison::new(config, servers.clone()));
        if let Some(settings) = &settings {
            background.spawn("settings-comparison", settings.clone().run(background.stopping().clone()));
        }
        Self { certificates, settings }
    }

    /// The metrics.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        let mut samples = self.certificates.samples();
        samples.extend(self.settings.iter().flat_map(|settings| settings.samples()));
        samples
    }
}
