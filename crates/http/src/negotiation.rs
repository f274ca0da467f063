//! Content negotiation: selects the form of a response by `Accept`.
//!
//! Clauses are tried by weight, then concrete types before wildcards, then in order. The first supported clause wins. A
//! clause with an unsupported transformation or version is skipped if a later one is supported. The content of the
//! response does not matter here.
//!
//! Upstream's router checks `Accept` before its handlers, by rules of its own: it ignores weights and does not support
//! `application/*`. A request that this router refuses is refused here too ([`routed`]), since clients and conformance
//! tests depend on it.

mod accept;
mod kinds;

use http::header::{ACCEPT, HeaderMap, USER_AGENT};
use http::request::Parts;
use keelson_discovery::AggregatedForm;
use keelson_meta::ApiError;
use keelson_meta::error::{MediaTypes, NotAcceptableForm};
use keelson_openapi::DocumentEncoding;
use keelson_tables::wire::MetaVersion;

use self::accept::{Clause, accepted, choose};
pub use self::accept::{accepts_coding, accepts_gzip};
pub(crate) use self::kinds::{KindForm, negotiate_kind};

/// An encoding of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaKind {
    /// `application/json`
    Json,
    /// `application/yaml`
    Yaml,
    /// `application/vnd.kubernetes.protobuf`
    Protobuf,
}

impl MediaKind {
    /// The value of `Content-Type`.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    /// The value of `Content-Type` of a watch.
    pub const fn watch_content_type(self) -> &'static str {
        match self {
            Self::Json | Self::Yaml => self.content_type(),
            Self::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }

    const fn subtype(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Yaml => "yaml",
            Self::Protobuf => "vnd.kubernetes.protobuf",
        }
    }
}

/// The media types of objects that 406 and 415 errors list.
pub const MEDIA_TYPES: MediaTypes = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// The media types of collections, whose paths also serve watches.
const STREAMED_MEDIA_TYPES: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];

/// The encodings of most resources, preferred ones first.
pub const OBJECT_OFFERS: &[MediaKind] = &[MediaKind::Json, MediaKind::Yaml, MediaKind::Protobuf];
/// The media types of documents of keelson's own kinds that errors list.
const TEXT_MEDIA_TYPES: MediaTypes = &["application/json", "application/yaml"];
/// The encodings of documents of keelson's own kinds, which have no protobuf messages.
const TEXT_OFFERS: &[MediaKind] = &[MediaKind::Json, MediaKind::Yaml];
/// The encodings of watches.
pub const WATCH_OFFERS: &[MediaKind] = &[MediaKind::Json, MediaKind::Protobuf];

/// The encoding of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaType {
    /// The encoding.
    pub kind: MediaKind,
    /// True if JSON is indented.
    pub pretty: bool,
}

impl MediaType {
    /// Compact JSON.
    pub const JSON: Self = Self { kind: MediaKind::Json, pretty: false };
}

/// The requested form of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectForm {
    /// The objects.
    Whole,
    /// Rows of a table, for people.
    Table(MetaVersion),
    /// Their metadata alone.
    Metadata(MetaVersion),
}

/// The form and the encoding of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Representation {
    /// The form of objects.
    pub object_form: ObjectForm,
    /// The encoding.
    pub media: MediaType,
    /// True if objects are sent without `metadata.managedFields` (KEP-5958).
    pub drops_managed_fields: bool,
}

/// The subject of a response. It determines the supported forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// One object.
    Object,
    /// A list of objects.
    List,
    /// A stream of events about objects.
    Watch,
}

