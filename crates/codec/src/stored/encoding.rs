//! The encoding of a stored value: the version of its kind that it is in, its form, and the key that encrypts it.
//!
//! An outdated form requires a rewrite too, not only an outdated version. For example, protobuf from another server is
//! read but never written.

use std::fmt;

use super::StoredObject;

/// The encoding of a stored value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Encoding {
    form: Form,
    /// The number of its seal in the store, 0 for none.
    seal: u16,
    api_version: Box<str>,
}

/// The form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Form {
    Json,
    Protobuf,
}

impl Encoding {
    /// That of a value, which is this object, under the seal of this number.
    pub fn of(value: &[u8], object: &StoredObject, seal: u16) -> Self {
        Self { form: Form::of(value), seal, api_version: object.api_version().into() }
    }

    /// Whether it is that of a value, which is this object.
    pub fn is_of(&self, value: &[u8], object: &StoredObject, seal: u16) -> bool {
        self.seal == seal && self.form == Form::of(value) && *self.api_version == *object.api_version()
    }

    /// Whether it is stored under the seal of this number.
    pub fn is_sealed_by(&self, seal: u16) -> bool {
        self.seal == seal
    }

    /// Whether an object that is stored in this `apiVersion` would be written so today, whatever its seal.
    pub fn is_current(&self, api_version: &str) -> bool {
        self.form == Form::Json && *self.api_version == *api_version
    }

    /// The `apiVersion`.
    pub fn api_version(&self) -> &str {
        &self.api_version
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.form {
            Form::Json => f.write_str(&self.api_version),
            Form::Protobuf => write!(f, "{} in protobuf", self.api_version),
        }
    }
}

impl Form {
    fn of(value: &[u8]) -> Self {
        if value.starts_with(&keelson_protobuf::PREFIX) { Self::Protobuf } else { Self::Json }
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::Revision;

    use super::*;

    #[test]
    fn a_value_is_current_in_its_version_and_the_form_that_is_written() {
        let json: &[u8] = br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}}"#;
        let object = StoredObject::parse(bytes::Bytes::from_static(json)).unwrap();
        let encoding = Encoding::of(json, &object, 0);
        assert!(encoding.is_current("v1") && !encoding.is_current("v2") && encoding.is_of(json, &object, 0));
        assert!(!encoding.is_of(json, &object, 1) && encoding.is_sealed_by(0) && !encoding.is_sealed_by(1));
        let protobuf = keelson_protobuf::encode("v1", "ConfigMap", &object.decode(Revision::ZERO)).unwrap();
        let other = Encoding::of(&protobuf, &object, 0);
        assert!(!other.is_current("v1") && !encoding.is_of(&protobuf, &object, 0));
        assert_eq!([encoding.to_string(), other.to_string()], ["v1", "v1 in protobuf"]);
    }
}
