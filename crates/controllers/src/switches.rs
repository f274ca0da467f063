//! Selects the controllers that run in this server, by the flag `--controllers` as in kube-controller-manager.
//!
//! `*` stands for the controllers that are on by default. The controller that deletes pods is off by default: clusters
//! with nodes run it in kube-controller-manager, and servers without nodes, as in tests, would lose pods.

use std::fmt;
use std::str::FromStr;

/// A controller that can be switched off so that kube-controller-manager does its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// Signs approved client certificates.
    CertificateSigning,
    /// Empties namespaces in deletion.
    Namespace,
    /// Deletes objects whose owners are gone.
    GarbageCollector,
    /// Gives each namespace a service account.
    ServiceAccount,
    /// Counts the usage of quotas.
    ResourceQuota,
    /// Gives each namespace the server's certificates.
    RootCaCertificates,
    /// Fills aggregated cluster roles.
    ClusterRoleAggregation,
    /// Deletes pods on missing nodes, and the oldest ended pods.
    PodGarbageCollector,
    /// Removes storage version entries of dead servers.
    StorageVersionGarbageCollector,
    /// Rewrites objects stored in another version than the agreed one.
    StorageVersionMigrator,
    /// Type-checks the expressions of validating policies.
    ValidatingPolicyStatus,
}

/// All controllers by their names in kube-controller-manager: the current one, and the one before 1.28.
const CONTROLLERS: [(Controller, &str, &str); 11] = [
    (Controller::CertificateSigning, "certificatesigningrequest-signing-controller", "csrsigning"),
    (Controller::ClusterRoleAggregation, "clusterrole-aggregation-controller", "clusterrole-aggregation"),
    (Controller::GarbageCollector, "garbage-collector-controller", "garbagecollector"),
    (Controller::Namespace, "namespace-controller", "namespace"),
    (Controller::PodGarbageCollector, "pod-garbage-collector-controller", "podgc"),
    (Controller::ResourceQuota, "resourcequota-controller", "resourcequota"),
    (Controller::RootCaCertificates, "root-ca-certificate-publisher-controller", "root-ca-cert-publisher"),
    (Controller::ServiceAccount, "serviceaccount-controller", "serviceaccount"),
    (Controller::StorageVersionGarbageCollector, "storageversion-garbage-collector-controller", "storage-version-gc"),
    (Controller::StorageVersionMigrator, "storage-version-migrator-controller", "storageversionmigrator"),
    (
        Controller::ValidatingPolicyStatus,
        "validatingadmissionpolicy-status-controller",
        "validatingadmissionpolicy-status",
    ),
];

/// Controllers that run only where they are named.
const OFF_BY_DEFAULT: [Controller; 1] = [Controller::PodGarbageCollector];

/// The selection of controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switches {
    /// The settings, in the order given.
    settings: Vec<Switch>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Switch {
    AllByDefault,
    On(Controller),
    Off(Controller),
}

impl Switches {
    /// Parses settings: `*` for all that are on by default, a name for one controller, `-` and a name to exclude one.
    ///
    /// # Errors
    /// The unknown name.
    pub fn parse<'a>(settings: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        Ok(Self { settings: settings.into_iter().map(str::parse).collect::<Result<_, _>>()? })
    }

    /// Returns true if a controller runs. The first setting that names it decides.
    pub fn is_on(&self, controller: Controller) -> bool {
        let named = self.settings.iter().find_map(|setting| match setting {
            Switch::On(named) if *named == controller => Some(true),
            Switch::Off(named) if *named == controller => Some(false),
            Switch::AllByDefault | Switch::On(_) | Switch::Off(_) => None,
        });
        named.unwrap_or_else(|| self.settings.contains(&Switch::AllByDefault) && !OFF_BY_DEFAULT.contains(&controller))
    }

    /// The names of all controllers.
    pub fn names() -> impl Iterator<Item = &'static str> {
        CONTROLLERS.iter().map(|(_, name, _)| *name)
    }
}

impl Default for Switches {
    /// The controllers that are on by default.
    fn default() -> Self {
        Self { settings: vec![Switch::AllByDefault] }
    }
}

/// The settings as the flag takes them: `*,-namespace-controller`.
impl fmt::Display for Switches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, switch) in self.settings.iter().enumerate() {
            let comma = if number > 0 { "," } else { "" };
            match switch {
                Switch::AllByDefault => write!(f, "{comma}*")?,
                Switch::On(controller) => write!(f, "{comma}{controller}")?,
                Switch::Off(controller) => write!(f, "{comma}-{controller}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for Switch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::AllByDefault);
        }
        let (name, on) = text.strip_prefix('-').map_or((text, true), |name| (name, false));
        let known = CONTROLLERS.iter().find(|(_, known, former)| [known, former].contains(&&name));
        match known {
            Some((controller, ..)) => Ok(if on { Self::On(*controller) } else { Self::Off(*controller) }),
            None => {
                let known: Vec<&str> = Switches::names().collect();
                Err(format!("{name:?} is not in the list of known controllers: {}", known.join(", ")))
            }
        }
    }
}

impl Controller {
    /// The current name in kube-controller-manager.
    pub fn name(self) -> &'static str {
        CONTROLLERS.iter().find(|(known, ..)| *known == self).map_or("", |(_, name, _)| name)
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(settings: &str, on: &[Controller]) {
        let switches = Switches::parse(settings.split(',')).unwrap();
        let running = CONTROLLERS.iter().map(|(controller, ..)| *controller).filter(|one| switches.is_on(*one));
        assert_eq!(running.collect::<Vec<_>>(), on, "{settings}");
    }

    #[test]
    fn controllers_are_switched_as_in_the_controller_manager() {
        use Controller::{
            CertificateSigning, ClusterRoleAggregation, GarbageCollector, Namespace, PodGarbageCollector,
            ResourceQuota, RootCaCertificates, ServiceAccount, StorageVersionGarbageCollector, StorageVersionMigrator,
            ValidatingPolicyStatus,
        };
        check("namespace-controller,serviceaccount", &[Namespace, ServiceAccount]);
        check(
            "*,-root-ca-certificate-publisher-controller",
            &[
                CertificateSigning,
                ClusterRoleAggregation,
                GarbageCollector,
                Namespace,
                ResourceQuota,
                ServiceAccount,
                StorageVersionGarbageCollector,
                StorageVersionMigrator,
                ValidatingPolicyStatus,
            ],
        );
        check(
            "-serviceaccount,podgc,*,-garbagecollector,-clusterrole-aggregation",
            &[
                CertificateSigning,
                Namespace,
                PodGarbageCollector,
                ResourceQuota,
                RootCaCertificates,
                StorageVersionGarbageCollector,
                StorageVersionMigrator,
                ValidatingPolicyStatus,
            ],
        );
        check("-podgc,podgc", &[]);
        let error = Switches::parse(["*", "-deployment-controller"]).unwrap_err();
        assert!(error.starts_with("\"deployment-controller\" is not in the list of known controllers: "), "{error}");
        assert!(Controller::Namespace.to_string() == "namespace-controller");
    }

    #[test]
    fn switches_are_shown_as_the_flag_takes_them() {
        for settings in ["*", "", "-serviceaccount-controller,*,pod-garbage-collector-controller"] {
            let switches = Switches::parse(settings.split(',').filter(|name| !name.is_empty())).unwrap();
            assert_eq!(switches.to_string(), settings);
        }
    }
}