impl Subject {
    fn offers(self) -> &'static [MediaKind] {
        match self {
            Self::Object | Self::List => OBJECT_OFFERS,
            Self::Watch => WATCH_OFFERS,
        }
    }

    /// The media types that upstream's router accepts.
    fn routed(self) -> MediaTypes {
        match self {
            Self::Object => MEDIA_TYPES,
            Self::List | Self::Watch => STREAMED_MEDIA_TYPES,
        }
    }

    /// The form that a clause requests. `None` for an unknown one. The second value is the kind of metadata, of one
    /// object or of a list.
    fn object_form(clause: &Clause<'_>) -> Option<(ObjectForm, Option<MetadataOf>)> {
        if !clause.converts() {
            return Some((ObjectForm::Whole, None));
        }
        if clause.parameter("g") != Some("meta.k8s.io") {
            return None;
        }
        let version = MetaVersion::parse(clause.parameter("v")?)?;
        match clause.parameter("as")? {
            "Table" => Some((ObjectForm::Table(version), None)),
            "PartialObjectMetadata" => Some((ObjectForm::Metadata(version), Some(MetadataOf::Object))),
            "PartialObjectMetadataList" => Some((ObjectForm::Metadata(version), Some(MetadataOf::List))),
            _ => None,
        }
    }

    /// Returns an error unless the subject has such metadata. `go_type` is the type of the response in upstream's code.
    fn has_metadata(self, of: MetadataOf, go_type: impl FnOnce() -> String) -> Result<(), ApiError> {
        let accepted = match (of, self) {
            (MetadataOf::Object, Self::Object | Self::Watch) | (MetadataOf::List, Self::List) => return Ok(()),
            (MetadataOf::Object, Self::List) => NotAcceptableForm::MetadataOfList(go_type()),
            (MetadataOf::List, Self::Object | Self::Watch) => NotAcceptableForm::MetadataListOfObject(go_type()),
        };
        Err(ApiError::NotAcceptable { accepted })
    }
}

/// The kind of metadata that a clause requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MetadataOf {
    Object,
    List,
}

/// The requested form of `/api` and `/apis`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscoveryForm {
    /// The legacy documents: one for each group and version.
    Legacy(MediaKind),
    /// The aggregated document of all groups.
    Aggregated(AggregatedForm, MediaKind, Serving),
}

/// The servers that a discovery document covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serving {
    /// Any of the servers on the store.
    Any,
    /// Only the server that gets the request. Servers on one store request this from each other.
    Own,
}

/// Checks `Accept` as upstream's router does: it must name one of these media types, or all, with any parameters.
///
/// # Errors
/// [`ApiError::NotAcceptable`] when it names none.
pub fn routed(headers: &HeaderMap, produced: MediaTypes) -> Result<(), ApiError> {
    let mut values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let meets = |clause: &str| {
        let media = clause.split(';').next().unwrap_or_default().trim();
        media == "*/*" || produced.contains(&media)
    };
    let accepts = match values.next() {
        None | Some("") => true,
        Some(first) => first.split(',').any(meets) || values.any(|value| value.split(',').any(meets)),
    };
    if accepts { Ok(()) } else { Err(ApiError::NotAcceptable { accepted: NotAcceptableForm::Router(produced) }) }
}

/// Selects the encoding of a response on a path that upstream's router serves.
///
/// # Errors
/// [`ApiError::NotAcceptable`] when no clause can be met, or the router refuses.
pub fn negotiate_routed(parts: &Parts) -> Result<MediaType, ApiError> {
    routed(&parts.headers, MEDIA_TYPES)?;
    negotiate(parts, OBJECT_OFFERS)
}

/// Selects the encoding of a response by `Accept`, the parameter `pretty` and the user agent.
///
/// # Errors
/// [`ApiError::NotAcceptable`] when no clause can be met by `offers`.
pub fn negotiate(parts: &Parts, offers: &[MediaKind]) -> Result<MediaType, ApiError> {
    let clauses = accepted(&parts.headers);
    choose(&clauses, |clause| {
        if clause.converts() {
            return None;
        }
        offers.iter().copied().find(|kind| clause.matches(*kind)).map(|kind| clause.media(kind, parts))
    })
}

/// Selects the encoding of a document of keelson's own kinds.
///
/// # Errors
/// [`ApiError::NotAcceptable`] when no clause can be met by JSON or YAML.
pub fn negotiate_document(parts: &Parts) -> Result<MediaType, ApiError> {
    let unmet = |_| ApiError::NotAcceptable { accepted: NotAcceptableForm::MediaTypes(TEXT_MEDIA_TYPES) };
    negotiate(parts, TEXT_OFFERS).map_err(unmet)
}

/// The origin of the objects in a response. It determines the supported forms and the first check of `Accept`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A built-in resource, which upstream's router serves.
    Builtin,
    /// A custom resource. It has no protobuf encoding, and upstream's router does not serve it.
    Custom,
    /// A built-in kind below a custom resource.
    BelowCustom,
    /// A create-only kind, such as a review, which is not stored. Upstream has no tables of these.
    Unstored,
}

