//! The rules for names, label keys and label values. Also generates names.
//!
//! Each rule returns all faults as texts for the client; a valid text has none. Regular expressions occur only in
//! messages. The checks are written by hand, as they run for every object.

use std::net::IpAddr;

use crate::random::{Random, SUFFIX_LENGTH};

/// The maximum length of a generated name in bytes. Every kind accepts at least a DNS label.
const GENERATED_NAME_MAX: usize = 63;
const LABEL_MAX: usize = 63;
const SUBDOMAIN_MAX: usize = 253;
/// The maximum length of a name that is any path segment, in bytes.
const PATH_SEGMENT_MAX: usize = 2048;

const DNS_LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const DNS_LABEL_TEXT: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and \
                              must start and end with an alphanumeric character";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const SUBDOMAIN_TEXT: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
                              '.', and must start and end with an alphanumeric character";
const DNS_1035_LABEL: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const DNS_1035_LABEL_TEXT: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start \
                                   with an alphabetic character, and end with an alphanumeric character";
const LABEL_KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_KEY_TEXT: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                              alphanumeric character";
const LABEL_VALUE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";
const LABEL_VALUE_TEXT: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
                                '.', and must start and end with an alphanumeric character";

/// The rule for the names of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NameRule {
    /// A DNS subdomain (RFC 1123): labels separated by dots, at most 253 bytes. For most kinds.
    DnsSubdomain,
    /// A DNS label (RFC 1123): no dots, at most 63 bytes. For namespaces.
    DnsLabel,
    /// A DNS label that starts with a letter (RFC 1035). For services.
    Dns1035Label,
    /// One segment of a URL path, at most 2,048 bytes. For RBAC and other kinds that allow nearly any name.
    PathSegment,
    /// One segment of a URL path. For stored objects: older releases accepted longer names.
    Stored,
    /// An IP address in its canonical form. For `IPAddress` objects.
    IpAddress,
    /// A group, a dot and the plural name of a resource. For `StorageVersion` objects.
    GroupResource,
}

impl NameRule {
    /// The faults of this name. With `prefix`, random characters will be appended to the name, so it may end in a dash.
    pub fn check(self, name: &str, prefix: bool) -> Vec<String> {
        let masked = if prefix { mask_trailing_dash(name) } else { name.to_owned() };
        match self {
            Self::DnsSubdomain => dns_subdomain_faults(&masked),
            Self::DnsLabel => dns_label_faults(&masked),
            Self::Dns1035Label => dns_1035_label_faults(&masked),
            Self::PathSegment => {
                let mut faults = path_segment_faults(name, prefix);
                faults.extend(unstorable_faults(name));
                faults
            }
            Self::Stored => path_segment_faults(name, prefix),
            Self::IpAddress => ip_address_faults(name),
            Self::GroupResource => group_resource_faults(name),
        }
    }
}

/// Generates a name from a `generateName`: as much of the base as fits, and five random characters.
pub fn generate_name(base: &str, random: &dyn Random) -> String {
    let mut end = base.len().min(GENERATED_NAME_MAX - SUFFIX_LENGTH);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{}", &base[..end], random.name_suffix())
}

/// The faults of a DNS label (RFC 1123).
pub fn dns_label_faults(text: &str) -> Vec<String> {
    let mut faults = too_many_characters(text, LABEL_MAX);
    if !is_dns_label(text) {
        // The length has been checked, so a subdomain that is not a label must have dots.
        faults.push(if is_subdomain(text) {
            "must not contain dots".to_owned()
        } else {
            regex_fault(DNS_LABEL_TEXT, DNS_LABEL, &["my-name", "123-abc"])
        });
    }
    faults
}

/// The faults of a DNS label that must start with a letter (RFC 1035).
pub fn dns_1035_label_faults(text: &str) -> Vec<String> {
    let mut faults = too_many_characters(text, LABEL_MAX);
    if !(is_dns_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase())) {
        faults.push(regex_fault(DNS_1035_LABEL_TEXT, DNS_1035_LABEL, &["my-name", "abc-123"]));
    }
    faults
}

/// The faults of a DNS subdomain (RFC 1123).
pub fn dns_subdomain_faults(text: &str) -> Vec<String> {
    let mut faults = too_many_characters(text, SUBDOMAIN_MAX);
    if !is_subdomain(text) {
        faults.push(regex_fault(SUBDOMAIN_TEXT, SUBDOMAIN, &["example.com"]));
    }
    faults
}

/// The faults of one segment of a URL path.
pub fn path_segment_faults(text: &str, prefix: bool) -> Vec<String> {
    if !prefix && matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    let forbidden = ["/", "%"].into_iter().filter(|part| text.contains(part));
    forbidden.map(|part| format!("may not contain '{part}'")).collect()
}

