//! The query parameters of a request, parsed once for its estimate, handler and response.
//!
//! The filters before authentication search for single parameters and parse nothing else. The options in `keelson_meta`
//! define the meaning of parameters.

use std::sync::OnceLock;

use http::Uri;
use keelson_meta::ApiError;
use keelson_meta::options::{ListOptions, Query as Pairs};
use keelson_query::{Query, is_parameter, parameter_name};
use keelson_resources::Verb;

use crate::request_info::{RequestInfo, RequestVerb};

/// The parameters of a request.
#[derive(Debug)]
pub struct RequestQuery {
    pairs: Pairs<'static>,
    is_watch: bool,
    list_options: OnceLock<Result<ListOptions, ApiError>>,
    /// The query extensions. Parsed if one of their parameters is present.
    extended: OnceLock<Result<Option<Query>, ApiError>>,
}

impl RequestQuery {
    /// Parses the parameters of a request.
    pub fn parse(info: &RequestInfo, uri: &Uri) -> Self {
        Self {
            pairs: Pairs::parse(uri.query().unwrap_or_default()).into_owned(),
            is_watch: info.verb == RequestVerb::Resource(Verb::Watch),
            list_options: OnceLock::new(),
            extended: OnceLock::new(),
        }
    }

    /// The names and values of the parameters.
    pub fn pairs(&self) -> &Pairs<'static> {
        &self.pairs
    }

    /// Returns true if a query extension is present.
    pub fn is_extended(&self) -> bool {
        self.pairs.pairs().any(|(name, _)| is_parameter(name))
    }

    /// The query extensions of a list. `None` for an ordinary request.
    ///
    /// # Errors
    /// 400, with the name of the parameter.
    pub fn extended(&self) -> Result<Option<&Query>, ApiError> {
        if !self.is_extended() {
            return Ok(None);
        }
        let read = || Query::parse(self.pairs.pairs()).map_err(|error| ApiError::BadRequest(error.to_string()));
        self.extended.get_or_init(read).as_ref().map(Option::as_ref).map_err(Clone::clone)
    }

    /// The error for query extensions on a request that is no read.
    pub fn refusal_beyond_reads(&self) -> ApiError {
        let names: Vec<&str> = self.pairs.pairs().map(|(name, _)| name).filter(|name| is_parameter(name)).collect();
        if let Some(unknown) = names.iter().find_map(|name| parameter_name(name).err()) {
            return ApiError::BadRequest(unknown.to_string());
        }
        ApiError::BadRequest(format!(
            "{}: parameters that begin with keelson.io/ are for reads of objects alone",
            names.join(", ")
        ))
    }

    /// The options of a list, a watch or a deletecollection.
    ///
    /// Cost: the first call parses the selectors.
    ///
    /// # Errors
    /// As [`ListOptions::parse`].
    pub fn list_options(&self) -> Result<&ListOptions, ApiError> {
        self.list_options.get_or_init(|| ListOptions::parse(&self.pairs, self.is_watch)).as_ref().map_err(Clone::clone)
    }
}
