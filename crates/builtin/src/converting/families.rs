//! Families: kinds with several versions, and the steps between a version and the hub.
//!
//! Versions without steps have the same fields, according to their published schemas. The steps of a group are in its
//! `conversion.rs`, beside its families.

use crate::converting::conversion::ConvertFn;

/// A kind with all forms in which it is served or stored.
pub(crate) struct Family {
    pub(crate) kind: &'static str,
    pub(crate) forms: &'static [Form],
}

/// A kind in one version.
#[derive(Debug)]
pub(crate) struct Form {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    /// The step to the hub; `None` if the fields are the same.
    pub(crate) to_hub: Option<ConvertFn>,
    /// The step from the hub; `None` if the fields are the same.
    pub(crate) from_hub: Option<ConvertFn>,
    /// The steps for an object that a client sends in this form, if it is the stored one.
    pub(crate) canonical: Option<[Option<ConvertFn>; 2]>,
}

impl Form {
    /// The group and version.
    pub(crate) fn gv(&self) -> (&'static str, &'static str) {
        (self.group, self.version)
    }

    /// The `apiVersion` of an object in this form.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Applies these steps to objects that clients send in this form, if it is the stored one.
    pub(crate) const fn canonical(mut self, steps: [Option<ConvertFn>; 2]) -> Self {
        self.canonical = Some(steps);
        self
    }
}

/// A kind with all its forms.
pub(crate) const fn family(kind: &'static str, forms: &'static [Form]) -> Family {
    Family { kind, forms }
}

/// A form with the same fields as the hub.
pub(crate) const fn hub(group: &'static str, version: &'static str) -> Form {
    Form { group, version, to_hub: None, from_hub: None, canonical: None }
}

/// A form with other fields than the hub.
pub(crate) const fn form(group: &'static str, version: &'static str, to_hub: ConvertFn, from_hub: ConvertFn) -> Form {
    Form { group, version, to_hub: Some(to_hub), from_hub: Some(from_hub), canonical: None }
}
