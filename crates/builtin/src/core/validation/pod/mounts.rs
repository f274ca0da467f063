//! Validation of volume mounts and block devices of a container.
//!
//! Names must be those of volumes of the pod, and paths must be unique.

use std::collections::HashSet;

use keelson_meta::json::Value;

use super::volumes::{descending_path, steps_back};
use crate::validating::at::At;
use crate::validating::type_rules::Run;

pub(super) fn volume_mounts<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    if at.is_empty() {
        return;
    }
    let Some(container) = at.parent() else { return };
    let devices = container.field("volumeDevices").list();
    let (device_names, device_paths) = (texts(devices, "name"), texts(devices, "devicePath"));
    let context = container.field("securityContext");
    let privileged = context.field("privileged").is_true();
    let mut paths = HashSet::new();
    for mount in at.items() {
        let (name, path) = (mount.field("name"), mount.field("mountPath"));
        if name.is_empty() {
            name.required(run, "");
        }
        if run.pod.volume(name.text()).is_none() {
            name.not_found(run, name.text());
        }
        if path.is_empty() {
            path.required(run, "");
        }
        if !paths.insert(path.text()) {
            path.invalid(run, path.text(), "must be unique");
        }
        if device_names.contains(name.text()) {
            name.invalid(run, name.text(), "must not already exist in volumeDevices");
        }
        if device_paths.contains(path.text()) {
            path.invalid(run, path.text(), "must not already exist as a path in volumeDevices");
        }
        sub_path(&mount, at, run);
        propagation(&mount, at, privileged, run);
        recursive_read_only(&mount, at, run);
    }
}

/// Like upstream, some errors have the path of the list, not of the mount.
fn sub_path<'v>(mount: &At<'v, '_>, list: &At<'v, '_>, run: &mut Run<'v>) {
    let (path, expression) = (mount.field("subPath"), mount.field("subPathExpr"));
    let volume = run.pod.volume(mount.field("name").text());
    if volume.is_some_and(|volume| volume.get("image").is_some()) {
        for path in [&path, &expression].into_iter().filter(|path| !path.is_empty()) {
            path.invalid(run, path.text(), "not allowed in image volume sources");
        }
    }
    if !path.is_empty() {
        descending_path(&list.field("subPath"), path.text(), run);
    }
    if !expression.is_empty() {
        if !path.is_empty() {
            expression.invalid(run, expression.text(), "subPathExpr and subPath are mutually exclusive");
        }
        descending_path(&list.field("subPathExpr"), expression.text(), run);
    }
}

fn propagation<'v>(mount: &At<'v, '_>, list: &At<'v, '_>, privileged: bool, run: &mut Run<'v>) {
    const KNOWN: [&str; 3] = ["Bidirectional", "HostToContainer", "None"];
    let mode = mount.field("mountPropagation");
    if !mode.is_set() {
        return;
    }
    let at = list.field("mountPropagation");
    if !KNOWN.contains(&mode.text()) {
        at.not_supported(run, mode.text(), &KNOWN);
    }
    if mode.text() == "Bidirectional" && !privileged {
        at.forbidden(run, "Bidirectional mount propagation is available only to privileged containers");
    }
}

fn recursive_read_only<'v>(mount: &At<'v, '_>, list: &At<'v, '_>, run: &mut Run<'v>) {
    let mode = mount.field("recursiveReadOnly");
    let at = list.field("recursiveReadOnly");
    match mode.text() {
        _ if !mode.is_set() => {}
        "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if !mount.field("readOnly").is_true() {
                at.forbidden(run, "may only be specified when readOnly is true");
            }
            if !matches!(mount.field("mountPropagation").text(), "" | "None") {
                at.forbidden(run, "may only be specified when mountPropagation is None or not specified");
            }
        }
        other => at.not_supported(run, other, &["Disabled", "Enabled", "IfPossible"]),
    }
}

pub(super) fn volume_devices(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.is_empty() {
        return;
    }
    let mounts = at.parent().map_or(&[][..], |container| container.field("volumeMounts").list());
    let (mount_names, mount_paths) = (texts(mounts, "name"), texts(mounts, "mountPath"));
    let (mut names, mut paths) = (HashSet::new(), HashSet::new());
    for device in at.items() {
        let (name, path) = (device.field("name"), device.field("devicePath"));
        let volume = run.pod.volume(name.text());
        if name.is_empty() {
            name.required(run, "");
        }
        if names.contains(name.text()) {
            name.invalid(run, name.text(), "must be unique");
        }
        match volume {
            None => name.not_found(run, name.text()),
            Some(volume) if volume.get("persistentVolumeClaim").or(volume.get("ephemeral")).is_none() => {
                let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                name.invalid(run, name.text(), detail);
            }
            Some(_) => {}
        }
        if path.is_empty() {
            path.required(run, "");
        }
        if paths.contains(path.text()) {
            path.invalid(run, path.text(), "must be unique");
        }
        if steps_back(path.text()) {
            path.invalid(run, path.text(), "can not contain backsteps ('..')");
        } else {
            paths.insert(path.text());
        }
        if mount_names.contains(name.text()) {
            name.invalid(run, name.text(), "must not already exist in volumeMounts");
        }
        if mount_paths.contains(path.text()) {
            path.invalid(run, path.text(), "must not already exist as a path in volumeMounts");
        }
        if !name.is_empty() {
            names.insert(name.text());
        }
    }
}

/// The strings that the items of a list have in a field.
fn texts<'v>(list: &'v [Value], field: &str) -> HashSet<&'v str> {
    list.iter().filter_map(|item| item.get(field)?.as_str()).collect()
}
