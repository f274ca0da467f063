//! Ingresses, network policies and addresses.
//!
//! Knows the rules of these kinds alone; what they share with others stands beside the groups.

use crate::shape::{Kind, kind};

pub(super) const KINDS: &[Kind] =
    &[kind("IPAddress"), kind("Ingress"), kind("IngressClass"), kind("NetworkPolicy"), kind("ServiceCIDR")];
