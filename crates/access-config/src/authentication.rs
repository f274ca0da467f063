//! `AuthenticationConfiguration`: the trusted token issuers, and the paths for anonymous requests.
//!
//! `config` reads it, `validation` validates and compiles it. `claims` maps tokens to users, `issuer` keeps the keys of
//! one issuer, and `issuers` has all of them and follows the file.

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
