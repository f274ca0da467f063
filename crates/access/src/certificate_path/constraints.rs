//! Name constraints (RFC 5280, section 4.2.1.10): the names that an authority may sign.
//!
//! As in Go they apply to alternative names, not to subjects. Constraints on email addresses and URIs are not
//! supported: an authority with such a constraint may not sign any email address or URI.

use std::net::IpAddr;

use x509_parser::extensions::{GeneralName, GeneralSubtree, NameConstraints};

use super::{Certificate, PathError, is_checked};

/// Returns true if all constraints can be checked.
pub(super) fn are_understood(limits: &NameConstraints<'_>) -> bool {
    subtrees(limits).all(|subtree| is_checked(&subtree.base))
}

fn subtrees<'l, 'a>(limits: &'l NameConstraints<'a>) -> impl Iterator<Item = &'l GeneralSubtree<'a>> {
    limits.permitted_subtrees.iter().chain(&limits.excluded_subtrees).flatten()
}

/// Checks that an authority may sign the names in a certificate below it.
pub(super) fn check(authority: &Certificate<'_>, certificate: &Certificate<'_>) -> Result<(), PathError> {
    let limits = authority.read.name_constraints().map_err(|_| PathError::Unreadable)?;
    let Some(limits) = limits else { return Ok(()) };
    let refused = certificate.names()?.iter().find(|name| !allows(limits.value, name));
    refused.map_or(Ok(()), |name| Err(PathError::Name(quoted(name))))
}

fn allows(limits: &NameConstraints<'_>, name: &GeneralName<'_>) -> bool {
    let of_kind = |subtrees: &'_ Option<Vec<GeneralSubtree<'_>>>| {
        let subtrees = subtrees.iter().flatten();
        subtrees
            .filter(|subtree| is_same_kind(&subtree.base, name))
            .map(|subtree| covers(&subtree.base, name))
            .collect()
    };
    let (permitted, excluded): (Vec<Option<bool>>, Vec<Option<bool>>) =
        (of_kind(&limits.permitted_subtrees), of_kind(&limits.excluded_subtrees));
    let is_excluded = excluded.iter().any(|covers| *covers != Some(false));
    let is_permitted = permitted.is_empty() || permitted.contains(&Some(true));
    is_permitted && !is_excluded
}

fn is_same_kind(one: &GeneralName<'_>, other: &GeneralName<'_>) -> bool {
    is_checked(one) && std::mem::discriminant(one) == std::mem::discriminant(other)
}

/// Returns true if a name is within a subtree; `None` if this type of constraint is not supported.
fn covers(subtree: &GeneralName<'_>, name: &GeneralName<'_>) -> Option<bool> {
    match (subtree, name) {
        (GeneralName::DNSName(subtree), GeneralName::DNSName(name)) => Some(covers_domain(subtree, name)),
        (GeneralName::IPAddress(subtree), GeneralName::IPAddress(address)) => {
            let (network, mask) = subtree.split_at(subtree.len() / 2);
            let is_in = address.iter().zip(network).zip(mask).all(|((byte, net), mask)| byte & mask == net & mask);
            (subtree.len() == 2 * address.len()).then_some(is_in).or(Some(false))
        }
        _ => None,
    }
}

/// A domain covers itself and its subdomains. With a leading dot it covers only the subdomains.
fn covers_domain(subtree: &str, name: &str) -> bool {
    let (subtree, name) = (subtree.to_ascii_lowercase(), name.to_ascii_lowercase());
    match subtree.strip_prefix('.') {
        Some(_) => name.ends_with(&subtree),
        None => subtree.is_empty() || name == subtree || name.ends_with(&format!(".{subtree}")),
    }
}

fn quoted(name: &GeneralName<'_>) -> String {
    match name {
        GeneralName::DNSName(text) | GeneralName::RFC822Name(text) | GeneralName::URI(text) => format!("{text:?}"),
        GeneralName::IPAddress(bytes) => {
            let four = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let address = four.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
            address.map_or_else(|_| format!("{bytes:?}"), |address| address.to_string())
        }
        _ => "of another kind".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_covers_itself_and_those_below_it() {
        for (subtree, name, expect) in [
            ("", "a", true),
            ("example.com", "example.com", true),
            ("example.com", "a.EXAMPLE.com", true),
            ("example.com", "notexample.com", false),
            (".example.com", "example.com", false),
            (".example.com", "a.example.com", true),
        ] {
            assert_eq!(covers_domain(subtree, name), expect, "{subtree} {name}");
        }
    }

    #[test]
    fn a_network_covers_its_addresses() {
        let network = GeneralName::IPAddress(&[10, 1, 0, 0, 255, 255, 0, 0]);
        assert_eq!(covers(&network, &GeneralName::IPAddress(&[10, 1, 2, 3])), Some(true));
        assert_eq!(covers(&network, &GeneralName::IPAddress(&[10, 2, 2, 3])), Some(false));
        assert_eq!(covers(&network, &GeneralName::IPAddress(&[0; 16])), Some(false));
    }
}
