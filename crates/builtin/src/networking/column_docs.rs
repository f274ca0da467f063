//! The descriptions of the columns in the tables of `networking`.
//!
//! The descriptions are the API documentation of the fields that the columns show. The cells are in `columns.rs`.

pub(crate) const INGRESS_CLASS: &str =
    "The name of the IngressClass resource that should be used for additional configuration";
pub(crate) const NETWORK_POLICY_POD_SELECTOR: &str = "\
    podSelector selects the pods to which this NetworkPolicy object applies. The array of rules is applied to any \
    pods selected by this field. An empty selector matches all pods in the policy's namespace. Multiple network \
    policies can select the same set of pods. In this case, the ingress rules for each are combined additively. This \
    field is optional. If it is not specified, it defaults to an empty selector.";
pub(crate) const IP_ADDRESS_PARENT_REF: &str =
    "ParentRef references the resource that an IPAddress is attached to. An IPAddress must reference a parent object.";
pub(crate) const SERVICE_CIDR_CIDRS: &str = "\
    CIDRs defines the IP blocks in CIDR notation (e.g. \"192.168.0.0/24\" or \"2001:db8::/64\") from which to assign \
    service cluster IPs. Max of two CIDRs is allowed, one of each IP family. This field is immutable.";
