//! The choice of controllers that run in this server: the setting `--controllers`, as kube-controller-manager has it.
//!
//! `*` stands for those that are on by default. The controller that deletes pods is not among them: who has nodes has a
//! kube-controller-manager that does it, and who has none would lose the pods that stand for something else, as in tests.

use std::fmt;
use std::str::FromStr;

/// A controller that can be switched off, so that a kube-controller-manager can do its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// Signs certificates of clients that somebody has approved.
    CertificateSigning,
    /// Empties namespaces that are being deleted.
    Namespace,
    /// Deletes objects whose owners are gone.
    GarbageCollector,
    /// Gives each namespace a service account.
    ServiceAccount,
    /// Counts what is used of quotas.
    ResourceQuota,
    /// Gives each namespace the certificates of the server.
    RootCaCertificates,
    /// Fills cluster roles that are made of others.
    ClusterRoleAggregation,
    /// Deletes pods whose nodes are gone, and the oldest that have ended.
    PodGarbageCollector,
    /// Takes away what servers have published of their storage versions that are gone.
    StorageVersionGarbageCollector,
    /// Writes anew what is stored in another version than all servers agree on.
    StorageVersionMigrator,
    /// Checks the expressions of validating policies against the kinds that they are about.
    ValidatingPolicyStatus,
}

/// All controllers, by the names that kube-controller-manager gives them: today's and the one from before 1.28.
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

/// Those that run only where they are named.
const OFF_BY_DEFAULT: [Controller; 1] = [Controller::PodGarbageCollector];

/// Which controllers run.
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
    /// Reads settings: `*` for all that are on by default, a name for one, a name behind `-` for all but one.
    ///
    /// # Errors
    /// Names the one that is none.
    pub fn parse<'a>(settings: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        Ok(Self { settings: settings.into_iter().map(str::parse).collect::<Result<_, _>>()? })
    }

    /// Whether a controller runs. The first setting that names it counts.
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
    /// Those that are on by default.
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
    /// Its name, as kube-controller-manager has it today.
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
