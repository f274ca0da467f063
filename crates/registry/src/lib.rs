//! The generic verbs over a resource: get, list, watch, create, update, patch, delete, delete collection.
//!
//! A verb takes decoded input and returns decoded or canonical output. This crate knows neither HTTP nor the framing of
//! bytes. Reads are answered from the cache after it has caught up with the store. Writes are compare-and-set
//! transactions of the store. A write starts from the cached object, and if the store has a newer one, the store wins.

mod admission;
mod apply;
mod caller;
mod closed_fields;
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
pub mod grace;
mod initial_status;
mod intake;
mod kept;
mod kind_rules;
mod list;
mod lost_pods;
mod managed;
mod measured;
mod namespaces;
mod newest;
mod owners;
mod ownership;
mod patch;
mod prepare;
mod query;
mod quota;
mod registry;
mod reviews;
mod rewrite;
pub mod rights;
mod selection;
pub mod strategy;
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
    AttributesNeeded, Mutation, Operation, PluginKey, Reinvocation, WriteOptions,
};
pub use caller::Caller;
pub use companions::{AssociatedWrites, OnConflict};
pub use config::{
    AddressRange, BuiltinStagePlugin, Family, ListBounds, PartialRights, PortRange, RegistryConfig, ServiceRanges,
    Subrange,
};
pub use converter::{
    BATCH_BYTES, BATCH_OBJECTS, CALL_TIME, CONVERTED_BYTES, ConversionBatch, Converter, ConverterError,
};
pub use create::Created;
pub use delete::Deleted;
pub use delete_collection::DeletedPage;
pub use encodings::{Closings, EncodingGate, Opening, WriteGuard};
pub use estimate::Estimate;
pub use intake::{accept, fit, match_name, object_of};
pub use kept::{ConversionCache, ConversionCacheStats, KEPT_BYTES};
pub use kind_rules::{Conversion, ConversionError, Defaulter, Validator};
pub use list::{HistoryItems, HistoryPages, ListItems, ListPage};
pub use measured::{COMPARISONS, ComparisonTimes, TOKEN_USES, TokenUses};
pub use namespaces::namespace_is_terminating;
pub use newest::NewestReads;
pub use patch::{Patch, PatchKind};
pub use query::{
    CountedValue, CountedValues, FailedEvaluations, Group, Groups, LiveOutput, LivePage, MatchedPlaces, Matches,
    OrderedResult, PageChange, QueryPage,
};
pub use quota::{LimitedResource, ObjectUse, QuotaScope, QuotaUse, object_use, quota_use};
pub use registry::{BuiltinKinds, Registry, is_too_large, store_error};
pub use selection::Selection;
pub use subresources::{
    KubeletEndpoint, NodeAddresses, ProxiedEndpoint, Remote, SERVICE_NAME_LABEL, ServiceAccountTokens, TokenFault,
    TokenTimes, WarnedUser, is_reachable, ready_endpoints, service_port_name, service_slices,
};
pub use surface::{
    ApiRegistrations, CollectionId, ConversionPath, DefinedBy, KindVersion, RegistrationError, ResourceRegistration,
    ServedApis, ServedResource, StoredCollection, SubresourceKind, VersionChange, View,
};
pub use target::Target;
pub use unreadable::not_for_collections;
pub use update::SentObject;
pub use view::VersionedView;
pub use warnings::Warnings;
pub use watch::{Burst, WatchOutput, WatchStream};
pub use write::{Effect, ManagedObject, WriteRequest, WriteResult};