/// Selects the form and the encoding of objects. Tables are not encoded in protobuf. `go_type` is the type of the
/// response in upstream's code, which an error names.
///
/// # Errors
/// [`ApiError::NotAcceptable`] when no clause is supported. Also when the first supported clause requests metadata of a
/// list and the response is an object, or the other way round.
pub fn negotiate_representation(
    parts: &Parts,
    subject: Subject,
    origin: Origin,
    go_type: impl FnOnce() -> String,
) -> Result<Representation, ApiError> {
    if matches!(origin, Origin::Builtin | Origin::Unstored) {
        routed(&parts.headers, subject.routed())?;
    }
    let (representation, metadata) = choose(&accepted(&parts.headers), |clause| {
        let (object_form, metadata) = Subject::object_form(clause)?;
        let kind = subject.offers().iter().copied().find(|kind| clause.matches(*kind))?;
        match (object_form, kind) {
            (ObjectForm::Whole, MediaKind::Protobuf) if origin == Origin::Custom => return None,
            (ObjectForm::Table(_), MediaKind::Protobuf) => return None,
            (ObjectForm::Table(_), _) if origin == Origin::Unstored => return None,
            (ObjectForm::Whole | ObjectForm::Table(_) | ObjectForm::Metadata(_), _) => {}
        }
        // As in the proposal, protobuf always has all fields.
        let drops_managed_fields = kind != MediaKind::Protobuf && clause.drops("metadata.managedFields");
        Some((Representation { object_form, media: clause.media(kind, parts), drops_managed_fields }, metadata))
    })?;
    if let Some(of) = metadata {
        subject.has_metadata(of, go_type)?;
    }
    Ok(representation)
}

/// Selects the form of `/api` and `/apis`.
///
/// # Errors
/// [`ApiError::NotAcceptable`] when no clause can be met.
pub fn negotiate_discovery(headers: &HeaderMap) -> Result<DiscoveryForm, ApiError> {
    choose(&accepted(headers), |clause| {
        let kind = OBJECT_OFFERS.iter().copied().find(|kind| clause.matches(*kind))?;
        if !clause.converts() {
            return Some(DiscoveryForm::Legacy(kind));
        }
        let parameter = |name| clause.parameter(name).unwrap_or_default();
        let form = AggregatedForm::from_parameters(parameter("g"), parameter("v"), parameter("as"))?;
        let serving = if parameter("profile") == "nopeer" { Serving::Own } else { Serving::Any };
        Some(DiscoveryForm::Aggregated(form, kind, serving))
    })
}

/// A version of OpenAPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenApiVersion {
    /// `/openapi/v2`.
    V2,
    /// The documents below `/openapi/v3`.
    V3,
}

impl OpenApiVersion {
    /// The subtypes of its protobuf form. Old clients send the second, although no media type may contain an `@`.
    const fn protobuf(self) -> [&'static str; 2] {
        match self {
            Self::V2 => {
                ["com.github.proto-openapi.spec.v2.v1.0+protobuf", "com.github.proto-openapi.spec.v2@v1.0+protobuf"]
            }
            Self::V3 => {
                ["com.github.proto-openapi.spec.v3.v1.0+protobuf", "com.github.proto-openapi.spec.v3@v1.0+protobuf"]
            }
        }
    }
}

/// Selects the encoding of an OpenAPI document.
///
/// # Errors
/// [`ApiError::NotAcceptable`] when no clause can be met.
pub fn negotiate_openapi(headers: &HeaderMap, version: OpenApiVersion) -> Result<DocumentEncoding, ApiError> {
    choose(&accepted(headers), |clause| {
        if clause.matches(MediaKind::Json) {
            return Some(DocumentEncoding::Json);
        }
        let is_protobuf = version.protobuf().iter().any(|subtype| clause.names("application", subtype));
        is_protobuf.then_some(DocumentEncoding::Protobuf)
    })
}

/// The encoding of an error: the requested one, or indented JSON if that is not supported.
pub fn error_form(parts: &Parts) -> MediaType {
    negotiate(parts, OBJECT_OFFERS).unwrap_or(MediaType { kind: MediaKind::Json, pretty: true })
}

