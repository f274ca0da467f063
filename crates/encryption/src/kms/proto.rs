//! The messages of the APIs `v2` and `v1beta1` of key services, and the envelope of KMS v2 in the store.
//!
//! Written by hand after the published definitions, so that a build needs no `protoc`.

use std::collections::BTreeMap;

use prost::Message;

/// The data key is used directly as the AES-GCM key.
pub(super) const AES_GCM_KEY: i32 = 0;
/// The data key is a seed. Each value has a key derived from it.
pub(super) const SEED: i32 = 1;

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct StatusRequest {}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct StatusResponse {
    #[prost(string, tag = "1")]
    pub(super) version: String,
    #[prost(string, tag = "2")]
    pub(super) healthz: String,
    #[prost(string, tag = "3")]
    pub(super) key_id: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct DecryptRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) ciphertext: Vec<u8>,
    #[prost(string, tag = "2")]
    pub(super) uid: String,
    #[prost(string, tag = "3")]
    pub(super) key_id: String,
    #[prost(btree_map = "string, bytes", tag = "4")]
    pub(super) annotations: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct DecryptResponse {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) plaintext: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct EncryptRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) plaintext: Vec<u8>,
    #[prost(string, tag = "2")]
    pub(super) uid: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct EncryptResponse {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) ciphertext: Vec<u8>,
    #[prost(string, tag = "2")]
    pub(super) key_id: String,
    #[prost(btree_map = "string, bytes", tag = "3")]
    pub(super) annotations: BTreeMap<String, Vec<u8>>,
}

/// A value in the store, behind the prefix of its provider.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct EncryptedObject {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) encrypted_data: Vec<u8>,
    #[prost(string, tag = "2")]
    pub(super) key_id: String,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) encrypted_dek_source: Vec<u8>,
    #[prost(btree_map = "string, bytes", tag = "4")]
    pub(super) annotations: BTreeMap<String, Vec<u8>>,
    #[prost(int32, tag = "5")]
    pub(super) encrypted_dek_source_type: i32,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct FirstVersionRequest {
    #[prost(string, tag = "1")]
    pub(super) version: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct FirstVersionResponse {
    #[prost(string, tag = "1")]
    pub(super) version: String,
}

/// A request to encrypt or decrypt of `v1beta1`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct FirstRequest {
    #[prost(string, tag = "1")]
    pub(super) version: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) content: Vec<u8>,
}

/// The answer to one.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct FirstResponse {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) content: Vec<u8>,
}
