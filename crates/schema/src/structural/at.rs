//! The field path of the value that is being validated, in the format of faults.
//!
//! The path is a linked list on the stack, which becomes a text only for a fault.

use std::fmt;

use keelson_meta::field_error::FieldError;

/// The field of a fault for which upstream states none.
pub(super) const NOWHERE: &str = "<nil>";

/// The path of a value: a linked list on the stack, formatted only for a fault.
pub(super) struct At<'a> {
    parent: Option<&'a At<'a>>,
    segment: PathSegment<'a>,
    /// The number of steps from the root.
    pub(super) depth: usize,
}

#[derive(Clone, Copy)]
pub(super) enum PathSegment<'a> {
    /// None.
    Root,
    /// `.name`
    Field(&'a str),
    /// A member of a map, shown in brackets.
    Key(&'a str),
    /// `[3]`
    Index(usize),
}

impl<'a> At<'a> {
    /// The whole value.
    pub(super) const ROOT: Self = Self { parent: None, segment: PathSegment::Root, depth: 0 };

    /// A path one step below.
    pub(super) fn then(&'a self, segment: PathSegment<'a>) -> Self {
        Self { parent: Some(self), segment, depth: self.depth + 1 }
    }

    /// The path of a field below this value.
    pub(super) fn field(&self, name: &str) -> String {
        self.then(PathSegment::Field(name)).to_string()
    }
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        let first = self.depth == 1;
        match self.segment {
            PathSegment::Root => Ok(()),
            PathSegment::Field(name) if first => f.write_str(name),
            PathSegment::Field(name) => write!(f, ".{name}"),
            PathSegment::Key(key) => write!(f, "[{key}]"),
            PathSegment::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// A fault for which upstream states no field.
pub(super) fn nowhere(detail: String) -> FieldError {
    FieldError::invalid(NOWHERE, "", detail)
}
