//! The declarations of access reviews.
//!
//! The server answers access reviews with its authorizer. Reviews are not stored.

use keelson_resources::CreateHandler;
use keelson_resources::declare::{CREATE, GroupDeclaration, cluster, namespaced, served, version};

const GROUP: &str = "authorization.k8s.io";

pub(crate) const DECLARATION: GroupDeclaration = GroupDeclaration {
    name: GROUP,
    priority: 17600,
    versions: &[version("v1", 15)],
    resources: &[
        namespaced(GROUP, "localsubjectaccessreviews", "localsubjectaccessreview", "LocalSubjectAccessReview")
            .versions(&[served("v1").verbs(CREATE)])
            .answered_by(CreateHandler::SubjectAccessReview),
        cluster(GROUP, "selfsubjectaccessreviews", "selfsubjectaccessreview", "SelfSubjectAccessReview")
            .versions(&[served("v1").verbs(CREATE)])
            .answered_by(CreateHandler::SelfSubjectAccessReview),
        cluster(GROUP, "selfsubjectrulesreviews", "selfsubjectrulesreview", "SelfSubjectRulesReview")
            .versions(&[served("v1").verbs(CREATE)])
            .answered_by(CreateHandler::SelfSubjectRulesReview),
        cluster(GROUP, "subjectaccessreviews", "subjectaccessreview", "SubjectAccessReview")
            .versions(&[served("v1").verbs(CREATE)])
            .answered_by(CreateHandler::SubjectAccessReview),
    ],
};
