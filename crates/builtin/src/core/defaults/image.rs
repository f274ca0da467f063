//! The names of images, by the grammar of registries and container runtimes (the `distribution` project's references).
//!
//! This file only checks a name. It does not split it into its parts.

/// The longest name of a repository with its registry, in bytes.
const NAME_MAX: usize = 255;
/// The longest tag, in bytes.
const TAG_MAX: usize = 128;
/// The length of the shortest digest, in hexadecimal digits.
const DIGEST_MIN: usize = 32;
/// The length of an image id, in hexadecimal digits. No name may have this form.
const IDENTIFIER: usize = 64;

/// Returns true for the name of an image: `registry.example:5000/a/b:tag@sha256:...`, with only the name required.
pub(crate) fn is_reference(text: &str) -> bool {
    let (named, digest) = text.split_once('@').map_or((text, None), |(named, digest)| (named, Some(digest)));
    let slash = named.rfind('/').map_or(0, |slash| slash + 1);
    // A colon before the last slash belongs to a port.
    let (name, tag) = match named[slash..].split_once(':') {
        Some((last, tag)) => (&named[..slash + last.len()], Some(tag)),
        None => (named, None),
    };
    let identifier = text.len() == IDENTIFIER && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    !identifier && is_name(name) && tag.is_none_or(is_tag) && digest.is_none_or(is_digest)
}

fn is_name(name: &str) -> bool {
    let registry = name.split_once('/').filter(|(first, _)| {
        first.contains(['.', ':']) || *first == "localhost" || first.bytes().any(|byte| byte.is_ascii_uppercase())
    });
    let path = match registry {
        Some((registry, _)) if !is_registry(registry) => return false,
        Some((_, path)) => path,
        None => name,
    };
    name.len() <= NAME_MAX && path.split('/').all(is_component)
}

/// Returns true for a host name or address, optionally with a port.
fn is_registry(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) if address.parse::<std::net::Ipv6Addr>().is_ok() => ("v6", rest.strip_prefix(':')),
        Some(_) => return false,
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let label = |label: &str| {
        let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        edge(label.as_bytes().first())
            && edge(label.as_bytes().last())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    host.split('.').all(label)
        && port.is_none_or(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns true for lower-case letters and digits. A dot, one or two underscores, or dashes may separate them.
fn is_component(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let edges = bytes.first().is_some_and(|byte| is_word(*byte)) && bytes.last().is_some_and(|byte| is_word(*byte));
    let separators = text.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    let separates = |part: &str| matches!(part, "" | "." | "_" | "__") || part.bytes().all(|byte| byte == b'-');
    edges && separators.into_iter().all(separates)
}

fn is_tag(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let first = text.bytes().next().is_some_and(is_word);
    first && text.len() <= TAG_MAX && text.bytes().all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
}

/// Returns true for a digest such as `sha256:0123...`.
fn is_digest(text: &str) -> bool {
    let Some((algorithm, digits)) = text.split_once(':') else { return false };
    let part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic()) && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    algorithm.split(['-', '_', '+', '.']).all(part)
        && digits.len() >= DIGEST_MIN
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::is_reference;

    #[test]
    fn valid_image_references_are_recognized() {
        let digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        let good = ["nginx", "a/b/c", "a__b", "a--b.c_d", "localhost/x", "R.example:5000/x:v1.2", "[::1]:80/x", "0"];
        for image in good.into_iter().chain([format!("x@{digest}").as_str(), format!("x:t@{digest}").as_str()]) {
            assert!(is_reference(image), "{image}");
        }
        let long = "a".repeat(256);
        let identifier = "0".repeat(64);
        let bad = ["", "_", "$(VAR)", "UPPER", "a b", "a:", "a:-t", "-a", "a..b", "a___b", "/a", "a//b", "a@sha256:01"];
        for image in bad.into_iter().chain(["%41", "r.example:x/y", &long, &identifier]) {
            assert!(!is_reference(image), "{image}");
        }
    }
}
