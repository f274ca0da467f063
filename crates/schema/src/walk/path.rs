//! The path of a value in an object: a chain on the stack, which is formatted only for a report.
//!
//! The path has two text formats: one for unknown fields, and one for type errors of Go's decoder.

use crate::schemas::SchemaRef;

/// One step from an object towards a value, and the steps before it.
pub(super) enum Path<'p> {
    /// The object itself.
    Root,
    /// A declared field.
    Field { parent: &'p Path<'p>, owner: SchemaRef<'p>, name: &'p str },
    /// An item of a list.
    Index { parent: &'p Path<'p>, index: usize },
    /// An entry of a map.
    Key { parent: &'p Path<'p>, key: &'p str },
}

impl Path<'_> {
    /// The path in reports of unknown fields, with `name` at its end: `spec.containers[0].bogus`.
    pub(super) fn with(&self, name: &str) -> String {
        let mut text = String::new();
        self.write(&mut text);
        push_name(&mut text, name);
        text
    }

    fn write(&self, text: &mut String) {
        match self {
            Self::Root => {}
            Self::Field { parent, name, .. } => {
                parent.write(text);
                push_name(text, name);
            }
            Self::Key { parent, key } => {
                parent.write(text);
                push_name(text, key);
            }
            Self::Index { parent, index } => {
                parent.write(text);
                text.push_str(&format!("[{index}]"));
            }
        }
    }

    /// The path in type errors of Go's decoder, such as `CSIVolumeSource.spec.volumes.VolumeSource.csi.driver`. It
    /// starts with the type that declares the innermost field. The names of all fields and embedded structs follow,
    /// without indexes and map keys.
    pub(super) fn in_decoder(&self) -> String {
        let mut text = self.owner().unwrap_or_default().to_owned();
        self.write_fields(&mut text);
        text
    }

    fn owner(&self) -> Option<&str> {
        match self {
            Self::Root => None,
            // An embedded object of a custom resource is decoded separately, so its path starts there.
            Self::Field { owner, .. } => owner.go_type().rsplit('.').next().filter(|_| !owner.is_structural()),
            Self::Index { parent, .. } | Self::Key { parent, .. } => parent.owner(),
        }
    }

    fn write_fields(&self, text: &mut String) {
        match self {
            Self::Root => {}
            Self::Field { parent, owner, name } => {
                if owner.is_structural() {
                    return;
                }
                parent.write_fields(text);
                if let Some(embedded) = owner.field(name).and_then(SchemaRef::embedded_in) {
                    push_name(text, embedded);
                }
                push_name(text, name);
            }
            Self::Index { parent, .. } | Self::Key { parent, .. } => parent.write_fields(text),
        }
    }
}

fn push_name(text: &mut String, name: &str) {
    if !text.is_empty() {
        text.push('.');
    }
    text.push_str(name);
}
