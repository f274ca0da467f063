//! `/statusz` and `/flagz`: the state and the flags of the server, as text for people and as objects.
//!
//! As upstream, objects need a clause of `Accept` with their kind, and everything else that accepts text gets text. The
//! kinds are of the group `config.k8s.io`.

use std::collections::BTreeMap;
use std::time::SystemTime;

use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, WARNING};
use http::request::Parts;
use http::{Response, StatusCode};
use keelson_meta::clock::rfc3339;
use keelson_meta::error::{MediaTypes, NotAcceptableForm};
use keelson_meta::json::{Map, Value, json};
use keelson_meta::{ApiError, Release};

use super::header;
use crate::body::ResponseBody;
use crate::diagnostics::Diagnostics;
use crate::negotiation::{KindForm, MediaKind, MediaType, negotiate_kind};
use crate::{respond, version};

/// The name of the component, as upstream.
const COMPONENT: &str = "apiserver";
const GROUP: &str = "config.k8s.io";
const VERSIONS: [&str; 2] = ["v1beta1", "v1alpha1"];
/// The version whose use gets a warning.
const DEPRECATED: &str = "v1alpha1";
const OFFERS: MediaTypes = &["application/json", "application/yaml", "text/plain"];
const TEXT: &str = "text/plain; charset=utf-8";
/// The first segments of paths that are no use for diagnosis.
const UNLISTED: [&str; 5] = ["apis", "api", "openid", "openapi", ".well-known"];

/// A page of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ZPage {
    Status,
    Flags,
}

impl ZPage {
    /// The path of the page.
    pub(super) const fn path(self) -> &'static str {
        match self {
            Self::Status => "/statusz",
            Self::Flags => "/flagz",
        }
    }

    /// Returns true if the page is on.
    pub(super) fn is_served(self, diagnostics: &Diagnostics) -> bool {
        match self {
            Self::Status => diagnostics.started.is_some(),
            Self::Flags => diagnostics.flags.is_some(),
        }
    }

    const fn kind(self) -> &'static str {
        match self {
            Self::Status => "Statusz",
            Self::Flags => "Flagz",
        }
    }

    /// Answers a request for the page. `paths` are those of other pages.
    ///
    /// # Errors
    /// 406 when the client accepts neither text nor the kind of the page.
    pub(super) fn answer(
        self,
        (diagnostics, release): (&Diagnostics, Release),
        parts: &Parts,
        paths: &[&str],
    ) -> Result<Response<ResponseBody>, ApiError> {
        let form = self.form(parts)?;
        let status = diagnostics.started.map(|started| Status::new(started, release, paths));
        let (text, fields) = match (self, status, &diagnostics.flags) {
            (Self::Status, Some(status), _) => (status.text(), status.fields()),
            (Self::Flags, _, Some(flags)) => (flags_text(flags), flag_fields(flags)),
            _ => return Ok(respond::no_such_page()),
        };
        match form {
            Form::Text => Ok(respond::bytes(StatusCode::OK, TEXT, text)),
            Form::Object(version, media) => self.object(version, media, fields),
        }
    }

    fn object(self, version: &'static str, media: MediaType, fields: Map) -> Result<Response<ResponseBody>, ApiError> {
        let mut object = Map::new();
        object.insert("kind", self.kind());
        object.insert("apiVersion", format!("{GROUP}/{version}"));
        object.insert("metadata", json!({ "name": COMPONENT }));
        for (key, value) in fields {
            object.insert(key, value);
        }
        let mut response = respond::value(StatusCode::OK, &Value::Object(object), media);
        let kind = self.kind();
        let content_type = format!("{};g={GROUP};v={version};as={kind}", media.kind.content_type());
        response.headers_mut().insert(CONTENT_TYPE, header(&content_type)?);
        if version == DEPRECATED {
            let page = &self.path()[1..];
            let warning =
                format!("299 - \"This version of the {page} endpoint is deprecated. Please use a newer version.\"");
            response.headers_mut().insert(WARNING, header(&warning)?);
        }
        Ok(response)
    }

    /// The form that the client prefers.
    fn form(self, parts: &Parts) -> Result<Form, ApiError> {
        if is_empty(&parts.headers) {
            return Ok(Form::Text);
        }
        let chosen = negotiate_kind(parts, |asked| match asked {
            KindForm::Text => Some(Form::Text),
            KindForm::Kind { group, version, kind, media } => {
                let version = VERSIONS.into_iter().find(|known| *known == version)?;
                (group == GROUP && kind == self.kind() && media.kind != MediaKind::Protobuf)
                    .then_some(Form::Object(version, media))
            }
        });
        chosen.ok_or(ApiError::NotAcceptable { accepted: NotAcceptableForm::MediaTypes(OFFERS) })
    }
}