/// The faults of a name that not every store can hold, or that does not fit into the URL of a request.
///
/// kube-apiserver has no such rules. PostgreSQL indexes keys up to about 2,600 bytes. A continue token contains a name, so
/// an object with a name of 50 KB would break the lists of all users.
fn unstorable_faults(name: &str) -> impl Iterator<Item = String> {
    let zero = name.contains('\0').then(|| "must not contain a zero byte".to_owned());
    length_faults(name, PATH_SEGMENT_MAX).into_iter().chain(zero)
}

/// The faults of a label key: an optional DNS subdomain with a slash, and a name. Annotation keys and finalizers have
/// the same form.
pub fn label_key_faults(key: &str) -> Vec<String> {
    let examples = ["MyName", "my.name", "123-abc"];
    let mut faults = Vec::new();
    let name = match key.split_once('/') {
        None => key,
        Some((prefix, name)) if !name.contains('/') => {
            if prefix.is_empty() {
                faults.push("prefix part must be non-empty".to_owned());
            } else {
                faults.extend(dns_subdomain_faults(prefix).into_iter().map(|fault| format!("prefix part {fault}")));
            }
            name
        }
        _ => {
            let fault = regex_fault(LABEL_KEY_TEXT, LABEL_KEY, &examples);
            let and = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {fault} {and}")];
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    }
    faults.extend(length_faults(name, LABEL_MAX).into_iter().map(|fault| format!("name part {fault}")));
    if !is_label_text(name) {
        faults.push(format!("name part {}", regex_fault(LABEL_KEY_TEXT, LABEL_KEY, &examples)));
    }
    faults
}

/// The faults of a label value.
pub fn label_value_faults(value: &str) -> Vec<String> {
    let mut faults = length_faults(value, LABEL_MAX);
    if !value.is_empty() && !is_label_text(value) {
        faults.push(regex_fault(LABEL_VALUE_TEXT, LABEL_VALUE, &["MyValue", "my_value", "12345"]));
    }
    faults
}

/// The faults of a storage version's name (KEP-2339).
fn group_resource_faults(name: &str) -> Vec<String> {
    let Some((group, resource)) = name.rsplit_once('.') else {
        return vec!["name must be in the form of <group>.<resource>".to_owned()];
    };
    let group = dns_subdomain_faults(group).into_iter().map(|fault| format!("the group segment {fault}"));
    let resource = dns_1035_label_faults(resource).into_iter().map(|fault| format!("the resource segment {fault}"));
    group.chain(resource).collect()
}

fn ip_address_faults(text: &str) -> Vec<String> {
    match text.parse::<IpAddr>() {
        Err(_) => vec![format!("ParseAddr({}): unable to parse IP", crate::go_format::quote(text))],
        Ok(address) if address.to_string() != text => vec!["must be a canonical format IP address".to_owned()],
        Ok(_) => Vec::new(),
    }
}

/// Replaces the trailing dash of a prefix and the character before it by one letter, as upstream does.
fn mask_trailing_dash(name: &str) -> String {
    let Some(rest) = name.strip_suffix('-').filter(|rest| !rest.is_empty()) else { return name.to_owned() };
    let kept = rest.char_indices().next_back().map_or(0, |(index, _)| index);
    format!("{}a", &rest[..kept])
}

/// The fault of a DNS name of more than `limit` bytes, in upstream's words. Valid names are ASCII.
fn too_many_characters(text: &str, limit: usize) -> Vec<String> {
    if text.len() > limit { vec![format!("must be no more than {limit} characters")] } else { Vec::new() }
}

/// The fault of a text of more than `limit` bytes.
pub fn length_faults(text: &str, limit: usize) -> Vec<String> {
    if text.len() > limit { vec![format!("must be no more than {limit} bytes")] } else { Vec::new() }
}

/// A fault with the expected form, examples, and a regular expression.
pub fn regex_fault(text: &str, regex: &str, examples: &[&str]) -> String {
    let examples: String = examples
        .iter()
        .enumerate()
        .map(|(index, example)| format!("{}'{example}', ", if index > 0 { " or " } else { "" }))
        .collect();
    format!("{text} (e.g. {examples}regex used for validation is '{regex}')")
}

fn is_subdomain(text: &str) -> bool {
    text.as_bytes().split(|byte| *byte == b'.').all(is_label)
}

fn is_dns_label(text: &str) -> bool {
    is_label(text.as_bytes())
}

fn is_label(text: &[u8]) -> bool {
    let edge = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    bounded(text, edge, |byte| edge(byte) || *byte == b'-')
}

fn is_label_text(text: &str) -> bool {
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    bounded(text.as_bytes(), u8::is_ascii_alphanumeric, inner)
}

/// Returns true for a non-empty text that begins and ends with an `edge` character and has only `inner` ones.
fn bounded(bytes: &[u8], edge: impl Fn(&u8) -> bool, inner: impl Fn(&u8) -> bool) -> bool {
    bytes.first().is_some_and(&edge) && bytes.last().is_some_and(&edge) && bytes.iter().all(inner)
}

#[cfg(test)]
mod tests;
