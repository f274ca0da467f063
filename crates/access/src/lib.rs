//! Authentication, authorization, and the server's keys and certificates.
//!
//! Creates and stores certificates and signing keys, identifies clients by certificates or tokens, and authorizes their
//! requests. This crate does not depend on HTTP: requests are [`authorize::Attributes`].
//!
//! Members of `system:masters` may do everything. For other users the stored roles and bindings decide (`rbac`).

mod abac;
pub mod audit;
pub mod authenticate;
pub mod authorize;
pub mod bootstrap_tokens;
mod certificate_path;
mod certificate_request;
mod client_certificate_log;
mod client_key;
mod client_signer;
pub mod delegated;
mod der;
pub mod follow;
mod foreign_tokens;
pub mod front_proxy;
pub mod kubeconfig;
pub mod new_keys;
pub mod node;
pub mod pki;
pub mod rbac;
mod shared_text;
pub mod static_tokens;
pub mod tls;
pub mod token;
mod token_seal;
pub mod trust;
pub mod user;
mod watched_file;

pub use abac::{Abac, AbacError};
pub use authenticate::{ClientIdentity, IdentityError};
pub use authorize::{
    AlwaysAllow, Attributes, Authorizer, AuthorizerChain, Decision, PendingVerdict, PrivilegedGroup,
    ResourceAttributes, Verdict,
};
pub use bootstrap_tokens::BootstrapToken;
pub use certificate_request::{CertificateRequest, CertificateRequestError};
pub use client_signer::{ClientSigner, KeyUsages, client_request};
pub use delegated::{ClientCertificates, PublishedAuthorities};
pub use follow::NotCached;
pub use foreign_tokens::{ForeignTokens, TokenAnswer};
pub use front_proxy::{AuthenticationInfo, FrontProxy, RequestHeaders};
pub use node::{GRAPH_CHANGES, GraphChanges, NodeAuthorizer};
pub use pki::{
    CertificateEnd, FrontProxyOptions, NamedFiles, Pki, PkiError, PkiOptions, Renewal, RenewalTime, TokenKeyFiles,
};
pub use rbac::{HeldRules, PolicyRule, Rbac, missing_rights};
pub use shared_text::SharedText;
pub use static_tokens::{StaticTokens, StaticTokensError};
pub use token::{Claims, TokenError, TokenIssuer};
pub use token_seal::{Opened, SealFault, TokenSeal, TokenSealError};
pub use trust::{Mismatch, Trust};
pub use user::User;
pub use watched_file::{FileChanges, FileError, FileReads, read_bounded};