/// The form of a page.
enum Form {
    Text,
    /// An object of this version.
    Object(&'static str, MediaType),
}

fn is_empty(headers: &HeaderMap) -> bool {
    let is_blank = |value: &HeaderValue| value.as_bytes().trim_ascii().is_empty();
    headers.get(ACCEPT).is_none_or(is_blank)
}

/// The content of `/statusz`.
struct Status {
    started: SystemTime,
    uptime: u64,
    version: &'static str,
    emulated: String,
    paths: Vec<String>,
}

impl Status {
    fn new(started: SystemTime, release: Release, paths: &[&str]) -> Self {
        let uptime = SystemTime::now().duration_since(started).unwrap_or_default().as_secs();
        let mut first: Vec<String> = paths
            .iter()
            .filter_map(|path| path.split('/').nth(1))
            .filter(|segment| !segment.is_empty() && !UNLISTED.contains(segment))
            .map(|segment| format!("/{segment}"))
            .collect();
        first.sort_unstable();
        first.dedup();
        let version = version::GIT_VERSION.trim_start_matches('v');
        let version = version.split('+').next().unwrap_or(version);
        let emulated = release.to_string();
        Self { started, uptime, version, emulated, paths: first }
    }

    fn text(&self) -> String {
        let Self { started, uptime, version, emulated, paths } = self;
        let (hours, minutes, seconds) = (uptime / 3600, uptime / 60 % 60, uptime % 60);
        format!(
            "{}\nStarted: {}\nUp: {hours} hr {minutes:02} min {seconds:02} sec\nGo version: none\nBinary version: {version}\n\
             Emulation version: {emulated}\nPaths: {}\n",
            opening("statusz"),
            unix_date(*started),
            paths.join(" "),
        )
    }

    fn fields(&self) -> Map {
        let mut fields = Map::new();
        fields.insert("startTime", rfc3339(self.started));
        fields.insert("uptimeSeconds", self.uptime);
        fields.insert("goVersion", "none");
        fields.insert("binaryVersion", self.version);
        fields.insert("emulationVersion", self.emulated.as_str());
        fields.insert("paths", self.paths.iter().map(|path| Value::from(path.as_str())).collect::<Vec<_>>());
        fields
    }
}

/// The beginning of a page as text.
fn opening(page: &str) -> String {
    format!(
        "\n{COMPONENT} {page}\nWarning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
         guarantees and is for debugging purposes only.\n"
    )
}

fn flags_text(flags: &BTreeMap<String, String>) -> String {
    let mut text = opening("flagz");
    for (name, value) in flags {
        text.push_str(&format!("{name}={}\n", keelson_meta::control_characters::visible(value)));
    }
    text
}

fn flag_fields(flags: &BTreeMap<String, String>) -> Map {
    let mut shown = Map::new();
    for (name, value) in flags {
        shown.insert(name.as_str(), value.as_str());
    }
    let mut fields = Map::new();
    fields.insert("flags", Value::Object(shown));
    fields
}

/// A time in the format of Unix `date`, in UTC.
fn unix_date(time: SystemTime) -> String {
    use time::macros::format_description;
    let format = format_description!(
        "[weekday repr:short] [month repr:short] [day padding:space] [hour]:[minute]:[second] UTC [year]"
    );
    time::OffsetDateTime::from(time).format(&format).unwrap_or_default()
}
