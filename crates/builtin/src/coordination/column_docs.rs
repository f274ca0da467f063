//! The descriptions of the columns in the tables of `coordination`.
//!
//! The descriptions are the API documentation of the fields that the columns show. The cells are in `columns.rs`.

pub(crate) const LEASE_HOLDER: &str = "\
    holderIdentity contains the identity of the holder of a current lease. If Coordinated Leader Election is used, \
    the holder identity must be equal to the elected LeaseCandidate.metadata.name field.";
pub(crate) const LEASE_CANDIDATE_LEASE_NAME: &str =
    "LeaseName is the name of the lease for which this candidate is contending. This field is immutable.";
