//! A kit for tests of a whole server: a server in this process or as a child, and its clients.
//!
//! A server starts on a free port with new certificates. Requests use TLS as in production, and nothing here bypasses
//! it. Helpers panic with the request and the response, since all callers are tests.

mod breaking;
mod browser;
mod controller;
mod definitions;
mod egress;
mod endpoint;
mod hook;
mod hook_process;
mod kubectl;
mod kubelet;
pub mod linear;
mod process;
mod raw;
mod record;
mod server;
mod upstream;
mod verified;

pub use breaking::{BreakPoint, BreakingServer};
pub use browser::Browser;
pub use controller::{BROKEN_IMAGE, TestController};
pub use definitions::{DEFINITIONS, converted_review, definition, definition_version};
pub use egress::{EgressBehaviour, EgressDouble, EgressProtocol, EgressTransport};
pub use endpoint::Endpoint;
pub use hook::{HookReply, HookRequest, HookServer};
pub use hook_process::{HookProcess, hook_process};
pub use keelson_teststores::{
    CollectedSpan, CollectorAnswer, CollectorDouble, DiskFault, EtcdCluster, EtcdServer, EtcdServerBuilder,
    FragileDisk, KmsDouble, LossyWay, PostgresServer, PostgresServerBuilder,
};
pub use kubectl::{Kubectl, KubectlOutput, KubectlStream, other_kubectls};
pub use kubelet::{KubeletDouble, KubeletRequest};
pub use process::{ProcessServer, ProcessServerBuilder};
pub use raw::{Answer, Call, Raw, Stream};
pub use raw::{BINARY_FRAME, CLOSE_FRAME, HANDSHAKE, PING_FRAME, PONG_FRAME, TEXT_FRAME, Websocket};
pub use record::{RecordedServer, check_record, check_record_beside, check_records, differences_shown};
pub use server::{CONTROLLERS, RECORDED_RELEASE, TestServer, TestServerBuilder};
pub use upstream::{ServerName, UpstreamBody, UpstreamRequest, UpstreamServer, upstream_answer, upstream_echo};
pub use verified::{check_verified, verify};
