//! The generic verbs over a resource: get, list, watch, create, update, patch, delete, delete collection.
//!
//! A verb takes decoded input and gives decoded or canonical output; HTTP is unknown here, and so is how bytes are
//! framed. Reads are answered from the cache once it has caught up with the store; writes go to the store as
//! compare-and-set transactions, and the cache is only a hint for them: what the store says wins.

mod admission;
mod allocation;
mod apply;
mod caller;
mod companions;
mod complete;
mod config;
mod converter;
mod create;
mod delete;
mod delete_collection;
mod encodings;
mod estimate;
mod get;
mod grace;
mod intake;
mod kept;
mod kinds;
mod list;
mod lost_pods;
mod managed;
mod namespaces;
mod newest;
mod older;
mod owners;
mod ownership;
mod patch;
mod prepare;
mod query;
mod quota;
mod registry;
mod reviews;
mod rewrite;
mod rights;
mod selection;
mod subresources;
mod surface;
mod target;
mod unreadable;
mod update;
mod versions;
mod view;
mod warnings;
mod watch;
mod write;

pub use admission::{
    ADMISSION_BUCKETS, Admission, AdmissionAttributes, AdmissionChain, AdmissionStage, AdmissionStats, AdmissionTimes,
    Interest, Mutation, Operation, PluginKey, Reinvocation, WriteOptions,
};
pub use allocation::{AddressRange, Family, PortRange, ServiceRanges};
pub use caller::Caller;
pub use config::{InherentPlugin, ListBounds, PartialRights, RegistryConfig};
pub use converter::{
    BATCH_BYTES, BATCH_OBJECTS, CALL_TIME, CONVERTED_BYTES, ConversionBatch, Converter, ConverterError,
};
pub use create::Created;
pub use delete::Deleted;
pub use delete_collection::DeletedPage;
pub use encodings::{Closings, EncodingGate, Opening};
pub use estimate::Estimate;
pub use intake::{accept, fit, match_name, object_of};
pub use kept::{KEPT_BYTES, KeptObjects, KeptStats};
pub use kinds::CLEANUP_FINALIZER;
pub use list::{HistoryItems, HistoryPages, ListItems, ListPage};
pub use namespaces::namespace_is_terminating;
pub use newest::NewestReads;
pub use patch::{Patch, PatchKind};
pub use query::{FailedEvaluations, Group, Groups, LiveOutput, LivePage, Matched, Matches, PageChange, QueryPage};
pub use quota::{LimitedResource, QuotaScope, QuotaUse, quota_use};
pub use registry::Registry;
pub use selection::Selection;
pub use subresources::{Remote, ServiceAccountTokens, TokenFault, WarnedUser};
pub use surface::builtin::{collection_specs, collection_specs_for, key_prefix, node_prefixes, role_prefixes};
pub use surface::{
    CollectionId, Contribution, DefinedBy, KindVersion, ServedResource, StoredCollection, Surface, SurfaceError,
    Surfaces, VersionChange,
};
pub use target::Target;
pub use unreadable::not_for_collections;
pub use update::SentObject;
pub use view::VersionedView;
pub use warnings::Warnings;
pub use watch::{Burst, WatchOutput, WatchStream};
pub use write::{Effect, Written};
