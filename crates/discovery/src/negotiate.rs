//! Negotiation of discovery: the form for a media type, and the check of a client's document.
//!
//! Negotiation and ETag comparison work on header texts. The HTTP layer selects the headers.

/// A form of the aggregated document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AggregatedForm {
    /// `apidiscovery.k8s.io/v2`
    V2,
    /// `apidiscovery.k8s.io/v2beta1`: the same content, for clients of Kubernetes 1.26 to 1.29, which request only this
    /// form.
    V2Beta1,
}

impl AggregatedForm {
    /// The form for the parameters `g`, `v` and `as` of a media type.
    pub fn from_parameters(g: &str, v: &str, r#as: &str) -> Option<Self> {
        if g != "apidiscovery.k8s.io" || r#as != "APIGroupDiscoveryList" {
            return None;
        }
        match v {
            "v2" => Some(Self::V2),
            "v2beta1" => Some(Self::V2Beta1),
            _ => None,
        }
    }

    /// The version within the group `apidiscovery.k8s.io`.
    pub const fn version(self) -> &'static str {
        match self {
            Self::V2 => "v2",
            Self::V2Beta1 => "v2beta1",
        }
    }

    /// The `apiVersion` of the document.
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::V2 => "apidiscovery.k8s.io/v2",
            Self::V2Beta1 => "apidiscovery.k8s.io/v2beta1",
        }
    }

    /// The `Content-Type` of the document in an encoding such as `application/json`.
    pub fn content_type(self, encoding: &str) -> String {
        format!("{encoding};g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList", self.version())
    }

    pub(crate) const fn index(self) -> usize {
        match self {
            Self::V2 => 0,
            Self::V2Beta1 => 1,
        }
    }
}

/// Returns true if an `If-None-Match` header contains a tag (given without quotes), by the weak comparison of RFC 9110.
/// Lists, weak tags and `*` are supported, where upstream only knows a single strong tag.
pub fn etag_matches(if_none_match: &str, etag: &str) -> bool {
    if_none_match.trim() == "*"
        || if_none_match.split(',').any(|tag| {
            let tag = tag.trim();
            let tag = tag.strip_prefix("W/").unwrap_or(tag);
            tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')) == Some(etag)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_choose_the_form() {
        let form = |v| AggregatedForm::from_parameters("apidiscovery.k8s.io", v, "APIGroupDiscoveryList");
        assert_eq!(form("v2"), Some(AggregatedForm::V2));
        assert_eq!(form("v2beta1"), Some(AggregatedForm::V2Beta1));
        assert_eq!(form("v9"), None);
        assert_eq!(AggregatedForm::from_parameters("meta.k8s.io", "v1", "Table"), None);
    }

    #[test]
    fn the_content_type_has_its_parameters_in_upstream_order() {
        let expected = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        assert_eq!(AggregatedForm::V2.content_type("application/json"), expected);
    }

    #[test]
    fn a_tag_is_found_bare_weak_and_in_lists() {
        for header in ["\"AB\"", "W/\"AB\"", "\"00\", \"AB\"", "\"00\",W/\"AB\"", " * "] {
            assert!(etag_matches(header, "AB"), "{header}");
        }
        for header in ["", "AB", "\"A\"", "\"ab\"", "\"AB", "W/AB"] {
            assert!(!etag_matches(header, "AB"), "{header}");
        }
    }
}
