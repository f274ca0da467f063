//! Conflicts: fields that an apply would change although another manager owns them.
//!
//! Conflicts become the causes of a 409 response in upstream's words. Their size is limited.

use std::collections::BTreeMap;
use std::fmt;

use keelson_meta::go_format::quote;
use keelson_meta::status::StatusCause;

use super::element::Path;
use super::owners::{Manager, Operation};

/// The maximum bytes of paths in a response. Clients determine the length of the map keys in a path, and there may be a
/// conflict for every few bytes below a path.
const MAX_PATH_BYTES: usize = 256 * 1024;

/// A field whose applied value differs from the value that its owner set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The owner.
    pub manager: Manager,
    /// The field.
    pub path: Path,
}

/// All conflicts of an apply. They become a 409 with these causes. Repeating the request helps only with `force`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflicts(pub Vec<Conflict>);

impl Conflicts {
    /// The causes in the `Status`, truncated to the first conflicts if there are too many.
    pub fn causes(&self) -> Vec<StatusCause> {
        let cause = |(conflict, path): (&Conflict, String)| StatusCause {
            reason: "FieldManagerConflict".to_owned(),
            message: format!("conflict with {}", readable(&conflict.manager)),
            field: path,
        };
        named(self.0.iter()).map(cause).collect()
    }
}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = &self.0[..] {
            return write!(f, "Apply failed with 1 conflict: conflict with {}: {}", readable(&only.manager), only.path);
        }
        let mut managers: BTreeMap<&Manager, Vec<String>> = BTreeMap::new();
        for (conflict, path) in named(self.0.iter()) {
            managers.entry(&conflict.manager).or_default().push(path);
        }
        let lines = managers.into_iter().flat_map(|(manager, paths)| {
            let head = format!("conflicts with {}:", readable(manager));
            std::iter::once(head).chain(paths.into_iter().map(|path| format!("- {path}")))
        });
        write!(f, "Apply failed with {} conflicts: {}", self.0.len(), lines.collect::<Vec<_>>().join("\n"))
    }
}

impl std::error::Error for Conflicts {}

/// The conflicts within the limit, with their paths as text.
fn named<'c>(conflicts: impl Iterator<Item = &'c Conflict>) -> impl Iterator<Item = (&'c Conflict, String)> {
    let mut written = 0;
    conflicts.map_while(move |conflict| {
        let path = (written < MAX_PATH_BYTES).then(|| conflict.path.to_string())?;
        written += path.len();
        Some((conflict, path))
    })
}

fn readable(manager: &Manager) -> String {
    let mut text = quote(&manager.name);
    if !manager.subresource.is_empty() {
        text = format!("{text} with subresource {}", quote(&manager.subresource));
    }
    match manager.operation {
        Operation::Apply => text,
        Operation::Update => format!("{text} using {}", manager.version),
    }
}
