//! The envelope of KMS v2: its limits, and the key under which its data key is cached.
//!
//! Limits and texts are upstream's. An envelope that breaks them is never written, and never sent to the service when it is read.

use keelson_meta::names::dns_subdomain_faults;
use prost::Message as _;
use sha2::{Digest as _, Sha256};

use super::proto::{AES_GCM_KEY, EncryptedObject, SEED};
use crate::digest::sha256_of;
use crate::error::{TransformError, listed};

/// The longest key ID, in bytes.
const KEY_ID: usize = 1024;
/// The longest encrypted data key, in bytes.
const DEK_SOURCE: usize = 1024;
/// The most bytes of all annotations.
const ANNOTATIONS: usize = 32 * 1024;

/// Reads an envelope that is stored.
pub(super) fn decode(stored: &[u8]) -> Result<EncryptedObject, TransformError> {
    let object = EncryptedObject::decode(stored)
        .map_err(|_| TransformError::new("proto: cannot parse invalid wire-format data"))?;
    validate(&object)?;
    Ok(object)
}

/// Checks an envelope.
pub(super) fn validate(object: &EncryptedObject) -> Result<(), TransformError> {
    let kind = object.encrypted_dek_source_type;
    if kind != AES_GCM_KEY && kind != SEED {
        return Err(TransformError::new(format!("unknown encryptedDEKSourceType: {kind}")));
    }
    if object.encrypted_data.is_empty() {
        return Err(TransformError::new("encrypted data is empty"));
    }
    let length = object.encrypted_dek_source.len();
    let fault = if length == 0 {
        Some("encrypted DEK source is empty".to_owned())
    } else {
        let text = || format!("encrypted DEK source is {length} bytes, which exceeds the max size of {DEK_SOURCE}");
        (length > DEK_SOURCE).then(text)
    };
    if let Some(fault) = fault {
        return Err(TransformError::new(format!("failed to validate encrypted DEK source: {fault}")));
    }
    if let Err((_, fault)) = check_key_id(&object.key_id) {
        return Err(TransformError::new(format!("failed to validate key id: {fault}")));
    }
    let annotations = &object.annotations;
    let size: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    let mut faults: Vec<String> = annotations.keys().filter_map(|key| domain_fault(key)).collect();
    if size > ANNOTATIONS {
        faults.push(format!("total size of annotations is {size}, which exceeds the max size of {ANNOTATIONS}"));
    }
    let Some(faults) = listed(&faults) else { return Ok(()) };
    Err(TransformError::new(format!("failed to validate annotations: {faults}")))
}

/// The fault of a name that is no fully qualified domain name.
fn domain_fault(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("annotations: Required value".to_owned());
    }
    if let Some(fault) = dns_subdomain_faults(name).first() {
        return Some(format!("annotations: Invalid value: {name:?}: {fault}"));
    }
    let few = || {
        format!("annotations: Invalid value: {name:?}: should be a domain with at least two segments separated by dots")
    };
    (!name.contains('.')).then(few)
}

/// Checks a key ID. A fault comes with its code for metrics.
pub(super) fn check_key_id(id: &str) -> Result<(), (&'static str, String)> {
    match id.len() {
        0 => Err(("empty", "keyID is empty".to_owned())),
        length if length > KEY_ID => {
            Err(("too_long", format!("keyID is {length} bytes, which exceeds the max size of {KEY_ID}")))
        }
        _ => Ok(()),
    }
}

/// The key under which the data key of an envelope is cached: a hash of all that the service is sent to decrypt it.
pub(super) fn cache_key(object: &EncryptedObject) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut add = |part: &[u8]| {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    };
    add(&object.encrypted_dek_source_type.to_be_bytes());
    add(&object.encrypted_dek_source);
    add(object.key_id.as_bytes());
    for (key, value) in &object.annotations {
        add(key.as_bytes());
        add(value);
    }
    hash.finalize().into()
}

/// The hash of a text in logs and metrics; empty for an empty text.
pub(super) fn hash_of(text: &str) -> String {
    if text.is_empty() { String::new() } else { sha256_of(text.as_bytes()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> EncryptedObject {
        EncryptedObject {
            encrypted_data: vec![1],
            key_id: "k".to_owned(),
            encrypted_dek_source: vec![2],
            encrypted_dek_source_type: SEED,
            ..EncryptedObject::default()
        }
    }

    #[track_caller]
    fn refused(change: impl FnOnce(&mut EncryptedObject), expected: &str) {
        let mut object = object();
        change(&mut object);
        assert_eq!(validate(&object).unwrap_err().to_string(), expected);
        assert!(decode(&object.encode_to_vec()).is_err());
    }

    #[test]
    fn envelopes_keep_upstreams_limits() {
        validate(&object()).unwrap();
        refused(|it| it.encrypted_dek_source_type = 2, "unknown encryptedDEKSourceType: 2");
        refused(|it| it.encrypted_data.clear(), "encrypted data is empty");
        refused(|it| it.key_id.clear(), "failed to validate key id: keyID is empty");
        refused(
            |it| it.key_id = "k".repeat(1025),
            "failed to validate key id: keyID is 1025 bytes, which exceeds the max size of 1024",
        );
        refused(
            |it| it.encrypted_dek_source = vec![0; 1025],
            "failed to validate encrypted DEK source: encrypted DEK source is 1025 bytes, which exceeds the max size of 1024",
        );
        refused(
            |it| drop(it.annotations.insert("a.b".to_owned(), vec![0; 32 * 1024])),
            "failed to validate annotations: total size of annotations is 32771, which exceeds the max size of 32768",
        );
        let mut named = object();
        named.annotations.insert("no-domain".to_owned(), Vec::new());
        assert!(validate(&named).is_err());
    }

    #[test]
    fn a_cached_key_is_of_one_envelope() {
        let key = cache_key(&object());
        for change in [
            |it: &mut EncryptedObject| it.key_id.push('x'),
            |it: &mut EncryptedObject| it.encrypted_dek_source.push(0),
            |it: &mut EncryptedObject| it.encrypted_dek_source_type = AES_GCM_KEY,
            |it: &mut EncryptedObject| drop(it.annotations.insert("a.b".to_owned(), vec![1])),
        ] {
            let mut other = object();
            change(&mut other);
            assert_ne!(cache_key(&other), key);
        }
        let mut moved = object();
        moved.encrypted_data = vec![9; 9];
        assert_eq!(cache_key(&moved), key, "values share a data key");
    }
}
