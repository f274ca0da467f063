//! The query of a request, parsed once for its estimate, rendering and response.
//!
//! The filters before authentication look for a single parameter each and parse nothing else. The options of `keelson_meta` give
//! parameters their meaning.

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
    /// The query extensions; parsed if one of their parameters is present.
    extended: OnceLock<Result<Option<Query>, ApiError>>,
}

impl RequestQuery {
    /// Reads the pairs of a request's query.
    pub fn of(info: &RequestInfo, uri: &Uri) -> Self {
        Self {
            pairs: Pairs::parse(uri.query().unwrap_or_default()).into_owned(),
            is_watch: info.verb == RequestVerb::Resource(Verb::Watch),
            list_options: OnceLock::new(),
            extended: OnceLock::new(),
        }
    }

    /// The pairs.
    pub fn pairs(&self) -> &Pairs<'static> {
        &self.pairs
    }

    /// Returns true if a query extension is present.
    pub fn is_extended(&self) -> bool {
        self.pairs.pairs().any(|(name, _)| is_parameter(name))
    }

    /// The query extensions of a list; `None` for an ordinary request.
    ///
    /// # Errors
    /// 400 that names the parameter.
    pub fn extended(&self) -> Result<Option<&Query>, ApiError> {
        if !self.is_extended() {
            return Ok(None);
        }
        let read = || Query::parse(self.pairs.pairs()).map_err(|error| ApiError::BadRequest(error.to_string()));
        self.extended.get_or_init(read).as_ref().map(Option::as_ref).map_err(Clone::clone)
    }

    /// The error for other requests than reads with parameters of a query.
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

    /// The options of a list, a watch or a deletion of many.
    ///
    /// Cost: that of reading the selectors, once.
    ///
    /// # Errors
    /// As [`ListOptions::parse`].
    pub fn list_options(&self) -> Result<&ListOptions, ApiError> {
        self.list_options.get_or_init(|| ListOptions::parse(&self.pairs, self.is_watch)).as_ref().map_err(Clone::clone)
    }
}
