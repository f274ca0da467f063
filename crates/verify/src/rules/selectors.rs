//! Selectors by labels and fields, of lists and of deletes.
//!
//! Each check has a label of its own, which it adds to its selectors.

use http::{Method, StatusCode};
use serde_json::json;

use super::{CONCEPTS, Need, Rule};
use crate::lab::{Checked, Lab, hold, names};
use crate::server::Ask;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "selectors.labels",
        text: "each operator of label selectors selects what its definition says",
        source: "Labels and Selectors",
        needs: Need::Writes,
        check: |lab| Box::pin(label_selectors_select(lab)),
    },
    Rule {
        id: "selectors.fields",
        text: "metadata.name selects one object, and with != all others",
        source: "Field Selectors",
        needs: Need::Writes,
        check: |lab| Box::pin(field_selectors_select(lab)),
    },
    Rule {
        id: "selectors.invalid",
        text: "a selector that can't be parsed, or an unknown field, is refused with 400",
        source: "Field Selectors",
        needs: Need::Reads,
        check: |lab| Box::pin(invalid_selectors_are_refused(lab)),
    },
    Rule {
        id: "selectors.delete",
        text: "a delete of a collection with a selector deletes the selected objects alone",
        source: CONCEPTS,
        needs: Need::Writes,
        check: |lab| Box::pin(deletes_are_selected(lab)),
    },
];

async fn label_selectors_select(lab: &Lab) -> Checked {
    for (name, labels) in [
        ("label-a", json!({"set": "labels", "tier": "front"})),
        ("label-b", json!({"set": "labels", "tier": "back"})),
        ("label-c", json!({"set": "labels"})),
    ] {
        lab.create(name, &labels).await?;
    }
    for (selector, expected) in [
        ("tier=front", &["label-a"][..]),
        ("tier==front", &["label-a"]),
        ("tier!=front", &["label-b", "label-c"]),
        ("tier in (front,back)", &["label-a", "label-b"]),
        ("tier notin (front)", &["label-b", "label-c"]),
        ("tier", &["label-a", "label-b"]),
        ("!tier", &["label-c"]),
        ("tier,tier!=back", &["label-a"]),
    ] {
        let escaped = selector.replace(' ', "%20").replace('=', "%3D").replace('!', "%21");
        let list = lab.get(format!("{}?labelSelector=set%3Dlabels,{escaped}", lab.maps())).await?;
        hold(names(&list) == expected, || format!("{selector:?} selects {:?}, and not {expected:?}", names(&list)))?;
    }
    Ok(())
}

async fn field_selectors_select(lab: &Lab) -> Checked {
    for name in ["field-a", "field-b"] {
        lab.create(name, &json!({"set": "fields"})).await?;
    }
    for (selector, expected) in [("metadata.name%3Dfield-a", ["field-a"]), ("metadata.name!%3Dfield-a", ["field-b"])] {
        let list = lab.get(format!("{}?labelSelector=set%3Dfields&fieldSelector={selector}", lab.maps())).await?;
        hold(names(&list) == expected, || format!("{selector} selects {:?}, and not {expected:?}", names(&list)))?;
    }
    Ok(())
}

async fn invalid_selectors_are_refused(lab: &Lab) -> Checked {
    for query in
        ["labelSelector=a%20in", "labelSelector=-%3Db", "fieldSelector=metadata.name", "fieldSelector=no.such%3Db"]
    {
        lab.expect(StatusCode::BAD_REQUEST, Ask::get(format!("/api/v1/namespaces?limit=1&{query}"))).await?;
    }
    Ok(())
}

async fn deletes_are_selected(lab: &Lab) -> Checked {
    for (name, kept) in [("delete-a", "no"), ("delete-b", "yes"), ("delete-c", "no")] {
        lab.create(name, &json!({"set": "deletes", "kept": kept})).await?;
    }
    let path = format!("{}?labelSelector=set%3Ddeletes", lab.maps());
    lab.expect(StatusCode::OK, Ask::new(Method::DELETE, format!("{path},kept%3Dno"))).await?;
    let left = names(&lab.get(path).await?);
    hold(left == ["delete-b"], || format!("{left:?} are left, and not delete-b alone"))
}
