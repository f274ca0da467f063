//! Whether a user may do what it asks.

use crate::user::{MASTERS, UNAUTHENTICATED, User};

/// A request as authorization sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attributes<'a> {
    /// A request for a resource.
    Resource {
        /// The verb, such as `list`.
        verb: &'a str,
        /// The group, empty for the core group.
        group: &'a str,
        /// The version.
        version: &'a str,
        /// The plural resource name.
        resource: &'a str,
        /// The subresource.
        subresource: Option<&'a str>,
        /// The namespace of the path.
        namespace: Option<&'a str>,
        /// The name of the path or of the selector.
        name: Option<&'a str>,
    },
    /// A request for any other path.
    Path {
        /// The lower-case method.
        verb: &'a str,
        /// The decoded path.
        path: &'a str,
    },
}

/// What authorization says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The request may go on.
    Allow,
    /// It may not.
    Deny,
}

/// The paths that tell whether the server is well, which load balancers ask without credentials.
const HEALTH_PATHS: [&str; 3] = ["/livez", "/readyz", "/healthz"];

/// Decides whether `user` may do what `attributes` describe.
///
/// Members of `system:masters` may do anything; anybody may ask whether the server is well, as a whole.
pub fn authorize(user: &User, attributes: &Attributes<'_>) -> Decision {
    let healthy = |path: &str| HEALTH_PATHS.contains(&path);
    match attributes {
        _ if user.is_in(MASTERS) => Decision::Allow,
        Attributes::Path { verb: "get" | "head", path } if healthy(path) => Decision::Allow,
        Attributes::Path { .. } | Attributes::Resource { .. } => Decision::Deny,
    }
}

/// Whether a request without credentials is worth a decision: everything that anonymous users can never do is answered
/// with 401 rather than 403, so that clients know that credentials would help.
pub fn is_open_to(user: &User, attributes: &Attributes<'_>) -> bool {
    !user.is_in(UNAUTHENTICATED) || authorize(user, attributes) == Decision::Allow
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(groups: &[&str]) -> User {
        User { name: "u".into(), groups: groups.iter().map(ToString::to_string).collect(), ..User::default() }
    }

    const LIST: Attributes<'_> = Attributes::Resource {
        verb: "list",
        group: "",
        version: "v1",
        resource: "pods",
        subresource: None,
        namespace: None,
        name: None,
    };

    #[test]
    fn masters_may_do_anything_and_others_nothing() {
        assert_eq!(authorize(&user(&[MASTERS]), &LIST), Decision::Allow);
        assert_eq!(authorize(&user(&["system:authenticated"]), &LIST), Decision::Deny);
        assert_eq!(authorize(&User::anonymous(), &LIST), Decision::Deny);
    }

    #[test]
    fn anybody_may_ask_for_health_but_not_for_more() {
        let get = |path| Attributes::Path { verb: "get", path };
        assert_eq!(authorize(&User::anonymous(), &get("/readyz")), Decision::Allow);
        assert_eq!(authorize(&User::anonymous(), &get("/readyz/ping")), Decision::Deny);
        assert_eq!(authorize(&User::anonymous(), &get("/version")), Decision::Deny);
        assert!(!is_open_to(&User::anonymous(), &get("/version")));
        assert!(is_open_to(&user(&[]), &get("/version")));
    }
}
