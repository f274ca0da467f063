//! Who writes: the name under which a write owns the fields that it sets (`manager` in `metadata.managedFields`), and the
//! user whose request it is.
//!
//! The subresource and the version of an entry are those of the target; they are no matter of the writer.

use std::sync::Arc;

use keelson_access::User;
use keelson_meta::go_format::is_print;
use keelson_meta::options::FIELD_MANAGER_MAX;

/// The name of a client that names neither itself nor its program.
const UNKNOWN: &str = "unknown";
/// The name under which the server itself writes.
const SERVER: &str = "keelson";

/// Who writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    manager: String,
    user: Option<Arc<User>>,
}

impl Writer {
    /// The writer of a request: the `fieldManager` of its options, else the program that its `User-Agent` begins with.
    pub fn of_request(field_manager: Option<&str>, user_agent: &str, user: &Arc<User>) -> Self {
        let named = match field_manager {
            Some(manager) if !manager.is_empty() => Self::named(manager),
            _ => Self::named(&program(user_agent)),
        };
        Self { user: Some(user.clone()), ..named }
    }

    /// A writer of this name inside the server.
    pub fn named(manager: &str) -> Self {
        let manager = if manager.is_empty() { UNKNOWN } else { manager };
        Self { manager: manager.to_owned(), user: None }
    }

    /// The server itself, and the controllers inside of it.
    pub fn server() -> Self {
        Self::named(SERVER)
    }

    /// The name.
    pub fn manager(&self) -> &str {
        &self.manager
    }

    /// The user whose request it is; `None` for the server's own writes.
    pub fn user(&self) -> Option<&User> {
        self.user.as_deref()
    }
}

/// What stands before the first slash of a `User-Agent`, as far as it can be shown and is not too long.
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
    fn a_writer_is_who_it_says_or_else_its_program() {
        let check = |field_manager: Option<&str>, user_agent: &str, expected: &str| {
            assert_eq!(Writer::of_request(field_manager, user_agent, &Arc::default()).manager(), expected);
        };
        check(Some("me"), "kubectl/v1.36.2", "me");
        check(None, "kubectl/v1.36.2 (linux/amd64)", "kubectl");
        check(Some(""), "curl", "curl");
        check(None, "", "unknown");
        check(None, "/x", "unknown");
        check(None, "a\u{7}b/1", "ab");
        check(None, &"é".repeat(65), &"é".repeat(64));
    }
}
