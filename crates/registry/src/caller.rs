//! The caller of a verb: user, field manager (`manager` in `metadata.managedFields`), dry run, deadline, authorizer,
//! warnings and audit record.
//!
//! Clients, controllers and the server itself make the same calls. The server's own calls are known by their origin,
//! which only constructors here set: a client that impersonates the server's name stays a client. The subresource and
//! version of a `managedFields` entry come from the target.

use std::borrow::Cow;
use std::sync::Arc;

use keelson_access::audit::AuditRecord;
use keelson_access::{Authorizer, PrivilegedGroup, User};
use keelson_meta::ApiError;
use keelson_meta::go_format::is_print;
use keelson_meta::options::FIELD_MANAGER_MAX;
use tokio::time::{Instant, timeout_at};

use crate::target::Target;
use crate::warnings::Warnings;

/// The field manager of a client that names neither itself nor its program.
const UNKNOWN: &str = "unknown";
/// The field manager of the server itself, as in kube-apiserver.
const SERVER: &str = "kube-apiserver";
/// The namespace of the controllers' service accounts.
const SYSTEM_NAMESPACE: &str = "kube-system";

/// The origin of a call. It is private, so that no authenticator, filter or impersonation can set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// A request, or a controller that calls as a service account.
    Client,
    /// The server itself.
    Server,
    /// The server itself, for objects that it needs to become ready, or to be found by other servers.
    Upkeep,
}

/// The caller of a verb.
#[derive(Clone, Debug)]
pub struct Caller {
    origin: Origin,
    user: Arc<User>,
    authorizer: Arc<dyn Authorizer>,
    field_manager: Cow<'static, str>,
    dry_run: bool,
    deadline: Option<Instant>,
    warnings: Warnings,
    audit: AuditRecord,
}

impl Caller {
    /// A user whose rights an authorizer knows. There is no dry run and no deadline, the field manager is `unknown`,
    /// and no response has the warnings.
    pub fn new(user: Arc<User>, authorizer: Arc<dyn Authorizer>) -> Self {
        let field_manager = Cow::Borrowed(UNKNOWN);
        let (warnings, audit) = (Warnings::default(), AuditRecord::default());
        let origin = Origin::Client;
        Self { origin, user, authorizer, field_manager, dry_run: false, deadline: None, warnings, audit }
    }

    /// The server itself. It needs no permission. Admission plugins see its writes, as kube-apiserver's plugins see
    /// those of its loopback client.
    pub fn server() -> Self {
        let caller = Self::new(Arc::new(User::api_server()), Arc::new(PrivilegedGroup)).managing(SERVER);
        Self { origin: Origin::Server, ..caller }
    }

    /// The server itself, for objects that it needs to become ready, or to be found by other servers. No admission
    /// plugin sees these writes: a webhook or policy that refuses everything must not keep a server from starting.
    pub fn upkeep() -> Self {
        Self { origin: Origin::Upkeep, ..Self::server() }
    }

    /// A controller, with the service account that it has in kube-controller-manager.
    pub fn controller(account: &str, authorizer: Arc<dyn Authorizer>) -> Self {
        Self::new(Arc::new(User::service_account(SYSTEM_NAMESPACE, account)), authorizer).managing(SERVER)
    }

    /// Sets the field manager.
    #[must_use]
    pub fn managing(self, field_manager: impl Into<Cow<'static, str>>) -> Self {
        Self { field_manager: field_manager.into(), ..self }
    }

    /// Sets the field manager of a request: the `fieldManager` of its options, or else the program at the start of its
    /// `User-Agent`.
    #[must_use]
    pub fn writing(self, field_manager: Option<&str>, user_agent: &str, dry_run: bool) -> Self {
        let manager = match field_manager {
            Some(manager) if !manager.is_empty() => manager.to_owned(),
            _ => program(user_agent),
        };
        let manager = if manager.is_empty() { Cow::Borrowed(UNKNOWN) } else { Cow::Owned(manager) };
        Self { dry_run, ..self.managing(manager) }
    }

    /// Sets dry run from the `dryRun` option: everything is checked and nothing stored. This option alone decides it.
    #[must_use]
    pub fn rehearsing_if(self, dry_run: bool) -> Self {
        Self { dry_run: self.dry_run || dry_run, ..self }
    }

    /// Sets the deadline; `None` for no deadline.
    #[must_use]
    pub fn until(self, deadline: Option<Instant>) -> Self {
        Self { deadline, ..self }
    }

