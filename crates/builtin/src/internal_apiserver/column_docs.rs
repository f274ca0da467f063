//! The descriptions of the columns in the tables of `internal_apiserver`.
//!
//! The descriptions are the API documentation of the fields that the columns show. The cells are in `columns.rs`.

pub(crate) const STORAGE_VERSION_COMMON_ENCODING_VERSION: &str = "\
    commonEncodingVersion is set to an encoding storage version if all API server instances share that same version. \
    If they don't share one storage version, this field is left empty. API servers should finish updating its \
    storageVersionStatus entry before serving write operations, so that this field will be in sync with the reality.";
