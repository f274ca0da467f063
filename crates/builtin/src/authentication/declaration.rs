//! The declarations of TokenReview and SelfSubjectReview.
//!
//! The server answers reviews and stores none, so create is their only verb.

use keelson_resources::CreateHandler;
use keelson_resources::declare::{CREATE, GroupDeclaration, cluster, served, version};

const GROUP: &str = "authentication.k8s.io";

pub(crate) const DECLARATION: GroupDeclaration = GroupDeclaration {
    name: GROUP,
    priority: 17700,
    versions: &[version("v1", 15)],
    resources: &[
        cluster(GROUP, "selfsubjectreviews", "selfsubjectreview", "SelfSubjectReview")
            .versions(&[served("v1").verbs(CREATE)])
            .answered_by(CreateHandler::SelfSubjectReview),
        cluster(GROUP, "tokenreviews", "tokenreview", "TokenReview")
            .versions(&[served("v1").verbs(CREATE)])
            .answered_by(CreateHandler::TokenReview),
    ],
};
