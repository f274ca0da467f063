//! The encoding of a stored value: the version of its kind, its format, and the key that encrypts it.
//!
//! A value must be rewritten if its version is outdated, and also if its format is. For example, values in protobuf
//! from another server are read, but never written.

use std::fmt;

use super::StoredObject;

/// The encoding of a stored value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Encoding {
    form: Form,
    /// The number of the seal that encrypts the value in the store; 0 without encryption.
    seal: u16,
    api_version: Box<str>,
}

/// The format of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Form {
    Json,
    Protobuf,
}

impl Encoding {
    /// The encoding of a stored value under the seal with this number. `object` is the decoded value.
    pub fn new(value: &[u8], object: &StoredObject, seal: u16) -> Self {
        Self { form: Form::from_value(value), seal, api_version: object.api_version().into() }
    }

    /// Returns true if this is the encoding of a stored value under the seal with this number. `object` is the decoded
    /// value.
    pub fn is_of(&self, value: &[u8], object: &StoredObject, seal: u16) -> bool {
        self.seal == seal && self.form == Form::from_value(value) && *self.api_version == *object.api_version()
    }

    /// Returns true if the seal with this number encrypts the value.
    pub fn is_sealed_by(&self, seal: u16) -> bool {
        self.seal == seal
    }

    /// Returns true if this server would write an object of this `apiVersion` in this version and format today. Ignores
    /// the seal.
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
    fn from_value(value: &[u8]) -> Self {
        if value.starts_with(&keelson_protobuf::PREFIX) { Self::Protobuf } else { Self::Json }
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::Revision;

    use super::*;

    #[test]
    fn an_encoding_is_current_only_for_its_version_and_format() {
        let json: &[u8] = br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}}"#;
        let object = StoredObject::parse(bytes::Bytes::from_static(json)).unwrap();
        let encoding = Encoding::new(json, &object, 0);
        assert!(encoding.is_current("v1") && !encoding.is_current("v2") && encoding.is_of(json, &object, 0));
        assert!(!encoding.is_of(json, &object, 1) && encoding.is_sealed_by(0) && !encoding.is_sealed_by(1));
        let protobuf = keelson_protobuf::encode("v1", "ConfigMap", &object.decode(Revision::ZERO)).unwrap();
        let other = Encoding::new(&protobuf, &object, 0);
        assert!(!other.is_current("v1") && !encoding.is_of(&protobuf, &object, 0));
        assert_eq!([encoding.to_string(), other.to_string()], ["v1", "v1 in protobuf"]);
    }
}