    /// Sets the collector of warnings.
    #[must_use]
    pub fn warned_in(self, warnings: Warnings) -> Self {
        Self { warnings, ..self }
    }

    /// Sets the audit record of the request.
    #[must_use]
    pub fn audited_in(self, audit: AuditRecord) -> Self {
        Self { audit, ..self }
    }

    /// Returns true for calls of the server itself. The name of the user says nothing about that.
    pub fn is_server(&self) -> bool {
        match self.origin {
            Origin::Server | Origin::Upkeep => true,
            Origin::Client => false,
        }
    }

    /// Returns true if a write to this target skips all admission plugins. These are the server's writes for its own
    /// readiness, and its writes that the publication of storage versions needs.
    pub(crate) fn passes_admission(&self, target: &Target) -> bool {
        match self.origin {
            Origin::Upkeep => true,
            Origin::Server => target.strategy().write.precedes_publication(target),
            Origin::Client => false,
        }
    }

    /// The user.
    pub fn user(&self) -> &Arc<User> {
        &self.user
    }

    /// The authorizer of the user.
    pub fn authorizer(&self) -> &Arc<dyn Authorizer> {
        &self.authorizer
    }

    /// The field manager that owns the fields of its writes.
    pub fn field_manager(&self) -> &str {
        &self.field_manager
    }

    /// Returns true in a dry run.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// The time at which it stops waiting; `None` for no deadline.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// The warnings for the response. Every component of the request may add to them.
    pub fn warnings(&self) -> &Warnings {
        &self.warnings
    }

    /// The audit record of the request, if there is one. Admission plugins and policies add annotations to it.
    pub fn audit(&self) -> &AuditRecord {
        &self.audit
    }

    /// Waits for a piece of work until the deadline. The work must be safe to drop: done whole, or not at all.
    ///
    /// # Errors
    /// [`ApiError::Timeout`] when the deadline is over.
    pub(crate) async fn in_time<T>(&self, work: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
        match self.deadline {
            None => work.await,
            Some(deadline) => timeout_at(deadline, work).await.unwrap_or_else(|_| {
                let message = "request did not complete within the allotted timeout";
                Err(ApiError::Timeout(message.to_owned()))
            }),
        }
    }
}

/// The text before the first slash of a `User-Agent`, cut to a printable length.
fn program(user_agent: &str) -> String {
    let mut name = String::new();
    for c in user_agent.split('/').next().unwrap_or_default().chars().filter(|c| is_print(*c)) {
        if name.len() + c.len_utf8() > FIELD_MANAGER_MAX {
            break;
        }
        name.push(c);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_manager_defaults_to_the_user_agent() {
        let check = |field_manager: Option<&str>, user_agent: &str, expected: &str| {
            let caller = Caller::server().writing(field_manager, user_agent, false);
            assert_eq!(caller.field_manager(), expected);
        };
        check(Some("me"), "kubectl/v1.36.2", "me");
        check(None, "kubectl/v1.36.2 (linux/amd64)", "kubectl");
        check(Some(""), "curl", "curl");
        check(None, "", "unknown");
        check(None, "/x", "unknown");
        check(None, "a\u{7}b/1", "ab");
        check(None, &"é".repeat(65), &"é".repeat(64));
    }

    #[test]
    fn the_server_is_known_by_its_origin_and_not_by_its_name() {
        let namesake = Caller::new(Arc::new(User::api_server()), Arc::new(PrivilegedGroup));
        let controller = Caller::controller("namespace-controller", Arc::new(PrivilegedGroup));
        let changed = Caller::upkeep().managing("x").rehearsing_if(true).until(None);
        for (caller, expected) in [
            (Caller::server(), true),
            (Caller::upkeep(), true),
            (changed, true),
            (namesake, false),
            (controller, false),
        ] {
            assert_eq!(caller.is_server(), expected, "{caller:?}");
        }
    }

    #[test]
    fn a_controller_is_a_service_account() {
        let caller = Caller::controller("namespace-controller", Arc::new(PrivilegedGroup));
        assert_eq!(caller.user().name, "system:serviceaccount:kube-system:namespace-controller");
        let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"];
        assert_eq!(caller.user().groups, groups);
        assert!(Caller::server().user().is_in("system:masters"));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_end_at_their_deadline() {
        let deadline = Instant::now() + std::time::Duration::from_secs(3);
        let caller = Caller::server().until(Some(deadline));
        let error = caller.in_time(std::future::pending::<Result<(), _>>()).await.unwrap_err();
        assert_eq!((error.code(), error.retry_after(), Instant::now()), (504, None, deadline));
    }
}
