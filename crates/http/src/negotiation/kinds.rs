//! Selects between text and objects of a few kinds, for pages that are no resource.
//!
//! As upstream, a clause for an encoding of objects needs the kind, and one for text must not have one.

use http::request::Parts;

use super::{Clause, MediaKind, MediaType, accepted};

/// A form that a clause of `Accept` requests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KindForm<'a> {
    /// Text.
    Text,
    /// An object of a kind.
    Kind {
        /// The group.
        group: &'a str,
        /// The version.
        version: &'a str,
        /// The kind.
        kind: &'a str,
        /// The encoding.
        media: MediaType,
    },
}

/// Returns what `meet` returns for the first clause that it accepts.
pub(crate) fn negotiate_kind<T>(parts: &Parts, meet: impl Fn(KindForm<'_>) -> Option<T>) -> Option<T> {
    accepted(&parts.headers).iter().find_map(|clause| forms(clause, parts).into_iter().flatten().find_map(&meet))
}

/// The forms of a clause, in upstream's order.
fn forms<'a>(clause: &Clause<'a>, parts: &Parts) -> [Option<KindForm<'a>>; 3] {
    let of = |media: MediaKind| {
        let (group, version) = (clause.parameter("g")?, clause.parameter("v")?);
        let kind = clause.parameter("as").filter(|_| clause.matches(media))?;
        Some(KindForm::Kind { group, version, kind, media: clause.media(media, parts) })
    };
    let text = clause.names("text", "plain") && !clause.converts();
    [of(MediaKind::Json), of(MediaKind::Yaml), text.then_some(KindForm::Text)]
}
