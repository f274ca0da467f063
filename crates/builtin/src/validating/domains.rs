//! Domain names, and strings that start with one: hosts, controllers, signers, and addresses of webhooks.
//!
//! Each function reports its errors at the given place. Messages are upstream's.

use keelson_meta::go_format;
use keelson_meta::names::{length_faults, regex_fault};

use crate::validating::at::At;
use crate::validating::formats::{DNS_LABEL, DNS_SUBDOMAIN, Format, port_fault};
use crate::validating::type_rules::Run;

/// The longest DNS subdomain, in bytes.
const SUBDOMAIN_MAX: usize = 253;
/// The longest DNS label, in bytes.
const LABEL_MAX: usize = 63;

/// A DNS subdomain after `*.`.
pub(crate) const WILDCARD: Format = Format::new("DNS subdomain below a wildcard", wildcard_faults);

fn wildcard_faults(text: &str) -> Vec<String> {
    const TEXT: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must \
                        consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character";
    const REGEX: &str = r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
    let mut faults = length_faults(text, SUBDOMAIN_MAX);
    // A string that is too long is reported as a whole.
    let fits = |rest: &str| DNS_SUBDOMAIN.faults(rest).is_empty() || rest.len() > SUBDOMAIN_MAX;
    if !text.strip_prefix("*.").is_some_and(fits) {
        faults.push(regex_fault(TEXT, REGEX, &["*.example.com"]));
    }
    faults
}

/// A name with at least three segments, such as that of a webhook.
pub(crate) fn full_name(at: &At<'_, '_>, run: &mut Run<'_>) {
    let text = at.text();
    if text.is_empty() {
        return at.required(run, "");
    }
    let faults = DNS_SUBDOMAIN.faults(text);
    if !faults.is_empty() {
        at.invalid(run, text, faults.join(","));
    } else if text.split('.').count() < 3 {
        at.invalid(run, text, "should be a domain with at least three segments separated by dots");
    }
}

/// A fully qualified host name.
pub(crate) fn host(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.text().is_empty() {
        return at.required(run, "");
    }
    let text = at.text().strip_suffix('.').unwrap_or(at.text());
    let faults = DNS_SUBDOMAIN.faults(text);
    if !faults.is_empty() {
        return at.invalid(run, text, faults.join(","));
    }
    if text.split('.').count() < 2 {
        return at.invalid(run, text, "should be a domain with at least two segments separated by dots");
    }
    for label in text.split('.') {
        let faults = DNS_LABEL.faults(label);
        if !faults.is_empty() {
            return at.invalid(run, label, faults.join(","));
        }
    }
}

/// A domain and a path, separated by a slash.
pub(crate) fn domain_and_path(at: &At<'_, '_>, run: &mut Run<'_>) {
    let text = at.text();
    if text.is_empty() {
        return at.required(run, "");
    }
    match text.split_once('/') {
        Some((domain, path)) if !domain.is_empty() && !path.is_empty() => {
            for fault in DNS_SUBDOMAIN.faults(domain) {
                at.invalid(run, domain, fault);
            }
            if !path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte)) {
                const TEXT: &str = r"Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')";
                at.invalid(run, path, TEXT);
            }
        }
        _ => at.invalid(run, text, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
    }
}

/// The name of a signer: a domain, a slash, and a name.
pub(crate) fn signer_name(at: &At<'_, '_>, run: &mut Run<'_>) {
    const NAME_MAX: usize = SUBDOMAIN_MAX + 1 + (SUBDOMAIN_MAX + 1 + LABEL_MAX);
    let text = at.text();
    if text.is_empty() {
        return at.required(run, "");
    }
    let Some((domain, name)) = text.split_once('/').filter(|(_, name)| !name.contains('/')) else {
        return at.invalid(
            run,
            text,
            "must be a fully qualified domain and path of the form 'example.com/signer-name'",
        );
    };
    if domain.len() > SUBDOMAIN_MAX {
        at.too_long(run, SUBDOMAIN_MAX);
    }
    labels_of_signer(at, domain, &DNS_LABEL, run);
    if !domain.contains('.') {
        at.invalid(run, domain, "should be a domain with at least two segments separated by dots");
    }
    labels_of_signer(at, name, &DNS_SUBDOMAIN, run);
    if text.len() > NAME_MAX {
        at.too_long(run, NAME_MAX);
    }
}

/// Like upstream, stops at the first invalid label.
fn labels_of_signer(at: &At<'_, '_>, segment: &str, format: &Format, run: &mut Run<'_>) {
    let faulty = segment.split('.').map(|label| (label, format.faults(label))).find(|(_, faults)| !faults.is_empty());
    if let Some((label, faults)) = faulty {
        for fault in faults {
            at.invalid(run, segment, format!("validating label {}: {fault}", go_format::quote(label)));
        }
    }
}

/// The address of a webhook: either a URL or a service.
pub(crate) fn client_config(at: &At<'_, '_>, run: &mut Run<'_>) {
    let (url, service) = (at.field("url"), at.field("service"));
    match (url.is_set(), service.is_set()) {
        (true, false) => webhook_url(&url, run),
        (false, true) => webhook_service(&service, run),
        _ => at.required(run, "exactly one of url or service is required"),
    }
}

