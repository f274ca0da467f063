//! The basic types of the Kubernetes API, as pure data and rules.
//!
//! The crate has names of groups, versions, kinds and resources, object metadata, `Status`, request options with their
//! rules, selectors, and the rules for names. It does no IO and must not know HTTP or storage.

pub mod amounts;
pub mod base64_digit;
pub mod clock;
pub mod conditions;
pub mod control_characters;
pub mod error;
pub mod features;
pub mod field_error;
pub mod field_selector;
pub mod fnv1a;
pub mod go_format;
pub mod gvk;
pub mod host_port;
pub mod json;
pub mod label_selector;
pub mod list_head;
pub mod metadata_rules;
pub mod metering;
pub mod names;
pub mod object;
pub mod options;
pub mod pod_resources;
pub mod quantity;
pub mod random;
pub mod release;
pub mod revision;
pub mod shard_selector;
pub mod shared_map;
pub mod status;
pub mod version_names;

pub use amounts::{Amount, Amounts};
pub use base64_digit::{base64_digit, base64_url_digit};
pub use clock::{Clock, SystemClock};
pub use error::ApiError;
pub use features::FeatureGates;
pub use fnv1a::fnv1a;
pub use gvk::{GroupKind, GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource, SERVER_GROUP};
pub use host_port::host_port;
pub use list_head::{ListHead, ListMeta};
pub use object::Object;
pub use quantity::Quantity;
pub use random::Random;
pub use release::{KUBERNETES_VERSION, Release};
pub use revision::Revision;
pub use shared_map::SharedMap;
pub use status::Status;
