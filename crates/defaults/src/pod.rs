//! Defaults of pods, and of the templates that all workloads make pods from.
//!
//! A template gets what a pod gets, but for what admission adds to a pod when it is made.

use keelson_meta::json::{Map, Value};

use crate::shape::Rule::{Always, By, Copied, Each, Empty, EntriesOf, Flag, In, Number, Positive, Text};
use crate::shape::{Shape, Step, set, text};
use crate::volumes::{FIELD_REFERENCE, VOLUME};

/// A pod.
pub(crate) const POD: Shape = Shape::of(&[("spec", Always(&SPEC_OF_POD))]);

/// A pod template object.
pub(crate) const POD_TEMPLATE: Shape = Shape::of(&[("template", Always(&TEMPLATE))]);

/// A template inside of a workload.
pub(crate) const TEMPLATE: Shape = Shape::of(&[("spec", Always(&SPEC))]);

const SPEC_OF_POD: Shape = Shape {
    fields: &[
        ("enableServiceLinks", Flag(true)),
        ("initContainers", Each(&RUNNING_CONTAINER)),
        ("containers", Each(&RUNNING_CONTAINER)),
    ],
    then: &[Step::Also(&AROUND_CONTAINERS), Step::If { flag: "hostNetwork", then: &ON_HOST }],
};

/// A container asks for at least what it may not exceed.
const RUNNING_CONTAINER: Shape = Shape {
    fields: &[("resources", In(&const { Shape::of(&[("requests", EntriesOf("limits"))]) }))],
    then: &[Step::Also(&CONTAINER)],
};

/// On the host's network, a container's port is the host's.
const ON_HOST: Shape = Shape::of(&[("initContainers", Each(&ON_HOST_PORTS)), ("containers", Each(&ON_HOST_PORTS))]);

const ON_HOST_PORTS: Shape =
    Shape::of(&[("ports", Each(&const { Shape::of(&[("hostPort", Copied("containerPort"))]) }))]);

const SPEC: Shape = Shape {
    fields: &[("initContainers", Each(&CONTAINER)), ("containers", Each(&CONTAINER))],
    then: &[Step::Also(&AROUND_CONTAINERS)],
};

/// All of a spec but for the containers that its kind has rules of its own for.
const AROUND_CONTAINERS: Shape = Shape {
    fields: &[
        ("volumes", Each(&VOLUME)),
        ("ephemeralContainers", Each(&CONTAINER)),
        ("restartPolicy", Text("Always")),
        ("terminationGracePeriodSeconds", Number(30)),
        ("dnsPolicy", Text("ClusterFirst")),
        ("securityContext", Empty),
        ("schedulerName", Text("default-scheduler")),
    ],
    then: &[Step::Run(&["serviceAccountName", "serviceAccount"], service_account)],
};

const CONTAINER: Shape = Shape::of(&[
    ("ports", Each(&const { Shape::of(&[("protocol", Text("TCP"))]) })),
    ("env", Each(&ENVIRONMENT)),
    ("livenessProbe", In(&PROBE)),
    ("readinessProbe", In(&PROBE)),
    ("startupProbe", In(&PROBE)),
    ("lifecycle", In(&LIFECYCLE)),
    ("terminationMessagePath", Text("/dev/termination-log")),
    ("terminationMessagePolicy", Text("File")),
    ("imagePullPolicy", By("image", |container| Some(pull_policy(text(container, "image"))))),
]);

const ENVIRONMENT: Shape = Shape::of(&[("valueFrom", In(&const { Shape::of(&[("fieldRef", In(&FIELD_REFERENCE))]) }))]);

const PROBE: Shape = Shape::of(&[
    ("timeoutSeconds", Positive(1)),
    ("periodSeconds", Positive(10)),
    ("successThreshold", Positive(1)),
    ("failureThreshold", Positive(3)),
    ("httpGet", In(&HTTP_GET)),
    ("grpc", In(&const { Shape::of(&[("service", Text(""))]) })),
]);

const LIFECYCLE: Shape = Shape::of(&[("postStart", In(&HANDLER)), ("preStop", In(&HANDLER))]);

const HANDLER: Shape = Shape::of(&[("httpGet", In(&HTTP_GET))]);

const HTTP_GET: Shape = Shape::of(&[("path", Text("/")), ("scheme", Text("HTTP"))]);

/// Images that may change behind their name are always pulled.
pub(crate) fn pull_policy(image: &str) -> Value {
    if tag(image) == Some("latest") { "Always".into() } else { "IfNotPresent".into() }
}

/// The tag of an image, `latest` where neither a tag nor a digest says more; `None` for what names no image.
fn tag(image: &str) -> Option<&str> {
    if !crate::image::is_reference(image) {
        return None;
    }
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    // A colon before the last slash is that of a port.
    let last = name.rsplit('/').next().unwrap_or(name);
    match (last.split_once(':'), digest) {
        (Some((_, tag)), _) => Some(tag),
        (None, Some(_)) => None,
        (None, None) => Some("latest"),
    }
}

/// `serviceAccount` is the former name of `serviceAccountName`, and still written beside it.
fn service_account(spec: &mut Map) {
    let name = match text(spec, "serviceAccountName") {
        "" => text(spec, "serviceAccount"),
        name => name,
    };
    if !name.is_empty() {
        let name = name.to_owned();
        set(spec, "serviceAccountName", name.clone());
        set(spec, "serviceAccount", name);
    }
}

#[cfg(test)]
mod tests {
    use super::tag;

    const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn tags_are_told_from_ports_and_digests() {
        for (image, expected) in [
            ("", None),
            ("nginx", Some("latest")),
            ("nginx:1.27", Some("1.27")),
            ("nginx:latest", Some("latest")),
            ("registry.example:5000/nginx", Some("latest")),
            ("registry.example:5000/nginx:2", Some("2")),
            (&format!("nginx@{DIGEST}"), None),
            (&format!("nginx:latest@{DIGEST}"), Some("latest")),
            ("$(IMAGE)", None),
            ("Nginx", None),
        ] {
            assert_eq!(tag(image), expected, "{image}");
        }
    }
}
