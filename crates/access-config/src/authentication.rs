//! `AuthenticationConfiguration`: the trusted token issuers, and the paths that accept anonymous requests.
//!
//! `config` parses the file, and `validation` validates and compiles it. `claims` maps tokens to users, and `issuer`
//! keeps the keys of one issuer. `issuers` has all issuers, and reloads the file after changes.

pub(crate) mod claims;
mod config;
mod flags;
mod issuer;
mod issuers;
mod validation;

pub use config::{Anonymous, AuthenticationConfiguration};
pub use flags::OidcFlags;
pub use issuers::{ConfiguredIssuers, IssuerSample, IssuerTimes};

pub use crate::jwt::SIGNING_ALGORITHMS;
