//! Paths of pages: the page at each path, the resources that its document describes, and its methods.
//!
//! The router and the filters use these functions.

use http::Method;

use super::openapi::Description;
use super::zpages::ZPage;
use super::{ServedDocuments, announcement};
use crate::negotiation::Serving;

/// A path that is not a resource.
pub(super) enum Page<'a> {
    Root,
    Core,
    Groups,
    Group(&'a str),
    GroupVersion(&'a str, &'a str),
    Version,
    Diagnosis(ZPage),
    Metrics,
    HealthMetrics,
    OpenApi(Description<'a>),
    IssuerConfiguration,
    KeySet,
}

impl<'a> Page<'a> {
    pub(super) fn parse(path: &'a str) -> Option<Self> {
        if let Some(group_version) = path.strip_prefix("/openapi/v3/").filter(|rest| !rest.is_empty()) {
            return Some(Self::OpenApi(Description::V3(group_version)));
        }
        let path = path.strip_suffix('/').unwrap_or(path);
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        match parts.as_slice() {
            [] => Some(Self::Root),
            ["api"] => Some(Self::Core),
            ["api", version] => Some(Self::GroupVersion("", version)),
            ["apis"] => Some(Self::Groups),
            ["apis", group] => Some(Self::Group(group)),
            ["apis", group, version] => Some(Self::GroupVersion(group, version)),
            [".well-known", "openid-configuration"] => Some(Self::IssuerConfiguration),
            ["openid", "v1", "jwks"] => Some(Self::KeySet),
            ["version"] => Some(Self::Version),
            ["statusz"] => Some(Self::Diagnosis(ZPage::Status)),
            ["flagz"] => Some(Self::Diagnosis(ZPage::Flags)),
            ["metrics"] => Some(Self::Metrics),
            ["metrics", "slis"] => Some(Self::HealthMetrics),
            ["openapi", "v2"] => Some(Self::OpenApi(Description::V2)),
            ["openapi", "v3"] => Some(Self::OpenApi(Description::V3Index)),
            _ => None,
        }
    }
}

/// The resources that the document at a path describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DescribedResources<'p> {
    /// None: the path is another page's, or unknown.
    Nothing,
    /// The resources of one group.
    Group(&'p str),
    /// All resources.
    Everything,
}

impl<'p> DescribedResources<'p> {
    pub(crate) fn at(path: &'p str) -> Self {
        match Page::parse(path) {
            Some(Page::Group(group) | Page::GroupVersion(group, _)) if !group.is_empty() => Self::Group(group),
            Some(Page::OpenApi(Description::V3(group_version))) => {
                let group = group_version.strip_prefix("apis/").and_then(|rest| rest.split('/').next());
                group.map_or(Self::Nothing, Self::Group)
            }
            Some(Page::Root | Page::Groups | Page::OpenApi(_)) => Self::Everything,
            _ => Self::Nothing,
        }
    }
}

/// Returns true for the path of an existing page, except health checks.
pub(crate) fn is_page(documents: &ServedDocuments, path: &str) -> bool {
    Page::parse(path).is_some_and(|page| is_there(documents, &page))
}

fn is_there(documents: &ServedDocuments, page: &Page<'_>) -> bool {
    let served = documents.discovery_of(Serving::Any);
    match page {
        Page::Group(group) => served.group(group).is_some(),
        Page::GroupVersion(group, version) => {
            announcement::is_at(group, version) || served.resources(group, version).is_some()
        }
        _ => true,
    }
}

/// Returns true if a page has this method. Upstream's router serves some pages for GET alone. Other pages ignore the
/// method. A page that does not exist has every method, so that the response is 404.
pub(super) fn has_method(documents: &ServedDocuments, page: &Page<'_>, method: &Method) -> bool {
    match page {
        Page::Core | Page::Group(_) | Page::GroupVersion(..) | Page::Version => {
            *method == Method::GET || !is_there(documents, page)
        }
        Page::IssuerConfiguration | Page::KeySet => *method == Method::GET,
        Page::Diagnosis(_) | Page::Root | Page::Groups | Page::Metrics | Page::HealthMetrics | Page::OpenApi(_) => true,
    }
}
