//! Encryption at rest: `EncryptionConfiguration`, its providers, and a store that encrypts what it writes.
//!
//! Values have the form that kube-apiserver stores in etcd, so that each reads the values of the other under the same
//! keys. This crate knows no objects: values are bytes. The key of a value in the store names its resource, and is
//! authenticated with the value. Secrets of a
//! configuration are never part of a text: errors, logs and metrics name keys, and hashes of files.

mod ciphers;
mod config;
mod digest;
mod error;
mod kms;
mod metrics;
mod reload;
mod resources;
mod store;
mod transformers;

pub use config::{ConfigError, ConfigurationFile, EncryptionConfiguration};
pub use digest::sha256_of;
pub use error::TransformError;
pub use metrics::{EncryptionMetrics, KeyUse, KmsCall, Operation};
pub use reload::{Check, Reloader};
pub use resources::Resources;
pub use store::EncryptedStore;
pub use transformers::{Environment, Transformers};
