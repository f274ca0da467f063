//! The parts of an audited request that are known when it arrives.
//!
//! All texts share one allocation. With separate allocations, creating them for every request would cost more than
//! writing the event.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use keelson_codec::json::is_plain;

use super::policy::Audited;
use crate::authorize::{Attributes, ResourceAttributes};
use crate::user::User;

/// An audited request.
#[derive(Clone, Debug)]
pub struct AuditRequest {
    /// The decision of the policy.
    pub(super) audited: Audited,
    /// The user; `None` if authentication failed.
    pub(super) user: Option<Arc<User>>,
    /// The time of arrival.
    pub received: SystemTime,
    texts: String,
    ends: [usize; PARTS],
    /// True for a resource request.
    is_for_resource: bool,
    /// True if no text needs JSON escapes.
    pub(super) is_plain: bool,
}

/// The texts, in the order of their storage.
#[derive(Clone, Copy)]
enum Part {
    Id,
    Uri,
    UserAgent,
    Addresses,
    Verb,
    /// The path of a non-resource request. The parts below belong to resource requests.
    Path,
    Group,
    Version,
    Resource,
    Subresource,
    Namespace,
    Name,
}

const PARTS: usize = Part::Name as usize + 1;
/// The typical length of an address, in bytes.
const ADDRESS_BYTES: usize = 24;

impl AuditRequest {
    /// Creates a request from its id, path and query, attributes, user agent and addresses. The address of the client
    /// is first. Nothing is recorded before the policy has decided.
    pub fn new(
        (id, uri): (&str, &str),
        (user_agent, addresses): (&str, &[IpAddr]),
        attributes: &Attributes<'_>,
        received: SystemTime,
    ) -> Self {
        let (verb, path, about) = match attributes {
            Attributes::Path { verb, path } => (*verb, *path, ResourceAttributes::default()),
            Attributes::Resource(about) => (about.verb, "", *about),
        };
        let ResourceAttributes { group, version, resource, subresource, namespace, name, .. } = about;
        let below = [group, version, resource, subresource.unwrap_or_default(), namespace.unwrap_or_default()];
        let behind = [verb, path].into_iter().chain(below).chain([name.unwrap_or_default()]);
        let bytes = id.len() + uri.len() + user_agent.len() + addresses.len() * ADDRESS_BYTES;
        let mut texts = String::with_capacity(bytes + behind.clone().map(str::len).sum::<usize>());
        let mut ends = [0; PARTS];
        for (text, end) in [id, uri, user_agent].into_iter().zip(&mut ends) {
            texts.push_str(text);
            *end = texts.len();
        }
        for (number, address) in addresses.iter().enumerate() {
            if number > 0 {
                texts.push(',');
            }
            push_address(*address, &mut texts);
        }
        ends[Part::Addresses as usize] = texts.len();
        for (text, end) in behind.zip(&mut ends[Part::Verb as usize..]) {
            texts.push_str(text);
            *end = texts.len();
        }
        let is_for_resource = matches!(attributes, Attributes::Resource(_));
        let (audited, is_plain) = (Audited::default(), is_plain(&texts));
        Self { audited, user: None, received, texts, ends, is_for_resource, is_plain }
    }

    /// Adds the policy's decision, and the user if authenticated.
    #[must_use]
    pub fn decided(mut self, audited: Audited, user: Option<Arc<User>>) -> Self {
        (self.audited, self.user) = (audited, user);
        self
    }

    fn text(&self, part: Part) -> &str {
        let begin = (part as usize).checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.texts[begin..self.ends[part as usize]]
    }

    /// The audit id.
    pub fn id(&self) -> &str {
        self.text(Part::Id)
    }

    /// Path and query, unchanged.
    pub fn uri(&self) -> &str {
        self.text(Part::Uri)
    }

    /// The verb.
    pub fn verb(&self) -> &str {
        self.text(Part::Verb)
    }

    /// The addresses of the client and of proxies; the client's is first.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        let addresses = self.text(Part::Addresses);
        addresses.split(',').filter(|address| !address.is_empty())
    }

    /// The user agent.
    pub fn user_agent(&self) -> &str {
        self.text(Part::UserAgent)
    }

    /// Returns true for a request for a resource.
    pub fn is_for_resource(&self) -> bool {
        self.is_for_resource
    }

    /// The attributes for the policy.
    pub fn attributes(&self) -> Attributes<'_> {
        if !self.is_for_resource {
            return Attributes::Path { verb: self.verb(), path: self.text(Part::Path) };
        }
        let named = |part| Some(self.text(part)).filter(|text| !text.is_empty());
        Attributes::Resource(ResourceAttributes {
            verb: self.verb(),
            group: self.text(Part::Group),
            version: self.text(Part::Version),
            resource: self.text(Part::Resource),
            subresource: named(Part::Subresource),
            namespace: named(Part::Namespace),
            name: named(Part::Name),
            ..ResourceAttributes::default()
        })
    }
}

/// Appends an address. Most addresses are IPv4, which is written without the slower formatter.
fn push_address(address: IpAddr, texts: &mut String) {
    let IpAddr::V4(address) = address else {
        return write!(texts, "{address}").expect("memory takes every text");
    };
    for (place, octet) in address.octets().into_iter().enumerate() {
        if place > 0 {
            texts.push('.');
        }
        let digits = [octet / 100, octet / 10 % 10, octet % 10];
        let from = digits[..2].iter().position(|digit| *digit > 0).unwrap_or(2);
        texts.extend(digits[from..].iter().map(|digit| char::from(b'0' + digit)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_fields_are_split_again() {
        let asked = Attributes::Resource(ResourceAttributes {
            verb: "get",
            group: "apps",
            version: "v1",
            resource: "deployments",
            namespace: Some("ns"),
            name: Some("web"),
            ..ResourceAttributes::default()
        });
        let addresses = [IpAddr::from([203, 0, 113, 7]), IpAddr::from([127, 0, 0, 1])];
        let request = AuditRequest::new(("7", "/apis?a"), ("kubectl", &addresses), &asked, SystemTime::UNIX_EPOCH);
        assert_eq!(
            (request.id(), request.uri(), request.user_agent(), request.verb()),
            ("7", "/apis?a", "kubectl", "get")
        );
        assert_eq!(request.addresses().collect::<Vec<_>>(), ["203.0.113.7", "127.0.0.1"]);
        assert_eq!(request.attributes(), asked);

        let page = Attributes::Path { verb: "get", path: "/healthz" };
        let request = AuditRequest::new(("", ""), ("", &[]), &page, SystemTime::UNIX_EPOCH);
        assert_eq!((request.addresses().count(), request.attributes()), (0, page));
    }
}
