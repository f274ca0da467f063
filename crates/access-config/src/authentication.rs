//! `AuthenticationConfiguration`: the issuers whose tokens are believed, and where requests without credentials are taken.
//!
//! Read in `config`, judged and compiled in `validation`; `claims` makes users of tokens, `issuer` knows the keys of one issuer, and
//! `issuers` has all of them and follows the file.

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