/// Returns true for indented JSON: with `?pretty=true`, or for clients that people use by hand.
pub fn wants_pretty(parts: &Parts) -> bool {
    let query = parts.uri.query().unwrap_or_default();
    match form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == "pretty") {
        Some((_, value)) => value == "true" || value == "1",
        None => {
            let agent = parts.headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
            ["curl", "Wget", "Mozilla/5.0"].iter().any(|prefix| agent.starts_with(prefix))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn parts(target: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::get(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn describe(chosen: Result<MediaType, ApiError>) -> String {
        match chosen {
            Ok(MediaType { kind, pretty }) => format!("{kind:?}{}", if pretty { " pretty" } else { "" }),
            Err(error) => error.status().message,
        }
    }

    fn check(accept: &str, expect: &str) {
        assert_eq!(describe(negotiate_routed(&parts("/", &[("accept", accept)]))), expect, "{accept}");
    }

    const ROUTER: &str = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
                          application/vnd.kubernetes.protobuf";
    const UNMET: &str = "only the following media types are accepted: application/json, application/yaml, \
                               application/vnd.kubernetes.protobuf";

    #[test]
    fn objects() {
        check("application/json", "Json");
        check("application/yaml", "Yaml");
        check("*/*", "Json");
        check("application/*", ROUTER);
        check("", "Json");
        check("*", ROUTER);
        check("application/json, */*", "Json");
        check("Application/YAML", ROUTER);
        check("application/json;q=0", "Json");
        check("application/json;q=0.5,application/yaml;q=0.9", "Yaml");
        check("*/*,application/yaml", "Yaml");
        check("application/json;q=0,application/yaml;q=0.1", "Yaml");
        check("text/html,application/yaml", "Yaml");
        check("application/vnd.kubernetes.protobuf,application/json", "Protobuf");
        check("application/json;unknown=1", "Json");
        check("application/json;pretty=1", "Json pretty");
        check("application/json;stream=watch", "Json");
        check("application/json;stream=tail", UNMET);
        check("text/html", ROUTER);
    }

    #[test]
    fn unsupported_media_types_are_skipped() {
        check("application/cbor,application/json", "Json");
        check("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", UNMET);
        check(
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
            "Json",
        );
        check("application/json;as=Table;v=v1;g=meta.k8s.io", UNMET);
        check("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json", "Json");
    }

    #[test]
    fn watches_are_not_offered_in_yaml() {
        let chosen = negotiate(&parts("/", &[("accept", "application/yaml")]), WATCH_OFFERS);
        assert_eq!(describe(chosen), UNMET);
    }

    #[test]
    fn answers_are_indented_for_people() {
        let check = |target: &str, agent: &str, expect: &str| {
            let chosen = negotiate(&parts(target, &[("user-agent", agent)]), OBJECT_OFFERS);
            assert_eq!(describe(chosen), expect, "{target} {agent}");
        };
        check("/", "kubectl/v1.36.0", "Json");
        check("/", "curl/8.0", "Json pretty");
        check("/", "Mozilla/5.0 (X11)", "Json pretty");
        check("/?pretty=true", "kubectl", "Json pretty");
        check("/?pretty=1", "kubectl", "Json pretty");
        check("/?pretty=false", "curl/8.0", "Json");
    }

    #[test]
    fn discovery() {
        const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        const BETA: &str = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
        let check = |accept: &str, expect: &str| {
            let text = match negotiate_discovery(&parts("/", &[("accept", accept)]).headers) {
                Ok(DiscoveryForm::Legacy(kind)) => format!("legacy {kind:?}"),
                Ok(DiscoveryForm::Aggregated(version, kind, Serving::Any)) => format!("{} {kind:?}", version.version()),
                Ok(DiscoveryForm::Aggregated(version, kind, Serving::Own)) => {
                    format!("own {} {kind:?}", version.version())
                }
                Err(error) => error.status().message,
            };
            assert_eq!(text, expect, "{accept}");
        };
        check(V2, "v2 Json");
        check(&format!("{V2},{BETA},application/json"), "v2 Json");
        check(&format!("{BETA},application/json"), "v2beta1 Json");
        check(&format!("{V2};profile=nopeer"), "own v2 Json");
        check(&format!("{V2};profile=nopeer,{V2}"), "own v2 Json");
        check(&format!("{V2};profile=other"), "v2 Json");
        check(&V2.replace("json", "yaml"), "v2 Yaml");
        check("application/json", "legacy Json");
        check("application/yaml", "legacy Yaml");
        check("*/*", "legacy Json");
        check("", "legacy Json");
        check(&V2.replace("v2", "v9"), UNMET);
        check(&format!("{},application/json", V2.replace("v2", "v9")), "legacy Json");
        // Upstream's router serves `/api` but not `/apis`.
        check("text/html", UNMET);
    }

    #[test]
    fn gzip() {
        let check = |value: &str, expect: bool| {
            assert_eq!(accepts_gzip(&parts("/", &[("accept-encoding", value)]).headers), expect, "{value}");
        };
        check("gzip", true);
        check("br, gzip;q=0.5", true);
        check("gzip;q=0", false);
        check("deflate", false);
        check("", false);
    }
}
