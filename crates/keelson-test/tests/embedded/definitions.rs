//! Custom resources from Rust types: they are served when the installation returns, or rejected with a reason.
//!
//! The type uses a derive macro of kube, as in controllers.

use keelson_test::{Error, Keelson};
use kube::CustomResourceExt as _;
use kube::api::{Api, PostParams};

use crate::{Widget, WidgetSpec, code};

#[tokio::test]
async fn a_type_is_served_when_its_installation_returns() {
    let server = Keelson::start().await.unwrap();
    server.install::<Widget>().await.unwrap();
    let widgets: Api<Widget> = Api::namespaced(server.client(), "default");
    let made = widgets.create(&PostParams::default(), &Widget::new("w", WidgetSpec { size: 3 })).await.unwrap();
    assert_eq!(made.spec.size, 3);
    // A second installation is not an error.
    server.install::<Widget>().await.unwrap();
    assert_eq!(widgets.get("w").await.unwrap().spec.size, 3);
    let mut wrong = serde_json::to_value(Widget::new("x", WidgetSpec { size: 1 })).unwrap();
    wrong["spec"]["size"] = "large".into();
    let path = "/apis/example.com/v1/namespaces/default/widgets";
    let request = http::Request::post(path).body(wrong.to_string().into_bytes()).unwrap();
    assert_eq!(code(server.client().request::<Widget>(request).await), 422);
}

#[tokio::test]
async fn many_definitions_are_installed_together() {
    let server = Keelson::start().await.unwrap();
    let definition = serde_json::to_value(Widget::crd()).unwrap();
    let definitions = (0..20).map(|number| {
        let text = definition
            .to_string()
            .replace("idgets", &format!("idget{number}s"))
            .replace("idget\"", &format!("idget{number}\""));
        serde_json::from_str(&text).unwrap()
    });
    server.install_definitions(definitions).await.unwrap();
    let request = http::Request::get("/apis/example.com/v1/widget19s").body(Vec::new()).unwrap();
    assert!(server.client().request_text(request).await.is_ok());
}

#[tokio::test]
async fn a_wrong_definition_is_refused_with_the_reason() {
    let server = Keelson::start().await.unwrap();
    let mut definition = serde_json::to_value(Widget::crd()).unwrap();
    definition["spec"]["scope"] = "Everywhere".into();
    let refused = server.install_definitions([definition]).await.unwrap_err();
    assert_eq!(refused.status().map(|status| status.code), Some(422));
    let refused = server.install_definitions([serde_json::json!({})]).await.unwrap_err();
    assert!(matches!(refused, Error::Argument(_)), "{refused}");
}
