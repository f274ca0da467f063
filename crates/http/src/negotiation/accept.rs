//! The clauses of `Accept` and `Accept-Encoding`, with their weights and parameters (RFC 9110, section 12).
//!
//! Like upstream, a clause with weight 0 is the last one and not excluded, except for encodings.

use http::header::{ACCEPT, ACCEPT_ENCODING, HeaderMap};
use http::request::Parts;
use keelson_meta::ApiError;
use keelson_meta::error::NotAcceptableForm;

use super::{MEDIA_TYPES, MediaKind, MediaType, wants_pretty};

/// The maximum weight of a clause. Weights are in thousandths, the precision of HTTP.
const FULL_WEIGHT: u16 = 1000;

/// One clause of `Accept`.
#[derive(Debug)]
pub(super) struct Clause<'a> {
    kind: &'a str,
    subtype: &'a str,
    weight: u16,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().filter(|media| !media.is_empty())?;
        // Some old clients send `*` for `*/*`.
        let (kind, subtype) = media.split_once('/').unwrap_or((media, "*"));
        let mut clause = Self { kind, subtype, weight: FULL_WEIGHT, parameters: Vec::new() };
        for parameter in parts {
            if let Some(weight) = weight(parameter) {
                clause.weight = weight;
            } else if let Some((key, value)) = parameter.split_once('=') {
                clause.parameters.push((key.trim(), value.trim().trim_matches('"')));
            }
        }
        Some(clause)
    }

    pub(super) fn parameter(&self, name: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value).filter(|value| !value.is_empty())
    }

    /// Returns true if the clause requests objects of another kind, such as tables.
    pub(super) fn converts(&self) -> bool {
        ["as", "g", "v"].iter().any(|name| self.parameter(name).is_some())
    }

    /// Returns true if the clause requests objects without this field. Other fields that it names have no effect.
    pub(super) fn drops(&self, field: &str) -> bool {
        self.parameter("drop").is_some_and(|fields| fields.split('+').any(|name| name.trim() == field))
    }

    pub(super) fn pretty(&self) -> bool {
        self.parameter("pretty").is_some_and(|value| value == "1" || value == "true")
    }

    /// The encoding, indented if this clause or the request demands it.
    pub(super) fn media(&self, kind: MediaKind, parts: &Parts) -> MediaType {
        MediaType { kind, pretty: kind == MediaKind::Json && (self.pretty() || wants_pretty(parts)) }
    }

    pub(super) fn is_wildcard(&self) -> bool {
        self.subtype == "*"
    }

    pub(super) fn matches(&self, kind: MediaKind) -> bool {
        self.names("application", kind.subtype()) && self.parameter("stream").is_none_or(|stream| stream == "watch")
    }

    pub(super) fn names(&self, kind: &str, subtype: &str) -> bool {
        (self.kind == "*" || self.kind.eq_ignore_ascii_case(kind))
            && (self.subtype == "*" || self.subtype.eq_ignore_ascii_case(subtype))
    }
}

/// The weight in a `q=` parameter, in thousandths. `None` for other parameters.
fn weight(parameter: &str) -> Option<u16> {
    let (key, value) = parameter.split_once('=')?;
    if !key.trim().eq_ignore_ascii_case("q") {
        return None;
    }
    let weight = value.trim().parse::<f32>().ok().filter(|weight| (0.0..=1.0).contains(weight)).unwrap_or(1.0);
    // The product is between 0 and 1000, so the conversion loses only fractions.
    Some((weight * f32::from(FULL_WEIGHT)) as u16)
}

/// The clauses of `Accept`, preferred ones first. A missing header accepts everything.
pub(super) fn accepted(headers: &HeaderMap) -> Vec<Clause<'_>> {
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut clauses: Vec<_> = values.flat_map(|value| value.split(',')).filter_map(Clause::parse).collect();
    if clauses.is_empty() {
        clauses.extend(Clause::parse("*/*"));
    }
    // A clause with weight 0 stays: upstream gives it the lowest priority and does not exclude it. The sort is stable,
    // so that clauses of equal priority stay in the client's order.
    clauses.sort_by_key(|clause| (std::cmp::Reverse(clause.weight), clause.is_wildcard()));
    clauses
}

/// The first result of a clause, in the order of preference.
///
/// # Errors
/// 406 if no clause has a result.
pub(super) fn choose<T>(clauses: &[Clause<'_>], meet: impl Fn(&Clause<'_>) -> Option<T>) -> Result<T, ApiError> {
    let unmet = || ApiError::NotAcceptable { accepted: NotAcceptableForm::MediaTypes(MEDIA_TYPES) };
    clauses.iter().find_map(meet).ok_or_else(unmet)
}

/// Returns true if the client accepts gzip. Other encodings are not supported.
pub fn accepts_gzip(headers: &HeaderMap) -> bool {
    accepts_coding(headers, "gzip")
}

/// Returns true if `Accept-Encoding` names this coding, with a weight above 0.
pub fn accepts_coding(headers: &HeaderMap, coding: &str) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|clause| {
        let mut parts = clause.split(';').map(str::trim);
        let is_named = parts.next().is_some_and(|named| named.eq_ignore_ascii_case(coding));
        is_named && parts.all(|parameter| weight(parameter).is_none_or(|weight| weight > 0))
    })
}
