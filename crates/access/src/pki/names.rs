//! The names in the serving certificate.
//!
//! Invalid names are refused. Otherwise such a mistake in the settings would only show when a client fails.

use std::net::IpAddr;

use rustls::pki_types::DnsName;

use super::{PkiError, PkiOptions};

/// The names in the serving certificate of every server.
const DEFAULT_NAMES: [&str; 7] = [
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "127.0.0.1",
    "::1",
];

/// The default names and the operator's, without duplicates, with addresses in canonical form.
///
/// # Errors
/// A name is neither an address nor a DNS name.
pub(super) fn serving_names(options: &PkiOptions) -> Result<Vec<String>, PkiError> {
    let mut names: Vec<String> = Vec::new();
    for name in DEFAULT_NAMES.into_iter().chain(options.extra_names.iter().map(String::as_str)) {
        let name = normal(name)?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

fn normal(name: &str) -> Result<String, PkiError> {
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(address.to_string());
    }
    // A wildcard matches one additional label (RFC 6125 section 6.4.3).
    let host = name.strip_prefix("*.").unwrap_or(name);
    if DnsName::try_from(host).is_ok() && !host.ends_with('.') {
        Ok(name.to_owned())
    } else {
        Err(PkiError::BadName { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, expect: Option<&str>) {
        let options = PkiOptions { extra_names: vec![name.to_owned()], ..PkiOptions::default() };
        let last = serving_names(&options).ok().and_then(|names| names.last().cloned());
        assert_eq!(last.as_deref(), expect, "{name}");
    }

    #[test]
    fn names_and_addresses() {
        check("api.example.com", Some("api.example.com"));
        check("*.example.com", Some("*.example.com"));
        check("10.0.0.1", Some("10.0.0.1"));
        check("2001:DB8:0::1", Some("2001:db8::1"));
        check("127.0.0.1", Some("::1"));
    }

    #[test]
    fn names_that_no_client_can_request_are_refused() {
        for bad in ["bad..name", "", ".", "a b", "-a", "a.example.com.", "*", "a.*.com", "https://a", "a:6443", "é.com"]
        {
            check(bad, None);
        }
    }
}
