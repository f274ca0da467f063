//! The kinds of Kubernetes 1.37, with the schemas of their types.
//!
//! Sorted by group and kind within each function.

use k8s_openapi as openapi;

use openapi::api::admissionregistration::v1 as admissionregistration_v1;
use openapi::api::admissionregistration::v1alpha1 as admissionregistration_v1alpha1;
use openapi::api::admissionregistration::v1beta1 as admissionregistration_v1beta1;
use openapi::api::apiserverinternal::v1alpha1 as apiserverinternal_v1alpha1;
use openapi::api::apps::v1 as apps_v1;
use openapi::api::authentication::v1 as authentication_v1;
use openapi::api::authorization::v1 as authorization_v1;
use openapi::api::autoscaling::v1 as autoscaling_v1;
use openapi::api::autoscaling::v2 as autoscaling_v2;
use openapi::api::batch::v1 as batch_v1;
use openapi::api::certificates::v1 as certificates_v1;
use openapi::api::certificates::v1beta1 as certificates_v1beta1;
use openapi::api::coordination::v1 as coordination_v1;
use openapi::api::coordination::v1alpha2 as coordination_v1alpha2;
use openapi::api::coordination::v1beta1 as coordination_v1beta1;
use openapi::api::core::v1 as core_v1;
use openapi::api::discovery::v1 as discovery_v1;
use openapi::api::events::v1 as events_v1;
use openapi::api::flowcontrol::v1 as flowcontrol_v1;
use openapi::api::lifecycle::v1alpha1 as lifecycle_v1alpha1;
use openapi::api::networking::v1 as networking_v1;
use openapi::api::node::v1 as node_v1;
use openapi::api::policy::v1 as policy_v1;
use openapi::api::rbac::v1 as rbac_v1;
use openapi::api::resource::v1 as resource_v1;
use openapi::api::resource::v1alpha3 as resource_v1alpha3;
use openapi::api::resource::v1beta1 as resource_v1beta1;
use openapi::api::resource::v1beta2 as resource_v1beta2;
use openapi::api::scheduling::v1 as scheduling_v1;
use openapi::api::scheduling::v1alpha3 as scheduling_v1alpha3;
use openapi::api::scheduling::v1beta1 as scheduling_v1beta1;
use openapi::api::storage::v1 as storage_v1;
use openapi::api::storagemigration::v1 as storagemigration_v1;
use openapi::api::storagemigration::v1beta1 as storagemigration_v1beta1;
use openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions_v1;
use openapi::apimachinery::pkg::apis::meta::v1 as meta_v1;
use openapi::apimachinery::pkg::runtime::RawExtension;
use openapi::apimachinery::pkg::version::Info;
use openapi::kube_aggregator::pkg::apis::apiregistration::v1 as apiregistration_v1;
use openapi::{Metadata, Resource};
use schemars::JsonSchema;

use super::Collector;

fn listed<T: Resource + Metadata + JsonSchema>(all: &mut Collector) {
    all.add::<T>(T::GROUP, T::VERSION, T::KIND, true);
}

fn single<T: Resource + JsonSchema>(all: &mut Collector) {
    all.add::<T>(T::GROUP, T::VERSION, T::KIND, false);
}

pub(super) fn collect(all: &mut Collector) {
    core(all);
    workloads(all);
    access(all);
    network(all);
    hardware(all);
    machinery(all);
    // Request bodies and parts of watches and responses. No kind's schema refers to them.
    all.refer::<meta_v1::DeleteOptions>();
    all.refer::<meta_v1::ListMeta>();
    all.refer::<meta_v1::Patch>();
    all.refer::<meta_v1::WatchEvent<RawExtension>>();
    all.refer::<Info>();
}

fn core(all: &mut Collector) {
    listed::<core_v1::ComponentStatus>(all);
    listed::<core_v1::ConfigMap>(all);
    listed::<core_v1::Endpoints>(all);
    listed::<core_v1::Event>(all);
    listed::<core_v1::LimitRange>(all);
    listed::<core_v1::Namespace>(all);
    listed::<core_v1::Node>(all);
    listed::<core_v1::PersistentVolume>(all);
    listed::<core_v1::PersistentVolumeClaim>(all);
    listed::<core_v1::Pod>(all);
    listed::<core_v1::PodTemplate>(all);
    listed::<core_v1::ReplicationController>(all);
    listed::<core_v1::ResourceQuota>(all);
    listed::<core_v1::Secret>(all);
    listed::<core_v1::Service>(all);
    listed::<core_v1::ServiceAccount>(all);
    single::<core_v1::Binding>(all);
}

fn workloads(all: &mut Collector) {
    listed::<apps_v1::ControllerRevision>(all);
    listed::<apps_v1::DaemonSet>(all);
    listed::<apps_v1::Deployment>(all);
    listed::<apps_v1::ReplicaSet>(all);
    listed::<apps_v1::StatefulSet>(all);
    listed::<batch_v1::CronJob>(all);
    listed::<batch_v1::Job>(all);
    listed::<autoscaling_v1::HorizontalPodAutoscaler>(all);
    single::<autoscaling_v1::Scale>(all);
    listed::<autoscaling_v2::HorizontalPodAutoscaler>(all);
    listed::<policy_v1::PodDisruptionBudget>(all);
    single::<policy_v1::Eviction>(all);
    listed::<lifecycle_v1alpha1::Eviction>(all);
    listed::<lifecycle_v1alpha1::EvictionRequest>(all);
}