fn webhook_url(at: &At<'_, '_>, run: &mut Run<'_>) {
    const FORM: &str = "; desired format: https://host[/path]";
    let text = at.text();
    let (before, fragment) = text.split_once('#').unwrap_or((text, ""));
    let (before, query) = before.split_once('?').unwrap_or((before, ""));
    let (scheme, rest) = before.split_once(':').unwrap_or(("", before));
    let authority = rest.strip_prefix("//").map_or("", |rest| rest.split('/').next().unwrap_or_default());
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    if let Some(fault) = unreadable(text, scheme, host) {
        let detail = format!("url must be a valid URL: parse {}: {fault}{FORM}", go_format::quote(text));
        return at.required(run, detail);
    }
    if scheme != "https" {
        at.invalid(run, scheme, format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if host.is_empty() {
        at.invalid(run, host, format!("host must be specified{FORM}"));
    }
    if let Some(user) = user {
        at.invalid(run, user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        at.invalid(run, fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        at.invalid(run, query, "query parameters are not permitted in the URL");
    }
}

/// Go's error for a URL that cannot be parsed; `None` if it can.
fn unreadable(text: &str, scheme: &str, host: &str) -> Option<String> {
    if text.bytes().any(|byte| byte.is_ascii_control()) {
        return Some("net/url: invalid control character in URL".to_owned());
    }
    if text.starts_with(':') {
        return Some("missing protocol scheme".to_owned());
    }
    if !scheme.is_empty() && !scheme.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return Some("first path segment in URL cannot contain colon".to_owned());
    }
    let port = host.rsplit_once(':').map(|(_, port)| port).filter(|port| !port.contains(']'));
    if let Some(port) = port.filter(|port| !port.bytes().all(|byte| byte.is_ascii_digit())) {
        return Some(format!("invalid port {} after host", go_format::quote(&format!(":{port}"))));
    }
    let space = host.chars().find(|c| *c == ' ');
    space.map(|_| "invalid character \" \" in host name".to_owned())
}

/// The port of a service that this server calls.
pub(crate) fn service_port(at: &At<'_, '_>, run: &mut Run<'_>) {
    if let Some(fault) = port_fault(at.int()) {
        at.invalid(run, at.int(), format!("port is not valid: {fault}"));
    }
}

/// The reference to a service that this server calls: namespace, name, port and path.
pub(crate) fn webhook_service(at: &At<'_, '_>, run: &mut Run<'_>) {
    for field in ["name", "namespace"].map(|field| at.field(field)) {
        if field.is_empty() {
            field.required(run, "");
        }
    }
    service_port(&at.field("port"), run);
    let path = at.field("path");
    let text = path.text();
    if matches!(text, "" | "/") {
        return;
    }
    if text == "//" {
        return path.invalid(run, text, "segment[0] may not be empty");
    }
    if !text.starts_with('/') {
        path.invalid(run, text, "must start with a '/'");
    }
    // Like upstream, skips the first character, whatever it is.
    let rest = text.char_indices().nth(1).map_or("", |(second, _)| &text[second..]);
    for (index, step) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
        if step.is_empty() {
            path.invalid(run, text, format!("segment[{index}] may not be empty"));
            continue;
        }
        for fault in DNS_SUBDOMAIN.faults(step) {
            path.invalid(run, text, format!("segment[{index}]: {fault}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::{Value, json};

    use keelson_meta::Object;

    use super::*;
    use crate::validating::type_rules::Check;

    fn check(rule: Check, value: &Value, expected: &[&str]) {
        let object = Object::from_value(json!({ "at": value })).expect("an object");
        let mut run = Run::new(&object, None);
        rule(&At::object(&object, None).field("at"), &mut run);
        let texts: Vec<String> = run.faults.iter().map(ToString::to_string).collect();
        assert_eq!(texts, expected);
    }

    #[test]
    fn names_with_domains() {
        assert!(WILDCARD.faults("*.example.com").is_empty());
        for bad in ["*", "*.", "a.*.com", "*.*.com", "example.com"] {
            assert_eq!(WILDCARD.faults(bad).len(), 1, "{bad}");
        }
        check(full_name, &json!("a.example.com"), &[]);
        let short =
            "at: Invalid value: \"example.com\": should be a domain with at least three segments separated by dots";
        check(full_name, &json!("example.com"), &[short]);
        check(host, &json!("a.b."), &[]);
        check(
            host,
            &json!("localhost"),
            &["at: Invalid value: \"localhost\": should be a domain with at least two segments separated by dots"],
        );
        check(domain_and_path, &json!("example.com/a/b"), &[]);
        check(
            domain_and_path,
            &json!("example.com"),
            &["at: Invalid value: \"example.com\": must be a domain-prefixed path (such as \"acme.io/foo\")"],
        );
        check(signer_name, &json!("example.com/a"), &[]);
        let form = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        check(signer_name, &json!("example.com"), &[&format!("at: Invalid value: \"example.com\": {form}")]);
    }

    #[test]
    fn where_webhooks_are_called() {
        check(client_config, &json!({"url": "https://example.com:8443/a/b"}), &[]);
        check(client_config, &json!({}), &["at: Required value: exactly one of url or service is required"]);
        let form = "; desired format: https://host[/path]";
        check(
            client_config,
            &json!({"url": "http://u:p@example.com/?a=b#c"}),
            &[
                &format!("at.url: Invalid value: \"http\": 'https' is the only allowed URL scheme{form}"),
                "at.url: Invalid value: \"u:p\": user information is not permitted in the URL",
                "at.url: Invalid value: \"c\": fragments are not permitted in the URL",
                "at.url: Invalid value: \"a=b\": query parameters are not permitted in the URL",
            ],
        );
        check(client_config, &json!({"service": {"name": "a", "namespace": "b", "port": 443, "path": "/a/b/"}}), &[]);
        check(
            client_config,
            &json!({"service": {"name": "a", "port": 0, "path": "/a//b"}}),
            &[
                "at.service.namespace: Required value",
                "at.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive",
                "at.service.path: Invalid value: \"/a//b\": segment[1] may not be empty",
            ],
        );
    }
}