fn access(all: &mut Collector) {
    single::<authentication_v1::SelfSubjectReview>(all);
    single::<authentication_v1::TokenRequest>(all);
    single::<authentication_v1::TokenReview>(all);
    single::<authorization_v1::LocalSubjectAccessReview>(all);
    single::<authorization_v1::SelfSubjectAccessReview>(all);
    single::<authorization_v1::SelfSubjectRulesReview>(all);
    single::<authorization_v1::SubjectAccessReview>(all);
    listed::<certificates_v1::CertificateSigningRequest>(all);
    listed::<certificates_v1::ClusterTrustBundle>(all);
    listed::<certificates_v1::PodCertificateRequest>(all);
    listed::<certificates_v1beta1::ClusterTrustBundle>(all);
    listed::<certificates_v1beta1::PodCertificateRequest>(all);
    listed::<rbac_v1::ClusterRole>(all);
    listed::<rbac_v1::ClusterRoleBinding>(all);
    listed::<rbac_v1::Role>(all);
    listed::<rbac_v1::RoleBinding>(all);
    listed::<admissionregistration_v1::MutatingAdmissionPolicy>(all);
    listed::<admissionregistration_v1::MutatingAdmissionPolicyBinding>(all);
    listed::<admissionregistration_v1::MutatingWebhookConfiguration>(all);
    listed::<admissionregistration_v1::ValidatingAdmissionPolicy>(all);
    listed::<admissionregistration_v1::ValidatingAdmissionPolicyBinding>(all);
    listed::<admissionregistration_v1::ValidatingWebhookConfiguration>(all);
    listed::<admissionregistration_v1alpha1::MutatingAdmissionPolicy>(all);
    listed::<admissionregistration_v1alpha1::MutatingAdmissionPolicyBinding>(all);
    listed::<admissionregistration_v1beta1::MutatingAdmissionPolicy>(all);
    listed::<admissionregistration_v1beta1::MutatingAdmissionPolicyBinding>(all);
}

fn network(all: &mut Collector) {
    listed::<networking_v1::Ingress>(all);
    listed::<networking_v1::IngressClass>(all);
    listed::<networking_v1::IPAddress>(all);
    listed::<networking_v1::NetworkPolicy>(all);
    listed::<networking_v1::ServiceCIDR>(all);
    listed::<discovery_v1::EndpointSlice>(all);
    listed::<coordination_v1::Lease>(all);
    listed::<coordination_v1alpha2::LeaseCandidate>(all);
    listed::<coordination_v1beta1::LeaseCandidate>(all);
    listed::<events_v1::Event>(all);
    listed::<flowcontrol_v1::FlowSchema>(all);
    listed::<flowcontrol_v1::PriorityLevelConfiguration>(all);
}

fn hardware(all: &mut Collector) {
    listed::<node_v1::RuntimeClass>(all);
    listed::<resource_v1::DeviceClass>(all);
    listed::<resource_v1::DeviceTaintRule>(all);
    listed::<resource_v1::ResourceClaim>(all);
    listed::<resource_v1::ResourceClaimTemplate>(all);
    listed::<resource_v1::ResourceSlice>(all);
    listed::<resource_v1alpha3::DeviceTaintRule>(all);
    listed::<resource_v1alpha3::ResourcePoolStatusRequest>(all);
    listed::<resource_v1beta1::DeviceClass>(all);
    listed::<resource_v1beta1::ResourceClaim>(all);
    listed::<resource_v1beta1::ResourceClaimTemplate>(all);
    listed::<resource_v1beta1::ResourceSlice>(all);
    listed::<resource_v1beta2::DeviceClass>(all);
    listed::<resource_v1beta2::DeviceTaintRule>(all);
    listed::<resource_v1beta2::ResourceClaim>(all);
    listed::<resource_v1beta2::ResourceClaimTemplate>(all);
    listed::<resource_v1beta2::ResourceSlice>(all);
    listed::<scheduling_v1::PriorityClass>(all);
    listed::<scheduling_v1alpha3::CompositePodGroup>(all);
    listed::<scheduling_v1alpha3::PodGroup>(all);
    listed::<scheduling_v1alpha3::Workload>(all);
    listed::<scheduling_v1beta1::PodGroup>(all);
    listed::<scheduling_v1beta1::Workload>(all);
    listed::<storage_v1::CSIDriver>(all);
    listed::<storage_v1::CSINode>(all);
    listed::<storage_v1::CSIStorageCapacity>(all);
    listed::<storage_v1::StorageClass>(all);
    listed::<storage_v1::VolumeAttachment>(all);
    listed::<storage_v1::VolumeAttributesClass>(all);
    listed::<storagemigration_v1::StorageVersionMigration>(all);
    listed::<storagemigration_v1beta1::StorageVersionMigration>(all);
}

fn machinery(all: &mut Collector) {
    listed::<apiserverinternal_v1alpha1::StorageVersion>(all);
    listed::<apiextensions_v1::CustomResourceDefinition>(all);
    listed::<apiregistration_v1::APIService>(all);
    single::<meta_v1::APIGroup>(all);
    single::<meta_v1::APIGroupList>(all);
    single::<meta_v1::APIResourceList>(all);
    single::<meta_v1::APIVersions>(all);
    single::<meta_v1::Status>(all);
}
